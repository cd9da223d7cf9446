// The charts of the report page: plotly, deflated inside the page, draws them once the timeline is there.

import { inflate } from "./columns.js";
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

const LEGEND = { line: 20, letter: 6.6, key: 46 }; // CSS pixels that a line, a letter and the sample before it take

/** A legend has columns as wide as its longest name: give its lines room above the plot. */
function withRoom([id, { data, layout }]) {
  const names = data.filter(({ name, showlegend }) => name && showlegend !== false).map(({ name }) => name.length);
  if (layout.showlegend === false || !names.length) return [id, { data, layout }];
  const room = document.getElementById(id).clientWidth - layout.margin.l - layout.margin.r;
  const columns = Math.max(1, Math.floor(room / (LEGEND.key + LEGEND.letter * Math.max(...names))));
  const more = Math.max(0, LEGEND.line * (Math.ceil(names.length / columns) + 1) - layout.margin.t);
  layout.height += more;
  layout.margin.t += more;
  layout.legend.maxheight = layout.margin.t;
  document.getElementById(id).style.height = `${layout.height}px`;
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
