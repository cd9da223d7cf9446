// What a pointer or a card says: lines of `[label, value]`, and the box beside the pointer.

import { element, wholeFigures } from "./plot.js";

/** A table of `[label, value]`; a line without a label is a name, and spans both columns. */
export function linesTable(lines) {
  const rows = lines.map(([label, value]) =>
    label
      ? element("tr", {}, element("th", { textContent: label, dir: "auto", scope: "row" }), element("td", {}, ...wholeFigures(value)))
      : element("tr", {}, element("td", { className: "name", colSpan: 2, dir: "auto", textContent: value })));
  return element("table", { className: "lines" }, element("tbody", {}, ...rows));
}

export class Tip {
  constructor(box) {
    this.box = box;
  }

  hide() {
    this.box.hidden = true;
  }

  /** Beside the pointer, within the window. */
  show(lines, event) {
    this.box.replaceChildren(linesTable(lines));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const left = event.clientX + 14 + width < window.innerWidth ? event.clientX + 14 : event.clientX - 14 - width;
    const top = event.clientY + 16 + height < window.innerHeight ? event.clientY + 16 : event.clientY - 12 - height;
    this.box.style.left = `${Math.max(4, left)}px`;
    this.box.style.top = `${Math.max(4, top)}px`;
  }
}
