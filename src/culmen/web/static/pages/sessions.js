// Sessions: what agents did, message by message, beside what each left in the shared tree.

import { patchBlock } from "../code.js";
import { h } from "../dom.js";
import { clock, count, decimals, dollars, number, plural, words } from "../format.js";
import { rendered } from "../message.js";
import { cell, choice, copyButton, empty, facts, idLink, pill, section, table, th } from "../parts.js";

export const title = "Sessions";
export const load = (ctx) => ctx.get("sessions", { brief: 1, text: ctx.params.text });

const PAGE = 100; // messages that stand below one another
const states = new Map(); // run -> what a person looks at
const texts = new Map(); // run, agent and seq -> the whole step

/** Which agents are unfolded, which of their messages, and at which one a person is. */
function looking(doc, ctx) {
  const state = states.get(ctx.run) || states.set(ctx.run, { agents: new Set(doc.agents.length === 1 ? [doc.agents[0].agent] : []), at: new Map(), open: new Set(), link: "" }).get(ctx.run);
  const link = ctx.params.at ? key(Number(ctx.params.agent || 0), ctx.params.at) : "";
  if (link && link !== state.link) follow(doc, ctx, state, link);
  return state;
}

const key = (agent, seq) => `${agent}-${seq}`;

/** A link to a message: unfold it and bring it into view. */
function follow(doc, ctx, state, link) {
  state.link = link;
  const each = doc.agents.find(({ agent }) => agent === Number(ctx.params.agent || 0));
  const place = each ? each.steps.findIndex((step) => String(step.seq) === ctx.params.at) : -1;
  if (place < 0) return;
  state.agents.add(each.agent);
  requestAnimationFrame(() => reveal(each, place, state, ctx));
}

