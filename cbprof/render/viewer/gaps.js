// The gaps of one device: when it had nothing to run, what ended each wait, and how it lay around the launch.

import { lastAtOrBefore } from "./geometry.js";

export class Gaps {
  /** The columns of `packed_gaps` in `cbprof/render/web/viewer_gaps.py`. */
  constructor(columns) {
    Object.assign(this, columns);
    this.count = columns.start.length;
  }

  /** All gaps, longest first; sorted when first asked for. */
  get byLength() {
    this.sorted ??= [...this.start.keys()].sort((a, b) => this.lengthOf(b) - this.lengthOf(a) || a - b);
    return this.sorted;
  }

  lengthOf(i) {
    return this.end[i] - this.start[i];
  }

  /** The gap at `t`, or -1. */
  at(t) {
    const i = lastAtOrBefore(this.start, t);
    return i >= 0 && t < this.end[i] ? i : -1;
  }

  /** The first gap that begins after `t` (`direction` 1), or the last one that begins before it (-1); or -1. */
  beside(t, direction) {
    const i = direction > 0 ? lastAtOrBefore(this.start, t) + 1 : lastAtOrBefore(this.start, t - 1);
    return i < this.count ? i : -1;
  }

  /** How long the gap lay before its launch, inside the launch, and after it, in ns; null where nobody knows. */
  partsOf(i) {
    if (!this.known[i]) return null;
    return {
      before: this.launched[i] - this.start[i],
      inside: this.queued[i] - this.launched[i],
      after: this.end[i] - this.queued[i],
    };
  }

  /** How many gaps touch [start, end), their time within it, and the longest of them; `longest` is -1 without any. */
  between(start, end) {
    let [count, time, longest] = [0, 0, -1];
    for (let i = Math.max(0, lastAtOrBefore(this.start, start)); i < this.count && this.start[i] < end; i++) {
      if (this.end[i] <= start) continue;
      count++;
      time += Math.min(end, this.end[i]) - Math.max(start, this.start[i]);
      if (longest < 0 || this.lengthOf(i) > this.lengthOf(longest)) longest = i;
    }
    return { count, time, longest };
  }
}
