// When one device was in which state, or waited for what: divisions of its time, a layer per class.

import { unpackAll } from "./columns.js";
import { Gaps } from "./gaps.js";
import { Track } from "./geometry.js";

/** What a class of the partition by state is called, and how it is drawn. */
export function classOf({ key, label, gpu, untraced, pattern }) {
  return { key, name: label, gpu, untraced, style: { state: key, pattern } };
}

/** Time divided into pieces, each of one class: piece i is [starts[i], ends[i]). */
export class Partition {
  constructor(starts, codes, classes, length) {
    this.starts = starts;
    this.codes = codes;
    this.ends = new Float64Array(starts.length);
    for (let i = 0; i < starts.length; i++) this.ends[i] = i + 1 < starts.length ? starts[i + 1] : length;
    this.layers = classes.map((each, code) => {
      const own = [];
      for (let i = 0; i < codes.length; i++) if (codes[i] === code) own.push(i);
      const track = new Track(own.map((i) => this.starts[i]), own.map((i) => this.ends[i]));
      return { ...each, track };
    });
  }
}

/** Time in each layer between `start` and `end` as fractions of the part that lies within the run. */
export function sharesOf(layers, start, end) {
  const covered = layers.map(({ key, track }) => [key, track.covered(start, end)]);
  const total = covered.reduce((sum, [, time]) => sum + time, 0);
  return Object.fromEntries(covered.map(([key, time]) => [key, total > 0 ? time / total : null]));
}

export class Device {
  static async from(run, index, { device, known, untraced, states, blame, gaps }, classes) {
    const made = new Device();
    Object.assign(made, { run, device, known, untraced });
    const { start, state } = await unpackAll(states, run.edges);
    made.byState = new Partition(start, state, classes.map(classOf), run.length);
    made.blame = blame && { causes: blame.causes, ...(await unpackAll({ start: blame.start, cause: blame.cause }, run.edges)) };
    made.gaps = new Gaps(await unpackAll(gaps, run.edges));
    made.coarse = run.coarse?.devices[index];
    return made;
  }

  /** The states in which the GPU is active, and the causes of its gaps in place of the others; made when first asked for. */
  get byBlame() {
    if (this.blame) this.blamed ??= this.#divideByBlame(this.blame);
    return this.blamed;
  }

  #divideByBlame({ causes, ...pieces }) {
    const { starts, codes, layers } = this.byState;
    const active = layers.filter(({ gpu }) => gpu);
    const classes = causes.map(({ label, color }, i) => ({ key: `cause ${i}`, name: label, style: { color, pattern: "gap" } }));
    const all = [];
    for (let i = 0; i < starts.length; i++) {
      const code = active.indexOf(layers[codes[i]]);
      if (code >= 0) all.push([starts[i], code]);
    }
    for (let i = 0; i < pieces.start.length; i++) all.push([pieces.start[i], active.length + pieces.cause[i]]);
    all.sort(([a], [b]) => a - b);
    const column = (at) => Float64Array.from(all, (piece) => piece[at]);
    return new Partition(column(0), column(1), [...active, ...classes], this.run.length);
  }

  /** The division that the viewer shows; its pieces are known only where the run's spans are. */
  partition(byBlame) {
    return (byBlame && this.byBlame) || this.byState;
  }

  /** What to draw between `start` and `end`. */
  layers(start, end, byBlame = false) {
    return this.coarse && !this.run.knows(start, end) ? this.coarse : this.partition(byBlame).layers;
  }

  shares(start, end, byBlame = false) {
    return sharesOf(this.layers(start, end, byBlame), start, end);
  }
}
