// Lineage: every candidate over the run, the path to the best among them, and the family tree to unfold.

import { chart } from "../chart.js";
import { h } from "../dom.js";
import { count, decimals, number, plural, signed } from "../format.js";
import { cell, empty, idLink, section, table, th } from "../parts.js";

export const title = "Lineage";
export const load = (ctx) => ctx.get("lineage", { to: ctx.params.to });

const SHOWN = 12; // children of one candidate before "more"
const open = new Map(); // run -> what a person unfolded: place -> how many children

export function view(doc, ctx) {
  if (!doc.ids.length) return empty("There is no candidate yet, so there is no family.");
  return h("div", { class: "stack" }, scene(doc, ctx), steps(doc, ctx), unfolded(doc, ctx));
}

/** The range most scores lie in: a few terrible ones would flatten all others. */
function range(means, direction) {
  const sorted = means.filter((mean) => mean !== null).sort((a, b) => a - b);
  if (!sorted.length) return [0, 1];
  const cut = sorted.length > 20 ? Math.floor(sorted.length * 0.04) : 0;
  const [low, high] = direction === "min" ? [sorted[0], sorted[sorted.length - 1 - cut]] : [sorted[cut], sorted.at(-1)];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 0.5;
  return [low - room, high + room];
}

function scene(doc, ctx) {
  const scored = doc.ids.map((_, place) => place).filter((place) => doc.means[place] !== null);
  if (!scored.length) return section("Scores of all candidates", { wide: true }, empty("Nothing has scored yet."));
  const domain = range(doc.means, doc.direction);
  const inside = (mean) => Math.max(domain[0], Math.min(domain[1], mean));
  const at = (place) => [place + 1, inside(doc.means[place])];
  const links = scored.filter((place) => doc.parents[place] >= 0 && doc.means[doc.parents[place]] !== null).flatMap((place) => [at(doc.parents[place]), at(place)]);
  const path = doc.path.filter((place) => doc.means[place] !== null);
  const tell = (place) => [doc.ids[place], `mean ${number(doc.means[place])} over ${plural(doc.counts[place], "evaluation")}`, doc.operators[doc.operator[place]]];
  const beyond = scored.filter((place) => doc.means[place] < domain[0] || doc.means[place] > domain[1]).length;
  const spec = {
    label: `Mean score of ${plural(scored.length, "candidate")} in order of appearance, with lines from parents to children`,
    height: 380,
    x: { label: "candidate, in order of appearance", unit: "count", domain: [0, doc.ids.length + 1] },
    y: { label: "mean score", domain },
    onpick: (id) => { location.hash = ctx.href("candidate", { id }); },
    series: [
      { kind: "links", points: links, colour: "var(--s8)", hidden: true },
      { name: "candidates", kind: "dots", faint: scored.length > 400, size: scored.length > 4000 ? 2.5 : 5, points: scored.map(at), tips: (i) => tell(scored[i]), picks: (i) => doc.ids[scored[i]], colour: "var(--s8)" },
      { kind: "line", points: path.map(at), colour: "var(--s1)", hidden: true },
      { name: "path to the best", kind: "dots", size: 8, points: path.map(at), tips: (i) => tell(path[i]), picks: (i) => doc.ids[path[i]], colour: "var(--s1)" },
    ],
  };
  const failed = doc.ids.length - scored.length;
  const note = [
    failed ? `${plural(failed, "candidate")} without a score ${failed === 1 ? "is" : "are"} not drawn.` : "",
    beyond ? `${plural(beyond, "candidate")} with a score far from the others ${beyond === 1 ? "lies" : "lie"} on the edge.` : "",
  ].filter(Boolean).join(" ");
  return section("Scores of all candidates", { wide: true, note: note || null }, chart(spec));
}

