// Where the lanes of a view stand, from top to bottom: which are pinned, hidden or folded, and which rows of each show.

const LANE = { gap: 9, streamGap: 3, caption: 15, end: 4 };
const ALONE = { states: 56, row: 24, fold: 20 }; // heights in CSS pixels, where the page shows one run
const PAIRED = { states: 44, row: 20, fold: 18 };
const MOST_ROWS = 8; // of a host lane, unless all of a deep stack is asked for

export const TOP = 22; // CSS pixels that the axis takes

/** How many rows, from the outermost on, hold one span that covers the whole view: nothing changes in them. */
export function constantRows(rows, { start, end }) {
  const constant = rows.findIndex((row) => {
    const [first, last] = row.between(start, end);
    return last - first !== 1 || row.starts[first] > start || row.ends[first] < end;
  });
  return constant < 0 ? rows.length : constant;
}

/** What of a lane of known spans shows: rows, and the spans that one line above them stands for. */
function shownOf(lane, view, deep) {
  const { rows } = lane;
  if (lane.device >= 0 || deep || lane.open === true) return { rows, outer: [], deeper: 0 };
  if (lane.open === false || (lane.waits && lane.open === undefined)) return { rows: [], outer: [], deeper: rows.length };
  const constant = rows.length > MOST_ROWS ? constantRows(rows, view) : 0;
  const skipped = constant > 1 ? constant : 0;
  const outer = rows.slice(0, skipped).map((row) => row.indices[row.between(view.start, view.end)[0]]);
  const shown = rows.slice(skipped, skipped + MOST_ROWS);
  return { rows: shown, outer, deeper: rows.length - skipped - shown.length };
}

/** What stands where: `{items, height}`, with `top` and `height` of each item in CSS pixels. */
export function layOut(run, view, { deep, paired, narrow }) {
  const heights = paired ? PAIRED : ALONE;
  const many = run.devices.length > 1;
  const known = run.knows(view.start, view.end);
  const items = [];
  let top = TOP;
  const add = (item, height, room) => {
    items.push({ ...item, top, height });
    top += height + room;
  };
  const caption = (text) => narrow && add({ caption: text }, LANE.caption, 0);

  for (const device of run.devices) {
    const name = many ? `GPU ${device.device}` : "GPU";
    caption(name);
    add({ device, name, details: [] }, heights.states, LANE.gap);
  }
  const shown = run.lanes.filter((lane) => !lane.hidden);
  for (const lane of [...shown.filter(({ pinned }) => pinned), ...shown.filter(({ pinned }) => !pinned)]) {
    const stream = lane.device >= 0;
    const { rows, outer, deeper } = known ? shownOf(lane, view, deep) : { rows: [lane.coarse], outer: [], deeper: 0 };
    const details = [stream ? (many ? `GPU ${lane.device}` : "") : lane.name, deeper && rows.length ? `+${deeper} deeper (E)` : ""].filter(Boolean);
    let heading = { name: stream ? lane.name : "CPU", details };
    caption([heading.name, ...details].join(" · "));
    const lines = rows.length + (outer.length || !rows.length ? 1 : 0);
    const place = (item, height) => {
      add({ ...item, lane, ...heading, lines }, height, 1);
      heading = {};
    };
    if (outer.length || !rows.length) place({ fold: outer }, heights.fold);
    for (const row of rows) place({ row }, heights.row);
    top += stream ? LANE.streamGap : LANE.gap;
  }
  return { items, height: top + LANE.end };
}
