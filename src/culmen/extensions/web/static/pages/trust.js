// Trust: why the reported score can be believed, and how far.

import { h } from "../dom.js";
import { count, decimals, digits, measured, number, percent, plural, plusMinus, signed, words } from "../format.js";
import { cell, empty, facts, idLink, pill, section, table, th } from "../parts.js";

export const title = "Trust";
export const load = (ctx) => ctx.get("trust");

export function view(doc, ctx) {
  return h("div", { class: "grid" }, choice(doc, ctx), finalists(doc, ctx), noise(doc), isolation(doc), levels(doc), findings(doc, ctx), outcomes(doc));
}

function isolation(doc) {
  const { level, meaning } = doc.isolation;
  if (!level) return section("Isolation", {}, empty("Not known yet: it is found by trying to break out, when the run begins."));
  const tone = { namespaces: "certified", restricted: "verified", limits: "proxied", none: "self-reported" }[level];
  return section("Isolation", { aside: h("span", { class: `pill pill-${["certified", "verified"].includes(tone) ? "good" : "warn"}` }, level), note: meaning }, facts([
    ["form of the evaluator", doc.form],
    ["exact verifier", doc.verifier ? "yes, asked in the final choice" : "none"],
    ["wall time", `${doc.limits.seconds ?? 60} s`],
    ["memory", `${count(doc.limits.memory_mb ?? 2048)} MB`],
    ["processes", count(doc.limits.processes ?? 64)],
    ["honest scores", bounds(doc.bounds)],
  ]));
}

const bounds = ([low, high]) => (low === null && high === null ? "no bounds declared" : `${low === null ? "−∞" : number(low)} to ${high === null ? "∞" : number(high)}`);

function levels(doc) {
  const all = doc.levels.reduce((sum, each) => sum + each.count, 0);
  if (!all) return section("Levels of trust", { wide: true }, empty("Nothing has scored yet."));
  const rows = doc.levels.map((each) => h("tr", {}, h("td", {}, pill(each.level)), cell(count(each.count)), cell(percent(each.count / all)), h("td", { class: "wrap" }, each.meaning)));
  return section("Levels of trust", { wide: true, note: "Of all evaluations that gave a score." }, table("Evaluations by level of trust", [th("level"), th("n", { class: "num" }), th("share", { class: "num" }), th("meaning")], rows));
}

function noise(doc) {
  const { sd, repeated, deterministic, unstable } = doc.noise;
  const told = [doc.noise.told, doc.noise.traces && `Traces of evaluations: ${doc.noise.traces}.`].filter(Boolean).join(" ");
  const note = deterministic && unstable ? `${told} The task says that it is deterministic, yet ${plural(unstable, "candidate")} scored differently on the same case.` : told;
  return section("Noise", { note }, repeated || deterministic
    ? facts([["standard deviation", sd ? number(Number(sd.toPrecision(2))) : "none was seen"], ["scored more than once", plural(repeated, "candidate")], ["with differing scores", plural(unstable, "candidate")], ["declared", deterministic ? "deterministic" : "may be noisy"]])
    : null);
}

function choice(doc, ctx) {
  const { best, winner, gap, gap_note: note } = doc;
  if (!winner) return section("Search against fresh evaluations", { wide: true }, empty(["finished", "failed"].includes(doc.state) ? "Nothing ever scored, so nothing was chosen." : "The final choice comes when the search ends. It evaluates the winner afresh, so that luck in the search cannot pass for quality."));
  if (!winner.confirmed && winner.failures) return section("Search against fresh evaluations", { wide: true }, empty(`The winner failed its ${plural(winner.failures, "fresh evaluation")}, so its score is not confirmed.`));
  if (!winner.confirmed) return section("Search against fresh evaluations", { wide: true }, empty(`The winner was not confirmed (${doc.ended}): its score is the search's own mean, and may be too good to be true.`));
  return section("Search against fresh evaluations", { wide: true, note: [best.how, note].filter(Boolean).join(" ") }, facts([
    ["winner", idLink(ctx, best.id)],
    ["search believed", `${measured(winner.search_score, best.margin)[0]} over ${count(winner.search_count || 0)}`],
    ["fresh score", [doc.score, ` over ${count(winner.count)}${winner.failures ? `, ${winner.failures} failed` : ""}`], "with its 95 % interval"],
    ["gap, as reward", signed(gap, best.margin ? digits(best.margin) : undefined), "Below zero, the search was too hopeful"],
    ["measured", doc.looks],
    best.tolerance ? ["evaluator's tolerance", best.tolerance] : null,
    ["cases", doc.split ? `${doc.split} split` : "no data set"],
    ["exact verifier", winner.strict === null || winner.strict === undefined ? "not asked" : winner.strict ? "accepts it as given" : winner.certified !== null && winner.certified !== undefined ? "accepts a repaired version" : "does not accept it"],
    winner.certified !== null && winner.certified !== undefined ? ["certified value", String(winner.certified)] : null,
  ]));
}