function steps(doc, ctx) {
  if (!doc.path.length) return section("Path to the best", { wide: true }, empty("Nothing has scored yet, so there is no best."));
  const places = decimals(doc.path.map((place) => doc.means[place]).filter((mean) => mean !== null));
  const sign = doc.direction === "min" ? -1 : 1;
  const rows = doc.path.map((place, step) => {
    const before = step ? doc.means[doc.path[step - 1]] : null;
    const now = doc.means[place];
    return h("tr", {},
      cell(step), h("td", {}, idLink(ctx, doc.ids[place])), cell(number(now, places)), cell(before === null || now === null ? "–" : signed(sign * (now - before), places)),
      cell(count(doc.counts[place])), cell(count(doc.evaluations[place])), h("td", {}, doc.operators[doc.operator[place]]),
      h("td", {}, step ? h("a", { href: ctx.href("candidate", { id: doc.ids[place], against: "parent" }) }, "what changed") : ""));
  });
  const head = [th("step", { class: "num" }), th("id"), th("mean", { class: "num" }), th("gain", { class: "num" }), th("n", { class: "num" }), th("after evaluations", { class: "num" }), th("operator"), th("")];
  return section("Path to the best", { wide: true, note: "From the seed, following first parents." }, table("Path to the best", head, rows));
}

function unfolded(doc, ctx) {
  const children = new Map();
  doc.parents.forEach((parent, place) => children.set(parent, [...(children.get(parent) || []), place]));
  const reward = (mean) => (mean === null ? -Infinity : doc.direction === "min" ? -mean : mean);
  const best = doc.means.map(reward); // of a candidate and all that came of it
  const size = doc.ids.map(() => 1);
  for (let place = doc.ids.length - 1; place >= 0; place -= 1) {
    const parent = doc.parents[place];
    if (parent < 0) continue;
    best[parent] = Math.max(best[parent], best[place]);
    size[parent] += size[place];
  }
  const fine = decimals(doc.means.filter((mean) => mean !== null).slice(0, 2000));
  const winning = new Set(doc.path);
  const mine = open.get(ctx.run) || open.set(ctx.run, new Map(doc.path.map((place) => [place, SHOWN]))).get(ctx.run);
  const toggle = (place) => { mine.has(place) ? mine.delete(place) : mine.set(place, SHOWN); ctx.redraw(); };
  const more = (place) => { mine.set(place, (mine.get(place) || SHOWN) + 50); ctx.redraw(); };
  const branch = (parent) => {
    const all = [...(children.get(parent) || [])].sort((a, b) => (winning.has(b) - winning.has(a)) || best[b] - best[a] || a - b);
    const shown = mine.get(parent) || SHOWN;
    const items = all.slice(0, shown).map((place) => node(place));
    if (all.length > shown) items.push(h("li", {}, h("button", { class: "more", type: "button", onclick: () => more(parent) }, `${count(all.length - shown)} more`)));
    return items;
  };
  const node = (place) => {
    const kids = (children.get(place) || []).length;
    const shown = kids && mine.has(place);
    return h("li", { class: winning.has(place) ? "winning" : null, "data-key": `node-${place}` },
      h("div", {},
        kids ? h("button", { class: "fold", type: "button", "aria-expanded": String(Boolean(shown)), "aria-label": `${shown ? "Fold" : "Unfold"} ${doc.ids[place].slice(0, 8)}`, onclick: () => toggle(place) }, shown ? "▾" : "▸") : h("span", { class: "fold" }, ""),
        idLink(ctx, doc.ids[place]),
        h("span", {}, doc.means[place] === null ? (doc.failed[place] ? "failed" : "not evaluated") : number(doc.means[place], fine)),
        h("span", { class: "note" }, doc.operators[doc.operator[place]], kids ? ` · ${plural(size[place] - 1, "descendant")}` : "")),
      shown ? h("ul", {}, branch(place)) : null);
  };
  return section("Family tree", { wide: true, note: "Children in the order of the best that came of them." }, h("ul", { class: "tree" }, branch(-1)));
}
