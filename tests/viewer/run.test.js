// What Python packs, JavaScript reads. `run.json` is written by tests/test_viewer_js.py, which also says how to renew it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { unpack, unpackAll } from "../../cbprof/render/viewer/columns.js";
import { Run } from "../../cbprof/render/viewer/run.js";

const { columns, enums, run: json, coverage } = JSON.parse(await readFile(new URL("run.json", import.meta.url)));

test("columns come out as they went in", async () => {
  for (const { values, packed } of columns) assert.deepEqual(Array.from(await unpack(packed)), values);
});

/** The coverage of each state in the bins of the fixture, by key. */
function covered(run) {
  const [device] = run.devices;
  const bins = Object.values(coverage)[0].length;
  const found = device.layers(0, run.length).map(({ key, track }) => [key, Array.from(track.columns(0, run.length, bins))]);
  return Object.fromEntries(found);
}

test("every bin is covered as Python finds it, to the nanosecond", async () => {
  assert.deepEqual(covered(await Run.from(json, enums)), coverage);
});

/** Small numbers in one byte plane, as `web/columns.py` packs them. */
function pack(values) {
  const data = deflateSync(Uint8Array.from(values, (value) => 2 * value)).toString("base64");
  return { length: values.length, width: 1, delta: false, data };
}

test("states may be numbered in any order", async () => {
  const [device] = json.devices;
  const { state } = await unpackAll({ state: device.states.state });
  const last = enums.states.length - 1;
  const turned = { ...device, states: { ...device.states, state: pack(state.map((code) => last - code)) } };
  const run = await Run.from({ ...json, devices: [turned] }, { ...enums, states: enums.states.toReversed() });
  assert.deepEqual(covered(run), coverage);
  const usual = await Run.from(json, enums);
  assert.deepEqual(run.devices[0].shares(0, run.length, true), usual.devices[0].shares(0, usual.length, true));
});

test("kinds may have any number", async () => {
  const usual = await Run.from(json, enums);
  const shift = (kind) => kind + 50;
  const spans = { ...json.spans, kind: pack(usual.spans.kind.map(shift)) };
  const kinds = { wait: shift(enums.kinds.wait), chain: enums.kinds.chain.map(shift) };
  for (const run of [usual, await Run.from({ ...json, spans }, { ...enums, kinds })]) {
    const [host, ...streams] = run.lanes.map(({ rows }) => rows[0]);
    const waits = host.layers.filter(({ style }) => style.pattern === "wait").map(({ name }) => name);
    assert.deepEqual(waits, ["wait"]);
    const names = [streams.find((row) => run.nameOf(row.indices[0]) === "h2d").indices[0]];
    for (let next; (next = run.after(0, names.at(-1))); ) names.push(next.span);
    assert.deepEqual(names.map((span) => run.nameOf(span)), ["h2d", "compute", "d2h"]);
  }
});

test("a row finds the spans between two times and the one that is near", async () => {
  const run = await Run.from(json, enums);
  const [row] = run.lanes[0].rows;
  const touching = (start, end) => [...row.starts.keys()].filter((i) => row.starts[i] <= end && row.ends[i] >= start);
  for (const [start, end] of [[0, run.length], [1_600_000, 1_700_000], [9_600_000, 9_700_000]]) {
    const [first, last] = row.between(start, end);
    assert.deepEqual([...row.starts.keys()].slice(first, last), touching(start, end));
  }
  assert.equal(run.nameOf(row.spanNear(9_600_000, 200_000)), "update");
  assert.equal(row.spanNear(9_750_000, 100_000), -1);
});
