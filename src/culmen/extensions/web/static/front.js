// The Pareto front of a run with several objectives: trade-offs as dots and as rows, the default choice, how it grew.

import { chart } from "./chart.js";
import { h } from "./dom.js";
import { count, decimals, measured, number, plural } from "./format.js";
import { choice, copyButton, empty, idLink, pill, score, section, table, th } from "./parts.js";
import { extent } from "./scale.js";

const ROWS = 20; // members listed until all are asked for
const CROWD = 40; // members beyond which intervals would cover the dots
const TINTS = ["var(--s1)", "color-mix(in oklab, var(--s1) 62%, var(--surface))", "color-mix(in oklab, var(--s1) 34%, var(--surface))"];
const THIRDS = ["best third", "middle third", "worst third"];

/** With a `height`, one low picture and the default choice alone, for the first page of a report. */
export function front(found, ctx, height = 0) {
  if (!found.members.length) return section("Pareto front", { wide: true }, empty("Nothing has scored yet."));
  const names = found.objectives.map((goal) => goal.name);
  const axes = names.length > 1 ? picked(names, ctx.params) : null;
  const how = found.confirmed ? "Measured by evaluations made after the search; other candidates as the search believes." : "What the search believes so far, not confirmed by fresh evaluations.";
  const held = found.constraints.length ? ` Constraints: ${found.constraints.map((each) => `${each.metric} ${each.sense === "<=" ? "≤" : "≥"} ${number(each.level)}`).join(", ")}${found.members.every((each) => each.feasible !== false) ? "" : ", which nothing holds"}.` : "";
  return section("Pareto front", { wide: true, key: "front", aside: axes ? toolbar(found, names, axes, ctx) : null },
    names.length > 2 && !(height && names.length < 4) ? parallel(found, names, ctx, height) : null, axes && !(height && names.length > 3) ? scatter(found, axes, ctx, height) : null, h("p", { class: "note below" }, how + held), chosen(found, ctx), height ? null : [rows(found, ctx), growth(found)]);
}

/** The objectives across, up and in colour. */
function picked(names, { fx, fy, fc }) {
  const across = names.includes(fx) ? fx : names[0];
  const up = names.includes(fy) && fy !== across ? fy : names.find((name) => name !== across);
  const rest = names.filter((name) => name !== across && name !== up);
  return { across, up, colour: rest.includes(fc) ? fc : fc === "none" ? "" : rest[0] || "" };
}

function toolbar(found, names, { across, up, colour }, ctx) {
  const rest = names.filter((name) => name !== across && name !== up);
  const far = [across, up].some((name) => beyond(found, name).length);
  const menu = (label, key, value, options) => h("label", { class: "field" }, label, h("select", { name: key, value, onchange: (event) => ctx.go({ [key]: event.target.value }, true) }, options.map(([option, text]) => h("option", { value: option }, text))));
  const pairs = (some) => some.map((name) => [name, name]);
  return h("div", { class: "toolbar" },
    far ? choice("Axes", [["", "Front"], ["all", "Everything"]], ctx.params.fs || "", (fs) => ctx.go({ fs }, true)) : null,
    names.length < 3 ? null : [menu("Across", "fx", across, pairs(names)), menu("Up", "fy", up, pairs(names)), menu("Colour", "fc", colour || "none", [...pairs(rest), ["none", "none"]])]);
}

/** The default choice with its rule, and how to ask for another. */
function chosen(found, ctx) {
  const best = found.members.find((each) => each.id === found.choice);
  const [first, second] = found.objectives.map((goal) => goal.name);
  const other = second && found.members.length > 1 ? `culmen best ${ctx.run} --weights ${first}=3,${second}=1` : "";
  return [
    best ? h("p", { "data-role": "choice" }, h("strong", {}, "Default choice "), idLink(ctx, best.id), ": ", `${values(best).join(", ")}. `, h("span", { class: "note" }, `Why this one: ${found.why}.`)) : null,
    other ? h("p", { class: "next" }, h("span", { class: "note" }, "another trade-off"), h("code", {}, other), copyButton(other)) : null,
  ];
}

