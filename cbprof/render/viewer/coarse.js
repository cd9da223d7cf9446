// A run too long to hold every span: exact coverage in bins, as `cbprof/render/web/viewer_coarse.py` ships it, and
// stretches in which every span is known.

import { unpack } from "./columns.js";
import { lastAtOrBefore } from "./geometry.js";
import { classOf } from "./partition.js";

/** Time covered in bins. Like a `Track`; exact at the edges of bins, and even within one. */
export class BinnedTrack {
  constructor(edges, amounts) {
    this.edges = edges;
    this.before = new Float64Array(edges.length);
    for (let i = 0; i < amounts.length; i++) this.before[i + 1] = this.before[i] + amounts[i];
  }

  coveredBefore(t) {
    const last = this.edges.length - 1;
    const i = Math.min(lastAtOrBefore(this.edges, t), last - 1);
    if (i < 0) return 0;
    const share = Math.min(1, (t - this.edges[i]) / (this.edges[i + 1] - this.edges[i]));
    return this.before[i] + share * (this.before[i + 1] - this.before[i]);
  }

  covered(start, end) {
    return this.coveredBefore(end) - this.coveredBefore(start);
  }

  columns(start, end, count) {
    const covered = new Float64Array(count);
    let previous = this.coveredBefore(start);
    for (let x = 0; x < count; x++) {
      const next = this.coveredBefore(start + ((end - start) * (x + 1)) / count);
      covered[x] = next - previous;
      previous = next;
    }
    return covered;
  }
}

/** A lane of which only coverage by name is known: drawn like a `Row` that is too crowded for bars. */
export class CoarseRow {
  constructor(layers) {
    this.layers = layers;
  }

  between() {
    return [0, Infinity];
  }

  spanNear() {
    return -1;
  }
}

export class Coarse {
  static async from(json, states) {
    const coarse = new Coarse();
    const edges = await unpack(json.edges);
    const track = async (column) => new BinnedTrack(edges, await unpack(column));
    coarse.stretches = json.stretches;
    coarse.devices = await Promise.all(
      json.devices.map((columns) =>
        Promise.all(columns.map(async (column, i) => ({ ...classOf(states[i]), track: await track(column) })))),
    );
    coarse.lanes = await Promise.all(
      json.lanes.map(async (layers) =>
        new CoarseRow(
          await Promise.all(
            layers.map(async ({ name, color, wait, time }) => ({
              name,
              style: { color, pattern: wait ? "wait" : null },
              track: await track(time),
            })),
          ),
        )),
    );
    return coarse;
  }

  /** Whether every span between `start` and `end` is known. */
  knows(start, end) {
    return this.stretches.some(([from, to]) => from <= start && end <= to);
  }
}
