// A page of an extension: facts, tables and texts, in the order of its document.

import { diffBlock } from "../code.js";
import { h } from "../dom.js";
import { number } from "../format.js";
import { cell, empty, facts, section, table, th } from "../parts.js";

const shown = (value) => (typeof value === "number" ? number(value) : String(value ?? ""));

const SHORT = 24; // characters of a cell that is never broken

const DRAWN = {
  facts: (block) => h("div", { class: block.lines ? "lines" : null }, facts(block.pairs.map(([label, value]) => [label, shown(value)]))),
  table: (block) => table(block.heading || "Table", block.columns.map((name, at) => th(name, numeric(block, at) ? { class: "num" } : {})), block.rows.map((row, place) =>
    h("tr", {}, row.map((value, at) => (typeof value === "number" ? cell(shown(value), counted(block, value, place, at)) : h("td", numeric(block, at) ? { class: "num" } : block.diagonal || shown(value).length <= SHORT ? {} : { class: "wrap" }, shown(value)))))), block.diagonal ? { class: "counts" } : {}),
  diff: (block) => (block.before === block.after ? h("pre", { class: "plain" }, block.after) : diffBlock(block.before, block.after, "", block.heading || "Difference")),
  text: (block) => h("pre", {}, block.text),
};

const numeric = (block, at) => block.rows.some((row) => typeof row[at] === "number");

/** Of a table of counts with a diagonal: what is right, what is wrong, and what is zero. */
const counted = (block, value, place, at) => (block.diagonal ? { class: `num ${!value ? "none" : place + 1 === at ? "right" : "wrong"}` } : {});

/** The module of a page that the server names with this title. */
export const added = (name, title) => ({
  title,
  load: (ctx) => ctx.get(name),
  view: (doc) => h("div", { class: "stack" }, doc.blocks.length
    ? doc.blocks.map((block) => section(block.heading || title, { note: block.note, wide: true }, (DRAWN[block.kind] || DRAWN.text)(block)))
    : empty("There is nothing to show yet.")),
});
