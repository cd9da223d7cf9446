// The strip on top: the whole run as exact coverage, and a brush that shows and moves what the lanes below show.

import { Scale, paintAxis, paintLayers } from "./paint.js";
import { paintEnd, paintGutter, paintNote } from "./plot.js";

const STRIP = { rail: 12, height: 54, least: 16, gap: 3, axis: 20 };

export class Overview {
  constructor(viewer, run, plot) {
    Object.assign(this, { viewer, run, plot });
    this.strips = run.devices.length ? run.devices : [null];
    this.each = Math.max(STRIP.least, Math.floor(STRIP.height / this.strips.length));
    this.bottom = STRIP.rail + this.strips.length * (this.each + STRIP.gap);
    this.#listen();
  }

  /** Draw the coverage of the run; once for each size and theme. */
  drawData(inks) {
    const surface = this.plot.data;
    this.plot.reset(this.bottom + STRIP.axis);
    this.scale = new Scale(surface.px(this.plot.gutter), surface.width - surface.px(this.plot.gutter), 0, this.viewer.length);
    const height = surface.px(this.each);
    this.strips.forEach((device, index) => {
      const top = surface.px(STRIP.rail + index * (this.each + STRIP.gap));
      if (device) {
        const layers = device.layers(0, this.run.length, this.viewer.byBlame);
        paintLayers(surface, inks, this.scale, top, height, layers);
        if (index === 0) paintEnd(surface, inks, this.scale, top, height, this.run.length);
      } else {
        paintNote(surface, inks, this.scale, top, height, "no span of this run is on a GPU");
      }
      if (this.plot.gutter) {
        const name = this.strips.length > 1 ? `GPU ${device.device}` : "whole run";
        paintGutter(surface, inks, this.plot.gutter, top, height, { name });
      }
    });
    paintAxis(surface, inks, this.scale, surface.px(this.bottom), surface.px(STRIP.axis - 4));
  }

  /** Draw on surfaces in place of the plot's. */
  drawOn(plot, inks) {
    const own = this.plot;
    this.plot = plot;
    this.drawData(inks);
    this.drawOverlay(inks);
    this.plot = own;
  }

  /** Mark the view around the strip, never on it: its pixels are the measurement. */
  drawOverlay(inks) {
    const surface = this.plot.overlay;
    const { ctx } = surface;
    surface.wipe();
    const [left, right] = this.#brush();
    const middle = (left + right) / 2;
    this.#markStretches(surface, inks);
    const rail = surface.px(STRIP.rail - 3);
    ctx.fillStyle = inks.css("accent");
    if (right - left < surface.px(10)) {
      ctx.beginPath();
      ctx.moveTo(middle - surface.px(6), 0);
      ctx.lineTo(middle + surface.px(6), 0);
      ctx.lineTo(middle, rail);
      ctx.fill();
    } else {
      ctx.fillRect(left, surface.px(2), right - left, rail - surface.px(3));
      for (const x of [left, right]) ctx.fillRect(x - 0.5 * surface.px(1), 0, surface.px(1), surface.px(this.bottom));
    }
    const width = Math.max(surface.px(3), right - left);
    ctx.fillRect(middle - width / 2, surface.px(this.bottom - STRIP.gap + 1), width, surface.px(2));
  }

  /** Where every span is known, if that is not everywhere. */
  #markStretches(surface, inks) {
    if (!this.run.coarse) return;
    surface.ctx.fillStyle = inks.css("muted");
    for (const [start, end] of this.run.coarse.stretches) {
      const left = this.scale.x(start);
      const width = Math.max(surface.px(2), this.scale.x(end) - left);
      surface.ctx.fillRect(left, surface.px(this.bottom + 1), width, surface.px(3));
    }
  }

  #brush() {
    const { start, end } = this.viewer.viewOf(this.run);
    return [this.scale.x(start), this.scale.x(end)];
  }

  #listen() {
    const canvas = this.plot.overlay.canvas;
    const at = (event) => (event.clientX - canvas.getBoundingClientRect().left) * this.plot.overlay.scale;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag = { ...this.#grip(at(event)), from: at(event), view: this.viewer.viewOf(this.run), moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const x = at(event);
      canvas.style.cursor = this.#grip(x).cursor;
      if (!drag) return;
      drag.moved ||= Math.abs(x - drag.from) > 3 * this.plot.overlay.scale;
      if (drag.moved) this.#dragTo(drag, this.scale.t(this.scale.clamp(x)));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) this.viewer.centerOn(this.scale.t(this.scale.clamp(at(event))), this.run);
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("dblclick", () => this.viewer.showAll());
    canvas.addEventListener("wheel", (event) => this.viewer.wheel(event, null), { passive: false });
  }

  /** What a drag from `x` would do to the brush. */
  #grip(x) {
    const [left, right] = this.#brush();
    const near = 7 * this.plot.overlay.scale;
    if (right - left > 3 * near) {
      if (Math.abs(x - left) < near) return { grip: "start", cursor: "ew-resize" };
      if (Math.abs(x - right) < near) return { grip: "end", cursor: "ew-resize" };
    }
    return x > left - near && x < right + near ? { grip: "move", cursor: "grab" } : { grip: "new", cursor: "crosshair" };
  }

  #dragTo(drag, t) {
    const from = this.scale.t(drag.from);
    const { start, end } = drag.view;
    const show = (a, b) => this.viewer.setViewOf(this.run, Math.min(a, b), Math.max(a, b));
    if (drag.grip === "move") show(start + t - from, end + t - from);
    else if (drag.grip === "start") show(t, end);
    else if (drag.grip === "end") show(start, t);
    else show(from, t);
  }
}
