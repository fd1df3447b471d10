// Candidates: a table that the server sorts, filters and cuts into pages.

import { changed, diffBlock, languageOf } from "../code.js";
import { h, s } from "../dom.js";
import { count, decimals, dollars, duration, number, plural } from "../format.js";
import { linear } from "../scale.js";
import { cell, empty, idLink, pill, section, statusPill, table, th } from "../parts.js";

export const title = "Candidates";
const NAMES = ["sort", "order", "offset", "limit", "text", "operator", "model", "island", "status", "trust"];
const FILTERS = ["text", "operator", "model", "island", "status", "trust"];
const MOST = 6; // candidates beside one another

/** The page of the table, and in full those that were picked. */
export async function load(ctx) {
  const one = (id) => ctx.get("candidate", { id }).catch(() => null); // an address may name one that is not there
  const [doc, ...picked] = await Promise.all([ctx.get("candidates", Object.fromEntries(NAMES.map((name) => [name, ctx.params[name]]))), ...picks(ctx.params).map(one)]);
  return { ...doc, picked: picked.filter(Boolean) };
}

const picks = (params) => (params.pick || "").split(",").filter(Boolean).slice(0, MOST);

const STATUSES = [["scored", "scored"], ["mixed", "scored and failed"], ["failed", "failed"], ["unseen", "not evaluated"]];
const LEVELS = ["certified", "verified", "proxied", "self-reported"];

export function view(doc, ctx) {
  const title = doc.total === doc.all ? plural(doc.all, "candidate") : `${count(doc.total)} of ${plural(doc.all, "candidate")}`;
  const listed = section(title, { wide: true, note: `${rule(doc)} Tick two or more to compare them.` },
    toolbar(doc, ctx),
    doc.rows.length ? [table("Candidates", head(doc, ctx), rows(doc, ctx), { class: "full" }), pager(doc, ctx)] : nothing(doc, ctx));
  return (doc.picked || []).length > 1 ? h("div", { class: "stack" }, beside(doc, ctx), listed) : listed;
}

/** How the rows are sorted, in words. */
function rule(doc) {
  const called = { seq: "event", count: "number of evaluations", dollars: "cost", seconds: "time" }[doc.sort] || doc.sort;
  if (doc.sort !== "best") return `Sorted by ${called}, ${doc.order === "desc" ? "the highest first" : "the lowest first"}; a third press on the heading brings the engine's order back.`;
  if (doc.several) return "With several objectives no order is the right one: the numbers are the score that strategies see, in which nobody weighed them; trade-offs stand with the Pareto front.";
  return "The best first: those that never failed, by what a verifier certified, else by the mean less one standard error.";
}

/** Candidates beside one another: their scores case by case, and how the newer differ from the oldest. */
function beside(doc, ctx) {
  const picked = [...doc.picked].sort((a, b) => a.seq - b.seq); // changes go from the older to the newer
  const [first, ...others] = picked;
  const names = [...new Set(picked.flatMap((each) => each.cases.map((one) => one.case)))];
  const mean = (each, name) => (each.cases.find((one) => one.case === name) || { mean: null }).mean;
  const places = decimals(picked.flatMap((each) => [each.mean, ...each.cases.map((one) => one.mean)]).filter((value) => value !== null));
  const head = [th("case"), ...picked.map((each) => th(each.id.slice(0, 8), { class: "num" }))];
  const lines = [h("tr", {}, h("td", {}, "all"), picked.map((each) => cell(each.mean === null ? "–" : `${number(each.mean, places)}${each.margin ? ` ± ${number(each.margin, places)}` : ""}`))),
    ...(names.length > 1 ? names.map((name) => h("tr", {}, h("td", {}, name || "–"), picked.map((each) => cell(number(mean(each, name), places))))) : [])];
  const clear = h("button", { type: "button", class: "button", onclick: () => ctx.go({ pick: "" }, true) }, "Clear");
  const changes = others.flatMap((each) => Object.keys({ ...first.parts, ...each.parts }).map((part) => {
    const [before, after] = [first.parts[part] || "", each.parts[part] || ""];
    const [added, removed] = changed(before, after);
    return h("details", { open: others.length === 1 }, h("summary", {}, `${part}: `, idLink(ctx, first.id), " to ", idLink(ctx, each.id), h("span", { class: "note" }, added + removed ? `${plural(added, "line")} added, ${removed} removed` : "the same in both")),
      added + removed ? h("div", { class: "boxed" }, diffBlock(before, after, languageOf(part, each.language), `Change of ${part} from ${first.id.slice(0, 8)} to ${each.id.slice(0, 8)}`)) : null);
  }));
  return section(`${plural(picked.length, "candidate")} compared`, { wide: true, aside: clear, key: "beside", note: names.length > 1 ? "Means over the newest evaluations of each case." : null },
    table("Scores of the candidates compared", head, lines), changes);
}

