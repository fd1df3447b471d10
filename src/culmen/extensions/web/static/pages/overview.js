// Result in four bands: how much, where it came from, may one believe it, and all else folded.

import { reply } from "../actions.js";
import { chart, colour } from "../chart.js";
import { patchBlock } from "../code.js";
import { h } from "../dom.js";
import { front } from "../front.js";
import { clock, count, duration, number, percent, plural, typeset, words } from "../format.js";
import { choice, condition, copyButton, empty, facts, idLink, picture, pill, running, section, table, th } from "../parts.js";
import { budgets } from "./calls.js";
import { sentence, steps } from "./story.js";

export const title = "Result";
export const load = (ctx) => ctx.get("overview");

const TALL = 260; // pixels that a chart is high where there is room
const UNIT = "Gains are in the one score that the strategy makes of all objectives.";
const FEW = 3; // steps beside which the belief is still on the first screen
const STEP = 40; // pixels more for each step that stands beside it
const AXES = [["evaluations", "Evaluations", "count"], ["dollars", "Dollars", "dollars"], ["seconds", "Time", "seconds"]];

export function view(doc, ctx) {
  const marks = belief(doc, ctx);
  const tall = isTall(doc);
  return h("div", { class: "stack" }, verdict(doc, ctx), asked(doc, ctx), where(doc, ctx, tall ? marks : null), tall ? null : marks,
    doc.state === "running" ? h("div", { class: "grid" }, budgets(doc.spending), flight(doc, ctx)) : null, rest(doc, ctx));
}

/** True if what made the gain is so tall that it would push the next band off the screen. */
const isTall = (doc) => Boolean(doc.front) || doc.pictures.length > 0 || doc.story.steps.length > FEW;

/** The chart beside what made the gain, with the belief above it if that is tall. */
function where(doc, ctx, marks) {
  const made = [pictures(doc), steps(doc, ctx), change(doc, ctx)].filter(Boolean);
  const many = doc.story.steps.length;
  const side = made.length ? section(many ? "What made it" : doc.change ? "What the best changes" : "The best", { key: "made", note: many ? (doc.front ? UNIT : null) : doc.story.why ? sentence(doc.story.why) : null, aside: h("a", { href: ctx.href("story") }, "The whole story") }, made) : null;
  const drawn = doc.front ? front(doc.front, ctx) : doc.state === "failed" && !doc.best ? null : progress(doc, ctx, TALL + STEP * Math.max(0, many - 2));
  return side || marks ? h("div", { class: "where" }, drawn, marks, side) : drawn;
}

/** The change from the initial program to the best, cut where it is long. */
function change(doc, ctx) {
  if (!doc.change || !doc.change.patch) return null;
  const whole = h("a", { href: ctx.href("candidate", { id: doc.change.to, against: doc.change.from }) }, "all of it");
  return [h("h3", {}, "The best, beside the start ", h("span", { class: "note" }, whole)),
    h("div", { class: "boxed" }, patchBlock(doc.change.patch, "Change from the initial program to the best", doc.change.language === "text"))];
}

/** What speaks for the score, and what against it. */
function belief(doc, ctx) {
  if (!doc.belief.length) return null;
  return section("May I believe it?", { wide: true, key: "belief", aside: h("a", { href: ctx.href("trust") }, "All the evidence") }, condition(doc.belief));
}

/** Everything that answers none of the questions above. */
function rest(doc, ctx) {
  const { others } = doc.summary;
  const going = !["finished", "failed"].includes(doc.state);
  const names = [others.length ? plural(others.length, "further finding") : "", going ? "last events" : "", "what is run", "settings"].filter(Boolean).join(", ");
  return h("details", { class: "card rest", "data-key": "rest" }, h("summary", {}, h("h2", {}, "All else"), h("span", { class: "note" }, names)),
    ailments(others), going ? [going && doc.state !== "running" ? budgets(doc.spending) : null, events(doc, ctx)] : null, about(doc));
}

