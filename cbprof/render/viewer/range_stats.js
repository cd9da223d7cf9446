// What happened in a range of time: states, gaps and their causes, and the spans that took most of it.

import { figuresTable } from "./card.js";
import { CoarseRow } from "./coarse.js";
import { causeLines } from "./gap_finder.js";
import { element } from "./plot.js";
import { linesTable } from "./tip.js";
import { countText, durationText, rangeText, shareText } from "./text.js";

const MOST_SPANS = 12; // names that the card lists

/** `[name, lane, count, time]` of the spans between two instants, the longest first; the count is null if unknown. */
export function topSpans(run, start, end) {
  const totals = new Map();
  const add = (name, lane, count, time) => {
    const key = `${lane.name}\n${lane.device}\n${name}`;
    const before = totals.get(key) ?? [name, lane.name, 0, 0];
    totals.set(key, [name, lane.name, count === null ? null : before[2] + count, before[3] + time]);
  };
  const known = run.knows(start, end);
  for (const lane of run.lanes) {
    for (const row of known ? lane.rows : [lane.coarse]) {
      if (row instanceof CoarseRow) {
        for (const { name, track } of row.layers) add(name, lane, null, track.covered(start, end));
        continue;
      }
      const [first, last] = row.between(start, end);
      for (let at = first; at < last; at++) {
        const time = Math.min(end, row.ends[at]) - Math.max(start, row.starts[at]);
        if (time > 0) add(run.nameOf(row.indices[at]), lane, 1, time);
      }
    }
  }
  return [...totals.values()].filter(([, , , time]) => time > 0).sort((a, b) => b[3] - a[3]);
}

/** Lines of `[label, value]` about one device between two instants. */
function deviceLines(viewer, device, start, end) {
  const shares = device.shares(start, end);
  const lines = viewer.states
    .filter(({ key }) => shares[key] > 0 && device.known)
    .map(({ key, label }) => [label, `${durationText(shares[key] * (end - start))}, ${shareText(shares[key])}`]);
  if (!device.run.knows(start, end)) return lines; // nor every gap
  const { count, time, longest } = device.gaps.between(start, end);
  if (!count) return [...lines, ["gaps", "none"]];
  lines.push(["gaps", `${countText(count)}, ${durationText(time)} in all, longest ${durationText(device.gaps.lengthOf(longest))}`]);
  return [...lines, ...causeLines(device, start, end)];
}

export class RangeStats {
  constructor(viewer, card) {
    Object.assign(this, { viewer, card });
  }

  /** Tell of what lies between two instants of a run, within it; without them, of what is in view. */
  show(run = this.viewer.run, { start, end } = this.viewer.viewOf(run)) {
    const { viewer } = this;
    const [from, to] = [Math.max(0, start), Math.min(run.length, end)];
    if (to <= from) return;
    viewer.take(run);
    viewer.range = { run, start: from, end: to };
    const parts = [element("p", { textContent: `${rangeText([from, to])}, ${durationText(to - from)}` })];
    for (const device of run.devices) {
      if (run.devices.length > 1) parts.push(element("h4", { textContent: `GPU ${device.device}` }));
      parts.push(linesTable(deviceLines(viewer, device, from, to)));
    }
    const rows = topSpans(run, from, to)
      .slice(0, MOST_SPANS)
      .map(([name, lane, count, time]) => [name, lane, count === null ? "–" : countText(count), durationText(time), shareText(time / (to - from))]);
    parts.push(figuresTable(["longest spans", "lane", "spans", "in all", "of range"], rows));
    this.card.show("Range", parts, this.forget);
    viewer.drawOverlays();
  }

  forget = () => {
    this.viewer.range = null;
    this.viewer.drawOverlays();
  };
}
