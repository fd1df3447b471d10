// Lineage: every candidate over the run, the path to the best among them, and the family tree to unfold.

import { codeBlock, diffBlock, languageOf } from "../code.js";
import { h } from "../dom.js";
import { familyPicture } from "../family.js";
import { count, decimals, dollars, number, plural, signed } from "../format.js";
import { cell, choice, empty, idLink, section, table, th } from "../parts.js";
import { asked, feedback, judged } from "./candidate.js";

export const title = "Lineage";
export const load = (ctx) => ctx.get("lineage", { to: ctx.params.to });

const SHOWN = 12; // children of one candidate before "more"
const open = new Map(); // run -> what a person unfolded: place -> how many children

export function view(doc, ctx) {
  if (!doc.ids.length) return empty("There is no candidate yet, so there is no family.");
  return h("div", { class: "stack" }, scene(doc, ctx), steps(doc, ctx), unfolded(doc, ctx), pane(ctx));
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

const COLOURS = ["score", "operator", "model", "island"];
const SCALE = ["#4575b4", "#5b9bc4", "#59b3a4", "#8fb84f", "#e0a93b", "#e2703a", "#d03050"]; // low to high reward

/** What the dots are coloured by: which group each is in, the groups' colours and names. */
function groups(doc, by, domain) {
  const lost = "var(--bad)";
  if (by === "score") {
    const share = (mean) => Math.max(0, Math.min(0.999, (mean - domain[0]) / (domain[1] - domain[0])));
    const good = (mean) => Math.floor(SCALE.length * (doc.direction === "min" ? 0.999 - share(mean) : share(mean)));
    return { of: (place) => (doc.means[place] === null ? SCALE.length : good(doc.means[place])), colours: [...SCALE, lost], names: ["worst", "", "", "", "", "", "best", "no score"] };
  }
  const places = by === "island" ? [...new Set(doc.island)].sort((a, b) => a - b) : null;
  const names = places ? places.map((island) => (island === null ? "no island" : `island ${island}`)) : doc[`${by}s`].map((name) => name || "none");
  const known = places && new Map(places.map((island, place) => [island, place]));
  return { of: (place) => (places ? known.get(doc.island[place]) : doc[by][place]), colours: names.map((_, place) => `var(--s${(place % 8) + 1})`), names };
}

function scene(doc, ctx) {
  const domain = range(doc.means, doc.direction);
  const by = COLOURS.includes(ctx.params.by) ? ctx.params.by : "score";
  const { of, colours, names } = groups(doc, by, domain);
  const failed = doc.means.filter((mean) => mean === null).length;
  const beyond = doc.means.filter((mean) => mean !== null && (mean < domain[0] || mean > domain[1])).length;
  const tell = (place) => [doc.ids[place], doc.means[place] === null ? (doc.failed[place] ? "failed" : "not evaluated") : `mean ${number(doc.means[place])} over ${plural(doc.counts[place], "evaluation")}`, doc.operators[doc.operator[place]]];
  const spec = { label: `Mean score of ${plural(doc.ids.length, "candidate")} in order of appearance, with the path to the best`, doc, domain, of, colours, tell, onpick: (place) => pick(doc.ids[place], ctx) };
  const note = [
    "Point at one to see its ancestors (orange) and descendants (green), click it to read it. Shift and the wheel, or + and −, come closer; drag to move; a double click shows all.",
    failed ? `${plural(failed, "candidate")} without a score ${failed === 1 ? "lies" : "lie"} at the foot.` : "",
    beyond ? `${plural(beyond, "candidate")} with a score far from the others ${beyond === 1 ? "lies" : "lie"} on the edge.` : "",
  ].filter(Boolean).join(" ");
  const key = names.map((name, place) => (name ? h("span", {}, h("i", { style: { background: colours[place] } }), name) : h("i", { style: { background: colours[place] } })));
  const aside = choice("Colour by", COLOURS.map((name) => [name, name]), by, (name) => ctx.go({ by: name }, true));
  return section("All candidates", { wide: true, note, aside }, familyPicture(spec), h("p", { class: "family-key note" }, key));
}

// What a person looks at beside the picture: run -> {doc, parent} or {fault}.
const picked = new Map();

async function pick(id, ctx) {
  try {
    const doc = await ctx.get("candidate", { id });
    const parent = doc.parents.length && ctx.data.holds(doc.parents[0]) ? await ctx.get("candidate", { id: doc.parents[0] }) : null;
    picked.set(ctx.run, { id, doc, parent });
  } catch (error) {
    picked.set(ctx.run, { id, fault: `${error.message} ${error.next || ""}` });
  }
  ctx.redraw();
}

function pane(ctx) {
  const seen = picked.get(ctx.run);
  if (!seen) return null;
  const close = () => { picked.delete(ctx.run); ctx.redraw(); };
  const { doc, parent, fault } = seen;
  return h("aside", { class: "pane", "aria-label": `Candidate ${seen.id}`, "data-key": `pane-${seen.id}`, onkeydown: (event) => event.key === "Escape" && close() },
    h("header", { class: "card-head" }, h("h2", {}, idLink(ctx, seen.id, seen.id)), h("button", { type: "button", class: "button", onclick: close }, "Close")),
    fault ? empty(fault) : [
      h("p", { class: "note" }, `${doc.operator}${doc.model ? `, ${doc.model}` : ""}. Mean ${number(doc.mean)} over ${count(doc.count)}${parent ? `; its parent ${parent.id.slice(0, 8)} had ${number(parent.mean)}` : ""}. ${doc.usage.calls ? `${dollars(doc.usage.dollars)} for the request.` : ""}`),
      Object.entries(doc.parts).map(([name, text]) => [h("h3", {}, name), h("div", { class: "boxed" }, parent ? diffBlock(parent.parts[name] || "", text, languageOf(name, doc.language), `Change of ${name}`) : codeBlock(text, languageOf(name, doc.language), `Text of ${name}`))]),
      asked(doc), judged(doc), feedback(doc)]);
}

function steps(doc, ctx) {
  if (!doc.path.length) return section("Path to the best", { wide: true }, empty("Nothing has scored yet, so there is no best."));
  const places = decimals(doc.path.map((place) => doc.means[place]).filter((mean) => mean !== null));
  const sign = doc.direction === "min" ? -1 : 1;
  const rows = doc.path.map((place, step) => {
    const [before, now] = [step ? doc.means[doc.path[step - 1]] : null, doc.means[place]];
    const { note, added, removed, dollars: paid } = doc.story[step];
    const spent = step ? paid - doc.story[step - 1].dollars : paid;
    const tried = step ? doc.evaluations[place] - doc.evaluations[doc.path[step - 1]] : doc.evaluations[place];
    return h("tr", {},
      cell(step), h("td", {}, idLink(ctx, doc.ids[place])), cell(number(now, places)), cell(before === null || now === null ? "–" : signed(sign * (now - before), places)),
      cell(count(doc.counts[place])), cell(count(tried)), cell(dollars(spent)), h("td", {}, doc.operators[doc.operator[place]]),
      h("td", { class: "wrap" }, step ? h("button", { class: "more", type: "button", onclick: () => pick(doc.ids[place], ctx) }, `+${added} −${removed} lines`) : "", note ? ` ${note}` : ""));
  });
  const head = [th("step", { class: "num" }), th("id"), th("mean", { class: "num" }), th("gain", { class: "num" }), th("n", { class: "num" }), th("evaluations since", { class: "num" }), th("dollars since", { class: "num" }), th("operator"), th("what it changed")];
  return section("Path to the best", { wide: true, note: "From the initial program, following first parents. Since: what the whole search spent from the step before to this one." }, table("Path to the best", head, rows));
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
