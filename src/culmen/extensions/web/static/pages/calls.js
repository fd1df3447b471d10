// Budgets and calls: what was spent of what, what models were asked, what it cost, what went wrong.

import { chart } from "../chart.js";
import { h } from "../dom.js";
import { clock, count, dollars, duration, number, percent, plural, words } from "../format.js";
import { cell, empty, facts, idLink, meter, section, table, th } from "../parts.js";

export const title = "Budgets and calls";
export const load = (ctx) => ctx.get("calls");

export function view(doc, ctx) {
  if (!doc.total.calls && !doc.total.cached) {
    return h("div", { class: "stack" }, budgets(doc.spending), empty("No model was asked: this run works offline, or has not begun."), h("div", { class: "grid" }, other(doc), slow(doc)));
  }
  return h("div", { class: "stack" }, budgets(doc.spending), sums(doc), byRole(doc), dearest(doc, ctx), h("div", { class: "grid" }, spending(doc), failures(doc), slow(doc), other(doc)));
}

const BUDGET = { dollars: dollars, seconds: duration };

/** How fast it goes, and which budget ends first at that pace; of a run that goes on. */
function pace(doc, limited) {
  if (doc.state !== "running" || !(doc.elapsed > 0)) return null;
  const ends = limited.filter((each) => each.spent > 0).map((each) => {
    const kept = each.name === "evaluations" ? 1 - (doc.final || 0) : 1;
    const left = Math.max(0, each.limit * kept - each.spent);
    return { name: words(each.name), left: each.name === "seconds" ? left : (left * doc.elapsed) / each.spent };
  }).sort((a, b) => a.left - b.left);
  const rates = [`${number((60 * doc.evaluations) / doc.elapsed, 1)} evaluations a minute`, doc.dollars ? `${dollars((3600 * doc.dollars) / doc.elapsed)} an hour` : ""];
  return h("p", { class: "note", "data-role": "pace" }, `${rates.filter(Boolean).join(", ")}.`, ends.length ? ` At this pace ${ends[0].name} are spent in about ${duration(ends[0].left)}.` : "");
}

/** Every limit and how much of it is used; `doc` is the part `spending` of a page's document. */
export function budgets(doc) {
  const limited = doc.rows.filter((each) => each.limit !== null);
  const rows = limited.map((each) => {
    const say = BUDGET[each.name] || count;
    const text = `${say(each.spent)} of ${say(each.limit)}`;
    return [h("dt", {}, words(each.name)), h("dd", {}, meter(each.name, each.limit ? each.spent / each.limit : 1, text)), h("dd", {}, text)];
  });
  const note = doc.final && limited.some((each) => each.name === "evaluations") ? `${Math.round(100 * doc.final)} % of the evaluations are kept for the final choice.` : null;
  return section("Budgets", { note, wide: doc.state !== "running" }, pace(doc, limited), rows.length ? h("dl", { class: "budget" }, rows) : empty("No budget was set: the run ends when the strategy does, or when it is stopped."));
}

function sums(doc) {
  const { total } = doc;
  const asked = total.calls + total.cached;
  return section("In all", { wide: true }, facts([
    ["calls", count(total.calls)],
    ["dollars", dollars(total.dollars) + (total.unpriced ? `, and ${plural(total.unpriced, "call")} of unknown price` : "")],
    ["tokens in", count(total.input)],
    ["tokens out", count(total.output)],
    ["answered from the cache", total.cached ? `${count(total.cached)} (${percent(total.cached / asked)})` : "none"],
    ["retries", count(total.retries)],
    doc.lost.calls ? ["cut off by a crash", `up to ${plural(doc.lost.calls, "call")}, ${dollars(doc.lost.dollars)}`] : null,
  ]));
}

