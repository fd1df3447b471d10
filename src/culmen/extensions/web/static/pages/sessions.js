// Sessions: what agents did, message by message, and what each left in the shared tree; rollouts of a skill are read the same way.

import { patchBlock } from "../code.js";
import { h } from "../dom.js";
import { clock, count, decimals, dollars, number, plural, words } from "../format.js";
import { json, rendered } from "../message.js";
import { cell, choice, copyButton, empty, facts, idLink, pill, section, table, th } from "../parts.js";

export const title = "Sessions";
export const load = (ctx) => ctx.get("sessions", { brief: 1, text: ctx.params.text, rollouts: ctx.params.rollouts });

const PAGE = 100; // messages that stand below one another
const states = new Map(); // run -> what a person looks at
const texts = new Map(); // run, agent and seq -> the whole step

/** Which sessions are unfolded, which of their messages, and at which one a person is. */
function looking(doc, ctx) {
  const state = states.get(ctx.run) || states.set(ctx.run, { talks: new Set(), at: new Map(), open: new Set(), link: "" }).get(ctx.run);
  const link = ctx.params.at ? key(ctx.params.agent || "0", ctx.params.at) : "";
  if (link && link !== state.link) follow(doc, ctx, state, link);
  return state;
}

const key = (agent, seq) => `${agent}-${seq}`;

/** A link to a message: unfold it and bring it into view. */
function follow(doc, ctx, state, link) {
  state.link = link;
  const each = [...doc.agents, ...doc.rollouts].find(({ agent }) => String(agent) === (ctx.params.agent || "0"));
  const place = each ? each.steps.findIndex((step) => String(step.seq) === ctx.params.at) : -1;
  if (place < 0) return;
  state.talks.add(each.agent);
  requestAnimationFrame(() => reveal(each, place, state, ctx));
}

export function view(doc, ctx) {
  if (!doc.agents.length && !doc.all_rollouts) return empty("No agent had a session in this run: its strategy asks models or works offline. Strategies that hand the work to agents show what each did here.");
  const state = looking(doc, ctx);
  return h("div", { class: "stack" }, doc.all_rollouts ? rollouts(doc, state, ctx) : null,
    doc.agents.length ? [sums(doc, ctx), doc.agents.map((each) => agent(each, doc, state, ctx))] : null, doc.notes.length ? noted(doc) : null);
}

/** A button that unfolds a session. */
function reader(each, name, shown, state, ctx) {
  const toggle = () => { shown ? state.talks.delete(each.agent) : state.talks.add(each.agent); ctx.redraw(); };
  return h("button", { type: "button", class: "button", "aria-expanded": String(shown), "aria-label": `${shown ? "Fold" : "Read"} ${name}`, onclick: toggle }, shown ? "Fold" : "Read");
}

/** The newest rollouts of a skill: what the agent did with it, and what the tests said. */
function rollouts(doc, state, ctx) {
  const aside = choice("Rollouts", [["", "all"], ["failed", "failed"]], ctx.params.rollouts || "", (kind) => ctx.go({ rollouts: kind }, true));
  const rows = doc.rollouts.map((one) => {
    const shown = state.talks.has(one.agent);
    return h("div", { class: "rollout", "data-key": one.agent },
      h("div", { class: "rollout-head" }, h("strong", {}, one.case), h("span", { class: "note" }, one.split), one.score === null ? pill(one.status) : h("strong", {}, number(one.score)),
        h("span", { class: "note" }, [words(one.reason), plural(one.count, "message"), `${number(one.seconds, 1)} s`, one.tokens ? plural(one.tokens, "token") : ""].filter(Boolean).join(" · ")),
        h("span", { class: "note" }, "candidate ", idLink(ctx, one.candidate)), reader(one, `the rollout on ${one.case} of ${one.candidate.slice(0, 8)}`, shown, state, ctx)),
      shown ? [talk(one, turnsOf(one), state, ctx), one.feedback ? [h("h3", {}, "What the tests said"), rendered(one.feedback)] : null] : null);
  });
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
    h("label", { class: "field" }, "Kinds of steps", h("select", { name: "kind", value: ctx.params.kind || "", onchange: (event) => ctx.go({ kind: event.target.value }, true) },
      ["", ...kinds].map((kind) => h("option", { value: kind }, (DONE[kind] || words(kind) || "all").slice(0, 40))))));
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

/** What culmen, or an agent's program, did in a step of a kind. */
const DONE = { open: "opened", wait: "received", answer: "answered", end: "ended", commit: "merged", thought: "thinks", life: "process", result: "result" };