const values = (each) => Object.entries(each.metrics).map(([name, value]) => [name, ...measured(value, (each.margins || {})[name])].filter(Boolean).join(" "));
const goalOf = (found, name) => found.objectives.find((goal) => goal.name === name);
const signOf = (found, name) => (goalOf(found, name).direction === "min" ? -1 : 1);
const tips = (some, what) => (i) => [[some[i].id.slice(0, 8), what].filter(Boolean).join(", "), ...values(some[i]), plural(some[i].count || 0, "evaluation"), "click: its text"];

/** Where an axis ends: round all members, and what lies near them. */
function range(found, name) {
  const of = (some) => some.map((each) => each.metrics[name]).filter(Number.isFinite);
  const core = of(found.members).sort((a, b) => a - b);
  const start = found.start ? of([found.start]) : [];
  const all = [...core, ...start, ...of(found.others || [])].sort((a, b) => a - b);
  let span = core.at(-1) - core[0];
  const room = span ? 0 : Math.abs(core[0]) / 20 || 0.5; // a front of one value is no point of an axis of rounding errors
  if (!span) span = Math.abs((start[0] ?? core[0]) - core[0]) || all[Math.round(0.75 * (all.length - 1))] - all[Math.round(0.25 * (all.length - 1))];
  span = Math.max(span, room);
  const near = (value, spans) => value >= core[0] - spans * span && value <= core.at(-1) + spans * span;
  const ends = found.members.flatMap((each) => [-1, 1].map((side) => each.metrics[name] + side * ((each.margins || {})[name] || 0)));
  const levels = found.constraints.filter((each) => each.metric === name).map((each) => each.level);
  return [...core, core[0] - room, core[0] + room, ...start.filter((value) => near(value, 2)), ...[...levels, ...all].filter((value) => near(value, 1)), ...ends.filter((value) => near(value, 0.5))];
}

/** The candidates that lie beyond the ends of an axis. */
function beyond(found, name) {
  const [low, high] = extent(range(found, name));
  return [...found.members, ...(found.others || []), ...(found.start ? [found.start] : [])].filter((each) => each.metrics[name] < low || each.metrics[name] > high);
}

function scatter(found, { across, up, colour }, ctx, height) {
  const whole = ctx.params.fs === "all";
  const everything = [...found.members, ...(found.others || []), ...(found.start ? [found.start] : [])];
  const domain = (name) => extent(whole ? everything.map((each) => each.metrics[name]) : range(found, name));
  const [wide, high] = [domain(across), domain(up)];
  const at = (each) => [each.metrics[across], each.metrics[up]];
  const dots = (name, ink, some, more = {}) => ({ name, kind: "dots", colour: ink, edge: true, points: some.map(at), tips: tips(some, more.what), picks: (i) => some[i].id, size: 7, ...more });
  const start = found.start ? [found.start] : [];
  const others = (found.others || []).filter((each) => !start.some(({ id }) => id === each.id));
  const best = found.members.filter((each) => each.id === found.choice && found.members.length > 1);
  const crosses = found.members.length > CROWD ? [] : [...found.members, ...start].flatMap((each) => cross(each, across, up));
  const out = new Set(whole ? [] : [across, up].flatMap((name) => beyond(found, name)).map((each) => each.id));
  const label = (name, arrows) => `${name} (${signOf(found, name) < 0 ? `${arrows[0]} lower` : `${arrows[1]} higher`} is better)`;
  const spec = {
    label: `Pareto front: ${up} against ${across}`, height: height || 340, key: `front-${across}-${up}`,
    x: { label: label(across, "←→"), domain: wide }, y: { label: label(up, "↓↑"), domain: high },
    series: [
      dots(others.length ? "other candidates" : "", "var(--soft)", others, { faint: true, size: 4 }),
      found.objectives.length === 2 ? { name: "", kind: "line", colour: "var(--s1)", points: staircase(found, across, up, wide, high) } : null,
      crosses.length ? { name: "", kind: "links", colour: "var(--s8)", points: crosses } : null,
      ...thirds(found, colour).map(([name, ink, some]) => dots(name, ink, some)),
      start.length ? dots("initial program", "var(--ink)", start, { what: "initial program", size: 9 }) : null,
      best.length ? dots("default choice", "var(--s2)", best, { what: "default choice", size: 11 }) : null,
    ].filter(Boolean),
    refs: found.constraints.filter((each) => each.metric === across || each.metric === up)
      .map((each) => ({ kind: "limit", axis: each.metric === across ? "x" : "y", label: `${each.metric} ${each.sense === "<=" ? "≤" : "≥"}`, value: each.level, forbidden: each.sense === "<=" ? "above" : "below" })),
    onpick: (id) => { location.hash = ctx.href("candidate", { id }); },
  };
  const words = (clipped) => [`Crosses are 95 % intervals.`.repeat(Boolean(crosses.length)), clipped ? `${plural(out.size, "candidate")} beyond the axes: the arrowheads at the edge.` : "",
    start.length && found.members.some(({ id }) => id === start[0].id) ? "The initial program is on the front." : ""].filter(Boolean).join(" ");
  return chart({ ...spec, below: words });
}

