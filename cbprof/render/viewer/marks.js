// What is drawn over the lanes: lengths of states, arrows, and what was asked for: a range, a gap, a step, spans of a name.

import { lastAtOrBefore } from "./geometry.js";
import { TOP } from "./layout.js";
import { isSparse, paintArrow, paintLabel } from "./paint.js";
import { durationText } from "./text.js";

const MOST_ARROWS = 200; // from one launch
const ARROW_ROOM = 40; // CSS pixels that a step needs for its arrows to be told apart

export class Marks {
  /** `items` as `layOut` places them, on a scale. */
  constructor(viewer, run, items, scale) {
    Object.assign(this, { viewer, run, items, scale });
  }

  draw(surface, inks) {
    const known = this.run.knows(this.scale.start, this.scale.end);
    for (const item of this.items) if (item.device && known) this.#labelPieces(surface, inks, item);
    if (this.viewer.arrows && known) this.#drawArrows(surface, inks);
    if (known) this.#drawLaunches(surface, inks);
    this.#mark(surface, inks);
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
      surface.ctx.fillRect(left, surface.px(TOP - 4), right - left, surface.height);
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
}
