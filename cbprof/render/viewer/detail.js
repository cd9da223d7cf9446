// The lanes of the current view: states of each GPU, phases of the CPU, streams of each GPU.

import { lastAtOrBefore } from "./geometry.js";
import { Scale, isSparse, paintArrow, paintAxis, paintLabel, paintLayers, paintRow } from "./paint.js";
import { paintEnd, paintGutter } from "./plot.js";
import { durationText } from "./text.js";

const LANE = { axis: 22, gap: 9, streamGap: 3, caption: 15, end: 4 };
const ALONE = { states: 56, row: 24 }; // heights in CSS pixels, where the page shows one run
const PAIRED = { states: 44, row: 20 };
const MOST_ROWS = 8; // of a host lane, unless all of a deep stack is asked for
const MOST_ARROWS = 200; // from one launch
const ARROW_ROOM = 40; // CSS pixels that a step needs for its arrows to be told apart

export class Detail {
  constructor(viewer, run, plot) {
    Object.assign(this, { viewer, run, plot, items: [] });
    this.#listen();
  }

  /** Place the lanes from top to bottom, in CSS pixels. */
  #layout() {
    const heights = this.viewer.runs.length > 1 ? PAIRED : ALONE;
    let top = LANE.axis;
    this.items = [];
    const narrow = this.plot.narrow;
    const many = this.run.devices.length > 1;
    const caption = (name, detail) => {
      if (narrow) this.items.push({ caption: detail ? `${name} · ${detail}` : name, top, height: LANE.caption });
      if (narrow) top += LANE.caption;
    };
    for (const device of this.run.devices) {
      const name = many ? `GPU ${device.device}` : "GPU";
      caption(name, "");
      this.items.push({ device, name, detail: "", top, height: heights.states });
      top += heights.states + LANE.gap;
    }
    const known = this.run.knows(this.view.start, this.view.end);
    for (const { name, device, rows: all, coarse } of this.run.lanes) {
      const stream = device >= 0;
      const rows = !known ? [coarse] : this.viewer.deep ? all : all.slice(0, MOST_ROWS);
      const title = stream ? name : "CPU";
      const deeper = known && all.length > rows.length ? `+${all.length - rows.length} deeper (E)` : "";
      const detail = stream ? (many ? `GPU ${device}` : "") : deeper || name;
      caption(title, detail);
      rows.forEach((row, depth) => {
        const heading = depth === 0 ? { name: title, detail, rows: rows.length } : {};
        this.items.push({ row, top, height: heights.row, ...heading });
        top += heights.row + 1;
      });
      top += stream ? LANE.streamGap : LANE.gap;
    }
    this.height = top + LANE.end;
  }

  /** The stretch in view, in this run's time. */
  get view() {
    return this.viewer.viewOf(this.run);
  }

  drawData(inks) {
    this.#layout();
    this.plot.reset(this.height);
    const surface = this.plot.data;
    const { start, end } = this.view;
    const gutter = surface.px(this.plot.gutter);
    this.scale = new Scale(gutter, surface.width - gutter, start, end);
    paintAxis(surface, inks, this.scale, 0, surface.px(LANE.axis - 4), surface.height);
    for (const item of this.items) this.#drawItem(surface, inks, item);
    const first = this.items.find((item) => item.device || item.row);
    if (first) paintEnd(surface, inks, this.scale, surface.px(first.top), surface.px(first.height), this.run.length);
  }

  #drawItem(surface, inks, item) {
    const [top, height] = [surface.px(item.top), surface.px(item.height)];
    if (item.caption) {
      surface.font(11, 600);
      surface.ctx.textAlign = "left";
      surface.ctx.fillStyle = inks.css("muted");
      surface.ctx.fillText(item.caption.slice(0, 60), 0, top + height / 2);
      return;
    }
    if (item.device) {
      const layers = item.device.layers(this.scale.start, this.scale.end, this.viewer.byBlame);
      paintLayers(surface, inks, this.scale, top, height, layers);
    }
    if (item.row) paintRow(surface, inks, this.scale, top, height, item.row);
    if (item.name && this.plot.gutter) {
      const below = item.rows > 1;
      paintGutter(surface, inks, this.plot.gutter, below ? top + height : top + height / 2, item.name, item.detail, below);
    }
  }

  drawOverlay(inks) {
    const surface = this.plot.overlay;
    const { ctx } = surface;
    surface.wipe();
    const known = this.run.knows(this.scale.start, this.scale.end);
    for (const item of this.items) if (item.device && known) this.#labelPieces(surface, inks, item);
    if (this.viewer.arrows && known) this.#drawArrows(surface, inks);
    if (known) this.#drawLaunches(surface, inks);
    this.#mark(surface, inks);
    const pointer = this.viewer.pointerOf(this.run);
    if (pointer !== null && pointer >= this.scale.start && pointer <= this.scale.end) {
      ctx.fillStyle = inks.css("cross");
      ctx.fillRect(Math.round(this.scale.x(pointer)), surface.px(LANE.axis - 4), 1, surface.height);
    }
  }

  /** How long each state lasts, written on the overlay so that the lane below stays exact. */
  #labelPieces(surface, inks, { device, top, height }) {
    const { starts, ends, codes, layers } = device.partition(this.viewer.byBlame);
    const first = Math.max(0, lastAtOrBefore(starts, this.scale.start));
    const last = lastAtOrBefore(starts, this.scale.end) + 1;
    surface.font(11.5, 600);
    for (let i = first; i < last; i++) {
      const left = this.scale.clamp(this.scale.x(starts[i]));
      const right = this.scale.clamp(this.scale.x(ends[i]));
      if (right - left < surface.px(30) || !layers[codes[i]]) continue;
      const { name, style } = layers[codes[i]];
      const length = durationText(ends[i] - starts[i]);
      const middle = surface.px(top + height / 2);
      paintLabel(surface, inks, style, left, right, middle, [`${name} ${length}`, length], { cut: false });
    }
  }

  /** The range, the gap, the step and the spans that were asked for. */
  #mark(surface, inks) {
    const { range, gap, markedStep, found } = this.viewer;
    if (range?.run === this.run) {
      const [left, right] = this.#across(range.start, range.end);
      surface.ctx.fillStyle = inks.css("range");
      surface.ctx.fillRect(left, surface.px(LANE.axis - 4), right - left, surface.height);
    }
    const wanted = found.get(this.run);
    const { name, step } = this.run.spans;
    for (const item of this.items) {
      if (item.device && gap?.device === item.device) {
        const { start, end } = item.device.gaps;
        this.#box(surface, inks.css("accent"), item, start[gap.i], end[gap.i], 2.5);
      }
      if (!item.row) continue;
      if (markedStep >= 0) this.#outline(surface, inks.css("text"), item, 1.5, (i) => step[i] === markedStep);
      if (!wanted) continue;
      this.#outline(surface, inks.css("accent"), item, 1.5, (i) => wanted.ids.has(name[i]));
      if (item.row.holds?.(wanted.span)) this.#box(surface, inks.css("accent"), item, this.run.spans.start[wanted.span], this.run.endOf(wanted.span), 3.5);
    }
  }

  #across(start, end) {
    return [start, end].map((t) => this.scale.clamp(this.scale.x(t)));
  }

  #box(surface, color, { top, height }, start, end, width) {
    if (end < this.scale.start || start > this.scale.end) return;
    const [left, right] = this.#across(start, end);
    surface.ctx.strokeStyle = color;
    surface.ctx.lineWidth = width * surface.scale;
    surface.ctx.strokeRect(left, surface.px(top), Math.max(1, right - left), surface.px(height));
  }

  /** Outline the spans of a row that `wanted` picks, where they are few enough to be drawn one by one. */
  #outline(surface, color, item, width, wanted) {
    const { row } = item;
    const [first, last] = row.between(this.scale.start, this.scale.end);
    if (!isSparse(surface, this.scale, [first, last])) return;
    for (let at = first; at < last; at++) {
      if (wanted(row.indices[at])) this.#box(surface, color, item, row.starts[at], row.ends[at], width);
    }
  }

  /** From the launch under the pointer to what it launched, or back; with `launches`, from all where there is room. */
  #drawLaunches(surface, inks) {
    const { pointed, launches } = this.viewer;
    const { spans, launched } = this.run;
    const places = new Map();
    for (const { row, top, height } of this.items) if (row) places.set(row, { top: surface.px(top), bottom: surface.px(top + height) });
    const draw = (by, i) => {
      const [from, to] = [by, i].map((span) => places.get(this.run.placeOf(span).row));
      const x = this.scale.x(Math.min(this.run.endOf(by), spans.start[i]));
      const end = this.scale.x(spans.start[i]);
      if (!from || !to || x < this.scale.left || end > this.scale.left + this.scale.width) return;
      paintArrow(surface, inks, { x, y: from.bottom }, { x: end, y: to.top }, "accent");
    };
    if (pointed?.run === this.run) {
      if (spans.launch[pointed.span] >= 0) draw(spans.launch[pointed.span], pointed.span);
      for (const i of (launched.get(pointed.span) ?? []).slice(0, MOST_ARROWS)) draw(pointed.span, i);
    }
    if (!launches) return;
    for (const { row } of this.items) {
      if (!row?.indices) continue;
      const [first, last] = row.between(this.scale.start, this.scale.end);
      if ((last - first) * ARROW_ROOM * surface.scale > 2 * this.scale.width) continue;
      for (let at = first; at < last; at++) if (spans.launch[row.indices[at]] >= 0) draw(spans.launch[row.indices[at]], row.indices[at]);
    }
  }

  /** H2D to compute to D2H of each step, while the steps are wide enough to tell them apart. */
  #drawArrows(surface, inks) {
    const middles = new Map();
    for (const { row, top, height } of this.items) if (row) middles.set(row, surface.px(top + height / 2));
    for (const { device, rows } of this.run.lanes) {
      if (device < 0) continue;
      for (const row of rows) {
        const [first, last] = row.between(this.scale.start, this.scale.end);
        if ((last - first) * ARROW_ROOM * surface.scale > this.scale.width) continue;
        for (let position = first; position < last; position++) {
          const next = this.run.after(device, row.indices[position]);
          if (!next) continue;
          const from = { x: this.scale.x(row.ends[position]), y: middles.get(row) };
          const to = { x: this.scale.x(this.run.spans.start[next.span]), y: middles.get(next.row) };
          if (from.x < this.scale.left || to.x > this.scale.left + this.scale.width) continue;
          paintArrow(surface, inks, from, to);
        }
      }
    }
  }

  /** What lies under a point in CSS pixels: `{item, t, span}`; `span` is -1 where there is none. */
  hit(x, y) {
    const t = this.scale.t(x * this.plot.data.scale);
    const item = this.items.find(({ top, height, caption }) => !caption && y >= top && y < top + height);
    if (!item || x < this.plot.gutter) return null;
    const slack = 3 * this.plot.data.scale * this.scale.pixel;
    return { item, t, span: item.row ? item.row.spanNear(t, slack) : -1 };
  }

  #listen() {
    const canvas = this.plot.overlay.canvas;
    const pointers = new Map();
    let moved = false;
    let chosen = null; // where a range began
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const timeAt = (x) => this.scale.t(x * this.plot.data.scale);
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, place(event));
      moved = false;
      chosen = event.shiftKey ? timeAt(place(event).x) : null;
      this.viewer.tip.hide();
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      const before = pointers.get(event.pointerId);
      if (!before) return this.viewer.point(this, now, event);
      moved ||= Math.abs(now.x - before.x) > 1;
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      pointers.set(event.pointerId, now);
      if (chosen !== null) this.viewer.choose(this.run, chosen, timeAt(now.x));
      else if (others.length) this.#pinch(before, now, others[0]);
      else this.viewer.moveBy(timeAt(before.x) - timeAt(now.x));
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        pointers.delete(event.pointerId);
        if (chosen !== null && moved) this.viewer.onRange(this.run, this.viewer.range);
        else if (!moved) this.#click(place(event), event);
        chosen = null;
      });
    }
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "touch" || this.viewer.leave());
    canvas.addEventListener("dblclick", (event) => {
      const found = this.hit(place(event).x, place(event).y);
      const step = found && found.span >= 0 ? this.run.spans.step[found.span] : -1;
      if (step >= 0) this.viewer.goToStep(step, this.run);
      else this.viewer.zoom(0.5, timeAt(place(event).x), this.run);
    });
    canvas.addEventListener("wheel", (event) => this.viewer.wheel(event, timeAt(place(event).x), this.run), { passive: false });
  }

  /** A click or a tap shows what is there, and a gap on the card. */
  #click(at, event) {
    this.viewer.take(this.run);
    this.viewer.point(this, at, event);
    const found = this.hit(at.x, at.y);
    const device = found?.item.device;
    const gap = device && this.run.knows(found.t, found.t) ? device.gaps.at(found.t) : -1;
    if (gap >= 0) this.viewer.onGap(this.run, device, gap);
  }

  /** Two fingers: what is under each finger stays under it. */
  #pinch(before, now, still) {
    const spread = Math.abs(before.x - still.x) / Math.max(1, Math.abs(now.x - still.x));
    this.viewer.zoom(Math.max(0.5, Math.min(2, spread)), this.scale.t(still.x * this.plot.data.scale), this.run);
  }
}
