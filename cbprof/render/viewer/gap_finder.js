// From gap to gap: the next one, the longest one, and what is known of each.

import { linesTable } from "./tip.js";
import { countText, durationText, momentText, shareText } from "./text.js";

const LEAST_PX = 6; // that a gap must be wide to be seen without zooming in

/** What is known of a gap as lines of `[label, value]`. */
export function gapLines(run, device, i) {
  const { gaps } = device;
  const lines = [["", `gap of ${durationText(gaps.lengthOf(i))}`], ["begins at", momentText(gaps.start[i])]];
  if (gaps.step[i] >= 0) lines.push(["before step", countText(gaps.step[i])]);
  const span = gaps.span[i];
  if (span >= 0) lines.push(["ended by", `${run.nameOf(span)}, ${run.placeOf(span).lane.name}`]);
  const parts = gaps.partsOf(i);
  const launch = gaps.launch[i];
  if (launch >= 0) lines.push(["launched by", run.nameOf(launch)]);
  if (!parts || launch < 0) lines.push(["launch", "unknown"]);
  else {
    const late = parts.before > 0 ? `${durationText(parts.before)} after the gap began` : "before the gap";
    lines.push(["launch began", late]);
    if (parts.inside > 0) lines.push(["in the launch", durationText(parts.inside)]);
    if (parts.after > 0) lines.push(["in the queue", durationText(parts.after)]);
  }
  return [...lines, ...causeLines(device, gaps.start[i], gaps.end[i])];
}

/** What the device waited for between two instants, the most first. */
export function causeLines(device, start, end) {
  if (!device.byBlame) return [];
  const found = device.byBlame.layers
    .filter(({ gpu }) => !gpu)
    .map(({ name, track }) => [name, track.covered(start, end)])
    .filter(([, time]) => time > 0)
    .sort(([, a], [, b]) => b - a);
  const total = found.reduce((sum, [, time]) => sum + time, 0);
  return found.map(([name, time], at) => {
    const label = at ? "and for" : "waited for";
    return [label, `${name}, ${durationText(time)}, ${shareText(time / total)}`];
  });
}

export class GapFinder {
  constructor(viewer, card) {
    Object.assign(this, { viewer, card, byLength: false });
  }

  /** The device of the run in hand whose gaps are walked: the one of the gap that is shown, else the one that waited most. */
  get #device() {
    const { run, gap } = this.viewer;
    if (gap?.run === run) return gap.device;
    const time = ({ gaps }) => gaps.between(0, Infinity).time;
    return run.devices.reduce((most, each) => (most && time(most) >= time(each) ? most : each), null);
  }

  /** Show the gap after (1) or before (-1) the one that is shown, or the middle of the view. */
  walk(direction) {
    const { run, gap } = this.viewer;
    const device = this.#device;
    if (!device) return;
    const { start, end } = this.viewer.viewOf(run);
    const shown = gap && gap.run === run && device.gaps.start[gap.i] < end && device.gaps.end[gap.i] > start;
    const next = device.gaps.beside(shown ? device.gaps.start[gap.i] : (start + end) / 2, direction);
    if (next >= 0) this.show(run, device, next);
  }

  /** Show the longest gap; when it is shown already, the next in length. */
  longest() {
    const { run, gap } = this.viewer;
    const device = this.#device;
    if (!device?.gaps.count) return;
    const { byLength } = device.gaps;
    const at = gap?.run === run ? byLength.indexOf(gap.i) : -1;
    this.show(run, device, byLength[this.byLength && at >= 0 ? (at + 1) % byLength.length : 0]);
    this.byLength = true;
  }

  /** Mark a gap, tell of it on the card, and with `move` bring it into view. */
  show(run, device, i, { move = true } = {}) {
    const { viewer } = this;
    this.byLength = false;
    viewer.take(run);
    viewer.gap = { run, device, i };
    const { gaps } = device;
    if (move) viewer.bring(run, gaps.start[i], gaps.end[i], LEAST_PX);
    const many = run.coarse ? "those that this page holds" : countText(gaps.count);
    const place = `${countText(gaps.byLength.indexOf(i) + 1)} of ${many} by length`;
    const name = run.devices.length > 1 ? `Gap of GPU ${device.device}` : "Gap";
    this.card.show(name, [linesTable([...gapLines(run, device, i), ["length", place]])], this.forget);
    viewer.drawOverlays();
  }

  forget = () => {
    this.viewer.gap = null;
    this.viewer.drawOverlays();
  };
}
