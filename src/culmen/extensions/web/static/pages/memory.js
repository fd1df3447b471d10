// Memory: what the strategy keeps, as far as its notes and embeddings tell.

import { chart } from "../chart.js";
import { h, s } from "../dom.js";
import { count, decimals, number, percent, plural, words } from "../format.js";
import { json } from "../message.js";
import { extent } from "../scale.js";
import * as mechanism from "./mechanism.js";
import { cell, condition, empty, facts, idLink, section, table, th } from "../parts.js";

export const title = "Memory";

export async function load(ctx) {
  const [doc, numbers] = await Promise.all([ctx.get("memory"), ctx.get("mechanism")]);
  return { ...doc, numbers };
}

const PANELS = { map, grid, islands, front, facts: told, list };

export function view(doc, ctx) {
  if (!doc.panels.length) {
    const why = doc.notes.length ? "Its notes hold numbers only." : "It has left no notes so far.";
    return h("div", { class: "stack" }, condition(doc.condition), empty(`This strategy does not tell what it keeps. ${why}`), noted(doc));
  }
  const grids = doc.panels.filter((panel) => panel.kind === "grid");
  const rest = doc.panels.filter((panel) => panel.kind !== "grid");
  return h("div", { class: "stack" },
    condition(doc.condition),
    rest.filter((panel) => panel.kind === "islands").map((panel) => islands(panel, doc, ctx)),
    grids.length ? gridSection(grids, doc, ctx) : null,
    rest.filter((panel) => panel.kind !== "islands").map((panel) => PANELS[panel.kind](panel, doc, ctx)), noted(doc));
}

/** The numbers it notes about itself, folded. */
const noted = ({ numbers }) => (numbers.plots.length ? h("details", { class: "card rest", "data-key": "numbers" }, h("summary", {}, h("h2", {}, mechanism.title), h("span", { class: "note" }, "every number the strategy notes about itself")), mechanism.view({ ...numbers, condition: [] })) : null);

function islands(panel) {
  const best = decimals(panel.rows.flatMap((row) => [row.best, row.quality]).filter((value) => typeof value === "number"));
  const rows = panel.rows.map((row) => h("tr", {}, cell(row.island), cell(count(row.requests)), cell(count(row.cells)), cell(number(row.quality, best)), cell(number(row.best, best)), cell(row.k ?? "–")));
  const head = ["island", "requests", "cells taken", "mean reward", "best reward", "K next"].map((text) => th(text, { class: "num" }));
  return section("Islands", { wide: true, note: "Rewards: higher is better, whatever the task's direction." }, table("Islands", head, rows));
}

function gridSection(grids, doc, ctx) {
  const rewards = grids.flatMap((panel) => panel.cells.map((each) => each.reward));
  const span = [Math.min(...rewards), Math.max(...rewards)];
  const more = grids[0].dimensions > 2 ? ` The grid has ${grids[0].dimensions} dimensions; the best over the others is shown.` : "";
  const note = `The best reward noted in each cell, ${number(span[0])} (pale) to ${number(span[1])} (deep). The layout follows the values noted so far.${more}`;
  return section(grids.length > 1 ? "Grids" : "Grid", { wide: true, note }, h("div", { class: "plots" }, grids.map((panel) => grid(panel, doc, ctx, span, grids.length > 1))));
}

/** One grid: a rectangle a cell, deeper for higher rewards; a link to the occupant. */
function grid(panel, doc, ctx, span, several) {
  const size = 24;
  const left = 44;
  const { bins, axes } = panel;
  const [width, height] = [left + bins * size, bins * size];
  const deep = (reward) => 12 + 88 * (span[1] > span[0] ? (reward - span[0]) / (span[1] - span[0]) : 1);
  const place = ([x, y = 0]) => [left + x * size, height - (y + 1) * size];
  const squares = panel.cells.map((each) => {
    const [x, y] = place(each.at);
    const text = `${each.id}: reward ${number(each.reward)}, ${plural(each.offers, "candidate")} offered`;
    return s("a", { href: ctx.href("candidate", { id: each.id }), "aria-label": text },
      s("rect", { x, y, width: size - 2, height: size - 2, rx: 3, fill: `color-mix(in oklab, var(--s1) ${deep(each.reward).toFixed(0)}%, var(--sunken))`, class: each.id === doc.best ? "best" : null }, s("title", {}, text)));
  });
  const empties = Array.from({ length: bins * (axes.length > 1 ? bins : 1) }, (_, i) => place([i % bins, Math.floor(i / bins)]))
    .map(([x, y]) => s("rect", { class: "void", x, y, width: size - 2, height: size - 2, rx: 3 }));
  const label = `${panel.title}: ${panel.cells.length} of ${bins ** Math.min(2, axes.length)} cells taken`;
  const [ax, ay] = axes;
  return h("figure", { class: "cells" },
    h("h3", {}, several ? panel.title.replace("Grid of i", "I") : null, h("span", { class: "note" }, ` ${plural(panel.cells.length, "cell")} taken`)),
    s("svg", { viewBox: `0 0 ${width} ${height + 26}`, role: "group", "aria-label": label },
      empties, squares,
      s("text", { x: left, y: height + 16 }, brief(ax.low)),
      s("text", { x: width - 2, y: height + 16, "text-anchor": "end" }, brief(ax.high)),
      s("text", { x: (left + width) / 2, y: height + 16, "text-anchor": "middle" }, ax.name),
      ay ? [s("text", { x: left - 6, y: height - 4, "text-anchor": "end" }, brief(ay.low)), s("text", { x: left - 6, y: 12, "text-anchor": "end" }, brief(ay.high)),
        s("text", { transform: `translate(10 ${height / 2}) rotate(-90)`, "text-anchor": "middle" }, ay.name)] : null));
}