function pick(row, ctx) {
  const chosen = picks(ctx.params);
  const mine = chosen.includes(row.id);
  const change = (params) => ({ pick: (mine ? picks(params).filter((id) => id !== row.id) : [...picks(params), row.id]).join(",") });
  return h("input", { type: "checkbox", "aria-label": `Compare ${row.id.slice(0, 8)}`, checked: mine, disabled: !mine && chosen.length >= MOST, onchange: () => ctx.go(change, true) });
}

function nothing(doc, ctx) {
  if (!doc.all) return empty("There is no candidate yet: the first one is the initial program.");
  const clear = () => ctx.go(Object.fromEntries([...FILTERS, "offset"].map((name) => [name, ""])));
  return empty("No candidate passes these filters.", h("button", { class: "button", type: "button", onclick: clear }, "Clear the filters"));
}

let typing = null;

function toolbar(doc, ctx) {
  const set = (name) => (event) => ctx.go({ [name]: event.target.value, offset: "" }, true);
  const typed = (event) => {
    clearTimeout(typing);
    const { value } = event.target;
    typing = setTimeout(() => ctx.go({ text: value, offset: "" }, true), 180);
  };
  const field = (label, control, grow) => h("label", { class: `field ${grow ? "grow" : ""}` }, label, control);
  const menu = (name, all, options) =>
    h("select", { name, onchange: set(name), value: ctx.params[name] || "" }, [["", all], ...options].map(([value, text]) => h("option", { value }, text)));
  const listed = (pairs) => pairs.map(([value, n]) => [String(value), `${value} (${count(n)})`]);
  const { operators, models, islands } = doc.facets;
  return h("div", { class: "toolbar", role: "search" },
    field("Find", h("input", { type: "search", name: "text", placeholder: "id, parent, operator, model", value: ctx.params.text || "", oninput: typed }), true),
    field("Status", menu("status", "any", STATUSES)),
    field("Trust, at least", menu("trust", "any", LEVELS.map((level) => [level, level === "verified" ? "scored apart" : level]))),
    operators.length > 1 ? field("Operator", menu("operator", "any", listed(operators))) : null,
    models.length > 1 ? field("Model", menu("model", "any", listed(models))) : null,
    islands.length ? field("Island", menu("island", "any", listed(islands))) : null);
}

const EXPECTED = "What the search's evaluations of it and of its relatives let expect (the posterior mean); of the winner and the initial program, what fresh evaluations measured";
const COLUMNS = [
  ["id", "id"], ["expected", "expected", "", "num", EXPECTED], ["mean", "mean", "desc", "num", "Mean of its evaluations in the search"], [null, "95 % interval"], ["count", "n", "desc", "num"], ["failed", "failed", "desc", "num"], ["status", "status"], ["trust", "trust"],
  ["parents", "parents"], ["operator", "operator"], ["model", "model"], ["island", "island", "", "num"], ["seq", "event", "desc", "num"],
  ["seconds", "time", "desc", "num", "Mean seconds of an evaluation: of the program, or, where none runs, of its judgement"], ["dollars", "cost", "desc", "num", "Its share of the dollars of the request that it came by"], ["size", "size", "desc", "num", "Characters of all its texts"],
];

/** Columns that would say nothing are left out. */
const idle = (doc) => [...(doc.rows.some((row) => row.island !== null) ? [] : ["island"]), ...(doc.rows.some((row) => row.expected) ? [] : ["expected"]), ...(doc.rows.some((row) => row.dollars) ? [] : ["cost"])];

