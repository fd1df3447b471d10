// All runs of the folder or database.

import { h } from "../dom.js";
import { count, decimals, moment, number } from "../format.js";
import { cell, empty, pill, section, table, th } from "../parts.js";

export const title = "Runs";
export const load = (ctx) => ctx.data.get("runs");

export function view(doc, ctx) {
  if (!doc.runs.length) return empty(`There are no runs in ${doc.folder} yet: culmen demo makes one in about a minute.`);
  const places = decimals(doc.runs.map((run) => run.best).filter((best) => best !== null));
  const rows = doc.runs.map((run) => {
    const { name } = run;
    const readable = run.task !== "";
    if (run.why) return unreadable(run, name);
    return h("tr", { "data-key": name },
      h("td", {}, readable ? h("a", { href: ctx.to(name, "overview") }, name) : name),
      h("td", {}, pill(run.state)),
      cell(number(run.best, places)),
      cell(count(run.evaluations)),
      h("td", {}, run.task),
      h("td", {}, run.strategy),
      h("td", {}, moment(run.created)));
  });
  const head = [th("run"), th("state"), th("best", { class: "num" }), th("evaluations", { class: "num" }), th("task"), th("strategy"), th("begun")];
  return section(`${doc.runs.length} runs`, { wide: true, note: doc.folder }, table("Runs, the newest first", head, rows));
}


/** What is wrong with a run, in the place of its figures. */
const unreadable = (run, name) =>
  h("tr", { "data-key": name }, h("td", {}, name), h("td", {}, pill(run.state)),
    h("td", { class: "wrap", colspan: "4" }, run.why, run.fix ? h("div", { class: "note" }, run.fix) : null),
    h("td", {}, moment(run.created)));
