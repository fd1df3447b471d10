// A page of an extension: facts, tables and texts, in the order of its document.

import { h } from "../dom.js";
import { number } from "../format.js";
import { cell, empty, facts, section, table, th } from "../parts.js";

const shown = (value) => (typeof value === "number" ? number(value) : String(value ?? ""));

const DRAWN = {
  facts: (block) => facts(block.pairs.map(([label, value]) => [label, shown(value)])),
  table: (block) => table(block.heading || "Table", block.columns.map((name) => th(name)), block.rows.map((row) =>
    h("tr", {}, row.map((value) => (typeof value === "number" ? cell(shown(value)) : h("td", { class: "wrap" }, shown(value))))))),
  text: (block) => h("pre", {}, block.text),
};

/** The module of a page that the server names with this title. */
export const added = (name, title) => ({
  title,
  load: (ctx) => ctx.get(name),
  view: (doc) => h("div", { class: "stack" }, doc.blocks.length
    ? doc.blocks.map((block) => section(block.heading || title, { note: block.note, wide: true }, (DRAWN[block.kind] || DRAWN.text)(block)))
    : empty("There is nothing to show yet.")),
});
