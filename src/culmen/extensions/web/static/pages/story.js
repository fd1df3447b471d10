// Story: the steps that made the gain, what mattered, what was tried in vain, and what the best changed in the end.

import { changed, diffBlock, languageOf, patchBlock } from "../code.js";
import { h } from "../dom.js";
import { plural, typeset, words } from "../format.js";
import { empty, idLink, peek, section } from "../parts.js";
import { factors } from "./factors.js";

export const title = "Story";

export async function load(ctx) {
  const [doc, mattered] = await Promise.all([ctx.get("overview"), ctx.get("factors")]);
  return { ...doc, mattered };
}

export function view(doc, ctx) {
  if (!doc.best && !doc.story.vain.length) return empty("Nothing has scored yet: there is no story before the first score.");
  return h("div", { class: "stack" }, story(doc, ctx), factors(doc.mattered), vain(doc, ctx), change(doc, ctx));
}

/** The steps that made the gain, each with its change. */
function story(doc, ctx) {
  const told = doc.story;
  return section(STEPS, { wide: true, key: "story", note: typeset(told.line) || null },
    told.why ? h("p", {}, sentence(told.why)) : null,
    list(told, (each) => [
      h("p", { class: "step-head" }, gained(each)),
      h("p", {}, each.sentence),
      h("p", { class: "note" }, idLink(ctx, each.id), " · ", each.facts.slice(1, -1).map((fact) => `${typeset(fact)} · `), `after ${each.cost}`),
      each.change ? h("details", {}, h("summary", peek(() => patchBlock(each.change, `Change of step ${each.number}`, prose(doc))), "The change"), h("div", { class: "boxed" }, patchBlock(each.change, `Change of step ${each.number}`, prose(doc)))) : null]),
    told.notes.map((each) => h("p", { class: "note" }, typeset(each))));
}

/** A reason as a sentence of its own. */
export const sentence = (why) => `${why[0].toUpperCase()}${why.slice(1)}.`;

const prose = (doc) => Boolean(doc.change) && doc.change.language === "text";

const STEPS = "Steps that made the gain";

/** The same steps in a line each. */
export const steps = (doc, ctx) => list(doc.story, (each) => h("p", { class: "step-head" }, gained(each), h("span", {}, each.sentence), idLink(ctx, each.id), h("span", { class: "note", "data-role": "qualified" }, each.facts.slice(each.way === null ? 1 : 2, -1).join(" · "))), "short");

/** They as a section of their own, for the first page of a report. */
export const stepsInShort = (doc, ctx) => (doc.story.steps.length ? section(STEPS, { wide: true, key: "story" }, steps(doc, ctx)) : null);

function list(told, body, look = "") {
  if (!told.steps.length) return null;
  return h("ol", { class: `story ${look}`, "aria-label": STEPS }, told.steps.map((each) => h("li", { "data-key": each.id },
    h("span", { class: "step-number", "aria-hidden": "true" }, String(each.number)), h("div", { class: "step-body" }, body(each)))));
}

/** Its gain, and its share of the whole as a bar and in words. */
const gained = (each) => [
  h("strong", {}, typeset(each.gained)),
  h("span", { class: "step-bar", title: each.facts[0] }, h("span", { style: { width: `${(100 * Math.max(0, Math.min(1, each.share))).toFixed(1)}%` } })),
  h("span", { class: "note" }, each.facts[0])];

function vain(doc, ctx) {
  const tried = doc.story.vain.map((each) => h("li", {}, h("strong", {}, words(each.name)), h("span", { class: "note" }, ` ${typeset(each.words)}`, each.id ? [" ", idLink(ctx, each.id)] : null), each.sentence ? h("p", {}, each.sentence) : null));
  return tried.length ? section("Tried in vain", { wide: true, key: "vain" }, h("ul", { class: "vain", "aria-label": "Tried in vain" }, tried)) : null;
}

/** What the best candidate changed of the initial program. */
function change(doc, ctx) {
  const found = doc.change;
  if (!found) return null;
  const more = h("a", { href: ctx.href("candidate", { id: found.to, against: found.from }) }, "All of it, and how it was judged");
  const parts = Object.entries(found.parts).map(([name, { before, after }]) => {
    const [added, removed] = changed(before, after);
    return h("details", { open: added + removed <= SHORT }, h("summary", {}, name, h("span", { class: "note" }, `${plural(added, "line")} added, ${removed} removed`)),
      h("div", { class: "boxed" }, diffBlock(before, after, languageOf(name, found.language), `Change of ${name}`)));
  });
  return section("What changed in the best", { wide: true, aside: more, note: `From the initial program ${found.from.slice(0, 8)} to ${found.to.slice(0, 8)}.` }, parts.length ? parts : empty("Its texts are too long to be shown here."));
}

const SHORT = 60; // changed lines of a part that is shown at once
