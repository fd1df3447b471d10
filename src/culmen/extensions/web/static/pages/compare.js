// Compare: several runs over one another.

import { chart, colour } from "../chart.js";
import { h } from "../dom.js";
import { count, decimals, dollars, duration, number, plural, plusMinus } from "../format.js";
import { cell, empty, section, statePill, table, th } from "../parts.js";

export const title = "Compare";
export const load = (ctx) => ctx.data.get("compare", { run: ctx.params.run, x: ctx.params.x, from: ctx.params.from });

const AXES = [["evaluations", "Evaluations", "count"], ["dollars", "Dollars", "dollars"], ["seconds", "Time", "seconds"],
  ["evaluation_steps", "Evaluation steps", "count"], ["proposal_steps", "Proposal steps", "count"], ["proposals", "Proposals", "count"]];

const STEPS = {
  evaluation_steps: "Evaluations that ran side by side are one step.",
  proposal_steps: "Requests for candidates that were under way side by side are one step.",
  proposals: "Candidates that models brought, repeats included.",
};

export function view(doc, ctx) {
  if (!doc.names.length) return h("div", { class: "stack" }, unread(doc), empty("There are no runs to compare yet."));
  const shown = doc.runs.length ? [curves(doc, ctx), verdicts(doc), runs(doc, ctx)] : empty("None of the runs chosen is there.");
  return h("div", { class: "stack" }, chosen(doc, ctx), unread(doc), pages(doc, ctx), shown);
}

function chosen(doc, ctx) {
  const now = new Set(ctx.params.run ? [ctx.params.run].flat() : doc.names);
  const flip = (name) => () => {
    now.has(name) ? now.delete(name) : now.add(name);
    ctx.go({ run: now.size === doc.names.length ? "" : [...now], from: "" }, true);
  };
  return h("details", { open: doc.names.length <= 12 }, h("summary", {}, `${plural(now.size, "run")} of ${doc.names.length}`),
    h("div", { class: "checks", role: "group", "aria-label": "Runs to compare" }, doc.names.map((name) => h("label", { "data-key": name }, h("input", { type: "checkbox", checked: now.has(name), onchange: flip(name) }), ` ${name}`))));
}

const unread = (doc) => (doc.unread.length ? h("div", {}, doc.unread.map((run) => h("p", { class: "note" }, `Left out, because it cannot be read: ${run.name} (${run.why}).`))) : null);

/** More runs than one page holds: which are here, and the way to the others. */
function pages(doc, ctx) {
  if (doc.chosen <= doc.runs.length) return null;
  const button = (text, from) => h("button", { type: "button", class: "button", disabled: from < 0 || from >= doc.chosen, onclick: () => ctx.go({ from: from || "" }, true) }, text);
  return h("nav", { class: "pager", "aria-label": "Pages of runs" },
    h("span", {}, `Runs ${count(doc.first + 1)} to ${count(doc.first + doc.runs.length)} of ${count(doc.chosen)} are compared here; culmen compare takes them all at once.`),
    h("div", { class: "actions" }, button("Previous", doc.first - doc.step), button("Next", doc.first + doc.step)));
}

const FEW = 5; // runs of a group below which there is no band
const MOST = 20; // runs listed one by one until all are asked for

/** One picture for each task, for scores of different tasks do not compare; of many tasks the one that is chosen. */
function curves(doc, ctx) {
  const { axis } = doc;
  const scored = (task) => doc.runs.some((run) => run.task === task && run.points.length);
  const tasks = [...doc.tasks.filter(scored), ...doc.tasks.filter((task) => !scored(task))];
  if (tasks.length > 2) {
    const task = tasks.includes(ctx.params.task) ? ctx.params.task : tasks[0];
    const menu = h("label", { class: "field" }, "Task", h("select", { name: "task", value: task, onchange: (event) => ctx.go({ task: event.target.value }, true) }, tasks.map((each) => h("option", { value: each }, scored(each) ? each : `${each}: no scores`))));
    return race(doc, task, axis, `Best so far: ${task}`, h("div", { class: "toolbar" }, menu, against(axis, ctx)));
  }
  const aside = against(axis, ctx);
  const alone = tasks.length === 1;
  return tasks.map((task, place) => race(doc, task, axis, alone ? "Best so far" : `Best so far: ${task}`, place ? null : aside));
}

const against = (axis, ctx) => h("label", { class: "field" }, "Against", h("select", { name: "x", value: axis, onchange: (event) => ctx.go({ x: event.target.value }, true) }, AXES.map(([value, text]) => h("option", { value }, text))));