function byRole(doc) {
  const rows = doc.rows.filter((row) => row.calls || row.cached).map((row) => h("tr", {},
    h("td", {}, row.role || "–"), h("td", {}, row.model || "–"), h("td", {}, row.effect), cell(count(row.calls)), cell(count(row.input)), cell(count(row.output)),
    cell(dollars(row.dollars) + (row.unpriced ? " +?" : "")), cell(row.calls ? dollars(row.dollars / row.calls) : "–"), cell(count(row.cached)), cell(count(row.retries))));
  const head = [th("role"), th("model"), th("effect"), ...["calls", "tokens in", "tokens out", "dollars", "per call", "cached", "retries"].map((text) => th(text, { class: "num" }))];
  return section("By role and model", { wide: true, note: doc.total.unpriced ? "A price that nobody knows is marked +?." : null }, table("Calls by role and model", head, rows));
}

function dearest(doc, ctx) {
  if (!doc.dearest || !doc.dearest.length) return null;
  const rows = doc.dearest.map((each) => h("tr", {}, cell(clock(each.elapsed)), h("td", {}, each.role || "–"), h("td", {}, each.effect), cell(dollars(each.dollars)), cell(count(each.tokens)), h("td", {}, each.candidates.map((id) => [idLink(ctx, id), " "]))));
  return section("The dearest calls", { wide: true }, table("The dearest calls", [th("at", { class: "num" }), th("role"), th("effect"), th("dollars", { class: "num" }), th("tokens", { class: "num" }), th("what it made")], rows));
}

function spending(doc) {
  const paid = doc.series.some((point) => point.dollars > 0);
  const unit = paid ? "dollars" : "tokens";
  const points = doc.series.map((point) => [point.evaluations, point[unit]]);
  if (points.length < 2) return section("Spending", {}, empty("Too few calls to draw a line."));
  const one = (name) => new Set(doc.shares.map((each) => each[name])).size === 1;
  const called = (each) => [one("role") ? "" : each.role || "no role", one("model") && !one("role") ? "" : each.model].filter(Boolean).join(" · ");
  const lines = doc.shares.map((each) => ({ name: called(each), kind: "step", points: each.points.map(([at, dollars, tokens]) => [at, paid ? dollars : tokens]) }));
  return section(paid ? "Dollars as the run went on" : "Tokens as the run went on", {}, chart({
    label: `${paid ? "Dollars" : "Tokens"} spent against evaluations`,
    height: 240,
    x: { label: "evaluations", unit: "count" },
    y: { unit: paid ? "dollars" : "count", domain: [0, points.at(-1)[1] * 1.08] },
    series: [{ name: lines.length ? `all ${unit}` : unit, kind: "step", points }, ...lines],
  }));
}

function failures(doc) {
  const kinds = [...new Set([...Object.keys(doc.tried), ...Object.keys(doc.faults)])];
  if (!kinds.length) return section("Failures by kind", {}, empty("None: every reply brought what was asked for."));
  const rows = kinds.map((kind) => h("tr", {}, h("td", {}, words(kind)), cell(count(doc.tried[kind] || doc.faults[kind] || 0)), cell(count(doc.faults[kind] || 0))));
  return section("Failures by kind", { note: "On the way: also what a retry made good. For good: the request brought less than asked, or nothing." },
    table("Failures by kind", [th("kind"), th("on the way", { class: "num" }), th("for good", { class: "num" })], rows));
}

function slow(doc) {
  if (!doc.seconds.length) return section("How long effects took", {}, empty("Nothing has finished yet."));
  const rows = doc.seconds.map((each) => h("tr", {}, h("td", {}, each.effect), cell(count(each.count)), cell(duration(each.median)), cell(duration(each.slow))));
  return section("How long effects took", { note: "From start to result, as journaled, waits for a rate limit included." },
    table("How long effects took", [th("effect"), th("n", { class: "num" }), th("median", { class: "num" }), th("slowest tenth above", { class: "num" })], rows));
}

function other(doc) {
  const rows = doc.rows.filter((row) => !row.calls && !row.cached);
  if (!rows.length) return section("Without a model", {}, empty("Every effect but evaluations asked a model."));
  return section("Without a model", { note: "Embeddings and edits made on this machine." },
    table("Effects without a model", [th("effect"), th("by"), th("n", { class: "num" })], rows.map((row) => h("tr", {}, h("td", {}, row.effect), h("td", {}, row.model || "–"), cell(count(row.effects))))));
}