function finalists(doc, ctx) {
  if (!doc.finalists.some((row) => row.count)) return section("Finalists", { wide: true }, empty("Nothing has scored yet."));
  const chosen = Boolean(doc.winner && (doc.winner.finalists || []).length);
  const places = decimals(doc.finalists.flatMap((row) => [row.mean, row.fresh]).filter((mean) => mean !== null && mean !== undefined));
  const rows = doc.finalists.map((row) => h("tr", { class: doc.winner && row.id === doc.winner.id ? "chosen" : null },
    h("td", {}, idLink(ctx, row.id), doc.winner && row.id === doc.winner.id ? [" ", pill("winner")] : null), cell(number(row.mean, places)), cell(row.margin ? plusMinus(row.margin) : "–"), cell(count(row.count)), cell(number(row.fresh, places)), h("td", {}, row.trust ? pill(row.trust) : "")));
  return section(chosen ? "Finalists" : "Leading now", { wide: true, note: chosen ? "Run again by the engine after the search; fresh is their mean in that phase." : "By the rule of the table of candidates. The final choice looks at up to eight." },
    table(chosen ? "Finalists" : "Leading candidates", [th("id"), th("mean", { class: "num" }), th("95 %", { class: "num" }), th("n", { class: "num" }), th("fresh", { class: "num" }), th("trust")], rows));
}

/** Signs by kind: grave ones open and on top, notes folded below. */
function findings(doc, ctx) {
  if (!doc.signs.length) return section("Signs against integrity", { wide: true }, empty("None was noticed in any evaluation."));
  const [grave, notes] = [doc.signs.filter((group) => group.grave), doc.signs.filter((group) => !group.grave)];
  const times = (groups) => groups.reduce((sum, group) => sum + group.count, 0);
  const said = grave.length
    ? `${plural(times(grave), "grave sign")} that a candidate plays the evaluator instead of the problem.`
    : "No grave sign. What follows is only worth knowing.";
  const { all, read, counted } = doc.signed;
  const latest = all > read ? (counted ? ` ${plural(all, "evaluation")} showed signs; the examples are of the latest.` : ` ${plural(all, "evaluation")} in all showed signs; these are of the latest ${count(read)}.`) : "";
  return section("Signs against integrity", { wide: true, note: `${said}${latest} Loops that culmen's own offline proposer inserted count for nothing.` },
    grave.map((group) => kind(group, ctx, true)),
    notes.length ? h("details", {}, h("summary", {}, "Notes", h("span", { class: "note" }, `${plural(notes.length, "kind")}, ${count(times(notes))} in all: no proof of anything`)), notes.map((group) => kind(group, ctx, false))) : null);
}

function kind(group, ctx, open) {
  const rows = group.examples.map((each) => h("tr", {}, h("td", {}, idLink(ctx, each.candidate)), h("td", {}, each.part ? `${each.part}${each.line ? `, line ${each.line}` : ""}` : ""), cell(number(each.score)), h("td", { class: "wrap" }, each.evidence)));
  return h("details", { open, "data-sign": group.sign },
    h("summary", {}, pill(group.grave ? "grave" : "sign"), ` ${words(group.sign)}: ${group.meaning} `, h("span", { class: "note" }, `${plural(group.count, "evaluation")}${group.count > rows.length ? `, ${rows.length} shown` : ""}`)),
    table(`Sign: ${words(group.sign)}`, [th("candidate"), th("where"), th("score", { class: "num" }), th("what was seen")], rows));
}

function outcomes(doc) {
  const all = Object.values(doc.statuses).reduce((sum, n) => sum + n, 0);
  if (!all) return section("Outcomes", { wide: true }, empty("Nothing was evaluated yet."));
  const rows = Object.entries(doc.statuses).map(([name, n]) => h("tr", {}, h("td", {}, pill(name)), cell(count(n)), cell(percent(n / all))));
  const reasons = Object.entries(doc.failures).slice(0, 12).map(([name, n]) => h("tr", {}, h("td", {}, words(name)), cell(count(n)), cell(percent(n / all))));
  const head = (text) => [th(text), th("n", { class: "num" }), th("share", { class: "num" })];
  return section("Outcomes of evaluations", { wide: true }, h("div", { class: "plots" }, h("div", {}, table("Outcomes", head("status"), rows)), reasons.length ? h("div", {}, table("Reasons of failures", head("reason"), reasons)) : null));
}