/** The interval of each metric through the dot, as two links. */
function cross({ metrics, margins = {} }, across, up) {
  const [x, y] = [metrics[across], metrics[up]];
  const [a, b] = [margins[across] || 0, margins[up] || 0];
  return [...(a ? [[x - a, y], [x + a, y]] : []), ...(b ? [[x, y - b], [x, y + b]] : [])];
}

/** The border of what is dominated: from member to member through the corner that is worse in both, to the worse ends. */
function staircase(found, across, up, wide, high) {
  const [sx, sy] = [signOf(found, across), signOf(found, up)];
  const all = found.members.map((each) => [sx * each.metrics[across], sy * each.metrics[up]]).sort((a, b) => b[0] - a[0] || b[1] - a[1]);
  const steps = all.filter(([, y], i) => all.slice(0, i).every(([, before]) => before < y)).reverse(); // across ever better, up ever worse
  const [worstX, worstY] = [sx > 0 ? wide[0] : -wide[1], sy > 0 ? high[0] : -high[1]];
  const points = [[Math.min(worstX, steps[0][0]), steps[0][1]]];
  steps.forEach(([x, y], i) => points.push([x, y], [x, i + 1 < steps.length ? steps[i + 1][1] : Math.min(worstY, y)]));
  return points.map(([x, y]) => [sx * x, sy * y]);
}

/** Members by thirds of a further objective, with what each third spans in words. */
function thirds(found, name) {
  if (!name) return [["front", "var(--s1)", found.members]];
  const sign = signOf(found, name);
  const sorted = [...found.members].sort((a, b) => sign * (b.metrics[name] - a.metrics[name]));
  const levels = [...new Set(sorted.map((each) => each.metrics[name]))];
  if (levels.length === 1) return [[`front, all with ${name} ${number(levels[0])}`, "var(--s1)", found.members]];
  const parts = Math.min(3, levels.length);
  const labels = parts === 3 ? THIRDS : ["best", "worst"];
  const digits = decimals(levels.map((value) => Number(value.toPrecision(3))));
  return Array.from({ length: parts }, (_, part) => {
    const mine = new Set(levels.slice(Math.round((part * levels.length) / parts), Math.round(((part + 1) * levels.length) / parts)));
    const some = sorted.filter((each) => mine.has(each.metrics[name]));
    const ends = [...new Set([some[0], some.at(-1)].map((each) => number(each.metrics[name], digits)))];
    return [`${name} ${ends.join(" to ")} (${labels[part]})`, TINTS[parts === 2 && part ? 2 : part], some];
  });
}

