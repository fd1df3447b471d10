// Sessions: what agents did, step by step, beside what each left in the shared tree.

import { patchBlock } from "../code.js";
import { h } from "../dom.js";
import { clock, count, decimals, dollars, number, plural, words } from "../format.js";
import { cell, choice, empty, facts, idLink, pill, section, table, th } from "../parts.js";

export const title = "Sessions";
export const load = (ctx) => ctx.get("sessions");

export function view(doc, ctx) {
  if (doc.all_rollouts) return h("div", { class: "stack" }, rollouts(doc, ctx), doc.agents.length ? [sums(doc, ctx), doc.agents.map((each) => agent(each, doc, ctx))] : null);
  if (!doc.agents.length) return empty("No agent had a session in this run: its strategy asks models or works offline. Strategies that hand the work to agents show what each did here.");
  return h("div", { class: "stack" }, sums(doc, ctx), doc.agents.map((each) => agent(each, doc, ctx)), doc.notes.length ? noted(doc) : null);
}

/** The newest rollouts of a skill: what the agent did with it, and what the tests said. */
function rollouts(doc, ctx) {
  const aside = choice("Rollouts", [["", "all"], ["failed", "failed"]], ctx.params.rollouts || "", (kind) => ctx.go({ rollouts: kind }, true));
  const rows = doc.rollouts.map((one, place) => h("details", { class: "rollout", "data-key": `${one.candidate}-${one.case}-${place}` },
    h("summary", {}, h("span", {}, one.case), h("span", { class: "note" }, one.split), one.score === null ? pill(one.status) : h("strong", {}, number(one.score)),
      one.reason ? h("span", { class: "note" }, words(one.reason)) : null, h("span", { class: "note" }, `${plural(one.steps.length, "step")}, ${number(one.seconds, 1)} s${one.tokens ? `, ${plural(one.tokens, "token")}` : ""}`)),
    h("p", { class: "note" }, "candidate ", idLink(ctx, one.candidate)),
    h("ol", { class: "steps" }, one.steps.map((step, at) => h("li", {}, h("span", { class: "note" }, count(at + 1)), h("span", {}, step.source),
      h("div", {}, step.thought ? text("thought", step.thought) : null, step.text.length > LONG ? text(step.text.slice(0, 60).split("\n")[0], step.text) : step.text ? h("div", { class: "plain" }, step.text) : null,
        step.calls.map((call) => h("div", { class: "plain" }, h("code", {}, call))))))),
    one.feedback ? [h("h3", {}, "What the tests said"), h("div", { class: "plain" }, one.feedback)] : null));
  return section("Rollouts", { wide: true, aside }, h("p", { class: "note" }, "One rollout is one agent at work on one task with a candidate. The newest come first; the journal keeps all."),
    rows.length ? rows : empty(ctx.params.rollouts ? "No rollout failed." : "No rollout has ended yet."));
}

const sum = (doc, name) => doc.agents.reduce((all, each) => all + each[name], 0);

/** All agents together, and what of their steps is shown. */
function sums(doc, ctx) {
  const kinds = [...new Set(doc.agents.flatMap((each) => each.steps.map((step) => step.step)))];
  const aside = h("div", { class: "toolbar" },
    h("label", { class: "field" }, "Search", h("input", { type: "search", name: "steps", value: ctx.params.text || "", onchange: (event) => ctx.go({ text: event.target.value }, true) })),
    choice("Kinds of steps", ["", ...kinds].map((kind) => [kind, words(kind) || "all"]), ctx.params.kind || "", (kind) => ctx.go({ kind }, true)));
  return section("In all", { wide: true, aside }, facts([
    ["agents", count(doc.agents.length)], ["steps", count(sum(doc, "count"))], ["experiments", count(doc.agents.reduce((all, each) => all + Math.max(each.experiments, each.tried.length), 0))],
    ["tokens", count(sum(doc, "tokens"))], ["dollars", dollars(sum(doc, "dollars"))]]));
}

/** Whether a step is of the kind and has the text that a person asked for. */
function wanted(step, { kind, text: sought }) {
  const said = [step.about, step.text, step.fault, step.ended, ...step.reports, ...step.experiments.flatMap((made) => [made.path, made.note])].join("\n");
  return (!kind || step.step === kind) && (!sought || said.toLowerCase().includes(sought.toLowerCase()));
}

const LONG = 600; // characters of a step that is folded

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
    h("div", { class: "session" }, h("div", {}, h("h3", {}, "What it did"), steps(each, ctx), each.transcript ? text("Transcript of its program", each.transcript) : null), h("div", {}, h("h3", {}, "What it left"), left(each))));
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

/** The candidate that an experiment of a step became, where it was tried. */
const became = (made, each, ctx) => each.tried.filter((one) => one.path === made.path && one.candidate).slice(0, 1).map((one) => [" ", idLink(ctx, one.candidate)]);

function steps(each, ctx) {
  const shown = each.steps.filter((step) => wanted(step, ctx.params));
  const rows = shown.map((step) => h("li", { "data-key": step.seq }, h("time", {}, clock(step.elapsed)), h("span", {}, words(step.step), step.about ? h("span", { class: "note" }, ` ${step.about}`) : null),
    h("div", {},
      step.fault ? h("p", {}, pill("error"), ` ${words(step.fault)}`) : null,
      step.reports.map((report) => h("p", {}, report)),
      step.experiments.map((made) => h("p", { class: "note" }, `experiment ${made.ticket}: ${made.path}${made.note ? `, ${made.note}` : ""}${made.fault ? ` (${words(made.fault)})` : ""}`, became(made, each, ctx))),
      step.ended ? h("p", {}, `ended: ${words(step.ended)}`) : null,
      step.text && step.text.length > LONG ? text(step.text.slice(0, 60).split("\n")[0], step.text) : step.text ? h("div", { class: "plain" }, step.text) : null)));
  const more = each.count > each.steps.length ? h("p", { class: "note" }, `and ${each.count - each.steps.length} more steps`) : null;
  const left = each.steps.length - shown.length;
  return [h("ol", { class: "steps" }, rows), left ? h("p", { class: "note" }, `${plural(left, "step")} left out by the search above`) : null, more];
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