/** What came of the run in one line, with what made it fail, the scores, the cost and, unless it is a thing of the past, one next step. */
export function verdict(doc, ctx, past = false) {
  const { summary } = doc;
  const { headline, tone, details } = summary.verdict;
  const bad = doc.state === "failed";
  const ended = ["running", "finished", "stopped"].includes(doc.label) || bad ? "" : doc.ended;
  return h("section", { class: `card first tone-${tone}`, "aria-label": "Verdict", "data-tone": tone },
    h("div", { class: "first-line" }, h("p", { class: "headline", "data-role": "headline" }, typeset(headline)), way(doc.story)),
    summary.cause ? h("p", { class: bad ? "bad" : "warn", "data-role": "cause" }, h("strong", {}, typeset(summary.cause_detail))) : null,
    summary.failure ? h("pre", { class: "plain failure", tabindex: "0", "data-role": "failure" }, summary.failure) : null,
    details.length ? h("p", { "data-role": "details" }, details.map((each, n) => [n ? h("span", { class: "dot" }, " · ") : null, typeset(each)])) : null,
    standing(doc, ctx, [summary.used, ended].filter(Boolean).join("; ")),
    past ? null : h("p", { class: "next" }, h("span", { class: "note" }, "next"), h("code", { "data-role": "next" }, summary.command.split(" ").flatMap((word, n) => [n ? " " : "", h("span", {}, word)])), copyButton(summary.command), h("span", { class: "note" }, typeset(summary.purpose))));
}

/** How far from the initial program to the target or the best known value, as a bar; of a gain beyond noise. */
function way({ steps: made, is_own: own, goal, goal_name: name, start_score: start, end_score: end }) {
  if (!made.length || own || goal === null || goal === start) return null;
  const share = (end - start) / (goal - start);
  const [now, aim] = [share, 1].map((each) => `${(100 * each) / Math.max(share, 1)}%`);
  return h("div", { class: "way", role: "img", "aria-label": `${number(start)} at the start, ${number(end)} now, ${name} ${number(goal)}`, title: `${percent(share)} of the way` },
    h("span", { class: "way-bar" }, h("span", { class: "way-now", style: { width: now } }), h("span", { class: "way-goal", style: { left: aim } })),
    h("span", { class: "note" }, "start"), h("span", { class: "note" }, name));
}

/** Pictures of the best beside the initial program's, as the evaluator last drew them. */
function pictures(doc) {
  if (!doc.pictures.length) return null;
  const column = (name, text) => h("div", {}, text ? picture(name, text) : null);
  return doc.pictures.map(({ name, initial, best }) => h("div", { class: "pair", "data-picture": name }, column(`${name}, initial program`, doc.change && initial), column(`${name}, best`, best)));
}

/** The same as a section of its own, for the first page of a report. */
export const drawings = (doc) => (doc.pictures.length ? section("Pictures", { wide: true, key: "pictures" }, pictures(doc)) : null);

/** What else ails the run, and what may be done. */
function ailments(others) {
  if (!others.length) return null;
  return section("What else ails it", { wide: true, key: "ails" },
    h("ul", { class: "ails" }, others.map((each) => h("li", { "data-topic": each.topic }, typeset(each.what), h("span", { class: "note" }, ` Try: ${each.do}`)))));
}

/** Prompts that wait for a person. */
function asked(doc, ctx) {
  if (!doc.questions.length || !ctx.data.live) return null;
  const why = ctx.data.writing ? null : "Open the address that culmen ui printed: it contains the token required for writing.";
  const rows = doc.questions.map((each) => h("li", { "data-key": each.number }, h("span", {}, `Prompt ${each.number} waits for your answer`), h("span", { class: "note" }, `${plural(each.text.length, "character")}, for ${duration(each.waits)}`),
    h("button", { type: "button", class: "button primary", disabled: Boolean(why), title: why, onclick: () => reply(ctx.data, ctx.run, each) }, "Answer")));
  return section(`${plural(doc.questions.length, "prompt")} for you`, { wide: true, key: "asked" }, h("ul", { class: "flight" }, rows));
}

/** What the reported score rests on: a single evaluation confirms nothing. */
function freshness(best) {
  if (!best.confirmed) return "not confirmed";
  return best.count > 1 ? "confirmed" : "one fresh evaluation";
}

