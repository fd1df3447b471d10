// One candidate: its texts, what changed, how it was judged, where it came from.

import { chart } from "../chart.js";
import { changed, codeBlock, diffBlock, languageOf } from "../code.js";
import { h } from "../dom.js";
import { count, decimals, digits, dollars, number, plural, signed, words } from "../format.js";
import { readable, rendered } from "../message.js";
import { cell, empty, facts, idLink, isPicture, picture, pill, score, section, statusPill, table, th } from "../parts.js";

export const title = "Candidate";

export async function load(ctx) {
  const doc = await ctx.get("candidate", { id: ctx.params.id || "best" });
  const against = other(doc, ctx);
  if (against) doc.other = await ctx.get("candidate", { id: against });
  if (ctx.params.why && ctx.data.live) doc.why = await ctx.get("explain", { evaluation: ctx.params.why }).catch((error) => ({ error: error.message, next: error.next || "" }));
  return doc;
}

/** Whom to compare with: as asked, else the first parent; "whole" is nobody. */
function other(doc, ctx) {
  const asked = ctx.params.against || "parent";
  if (asked === "whole") return "";
  if (asked !== "parent") return asked;
  return doc.parents.length && ctx.data.holds(doc.parents[0]) ? doc.parents[0] : "";
}

export function view(doc, ctx) {
  return h("div", { class: "stack" }, about(doc, ctx), why(doc, ctx), texts(doc, ctx), h("div", { class: "grid" }, judged(doc, ctx), asked(doc), family(doc, ctx)));
}

/** Digits that its margin carries. */
const carried = (doc) => (doc.margin ? digits(doc.margin) : undefined);

function about(doc, ctx) {
  const places = carried(doc);
  const outcomes = Object.entries(doc.outcomes);
  const failed = outcomes.filter(([name]) => name !== "ok").map(([name, n]) => `${count(n)} ${name}`).join(", ");
  return section(doc.id, { wide: true, key: doc.id, aside: h("div", { class: "actions" }, doc.best ? pill("best") : null, doc.trust ? pill(doc.trust) : null, statusPill(doc)) },
    doc.hypothesis ? h("p", { class: "note" }, doc.hypothesis) : null,
    facts([
      ["mean score", doc.mean === null ? "none" : [score(doc.mean, doc.margin), ` over ${count(doc.count)}${doc.fresh ? ", in the final choice" : ""}`]],
      doc.fresh && doc.search_count ? ["in the search", `${number(doc.search_mean)} over ${count(doc.search_count)}`] : null,
      ["95 % interval", doc.low === null ? "not known: too few repeats" : `${number(doc.low, places)} to ${number(doc.high, places)}`],
      ["evaluations", plural(outcomes.reduce((sum, [, n]) => sum + n, 0), "evaluation") + (failed ? `, ${failed}` : "")],
      ["made by", doc.operator],
      ["model", doc.model || "none"],
      ["place in the reply", doc.among > 1 ? `${doc.rank + 1} of ${doc.among}` : "the only one"],
      doc.weight !== null ? ["stated probability", number(doc.weight)] : null,
      doc.island !== null ? ["island", doc.island] : null,
      ["cost of the request", doc.usage.calls ? `${dollars(doc.usage.dollars)}, ${count(doc.usage.tokens)} tokens` : "none"],
      ["parents", doc.parents.length ? doc.parents.map((id) => [idLink(ctx, id), " "]) : "none"],
      ["children", doc.children.length ? [doc.children.slice(0, 6).map((id) => [idLink(ctx, id), " "]), doc.children.length > 6 ? `and ${doc.children.length - 6} more` : null] : "none"],
      doc.note ? ["remark", doc.note] : null,
    ]));
}

