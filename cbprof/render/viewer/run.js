// One recorded run as the page needs it: lanes of rows of spans, the devices, the steps.
// All times are ns from the start of the run's window.

import { Coarse } from "./coarse.js";
import { edgesOf, unpackAll } from "./columns.js";
import { Track, lastAtOrBefore } from "./geometry.js";
import { Device } from "./partition.js";

/** What is drawn at one height: its spans, sorted by start, and a layer of exact coverage per colour. */
class Row {
  constructor(run, indices) {
    this.run = run;
    this.indices = indices;
    this.starts = new Float64Array(indices.map((i) => run.spans.start[i]));
    this.ends = new Float64Array(indices.map((i) => run.endOf(i)));
    const groups = new Map();
    for (const i of indices) {
      const key = 2 * run.spans.name[i] + run.isWait(i);
      if (!groups.has(key)) groups.set(key, { name: run.nameOf(i), style: run.styleOf(i), spans: [] });
      groups.get(key).spans.push(i);
    }
    this.layers = [...groups.values()].map(({ name, style, spans }) => ({
      name,
      style,
      track: new Track(spans.map((i) => run.spans.start[i]), spans.map((i) => run.endOf(i))),
    }));
  }

  /** Whether span `i` of the run is in this row. */
  holds(i) {
    const position = lastAtOrBefore(this.indices, i);
    return position >= 0 && this.indices[position] === i;
  }

  /** Positions [first, last) within the row of the spans that touch [start, end]. */
  between(start, end) {
    let first = Math.max(0, lastAtOrBefore(this.starts, start));
    while (first < this.starts.length && this.ends[first] < start) first++;
    return [first, lastAtOrBefore(this.starts, end) + 1];
  }

  /** The span at `t`, or the nearest one that is at most `slack` ns away; its index in the run, or -1. */
  spanNear(t, slack) {
    const [first, last] = this.between(t - slack, t + slack);
    let best = -1;
    let distance = Infinity;
    for (let position = first; position < last; position++) {
      const away = Math.max(this.starts[position] - t, t - this.ends[position], 0);
      if (away <= distance && away <= slack) [best, distance] = [this.indices[position], away];
    }
    return best;
  }
}

export class Run {
  /** Unpack one run of the page's document; `states` and `kinds` are the page's. */
  static async from(json, { states, kinds }) {
    const run = new Run();
    Object.assign(run, json, { kinds });
    run.spans = await unpackAll(json.spans);
    run.edges = edgesOf(run.spans, run.length);
    run.steps = await unpackAll(json.steps, run.edges);
    run.coarse = json.coarse && (await Coarse.from(json.coarse, states));
    run.lanes = run.#lanes(json.lanes);
    run.devices = await Promise.all(json.devices.map((device, index) => Device.from(run, index, device, states)));
    run.stepOrder = [...run.steps.step.keys()].sort((a, b) => run.steps.start[a] - run.steps.start[b]);
    run.stepStarts = new Float64Array(run.stepOrder.map((position) => run.steps.start[position]));
    run.byMiddle = [...run.steps.step.keys()].sort((a, b) => run.steps.middle[a] - run.steps.middle[b]);
    run.stepMiddles = new Float64Array(run.byMiddle.map((position) => run.steps.middle[position]));
    run.flows = run.#flows();
    return run;
  }

  endOf(i) {
    return this.spans.start[i] + this.spans.dur[i];
  }

  nameOf(i) {
    return this.names[this.spans.name[i]];
  }

  /** A Python function without its folder and line. */
  shortOf(i) {
    return this.short[this.spans.name[i]] ?? this.nameOf(i);
  }

  isWait(i) {
    return this.spans.kind[i] === this.kinds.wait;
  }

  styleOf(i) {
    const color = this.colors[this.spans.name[i]];
    return { color, pattern: this.isWait(i) ? "wait" : null };
  }

  /** Whether every span between `start` and `end` is in the page. */
  knows(start, end) {
    return !this.coarse || this.coarse.knows(start, end);
  }

  /** Nested spans of a host lane are stacked by depth; a stream is one row, since its work is in order. */
  #lanes(lanes) {
    let next = 0;
    return lanes.map(({ name, device, count, waits }, index) => {
      const depths = [];
      const open = [];
      for (const last = next + count; next < last; next++) {
        while (open.length && open[open.length - 1] <= this.spans.start[next]) open.pop();
        const depth = device >= 0 ? 0 : open.length;
        (depths[depth] ??= []).push(next);
        open.push(this.endOf(next));
      }
      return { name, device, count, waits, rows: depths.map((indices) => new Row(this, indices)), coarse: this.coarse?.lanes[index] };
    });
  }

  /** Position in `steps` of a step number, or -1. */
  positionOf(step) {
    const position = lastAtOrBefore(this.steps.step, step);
    return position >= 0 && this.steps.step[position] === step ? position : -1;
  }

  /** Numbers of the steps whose middle, that of their compute, lies within [start, end], in the order of time. */
  stepsBetween(start, end) {
    const first = lastAtOrBefore(this.stepMiddles, start - 1) + 1;
    const last = lastAtOrBefore(this.stepMiddles, end) + 1;
    return this.byMiddle.slice(first, last).map((position) => this.steps.step[position]);
  }

  /** Names for a span, the most telling first. The isolates keep a right-to-left name from reordering the step. */
  labelsOf(i) {
    const name = this.shortOf(i).slice(0, 200);
    return this.spans.step[i] >= 0 ? [`\u2068${name}\u2069 ${this.spans.step[i]}`, name] : [name];
  }

  /** Per device and step the spans that wait for each other, in the order of `kinds.chain`: H2D, compute, D2H. */
  #flows() {
    const flows = new Map();
    for (const { device, rows } of this.lanes) {
      if (!flows.has(device)) flows.set(device, new Map());
      const ofStep = flows.get(device);
      for (const row of rows) {
        for (const span of row.indices) {
          const place = this.kinds.chain.indexOf(this.spans.kind[span]);
          const step = this.spans.step[span];
          if (place < 0 || step < 0) continue;
          if (!ofStep.has(step)) ofStep.set(step, []);
          ofStep.get(step)[place] = { span, row };
        }
      }
    }
    return flows;
  }

  /** Of each host span that launched some, the device spans that it launched, in the order of the page. */
  get launched() {
    this.launchedBy ??= this.#launchedBy();
    return this.launchedBy;
  }

  #launchedBy() {
    const launched = new Map();
    this.spans.launch.forEach((by, i) => {
      if (by >= 0) launched.has(by) ? launched.get(by).push(i) : launched.set(by, [i]);
    });
    return launched;
  }

  /** The place in `lanes` of the lane of span `i`: spans come lane by lane. */
  laneOf(i) {
    let lane = 0;
    for (let last = this.lanes[0].count; i >= last; last += this.lanes[lane].count) lane++;
    return lane;
  }

  /** The row in which span `i` is drawn, and its lane, as `{lane, row}`. */
  placeOf(i) {
    const lane = this.lanes[this.laneOf(i)];
    return { lane, row: lane.rows.find((row) => row.holds(i)) };
  }

  /** The device span of the same step that waits for device span `i`, as `{span, row}`; undefined where there is none. */
  after(device, i) {
    const flow = this.flows.get(device)?.get(this.spans.step[i]);
    const place = flow?.findIndex((each) => each?.span === i) ?? -1;
    return place >= 0 ? flow[place + 1] : undefined;
  }
}