/** Which candidate is reported and how far it can be believed, what it cost and what was made; in one line. */
function standing(doc, ctx, cost) {
  const { best } = doc;
  const pills = best ? [idLink(ctx, best.id), pill(freshness(best), best.how), best.trust ? pill(best.trust) : null] : [];
  const made = [doc.candidates ? plural(doc.candidates, "candidate") : "", doc.evaluations ? failures(doc) : "", doc.running ? `${count(doc.running)} in flight` : "",
    doc.usage.unpriced ? `${plural(doc.usage.unpriced, "call")} of unknown price` : ""].filter(Boolean).join(", ");
  return h("p", { class: "standing", "data-role": "standing" }, pills, h("span", { class: "note", "data-role": "cost" }, cost), made ? h("span", { class: "note" }, made) : null);
}

function failures(doc) {
  const failed = Object.entries(doc.statuses).filter(([name]) => name !== "ok").reduce((sum, [, n]) => sum + n, 0);
  return failed ? `${plural(failed, "evaluation")} failed` : doc.evaluations ? "no evaluation failed" : "";
}

/** Every evaluation a dot, what was expected of the leader with its 95 % interval, and, once it is known, the confirmed score. */
export function progress(doc, ctx, height = TALL) {
  const axis = ctx.params.x || "evaluations";
  const [, label, unit] = AXES.find(([name]) => name === axis) || AXES[0];
  const late = ctx.params.y === "late";
  const known = doc.course.length ? doc.course : doc.progress;
  const points = known.map((point) => [point[axis], point.score]);
  const kinds = ["operator", "model", "island"].filter((name) => groupsOf(doc, name).length > 1);
  const by = kinds.includes(ctx.params.colour) ? ctx.params.colour : "";
  const paid = doc.progress.some((point) => point.dollars > 0);
  const earned = perDollar(doc, known, axis);
  const refs = Object.entries({ initial: "initial", target: "target", known: "best known" })
    .filter(([kind]) => doc.lines[kind] !== null)
    .map(([kind, text]) => ({ kind, label: text, value: doc.lines[kind] }));
  const aside = h("div", { class: "toolbar" },
    choice("Against", AXES.map(([value, text]) => [value, text, value === "dollars" && !paid ? UNPAID : null]), axis, (x) => ctx.go({ x }, true)),
    choice("Heights", [["", "All"], ["late", "Late half"], ["paid", "Gain per dollar", earned.length ? null : UNPAID]], ctx.params.y || "", (y) => ctx.go({ y }, true)),
    kinds.length ? choice("Colour", [["", "One"], ...kinds.map((name) => [name, name[0].toUpperCase() + name.slice(1)])], by, (value) => ctx.go({ colour: value }, true)) : null);
  if (!points.length) return section("Scores", { wide: true }, empty("Nothing has scored yet: the chart begins with the first score."));
  const end = doc.progress.at(-1)[axis] || points.at(-1)[0] || 1;
  if (earned.length && ctx.params.y === "paid") {
    return section("Gain per dollar", { wide: true, aside, note: "Gain over the initial program for each dollar spent until then: while it rises, further dollars buy more than the earlier ones did." },
      chart({ label: `Gain per dollar against ${label.toLowerCase()}`, height, x: { label, unit, domain: [0, end] }, y: { label: "gain per dollar" }, series: [{ name: "", kind: "step", colour: "var(--s1)", points: earned }] }));
  }
  points.push([end, points.at(-1)[1]]);
  const spec = {
    label: `Scores against ${label.toLowerCase()}; expected of the leader: from ${number(points[0][1])} to ${number(points.at(-1)[1])}`,
    height,
    x: { label, unit, domain: [late ? end / 2 : 0, end] },
    y: { label: "score", domain: doc.domain, ...lateDomain(points, refs, late) },
    series: [...dots(doc, axis, by), ...leader(doc, axis, points), ...confirmed(doc, end), ...unscored(doc, axis), ...stepMarks(doc, axis, known)],
    refs,
    onpick: (id) => { location.hash = ctx.href("candidate", { id }); },
    below: (clipped) => note + (clipped && !late ? beyond(doc) : ""),
  };
  const banded = doc.course.some(({ low, high }) => low < high);
  const note = doc.course.length
    ? `The line is what all evaluations together let one expect of the leader, not its luckiest score${banded ? "; the band is its 95\u00a0% interval" : ""}.`
    : "The run is too long for the value model: the line is the highest mean so far.";
  return section("Scores", { wide: true, aside }, chart(spec));
}