function race(doc, task, axis, title, aside) {
  const [, label, unit] = AXES.find(([name]) => name === axis) || AXES[0];
  const mine = doc.runs.filter((run) => run.task === task);
  const groups = doc.groups.filter((group) => mine.some((run) => run.group === group.label));
  const place = new Map(groups.map((group, at) => [group.label, at]));
  const runsDrawn = mine.filter((run) => run.points.length);
  if (!runsDrawn.length) return section(title, { wide: true, aside }, empty(mine.some((run) => run.front) ? "These runs have several objectives: no one score orders them. The table below has the sizes of their fronts." : "None of these runs has a score."));
  const several = groups.some((group) => group.bands[axis].length);
  const named = shortened(runsDrawn.map((run) => run.name));
  const lines = runsDrawn.map((run, at) => ({ name: several ? "" : named[at], kind: "step", faint: several && groups[place.get(run.group)].runs.length > 1, colour: colour(several ? place.get(run.group) : runsDrawn.indexOf(run)), points: run.points.map((point) => [point[axis], point.score]) }));
  const bands = groups.flatMap((group, at) => (group.bands[axis].length && group.scored >= FEW ? [{ name: "", kind: "band", colour: colour(at), points: group.bands[axis].map(([x, , low, high]) => [x, low, high]) }] : []));
  const medians = several ? groups.map((group, at) => {
    const single = mine.find((run) => run.name === group.runs[0]);
    const points = group.bands[axis].length ? group.bands[axis].map(([x, middle]) => [x, middle]) : single.points.map((point) => [point[axis], point.score]);
    return { name: `${group.short}${group.bands[axis].length ? `, median of n = ${group.scored}` : ", n = 1"}`, kind: "step", colour: colour(at), points };
  }).filter((each) => each.points.length) : [];
  const refs = Object.entries({ target: "target", known: "best known" }).filter(([kind]) => mine[0].lines[kind] !== null).map(([kind, text]) => ({ kind, label: text, value: mine[0].lines[kind] }));
  const end = Math.max(...runsDrawn.map((run) => run.points.at(-1)[axis]));
  if (!end) return section(title, { wide: true, aside }, empty(axis.startsWith("proposal") ? "No model was asked for candidates in these runs." : `None of these runs has spent any ${label.toLowerCase()} that is known.`));
  const few = groups.filter((group) => group.scored < FEW);
  const unsure = few.length ? ` ${few.length === groups.length ? "None of these groups has" : `${few.map((group) => group.short).join(", ")} ${few.length === 1 ? "has" : "have"} not`} the ${FEW} runs from which on a band is drawn: so few can differ by luck alone.` : "";
  const note = several ? `Thin lines are runs, strong ones the median of n runs that differ in their random seed alone, in a band from the first to the third quartile. A median ends where the first of its runs ended.${unsure}` : null;
  const steps = STEPS[axis] ? `${STEPS[axis]} ` : "";
  return section(title, { wide: true, aside, note: steps || note ? `${steps}${note || ""}` : null }, chart({
    label: `${title}: best score so far of ${plural(runsDrawn.length, "run")} against ${label.toLowerCase()}`,
    key: `${task}.${axis}`,
    height: 340,
    x: { label, unit, domain: [0, end] },
    y: { label: "score" },
    series: [...bands, ...lines, ...medians],
    refs,
  }));
}

/** Names without the words with which all of them begin. */
function shortened(names) {
  const words = names.map((name) => name.split(/(?<=[~/·_ -])/));
  let same = 0;
  while (names.length > 1 && words.every((each) => each.length > same + 1 && each[same] === words[0][same])) same += 1;
  return words.map((each) => each.slice(same).join(""));
}

