// One run on the page: its title, its strip, its lanes, its table of shares, and what the tooltip says about it.

class Panel {
  constructor(viewer, run, parent) {
    Object.assign(this, { viewer, run });
    const words = element("div", {}, element("h2", { textContent: run.title }));
    for (const text of [run.subtitle, run.evidence]) if (text) words.append(element("p", { textContent: text }));
    const section = element("section", { className: "run" }, element("header", {}, words, this.#table()));
    parent.append(section);
    this.parts = [];
    if (!run.spans.start.length) return;
    this.overview = new Overview(viewer, run, new Plot(section, "overview", `Whole run: ${run.title}`));
    this.detail = new Detail(viewer, run, new Plot(section, "detail", `Lanes of the current view: ${run.title}`));
    this.parts = [this.overview, this.detail];
  }

  /** The legend and the shares in one: a column per state, a row for the view and one for the run. */
  #table() {
    this.cells = [];
    const classes = this.viewer.states;
    const head = element("tr", {}, element("td"));
    for (const { key, label } of classes) {
      head.append(element("th", { scope: "col" }, element("span", { className: `swatch ${key}` }), label));
    }
    head.append(element("th", { scope: "col", textContent: "GPU active" }));
    const body = element("tbody");
    const row = (name, shares) => {
      const label = element("th", { scope: "row", textContent: name });
      const cells = [...classes, {}].map(() => element("td"));
      body.append(element("tr", {}, label, ...cells));
      if (shares) fillShares(cells, shares, classes);
      return { label, cells };
    };
    for (const device of this.run.devices) {
      const prefix = this.run.devices.length > 1 ? `GPU ${device.device}, ` : "";
      this.cells.push({ device, prefix, ...row("", null) });
      row(`${prefix}whole run`, device.shares(0, this.run.length));
    }
    const table = element("table", { className: "shares" }, element("thead", {}, head), body);
    table.hidden = !this.run.devices.length;
    return table;
  }

  drawData(inks) {
    for (const part of this.parts) part.drawData(inks);
  }

  drawView(inks) {
    this.detail?.drawData(inks);
    for (const { device, prefix, label, cells } of this.cells ?? []) {
      label.textContent = `${prefix}this view`;
      const { start, end } = this.viewer.view;
      fillShares(cells, device.shares(start, end), this.viewer.states);
    }
    this.drawOverlay(inks);
  }

  drawOverlay(inks) {
    for (const part of this.parts) part.drawOverlay(inks);
  }

  /** Lines of `[label, value]` about what lies under the pointer, the name first; null where there is nothing. */
  describe({ item, t, span }) {
    const pixel = this.detail.scale.pixel * this.detail.plot.data.scale;
    if (item.states) return this.#describeState(item.states, t, pixel);
    if (span < 0) return null;
    if (this.run.spans.dur[span] < pixel) {
      const [first, last] = item.row.between(t - pixel / 2, t + pixel / 2);
      if (last - first > 1) return this.#describeMany(item.row, t, pixel, last - first);
    }
    return this.#describeSpan(span);
  }

  #describeSpan(i) {
    const { spans, steps } = this.run;
    const [start, end] = [spans.start[i], this.run.endOf(i)];
    const lines = [["", this.run.nameOf(i)]];
    if (spans.step[i] >= 0) lines.push(["step", countText(spans.step[i])]);
    if (spans.slot[i] >= 0) lines.push(["slot", String(spans.slot[i])]);
    lines.push(["start", momentText(start)], ["duration", durationText(spans.dur[i])]);
    for (const device of this.run.devices) {
      const state = this.viewer.states
        .map(({ key, label }) => [device.shares(start, end)[key], label])
        .filter(([share]) => share > 0.0005)
        .sort(([a], [b]) => b - a)
        .map(([share, label]) => `${label} ${shareText(share)}`);
      if (state.length) lines.push([this.run.devices.length > 1 ? `GPU ${device.device}` : "state", state.join(", ")]);
    }
    const at = this.run.positionOf(spans.step[i]);
    if (at >= 0) {
      if (steps.batchPhase[at] >= 0) lines.push(["batch", this.viewer.phases[steps.batchPhase[at]]]);
      for (const fact of ["tokens", "requests", "context"]) {
        if (steps[fact][at] >= 0) lines.push([fact, countText(steps[fact][at])]);
      }
    }
    return lines;
  }

  #describeMany(row, t, pixel, count) {
    const lines = [["", `${countText(count)} spans in this pixel`], ["time", momentText(t)]];
    for (const { name, track } of row.layers) {
      const share = track.covered(t - pixel / 2, t + pixel / 2) / pixel;
      if (share > 0) lines.push([name, shareText(share)]);
    }
    return lines;
  }

  #describeState(states, t, pixel) {
    const i = lastAtOrBefore(states.starts, t);
    if (i < 0 || t >= states.ends[i]) return null;
    const length = states.ends[i] - states.starts[i];
    if (length >= pixel) {
      const { name } = states.layers[states.state[i]];
      return [["", name], ["start", momentText(states.starts[i])], ["duration", durationText(length)]];
    }
    const shares = states.shares(t - pixel / 2, t + pixel / 2);
    const lines = this.viewer.states.map(({ key, label }) => [label, shareText(shares[key])]);
    return [["", "states in this pixel"], ["time", momentText(t)], ...lines];
  }
}

function fillShares(cells, shares, classes) {
  const active = shares.overlap === null ? null : shares.overlap + shares.gpu_only;
  [...classes.map(({ key }) => shares[key]), active].forEach((share, i) => (cells[i].textContent = shareText(share)));
}
