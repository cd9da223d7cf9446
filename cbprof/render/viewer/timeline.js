// Buttons, keys, search, theme, print; and the small interface for scripts and tests, `window.cbprof`.

import { countText, durationText, rangeText } from "./text.js";
import { Viewer } from "./viewer.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const printing = window.matchMedia("print");
let chosenTheme = null;

function applyTheme(viewer) {
  document.documentElement.dataset.theme = printing.matches ? "light" : (chosenTheme ?? (dark.matches ? "dark" : "light"));
  if (viewer.panels) viewer.redraw();
}

function connect(viewer) {
  const field = document.getElementById("step");
  const message = document.getElementById("message");
  const help = document.getElementById("help");
  const hasSteps = viewer.runs[0].stepOrder.length > 0;
  document.querySelector("nav").hidden = viewer.runs.every((run) => !run.spans.start.length);
  const actions = {
    all: () => viewer.showAll(),
    one: () => viewer.showStep(),
    in: () => viewer.zoom(0.5),
    out: () => viewer.zoom(2),
    left: () => viewer.moveBy((viewer.view.start - viewer.view.end) / 5),
    right: () => viewer.moveBy((viewer.view.end - viewer.view.start) / 5),
    next: () => viewer.moveToStep(1),
    previous: () => viewer.moveToStep(-1),
    search: () => field.select(),
    arrows: () => {
      viewer.arrows = !viewer.arrows;
      document.querySelector('[data-action="arrows"]').setAttribute("aria-pressed", viewer.arrows);
      viewer.drawOverlays();
    },
    blame: () => {
      viewer.byBlame = !viewer.byBlame;
      document.querySelector('[data-action="blame"]').setAttribute("aria-pressed", viewer.byBlame);
      for (const panel of viewer.panels) panel.renewTable();
      viewer.redraw();
    },
    align: () => {
      viewer.aligned = !viewer.aligned;
      document.querySelector('[data-action="align"]').setAttribute("aria-pressed", viewer.aligned);
      viewer.align(viewer.stepInView);
      viewer.drawView();
    },
    deep: () => {
      viewer.deep = !viewer.deep;
      viewer.drawView();
    },
    help: () => (help.open ? help.close() : help.showModal()),
    theme: () => {
      chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      applyTheme(viewer);
    },
  };
  const keys = {
    ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", w: "in", "+": "in", "=": "in", s: "out", "-": "out",
    0: "all", 1: "one", n: "next", p: "previous", g: "search", "/": "search", f: "arrows", b: "blame", l: "align", e: "deep", t: "theme",
    "?": "help",
  };
  const possible = {
    one: hasSteps,
    next: hasSteps,
    previous: hasSteps,
    blame: viewer.runs.some((run) => run.devices.some((device) => device.byBlame)),
    align: viewer.runs.filter((run) => run.stepOrder.length).length > 1,
  };

  for (const button of document.querySelectorAll("[data-action]")) {
    const { action } = button.dataset;
    button.addEventListener("click", actions[action]);
    button.disabled = possible[action] === false;
    if (action === "align") button.hidden = button.disabled;
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || possible[action] === false || (help.open && action !== "help")) return;
    event.preventDefault();
    actions[action]();
  });

  field.disabled = !hasSteps;
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const step = Number(field.value.replaceAll(",", "").trim() || NaN);
    const found = viewer.goToStep(step);
    const { steps, coarse } = viewer.runs[0];
    const known = `this run has ${steps.step[0]} to ${steps.step[steps.step.length - 1]}`;
    const why = coarse ? "this page holds only the steps of the stretches marked below the strip" : known;
    message.textContent = found ? "" : `No step “${field.value.slice(0, 20)}”: ${why}.`;
    if (found) field.blur();
  });

  const readout = document.getElementById("readout");
  viewer.onView = () => {
    const { start, end } = viewer.view;
    const shown = viewer.runs[0].stepsBetween(start, end);
    const words = [rangeText([start, end]), durationText(end - start)];
    if (shown.length === 1) words.push(`step ${countText(shown[0])}`);
    if (shown.length > 1) words.push(`steps ${countText(shown[0])} to ${countText(shown[shown.length - 1])}`);
    if (!viewer.runs[0].knows(start, end)) words.push("single spans: in the stretches marked below the strip");
    readout.textContent = words.join(" · ");
  };
  viewer.onView();

  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (width === document.documentElement.clientWidth) return; // a phone's address bar came or went
    width = document.documentElement.clientWidth;
    viewer.redraw();
  });
  dark.addEventListener("change", () => applyTheme(viewer));
  printing.addEventListener("change", () => applyTheme(viewer));
}

async function main() {
  const page = JSON.parse(document.getElementById("data").textContent);
  const viewer = new Viewer(page);
  const title = document.getElementById("title");
  title.textContent = page.title ?? "";
  title.hidden = !page.title;
  applyTheme(viewer);
  await viewer.load(page, document.getElementById("runs"));
  connect(viewer);
  document.getElementById("loading").remove();
  return viewer;
}

// Times are ns from the start of the run; shares are fractions of the view.
export const ready = main().then((viewer) => {
  Object.assign(window.cbprof, {
    firstPaintMs: performance.now(),
    view: () => ({ ...viewer.view }),
    setView: (start, end) => {
      viewer.setView(start, end);
      viewer.drawView();
    },
    shares: (run = 0, device = 0) => viewer.runs[run].devices[device].shares(viewer.view.start, viewer.view.end),
    goToStep: (step) => {
      const found = viewer.goToStep(step);
      viewer.drawView();
      return found;
    },
    arrows: () => viewer.arrows,
    blame: (run = 0, device = 0) => {
      const { start, end } = viewer.viewOf(viewer.runs[run]);
      const shown = viewer.runs[run].devices[device];
      const names = shown.partition(true).layers.map(({ key, name }) => [key, name]);
      const shares = shown.shares(start, end, true);
      return Object.fromEntries(names.map(([key, name]) => [name, shares[key]]));
    },
    viewOf: (run) => viewer.viewOf(viewer.runs[run]),
  });
});
window.cbprof = { ready };
ready.catch((error) => {
  document.getElementById("loading").textContent = `This browser cannot show the timeline: ${error.message}`;
  throw error;
});
