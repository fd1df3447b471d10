// Ctrl-K: pages, runs, candidates and their texts by what one types; and the keys that work everywhere.

import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { dialog } from "./parts.js";

const WAIT = 160; // milliseconds after the last key until candidates are searched
const LEAST = 2; // characters from which on they are
const MOST = 7; // pages, and runs, that are listed

const KEYS = [
  ["Ctrl K", "find a page, a run, a candidate or a text"], ["/", "go to the filter of a table"], ["j, k", "the next and the previous row of a table, or message of a session"],
  ["Enter", "open the row's candidate or run"], ["?", "show these keys"], ["+ − 0 L ← →", "on a chart: closer, wider, everything, logarithms, read its points"],
];

/** Let the keys work; `open` opens the palette. */
export function listen(open) {
  const acts = { j: () => pressButton("j") || move(1), k: () => pressButton("k") || move(-1), "/": () => find(open), "?": help };
  document.addEventListener("keydown", (event) => {
    const held = event.ctrlKey || event.metaKey;
    if (held && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) open();
    } else if (!held && !event.altKey && !event.defaultPrevented && acts[event.key] && !writes(event.target) && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      acts[event.key]();
    }
  });
}

const writes = (element) => Boolean(element.closest("select, textarea, input:not([type=checkbox])"));

/** Press the button in view that names the key, unless the focus is in a table; true if there is one. */
function pressButton(key) {
  const now = document.activeElement || document.body;
  const buttons = [...document.querySelectorAll(`main [aria-keyshortcuts="${key}"]`)];
  const near = buttons.find((each) => each.closest(".card").contains(now)) || buttons.find((each) => each.closest(".card").getBoundingClientRect().bottom > innerHeight / 3);
  if (!near || now.closest("main tbody")) return false;
  near.click();
  return true;
}

/** Focus the link of the next row that has one; the browser opens it on Enter. */
function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a[href]") && row.offsetParent);
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[now < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, now + step))];
  if (!next) return;
  next.querySelector("a[href]").focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function find(open) {
  const filter = document.querySelector("main input[type=search]");
  if (filter) filter.focus();
  else open();
}

function help() {
  dialog("Keys", (close) => h("div", {},
    h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "button", onclick: close }, "Close"))));
}

/** The palette over `pages` (title and address each), runs, and candidates of `run` if there is one. */
export function palette({ data, run, pages, href }) {
  let [runs, found, items, chosen, turn, timer] = [[], null, [], 0, 0, null];
  const list = h("ul", { id: "found", role: "listbox", "aria-label": "Found" });
  const status = h("p", { class: "note", role: "status" });
  const input = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
    "aria-label": "Find", placeholder: run ? "a page, a run, a candidate's id, remark or code" : "a page or a run", oninput: () => typed(), onkeydown: (event) => press(event),
  });
  const box = dialog("Find", () => h("div", { class: "palette" }, input, list, status));
  const sought = () => input.value.trim();

  function typed() {
    [found, chosen] = [null, 0];
    clearTimeout(timer);
    const mine = ++turn;
    if (run && sought().length >= LEAST) timer = setTimeout(async () => {
      const answer = await data.search(run, sought()).catch((error) => ({ error: error.message, ids: [], remarks: [], lines: [] }));
      if (mine !== turn) return;
      found = answer;
      draw();
    }, WAIT);
    draw();
  }

  function groups() {
    const words = sought().toLowerCase().split(/\s+/);
    const fits = (...texts) => words.every((word) => texts.join(" ").toLowerCase().includes(word));
    const shown = runs.filter((each) => fits(each.name, each.task, each.strategy, (each.tags || []).join(" "), each.remark));
    const candidate = (id, more = {}) => href(run, "candidate", { id, ...more });
    const { ids, remarks, lines } = found || { ids: [], remarks: [], lines: [] };
    const also = (each) => (each.count > 1 ? `and ${plural(each.count - 1, "other")}` : "");
    return [
      ["Pages", pages.filter(([title]) => fits(title)).slice(0, words[0] ? MOST : pages.length).map(([text, to]) => ({ text, to, note: "" }))],
      ["Runs", shown.slice(0, MOST).map((each) => ({ text: each.name, to: href(each.name, "overview"), note: [each.label, each.task, each.strategy].filter(Boolean).join(" · ") }))],
      ["Candidates", ids.map((id) => ({ text: id, to: candidate(id), note: "" }))],
      ["Remarks", remarks.map((each) => ({ text: each.text, to: candidate(each.id), note: `${each.id.slice(0, 8)} ${also(each)}` }))],
      ["Code", lines.map((each) => ({ text: each.text, code: true, to: candidate(each.id, { part: each.part, against: "whole" }), note: `${each.id.slice(0, 8)}, ${each.part}, line ${each.line} ${also(each)}` }))],
    ].filter(([, some]) => some.length);
  }

  function draw() {
    const shown = groups();
    items = shown.flatMap(([, some]) => some);
    chosen = Math.min(chosen, Math.max(0, items.length - 1));
    let place = -1;
    list.replaceChildren(...shown.flatMap(([title, some]) => [h("li", { class: "group", role: "presentation" }, title), ...some.map((item) => {
      place += 1;
      const mine = place;
      return h("li", { id: `found-${mine}`, role: "option", "aria-selected": String(mine === chosen), onclick: () => go(items[mine]) }, h(item.code ? "code" : "span", {}, item.text), h("span", { class: "note" }, item.note));
    })]));
    input.setAttribute("aria-activedescendant", items.length ? `found-${chosen}` : "");
    const now = document.getElementById(`found-${chosen}`);
    if (now) now.scrollIntoView({ block: "nearest" });
    status.textContent = said();
  }

  function said() {
    if (found && found.error) return found.error;
    const read = found && found.searched < found.all ? ` Remarks and code of the first ${count(found.searched)} of ${count(found.all)} candidates were searched.` : "";
    const waits = run && sought().length >= LEAST && !found;
    return `${waits ? "Searching…" : items.length ? `${count(items.length)} found.` : "Nothing found."}${read}`;
  }

  function go(item) {
    box.close();
    location.hash = item.to;
  }

  function press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && items.length) {
      chosen = (chosen + step + items.length) % items.length;
      draw();
    } else if (event.key === "Enter" && items[chosen]) go(items[chosen]);
    else return;
    event.preventDefault();
  }

  data.get("runs").then((doc) => { runs = doc.single ? [] : doc.runs; draw(); }, () => draw());
  input.focus();
}
