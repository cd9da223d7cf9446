// Drawing on canvases, in device pixels, so that a column of the geometry is a column of the screen.

import { niceTicks, stackColumns } from "./geometry.js";
import { timeText } from "./text.js";

/** A canvas that follows the size of its box and the resolution of the screen. */
export class Surface {
  /** `ctx`: what to draw with in place of the canvas. */
  constructor(canvas, ctx = null) {
    this.canvas = canvas;
    this.ctx = ctx ?? canvas.getContext("2d");
  }

  /** Fit to a size in CSS pixels and wipe. */
  reset(width, height) {
    this.scale = this.fixedScale ?? (window.devicePixelRatio || 1);
    this.width = Math.max(1, Math.round(width * this.scale));
    this.height = Math.max(1, Math.round(height * this.scale));
    this.canvas.style.height = `${height}px`;
    this.wipe();
  }

  /** Make it transparent. On paper a canvas is what was painted, and clearing cuts a hole: there it starts anew. */
  wipe() {
    const { canvas, ctx, width, height } = this;
    if (canvas.width !== width || canvas.height !== height || window.matchMedia("print").matches) {
      Object.assign(canvas, { width, height });
      Object.assign(ctx, { textBaseline: "middle", direction: "ltr" });
    } else ctx.clearRect(0, 0, width, height);
  }

  px(cssPixels) {
    return Math.round(cssPixels * this.scale);
  }

