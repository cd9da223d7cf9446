// Spans by name: how many there are, how long they took, and from one to the next.

import { figuresTable } from "./card.js";
import { Track, lastAtOrBefore } from "./geometry.js";
import { element } from "./plot.js";
import { countText, durationText, momentText } from "./text.js";

const LEAST_PX = 12; // that a span must be wide to be seen without zooming in
const MOST_NAMES = 12; // that the card lists

/** The spans of a run whose names hold `text`, upper or lower case, in the order of time. */
export function findSpans(run, text) {
  const wanted = text.toLowerCase();
  const ids = new Set([...run.names.keys()].filter((id) => run.names[id].toLowerCase().includes(wanted)));
  const spans = [];
  run.spans.name.forEach((id, i) => ids.has(id) && spans.push(i));
  spans.sort((a, b) => run.spans.start[a] - run.spans.start[b] || b - a);
  return { run, ids, spans: Int32Array.from(spans), starts: Float64Array.from(spans, (i) => run.spans.start[i]) };
}

/** `[name, count, time]` of each name among the spans, the longest first; time of a lane counts once where spans nest. */
export function totalsByName({ run, spans }) {
  const groups = new Map();
  for (const i of spans) {
    const key = `${run.laneOf(i)} ${run.spans.name[i]}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(i);
  }
  const totals = new Map();
  for (const found of groups.values()) {
    const track = new Track(found.map((i) => run.spans.start[i]), found.map((i) => run.endOf(i)));
    const name = run.nameOf(found[0]);
    const [, count, time] = totals.get(name) ?? [name, 0, 0];
    totals.set(name, [name, count + found.length, time + track.covered(-Infinity, Infinity)]);
  }
  return [...totals.values()].sort(([, , a], [, , b]) => b - a);
}

export class SpanFinder {
  constructor(viewer, card) {
    Object.assign(this, { viewer, card, text: "" });
  }

  /** Look for a name in all runs, and show the first span from the middle of the view on. False where there is none. */
  find(text) {
    const { viewer } = this;
    const found = viewer.runs.map((run) => findSpans(run, text));
    const here = found.find(({ run, spans }) => run === viewer.run && spans.length) ?? found.find(({ spans }) => spans.length);
    if (!here) return false;
    this.text = text;
    this.found = found;
    viewer.take(here.run);
    viewer.found = new Map(found.map((each) => [each.run, { ids: each.ids, current: -1 }]));
    const { start, end } = viewer.viewOf(here.run);
    const at = lastAtOrBefore(here.starts, (start + end) / 2 - 1) + 1;
    this.#show(here, at % here.spans.length);
    return true;
  }

  /** Show the next (1) or previous (-1) span of the name that was looked for, in the run in hand. */
  walk(direction) {
    const here = this.found?.find(({ run, spans }) => run === this.viewer.run && spans.length);
    if (!here) return;
    const { current } = this.viewer.found.get(here.run);
    const { start, end } = this.viewer.viewOf(here.run);
    const beside = lastAtOrBefore(here.starts, (start + end) / 2) + (direction > 0 ? 1 : 0);
    const next = current >= 0 ? current + direction : beside;
    this.#show(here, (next + here.spans.length) % here.spans.length);
  }

  #show(here, at) {
    const { viewer } = this;
    const { run, spans } = here;
    const i = spans[at];
    viewer.found.get(run).current = at;
    viewer.found.get(run).span = i;
    viewer.bring(run, run.spans.start[i], run.endOf(i), LEAST_PX);
    const place = `${countText(at + 1)} of ${countText(spans.length)}: ${run.nameOf(i)}, ${durationText(run.spans.dur[i])} at ${momentText(run.spans.start[i])}`;
    here.totals ??= totalsByName(here);
    const rows = here.totals.slice(0, MOST_NAMES).map(([name, count, time]) => [name, countText(count), durationText(time), durationText(time / count)]);
    const [count, time] = [1, 2].map((column) => here.totals.reduce((sum, total) => sum + total[column], 0));
    if (here.totals.length > 1) rows.push([`all ${countText(here.totals.length)} names`, countText(count), durationText(time), durationText(time / count)]);
    const parts = [element("p", { textContent: place }), figuresTable(["name", "spans", "in all", "mean"], rows)];
    if (run.coarse) parts.push(element("p", { textContent: "Of the stretches marked below the strip." }));
    this.card.show(`Spans named “${this.text.slice(0, 40)}”`, parts, this.forget);
    viewer.drawOverlays();
  }

  forget = () => {
    this.found = null;
    this.viewer.found = new Map();
    this.viewer.drawOverlays();
  };
}