/** Why it was evaluated: the decision in words and numbers, derived again from the journal when asked for. */
function why(doc, ctx) {
  if (!doc.observations.length) return null;
  const found = doc.why;
  const go = (name) => () => ctx.go({ why: name }, true);
  const button = (text, name, able = true) => h("button", { type: "button", class: "button", disabled: !able, onclick: go(name) }, text);
  const title = "Why it was evaluated";
  if (!ctx.data.live) return section(title, { wide: true, key: "why" }, h("p", { class: "note" }, `culmen show RUN ${doc.id.slice(0, 8)} --explain tells what was considered, with gains and costs.`));
  if (!found) return section(title, { wide: true, key: "why", aside: h("div", { class: "actions" }, button("Explain", doc.id)), note: "What was considered then, what each action would gain and cost, and why this one." });
  if (found.error) return section(title, { wide: true, key: "why", aside: h("div", { class: "actions" }, button("Close", "")) }, empty(found.error, found.next ? h("p", { class: "note" }, found.next) : null));
  const aside = h("div", { class: "actions" }, button("Previous evaluation", String(found.evaluation - 1), found.evaluation > 1), button("Next evaluation", String(found.evaluation + 1), found.evaluation < found.of), button("Close", ""));
  return section(title, { wide: true, key: "why", aside },
    found.candidate === doc.id ? null : h("p", { class: "note" }, "This evaluation was of another candidate: ", idLink(ctx, found.candidate)),
    h("div", { "data-role": "explanation" }, found.lines.slice(0, found.table_at).map((line) => h("p", {}, line)),
      found.rows.length ? [actions(found), h("p", { class: "note" }, found.note)] : null,
      found.finalists.length ? finalists(found, ctx) : null,
      found.lines.slice(found.table_at).map((line) => h("p", {}, line))));
}

/** The actions that a decision compared, the largest gain for its share of the budget first. */
function actions(found) {
  const head = [th("action"), th("expected score", { class: "num" }), th("gain", { class: "num" }), th("per 1 %", { class: "num" }), th("share", { class: "num" }), th("costs")];
  return table("Actions that were considered", head, found.rows.map((row) => h("tr", { class: row.chosen ? "chosen" : null },
    h("td", {}, row.action, row.chosen ? [" ", pill("chosen")] : null), cell(row.expected), cell(row.gain), cell(row.rate), cell(row.share), h("td", {}, row.cost))));
}

/** The finalists before an evaluation of the final choice. */
function finalists(found, ctx) {
  const head = [th("finalist"), th("believed score", { class: "num" }), th("looks", { class: "num" }), th("failed", { class: "num" })];
  return table("Finalists before it", head, found.finalists.map((each, place) => h("tr", { class: each.id === found.candidate ? "chosen" : null },
    h("td", {}, idLink(ctx, each.id), each.initial ? " initial program" : null), cell(found.believed[place].believed), cell(count(each.looks)), cell(count(each.failed)))));
}

function texts(doc, ctx) {
  const names = Object.keys(doc.parts);
  const part = names.includes(ctx.params.part) ? ctx.params.part : names[0];
  const shown = doc.other || null;
  const menu = h("select", { name: "against", onchange: (event) => ctx.go({ against: event.target.value }), value: shown ? (shown.id === doc.parents[0] ? "parent" : shown.id) : "whole" },
    h("option", { value: "whole" }, "the whole text"),
    doc.parents.length && ctx.data.holds(doc.parents[0]) ? h("option", { value: "parent" }, `change from the parent ${doc.parents[0].slice(0, 8)}`) : null,
    doc.ancestors.map((step, place) => (step.id === doc.parents[0] || !ctx.data.holds(step.id) ? null : h("option", { value: step.id }, `change from ${place ? "" : "the seed "}${step.id.slice(0, 8)} (${number(step.mean)})`))));
  const parts = names.length > 1
    ? h("label", { class: "field" }, "Part", h("select", { name: "part", onchange: (event) => ctx.go({ part: event.target.value }, true), value: part }, names.map((name) => h("option", { value: name }, name))))
    : null;
  const language = languageOf(part, doc.language);
  const text = doc.parts[part];
  const aside = h("div", { class: "toolbar" }, parts, h("label", { class: "field" }, "Show", menu), take(part, text));
  if (!shown) return section(part, { wide: true, aside, key: "text" }, codeBlock(text, language, `Text of ${part}`));
  const before = shown.parts[part] || "";
  const [added, removed] = changed(before, text);
  const places = carried(doc);
  const note = `${plural(added, "line")} added, ${removed} removed since ${shown.id.slice(0, 8)}. Mean score ${number(shown.mean, places)} before, ${number(doc.mean, places)} now.`;
  return section(part, { wide: true, aside, note, key: "text" },
    added + removed ? diffBlock(before, text, language, `Change of ${part}`) : empty("This part is the same in both."));
}

