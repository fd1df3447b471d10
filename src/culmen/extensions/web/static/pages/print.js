// A run on paper: page one, how it got there, and an appendix of all other pages; nothing to press, and the first rows of what has no end.

import { h } from "../dom.js";
import { empty, section } from "../parts.js";
import * as calls from "./calls.js";
import * as candidate from "./candidate.js";
import * as candidates from "./candidates.js";
import * as lineage from "./lineage.js";
import * as mechanism from "./mechanism.js";
import * as memory from "./memory.js";
import { about } from "./overview.js";
import * as report from "./report.js";
import * as sessions from "./sessions.js";
import * as story from "./story.js";
import * as timeline from "./timeline.js";
import * as trust from "./trust.js";

export const title = "On paper";
const ROWS = 40;
const FIRST = [report, story];
const APPENDIX = [candidate, trust, candidates, lineage, memory, mechanism, sessions, calls, timeline];
const PAGES = [...FIRST, ...APPENDIX];

/** Links of paper lead nowhere, and would tell where the file lay. */
const onPaper = (ctx, page) => ({ ...ctx, params: page === candidates ? { limit: ROWS } : {}, href: () => null, to: () => null });

const heading = (page) => ({ [story.title]: "How it got there", [candidate.title]: "Best candidate" })[page.title] || page.title;

export async function load(ctx) {
  const docs = await Promise.all(PAGES.map((page) => page.load(onPaper(ctx, page)).catch((error) => ({ missing: error.message }))));
  return { ...docs[0], docs }; // page one stands in for the head
}

export function view(doc, ctx) {
  const sheets = PAGES.map((page, place) => {
    const own = doc.docs[place];
    return [page, own.missing ? empty(own.missing) : settle(page.view(own, onPaper(ctx, page)))];
  }).filter(([page, inner]) => page === report || !inner.classList.contains("empty")); // a page that says why it is empty says nothing on paper
  const sheet = ([page, inner]) => h("section", { class: "sheet" }, page === report ? null : h("h1", {}, heading(page)), inner);
  const [first, rest] = [FIRST, APPENDIX].map((pages) => sheets.filter(([page]) => pages.includes(page)).map(sheet));
  return h("div", { class: "stack paper" }, first, h("section", { class: "sheet appendix" }, h("h1", {}, "Appendix"), about(doc)), rest);
}

const PRESSED = "button, input, select, textarea, .toolbar, .choice, .pager, .card-head > a, details:not([open])";

/** Without what can be pressed or unfolded; links become their texts. */
function settle(page) {
  for (const each of page.querySelectorAll(PRESSED)) each.remove();
  for (const link of page.querySelectorAll("a:not([href])")) link.replaceWith(h("span", { class: link.className }, ...link.childNodes));
  return page;
}
