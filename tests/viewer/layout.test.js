// Which rows of a lane a view shows: outer frames that do not change are one line, a thread that only waits is one.

import assert from "node:assert/strict";
import test from "node:test";

import { constantRows, layOut } from "../../cbprof/render/viewer/layout.js";

/** A row of spans `[start, end]`, as `Row` in run.js. */
function row(...spans) {
  return {
    indices: spans.map((_, i) => i),
    starts: spans.map(([start]) => start),
    ends: spans.map(([, end]) => end),
    between: (start, end) => {
      const touched = [...spans.keys()].filter((i) => spans[i][0] <= end && spans[i][1] >= start);
      return touched.length ? [touched[0], touched.at(-1) + 1] : [0, 0];
    },
  };
}

const deep = [row([0, 100]), row([0, 100]), row([10, 90]), row([20, 50], [50, 80]), ...Array.from({ length: 12 }, () => row([30, 40]))];
const lane = (more) => ({ name: "thread 1", device: -1, rows: deep, ...more });
const shown = (lanes, view, options = {}) => {
  const { items } = layOut({ devices: [], lanes, knows: () => true }, view, options);
  return items.map(({ row: one, fold }) => (fold ? `${fold.length} folded` : deep.indexOf(one)));
};

test("outer rows are constant where one span covers the whole view", () => {
  assert.equal(constantRows(deep, { start: 0, end: 100 }), 2);
  assert.equal(constantRows(deep, { start: 10, end: 90 }), 3);
  assert.equal(constantRows(deep, { start: 31, end: 39 }), deep.length);
});

test("a deep lane begins where frames change in the view", () => {
  assert.deepEqual(shown([lane()], { start: 10, end: 90 }), ["3 folded", 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.deepEqual(shown([lane()], { start: 31, end: 39 }), ["16 folded"]);
  assert.deepEqual(shown([lane()], { start: 10, end: 90 }, { deep: true }), [...deep.keys()]);
  assert.deepEqual(shown([lane({ open: true })], { start: 10, end: 90 }), [...deep.keys()]);
});

test("a thread that only waits, and one that was folded, is one line; a hidden one none; a pinned one comes first", () => {
  const view = { start: 10, end: 90 };
  assert.deepEqual(shown([lane({ waits: true })], view), ["0 folded"]);
  assert.deepEqual(shown([lane({ open: false })], view), ["0 folded"]);
  assert.deepEqual(shown([lane({ hidden: true })], view), []);
  const lanes = [lane({ waits: true, name: "a" }), lane({ waits: true, name: "b", pinned: true })];
  const { items } = layOut({ devices: [], lanes, knows: () => true }, view, {});
  assert.deepEqual(items.map((item) => item.lane.name), ["b", "a"]);
});
