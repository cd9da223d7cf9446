// The charts of the report page: plotly, deflated inside the page, draws them once the timeline is there.

import { inflate } from "./columns.js";
import { NARROW } from "./plot.js";
import { ready } from "./timeline.js";

/** Run plotly's own script, which names itself `window.Plotly`. */
async function loadPlotly() {
  const bytes = await inflate(document.getElementById("chart-script").textContent);
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(bytes);
  document.head.append(script);
  return window.Plotly;
}

const PAPER = 980; // CSS pixels that a chart is wide on paper, which then shrinks it to the sheet

/** On a phone a legend wraps: give it room above the plot. */
function withRoom([id, { data, layout }]) {
  if (window.innerWidth < NARROW && layout.showlegend !== false) {
    const more = 20 * Math.max(0, data.length - 2);
    layout.height += more;
    layout.margin.t += more;
    layout.legend.maxheight = layout.margin.t;
    document.getElementById(id).style.height = `${layout.height}px`;
  }
  return [id, { data, layout }];
}

async function drawFigures() {
  const figures = Object.entries(JSON.parse(document.getElementById("chart-data").textContent)).map(withRoom);
  if (!figures.length) return;
  const plotly = await loadPlotly();
  const options = { displayModeBar: false, responsive: true };
  const drawn = figures.map(([id, { data, layout }]) => plotly.newPlot(id, data, layout, options));
  await Promise.all(drawn);
  const resize = (width) => figures.map(([id]) => plotly.relayout(id, width ? { width } : { width: null, autosize: true }));
  window.matchMedia("print").addEventListener("change", ({ matches }) => resize(matches ? PAPER : 0));
}

const figuresDrawn = ready.then(drawFigures);
window.cbprof.ready = figuresDrawn;