export function view(doc, ctx) {
  if (doc.all_rollouts) return h("div", { class: "stack" }, rollouts(doc, ctx), doc.agents.length ? [sums(doc, ctx), doc.agents.map((each) => agent(each, doc, ctx))] : null);
  if (!doc.agents.length) return empty("No agent had a session in this run: its strategy asks models or works offline. Strategies that hand the work to agents show what each did here.");
  const state = looking(doc, ctx);
  return h("div", { class: "stack" }, sums(doc, ctx), doc.agents.map((each) => agent(each, doc, state, ctx)), doc.notes.length ? noted(doc) : null);
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
const experiments = (each) => Math.max(each.experiments, each.tried.length);

/** All agents together, and which of their messages are shown. */
function sums(doc, ctx) {
  const kinds = [...new Set(doc.agents.flatMap((each) => each.steps.map((step) => step.step)))];
  const aside = h("div", { class: "toolbar" },
    h("label", { class: "field" }, "Search", h("input", { type: "search", name: "steps", value: ctx.params.text || "", onchange: (event) => ctx.go({ text: event.target.value }, true) })),
    choice("Kinds of steps", ["", ...kinds].map((kind) => [kind, words(kind) || "all"]), ctx.params.kind || "", (kind) => ctx.go({ kind }, true)));
  return section("In all", { wide: true, aside }, facts([
    ["agents", count(doc.agents.length)], ["steps", count(sum(doc, "count"))], ["experiments", count(doc.agents.reduce((all, each) => all + experiments(each), 0))],
    ["tokens", count(sum(doc, "tokens"))], ["dollars", dollars(sum(doc, "dollars"))]]));
}

/** Whether a step is of the kind and has the text that a person asked for. */
function wanted(step, { kind, text: sought }) {
  if (kind && step.step !== kind) return false;
  if (!sought || step.found !== undefined) return !sought || step.found;
  const said = [step.about, step.text, step.fault, step.ended, ...step.reports, ...step.experiments.flatMap((made) => [made.path, made.note])].join("\n");
  return said.toLowerCase().includes(sought.toLowerCase());
}

const ENDS = {
  experiments: "its experiments are used up", calls: "its calls are used up", tokens: "its tokens are used up", dollars: "its dollars are used up",
  seconds: "its time was up", idle: "it did nothing for too long", malformed: "its replies were of no use",
};

/** The turn that each step belongs to: one begins whenever the agent speaks. */
function turnsOf(each) {
  let turn = 0;
  return each.steps.map((step, place) => {
    if (step.speaker === "agent" && (!place || each.steps[place - 1].speaker !== "agent")) turn += 1;
    return turn;
  });
}

function agent(each, doc, state, ctx) {
  const shown = state.agents.has(each.agent) || Boolean(ctx.params.text);
  const toggle = () => { shown ? state.agents.delete(each.agent) : state.agents.add(each.agent); ctx.redraw(); };
  const name = `agent ${each.agent}`;
  const aside = h("div", { class: "toolbar" }, each.ended ? pill(ENDS[each.ended] || each.ended) : pill("at work"),
    h("button", { type: "button", class: "button", "aria-expanded": String(shown), "aria-label": `${shown ? "Fold" : "Read"} ${name}`, onclick: toggle }, shown ? "Fold" : "Read"));
  const tools = each.steps.filter((step) => step.speaker === "tool").length;
  const scores = each.tried.map((one) => one.certified ?? one.score).filter((score) => score !== null);
  const best = scores.length ? (doc.direction === "min" ? Math.min(...scores) : Math.max(...scores)) : null;
  const turns = turnsOf(each);
  return section(`Agent ${each.agent}${each.kind ? `: ${each.kind}` : ""}`, { wide: true, key: `agent-${each.agent}`, aside },
    facts([
      ["steps", count(each.count)], turns.at(-1) ? ["turns", count(turns.at(-1))] : null, tools ? ["tool calls", count(tools)] : null, ["experiments", count(experiments(each))],
      best === null ? null : ["best of these", number(best)], ["tokens", count(each.tokens)], ["dollars", dollars(each.dollars)],
      each.isolation ? ["isolation", each.isolation] : null, each.version ? ["version", each.version] : null,
    ]),
    shown ? [talk(each, turns, state, ctx), tried(each, doc, ctx), h("h3", {}, "What it left"), left(each)] : null);
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

// The conversation: an outline, and its messages, each folded to a line.

const whole = (step) => step.text !== undefined || (!step.chars && !step.reports);

/** Have the texts of a message, and of the next ones, at hand. */
async function fetchText(each, place, ctx) {
  const step = each.steps[place];
  if (whole(step) || texts.has(`${ctx.run} ${key(each.agent, step.seq)}`)) return;
  const got = await ctx.get("sessions", { agent: each.agent, from: place }).catch((error) => ({ steps: [{ ...step, text: error.message, reports: [] }] }));
  for (const one of got.steps) texts.set(`${ctx.run} ${key(each.agent, one.seq)}`, one);
}

/** Unfold a message, go to it, and put the focus on it. */
async function reveal(each, place, state, ctx) {
  const name = key(each.agent, each.steps[place].seq);
  state.at.set(each.agent, place);
  state.open.add(name);
  await fetchText(each, place, ctx);
  ctx.redraw();
  const head = document.getElementById(`message-${name}`);
  if (!head) return;
  head.focus({ preventScroll: true });
  head.scrollIntoView({ block: "nearest" });
}

function talk(each, turns, state, ctx) {
  const places = [...each.steps.keys()].filter((place) => wanted(each.steps[place], ctx.params));
  const hidden = each.steps.length - places.length;
  const note = [hidden ? `${plural(hidden, "step")} left out by the search above` : "", each.count > each.steps.length ? `${count(each.count - each.steps.length)} later steps are not shown` : ""].filter(Boolean).map((text) => h("p", { class: "note" }, text));
  if (!places.length) return note;
  const at = state.at.get(each.agent);
  const page = Math.floor(Math.max(0, at === undefined ? 0 : places.findLastIndex((place) => place <= at)) / PAGE);
  const shown = places.slice(page * PAGE, (page + 1) * PAGE);
  const move = (way) => {
    const now = state.at.get(each.agent);
    const next = way > 0 ? places.find((place) => now === undefined || place > now) : places.findLast((place) => now !== undefined && place < now);
    if (next !== undefined) reveal(each, next, state, ctx);
  };
  const show = (place) => { state.at.set(each.agent, place); ctx.redraw(); };
  const names = shown.map((place) => key(each.agent, each.steps[place].seq));
  const some = names.some((name) => state.open.has(name));
  const unfold = async () => {
    if (some) names.forEach((name) => state.open.delete(name));
    else {
      for (const place of shown) await fetchText(each, place, ctx);
      names.forEach((name) => state.open.add(name));
    }
    ctx.redraw();
  };
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const way = { j: 1, n: 1, k: -1, p: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    event.stopPropagation();
    move(way);
  };
  const button = (text, act, able, hint) => h("button", { type: "button", class: "button", disabled: !able, title: hint || null, onclick: act }, text);
  const bar = h("div", { class: "toolbar talk-bar" },
    button("Previous", () => move(-1), at !== undefined && places[0] < at, "k"), button("Next", () => move(1), at === undefined || places.at(-1) > at, "j"),
    button(some ? "Fold these" : "Unfold these", unfold, true),
    places.length > PAGE ? h("label", { class: "field" }, "Steps", h("select", { value: String(page), onchange: (event) => show(places[Number(event.target.value) * PAGE]) }, Array.from({ length: Math.ceil(places.length / PAGE) }, (_, n) => h("option", { value: String(n) }, `${count(n * PAGE + 1)} to ${count(Math.min(places.length, (n + 1) * PAGE))}`)))) : null,
    h("span", { class: "note" }, at === undefined ? plural(places.length, "step") : `${count(places.indexOf(at) + 1)} of ${count(places.length)}`));
  return h("div", { class: "talk", onkeydown: keys },
    bar, h("div", { class: "session" }, outline(each, shown, turns, state, ctx), h("ol", { class: "messages", "aria-label": `What agent ${each.agent} did` }, shown.map((place) => message(each, place, at, state, ctx)))), note,
    each.transcript ? fold("Transcript of its program", each.transcript) : null);
}

/** The turns among the messages shown: what was called in each, what failed, what it cost. */
function outline(each, shown, turns, state, ctx) {
  const found = new Map();
  for (const place of shown) (found.get(turns[place]) || found.set(turns[place], []).get(turns[place])).push(place);
  const rows = [...found].map(([turn, places]) => {
    const some = places.map((place) => each.steps[place]);
    const tools = some.filter((step) => step.speaker === "tool").map((step) => step.about || step.head || step.step);
    const made = some.reduce((all, step) => all + (step.experiments || []).length, 0);
    const paid = some.reduce((all, step) => all + (step.dollars || 0), 0);
    const told = [tools.length > 3 ? plural(tools.length, "tool call") : tools.map((name) => name.split(" ")[0]).join(", "), made ? plural(made, "experiment") : "", paid ? dollars(paid) : ""].filter(Boolean).join(" · ");
    const faults = some.filter((step) => step.fault).length;
    const now = places.includes(state.at.get(each.agent));
    return h("li", { "data-key": `turn-${turn}` }, h("button", { type: "button", "aria-current": now ? "true" : null, onclick: () => reveal(each, places[0], state, ctx) },
      h("span", {}, turn ? `Turn ${turn}` : "Beginning", faults ? h("span", { class: "fault" }, ` ${plural(faults, "error")}`) : null), told ? h("span", { class: "note" }, told) : null));
  });
  return h("nav", { class: "outline", "aria-label": `Outline of agent ${each.agent}` }, h("ol", {}, rows));
}

const WHO = { agent: "agent", tool: "tool", culmen: "culmen", program: "program" };

function message(each, place, at, state, ctx) {
  const step = each.steps[place];
  const name = key(each.agent, step.seq);
  const open = state.open.has(name);
  const toggle = async () => {
    state.at.set(each.agent, place);
    if (open) state.open.delete(name);
    else { await fetchText(each, place, ctx); state.open.add(name); }
    ctx.redraw();
  };
  const what = step.speaker === "agent" ? (step.step === "thought" ? "thinks" : "") : words(step.step === "tool" ? "" : step.step);
  const made = step.experiments || [];
  const line = step.head || (made.length ? made.map((one) => one.path).join(", ") : step.ended ? `ended: ${words(step.ended)}` : "");
  return h("li", { class: `message ${step.speaker}${step.fault ? " faulty" : ""}`, "data-key": name, "aria-current": place === at ? "true" : null },
    h("button", { type: "button", class: "message-head", id: `message-${name}`, "aria-expanded": String(open), onclick: toggle },
      h("time", {}, clock(step.elapsed)), h("strong", {}, WHO[step.speaker] || step.speaker), h("span", { class: "what" }, [what, step.about].filter(Boolean).join(" ")),
      step.fault ? pill("error") : null, open ? null : h("span", { class: "head" }, step.fault ? `${words(step.fault)} ${line}` : line)),
    open ? body(each, step, name, ctx) : null);
}

function body(each, brief, name, ctx) {
  const step = { reports: [], experiments: [], text: "", ...brief, ...texts.get(`${ctx.run} ${name}`) };
  const said = [...step.reports, step.text].filter(Boolean).join("\n\n");
  return h("div", { class: "message-body" },
    h("div", { class: "message-tools" }, said ? copyButton(said, `the text of ${name}`) : null, h("a", { class: "note", href: ctx.href("sessions", { agent: each.agent, at: step.seq }) }, "link")),
    step.fault ? h("p", {}, pill("error"), ` ${words(step.fault)}`) : null,
    step.reports.map((report) => rendered(report, true)),
    step.experiments.map((made) => h("p", { class: "note" }, `experiment ${made.ticket}: ${made.path}${made.note ? `, ${made.note}` : ""}${made.fault ? ` (${words(made.fault)})` : ""}`, became(made, each, ctx))),
    step.ended ? h("p", {}, `ended: ${words(step.ended)}`) : null,
    (step.changed || []).length ? h("p", { class: "note" }, `changed: ${step.changed.join(", ")}`) : null,
    step.text ? rendered(step.text, step.speaker === "agent") : said || step.experiments.length || step.ended || step.fault || (step.changed || []).length ? null : h("p", { class: "note" }, "There is nothing to read here."));
}

// What it left in the shared tree.

function left(each) {
  const { commit } = each;
  const paths = (label, listed) => (listed && listed.length ? [h("dt", {}, label), listed.map((path) => h("dd", {}, h("code", {}, path)))] : null);
  if (!commit && !each.reflections && !each.notes) return empty("Nothing yet: its work is merged when its session ends.");
  return [
    commit ? h("dl", { class: "tree-change" }, h("dt", {}, "commit"), h("dd", {}, h("code", {}, (commit.commit || "none").slice(0, 12))), paths("changed", commit.changed), paths("not allowed in", commit.dropped), paths("in conflict", commit.conflicts)) : null,
    each.diff ? h("div", { class: "boxed" }, patchBlock(each.diff, `What agent ${each.agent} changed in the tree`)) : null,
    each.reflections ? fold("Reflections", each.reflections) : null,
    each.notes ? fold("Notes", each.notes) : null,
  ];
}

const fold = (name, content) => h("details", {}, h("summary", {}, name, h("span", { class: "note" }, plural(content.length, "character"))), rendered(content, true));

function noted(doc) {
  return section("Notes of the strategy", { wide: true }, h("ol", { class: "steps" }, doc.notes.map((note) => h("li", {}, h("time", {}, clock(note.elapsed)), h("span", {}, words(note.kind)), h("div", { class: "note" }, Object.entries(note.fields).map(([name, value]) => `${words(name)} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", "))))));
}
