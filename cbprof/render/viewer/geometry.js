// The one geometry of the viewer, the same as `cbprof/render/picture/coverage.py`: how much of a pixel column is covered
// is a difference of two running sums, found by binary search. It is exact at every zoom and costs the same at every
// zoom; bars that are thinner than a pixel, drawn one by one, would show a lane full that is half empty.

/** Index of the last element of `sorted` that is <= `t`, or -1; the search starts at `low`. */
export function lastAtOrBefore(sorted, t, low = 0) {
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= t) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Intervals of one colour, sorted by start. Where two overlap, the time counts once. */
export class Track {
  constructor(starts, ends) {
    const count = starts.length;
    this.starts = new Float64Array(count);
    this.ends = new Float64Array(count);
    this.before = new Float64Array(count + 1); // time covered before interval i
    let reached = -Infinity;
    for (let i = 0; i < count; i++) {
      this.starts[i] = Math.max(starts[i], reached);
      this.ends[i] = reached = Math.max(ends[i], this.starts[i]);
      this.before[i + 1] = this.before[i] + (this.ends[i] - this.starts[i]);
    }
  }

  /** Time covered before `t`, in ns. */
  coveredBefore(t, low = 0) {
    const i = lastAtOrBefore(this.starts, t, low);
    return i < 0 ? 0 : this.before[i] + Math.min(t, this.ends[i]) - this.starts[i];
  }

  /** Time covered between `start` and `end`, in ns. */
  covered(start, end) {
    return this.coveredBefore(end) - this.coveredBefore(start);
  }

  /** Time covered in each of `count` equal columns from `start` to `end`, in ns. */
  columns(start, end, count) {
    const covered = new Float64Array(count);
    let low = Math.max(0, lastAtOrBefore(this.starts, start));
    let previous = this.coveredBefore(start);
    for (let x = 0; x < count; x++) {
      const edge = start + ((end - start) * (x + 1)) / count;
      low = Math.max(0, lastAtOrBefore(this.starts, edge, low));
      const next = this.coveredBefore(edge, low);
      covered[x] = next - previous;
      previous = next;
    }
    return covered;
  }
}

/**
 * Stack the shares of several tracks in `count` columns of `height` pixels.
 *
 * Returns per track the drawn bottom and top of every column, in whole pixels from below. What rounding takes from one
 * column is owed to the next one, so that the drawn area of a track is right to about a pixel over the whole width, and
 * not only on average. A column that is wholly covered, or not at all, is drawn so.
 */
export function stackColumns(tracks, start, end, count, height) {
  const perNs = (height * count) / (end - start);
  const exact = new Float64Array(count);
  let bottom = new Int32Array(count);
  return tracks.map((track) => {
    const top = Int32Array.from(bottom);
    if (track.covered(start, end) > 0) {
      const covered = track.columns(start, end, count);
      let owed = 0;
      for (let x = 0; x < count; x++) {
        if (covered[x] <= 0) continue;
        exact[x] += covered[x] * perNs;
        const wanted = exact[x] + owed;
        top[x] = Math.min(height, Math.max(bottom[x], Math.round(wanted)));
        owed = Math.max(-0.49, Math.min(0.49, wanted - top[x]));
      }
    }
    const layer = { bottom, top };
    bottom = top;
    return layer;
  });
}

/** Round tick positions (1, 2 or 5 times a power of ten apart) between `start` and `end`, at most about `most`. */
export function niceTicks(start, end, most) {
  const rough = (end - start) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(start / step); i * step <= end; i++) ticks.push(i * step);
  return { step, ticks };
}