/** The text of a part to take along. */
function take(name, text) {
  const download = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name.split("/").pop() });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return h("div", { class: "actions" },
    navigator.clipboard ? h("button", { type: "button", class: "button", onclick: (event) => { navigator.clipboard.writeText(text); event.target.textContent = "Copied"; } }, "Copy") : null,
    h("button", { type: "button", class: "button", onclick: download }, "Download"));
}

const PHASE = { "": "search", choice: "choice", final: "final choice" };
const PHASES = 40; // evaluations listed one by one
const FEW = 12; // where a histogram tells of all

/** How it was judged, case by case and one by one. */
export function judged(doc, ctx) {
  if (!doc.observations.length) return section("Evaluations", { wide: true }, empty("It has not been evaluated: the strategy passed it over, or it still waits."));
  const several = doc.cases.length > 1 || doc.cases[0].case;
  const spread = histogram(doc);
  return section("Evaluations", { wide: true, note: several ? null : "The task has no data set: every evaluation is of the same question." },
    spread, several ? cases(doc, ctx) : [h("h3", {}, "One by one, the newest first"), single(doc, spread !== null)]);
}

const MANY = 20; // scores that are drawn as a histogram

/** How the scores are spread, where there are many. */
function histogram(doc) {
  const scores = doc.observations.filter((each) => each.status === "ok" && each.score !== null && each.score !== undefined).map((each) => each.score);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  if (scores.length < MANY || !(high > low)) return null;
  const bins = Math.min(24, Math.ceil(2 * Math.sqrt(scores.length)));
  const counts = Array(bins).fill(0);
  for (const score of scores) counts[Math.min(bins - 1, Math.floor(((score - low) / (high - low)) * bins))] += 1;
  const edges = [...counts, 0].map((n, place) => [low + ((high - low) * place) / bins, n]);
  return chart({
    label: `How ${plural(scores.length, "score")} of it are spread`, height: 180,
    x: { label: "score" }, y: { label: "evaluations", unit: "count", domain: [0, 1.08 * Math.max(...counts)] },
    series: [{ name: "", kind: "band", colour: "var(--s1)", points: edges.map(([x, n]) => [x, 0, n]) }, { name: "evaluations", kind: "step", colour: "var(--s1)", points: [[low, 0], ...edges] }],
  });
}

/** A row a case, the worst first: what was asked, what is right, what was answered, its score and those of others. */
function cases(doc, ctx) {
  const beside = Object.entries(doc.beside);
  const places = decimals(doc.cases.flatMap((each) => [each.mean, ...Object.values(each.others)]).filter((mean) => mean !== null && mean !== undefined));
  const told = ["input", "target", "answer"].filter((name) => doc.cases.some((each) => each[name]));
  const rows = doc.cases.map((each) => h("tr", {}, h("td", {}, each.case || "–"), told.map((name) => h("td", { class: "wrap" }, each[name])), cell(number(each.mean, places)),
    beside.map(([id]) => cell(number(each.others[id] ?? null, places))), cell(count(each.count)), cell(each.failed ? count(each.failed) : ""),
    h("td", { class: "wrap" }, said(doc.observations.findLast((seen) => seen.case === each.case)))));
  const others = beside.map(([id, word]) => th(idLink(ctx, id, word), { class: "num", title: `mean score of ${id} on the case` }));
  return table("Cases, the worst first", [th("case"), ...told.map((name) => th(name)), th("score", { class: "num" }), ...others, th("n", { class: "num" }), th("failed", { class: "num" }), th("feedback")], rows);
}

