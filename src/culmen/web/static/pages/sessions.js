// Sessions: what agents did, step by step, beside what each left in the shared tree.

import { patchBlock } from "../code.js";
import { h } from "../dom.js";
import { clock, count, decimals, dollars, number, plural, words } from "../format.js";
import { cell, empty, facts, idLink, pill, section, table, th } from "../parts.js";

export const title = "Sessions";
export const load = (ctx) => ctx.get("sessions");

export function view(doc, ctx) {
  if (!doc.agents.length) return empty("No agent had a session in this run: its strategy asks models or works offline. Strategies that hand the work to agents show what each did here.");
  return h("div", { class: "stack" }, doc.agents.map((each) => agent(each, doc, ctx)), doc.notes.length ? noted(doc) : null);
}

const ENDS = {
  experiments: "its experiments are used up", calls: "its calls are used up", tokens: "its tokens are used up", dollars: "its dollars are used up",
  seconds: "its time was up", idle: "it did nothing for too long", malformed: "its replies were of no use",
};

function agent(each, doc, ctx) {
  const ended = each.ended ? pill(ENDS[each.ended] || each.ended) : pill("at work");
  return section(`Agent ${each.agent}${each.kind ? `: ${each.kind}` : ""}`, { wide: true, key: `agent-${each.agent}`, aside: ended },
    facts([
      ["steps", count(each.count)], ["experiments", count(Math.max(each.experiments, each.tried.length))], ["tokens", count(each.tokens)], ["dollars", dollars(each.dollars)],
      each.isolation ? ["isolation", each.isolation] : null, each.version ? ["version", each.version] : null,
    ]),
    tried(each, doc, ctx),
    h("div", { class: "session" }, h("div", {}, h("h3", {}, "What it did"), steps(each), each.transcript ? text("Transcript of its program", each.transcript) : null), h("div", {}, h("h3", {}, "What it left"), left(each))));
}

/** Its experiments as they were scored; where the task has a verifier, what it certified. */
function tried(each, doc, ctx) {
  if (!each.tried.length) return null;
  const certified = each.tried.some((one) => one.certified !== null);
  const places = decimals(each.tried.flatMap((one) => [one.score, one.certified]).filter((value) => value !== null));
  const rows = each.tried.map((one) => h("tr", { "data-key": one.n },
    cell(count(one.n)), h("td", {}, one.path || "a seed"), h("td", {}, one.candidate ? idLink(ctx, one.candidate) : ""), cell(number(one.score, places)),
    certified ? cell(number(one.certified, places)) : null, h("td", {}, pill(one.status), one.reason && one.reason !== one.status ? h("span", { class: "note" }, ` ${words(one.reason)}`) : null)));
  const head = [th("nth", { class: "num" }), th("file"), th("candidate"), th("score", { class: "num" }), certified ? th("certified", { class: "num" }) : null, th("came to")];
  return [h("h3", {}, "What it tried"), table(`Experiments of agent ${each.agent}`, head, rows)];
}

function steps(each) {
  const rows = each.steps.map((step) => h("li", { "data-key": step.seq }, h("time", {}, clock(step.elapsed)), h("span", {}, words(step.step), step.about ? h("span", { class: "note" }, ` ${step.about}`) : null),
    h("div", {},
      step.fault ? h("p", {}, pill("error"), ` ${words(step.fault)}`) : null,
      step.reports.map((report) => h("p", {}, report)),
      step.experiments.map((made) => h("p", { class: "note" }, `experiment ${made.ticket}: ${made.path}${made.note ? `, ${made.note}` : ""}${made.fault ? ` (${words(made.fault)})` : ""}`)),
      step.ended ? h("p", {}, `ended: ${words(step.ended)}`) : null,
      step.text ? h("div", { class: "plain" }, step.text) : null)));
  const more = each.count > each.steps.length ? h("p", { class: "note" }, `and ${each.count - each.steps.length} more steps`) : null;
  return [h("ol", { class: "steps" }, rows), more];
}

function left(each) {
  const { commit } = each;
  const paths = (label, listed) => (listed && listed.length ? [h("dt", {}, label), listed.map((path) => h("dd", {}, h("code", {}, path)))] : null);
  if (!commit && !each.reflections && !each.notes) return empty("Nothing yet: its work is merged when its session ends.");
  return [
    commit ? h("dl", { class: "tree-change" }, h("dt", {}, "commit"), h("dd", {}, h("code", {}, (commit.commit || "none").slice(0, 12))), paths("changed", commit.changed), paths("not allowed in", commit.dropped), paths("in conflict", commit.conflicts)) : null,
    each.diff ? h("div", { class: "boxed" }, patchBlock(each.diff, `What agent ${each.agent} changed in the tree`)) : null,
    each.reflections ? text("Reflections", each.reflections) : null,
    each.notes ? text("Notes", each.notes) : null,
  ];
}

const text = (name, content) => h("details", {}, h("summary", {}, name, h("span", { class: "note" }, plural(content.length, "character"))), h("div", { class: "plain" }, content));

function noted(doc) {
  return section("Notes of the strategy", { wide: true }, h("ol", { class: "steps" }, doc.notes.map((note) => h("li", {}, h("time", {}, clock(note.elapsed)), h("span", {}, words(note.kind)), h("div", { class: "note" }, Object.entries(note.fields).map(([name, value]) => `${words(name)} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", "))))));
}
