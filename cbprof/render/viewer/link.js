// The place in the address: what is in view, so that a link to the page shows the same.
//
//     #t=227901233000-228192927000&run=2&align=5350&hide=1.3,1.4&pin=1.2&open=1.0&fold=1.5&on=blame,deep
//
// Times are ns from the start of the first run; lanes go by the numbers of their run and their own, from 1 and 0.

const SWITCHES = { blame: "byBlame", deep: "deep", launches: "launches" };
const LANES = { hide: ["hidden", true], pin: ["pinned", true], open: ["open", true], fold: ["open", false] };

/** What the address says after the `#`. */
export function linkOf(viewer) {
  const { runs, view, run, aligned } = viewer;
  const said = { t: `${Math.round(view.start)}-${Math.round(view.end)}` };
  if (run !== runs[0]) said.run = runs.indexOf(run) + 1;
  if (aligned) said.align = viewer.alignedStep;
  for (const [key, [field, value]] of Object.entries(LANES)) {
    const lanes = runs.flatMap((each, r) => each.lanes.flatMap((lane, l) => (lane[field] === value ? [`${r + 1}.${l}`] : [])));
    if (lanes.length) said[key] = lanes.join(",");
  }
  const on = Object.keys(SWITCHES).filter((key) => viewer[SWITCHES[key]]);
  if (!viewer.arrows) on.push("bare");
  if (on.length) said.on = on.join(",");
  return Object.entries(said).map(([key, value]) => `${key}=${value}`).join("&");
}

/** Show what an address says; whatever in it does not fit these runs is passed over. False where it says nothing of a view. */
export function follow(viewer, text) {
  const said = Object.fromEntries(new URLSearchParams(text));
  const [start, end] = (said.t ?? "").split("-").map(Number);
  if (!(end > start)) return false;
  const on = (said.on ?? "").split(",");
  for (const [key, field] of Object.entries(SWITCHES)) viewer[field] = on.includes(key);
  viewer.arrows = !on.includes("bare");
  for (const lane of viewer.runs.flatMap((run) => run.lanes)) Object.assign(lane, { hidden: false, pinned: false, open: undefined });
  for (const [key, [field, value]] of Object.entries(LANES)) {
    for (const place of (said[key] ?? "").split(",")) {
      const [r, l] = place.split(".");
      const lane = viewer.runs[r - 1]?.lanes[l];
      if (lane) lane[field] = value;
    }
  }
  viewer.take(viewer.runs[said.run - 1] ?? viewer.runs[0]);
  viewer.aligned = said.align !== undefined;
  viewer.align(Number(said.align));
  viewer.setView(start, end);
  return true;
}
