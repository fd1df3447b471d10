// Lineage: what was tried over the run, the path to the best or to any other candidate, and its branches to unfold.

import { codeBlock, diffBlock, languageOf } from "../code.js";
import { h, s } from "../dom.js";
import { familyPicture } from "../family.js";
import { count, decimals, digits, dollars, number, plural, signed } from "../format.js";
import { cell, choice, empty, idLink, peek, section, table, th } from "../parts.js";
import { asked, judged } from "./candidate.js";

export const title = "Lineage";
export const load = (ctx) => ctx.get("lineage", { to: ctx.params.to, all: ctx.params.all });

const SHOWN = 12; // branches of one candidate before "more"
const SMALL = 60; // candidates up to which a tree is unfolded at first
const DEEP = 6; // levels that are indented; further ones are numbered
const open = new Map(); // run -> what a person unfolded: id -> how many branches
const fetched = new Map(); // run -> branches that were asked for: id -> candidates

export function view(given, ctx) {
  if (!given.ids.length) return empty("There is no candidate yet, so there is no family.");
  const doc = ctx.data.live ? given : atHand(given, ctx.params.to);
  const end = doc.ids.indexOf(doc.to);
  const whole = [];
  for (let place = end; place >= 0; place = doc.parents[place]) whole.unshift(place);
  const drawn = { ...doc, path: whole };
  return h("div", { class: "stack" }, scene(drawn, ctx), steps(doc, ctx), tree(doc, ctx), pane(ctx));
}

/** In a report, which nobody can ask: the path to a candidate among those that it holds. */
function atHand(doc, to) {
  if (!to || doc.to === to) return doc;
  const end = doc.ids.findIndex((id) => id.startsWith(to));
  if (end < 0) return { ...doc, unknown: `this report does not hold the path to '${to}'; culmen ui shows it` };
  const path = [];
  for (let place = end; place >= 0; place = doc.parents[place]) path.unshift(place);
  const known = new Map(doc.line.map((item) => [item.node, item]));
  const beside = (place, step) => doc.sizes[place] - 1 - (step + 1 < path.length ? doc.sizes[path[step + 1]] : 0);
  const line = path.map((place, step) => ({ added: null, note: "", dollars: null, ...known.get(place), node: place, step, steps: 1, branches: doc.kids[place] - (step + 1 < path.length), tried: beside(place, step), top: null, lost: null, shape: [] }));
  return { ...doc, path, line, to: doc.ids[end] };
}

// All candidates in one picture.

const COLOURS = ["score", "operator", "model", "island"];
const SCALE = ["#4575b4", "#5b9bc4", "#59b3a4", "#8fb84f", "#e0a93b", "#e2703a", "#d03050"]; // low to high reward

/** What dots and cells are coloured by: at most eight groups, their colours and names. */
function groups(doc, by) {
  if (by === "score") {
    const [low, high] = doc.domain;
    const share = (mean) => Math.max(0, Math.min(0.999, (mean - low) / (high - low)));
    const good = (mean) => (mean === null ? SCALE.length : Math.floor(SCALE.length * (doc.direction === "min" ? 0.999 - share(mean) : share(mean))));
    return { of: (place) => good(doc.means[place]), ofCell: (each) => (doc.cells.row[each] < 0 ? SCALE.length : good(doc.cells.mean[each])), colours: [...SCALE, "var(--bad)"], names: ["worst", "", "", "", "", "", "best", "no score"] };
  }
  const { names, more } = doc.groups[by];
  const places = new Map(names.map(([name], place) => [name, place]));
  const of = (name) => places.get(name) ?? names.length;
  const text = (name) => (by === "island" ? (name === null ? "no island" : `island ${name}`) : name || "none");
  const shown = names.map(([name, n]) => `${text(name)} (${count(n)})`);
  return { of: (place) => of(doc[by][place]), ofCell: (each) => of(doc.cells[by][each]), colours: [...names.map((_, place) => `var(--s${place + 1})`), "var(--s8)"], names: more[0] ? [...shown, `${more[0]} others (${count(more[1])})`] : shown };
}