/** The turn that each step belongs to: one begins whenever the agent speaks. */
function turnsOf(each) {
  let turn = 0;
  return each.steps.map((step, place) => {
    if (step.speaker === "agent" && (!place || each.steps[place - 1].speaker !== "agent")) turn += 1;
    return turn;
  });
}

/** Names and how often each is among some, the most frequent first: `[["write", 6], ["read", 4]]`. */
function counted(names) {
  const found = new Map();
  for (const name of names) found.set(name, (found.get(name) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

const TOOLS = 5; // tools of an agent that are named

const toolsOf = (steps) => counted(steps.filter((step) => step.step === "tool").map((step) => step.about.split(" ")[0] || "tool"));

function agent(each, doc, state, ctx) {
  const shown = state.talks.has(each.agent) || Boolean(ctx.params.text);
  const aside = h("div", { class: "toolbar" }, each.ended ? pill(ENDS[each.ended] || each.ended) : pill("at work"), reader(each, `agent ${each.agent}`, shown, state, ctx));
  const tools = toolsOf(each.steps);
  const named = tools.slice(0, TOOLS).map(([name, n]) => `${name} ${count(n)}`).join(", ");
  const scores = each.tried.map((one) => one.certified ?? one.score).filter((score) => score !== null);
  const best = scores.length ? (doc.direction === "min" ? Math.min(...scores) : Math.max(...scores)) : null;
  const turns = turnsOf(each);
  return section(`Agent ${each.agent}${each.kind ? `: ${each.kind}` : ""}`, { wide: true, key: `agent-${each.agent}`, aside },
    facts([
      ["steps", count(each.count)], turns.at(-1) ? ["turns", count(turns.at(-1))] : null, ["experiments", count(experiments(each))],
      best === null ? null : ["best score", number(best)], ["tokens", count(each.tokens)], ["dollars", dollars(each.dollars)],
      tools.length ? ["tool calls", `${named}${tools.length > TOOLS ? `, ${plural(tools.length - TOOLS, "other")}` : ""}`] : null,
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
    cell(count(one.n)), h("td", {}, one.path || "initial program"), h("td", {}, one.candidate ? idLink(ctx, one.candidate) : ""), cell(number(one.score, places)),
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
  const { top, bottom } = head.parentElement.getBoundingClientRect();
  if (top < parseFloat(getComputedStyle(head).scrollMarginTop) || bottom > innerHeight) head.scrollIntoView({ block: "start" });
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
  const button = (text, act, able, letter) => h("button", { type: "button", class: "button", disabled: !able, title: letter ? `Key ${letter}` : null, "aria-keyshortcuts": letter || null, onclick: act }, text);
  const bar = h("div", { class: "toolbar talk-bar" },
    button("Previous", () => move(-1), at !== undefined && places[0] < at, "k"), button("Next", () => move(1), at === undefined || places.at(-1) > at, "j"),
    button(some ? "Fold these" : "Unfold these", unfold, true),
    places.length > PAGE ? h("select", { "aria-label": "Steps shown", value: String(page), onchange: (event) => show(places[Number(event.target.value) * PAGE]) }, Array.from({ length: Math.ceil(places.length / PAGE) }, (_, n) => h("option", { value: String(n) }, `${count(n * PAGE + 1)} to ${count(Math.min(places.length, (n + 1) * PAGE))}`))) : null,
    h("span", { class: "note" }, at === undefined ? plural(places.length, "step") : `${count(places.indexOf(at) + 1)} of ${count(places.length)}`));
  return h("div", { class: "talk" },
    bar, h("div", { class: "session" }, outline(each, shown, turns, state, ctx), h("ol", { class: "messages", "aria-label": `What agent ${each.agent} did` }, shown.map((place) => message(each, place, at, state, ctx)))), note,
    each.transcript ? fold("Transcript of its program", each.transcript) : null);
}

/** The turns among the messages shown: how each begins, who speaks how often, which tools, what failed, what it cost. */
function outline(each, shown, turns, state, ctx) {
  const found = new Map();
  for (const place of shown) (found.get(turns[place]) || found.set(turns[place], []).get(turns[place])).push(place);
  const times = (name, n) => (n > 1 ? `${name} ×${n}` : name);
  const rows = [...found].map(([turn, places]) => {
    const some = places.map((place) => each.steps[place]);
    const first = some.find((step) => step.speaker === "agent" && step.head);
    const speakers = counted(some.filter((step) => step.step !== "tool").map((step) => step.speaker));
    const made = some.reduce((all, step) => all + (step.experiments || []).length, 0);
    const paid = some.reduce((all, step) => all + (step.dollars || 0), 0);
    const faults = some.filter((step) => step.fault).length;
    return h("li", { "data-key": `turn-${turn}` }, h("button", { type: "button", "aria-current": places.includes(state.at.get(each.agent)) ? "true" : null, onclick: () => reveal(each, places[0], state, ctx) },
      h("span", { class: "turn" }, turn ? `Turn ${turn}` : "Beginning", faults ? h("span", { class: "fault" }, ` ${plural(faults, "error")}`) : null, paid ? h("span", { class: "note" }, ` ${dollars(paid)}`) : null),
      first ? h("span", { class: "opening" }, first.head) : null,
      h("span", { class: "who" }, speakers.map(([name, n]) => [h("span", { class: name }, times(name, n)), " "]), toolsOf(some).map(([name, n]) => [h("span", { class: "tool" }, times(name, n)), " "]), made ? h("span", {}, plural(made, "experiment")) : null)));
  });
  return h("nav", { class: "outline", "aria-label": `Outline of agent ${each.agent}` }, h("ol", {}, rows));
}

/** Whether there is more to read of a step than its line. */
const long = (step) => Boolean(step.chars || step.text || step.reports?.length || step.experiments?.length || step.changed?.length);

function message(each, place, at, state, ctx) {
  const step = each.steps[place];
  const name = key(each.agent, step.seq);
  const more = long(step);
  const open = more && state.open.has(name);
  const toggle = async () => {
    state.at.set(each.agent, place);
    if (open) state.open.delete(name);
    else { await fetchText(each, place, ctx); state.open.add(name); }
    ctx.redraw();
  };
  const what = ["said", "text", "tool"].includes(step.step) ? "" : DONE[step.step] || words(step.step);
  const made = step.experiments || [];
  const line = [step.fault ? words(step.fault) : "", step.head || made.map((one) => one.path).join(", ") || (step.changed || []).join(", "), step.ended ? `ended: ${words(step.ended)}` : ""].filter(Boolean).join(" · ");
  const inner = [h("time", {}, clock(step.elapsed || 0)), h("strong", {}, step.speaker), h("span", { class: "what" }, [what, step.about].filter(Boolean).join(" ")),
    step.fault ? pill("error") : null, open ? null : h("span", { class: "head" }, line)];
  return h("li", { class: `message ${step.speaker}${step.fault ? " faulty" : ""}`, "data-key": name, "aria-current": place === at ? "true" : null },
    more ? h("button", { type: "button", class: "message-head", id: `message-${name}`, "aria-expanded": String(open), onclick: toggle }, inner) : h("div", { class: "message-head", id: `message-${name}`, tabindex: "-1" }, inner),
    open ? body(each, step, name, ctx) : null);
}

function body(each, brief, name, ctx) {
  const step = { reports: [], experiments: [], changed: [], text: "", ...brief, ...texts.get(`${ctx.run} ${name}`) };
  const said = [...step.reports, step.text].filter(Boolean).join("\n\n");
  return [
    h("div", { class: "message-tools" }, said ? copyButton(said, `the text of ${name}`) : null, h("a", { class: "note", href: ctx.href("sessions", { ...ctx.params, agent: each.agent, at: step.seq }), "aria-label": `Link to ${name}` }, "link")),
    h("div", { class: "message-body" },
      step.fault ? h("p", {}, words(step.fault)) : null,
      step.reports.map((report) => rendered(report, true)),
      step.experiments.map((made) => h("p", { class: "note" }, `experiment ${made.ticket}: ${made.path}${made.note ? `, ${made.note}` : ""}${made.fault ? ` (${words(made.fault)})` : ""}`, became(made, each, ctx))),
      step.ended ? h("p", {}, `ended: ${words(step.ended)}`) : null,
      step.changed.length ? h("p", { class: "note" }, `changed: ${step.changed.join(", ")}`) : null,
      step.text ? rendered(step.text, !["tool", "program"].includes(step.speaker)) : null)];
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
  const nested = ([, value]) => value !== null && typeof value === "object";
  const rows = doc.notes.map((note) => {
    const fields = Object.entries(note.fields).filter(([, value]) => !(value && typeof value === "object" && !Object.keys(value).length));
    return h("li", {}, h("time", {}, clock(note.elapsed)), h("span", {}, words(note.kind)),
      h("div", { class: "note" }, fields.filter((each) => !nested(each)).map(([name, value]) => `${words(name)} ${value}`).join(", "), fields.filter(nested).map(([name, value]) => json(value, words(name)))));
  });
  return section("Notes of the strategy", { wide: true }, h("ol", { class: "steps" }, rows));
}
