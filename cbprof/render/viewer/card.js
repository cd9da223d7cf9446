// The card in the corner: what was asked for last, a gap, the spans of a name, a range of time, the lanes.

import { element } from "./plot.js";

export class Card {
  constructor(box) {
    this.box = box;
    this.title = box.querySelector("h3");
    this.body = box.querySelector("div");
    this.onClose = () => {};
    box.querySelector("button").addEventListener("click", () => this.close());
  }

  get open() {
    return !this.box.hidden;
  }

  /** `onClose` is called once, when the card is closed or shows something else. */
  show(title, children, onClose = () => {}) {
    const before = this.onClose;
    this.onClose = onClose;
    if (before !== onClose) before();
    this.title.textContent = title;
    this.body.replaceChildren(...children);
    this.box.hidden = false;
  }

  close() {
    const before = this.onClose;
    this.onClose = () => {};
    this.box.hidden = true;
    before();
  }
}

/** A table with a header and rows of `[name, ...figures]`, all text. */
export function figuresTable(columns, rows) {
  const cells = (tag, texts) => texts.map((text) => element(tag, { textContent: text, dir: "auto", title: text }));
  const head = element("thead", {}, element("tr", {}, ...cells("th", columns)));
  return element("table", { className: "figures" }, head, element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))));
}