const fate = (doc, place) => (doc.failed[place] ? "failed" : "not evaluated");

function scene(doc, ctx) {
  const by = COLOURS.includes(ctx.params.by) ? ctx.params.by : "score";
  const { of, ofCell, colours, names } = groups(doc, by);
  const tell = (place) => [doc.ids[place], doc.means[place] === null ? fate(doc, place) : `mean ${number(doc.means[place])} over ${plural(doc.counts[place], "evaluation")}`, doc.operator[place]];
  const tellCell = (each) => [plural(doc.cells.count[each], "candidate"), doc.cells.row[each] < 0 ? "without a score" : `the best: ${doc.cells.best[each].slice(0, 8)}, mean ${number(doc.cells.mean[each])}`, doc.cells.operator[each] && `mostly ${doc.cells.operator[each]}`];
  const spec = { label: `Mean score of ${plural(doc.total, "candidate")} in order of appearance, with the path to ${doc.to === doc.best ? "the best" : doc.to.slice(0, 8)}`, doc, domain: doc.domain, of, ofCell, colours, tell, tellCell, onpick: (id) => pick(id, ctx) };
  const note = [
    doc.cells ? "A cell is as dark as it is full, and coloured by its best or most frequent candidates; point at it to count them, click it to read the best of them. Dots are the path." : "Point at one to see its ancestors (orange) and descendants (green), click it to read it.",
    "Shift and the wheel, or + and −, come closer; drag to move; a double click shows all.",
    doc.unscored ? `${plural(doc.unscored, "candidate")} without a score ${doc.unscored === 1 ? "lies" : "lie"} at the foot.` : "",
    doc.beyond ? `${plural(doc.beyond, "candidate")} with a score far from the others ${doc.beyond === 1 ? "lies" : "lie"} on the edge.` : "",
  ].filter(Boolean).join(" ");
  const key = names.map((name, place) => (name ? h("span", {}, h("i", { style: { background: colours[place] } }), name) : h("i", { style: { background: colours[place] } })));
  const aside = choice("Colour by", COLOURS.map((name) => [name, name]), by, (name) => ctx.go({ by: name }, true));
  return section("All candidates", { wide: true, note, aside }, familyPicture(spec), h("p", { class: "family-key note" }, key));
}

// What a person looks at beside the picture: run -> {doc, parent} or {fault}.
const picked = new Map();
const read = new Map(); // run and id -> the promise of {doc, parent}

/** A candidate and its first parent. */
function pair(id, ctx) {
  const name = `${ctx.run} ${id}`;
  if (!read.has(name)) {
    const asking = ctx.get("candidate", { id }).then(async (doc) => ({ doc, parent: doc.parents.length && ctx.data.holds(doc.parents[0]) ? await ctx.get("candidate", { id: doc.parents[0] }) : null }));
    asking.catch(() => read.delete(name));
    read.set(name, asking);
  }
  return read.get(name);
}

async function pick(id, ctx) {
  read.delete(`${ctx.run} ${id}`); // it may have been evaluated since
  picked.set(ctx.run, await pair(id, ctx).then((found) => ({ id, ...found }), (error) => ({ id, fault: `${error.message} ${error.next || ""}` })));
  ctx.redraw();
}

const differences = ({ doc, parent }) => Object.entries(doc.parts).map(([name, text]) => [h("h3", {}, name), h("div", { class: "boxed" }, parent ? diffBlock(parent.parts[name] || "", text, languageOf(name, doc.language), `Change of ${name}`) : codeBlock(text, languageOf(name, doc.language), `Text of ${name}`))]);