/** Gain over the initial program for each dollar spent so far. */
function perDollar({ lines, direction }, known, axis) {
  const sign = direction === "min" ? -1 : 1;
  return lines.initial === null ? [] : known.filter(({ dollars }) => dollars > 0).map((point) => [point[axis], (sign * (point.score - lines.initial)) / point.dollars]);
}

/** How many evaluations lie beyond the axis, as the lineage says of candidates. */
function beyond(doc) {
  const [low, high] = doc.domain;
  const far = doc.scores.filter(({ score }) => score !== null && (score < low || score > high)).reduce((sum, { count: alike }) => sum + alike, 0);
  return far ? ` ${plural(far, "evaluation")} with a score far from the others ${far === 1 ? "lies" : "lie"} on the edge.` : "";
}

const UNPAID = "nothing was paid for, or prices are unknown";
const GROUPS = 5; // colours of groups, beside those of the leader and the confirmed score; the rest are one

/** What candidates may have come from, the most frequent first. */
function groupsOf(doc, by) {
  const found = new Map();
  for (const each of doc.scores) found.set(each[by], (found.get(each[by]) || 0) + each.count);
  return [...found].filter(([value]) => value !== null && value !== "").sort((a, b) => b[1] - a[1]).map(([value]) => value);
}

/** The evaluations that scored, coloured by what their candidates came from. */
function dots(doc, axis, by) {
  const scored = doc.scores.filter((each) => each.score !== null);
  const look = { kind: "dots", faint: !by, edge: true, size: scored.length > 400 ? 3 : 4 };
  const drawn = (name, ink, some) => ({ ...look, name, colour: ink, points: some.map((each) => [each[axis], each.score]), tips: (i) => told(some[i]), picks: (i) => some[i].candidate });
  if (!by) {
    const many = scored.some((each) => each.count > 1);
    return scored.length ? [drawn(many ? "evaluations (a dot for those alike)" : "evaluations", "var(--soft)", scored)] : [];
  }
  const shown = groupsOf(doc, by).slice(0, GROUPS);
  const rest = scored.filter((each) => !shown.includes(each[by]));
  return [
    ...shown.map((value, place) => drawn(by === "island" ? `island ${value}` : String(value), colour(place + 2), scored.filter((each) => each[by] === value))),
    ...(rest.length ? [drawn(`other or no ${words(by)}`, "var(--soft)", rest)] : []),
  ];
}

const told = (each) => [`evaluation ${count(each.evaluations)}: ${each.score === null ? words(each.status) : number(each.score)}`,
  [each.candidate.slice(0, 8), each.operator, each.model, each.island === null ? "" : `island ${each.island}`].filter(Boolean).join(", "),
  ...(each.count > 1 ? [`one of ${count(each.count)} alike`] : [])];

const FAILED = { error: "var(--bad)", timeout: "var(--s5)", invalid: "var(--s6)", rejected: "var(--s7)" };

/** Those that gave no score, by their status, as marks at the foot. */
function unscored(doc, axis) {
  const failed = doc.scores.filter((each) => each.score === null);
  return [...new Set(failed.map((each) => each.status))].sort().map((status) => {
    const some = failed.filter((each) => each.status === status);
    return { name: words(status), kind: "rug", colour: FAILED[status] || "var(--s8)", points: some.map((each) => [each[axis]]), tips: (i) => told(some[i]), picks: (i) => some[i].candidate };
  });
}

function leader(doc, axis, points) {
  if (!doc.course.length) return [{ name: "best mean so far", kind: "step", colour: "var(--s1)", points }];
  const band = doc.course.map((point) => [point[axis], within(doc.bounds, point.low), within(doc.bounds, point.high)]);
  band.push([points.at(-1)[0], ...band.at(-1).slice(1)]);
  return [
    { name: "", kind: "band", colour: "var(--s1)", points: band },
    { name: "expected of the leader", kind: "step", colour: "var(--s1)", points },
  ];
}

/** The fresh score at the right edge, a bar over its interval. */
function confirmed(doc, end) {
  const best = doc.best;
  if (!best || !best.confirmed) return [];
  const half = best.margin || 0;
  const bar = half ? [{ name: "", kind: "links", colour: "var(--s2)", points: [-half, half].map((side) => [end, within(doc.bounds, best.score + side)]) }] : [];
  return [...bar, { name: freshness(best), kind: "dots", size: 10, colour: "var(--s2)", points: [[end, best.score]] }];
}

