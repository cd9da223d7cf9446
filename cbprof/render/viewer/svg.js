// As much of a canvas context as the viewer draws with, written down as SVG: a picture that stays sharp on paper.

const number = (value) => String(Math.round(value * 100) / 100);
const escape = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/[^\P{C}\u2066-\u2069]/gu, "");

export class SvgContext {
  constructor() {
    this.parts = [];
    this.defs = [];
    this.path = "";
    this.ruler = new OffscreenCanvas(1, 1).getContext("2d");
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, lineJoin: "miter", font: "10px sans-serif", textAlign: "left" });
  }

  clearRect() {}

  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  /** A tile that repeats; what it returns is a style to fill with. */
  createPattern(tile) {
    const canvas = Object.assign(document.createElement("canvas"), { width: tile.width, height: tile.height });
    canvas.getContext("2d").drawImage(tile, 0, 0);
    const id = `p${this.defs.length}`;
    const size = `width="${tile.width}" height="${tile.height}"`;
    this.defs.push(`<pattern id="${id}" patternUnits="userSpaceOnUse" ${size}><image ${size} href='${canvas.toDataURL()}'/></pattern>`);
    return `url(#${id})`;
  }

  fillRect(x, y, width, height) {
    if (width > 0 && height > 0) this.parts.push(`<rect ${box(x, y, width, height)} fill="${this.fillStyle}"/>`);
  }

  strokeRect(x, y, width, height) {
    this.parts.push(`<rect ${box(x, y, width, height)} fill="none" ${this.#pen}/>`);
  }

  fillText(text, x, y) {
    this.#text(text, x, y, `fill="${this.fillStyle}"`);
  }

  strokeText(text, x, y) {
    this.#text(text, x, y, `fill="none" ${this.#pen}`);
  }

  beginPath() {
    this.path = "";
  }

  moveTo(...point) {
    this.path += `M${point.map(number).join(" ")}`;
  }

  lineTo(...point) {
    this.path += `L${point.map(number).join(" ")}`;
  }

  bezierCurveTo(...points) {
    this.path += `C${points.map(number).join(" ")}`;
  }

  stroke() {
    this.parts.push(`<path d="${this.path}" fill="none" ${this.#pen}/>`);
  }

  fill() {
    this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}"/>`);
  }

  get #pen() {
    return `stroke="${this.strokeStyle}" stroke-width="${number(this.lineWidth)}" stroke-linejoin="${this.lineJoin}"`;
  }

  #text(text, x, y, style) {
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    const font = escape(this.font);
    this.parts.push(`<text x="${number(x)}" y="${number(y)}" style="font: ${font}" text-anchor="${anchor}" dominant-baseline="central" ${style}>${escape(text)}</text>`);
  }
}

function box(x, y, width, height) {
  return `x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}"`;
}

/** The drawings of several contexts, each `left` and `top` pixels from the corner, as one file. */
export function svgFile(width, height, background, drawings) {
  const defs = drawings.map(({ context }, at) => context.defs.join("").replaceAll('id="p', `id="d${at}p`)).join("");
  const bodies = drawings.map(({ context, left, top }, at) => {
    const body = context.parts.join("\n").replaceAll("url(#p", `url(#d${at}p`);
    return `<g transform="translate(${number(left)} ${number(top)})">${body}</g>`;
  });
  const size = `width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
  const template = Object.assign(document.createElement("template"), { innerHTML: "<svg></svg>" });
  const { namespaceURI } = template.content.firstChild; // no address stands in the page, not even this name
  return `<svg xmlns="${namespaceURI}" ${size}><defs>${defs}</defs>\n<rect width="100%" height="100%" fill="${background}"/>\n${bodies.join("\n")}</svg>\n`;
}
