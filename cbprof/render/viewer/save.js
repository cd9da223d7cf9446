// The view as a picture: titles, legend, strips and lanes, drawn anew on canvases of their own, as PNG or as SVG.

import { Inks, Surface } from "./paint.js";
import { SvgContext, svgFile } from "./svg.js";
import { rangeText } from "./text.js";

const EDGE = 16; // CSS pixels around the picture
const TITLE = 22;
const LINE = 17;

/** Surfaces in place of those of a plot; whatever is drawn on them stays. */
class Sheet {
  constructor(plot, scale, vector) {
    Object.assign(this, { narrow: plot.narrow, gutter: plot.gutter, width: plot.width, full: plot.box.clientWidth });
    this.layers = [0, 1].map(() => {
      const surface = new Surface(document.createElement("canvas"), vector ? new SvgContext() : null);
      return Object.assign(surface, { fixedScale: scale });
    });
    [this.data, this.overlay] = this.layers;
  }

  reset(height) {
    this.height = height;
    for (const layer of this.layers) layer.reset(this.full, height);
  }
}

/** Title and legend of a run on a surface of their own. */
function words(panel, viewer, inks, sheet) {
  const { run } = panel;
  const surface = sheet.data;
  sheet.reset(TITLE + 2 * LINE + 6);
  const write = (text, size, weight, ink, x, y) => {
    surface.font(size, weight);
    surface.ctx.textAlign = "left";
    surface.ctx.fillStyle = inks.css(ink);
    surface.ctx.fillText(text, surface.px(x), surface.px(y));
    return x + surface.ctx.measureText(text).width / surface.scale;
  };
  write(run.title, 17, 650, "text", 0, TITLE / 2);
  const { start, end } = viewer.viewOf(run);
  write([run.label, run.subtitle, rangeText([Math.max(0, start), Math.max(1, end)])].filter(Boolean).join(" · "), 12, 400, "muted", 0, TITLE + LINE / 2);
  let x = 0;
  for (const { name, style } of panel.classes) {
    surface.ctx.fillStyle = inks.fill(surface.ctx, style, surface.scale);
    surface.ctx.fillRect(surface.px(x), surface.px(TITLE + LINE + 3), surface.px(20), surface.px(11));
    x = write(name, 12, 400, "text", x + 26, TITLE + LINE + 9) + 18;
  }
}

/** Draw all runs on sheets: `{sheets, width, height}`, one below the other, in CSS pixels. */
function drawn(viewer, scale, vector) {
  const sheets = [];
  let height = EDGE;
  const add = (plot, draw, room) => {
    const sheet = new Sheet(plot, scale, vector);
    draw(sheet, new Inks());
    sheets.push({ sheet, top: height });
    height += sheet.height + room;
  };
  for (const panel of viewer.panels.filter(({ detail }) => detail)) {
    add(panel.detail.plot, (sheet, inks) => words(panel, viewer, inks, sheet), 8);
    for (const part of panel.parts) add(part.plot, (sheet, inks) => part.drawOn(sheet, inks), 6);
    height += EDGE;
  }
  return { sheets, width: sheets[0].sheet.full + 2 * EDGE, height };
}

/** The view as the text of an SVG file. */
export function asSvg(viewer) {
  const { sheets, width, height } = drawn(viewer, 1, true);
  const drawings = sheets.flatMap(({ sheet, top }) => sheet.layers.map(({ ctx }) => ({ context: ctx, left: EDGE, top })));
  return svgFile(width, height, new Inks().css("background"), drawings);
}

/** The view as a canvas, at twice the resolution of CSS pixels. */
export function asCanvas(viewer, scale = 2) {
  const { sheets, width, height } = drawn(viewer, scale, false);
  const canvas = Object.assign(document.createElement("canvas"), { width: width * scale, height: height * scale });
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = new Inks().css("background");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  for (const { sheet, top } of sheets) {
    for (const layer of sheet.layers) ctx.drawImage(layer.canvas, EDGE * scale, top * scale);
  }
  return canvas;
}

/** Hand the view to the browser as a file to keep: `kind` is png or svg. */
export async function save(viewer, kind) {
  const file = kind === "svg"
    ? new Blob([asSvg(viewer)], { type: "image/svg+xml" })
    : await new Promise((done) => asCanvas(viewer).toBlob(done, "image/png"));
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file), download: `timeline.${kind}` });
  link.click();
  URL.revokeObjectURL(link.href);
  viewer.redraw(); // scales of the parts are those of the picture
}