/** Every objective an axis, better is up on all; a line for each member. */
function parallel(found, names, ctx, low) {
  const shown = [...found.members, ...(found.start ? [found.start] : [])];
  const ends = names.map((name) => {
    const all = shown.map((each) => signOf(found, name) * each.metrics[name]).filter(Number.isFinite);
    return [Math.min(...all), Math.max(...all)];
  });
  const height = (each, i) => (ends[i][1] > ends[i][0] ? (signOf(found, names[i]) * each.metrics[names[i]] - ends[i][0]) / (ends[i][1] - ends[i][0]) : 0.5);
  const path = (each) => names.slice(1).flatMap((_, i) => [[i, height(each, i)], [i + 1, height(each, i + 1)]]);
  const group = (name, ink, some, more = {}) => (some.length ? [
    { name: "", kind: "links", colour: ink, points: some.flatMap(path), ...more },
    { name, kind: "dots", size: 5, colour: ink, points: some.flatMap((each) => names.map((_, i) => [i, height(each, i)])), tips: (i) => tips(some, more.what)(Math.floor(i / names.length)), picks: (i) => some[Math.floor(i / names.length)].id }] : []);
  const best = found.members.filter((each) => each.id === found.choice);
  const written = (i, end) => number(Number((signOf(found, names[i]) * ends[i][end]).toPrecision(3)));
  return chart({
    label: `Pareto front: all ${names.length} objectives`, height: low || 300, key: "front-all",
    x: { label: "", domain: [-0.25, names.length - 0.75], marks: names.map((name, i) => ({ at: i, text: name, more: `${written(i, 0)} to ${written(i, 1)}` })) },
    y: { label: "better is up", domain: [-0.06, 1.06], marks: [{ at: 0, text: "worst" }, { at: 1, text: "best" }] },
    series: [...group("front", "var(--s1)", found.members.filter((each) => each.id !== found.choice)), ...group("initial program", "var(--ink)", found.start ? [found.start] : [], { what: "initial program", strong: true }), ...group("default choice", "var(--s2)", best, { what: "default choice", strong: true })],
    refs: [],
    onpick: (id) => { location.hash = ctx.href("candidate", { id }); },
  });
}

function rows(found, ctx) {
  const metrics = Object.keys(found.members[0].metrics);
  const shown = ctx.params.fa ? found.members : found.members.filter((each, i) => i < ROWS || each.id === found.choice);
  const start = found.start && found.start.id;
  const body = shown.map((each) => h("tr", { "data-key": each.id, class: each.id === found.choice ? "chosen" : null }, h("td", {}, idLink(ctx, each.id), each.id === found.choice ? [" ", pill("default choice")] : null, each.id === start ? [" ", pill("initial program")] : null),
    metrics.map((name) => h("td", { class: "num" }, score(each.metrics[name], (each.margins || {})[name]))),
    h("td", { class: "num" }, count(each.count || 0)), h("td", {}, [each.failures ? `${count(each.failures)} failed` : "", each.feasible === false ? "violates a constraint" : ""].filter(Boolean).join(", "))));
  const more = shown.length < found.members.length ? h("button", { type: "button", class: "button", onclick: () => ctx.go({ fa: "yes" }, true) }, `Show all ${count(found.members.length)}`) : null;
  return [table("Members of the front", [th("candidate"), ...metrics.map((name) => th(name, { class: "num" })), th("n", { class: "num" }), th("")], body), more];
}

function growth(found) {
  if ((found.growth || []).length < 2) return null;
  return h("details", {}, h("summary", {}, "How the front grew"), chart({
    label: "Hypervolume of what was tried so far", height: 180, x: { label: "Candidates", unit: "count" }, y: { label: "hypervolume" },
    series: [{ name: "hypervolume", kind: "step", points: found.growth }],
  }));
}
