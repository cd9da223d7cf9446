// Columns of integers, unpacked from the page's text. `cbprof/render/web/viewer_columns.py` is the other half: differences
// (if `delta`), zigzag, byte planes, deflate, base64. Here the steps are undone from last to first.

export async function inflate(base64) {
  const letters = atob(base64);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * One column as a Float64Array, which holds integers exactly up to 2^53: 104 days in nanoseconds. `edges`: the instants
 * that a column of places among them stands for.
 */
export async function unpack({ length, width, delta, data, edges: places }, edges = null) {
  const bytes = await inflate(data);
  const values = new Float64Array(length);
  for (let plane = width - 1; plane >= 0; plane--) {
    const offset = plane * length;
    for (let i = 0; i < length; i++) values[i] = values[i] * 256 + bytes[offset + i];
  }
  let previous = 0;
  for (let i = 0; i < length; i++) {
    const zigzag = values[i];
    const value = zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    values[i] = delta ? (previous += value) : value;
  }
  if (places) for (let i = 0; i < length; i++) values[i] = edges[values[i]];
  return values;
}

/** `{name: packed column}` to `{name: values}`; the columns inflate side by side. */
export async function unpackAll(columns, edges = null) {
  const entries = Object.entries(columns).map(async ([name, column]) => [name, await unpack(column, edges)]);
  return Object.fromEntries(await Promise.all(entries));
}

/** The distinct instants at which a span, or the run of `length` ns, begins or ends, ascending. */
export function edgesOf({ start, dur }, length) {
  const count = start.length;
  const all = new Float64Array(2 * count + 2);
  for (let i = 0; i < count; i++) {
    all[2 * i] = start[i];
    all[2 * i + 1] = start[i] + dur[i];
  }
  all[2 * count + 1] = length;
  all.sort();
  let kept = 0;
  for (let i = 0; i < all.length; i++) if (i === 0 || all[i] !== all[kept - 1]) all[kept++] = all[i];
  return all.subarray(0, kept);
}