function verdicts(doc) {
  const made = doc.statistics;
  const title = "Can the data tell?";
  if (!made) return section(title, { wide: true }, empty(doc.statistics_missing ?? "It takes two finished runs to compare strategies."));
  const short = (value) => number(Number(value.toPrecision(4)));
  const span = (found) => (found.value === null ? "–" : found.low === null ? short(found.value) : `${short(found.value)} [${short(found.low)}, ${short(found.high)}]`);
  const parts = [...(made.overall ? [{ ...made.overall, task: `over ${plural(made.overall.tasks.length, "task")}` }] : []), ...made.tasks];
  parts.sort((one, other) => Number(unscored(one)) - Number(unscored(other)));
  const body = parts.map((part, place) => h(parts.length > 3 ? "details" : "div", { class: "verdict", open: place === 0 }, parts.length > 3 ? h("summary", {}, part.task) : h("h3", {}, part.task),
    part.basis ? h("p", { class: "note" }, `Values: ${part.basis}.${part.unequal ? ` The runs were measured on different samples of cases; ${"`culmen compare RUNS --score`"} scores what they returned together on all of them.` : ""}`) : null,
    table(`Statistics: ${part.task}`, [th("strategy"), ...["runs", "found nothing", "on cases", "best", "mean", "median", "interquartile mean", "on the common scale"].map((text) => th(text, { class: "num" }))],
      part.rows.map((row) => h("tr", {}, h("td", {}, row.strategy), cell(count(row.runs)), cell(row.nothing ? `${row.nothing} of ${row.runs}` : "–"), cell(row.on || "–"), cell(row.best === null || part.tasks ? "–" : `${short(row.best)}${row.margin ? ` ${plusMinus(row.margin)}` : ""}`), ...[row.mean, row.median, row.iqm, row.normalised].map((found) => cell(span(found)))))),
    unscored(part) ? empty("Nothing scored: none of these runs has a value.") : part.rows.some(telling) ? profile(part) : null,
    part.pairs.map((pair) => h("p", { class: pair.apart ? "told" : "" }, pair.sentence))));
  const note = "Figures with 95% bootstrap intervals over runs and what they were measured by. A run that returned the initial program, or showed no gain over it, found nothing. On the common scale 0 is the initial program, 1 the task's best known value or target.";
  return section(title, { wide: true, note }, body, made.remarks.map((remark) => h("p", { class: "note" }, remark)));
}

/** Enough runs, of which some found something, to draw how they are spread. */
const telling = (row) => row.runs >= FEW && row.nothing < row.runs;

const unscored = (part) => part.rows.every((row) => row.best === null);

/** The 95 % interval of a share of n runs (Wilson). */
function wilson(share, n) {
  const z = 1.96;
  const middle = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = ((z / (1 + (z * z) / n)) * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n)));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** The share of runs above each level: a strategy whose line is higher everywhere is better at every level. */
function profile(part) {
  const end = Math.max(1, ...part.rows.flatMap((row) => row.steps.map(([level]) => level)));
  const places = part.rows.map((row, at) => [row, at]).filter(([row]) => row.best !== null);
  const line = (row) => [...row.steps, [end, row.steps.at(-1)[1]]];
  const bands = (part.tasks ? [] : places).filter(([row]) => row.runs >= FEW).map(([row, at]) => ({ name: "", kind: "band", colour: colour(at), points: line(row).map(([level, share]) => [level, ...wilson(share, row.runs)]) }));
  const series = [...bands, ...places.map(([row, at]) => ({ name: `${row.strategy}, n = ${row.runs}`, kind: "step", colour: colour(at), points: line(row) }))];
  return chart({ label: `Performance profile: ${part.task}`, key: `profile.${part.task}`, height: 240, x: { label: "level on the common scale", domain: [0, end] }, y: { label: "share of runs above it", unit: "percent", domain: [0, 1] }, series });
}

function runs(doc, ctx) {
  const shown = ctx.params.all ? doc.runs : doc.runs.slice(0, MOST);
  const places = decimals(doc.runs.map((run) => run.score).filter((score) => score !== null));
  const rows = shown.map((run) => h("tr", { "data-key": run.name },
    h("td", { class: "wrap" }, h("a", { href: ctx.to(run.name, "overview") }, run.name)), h("td", {}, run.group), cell(run.seed), cell(run.front ? `front of ${count(run.front)}` : run.score === null ? "nothing scored" : number(run.score, places)), cell(run.se ? plusMinus(run.se) : "–"),
    h("td", {}, run.score === null ? "" : run.confirmed ? "yes" : "no"), cell(count(run.evaluations)), cell(dollars(run.dollars)), cell(duration(run.seconds)), h("td", {}, run.label === "finished" ? run.label : statePill(run.label))));
  const rest = doc.runs.length > shown.length ? h("button", { type: "button", class: "button", onclick: () => ctx.go({ all: "yes" }, true) }, `Show all ${doc.runs.length}`) : null;
  return section("Runs", { wide: true, aside: rest }, table("Runs", [th("run"), th("group"), th("seed", { class: "num" }), th("score", { class: "num" }), th("error", { class: "num" }), th("fresh"), th("evaluations", { class: "num" }), th("dollars", { class: "num" }), th("time", { class: "num" }), th("state")], rows));
}