/** The steps of the story, numbered, on the line where the change that names each first scored. */
function stepMarks(doc, axis, known) {
  const { steps } = doc.story;
  if (!steps.length) return [];
  const name = "steps of the story";
  return [{ name, kind: "dots", colour: "var(--ink)", size: 5, labels: steps.map((each) => String(each.number)), points: steps.map((each) => [each[`at_${axis}`], (known.find((point) => point[axis] >= each[`at_${axis}`]) || known.at(-1)).score]),
    tips: (i) => [`step ${steps[i].number}: ${steps[i].gained}`, steps[i].sentence], picks: (i) => steps[i].id }];
}

/** An end of an interval, within the bounds of honest scores. */
const within = ([low, high], value) => Math.min(high ?? Infinity, Math.max(low ?? -Infinity, value));

/** Heights of the later half alone: early scores are often so far away that nothing else can be seen. */
function lateDomain(points, refs, late) {
  if (!late) return {};
  const half = points.at(-1)[0] / 2;
  const shown = [points.findLast(([x]) => x <= half) || points[0], ...points.filter(([x]) => x >= half)].map(([, y]) => y);
  const values = shown.concat(refs.filter((ref) => ref.kind !== "initial").map((ref) => ref.value));
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low) * 0.08 || Math.abs(high) * 0.02 || 0.1;
  return { domain: [low - room, high + room] };
}

const FLIGHTS = 5; // effects in flight that are listed

function flight(doc, ctx) {
  if (!doc.in_flight.length) return section("In flight", {}, empty("Nothing at this moment: the strategy is choosing what to do next."));
  const shown = doc.in_flight.slice(0, FLIGHTS);
  const rows = shown.map((each) => h("li", {}, h("span", {}, each.effect, each.of ? [" ", idLink(ctx, each.of)] : null, each.case ? h("span", { class: "note" }, ` on ${each.case}`) : null), h("span", { class: "note" }, `#${each.key}`), h("span", { class: "note" }, "for ", running(Math.max(0, doc.elapsed - each.since)))));
  const more = doc.running > shown.length ? h("p", { class: "note" }, `and ${doc.running - shown.length} more`) : null;
  return section("In flight", { note: "In active time of the run, the oldest first." }, h("ul", { class: "flight" }, rows), more);
}

function events(doc, ctx) {
  const rows = doc.events.map((event) => h("tr", { "data-key": event.seq },
    h("td", { class: "num" }, clock(event.elapsed)),
    h("td", {}, event.kind === "done" ? event.effect : event.kind),
    h("td", {}, event.candidate ? [h("a", { href: ctx.href("candidate", { id: event.candidate }) }, event.words)] : event.words)));
  return section("Last events", { wide: true }, rows.length
    ? table("Last events, the newest first", [th("time", { class: "num" }), th("what"), th("in words")], rows, { class: "events" })
    : empty("Nothing was journaled yet."));
}

export function about(doc) {
  const config = Object.entries(doc.config);
  return section("What is run", { wide: true },
    doc.goal ? h("p", { class: "plain" }, doc.goal) : null,
    facts([["strategy", doc.strategy], ["task", doc.task], ["isolation", doc.isolation || "not started"], ["workers", count(doc.workers)], ...Object.entries(doc.models).map(([role, model]) => [`model: ${role}`, model]), ...config.map(([name, value]) => [name, setting(value)]), [doc.path.includes("://") ? "database" : "folder", doc.path]]),
    doc.notes.length ? h("details", {}, h("summary", {}, "Remarks of the task's loader"), doc.notes.map((note) => h("p", { class: "note" }, note))) : null);
}

/** A setting as text: of an object its fields only. */
function setting(value) {
  if (value === null) return "none";
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.map(setting).join(", ") || "none";
  const name = String(value.object || "").split(":").pop();
  const inner = Object.entries(value.fields || (value.object ? {} : value)).map(([key, each]) => `${key}=${setting(each)}`).join(", ");
  return name ? (inner ? `${name}(${inner})` : name) : inner;
}
