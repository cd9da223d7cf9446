// Buttons, keys and the field: what each does, and what cannot be done with these runs.

import { GapFinder } from "./gap_finder.js";
import { LaneMenu } from "./lane_menu.js";
import { RangeStats } from "./range_stats.js";
import { save } from "./save.js";
import { SpanFinder } from "./span_finder.js";

const KEYS = {
  ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", w: "in", "+": "in", "=": "in", s: "out", "-": "out",
  0: "all", 1: "one", n: "next", p: "previous", g: "search", "/": "search", "]": "found", "[": "foundBefore",
  ".": "gapAfter", ",": "gapBefore", x: "longest", r: "range", o: "other",
  h: "lanes", i: "savePng", v: "saveSvg",
  f: "arrows", j: "launches", b: "blame", l: "align", e: "deep", t: "theme", "?": "help", Escape: "close",
};

export class Controls {
  constructor(viewer, card, toggleTheme) {
    Object.assign(this, { viewer, card });
    this.gaps = new GapFinder(viewer, card);
    this.spans = new SpanFinder(viewer, card);
    this.stats = new RangeStats(viewer, card);
    this.lanes = new LaneMenu(viewer, card);
    this.field = document.getElementById("wanted");
    this.message = document.getElementById("message");
    this.help = document.getElementById("help");
    this.actions = { ...this.#moves(), ...this.#finds(), ...this.#switches(), theme: toggleTheme };
    this.possible = this.#possible();
    viewer.onGap = (run, device, i) => this.gaps.show(run, device, i, { move: false });
    viewer.onRange = (run, range) => this.stats.show(run, range);
    this.#listen();
  }

  #moves() {
    const { viewer } = this;
    return {
      all: () => viewer.showAll(),
      one: () => viewer.showStep(),
      in: () => viewer.zoom(0.5),
      out: () => viewer.zoom(2),
      left: () => viewer.moveBy((viewer.view.start - viewer.view.end) / 5),
      right: () => viewer.moveBy((viewer.view.end - viewer.view.start) / 5),
      next: () => viewer.moveToStep(1),
      previous: () => viewer.moveToStep(-1),
      other: () => viewer.take(viewer.runs[(viewer.runs.indexOf(viewer.run) + 1) % viewer.runs.length]),
    };
  }

  #finds() {
    return {
      search: () => this.field.select(),
      found: () => this.spans.walk(1),
      foundBefore: () => this.spans.walk(-1),
      gapAfter: () => this.gaps.walk(1),
      gapBefore: () => this.gaps.walk(-1),
      longest: () => this.gaps.longest(),
      range: () => this.stats.show(),
      lanes: () => this.lanes.show(),
      savePng: () => save(this.viewer, "png"),
      saveSvg: () => save(this.viewer, "svg"),
      close: () => this.card.close(),
    };
  }

  #switches() {
    const { viewer } = this;
    return {
      arrows: () => {
        viewer.arrows = !viewer.arrows;
        this.renew();
      },
      launches: () => {
        viewer.launches = !viewer.launches;
        this.renew();
      },
      blame: () => {
        viewer.byBlame = !viewer.byBlame;
        this.renew();
      },
      align: () => {
        viewer.aligned = !viewer.aligned;
        viewer.align(viewer.stepInView);
        this.renew();
      },
      deep: () => {
        viewer.deep = !viewer.deep;
        viewer.drawView();
      },
      help: () => (this.help.open ? this.help.close() : this.help.showModal()),
    };
  }

  /** Show buttons and legends as they are set, and draw everything. */
  renew() {
    const { arrows, launches, byBlame, aligned } = this.viewer;
    for (const [action, pressed] of Object.entries({ arrows, launches, blame: byBlame, align: aligned })) {
      document.querySelector(`[data-action="${action}"]`).setAttribute("aria-pressed", pressed);
    }
    for (const panel of this.viewer.panels) panel.renewTable();
    this.viewer.redraw();
  }

  #possible() {
    const { runs } = this.viewer;
    const devices = runs.flatMap((run) => run.devices);
    const steps = runs[0].stepOrder.length > 0;
    const gaps = devices.some((device) => device.gaps.count);
    return {
      one: steps,
      next: steps,
      previous: steps,
      gapAfter: gaps,
      gapBefore: gaps,
      longest: gaps,
      blame: devices.some((device) => device.blame),
      launches: runs.some((run) => run.spans.launch.some((by) => by >= 0)),
      align: runs.filter((run) => run.stepOrder.length).length > 1,
      other: runs.length > 1,
      lanes: runs.some((run) => run.lanes.length),
    };
  }

  /** Do what a button or a key stands for. */
  do(action) {
    if (this.possible[action] !== false) this.actions[action]();
  }

  /** Go to a step by its number, or else to the spans of a name; say so where there is neither. */
  find(text) {
    const { viewer } = this;
    const step = Number(text.replaceAll(",", "").trim() || NaN);
    const found = viewer.goToStep(step) || (text.trim() !== "" && this.spans.find(text.trim()));
    this.message.textContent = found || !text.trim() ? "" : this.#notFound(text.trim().slice(0, 40), Number.isInteger(step));
    return found;
  }

  #notFound(text, isStep) {
    const { steps, coarse } = this.viewer.runs[0];
    const held = "this page holds only the steps of the stretches marked below the strip";
    if (isStep && coarse) return `No step “${text}”: ${held}.`;
    if (isStep && steps.step.length) return `No step “${text}”: this run has ${steps.step[0]} to ${steps.step[steps.step.length - 1]}.`;
    return `No span has “${text}” in its name.`;
  }

  #listen() {
    for (const button of document.querySelectorAll("[data-action]")) {
      const { action } = button.dataset;
      button.addEventListener("click", () => this.do(action));
      button.disabled = this.possible[action] === false;
      if (action === "align") button.hidden = button.disabled;
    }
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target === this.field) {
        if (event.key === "Escape") this.field.blur();
        return;
      }
      const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action || this.possible[action] === false || (this.help.open && action !== "help")) return;
      if (action === "close" && !this.card.open) return;
      event.preventDefault();
      this.do(action);
    });
    document.getElementById("search").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.find(this.field.value)) this.field.blur();
      else this.field.select();
    });
  }
}
