// The page starts here: theme, print, what is in view in words; and `window.cbprof`, the small interface for scripts and tests.

import { Card } from "./card.js";
import { Controls } from "./controls.js";
import { follow, linkOf } from "./link.js";
import { asSvg } from "./save.js";
import { countText, durationText, rangeText } from "./text.js";
import { wholeFigures } from "./plot.js";
import { Viewer } from "./viewer.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const printing = window.matchMedia("print");
let chosenTheme = null;

function applyTheme(viewer) {
  document.documentElement.dataset.theme = printing.matches ? "light" : (chosenTheme ?? (dark.matches ? "dark" : "light"));
  if (viewer.panels) viewer.redraw();
}

/** Say above the runs what is in view. */
function readOut(viewer) {
  const readout = document.getElementById("readout");
  viewer.onView = () => {
    const { start, end } = viewer.view;
    const shown = viewer.runs[0].stepsBetween(start, end);
    const words = [rangeText([start, end]), durationText(end - start)];
    if (shown.length === 1) words.push(`step ${countText(shown[0])}`);
    if (shown.length > 1) words.push(`steps ${countText(shown[0])} to ${countText(shown[shown.length - 1])}`);
    if (!viewer.runs[0].knows(start, end)) words.push("single spans: in the stretches marked below the strip");
    readout.replaceChildren(...wholeFigures(words.join(" · ")));
  };
  viewer.onView();
}

const WRITE_AFTER = 300; // ms without a change: browsers limit how often an address may change

/** Keep the address at what is in view, from the first change on, and go where it says. */
function keepAddress(viewer, controls) {
  const go = () => {
    if (follow(viewer, window.location.hash.slice(1))) controls.renew();
  };
  go();
  window.addEventListener("hashchange", go);
  if (window.location.protocol === "about:") return; // a page within a notebook has no address of its own
  let written = linkOf(viewer);
  let waiting = 0;
  viewer.onDrawn = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (linkOf(viewer) === written) return;
      written = linkOf(viewer);
      window.history.replaceState(null, "", `#${written}`);
    }, WRITE_AFTER);
  };
}

function followWindow(viewer) {
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
  document.querySelector("nav").hidden = viewer.runs.every((run) => !run.spans.start.length);
  const controls = new Controls(viewer, new Card(document.getElementById("card")), () => {
    chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    applyTheme(viewer);
  });
  readOut(viewer);
  keepAddress(viewer, controls);
  followWindow(viewer);
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
    link: () => linkOf(viewer),
    svg: () => asSvg(viewer),
    viewOf: (run) => viewer.viewOf(viewer.runs[run]),
  });
});
window.cbprof = { ready };
ready.catch((error) => {
  document.getElementById("loading").textContent = `This browser cannot show the timeline: ${error.message}`;
  throw error;
});