const brief = (value) => number(Number(value.toPrecision(3)));

function map(panel, doc, ctx) {
  const all = panel.ids.map((_, place) => place);
  const scored = all.filter((place) => panel.means[place] !== null);
  const means = scored.map((place) => panel.means[place]);
  const ordered = [...means].sort((a, b) => (doc.direction === "min" ? b - a : a - b));
  const bounds = [1, 2].map((third) => ordered[Math.floor((third * ordered.length) / 3)]);
  const better = (mean, bound) => (doc.direction === "min" ? mean <= bound : mean >= bound);
  const at = (place) => [panel.x[place], panel.y[place]];
  const tell = (place) => [panel.ids[place], panel.means[place] === null ? (panel.seen[place] ? "failed" : "never evaluated") : `mean ${number(panel.means[place])}`];
  const group = (name, places, ink, size) => ({ name, kind: "dots", size, points: places.map(at), tips: (i) => tell(places[i]), picks: (i) => panel.ids[places[i]], colour: ink });
  const best = all.filter((place) => panel.ids[place] === doc.best);
  const thirds = [[], [], []];
  for (const place of scored) thirds[bounds.filter((bound) => better(panel.means[place], bound)).length].push(place);
  const size = panel.ids.length > 3000 ? 3 : 6;
  const spec = {
    label: `${plural(panel.ids.length, "embedded candidate")} in the plane of their two main components`,
    height: 420,
    x: { label: `first component, ${percent(panel.explained[0])} of the spread`, unit: "plain", domain: room(panel.x) },
    y: { label: `second component, ${percent(panel.explained[1])} of the spread`, unit: "plain", domain: room(panel.y) },
    onpick: (id) => { location.hash = ctx.href("candidate", { id }); },
    series: [
      group("never evaluated", all.filter((place) => !panel.seen[place]), "var(--strong-line)", size - 1),
      group("failed", all.filter((place) => panel.seen[place] && panel.means[place] === null), "var(--s7)", size - 1),
      group("worst third", thirds[0], "color-mix(in oklab, var(--s1) 30%, var(--surface))", size),
      group("middle third", thirds[1], "color-mix(in oklab, var(--s1) 60%, var(--surface))", size),
      group("best third", thirds[2], "var(--s1)", size),
      group("the best", best, "var(--s2)", size + 5),
    ].filter((each) => each.points.length),
  };
  const net = panel.net;
  const some = panel.total > panel.ids.length ? `${count(panel.ids.length)} of ${count(panel.total)}, evenly spread over the run. ` : "";
  const note = some + "By PCA: neighbours in this plane may still be far apart in the full space. Those never evaluated were refused by the filter, or still wait.";
  return section(panel.title, { wide: true, note }, chart(spec), net ? facts(Object.entries(net).map(([name, value]) => [words(name), number(value)])) : null);
}

function room(values) {
  const [low, high] = extent(values, 0);
  const air = (high - low) * 0.06 || 0.1;
  return [low - air, high + air];
}

function front(panel, doc, ctx) {
  const every = panel.rows.flatMap((row) => row.means).filter((mean) => mean !== null && mean !== undefined);
  const [low, high] = [Math.min(...every), Math.max(...every)];
  const shade = (mean) => {
    const share = high > low ? (mean - low) / (high - low) : 1;
    return 8 + 72 * (doc.direction === "min" ? 1 - share : share);
  };
  const rows = panel.rows.map((row) => h("tr", {}, h("td", {}, idLink(ctx, row.id)), cell(count(row.leads)),
    row.means.map((mean, place) => (mean === null || mean === undefined
      ? h("td", { title: `${panel.cases[place] || "score"}: not scored` }, "")
      : h("td", { class: "cell", title: `${panel.cases[place] || "score"}: ${number(mean)}`, style: { background: `color-mix(in oklab, var(--s1) ${shade(mean).toFixed(0)}%, var(--surface))` } }, h("span", { class: "hidden" }, number(mean)))))));
  const note = `Candidates that lead on at least one case and are not dominated; ${count(panel.members)} candidates were scored on all of them. Deeper is better; point at a field for its value.`;
  return section(panel.title, { wide: true, note }, table("Pareto front", [th("id"), th("leads on", { class: "num" }), panel.cases.map((name, place) => th(String(place + 1), { title: name }))], rows, { class: "heat" }));
}

function told(panel) {
  return section(`Newest note: ${words(panel.title)}`, { wide: true }, facts(Object.entries(panel.facts).map(([name, value]) => [words(name), typeof value === "number" ? number(value) : value === null ? "none" : String(value)])));
}

function list(panel, doc, ctx) {
  const columns = [...new Set(panel.rows.slice(0, 50).flatMap((row) => Object.keys(row)))].slice(0, 10);
  const one = (row, name) => {
    const value = row[name];
    if (typeof value === "number") return cell(number(value));
    if (name === "id" && /^[0-9a-f]{12}$/.test(String(value))) return h("td", {}, idLink(ctx, value));
    return h("td", { class: "wrap" }, value === null || value === undefined ? "" : typeof value === "object" ? json(value, undefined, 2) : String(value));
  };
  const rows = panel.rows.map((row) => h("tr", {}, columns.map((name) => one(row, name))));
  const more = panel.count > panel.rows.length ? `The first ${panel.rows.length} of ${panel.count}.` : null;
  return section(words(panel.title), { wide: true, note: more }, table(panel.title, columns.map((name) => th(words(name), { class: typeof panel.rows[0][name] === "number" ? "num" : null })), rows));
}

