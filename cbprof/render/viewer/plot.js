// Two canvases, one above the other: the data, drawn when the view changes, and an overlay, drawn when the pointer moves.

import { Surface, shorten } from "./paint.js";
import { durationText } from "./text.js";

const GUTTER = 104;
const NARROW = 640; // CSS pixels, below which lane names stand above their lanes

export class Plot {
  constructor(parent, kind, label) {
    this.box = element("div", { className: `plot ${kind}` });
    const data = element("canvas", { className: "data" });
    data.setAttribute("role", "img");
    data.setAttribute("aria-label", label);
    const overlay = element("canvas", { className: "overlay" });
    this.box.append(data, overlay);
    parent.append(this.box);
    this.data = new Surface(data);
    this.overlay = new Surface(overlay);
  }

  get narrow() {
    return this.box.clientWidth < NARROW;
  }

  /** CSS pixels at the left that hold names of lanes. */
  get gutter() {
    return this.narrow ? 0 : GUTTER;
  }

  /** CSS pixels that time takes. */
  get width() {
    return this.box.clientWidth - this.gutter;
  }

  reset(height) {
    const width = this.box.clientWidth;
    this.box.style.height = `${height}px`;
    this.data.reset(width, height);
    this.overlay.reset(width, height);
  }
}

/** An element with properties. Text goes in as `textContent`, so that no name can become markup. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Parts of a text in which no number comes apart from its unit when lines break. */
export function wholeFigures(text) {
  return text.split(/(\d[\d,.]* (?:%|[numµ]?s)(?!\w))/u).map((part, at) => (at % 2 ? element("span", { className: "figure", textContent: part }) : part));
}

/**
 * The name of a lane beside it and, smaller, which one it is: to the right of the name, or below it where the lane has
 * more than one line, so that a name is cut as late as may be.
 */
export function paintGutter(surface, inks, gutter, top, height, { name, details = [], lines = 1 }) {
  const { ctx } = surface;
  const end = surface.px(gutter - 4);
  const write = (text, size, weight, ink, x, y) => {
    surface.font(size, weight);
    ctx.fillStyle = inks.css(ink);
    const room = end - x;
    const shown = ctx.measureText(text).width > room ? shorten(ctx, text, room) : text;
    ctx.fillText(shown, x, y);
    return x + ctx.measureText(shown).width;
  };
  ctx.textAlign = "left";
  const middle = top + height / 2;
  const right = write(name, 12, 600, "text", 0, middle);
  if (lines === 1) write(details.join(" "), 10.5, 400, "muted", right + surface.px(6), middle);
  else details.forEach((detail, at) => write(detail, 10.5, 400, "muted", 0, middle + surface.px(15 + 13 * at)));
}

/** Say in a box why it is empty. */
export function paintNote(surface, inks, scale, top, height, text) {
  const { ctx } = surface;
  ctx.fillStyle = inks.css("void");
  ctx.fillRect(scale.left, top, scale.width, height);
  surface.font(12);
  ctx.fillStyle = inks.css("muted");
  ctx.textAlign = "left";
  ctx.fillText(text, scale.left + surface.px(8), top + height / 2);
}

/** Where a run ends before the axis does, say when. */
export function paintEnd(surface, inks, scale, top, height, length) {
  const left = Math.ceil(scale.clamp(scale.x(length)));
  const text = `ended at ${durationText(length)}`;
  surface.font(11.5);
  if (scale.left + scale.width - left < surface.ctx.measureText(text).width + surface.px(12)) return;
  surface.ctx.fillStyle = inks.css("muted");
  surface.ctx.textAlign = "left";
  surface.ctx.fillText(text, left + surface.px(8), top + height / 2);
}
