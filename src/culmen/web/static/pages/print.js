// All pages of a run below one another, for paper: nothing to press, and the first rows of what has no end.

import { h } from "../dom.js";
import { empty } from "../parts.js";
import * as calls from "./calls.js";
import * as candidate from "./candidate.js";
import * as candidates from "./candidates.js";
import * as lineage from "./lineage.js";
import * as mechanism from "./mechanism.js";
import * as memory from "./memory.js";
import * as overview from "./overview.js";
import * as sessions from "./sessions.js";
import * as story from "./story.js";
import * as timeline from "./timeline.js";
import * as trust from "./trust.js";

export const title = "All pages";
const ROWS = 40;
const PAGES = [overview, story, candidate, trust, candidates, lineage, memory, mechanism, sessions, calls, timeline];

/** Links of paper lead nowhere, and would tell where the file lay. */
const onPaper = (ctx, page) => ({ ...ctx, params: page === candidates ? { limit: ROWS } : {}, href: () => null, to: () => null });

const heading = (page) => (page === candidate ? "Best candidate" : page.title);

export async function load(ctx) {
  const docs = await Promise.all(PAGES.map((page) => page.load(onPaper(ctx, page)).catch((error) => ({ missing: error.message }))));
  return { ...docs[0], docs }; // the overview stands in for the head, as everywhere
}

export function view(doc, ctx) {
  const parts = PAGES.map((page, place) => {
    const own = doc.docs[place];
    return h("section", { class: "sheet" }, place ? h("h1", {}, heading(page)) : null, own.missing ? empty(own.missing) : page.view(own, onPaper(ctx, page)));
  });
  return h("div", { class: "stack" }, parts);
}
