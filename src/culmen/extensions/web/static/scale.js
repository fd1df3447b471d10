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

/** Values as logarithms, and back; with a `unit` the signed logarithm, which is linear below it and has a zero. */
export const powered = (unit) => (unit
  ? [(value) => Math.sign(value) * Math.log10(1 + Math.abs(value) / unit), (power) => Math.sign(power) * unit * (10 ** Math.abs(power) - 1)]
  : [Math.log10, (power) => 10 ** power]);

/** A logarithmic scale from `domain` to `range`; without a `unit` the domain is above zero. */
export function logarithmic([low, high], range, unit) {
  const [to, back] = powered(unit);
  const inner = linear([to(low), to(high)], range);
  const scale = (value) => inner(to(value));
  scale.invert = (place) => back(inner.invert(place));
  scale.domain = [low, high];
  return scale;
}

/** Marks of an axis of signed logarithms: powers of ten on each side of zero, from ten units on, and zero. */
export function signedPowers([low, high], wanted, unit) {
  const [to] = powered(unit);
  const step = Math.ceil((to(high) - to(low)) / wanted);
  const sizes = [];
  for (let power = Math.ceil(Math.log10(unit)) + 1; 10 ** power <= Math.max(-low, high); power += step) sizes.push(Number((10 ** power).toPrecision(1)));
  return [...sizes.map((size) => -size).reverse(), 0, ...sizes].filter((mark) => mark >= low && mark <= high);
}

/** Marks of a logarithmic axis: 1, 2 and 5 of each power of ten, or powers alone where these are too many; round numbers within one power. */
export function powers([low, high], wanted) {
  const steps = [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) found.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(3))));
  const inside = found.filter((mark) => mark >= low && mark <= high);
  if (inside.length < 3) return ticks([low, high], wanted).filter((mark) => mark > 0);
  if (inside.length <= wanted + 2) return inside;
  const plain = inside.filter((mark) => Number.isInteger(Math.round(Math.log10(mark) * 1e6) / 1e6));
  return plain.filter((_, i) => i % Math.ceil(plain.length / wanted) === 0);
}

const TIMES = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];

/** About `wanted` round numbers inside the domain. */
export function ticks([low, high], wanted, unit) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const round = unit === "seconds" && raw > 5 ? TIMES : [1, 2, 2.5, 5, 10].map((m) => m * power);
  const step = Math.max(unit === "count" ? 1 : 0, round.find((m) => m >= raw) || Math.ceil(raw / 86400) * 86400);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found.length < 2 && wanted < 32 ? ticks([low, high], 2 * wanted, unit) : found; // one mark alone tells no scale
}

/** The extent of values, with a little air; values that are all alike get some room, too, zeros above them. */
export function extent(values, air = 0.06) {
  const finite = values.filter((v) => Number.isFinite(v));
  if (!finite.length) return [0, 1];
  let low = Infinity;
  let high = -Infinity;
  for (const v of finite) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (low === 0 && high === 0) return [0, 1];
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
