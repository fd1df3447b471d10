// What mattered: the gain of what made candidates, each kind with its interval on one scale.

import { h } from "../dom.js";
import { typeset } from "../format.js";
import { section, table, th } from "../parts.js";

const CLIP = 3; // times the largest gain beyond which an interval is cut off, so that a wide one squeezes none

/** A table for each factor; null where no factor has two levels. */
export function factors(doc) {
  const found = doc.factors;
  if (!found.length) return null;
  const levels = found.flatMap((each) => each.levels);
  const most = Math.max(...levels.map((each) => Math.abs(each.gain)));
  const end = Math.min(CLIP * most, Math.max(...levels.map((each) => Math.abs(each.gain) + each.margin))) || 1;
  const paid = levels.some((each) => each.per_dollar !== null);
  return section("What mattered", { wide: true, key: "factors", note: doc.note }, found.map((each) => factor(each, end, paid)));
}

function factor(found, end, paid) {
  const title = found.title[0].toUpperCase() + found.title.slice(1);
  const head = [th(title), th("gain of a candidate", { colspan: 2 }), th("improved", { class: "num" }), th("n", { class: "num" }), paid ? th("gain per dollar") : null, paid ? th("spent", { class: "num" }) : null, th("of the way", { class: "num" })];
  const rows = found.levels.map((each) => {
    const [name, gain, improved, n, bought, spent, way] = each.row;
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "plot" }, mark(each, end)), h("td", { class: "gain" }, typeset(gain)),
      h("td", { class: "num" }, improved), h("td", { class: "num" }, n), paid ? h("td", {}, typeset(bought)) : null, paid ? h("td", { class: "num" }, spent) : null, h("td", { class: "num" }, way));
  });
  return h("div", { class: "factor", "data-key": found.name }, h("p", {}, h("strong", {}, `${title}: `), typeset(found.sentence)), table(`Gain by ${found.title}`, head, rows, { class: "factors" }));
}

/** The gain as a dot on its interval, from 0 at the left. */
function mark(level, end) {
  const gain = Math.abs(level.gain);
  const at = (value) => `${(100 * Math.min(1, Math.max(0, value / end))).toFixed(1)}%`;
  const [low, high] = [gain - level.margin, gain + level.margin].map((value) => Math.min(1, Math.max(0, value / end)));
  return h("span", { class: "gauge", "aria-hidden": "true" },
    h("span", { class: "gauge-span", style: { left: `${(100 * low).toFixed(1)}%`, width: `${(100 * (high - low)).toFixed(1)}%` } }),
    h("span", { class: "gauge-dot", style: { left: at(gain) } }));
}
