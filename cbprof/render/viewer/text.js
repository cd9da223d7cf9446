// Numbers in words.

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** The unit in which a time of this size reads well. */
function unitOf(ns) {
  return UNITS.find(([, size]) => Math.abs(ns) >= size) ?? UNITS[UNITS.length - 1];
}

/** A time on an axis whose ticks are `step` apart and that reaches to `end`: `225.115 s`. */
export function timeText(ns, step, end) {
  const [unit, size] = unitOf(end);
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(ns / size).toFixed(digits)} ${unit}`;
}

/** A duration with four significant digits: `13.25 ms`. */
export function durationText(ns) {
  const [unit, size] = unitOf(ns);
  const value = ns / size;
  const digits = size === 1 ? (Number.isInteger(value) ? 0 : 1) : Math.max(0, 3 - Math.floor(Math.log10(value)));
  return `${value.toFixed(digits)} ${unit}`;
}

/** A share of a whole, by the rule of cbprof/numbers.py: what is almost nothing or almost all does not pass for it. */
export function shareText(share) {
  if (share === null) return "–";
  const percent = 100 * share;
  if (percent > 0 && percent < 0.005) return "<0.01 %";
  if (percent >= 99.995 && percent < 100) return ">99.99 %";
  return `${percent.toFixed(2)} %`;
}

export function countText(count) {
  return count.toLocaleString("en-US");
}

const MOMENT_DIGITS = { s: 6, ms: 3, µs: 3, ns: 0 };

/** A moment of the run, to the microsecond or better: `225.115432 s`. */
export function momentText(ns) {
  return ns === 0 ? "0 s" : rangeText([ns]);
}

/** Moments in the unit of the last one: `225.115432 to 225.358110 s`. */
export function rangeText(moments) {
  const [unit, size] = unitOf(moments[moments.length - 1] || 1e9);
  return `${moments.map((ns) => (ns / size).toFixed(MOMENT_DIGITS[unit])).join(" to ")} ${unit}`;
}
