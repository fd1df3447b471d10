// All runs of the folder or database: found, filtered, sorted, tagged, picked to compare or to be put away.

import { label, putAway } from "../actions.js";
import { h, s } from "../dom.js";
import { count, decimals, dollars, moment, number, percent, plural } from "../format.js";
import { breakable, cell, empty, meter, pill, score, section, statePill, table, th } from "../parts.js";
import { extent } from "../scale.js";

export const title = "Runs";
export const load = (ctx) => ctx.data.get("runs");

const MOST = 200; // rows drawn; what else there is, is found by searching
const models = (run) => [...new Set(Object.values(run.models))].join(", ");
const WAYS = { // what a heading sorts by, and what comes first
  run: [(run) => run.name, 1], state: [(run) => run.label, 1], best: [(run) => run.best, -1], evaluations: [(run) => run.evaluations, -1],
  "budget used": [(run) => run.spent, -1], dollars: [(run) => run.dollars, -1], task: [(run) => run.task, 1], strategy: [(run) => run.strategy, 1],
  model: [models, 1], begun: [(run) => run.created, -1],
};
const NUMBERS = ["best", "evaluations", "dollars"];
const picks = (params) => [params.pick || []].flat();

export function view(doc, ctx) {
  if (!doc.runs.length) return empty(`There are no runs in ${doc.folder} yet: culmen demo makes one in about a minute.`);
  const found = sorted(doc.runs.filter((run) => passes(run, ctx.params)), ctx.params);
  const shown = found.slice(0, MOST);
  const places = decimals(doc.runs.map((run) => run.best).filter((best) => best !== null));
  const name = found.length === doc.runs.length ? plural(doc.runs.length, "run") : `${count(found.length)} of ${plural(doc.runs.length, "run")}`;
  const note = found.length > MOST ? `${doc.folder}; the first ${MOST} are shown: search for others.` : doc.folder;
  return section(name, { wide: true, note, aside: compared(ctx) }, toolbar(doc, ctx),
    shown.length ? table("Runs", head(ctx), shown.map((run) => (run.why ? unreadable(run, ctx) : row(run, places, ctx))), { class: "full runs" }) : empty("No run passes these filters."));
}

function passes(run, { text = "", state = "", task = "", strategy = "", tag = "" }) {
  const all = [run.name, run.task, run.strategy, models(run), run.label, run.tags.join(" "), run.remark].join(" ").toLowerCase();
  if (tag && !run.tags.includes(tag)) return false;
  const same = (wanted, value) => !wanted || wanted === value;
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word)) && same(state, run.label) && same(task, run.task) && same(strategy, run.strategy);
}

/** By a heading; what has no value comes last, equals stay the newest first. */
function sorted(runs, { sort = "", order = "" }) {
  if (!WAYS[sort]) return runs;
  const [value, first] = WAYS[sort];
  const turn = order === "asc" ? 1 : order === "desc" ? -1 : first;
  const missing = (each) => each === null || each === undefined || each === "";
  return [...runs].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
    return turn * (typeof a === "string" ? a.localeCompare(b) : a - b);
  });
}

function head(ctx) {
  const { sort = "", order = "" } = ctx.params;
  return [...Object.keys(WAYS).slice(0, 3), "course", ...Object.keys(WAYS).slice(3)].map((name) => {
    const look = NUMBERS.includes(name) ? "num" : null;
    if (!WAYS[name]) return th(name, { class: look });
    const up = (sort === name ? order || (WAYS[name][1] > 0 ? "asc" : "desc") : "") === "asc";
    const next = sort === name ? (up ? "desc" : "asc") : "";
    const by = h("button", { type: "button", onclick: () => ctx.go({ sort: name, order: next }, true) }, name);
    return th(by, { class: look, "aria-sort": sort === name ? (up ? "ascending" : "descending") : null }, name);
  });
}

let typing = null;

function toolbar(doc, ctx) {
  const typed = (event) => {
    clearTimeout(typing);
    const { value } = event.target;
    typing = setTimeout(() => ctx.go({ text: value }, true), 180);
  };
  const field = (label, control, grow) => h("label", { class: `field ${grow ? "grow" : ""}` }, label, control);
  const menu = (name, label, values = (run) => [run[name]], least = 2) => {
    const all = [...new Set(doc.runs.flatMap(values).filter(Boolean))].sort();
    return all.length < least ? null : field(label, h("select", { name, value: ctx.params[name] || "", onchange: (event) => ctx.go({ [name]: event.target.value }, true) }, [["", "any"], ...all.map((each) => [each, each])].map(([value, text]) => h("option", { value }, text))));
  };
  return h("div", { class: "toolbar", role: "search" },
    field("Find", h("input", { type: "search", name: "text", placeholder: "name, task, strategy, model, tag, remark", value: ctx.params.text || "", oninput: typed }), true),
    menu("state", "State", (run) => [run.label]), menu("task", "Task"), menu("strategy", "Strategy"), menu("tag", "Tag", (run) => run.tags, 1));
}

