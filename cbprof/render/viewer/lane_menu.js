// Which lanes of the run in hand are shown, and which stand first: a list with two boxes a lane.

import { element } from "./plot.js";

export class LaneMenu {
  constructor(viewer, card) {
    Object.assign(this, { viewer, card });
  }

  show() {
    const { run } = this.viewer;
    const names = element("tr", {}, ...["lane", "show", "pin"].map((text) => element("th", { textContent: text })));
    const rows = run.lanes.map((lane) => {
      const name = run.devices.length > 1 && lane.device >= 0 ? `${lane.name}, GPU ${lane.device}` : lane.name;
      const cells = [this.#box(lane, "hidden", `show ${name}`, false), this.#box(lane, "pinned", `pin ${name}`, true)];
      return element("tr", {}, element("td", { textContent: name, title: name, dir: "auto" }), ...cells);
    });
    this.card.show("Lanes", [element("table", { className: "figures" }, element("thead", {}, names), element("tbody", {}, ...rows))]);
    this.card.box.querySelector("input")?.focus();
  }

  /** A box that is ticked where `lane[key]` is `ticked`. */
  #box(lane, key, label, ticked) {
    const box = element("input", { type: "checkbox", checked: Boolean(lane[key]) === ticked, ariaLabel: label });
    box.addEventListener("change", () => {
      lane[key] = box.checked === ticked;
      this.viewer.drawView();
    });
    return element("td", {}, box);
  }
}
