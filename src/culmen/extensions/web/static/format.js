// Numbers and times as people read them, the same as the command line prints them.

export const MISSING = "–";

/** How many decimals show every value of a column to six significant digits of the largest, and no more. */
export function decimals(values) {
  const finite = values.filter((v) => Number.isFinite(v));
  const top = Math.max(0, ...finite.map(Math.abs));
  if (top === 0 || top >= 1e6) return 0;
  const most = Math.min(10, Math.max(0, 5 - Math.floor(Math.log10(top))));
  for (let d = 0; d < most; d += 1) {
    if (finite.every((v) => Number(v.toFixed(d)) === Number(v.toFixed(most)))) return d;
  }
  return most;
}

/** A score: `places` decimals, or as many as it needs. */
export function number(value, places) {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return minus(Number(value.toPrecision(6)).toString());
  return minus(value.toFixed(places === undefined ? decimals([value]) : places));
}

/** A sentence with numbers that the command line prints: with signs instead of hyphens, and units on the line of their numbers. */
export const typeset = (text) => text.replace(/(^|[\s(])-(?=\d)/g, "$1−").replace(/± (?=\d)|(?<=\d) (?=%)/g, (gap) => gap.replace(" ", "\u00a0"));

const minus = (text) => text.replace(/^-/, "−");

/** A difference with its sign: `places` decimals, or three significant digits. */
export function signed(value, places) {
  if (value === null || value === undefined) return MISSING;
  return (value > 0 ? "+" : "") + minus(places === undefined ? String(Number(value.toPrecision(3))) : value.toFixed(places));
}

/** `± 0.0012`, two significant digits. */
export const plusMinus = (error) => (error ? `± ${Number(error.toPrecision(2))}` : "");

/** Decimals that a margin tells: two significant digits of it. */
export const digits = (margin) => Math.min(10, Math.max(0, 1 - Math.floor(Math.log10(margin))));

/** A score and its margin, `["0.523", "± 0.035"]`: digits follow the margin. */
export const measured = (value, margin, places) => [number(value, margin ? digits(margin) : places), plusMinus(margin)];

/** `1,204`. */
export const count = (value) => (value === null || value === undefined ? MISSING : Math.round(value).toLocaleString("en"));

/** `1 evaluation`, `12 evaluations`. */
export const plural = (value, noun) => `${count(value)} ${value === 1 ? noun : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;

/** `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return MISSING;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** `0:07`, `12:40`, `1:02:03`. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const rest = `${String(s).padStart(2, "0")}`;
  return h ? `${h}:${String(m).padStart(2, "0")}:${rest}` : `${m}:${rest}`;
}

/** `$0`, `$0.0123`, `$4.20`. */
export function dollars(value) {
  if (value === null || value === undefined) return MISSING;
  if (value === 0) return "$0";
  return `$${value.toFixed(Math.abs(value) >= 0.1 ? 2 : 4)}`;
}

/** `42 %`. */
export const percent = (share) => (share === null || share === undefined ? MISSING : `${Math.round(100 * share)} %`);

/** A moment of the calendar, in the reader's own time zone. */
export function moment(seconds) {
  if (!seconds) return MISSING;
  const date = new Date(1000 * seconds);
  return date.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** `self_reported` -> `self reported`. */
export const words = (text) => String(text).replaceAll("_", " ");
