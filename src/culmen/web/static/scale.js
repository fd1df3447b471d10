// Axes: where values lie, and which round numbers stand beside them.

import { clock, count, decimals, dollars, number } from "./format.js";

/** A linear scale from `domain` to `range`. */
export function linear([low, high], [from, to]) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.invert = (place) => low + ((place - from) / (to - from || 1)) * span;
  scale.domain = [low, high];
  return scale;
}

const TIMES = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

/** About `wanted` round numbers inside the domain. */
export function ticks([low, high], wanted, unit) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const round = unit === "seconds" && raw > 5 ? TIMES : [1, 2, 2.5, 5, 10].map((m) => m * power);
  const step = round.find((m) => m >= raw) || Math.ceil(raw / 86400) * 86400;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

/** The extent of values, with a little air; values that are all alike get some room, too. */
export function extent(values, air = 0.06) {
  const finite = values.filter((v) => Number.isFinite(v));
  if (!finite.length) return [0, 1];
  let low = Infinity;
  let high = -Infinity;
  for (const v of finite) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  const room = high > low ? (high - low) * air : Math.abs(high) * 0.1 || 0.5;
  return [low - room, high + room];
}

/** How labels of an axis are written. */
export function formatter(unit, marks) {
  if (unit === "seconds") return clock;
  if (unit === "dollars") return dollars;
  if (unit === "count") return (value) => (Number.isInteger(value) ? (value >= 1e6 ? `${number(value / 1e6)} M` : count(value)) : number(value, 1));
  if (unit === "percent") return (value) => `${Math.round(100 * value)} %`;
  const places = decimals(marks);
  return (value) => number(value, places);
}
