// One run on the page: its title, its strip, its lanes, its table of shares, and what the tooltip says about it.

import { CoarseRow } from "./coarse.js";
import { Detail } from "./detail.js";
import { gapLines } from "./gap_finder.js";
import { lastAtOrBefore } from "./geometry.js";
import { Overview } from "./overview.js";
import { sharesOf } from "./partition.js";
import { Plot, element, wholeFigures } from "./plot.js";
import { countText, durationText, momentText, shareText } from "./text.js";

export class Panel {
  constructor(viewer, run, parent) {
    Object.assign(this, { viewer, run });
    const words = element("div", {}, element("h2", {}, ...wholeFigures(run.title)));
    if (run.label) words.prepend(element("p", { className: "label", textContent: run.label, dir: "auto" }));
    for (const text of [run.subtitle, run.evidence]) if (text) words.append(element("p", { textContent: text }));
    this.header = element("header", {}, words, this.#table());
    const section = (this.section = element("section", { className: "run" }, this.header));
    parent.append(section);
    this.parts = [];
    if (!run.spans.start.length) return;
    this.overview = new Overview(viewer, run, new Plot(section, "overview", `Whole run: ${run.title}`));
    this.detail = new Detail(viewer, run, new Plot(section, "detail", `Lanes of the current view: ${run.title}`));
    this.parts = [this.overview, this.detail];
  }

  /** The legend and the shares in one: a column per class, a row for the view and one for the run. */
  #table() {
    const { byBlame } = this.viewer;
    const { devices } = this.run;
    this.cells = [];
    this.classes = [];
    if (!devices.length) return "";
    const recorded = !devices.some(({ untraced }) => untraced); // all that the host did
    const classes = (this.classes = devices[0].partition(byBlame).layers.filter(({ untraced }) => !(untraced && recorded)));
    const head = element("tr", {}, element("td"));
    for (const { name, style } of classes) {
      const swatch = element("span", { className: `swatch ${style.state ?? "cause"}` });
      if (style.color) swatch.style.setProperty("--ground", style.color);
      head.append(element("th", { scope: "col", dir: "auto" }, swatch, name.slice(0, 40)));
    }
    head.append(element("th", { scope: "col", textContent: "GPU active" }));
    const body = element("tbody");
    const row = (name) => {
      const label = element("th", { scope: "row", textContent: name });
      const cells = [...classes, {}].map(() => element("td"));
      body.append(element("tr", {}, label, ...cells));
      return { label, cells };
    };
    for (const device of devices) {
      const prefix = devices.length > 1 ? `GPU ${device.device}, ` : "";
      this.cells.push({ device, classes, prefix, ...row("") });
      fillShares(row(`${prefix}whole run`).cells, classes, device, [0, this.run.length], byBlame);
    }
    const table = element("table", { className: "shares" }, element("thead", {}, head), body);
    table.style.setProperty("--cells", head.childElementCount);
    return table;
  }

  /** Show the legend of another division of the device's time. */
  renewTable() {
    const table = this.#table();
    if (table) this.header.querySelector(".shares").replaceWith(table);
  }

  /** Whether keys and the card are about this run, where there are several. */
  markTaken(taken) {
    this.section.classList.toggle("taken", taken);
  }

  /** CSS pixels that the view is wide. */
  get width() {
    return this.detail ? this.detail.plot.width : 1;
  }

  drawData(inks) {
    this.overview?.drawData(inks);
  }

  drawView(inks) {
    this.detail?.drawData(inks);
    const { byBlame } = this.viewer;
    const { start, end } = this.viewer.viewOf(this.run);
    for (const { device, classes, prefix, label, cells } of this.cells) {
      label.textContent = `${prefix}this view`;
      fillShares(cells, classes, device, [start, end], byBlame);
    }
    this.drawOverlay(inks);
  }

  drawOverlay(inks) {
    for (const part of this.parts) part.drawOverlay(inks);
  }

