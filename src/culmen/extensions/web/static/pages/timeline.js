// Timeline: what ran side by side, and where nothing ran.

import { chart, colour } from "../chart.js";
import { h, s } from "../dom.js";
import { clock, count, duration, percent, plural } from "../format.js";
import { cell, empty, facts, section, table, th } from "../parts.js";

export const title = "Timeline";
export const load = (ctx) => ctx.get("timeline", { from: ctx.params.from, to: ctx.params.to });

const LANE = 12;
const WIDTH = 1000;

export function view(doc, ctx) {
  if (!doc.count && doc.whole === 0) return empty("Nothing has run yet: the line begins with the first effect.");
  return h("div", { class: "stack" }, inShort(doc, ctx), load_(doc), lanes(doc, ctx), gaps(doc, ctx));
}

function inShort(doc, ctx) {
  const part = doc.from > 0 || doc.to < doc.whole;
  const middle = (doc.from + doc.to) / 2;
  const half = (doc.to - doc.from) / 2;
  const zoom = (from, to) => () => ctx.go({ from: from <= 0 ? "" : from.toFixed(2), to: to >= doc.whole ? "" : to.toFixed(2) }, true);
  const button = (text, from, to, able) => h("button", { class: "button", type: "button", disabled: !able, onclick: zoom(from, to) }, text);
  const aside = ctx.data.live && h("div", { class: "actions", role: "group", "aria-label": "Which part is shown" },
    button("Earlier", Math.max(0, doc.from - half), Math.max(0, doc.from - half) + 2 * half, doc.from > 0),
    button("Later", Math.min(doc.whole - 2 * half, doc.from + half), Math.min(doc.whole, doc.to + half), doc.to < doc.whole),
    button("Closer", middle - half / 2, middle + half / 2, half > 0.5),
    button("Wider", Math.max(0, middle - 2 * half), Math.min(doc.whole, middle + 2 * half), part),
    button("Whole run", 0, doc.whole, part));
  return section(part ? `${clock(doc.from)} to ${clock(doc.to)}` : "Whole run", { wide: true, aside, note: `In active seconds: a paused run uses none.${ctx.data.live ? "" : " A report shows the whole run; culmen ui shows any part of it."}` }, facts([
    ["shown", duration(doc.to - doc.from)],
    ["effects", count(doc.count)],
    ["workers", count(doc.workers)],
    ["workers busy", percent(doc.busy)],
    ["times without an evaluation", doc.gaps.count ? `${count(doc.gaps.count)}, ${duration(doc.gaps.seconds)} together` : "none"],
    ["sessions", count(Math.max(1, doc.sessions.length - 1))],
  ]));
}

function load_(doc) {
  const { edges, kinds } = doc.load;
  const middle = edges.slice(0, -1).map((edge, place) => (edge + edges[place + 1]) / 2);
  const spec = {
    label: "Mean number of effects in flight over time, by kind",
    height: 240,
    x: { label: "active time", unit: "seconds", domain: [doc.from, doc.to] },
    y: { label: "in flight", unit: "plain", domain: [0, Math.max(doc.workers, ...Object.values(kinds).flat()) * 1.1] },
    series: doc.kinds.map((kind, place) => ({ name: kind, kind: "line", points: middle.map((x, i) => [x, kinds[kind][i]]), colour: colour(place) })),
    refs: doc.kinds.includes("evaluate") ? [{ label: "workers", value: doc.workers }] : [],
  };
  return section("In flight", { wide: true }, doc.kinds.length ? chart(spec) : empty("Nothing ran in this time."));
}

function lanes(doc, ctx) {
  if (doc.count > doc.drawn) {
    return section("One by one", { wide: true }, empty(`${plural(doc.count, "effect")} lie in this time; up to ${count(doc.drawn)} are drawn one by one. ${ctx.data.live ? "Look closer to see them." : "culmen ui shows them part by part."}`));
  }
  if (!doc.spans.length) return section("One by one", { wide: true }, empty("Nothing ran in this time."));
  const x = (time) => 90 + ((time - doc.from) / (doc.to - doc.from || 1)) * (WIDTH - 90);
  let top = 4;
  const groups = doc.kinds.map((kind, place) => {
    const spans = doc.spans.filter((span) => span.effect === kind);
    const height = (1 + Math.max(0, ...spans.map((span) => span.lane))) * LANE;
    const group = s("g", {},
      s("text", { x: 0, y: top + Math.min(height / 2 + 4, 14) }, kind),
      spans.map((span) => s("rect", {
        class: span.how, x: x(Math.max(span.from, doc.from)), y: top + span.lane * LANE, height: LANE - 2, fill: colour(place),
        width: Math.max(1, x(Math.min(span.to, doc.to)) - x(Math.max(span.from, doc.from))),
      }, s("title", {}, `${kind} #${span.key}, ${clock(span.from)} to ${clock(span.to)} (${duration(span.to - span.from)}), ${span.how}`))));
    top += height + 12;
    return group;
  });
  const label = `${plural(doc.spans.length, "effect")} between ${clock(doc.from)} and ${clock(doc.to)}, those at the same time below one another`;
  return section("One by one", { wide: true, note: "Each bar is one effect. Pale ones were abandoned or cut off." },
    h("div", { class: "lanes" }, s("svg", { viewBox: `0 0 ${WIDTH} ${top}`, width: "100%", role: "img", "aria-label": label }, groups)));
}

function gaps(doc, ctx) {
  if (!doc.gaps.longest.length) return section("Without an evaluation", { wide: true }, empty("There was always one running."));
  const rows = doc.gaps.longest.map((gap) => h("tr", {}, cell(clock(gap.from)), cell(clock(gap.to)), cell(duration(gap.to - gap.from)),
    h("td", {}, ctx.data.live && h("a", { href: ctx.href("timeline", { from: Math.max(0, gap.from - (gap.to - gap.from)).toFixed(2), to: (gap.to + (gap.to - gap.from)).toFixed(2) }) }, "look"))));
  return section("Without an evaluation", { wide: true, note: "The longest times in which no candidate was evaluated: models were waited for, or nothing was asked." },
    table("Times without an evaluation", [th("from", { class: "num" }), th("to", { class: "num" }), th("how long", { class: "num" }), th("")], rows));
}
