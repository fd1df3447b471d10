// Report: a run on one page. Claim, curve, story, evidence, cost, and how to make it again.

import { h } from "../dom.js";
import { copyButton, empty, facts, section } from "../parts.js";
import { front } from "../front.js";
import { drawings, progress, verdict } from "./overview.js";
import { stepsInShort } from "./story.js";

export const title = "Report";
const LOW = 175; // pixels that a chart is high, so that the page stays one

export async function load(ctx) {
  const [doc, told] = await Promise.all([ctx.get("overview"), ctx.get("report")]);
  return { ...doc, told };
}

export function view(doc, ctx) {
  return h("div", { class: "stack one-page" }, verdict(doc, ctx, true), curve(doc, ctx), stepsInShort(doc, ctx), drawings(doc), pairs("Evidence", doc.told.evidence, "lines"), pairs("What it cost", doc.told.cost), reproduce(doc));
}

function curve(doc, ctx) {
  if (doc.front) return front(doc.front, ctx, LOW);
  return doc.state === "failed" && !doc.best ? null : progress(doc, ctx, LOW);
}

const pairs = (name, found, look = "") => section(name, { wide: true }, found.length ? look ? h("div", { class: look }, facts(found)) : facts(found) : empty("Nothing was evaluated yet."));

function reproduce(doc) {
  const { reproduce: steps, made_with: made } = doc.told;
  return section("How to reproduce it", { wide: true, aside: h("span", { class: "note" }, made) },
    h("ul", { class: "commands" }, steps.map(([purpose, command]) => h("li", {}, h("span", { class: "note" }, purpose), h("code", {}, command), copyButton(command)))));
}