function pane(ctx) {
  const seen = picked.get(ctx.run);
  if (!seen) return null;
  const close = () => { picked.delete(ctx.run); ctx.redraw(); };
  const { doc, parent, fault } = seen;
  return h("aside", { class: "pane", "aria-label": `Candidate ${seen.id}`, "data-key": `pane-${seen.id}`, onkeydown: (event) => event.key === "Escape" && close() },
    h("header", { class: "card-head" }, h("h2", {}, idLink(ctx, seen.id, seen.id)), h("div", { class: "toolbar" }, h("button", { type: "button", class: "button", onclick: () => { picked.delete(ctx.run); ctx.go({ to: seen.id }); } }, "Its path"), h("button", { type: "button", class: "button", onclick: close }, "Close"))),
    fault ? empty(fault) : [
      h("p", { class: "note" }, `${doc.operator}${doc.model ? `, ${doc.model}` : ""}. Mean ${number(doc.mean, doc.margin ? digits(doc.margin) : undefined)} over ${count(doc.count)}${parent ? `; its parent ${parent.id.slice(0, 8)} had ${number(parent.mean)}` : ""}. ${doc.usage.calls ? `${dollars(doc.usage.dollars)} for the request.` : ""}`),
      differences(seen), asked(doc), judged(doc, ctx)]);
}

// The path, step by step.

/** The operator of a step, with its island where that changed, and its further parents. */
function origin(doc, place, ctx) {
  const [island, before] = [doc.island[place], doc.parents[place] >= 0 ? doc.island[doc.parents[place]] : null];
  const others = doc.others[place];
  return [doc.operator[place], island === null ? null : h("span", { class: "note" }, before === null || before === island ? ` island ${island}` : ` island ${before} → ${island}`),
    others.length ? h("span", { class: "note" }, " with ", others.slice(0, 3).map((id, nth) => [nth ? ", " : "", idLink(ctx, id)]), others.length > 3 ? ` and ${others.length - 3} more` : "") : null];
}

function jump(doc, ctx) {
  const find = (event) => ctx.go({ to: event.target.value.trim(), all: "" });
  return h("div", { class: "toolbar" },
    h("label", { class: "field" }, "Path to", h("input", { type: "search", name: "to", placeholder: "first digits of an id", value: ctx.params.to || "", onchange: find })),
    doc.to !== doc.best && doc.best ? h("button", { type: "button", class: "button", onclick: () => ctx.go({ to: "", all: "" }) }, "Path to the best") : null);
}

const showAll = (doc, ctx) => h("button", { class: "more", type: "button", onclick: () => ctx.go({ all: "1" }, true) }, "show all");

const named = (doc) => (doc.to === doc.best ? "Path to the best" : `Path to ${doc.to.slice(0, 8)}`);

function steps(doc, ctx) {
  const aside = jump(doc, ctx);
  const unknown = doc.unknown ? h("p", { class: "note", role: "alert" }, `${doc.unknown[0].toUpperCase()}${doc.unknown.slice(1)}`) : null;
  if (!doc.path.length) return section("Path to the best", { wide: true, aside }, unknown, empty("Nothing has scored yet, so there is no best."));
  const places = decimals(doc.path.map((place) => doc.means[place]).filter((mean) => mean !== null));
  let last = null;
  const rows = doc.line.filter((item) => item.steps).map((item) => {
    const { node, note, added, removed } = item;
    if (node < 0) return h("tr", { class: "gap" }, h("td", { colspan: 9, class: "note" }, `${plural(item.steps, "step")} between `, showAll(doc, ctx)));
    const before = last;
    last = item;
    const now = doc.means[node];
    const was = before ? doc.means[before.node] : null;
    const since = (name, value) => (before ? value(item) - value(before) : value(item));
    const look = peek(() => pair(doc.ids[node], ctx).then(differences));
    return h("tr", { "data-key": `step-${doc.ids[node]}` },
      cell(item.step), h("td", {}, idLink(ctx, doc.ids[node])), cell(number(now, places)), cell(was === null || now === null ? "–" : signed(now - was, places)),
      cell(count(doc.counts[node])), cell(count(since("evaluations", (each) => doc.evaluations[each.node]))), cell(item.dollars === null ? "–" : dollars(since("dollars", (each) => each.dollars))), h("td", {}, origin(doc, node, ctx)),
      h("td", { class: "wrap" }, item.step ? h("button", { class: "more", type: "button", ...look, onclick: () => pick(doc.ids[node], ctx) }, !(added || removed) ? "the change" : `+${added} −${removed} lines`) : "", note ? ` ${note}` : ""));
  });
  const head = [th("step", { class: "num" }), th("id"), th("mean", { class: "num" }), th("gain", { class: "num" }), th("n", { class: "num" }), th("evaluations since", { class: "num" }), th("dollars since", { class: "num" }), th("operator"), th("what it changed")];
  const note = `From the initial program, following first parents. Since: what the whole search spent from the row before to this one. Point at what a step changed to see it.${doc.steps > doc.path.length ? ` Shown are ${doc.path.length} of ${doc.steps} steps: the largest changes, and those beside which most was tried.` : ""}`;
  return section(named(doc), { wide: true, note, aside }, unknown, table(named(doc), head, rows));
}

