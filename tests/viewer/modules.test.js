// Every module finds what it imports. Those that draw a page find no window here, but only after that.

import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import test from "node:test";

const folder = new URL("../../cbprof/render/viewer/", import.meta.url);
const pages = ["timeline.js", "report.js", "fleet.js"];

for (const name of (await readdir(folder)).filter((each) => each.endsWith(".js"))) {
  test(name, async () => {
    const loaded = import(new URL(name, folder));
    if (pages.includes(name)) await assert.rejects(loaded, { name: "ReferenceError", message: "window is not defined" });
    else assert.notEqual(Object.keys(await loaded).length, 0);
  });
}