function single(doc, drawn) {
  const shown = doc.observations.slice(-(drawn ? FEW : PHASES)).reverse();
  const places = decimals(shown.map((each) => each.score).filter((score) => score !== null && score !== undefined));
  const metrics = [...new Set(shown.flatMap((each) => Object.keys(each.metrics || {})))].filter((name) => name !== "score").slice(0, 6);
  const fine = metrics.map((name) => decimals(shown.map((each) => (each.metrics || {})[name]).filter((value) => value !== undefined)));
  const named = shown.some((each) => each.case);
  const phased = doc.observations.some((each) => each.phase);
  const rows = shown.map((each, place) => h("tr", {},
    named ? h("td", {}, each.case) : null,
    cell(each.status === "ok" ? number(each.score, places) : "–"),
    h("td", {}, pill(each.status, each.reason ? words(each.reason) : null), each.reason ? ` ${words(each.reason)}` : null),
    h("td", {}, each.status === "ok" ? pill(each.trust) : ""),
    phased ? h("td", {}, PHASE[each.phase] || each.phase) : null,
    cell(`${(each.seconds || 0).toFixed(2)} s`),
    metrics.map((name, at) => cell(number((each.metrics || {})[name] ?? null, fine[at]))),
    h("td", { class: "wrap" }, said(each, place === 0))));
  const head = [named ? th("case") : null, th("score", { class: "num" }), th("status"), th("trust"), phased ? th("made in") : null, th("time", { class: "num" }), ...metrics.map((name) => th(name, { class: "num" })), th("feedback")];
  const more = doc.observations.length > shown.length ? h("p", { class: "note" }, `and ${doc.observations.length - shown.length} earlier ones`) : null;
  return [table("Evaluations one by one", head, rows), more];
}

/** What the evaluator said of an evaluation, logged and drew, and the signs in it; folded. */
function said(each, open = false) {
  const artifacts = Object.entries(each.artifacts || {});
  const signs = each.signs || [];
  const names = [each.feedback ? "feedback" : "", ...artifacts.map(([name]) => name), signs.length ? plural(signs.length, "sign") : ""].filter(Boolean);
  return names.length ? h("details", { open }, h("summary", {}, names.join(", ")), each.feedback ? rendered(each.feedback) : null,
    signs.map((sign) => h("p", {}, pill(sign.grave ? "grave" : "sign"), ` ${words(sign.name)}: ${sign.evidence || ""}`)),
    artifacts.map(([name, text]) => (isPicture(text) ? picture(name, text) : [h("h3", {}, name), rendered(text)]))) : null;
}

/** What the model was asked, and what it replied. */
export function asked(doc) {
  if (!doc.prompt && !doc.reply) {
    const why = doc.operator === "seed" ? "It is an initial program of the task." : doc.operator === "carried" ? "It was carried from another run or a pool." : "It did not come from a model's reply: an offline operator or a strategy made it.";
    return section("Prompt and reply", { wide: true }, empty(`${why} So there is no prompt.`));
  }
  return section("Prompt and reply", { wide: true, note: "JSON by its fields, code in its colours; as sent and received where it says so." },
    [["Prompt", doc.prompt], ["Reply", doc.reply]].map(([name, text]) => h("details", {}, h("summary", {}, name, h("span", { class: "note" }, plural(text.length, "character"))), readable(text))));
}

function family(doc, ctx) {
  if (!doc.ancestors.length) return section("Ancestors", { wide: true }, empty("It has none: the line begins here."));
  const chain = [...doc.ancestors, { id: doc.id, mean: doc.mean, operator: doc.operator, gain: null, note: doc.note }];
  const places = decimals(chain.map((step) => step.mean).filter((mean) => mean !== null));
  const rows = chain.map((step, place) => h("tr", {},
    cell(place), h("td", {}, idLink(ctx, step.id)), cell(number(step.mean, places)), cell(signed(place ? gain(chain, place) : null, places)), h("td", {}, step.operator), h("td", { class: "wrap" }, step.note)));
  return section("Ancestors", { wide: true, note: "From the first program to this candidate, following first parents." },
    table("Ancestors", [th("step", { class: "num" }), th("id"), th("mean", { class: "num" }), th("gain", { class: "num" }), th("operator"), th("remark")], rows));
}

/** Change of the mean reward from the step before; null where either has no score. */
function gain(chain, place) {
  const [before, now] = [chain[place - 1].mean, chain[place].mean];
  return before === null || now === null ? null : now - before;
}
