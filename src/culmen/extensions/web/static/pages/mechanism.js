// Mechanism: the numbers a strategy notes about itself, as the run went on.

import { chart, colour } from "../chart.js";
import { h } from "../dom.js";
import { count, number, plural, words } from "../format.js";
import { cell, condition, empty, facts, section, table, th } from "../parts.js";

export const title = "Mechanism";
export const load = (ctx) => ctx.get("mechanism");

const LINES = 8; // of one plot; beyond, colours cannot be told apart

export function view(doc) {
  if (!doc.plots.length) return empty(doc.evaluations ? "This strategy notes no numbers about itself." : "The strategy has not noted anything yet.");
  const drawn = doc.plots.filter((each) => only(each) === null);
  const known = drawn.filter((each) => each.known);
  const rest = drawn.filter((each) => !each.known);
  const steady = doc.plots.filter((each) => only(each) !== null).map((each) => [each.title, number(only(each))]);
  const noted = Object.values(doc.notes).reduce((sum, n) => sum + n, 0);
  return h("div", { class: "stack" },
    h("p", { class: "note" }, `From ${plural(noted, "note")} of the strategy. Rewards: higher is better, whatever the task's direction.`),
    condition(doc.condition),
    doc.alarmed ? alarms(doc) : null,
    known.length ? h("div", { class: "plots" }, known.map(plot)) : null,
    rest.length ? section(known.length ? "Everything else that was noted" : "Everything that was noted", { wide: true }, h("details", { open: !known.length }, h("summary", {}, plural(rest.length, "plot")), h("div", { class: "plots" }, rest.map(plot)))) : null,
    steady.length ? section("Always the same", { wide: true }, facts(steady)) : null);
}

// What looked wrong while an advisor was trained.
function alarms(doc) {
  const note = `Something looked wrong at ${plural(doc.alarmed, "barrier")}` + (doc.alarmed > doc.alarms.length ? `; the last ${doc.alarms.length} are shown.` : ".");
  const rows = doc.alarms.map((each) => h("tr", {}, cell(each.barrier ?? ""), cell(count(each.evaluations)), h("td", {}, each.alarms.map(words).join(", "))));
  return section("Alarms of the training", { wide: true, note }, table("Alarms of the training", [th("barrier", { class: "num" }), th("evaluations", { class: "num" }), th("what looked wrong")], rows));
}

function plot(each) {
  const series = each.series.slice(0, LINES).map((group, place) => ({
    name: group.name || each.field,
    kind: each.dots ? "dots" : each.series.every(holds) ? "step" : "line",
    points: group.points,
    size: 4,
    faint: each.dots,
    colour: colour(place),
    ...(each.dots ? { tips: (i) => [group.name || each.title, `after ${group.points[i][0]} evaluations: ${Number(group.points[i][1].toPrecision(6))}`] } : {}),
  }));
  const spec = {
    label: `${each.title} against evaluations, ${plural(each.series.length, "line")}`,
    key: `${each.note}.${each.field}`,
    height: 220,
    x: { label: "evaluations", unit: "count" },
    y: { unit: "plain" },
    series,
  };
  const more = each.series.length > LINES ? `The first ${LINES} of ${each.series.length}.` : null;
  return section(each.title, { note: more, key: `${each.note}.${each.field}` }, chart(spec));
}

/** Counts, and what never falls, stay until they change. */
const holds = ({ points }) => points.every(([, value]) => Number.isInteger(value)) || points.every(([, value], i) => !i || value >= points[i - 1][1]);

/** The value of a plot that shows one alone; else null. */
function only({ series }) {
  const [first, ...rest] = series.flatMap(({ points }) => points.map(([, value]) => value));
  return rest.length && rest.every((value) => value === first) ? first : null;
}