  font(cssPixels, weight = 400) {
    this.ctx.font = `${weight} ${cssPixels * this.scale}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
  }
}

/** The colours of the current theme, and the patterns that say the same without colour. */
export class Inks {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    this.css = (name) => style.getPropertyValue(`--${name}`).trim();
    this.cache = new Map();
  }

  /** The plain colour of a state or a phase. */
  color({ state, color }) {
    return state ? this.css(state) : color;
  }

  /** What to fill with. Solid is the GPU at work, hatched or dotted is somebody waiting, crossed is a host not recorded. */
  fill(ctx, style, scale) {
    const { pattern } = style;
    const color = this.color(style);
    if (!pattern) return color;
    const key = `${pattern} ${color} ${scale}`;
    if (!this.cache.has(key)) this.cache.set(key, ctx.createPattern(this.#tile(pattern, color, scale), "repeat"));
    return this.cache.get(key);
  }

  #tile(pattern, color, scale) {
    const size = Math.round(6 * scale);
    const tile = new OffscreenCanvas(size, size);
    const ctx = tile.getContext("2d");
    ctx.fillStyle = pattern === "wait" ? this.css("wait") : color;
    ctx.fillRect(0, 0, size, size);
    ctx.strokeStyle = ctx.fillStyle = this.css(`${pattern}-ink`);
    ctx.lineWidth = pattern === "dots" ? scale : 1.2 * scale;
    if (pattern === "dots") {
      const dot = Math.max(1, Math.round(1.2 * scale));
      ctx.fillRect(0, 0, dot, dot);
      ctx.fillRect(size >> 1, size >> 1, dot, dot);
    } else {
      ctx.beginPath();
      for (const shift of [-size, 0, size]) {
        ctx.moveTo(shift - 1, size + 1);
        ctx.lineTo(shift + size + 1, -1);
        if (pattern !== "crossed") continue;
        ctx.moveTo(shift - 1, -1);
        ctx.lineTo(shift + size + 1, size + 1);
      }
      ctx.stroke();
    }
    return tile;
  }

  /** Black or white, whichever reads better on a colour. */
  textOn(color) {
    const [r, g, b] = [1, 3, 5].map((at) => (parseInt(color.slice(at, at + 2), 16) / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.25 ? "#10151b" : "#ffffff";
  }
}

/** Where time lies on a surface: `width` columns from `left`, for `start` to `end`. */
export class Scale {
  constructor(left, width, start, end) {
    Object.assign(this, { left, width, start, end });
  }

  x(t) {
    return this.left + ((t - this.start) / (this.end - this.start)) * this.width;
  }

  t(x) {
    return this.start + ((x - this.left) / this.width) * (this.end - this.start);
  }

  /** Nanoseconds in a device pixel. */
  get pixel() {
    return (this.end - this.start) / this.width;
  }

  clamp(x) {
    return Math.max(this.left, Math.min(this.left + this.width, x));
  }
}

/** Stacked exact shares in every pixel column of a box. */
export function paintLayers(surface, inks, scale, top, height, layers) {
  const { ctx } = surface;
  const stack = stackColumns(layers.map((layer) => layer.track), scale.start, scale.end, scale.width, height);
  stack.forEach((drawn, index) => {
    ctx.fillStyle = inks.fill(ctx, layers[index].style, surface.scale);
    for (let x = 0; x < scale.width; ) {
      const [bottom, upper] = [drawn.bottom[x], drawn.top[x]];
      let end = x + 1;
      while (end < scale.width && drawn.bottom[end] === bottom && drawn.top[end] === upper) end++;
      if (upper > bottom) ctx.fillRect(scale.left + x, top + height - upper, end - x, upper - bottom);
      x = end;
    }
  });
}

/** Whether so few spans of a row are in view that each can be drawn as a bar of its own. */
export function isSparse(surface, scale, [first, last]) {
  return last - first <= scale.width / (8 * surface.scale);
}

/**
 * A row of spans: single bars with names where they are few, exact coverage where they crowd.
 *
 * A bar ends where its span ends, between two pixels if need be. One that is thinner than a pixel still gets a
 * hairline, so that a copy of 3 us is not lost among steps of 40 ms.
 */
export function paintRow(surface, inks, scale, top, height, row) {
  const { ctx } = surface;
  const range = row.between(scale.start, scale.end);
  if (!isSparse(surface, scale, range)) return paintLayers(surface, inks, scale, top, height, row.layers);
  surface.font(11.5);
  for (let position = range[0]; position < range[1]; position++) {
    const left = scale.clamp(scale.x(row.starts[position]));
    const right = scale.clamp(scale.x(row.ends[position]));
    const style = row.run.styleOf(row.indices[position]);
    if (right - left < 1) {
      if (row.starts[position] < scale.start || row.ends[position] > scale.end) continue;
      ctx.fillStyle = inks.color(style);
      ctx.fillRect(Math.floor(left), top, 1, height);
      continue;
    }
    ctx.fillStyle = inks.fill(ctx, style, surface.scale);
    ctx.fillRect(left, top, right - left, height);
    if (right - left < surface.px(4)) continue;
    ctx.fillStyle = inks.css("edge");
    ctx.fillRect(right - surface.scale / 2, top, surface.scale / 2, height);
    paintLabel(surface, inks, style, left, right, top + height / 2, row.run.labelsOf(row.indices[position]));
  }
}

/** The first of `texts` that fits between `left` and `right`; else, with `cut`, the beginning of the last one. */
export function paintLabel(surface, inks, style, left, right, middle, texts, { cut = true } = {}) {
  const { ctx } = surface;
  const pad = surface.px(4);
  const room = right - left - 2 * pad;
  if (room < surface.px(10)) return;
  let text = texts.find((each) => ctx.measureText(each).width <= room);
  if (text === undefined && cut) text = shorten(ctx, texts[texts.length - 1], room);
  if (!text) return;
  ctx.textAlign = "left";
  const waiting = style.pattern === "wait";
  if (style.pattern) {
    ctx.strokeStyle = waiting ? inks.css("wait") : inks.color(style);
    ctx.lineWidth = 3 * surface.scale;
    ctx.lineJoin = "round";
    ctx.strokeText(text, left + pad, middle);
  }
  ctx.fillStyle = waiting ? inks.css("text") : inks.textOn(inks.color(style));
  ctx.fillText(text, left + pad, middle);
}

/** As many letters of `text` as fit, with an ellipsis; "" where that would be fewer than four. */
export function shorten(ctx, text, room) {
  const letters = [...text.slice(0, 200)];
  let [fits, tooMany] = [0, letters.length + 1];
  while (tooMany - fits > 1) {
    const count = (fits + tooMany) >> 1;
    if (ctx.measureText(`${letters.slice(0, count).join("")}…`).width <= room) fits = count;
    else tooMany = count;
  }
  return fits < 4 ? "" : `${letters.slice(0, fits).join("")}…`;
}

/** Time along the top or bottom edge: ticks at round times, and faint lines over `lines` pixels below `top`. */
export function paintAxis(surface, inks, scale, top, height, lines = 0) {
  const { ctx } = surface;
  const { step, ticks } = niceTicks(scale.start, scale.end, scale.width / surface.px(90));
  surface.font(11);
  ctx.textAlign = "center";
  for (const tick of ticks) {
    const x = Math.round(scale.x(tick));
    if (lines) {
      ctx.fillStyle = inks.css("grid");
      ctx.fillRect(x, top + height, 1, lines);
    }
    const text = timeText(tick, step, scale.end);
    const half = ctx.measureText(text).width / 2;
    ctx.fillStyle = inks.css("muted");
    ctx.fillText(text, Math.max(scale.left + half, Math.min(scale.left + scale.width - half, x)), top + height / 2);
  }
}

/** An arrow from the end of one span down to the start of the next; straight where they are close. */
export function paintArrow(surface, inks, from, to, ink = "arrow") {
  const { ctx } = surface;
  const head = 4.5 * surface.scale;
  const bend = (to.x - from.x) / 2;
  const curved = bend > 2 * head;
  const angle = curved ? 0 : Math.atan2(to.y - from.y, to.x - from.x);
  ctx.strokeStyle = ctx.fillStyle = inks.css(ink);
  ctx.lineWidth = 1.2 * surface.scale;
  ctx.beginPath();
  ctx.moveTo(from.x, from.y);
  if (curved) ctx.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x - head, to.y);
  else ctx.lineTo(to.x - head * Math.cos(angle), to.y - head * Math.sin(angle));
  ctx.stroke();
  ctx.beginPath();
  ctx.moveTo(to.x, to.y);
  for (const side of [-0.5, 0.5]) ctx.lineTo(to.x - head * Math.cos(angle + side), to.y - head * Math.sin(angle + side));
  ctx.fill();
}