// The tree: the path as a spine, what was tried beside each step folded.

const [WIDE, HIGH] = [96, 18];

/** How many of the branches of a step had which score, and where the step itself stands. */
function shape(doc, item) {
  const most = Math.max(...item.shape, 0);
  if (!most) return null;
  const bar = WIDE / item.shape.length;
  const [low, high] = doc.domain;
  const at = (mean) => (WIDE * Math.max(0, Math.min(1, (mean - low) / (high - low)))).toFixed(1);
  const own = item.node >= 0 ? doc.means[item.node] : null;
  return s("svg", { class: "shape", width: WIDE, height: HIGH, role: "img", "aria-label": `Scores from ${number(low)} to ${number(high)}` },
    s("title", {}, `Scores of what was tried here, ${number(low)} to ${number(high)}${own === null ? "" : "; the line is the step's own"}`),
    item.shape.map((n, place) => (n ? s("rect", { x: (place * bar).toFixed(1), width: (bar - 0.6).toFixed(1), y: (HIGH * (1 - Math.sqrt(n / most))).toFixed(1), height: (HIGH * Math.sqrt(n / most)).toFixed(1) }) : null)),
    own === null ? null : s("line", { x1: at(own), x2: at(own), y1: 0, y2: HIGH }));
}

function tree(doc, ctx) {
  const reward = (mean) => (mean === null ? -Infinity : doc.direction === "min" ? -mean : mean);
  const fine = decimals(doc.means.filter((mean) => mean !== null));
  const path = new Set(doc.path.map((place) => doc.ids[place]));
  const onPath = new Set();
  for (let place = doc.ids.indexOf(doc.to); place >= 0; place = doc.parents[place]) onPath.add(doc.ids[place]);
  const candidates = (columns, of) => columns.ids.map((id, place) => ({ id, parent: of(place), mean: columns.means[place], failed: columns.failed[place], operator: columns.operator[place], island: columns.island[place], kids: columns.kids[place], size: columns.sizes[place], top: columns.tops[place], others: columns.others[place] }));
  const children = new Map();
  const add = (each) => (children.get(each.parent) || children.set(each.parent, new Map()).get(each.parent)).set(each.id, each);
  candidates(doc, (place) => (doc.parents[place] < 0 ? "" : doc.ids[doc.parents[place]])).filter(({ id }) => !onPath.has(id)).forEach(add);
  const asked = fetched.get(ctx.run) || fetched.set(ctx.run, new Map()).get(ctx.run);
  for (const [parent, found] of asked) for (const columns of found) candidates(columns, () => parent).filter(({ id }) => !onPath.has(id)).forEach(add);

  const branching = doc.line.filter((item) => item.branches && (item.node >= 0 || !item.steps));
  const idOf = (item) => (item.node >= 0 ? doc.ids[item.node] : "");
  const all = () => new Map(branching.map((item) => [idOf(item), SHOWN]));
  const mine = open.get(ctx.run) || open.set(ctx.run, doc.total <= SMALL ? all() : new Map()).get(ctx.run);
  const more = async (parent, total) => {
    const have = (children.get(parent) || new Map()).size;
    if (have < Math.min(total, (mine.get(parent) || 0) + SHOWN) && ctx.data.live) asked.set(parent, [...(asked.get(parent) || []), await ctx.get("lineage", { below: parent, to: doc.to, offset: have })]);
    mine.set(parent, (mine.get(parent) || 0) + (mine.has(parent) ? 50 : SHOWN));
    ctx.redraw();
  };
  const toggle = (parent, total) => { if (!mine.has(parent)) return more(parent, total); mine.delete(parent); return ctx.redraw(); };
  const fold = (parent, total, name) => (total ? h("button", { class: "fold", type: "button", "aria-expanded": String(mine.has(parent)), "aria-label": `${mine.has(parent) ? "Fold" : "Unfold"} ${name}`, onclick: () => toggle(parent, total) }, mine.has(parent) ? "▾" : "▸") : h("span", { class: "fold" }, ""));

  const branches = (parent, total, depth) => {
    const known = [...(children.get(parent) || new Map()).values()].sort((a, b) => reward(b.top) - reward(a.top));
    const shown = known.slice(0, mine.get(parent)).map((each) => node(each, depth));
    const left = total - shown.length;
    if (left > 0) shown.push(h("li", { "data-key": `more-${parent}` }, known.length > shown.length || ctx.data.live ? h("button", { class: "more", type: "button", onclick: () => more(parent, total) }, `${count(left)} more`) : h("p", { class: "note" }, `${count(left)} more are not in this report`)));
    return h("ul", { class: depth > DEEP ? "flat" : null }, shown);
  };
  const node = (each, depth) => {
    const text = each.mean === null ? (each.failed ? "failed" : "not evaluated") : number(each.mean, fine);
    const below = each.kids ? ` · ${plural(each.size - 1, "descendant")}, best ${number(each.top, fine)}` : "";
    return h("li", { "data-key": `node-${each.id}` },
      h("div", {}, fold(each.id, each.kids, each.id.slice(0, 8)), idLink(ctx, each.id), h("span", {}, text),
        h("span", { class: "note" }, depth > DEEP ? `level ${depth} · ` : "", each.operator, each.island === null ? "" : `, island ${each.island}`, each.others.length ? `, ${plural(each.others.length + 1, "parent")}` : "", below)),
      mine.has(each.id) ? branches(each.id, each.kids, depth + 1) : null);
  };
  const tried = (item) => (item.branches ? h("span", { class: "note beside" }, `${item.branches} ${item.branches === 1 ? "branch" : "branches"} · ${count(item.tried)} tried${item.top === null ? "" : `, best ${number(item.top, fine)}`}${item.lost ? `, ${count(item.lost)} without a score` : ""}`, shape(doc, item)) : null);
  const spine = doc.line.map((item) => {
    if (!item.steps) return h("li", { "data-key": "elsewhere" }, h("div", {}, fold("", item.branches, "what began elsewhere"), h("span", {}, "Began elsewhere"), tried(item)), mine.has("") ? branches("", item.branches, 1) : null);
    if (item.node < 0) return h("li", { class: "gap" }, h("div", {}, h("span", { class: "fold" }, "⋮"), h("span", { class: "note" }, plural(item.steps, "step")), showAll(doc, ctx), tried(item)));
    const id = idOf(item);
    return h("li", { class: "winning", "data-key": `node-${id}` },
      h("div", {}, fold(id, item.branches, id.slice(0, 8)), idLink(ctx, id), h("span", {}, doc.means[item.node] === null ? fate(doc, item.node) : number(doc.means[item.node], fine)), h("span", { class: "note" }, origin(doc, item.node, ctx)), tried(item)),
      mine.has(id) ? branches(id, item.branches, 1) : null);
  });
  const some = branching.some((item) => mine.has(idOf(item)));
  const switchAll = () => { open.set(ctx.run, some ? new Map() : all()); ctx.redraw(); };
  const aside = branching.length ? h("button", { type: "button", class: "button", onclick: switchAll }, some ? "Fold all" : "Unfold all") : null;
  const note = `${plural(doc.total, "candidate")}. In bold ${doc.to === doc.best ? "the path to the best" : `the path to ${doc.to.slice(0, 8)}`}; folded below each step, what was tried beside it, the best first, with its scores as bars.`;
  return section("Family tree", { wide: true, note, aside }, h("ul", { class: `tree ${path.size ? "spine" : ""}` }, spine));
}
