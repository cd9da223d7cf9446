// The geometry against plain loops: coverage adds up, stacked columns fill their box, time and pixels go back and forth.

import assert from "node:assert/strict";
import test from "node:test";

import { BinnedTrack } from "../../cbprof/render/viewer/coarse.js";
import { Track, lastAtOrBefore, niceTicks, stackColumns } from "../../cbprof/render/viewer/geometry.js";
import { Scale } from "../../cbprof/render/viewer/paint.js";
import { Partition, sharesOf } from "../../cbprof/render/viewer/partition.js";

const LENGTH = 1000;
const close = (a, b, within = 1e-9) => assert.ok(Math.abs(a - b) <= within * Math.max(1, Math.abs(b)), `${a} is not ${b}`);
const total = (values) => values.reduce((sum, value) => sum + value, 0);

/** Numbers that look random and are the same every time. */
function* dice(seed) {
  for (let state = seed; ; ) yield (state = (state * 48271) % 2147483647) / 2147483647;
}

/** Intervals in whole ns, sorted by start; they may overlap. */
function intervals(random, count) {
  const next = () => random.next().value;
  const made = Array.from({ length: count }, () => [Math.floor(next() * LENGTH), Math.floor(next() * 60)]);
  return made.sort(([a], [b]) => a - b).map(([start, dur]) => [start, Math.min(LENGTH, start + dur)]);
}

/** The covered ns between two whole ns, counted one by one. */
function counted(pieces, start, end) {
  let sum = 0;
  for (let t = start; t < end; t++) sum += pieces.some(([from, to]) => from <= t && t < to);
  return sum;
}

const trackOf = (pieces) => new Track(pieces.map(([start]) => start), pieces.map(([, end]) => end));

test("the last element at or before a time", () => {
  const sorted = [1, 3, 3, 3, 8];
  for (let t = 0; t < 10; t++) assert.equal(lastAtOrBefore(sorted, t), sorted.filter((each) => each <= t).length - 1);
  assert.equal(lastAtOrBefore([], 5), -1);
  assert.equal(lastAtOrBefore(sorted, 8, 3), 4);
});

test("coverage is what counting finds, and its columns add up", () => {
  for (let seed = 1; seed <= 40; seed++) {
    const pieces = intervals(dice(seed), seed % 20);
    const track = trackOf(pieces);
    for (const [start, end] of [[0, LENGTH], [137, 741], [500, 501]]) {
      assert.equal(track.covered(start, end), counted(pieces, start, end));
      for (const count of [1, 7, 64, 3000]) close(total(track.columns(start, end, count)), track.covered(start, end));
    }
    const tenths = track.columns(0, LENGTH, 10);
    tenths.forEach((covered, x) => assert.equal(covered, counted(pieces, x * 100, x * 100 + 100)));
  }
});

test("bins know what the spans knew, at every edge of a bin", () => {
  const pieces = intervals(dice(5), 15);
  const [track, edges] = [trackOf(pieces), Float64Array.from({ length: 51 }, (_, i) => 20 * i)];
  const binned = new BinnedTrack(edges, track.columns(0, LENGTH, 50));
  for (const [start, end] of [[0, LENGTH], [40, 460], [980, 1000]]) close(binned.covered(start, end), track.covered(start, end));
  binned.columns(0, LENGTH, 25).forEach((covered, x) => close(covered, track.covered(40 * x, 40 * x + 40)));
  assert.equal(binned.covered(-10, 2 * LENGTH), track.covered(0, LENGTH));
});

/** A run that changes its class at random times. */
function partition(seed, classes) {
  const random = dice(seed);
  const starts = [0, ...new Set(intervals(random, 60).map(([start]) => start).filter((start) => start > 0))];
  const codes = starts.map(() => Math.floor(random.next().value * classes));
  return new Partition(starts, codes, Array.from({ length: classes }, (_, key) => ({ key })), LENGTH);
}

test("a partition covers all of the time once", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { layers } = partition(seed, 4);
    for (const [start, end] of [[0, LENGTH], [3, 4], [111, 777]]) {
      close(total(layers.map(({ track }) => track.covered(start, end))), end - start);
      close(total(Object.values(sharesOf(layers, start, end))), 1);
    }
  }
  assert.deepEqual(sharesOf(partition(1, 2).layers, LENGTH, LENGTH), { 0: null, 1: null });
});

test("stacked columns fill their box without holes, and each colour has its area", () => {
  for (const [seed, count, height] of [[1, 500, 56], [2, 3, 10], [3, 1999, 44], [4, 77, 1]]) {
    const tracks = partition(seed, 4).layers.map(({ track }) => track);
    const stack = stackColumns(tracks, 0, LENGTH, count, height);
    for (let x = 0; x < count; x++) {
      let reached = 0;
      for (const { bottom, top } of stack) {
        assert.equal(bottom[x], reached);
        assert.ok(top[x] >= reached && top[x] <= height);
        reached = top[x];
      }
      assert.equal(reached, height);
    }
    if (count < 100) continue;
    stack.forEach(({ bottom, top }, layer) => {
      const drawn = total(Array.from(top, (value, x) => value - bottom[x])) / (count * height);
      close(drawn, tracks[layer].covered(0, LENGTH) / LENGTH, 2 / count);
    });
  }
});

test("time and pixels go back and forth", () => {
  const scale = new Scale(104, 1273, 5e9, 5e9 + 12345);
  for (const x of [104, 104.5, 600, 1377]) close(scale.x(scale.t(x)), x, 1e-6);
  for (const t of [5e9, 5e9 + 1, 5e9 + 12345]) close(scale.t(scale.x(t)), t);
  assert.deepEqual([scale.x(5e9), scale.x(5e9 + 12345)], [104, 1377]);
  close(scale.pixel * scale.width, 12345);
  assert.deepEqual([scale.clamp(-1), scale.clamp(700), scale.clamp(9999)], [104, 700, 1377]);
});

test("ticks are round, within the axis and not too many", () => {
  for (const [start, end, most] of [[0, 1, 10], [3, 1234567, 13], [5e9, 5e9 + 170, 7], [0, 9999.5e6, 1]]) {
    const { step, ticks } = niceTicks(start, end, most);
    close([1, 2, 5].map((factor) => Math.log10(step / factor)).reduce((best, power) =>
      Math.min(best, Math.abs(power - Math.round(power))), 1), 0);
    assert.ok(ticks.length <= most + 1);
    assert.ok(ticks.every((tick) => tick >= start && tick <= end && Number.isInteger(Math.round(tick / step))));
  }
});