  /** Lines of `[label, value]` about what lies under the pointer, the name first; null where there is nothing. */
  describe({ item, t, span, lane, gutter }) {
    if (lane) return this.#describeLane(lane, gutter ? [] : item.fold);
    if (gutter) return null;
    const pixel = this.detail.scale.pixel * this.detail.plot.data.scale;
    if (item.device) return this.#describeState(item.device, t, pixel);
    if (item.row instanceof CoarseRow) return this.#describeMany(item.row, t, pixel);
    if (span < 0) return null;
    if (this.run.spans.dur[span] < pixel) {
      const [first, last] = item.row.between(t - pixel / 2, t + pixel / 2);
      if (last - first > 1) return this.#describeMany(item.row, t, pixel, last - first);
    }
    return this.#describeSpan(span);
  }

  /** Its whole name, and the frames that a folded line stands for, with file and line. */
  #describeLane(lane, frames) {
    const kind = lane.device < 0 ? "thread" : `stream of GPU ${lane.device}`;
    const lines = [["", lane.name], [kind, `${countText(lane.count)} ${lane.count === 1 ? "span" : "spans"}`]];
    if (lane.waits) lines.push(["waits", "nearly all of the time, and launches nothing"]);
    frames.forEach((i, at) => lines.push([at ? " " : "outer frames", this.run.nameOf(i)]));
    if (lane.device < 0) lines.push(["click", "folds and unfolds"]);
    return lines;
  }

  #describeSpan(i) {
    const { spans, steps } = this.run;
    const [start, end] = [spans.start[i], this.run.endOf(i)];
    const lines = [["", this.run.nameOf(i)]];
    if (spans.step[i] >= 0) lines.push(["step", countText(spans.step[i])]);
    if (spans.slot[i] >= 0) lines.push(["slot", String(spans.slot[i])]);
    lines.push(["start", momentText(start)], ["duration", durationText(spans.dur[i])]);
    for (const device of this.run.devices.filter(({ known }) => known)) {
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

  /** `count` is left out where it is not known. */
  #describeMany(row, t, pixel, count) {
    const many = count === undefined ? "spans in this pixel" : `${countText(count)} ${count === 1 ? "span" : "spans"} in this pixel`;
    const lines = [["", many], ["time", momentText(t)]];
    for (const { name, track } of row.layers) {
      const share = track.covered(t - pixel / 2, t + pixel / 2) / pixel;
      if (share > 0) lines.push([name, shareText(share)]);
    }
    return lines;
  }

  #describeState(device, t, pixel) {
    const { byBlame } = this.viewer;
    const { starts, ends, codes, layers } = device.partition(byBlame);
    const i = lastAtOrBefore(starts, t);
    const known = this.run.knows(t, t) && i >= 0 && t < ends[i];
    if (!known && !device.coarse) return null;
    const length = known ? ends[i] - starts[i] : 0;
    const piece = length >= pixel && layers[codes[i]];
    const lines = piece ? [["", piece.name], ["start", momentText(starts[i])], ["duration", durationText(length)]] : [];
    const gap = this.run.knows(t, t) ? device.gaps.at(t) : -1;
    if (gap >= 0 && device.gaps.lengthOf(gap) >= pixel) lines.push(...gapLines(this.run, device, gap));
    if (lines.length) return lines;
    const drawn = device.layers(t - pixel / 2, t + pixel / 2, byBlame);
    const shares = sharesOf(drawn, t - pixel / 2, t + pixel / 2);
    const said = drawn.filter(({ untraced }) => !untraced || device.untraced).map(({ key, name }) => [name, shareText(shares[key])]);
    return [["", "states in this pixel"], ["time", momentText(t)], ...said];
  }
}

/** A cell for each of the `classes`, and one for all in which the device was active. */
function fillShares(cells, classes, device, [start, end], byBlame) {
  const shares = device.shares(start, end, byBlame);
  const active = classes.filter(({ gpu }) => gpu).map(({ key }) => shares[key]);
  const sum = active.includes(null) ? null : active.reduce((a, b) => a + b, 0);
  const said = ({ key, style }) => (style.state && !device.known ? "unknown" : shareText(shares[key]));
  [...classes.map(said), shareText(sum)].forEach((text, i) => (cells[i].textContent = text));
}