/** Where to go with the runs that are ticked. */
function compared(ctx) {
  const chosen = picks(ctx.params);
  if (!chosen.length) return h("span", { class: "note" }, "Tick runs to compare them, or to put them away");
  const gone = () => ctx.go({ pick: "" }, true);
  const away = (text, how) => (ctx.data.writing ? h("button", { type: "button", class: `button ${how === "delete" ? "danger" : ""}`, onclick: () => putAway(ctx.data, chosen, how, gone) }, text) : null);
  return h("div", { class: "buttons" }, away("Archive", "archive"), away("Delete", "delete"),
    h("a", { class: "button", href: ctx.to("", "compare", { run: chosen }) }, `Compare ${plural(chosen.length, "run")}`),
    h("button", { type: "button", class: "button", onclick: () => ctx.go({ pick: "" }, true) }, "Clear"));
}

function tick({ name }, ctx) {
  const mine = picks(ctx.params).includes(name);
  const flip = (params) => ({ pick: mine ? picks(params).filter((each) => each !== name) : [...picks(params), name] });
  return [h("input", { type: "checkbox", "aria-label": `Pick ${name}`, checked: mine, onchange: () => ctx.go(flip, true) }), " "];
}

function row(run, places, ctx) {
  const { name } = run;
  return h("tr", { "data-key": name },
    h("td", { class: "run-name", title: name }, tick(run, ctx), run.task ? h("a", { href: ctx.to(name, "overview") }, name) : name, edit(run, ctx), labels(run)),
    h("td", {}, statePill(run.label)),
    cell(run.front ? `front of ${count(run.front)}` : score(run.best, run.margin, places, run.bounds)),
    h("td", {}, run.front ? "–" : spark(run)),
    cell(count(run.evaluations)),
    h("td", {}, run.spent === null ? "no limit" : [meter(`Budget used by ${name}`, run.spent, percent(run.spent)), h("span", { class: "note" }, percent(run.spent))]),
    cell(dollars(run.dollars)),
    [run.task, run.strategy, models(run).replaceAll(/,(?=\S)/g, ", ") || "–"].map((text) => h("td", { class: "words", title: text }, h("span", { class: "long" }, breakable(text)))),
    h("td", { class: "words" }, moment(run.created).split(/(?<=, )/).map((part) => h("span", { class: "whole" }, part))));
}

const edit = (run, ctx) => (ctx.data.writing ? [" ", h("button", { type: "button", class: "quiet edit", "aria-label": `Tags and remark of ${run.name}`, title: "Tags and remark", onclick: () => label(ctx.data, run, ctx.reload) })] : null);

/** Its tags, and the first line of its remark. */
const labels = (run) => (run.tags.length || run.remark ? h("div", { class: "labels" }, run.tags.map((tag) => [pill(tag, `tagged ${tag}`), " "]), run.remark ? h("span", { class: "note", title: run.remark }, run.remark.split("\n")[0]) : null) : null);

/** The best so far in small, from the first evaluation to the last. */
function spark(run) {
  if (run.curve.length < 2) return "–";
  const [width, height] = [84, 22];
  const [low, high] = extent(run.curve.map(([, score]) => score), 0);
  const end = Math.max(run.evaluations, run.curve.at(-1)[0]) || 1;
  const at = ([x, y]) => [(x / end) * width, height - 2 - (high > low ? (y - low) / (high - low) : 0.5) * (height - 4)];
  const [first, ...rest] = run.curve.map(at);
  const path = `M${first.join(" ")}${rest.map(([x, y]) => `H${x}V${y}`).join("")}H${width}`;
  return s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Best so far: from ${number(run.curve[0][1])} to ${number(run.curve.at(-1)[1])}` },
    s("path", { d: path, fill: "none", stroke: "var(--s1)", "stroke-width": 1.5 }));
}

/** What is wrong with a run, in the place of its figures. */
const unreadable = (run, ctx) =>
  h("tr", { "data-key": run.name }, h("td", { class: "run-name" }, tick(run, ctx), run.name, edit(run, ctx), labels(run)), h("td", {}, statePill(run.label)),
    h("td", { class: "wrap", colspan: "8" }, run.why, run.fix ? h("div", { class: "note" }, run.fix) : null),
    h("td", {}, moment(run.created)));
