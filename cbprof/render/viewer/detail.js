// The lanes of the current view: states of each GPU, phases of the CPU, streams of each GPU.

import { TOP, layOut } from "./layout.js";
import { Marks } from "./marks.js";
import { Scale, paintAxis, paintLayers, paintRow, shorten } from "./paint.js";
import { paintEnd, paintGutter } from "./plot.js";

export class Detail {
  constructor(viewer, run, plot) {
    Object.assign(this, { viewer, run, plot, items: [] });
    this.#listen();
  }

  /** The stretch in view, in this run's time. */
  get view() {
    return this.viewer.viewOf(this.run);
  }

  drawData(inks) {
    const { deep, runs } = this.viewer;
    const { items, height } = layOut(this.run, this.view, { deep, paired: runs.length > 1, narrow: this.plot.narrow });
    this.items = items;
    this.plot.reset(height);
    const surface = this.plot.data;
    const { start, end } = this.view;
    const gutter = surface.px(this.plot.gutter);
    this.scale = new Scale(gutter, surface.width - gutter, start, end);
    paintAxis(surface, inks, this.scale, 0, surface.px(TOP - 4), surface.height);
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
    if (item.fold) this.#drawFold(surface, inks, item, top, height);
    if (item.name && this.plot.gutter) paintGutter(surface, inks, this.plot.gutter, top, height, item);
  }

  /** One line for the frames that do not change in the view, or for all of a thread. */
  #drawFold(surface, inks, { fold, lane }, top, height) {
    const { ctx } = surface;
    ctx.fillStyle = inks.css("void");
    ctx.fillRect(this.scale.left, top, this.scale.width, height);
    surface.font(11);
    ctx.textAlign = "left";
    ctx.fillStyle = inks.css("muted");
    const room = this.scale.width - surface.px(16);
    const fits = foldTexts(this.run, lane, fold).find((text, at, all) => at === all.length - 1 || ctx.measureText(text).width <= room);
    const text = ctx.measureText(fits).width <= room ? fits : shorten(ctx, fits, room);
    ctx.fillText(text, this.scale.left + surface.px(8), top + height / 2);
  }

  /** Draw on surfaces in place of the plot's. */
  drawOn(plot, inks) {
    const own = this.plot;
    this.plot = plot;
    this.drawData(inks);
    this.drawOverlay(inks);
    this.plot = own;
  }

  drawOverlay(inks) {
    const surface = this.plot.overlay;
    const { ctx } = surface;
    surface.wipe();
    new Marks(this.viewer, this.run, this.items, this.scale).draw(surface, inks);
    const pointer = this.viewer.pointerOf(this.run);
    if (pointer !== null && pointer >= this.scale.start && pointer <= this.scale.end) {
      ctx.fillStyle = inks.css("cross");
      ctx.fillRect(Math.round(this.scale.x(pointer)), surface.px(TOP - 4), 1, surface.height);
    }
  }

  /** What lies under a point in CSS pixels: `{item, t, span}`; `span` is -1 where there is none. */
  hit(x, y) {
    const t = this.scale.t(x * this.plot.data.scale);
    const item = this.items.find(({ top, height, caption }) => !caption && y >= top && y < top + height);
    if (!item) return null;
    if (x < this.plot.gutter || item.fold) return { item, t, span: -1, lane: item.lane, gutter: x < this.plot.gutter };
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
    if (found?.lane && found.lane.device < 0) return this.viewer.fold(found.lane, Boolean(found.item.fold));
    const device = found?.gutter ? null : found?.item.device;
    const gap = device && this.run.knows(found.t, found.t) ? device.gaps.at(found.t) : -1;
    if (gap >= 0) this.viewer.onGap(this.run, device, gap);
  }

  /** Two fingers: what is under each finger stays under it. */
  #pinch(before, now, still) {
    const spread = Math.abs(before.x - still.x) / Math.max(1, Math.abs(now.x - still.x));
    this.viewer.zoom(Math.max(0.5, Math.min(2, spread)), this.scale.t(still.x * this.plot.data.scale), this.run);
  }
}

/** What a folded line says, the longest first. */
function foldTexts(run, lane, fold) {
  if (!fold.length) {
    const why = lane.waits && lane.open === undefined ? "only waits" : "folded";
    const rows = lane.rows.length === 1 ? "row" : `${lane.rows.length} rows`;
    return [`${lane.name}: ${why}; a click shows its ${rows}`, `${why}; a click shows its ${rows}`, why];
  }
  const names = fold.map((i) => run.shortOf(i));
  const many = `${names.length} outer frames`;
  return names.map((_, from) => `${many}: ${from ? "… › " : ""}${names.slice(from).join(" › ")}`).concat(many);
}