function head(doc, ctx) {
  const better = doc.direction === "min" ? "asc" : "desc";
  const without = idle(doc);
  return COLUMNS.filter(([, text]) => !without.includes(text)).map(([sort, text, first, look, title]) => {
    if (!sort || sort === "status" || !doc.sorts.includes(sort)) return th(text, { class: look || null, ...(title ? { title } : {}) });
    const begin = sort === "mean" || sort === "expected" ? better : first || "asc";
    const mine = doc.sort === sort;
    const next = mine ? (doc.order === "asc" ? "desc" : "asc") : begin;
    const back = mine && doc.order !== begin; // the third press goes back to the order of the engine
    const go = () => ctx.go({ sort: back ? "" : sort, order: back ? "" : next, offset: "" }, true);
    const sorted = mine ? (doc.order === "asc" ? "ascending" : "descending") : null;
    return th(h("button", { type: "button", onclick: go }, text), { class: look || null, ...(title ? { title } : {}), "aria-sort": sorted }, text);
  });
}

function rows(doc, ctx) {
  const without = idle(doc);
  const places = decimals(doc.rows.map((row) => row.mean).filter((mean) => mean !== null));
  const ends = doc.rows.flatMap((row) => (row.mean === null ? [] : [row.low ?? row.mean, row.high ?? row.mean]));
  const scale = linear([Math.min(...ends), Math.max(...ends)], [4, 92]);
  return doc.rows.map((row) => h("tr", { "data-key": row.id, class: row.id === doc.best ? "chosen" : null },
    h("td", {}, pick(row, ctx), idLink(ctx, row.id), row.id === doc.best ? [" ", pill("best")] : null),
    without.includes("expected") ? null : cell(number(row.mean, places)),
    cell(number(without.includes("expected") ? row.mean : row.search_mean, places)),
    h("td", { title: row.low === null ? "the noise is not known" : `${number(row.low)} to ${number(row.high)}` }, row.mean === null ? "" : whisker(row, scale)),
    cell(count(row.count)),
    cell(row.failed ? count(row.failed) : ""),
    h("td", {}, statusPill(row)),
    h("td", {}, row.trust ? pill(row.trust) : ""),
    h("td", {}, row.parents.slice(0, 3).map((id) => idLink(ctx, id, id.slice(0, 6))), row.parents.length > 3 ? " …" : null),
    h("td", { title: row.note || null }, row.operator),
    h("td", {}, row.model),
    without.includes("island") ? null : cell(row.island === null ? "" : row.island),
    cell(count(row.seq)),
    cell(row.seconds === null ? "" : row.seconds < 10 ? `${row.seconds.toFixed(2)} s` : duration(row.seconds)),
    without.includes("cost") ? null : cell(row.dollars ? dollars(row.dollars) : ""),
    cell(count(row.size))));
}

/** The mean with its interval, on one scale for the whole page. */
function whisker(row, scale) {
  const at = scale(row.mean);
  return s("svg", { class: "whisker", viewBox: "0 0 96 14", "aria-hidden": "true" },
    s("line", { class: "span", x1: 4, x2: 92, y1: 7, y2: 7 }),
    row.low === null ? null : s("line", { x1: scale(row.low), x2: scale(row.high), y1: 7, y2: 7 }),
    s("circle", { cx: at, cy: 7, r: 3 }));
}

function pager(doc, ctx) {
  const last = Math.min(doc.offset + doc.limit, doc.total);
  const to = (offset) => () => ctx.go({ offset: offset || "" });
  const button = (text, offset, able) => h("button", { class: "button", type: "button", disabled: !able, onclick: to(offset) }, text);
  return h("nav", { class: "pager", "aria-label": "Pages of the table" },
    h("span", {}, `${count(doc.offset + 1)} to ${count(last)} of ${count(doc.total)}`, doc.sort === "best" ? ", the best first" : ""),
    h("div", { class: "actions" },
      button("First", 0, doc.offset > 0),
      button("Previous", Math.max(0, doc.offset - doc.limit), doc.offset > 0),
      button("Next", doc.offset + doc.limit, last < doc.total)));
}
