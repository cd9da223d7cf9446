// A link shows the same place again, and one that fits nothing changes nothing.

import assert from "node:assert/strict";
import test from "node:test";

import { follow, linkOf } from "../../cbprof/render/viewer/link.js";

function viewerOf() {
  const runs = [{ lanes: [{}, {}, {}] }, { lanes: [{}] }];
  return {
    runs,
    run: runs[0],
    view: { start: 0, end: 10 },
    arrows: true,
    take(run) {
      this.run = run;
    },
    align(step) {
      this.alignedStep = step;
    },
    setView(start, end) {
      this.view = { start, end };
    },
  };
}

test("a link holds the run, the range, the lanes and what is switched on", () => {
  const viewer = viewerOf();
  assert.equal(linkOf(viewer), "t=0-10");
  Object.assign(viewer, { run: viewer.runs[1], view: { start: 5.4, end: 9 }, byBlame: true, arrows: false, aligned: true, alignedStep: 7 });
  viewer.runs[0].lanes[2].hidden = true;
  viewer.runs[0].lanes[1].pinned = true;
  viewer.runs[1].lanes[0].open = false;
  const link = linkOf(viewer);
  assert.equal(link, "t=5-9&run=2&align=7&hide=1.2&pin=1.1&fold=2.0&on=blame,bare");
  const other = viewerOf();
  assert.ok(follow(other, link));
  assert.equal(linkOf(other), link);
  assert.ok(follow(other, "t=0-10"));
  assert.equal(linkOf(other), "t=0-10");
});

test("what fits nothing is passed over", () => {
  const viewer = viewerOf();
  for (const text of ["", "waits", "t=9-5", "t=a-b", "%E0%A4%A"]) assert.equal(follow(viewer, text), false);
  assert.ok(follow(viewer, "t=1-2&run=9&hide=9.9,x,1&pin=&on=nothing"));
  assert.equal(linkOf(viewer), "t=1-2");
});
