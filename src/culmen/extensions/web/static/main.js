// The shell: which page is shown, where it is reached from, and when it is drawn again.

import { source } from "./data.js";
import { h, show } from "./dom.js";
import { count, moment } from "./format.js";
import { listen, palette } from "./palette.js";
import { empty, pill, statePill, tick } from "./parts.js";
import { actions } from "./actions.js";
import { added } from "./pages/added.js";
import * as calls from "./pages/calls.js";
import * as candidate from "./pages/candidate.js";
import * as candidates from "./pages/candidates.js";
import * as compare from "./pages/compare.js";
import * as lineage from "./pages/lineage.js";
import * as mechanism from "./pages/mechanism.js";
import * as memory from "./pages/memory.js";
import * as overview from "./pages/overview.js";
import * as print from "./pages/print.js";
import * as report from "./pages/report.js";
import * as runs from "./pages/runs.js";
import * as sessions from "./pages/sessions.js";
import * as story from "./pages/story.js";
import * as timeline from "./pages/timeline.js";
import * as trust from "./pages/trust.js";

const PAGES = { overview, candidates, candidate, story, lineage, memory, mechanism, sessions, calls, timeline, trust, report, print };
const TOP = { runs, compare };
const PLACES = [ // questions, each with its pages; an extension's page names the place it belongs to
  { name: "result", title: "Result", pages: ["overview", "report"] },
  { name: "candidates", title: "Candidates", pages: ["candidates"] },
  { name: "how", title: "How it got there", pages: ["story", "lineage", "memory"] },
  { name: "cost", title: "What it cost", pages: ["calls", "timeline"] },
  { name: "trust", title: "Can I trust it", pages: ["trust"] },
];
const WITHIN = { candidate: "candidates", mechanism: "memory" }; // pages that stand in the place of another
const ONE_PAGE = ["report", "print"]; // what is read on its own has the run's name as its title
const PAUSE = 700; // milliseconds between two drawings of a page that changes

const data = source();
const app = document.getElementById("app");
const state = { place: null, doc: null, head: null, error: null, connected: true, drawn: 0, turn: 0, stop: null, watched: undefined, only: "" };

/** `#/r/NAME/PAGE?params`, `#/compare?run=...`, `#/` for the list. */
function where() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const params = {};
  for (const [name, value] of new URLSearchParams(query || "")) params[name] = name in params ? [params[name], value].flat() : value;
  if (parts[0] === "r" && parts[1]) return { run: parts[1], page: parts[2] || "overview", params };
  if (parts[0] === "compare") return { run: "", page: "compare", params };
  return { run: "", page: "runs", params };
}

function href(run, page, params = {}) {
  const pairs = Object.entries(params).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  const kept = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = kept.length ? `?${new URLSearchParams(kept)}` : "";
  if (!run) return page === "compare" ? `#/compare${query}` : `#/${query}`;
  return `#/r/${encodeURIComponent(run)}/${page}${query}`;
}

/** Pages that extensions add: known once a page's heading was read. */
const extra = () => (state.head ? state.head.added : []);

function module({ page }) {
  const known = PAGES[page] || TOP[page];
  return known || added(page, (extra().find(({ name }) => name === page) || { title: page }).title);
}

/** The pages of a place; and the place that a page belongs to. */
const pagesOf = ({ name, pages }) => [...pages.filter((page) => page !== "report" || data.made), ...extra().filter((each) => each.place === name).map((each) => each.name)];
const placeOf = (page) => PLACES.find((each) => pagesOf(each).includes(WITHIN[page] || page));

function context(place) {
  return {
    ...place,
    data,
    href: (page, params) => href(place.run, page, params),
    to: (run, page, params) => href(run, page, params),
    get: (page, params) => data.get(place.run ? `runs/${place.run}/${page}` : page, params),
    go: (params, replace) => {
      const last = state.place.params; // what was asked last, drawn or not
      const next = href(place.run, place.page, { ...last, ...(typeof params === "function" ? params(last) : params) });
      if (replace) history.replaceState(null, "", next);
      else history.pushState(null, "", next);
      navigate();
    },
    redraw: () => draw(),
    reload: () => load(),
    best: state.head && state.head.best ? state.head.best.id : "",
  };
}

/** What a chart shows stands in the address, so that a link or a reload shows it again. */
function keep({ detail }) {
  const { run, page, params } = state.place;
  state.place.params = { ...params, [`view.${detail.key}`]: detail.text };
  history.replaceState(null, "", href(run, page, state.place.params));
  state.hash = location.hash;
}

/** Several events tell of one move. */
const followed = () => location.hash !== state.hash && navigate();

async function navigate() {
  state.hash = location.hash;
  const place = where();
  if (!place.run && place.page === "runs" && state.only) return location.replace(href(state.only, data.made ? "report" : "overview"));
  const before = state.place;
  const moved = !before || before.run !== place.run || before.page !== place.page || before.params.id !== place.params.id;
  state.place = place;
  if (moved) Object.assign(state, { doc: null, error: null });
  if (!before || before.run !== place.run) state.head = null;
  watch(place);
  if (moved) setTimeout(() => state.place === place && !state.doc && !state.error && draw(), 150);
  await load();
  if (moved) {
    window.scrollTo(0, 0);
    const heading = document.querySelector(".top h1");
    if (before && heading) heading.focus({ preventScroll: true });
  }
}

async function load() {
  const turn = ++state.turn;
  const place = state.place;
  try {
    const [doc, head] = await Promise.all([
      module(place).load(context(place)),
      place.run && place.page !== "overview" ? data.get(`runs/${place.run}/head`) : null,
    ]);
    if (turn !== state.turn) return;
    Object.assign(state, { doc, head: place.run ? head || doc : null, error: null });
  } catch (error) {
    if (turn !== state.turn) return;
    state.error = error;
  }
  draw();
}

function watch(place) {
  if (!data.live || state.watched === place.run) return;
  if (state.stop) state.stop();
  state.watched = place.run;
  let waiting = null;
  const changed = () => {
    if (waiting) return;
    const wait = Math.max(0, PAUSE - (performance.now() - state.drawn));
    waiting = setTimeout(async () => {
      state.drawn = performance.now();
      await load();
      const took = performance.now() - state.drawn;
      setTimeout(() => { waiting = null; if (missed) { missed = false; changed(); } }, 2 * took); // leave the server two thirds of the time
    }, wait);
  };
  let missed = false;
  state.stop = data.listen(place.run, () => { if (waiting) missed = true; changed(); }, (connected) => {
    if (state.connected === connected) return;
    state.connected = connected;
    draw();
  });
}

function draw() {
  const { place } = state;
  const stands = place.run && state.head ? `${state.head.label} · ` : "";
  document.title = ONE_PAGE.includes(place.page) ? place.run : `${stands}${place.run ? `${place.run} · ` : ""}${module(place).title} · culmen`; // a printed file is called so
  show(app, h("div", { class: "shell" }, sidebar(place), h("div", { class: "page" }, header(place), within(place), body(place), data.made ? made(data.made) : null)));
  reveal();
}

/** On a telephone the pages stand in a row: the current one is brought into view when it changes. */
function reveal() {
  const now = document.querySelector(".side [aria-current]");
  if (!now || now.getAttribute("href") === state.revealed) return;
  state.revealed = now.getAttribute("href");
  const bar = now.closest(".side");
  const [box, around] = [now.getBoundingClientRect(), bar.getBoundingClientRect()];
  bar.scrollLeft += box.left + box.width / 2 - around.left - around.width / 2;
}

const skip = () => h("a", { class: "skip", href: location.hash, onclick: (event) => { event.preventDefault(); document.getElementById("main").focus(); } }, "Skip to the page");

function sidebar(place) {
  const item = (text, target, now) => h("li", {}, h("a", { href: target, "aria-current": now ? "page" : null }, text));
  return h("nav", { class: "side", "aria-label": "Pages" }, skip(),
    h("a", { class: "brand", href: href(state.only, state.only ? "overview" : "runs") }, mark(), "culmen"),
    h("button", { class: "button find", type: "button", "aria-keyshortcuts": "Control+K", onclick: openPalette }, h("span", {}, "Find"), h("kbd", {}, "Ctrl K")),
    place.run ? h("p", { class: "side-run", title: place.run }, place.run) : null,
    place.run ? h("ul", {}, PLACES.map((each) => item(each.title, href(place.run, each.pages[0]), each === placeOf(place.page)))) : null,
    state.only ? null : h("ul", { class: "side-all" }, item("All runs", "#/", place.page === "runs"), item("Compare", href("", "compare"), place.page === "compare")),
    theme());
}

/** The other pages of a place that has several. */
function within(place) {
  const mine = placeOf(place.page);
  const pages = mine ? pagesOf(mine) : [];
  if (pages.length < 2) return null;
  return h("nav", { class: "within", "aria-label": mine.title }, pages.map((page) => h("a", { href: href(place.run, page), "aria-current": page === (WITHIN[place.page] || place.page) ? "page" : null }, module({ page }).title)));
}

/** A question, or the name of a page that no question leads to; of a page read on its own the run's name. */
function heading(place) {
  if (ONE_PAGE.includes(place.page)) return place.run;
  const mine = placeOf(place.page);
  return mine && place.page !== "candidate" ? mine.title : module(place).title;
}

function openPalette() {
  const { run } = state.place;
  const mine = run ? PLACES.flatMap((each) => pagesOf(each).map((page, n, all) => [all.length > 1 ? `${each.title}: ${module({ page }).title}` : each.title, href(run, page)])) : [];
  const all = state.only ? [] : [["All runs", "#/"], ["Compare", href("", "compare")]];
  palette({ data, run, href, pages: [...mine, ...all] });
}

const mark = () => h("img", { src: iconPath(), alt: "", width: 22, height: 22 });
const iconPath = () => (document.querySelector("link[rel=icon]") || {}).href || "";

function theme() {
  const now = document.documentElement.dataset.theme || "auto";
  const next = { auto: "light", light: "dark", dark: "auto" }[now];
  const text = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" }[now];
  return h("button", { class: "theme", type: "button", title: `Change to ${next === "auto" ? "the system's" : next}`, onclick: () => { setTheme(next); draw(); } }, text);
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("culmen-theme", name);
  } catch {
    /* a page from disk may have no storage */
  }
}

function header(place) {
  const head = state.head;
  return h("header", { class: "top" },
    h("div", { class: "top-left" },
      h("h1", { tabindex: "-1" }, heading(place)),
      head ? statePill(head.label, head.ended) : null,
      head ? h("p", { class: "sub" }, `${head.task} · ${head.strategy} · seed ${head.seed} · ${moment(head.created)}`, head.tags.map((tag) => [" ", pill(tag, `tagged ${tag}`)]), head.remark ? h("span", { class: "remark" }, ` ${head.remark}`) : null) : null),
    h("div", { class: "top-right" },
      data.live ? h("span", { class: `live ${state.connected ? "" : "off"}`, role: "status" }, state.connected ? (head && head.state === "running" ? "live" : "") : "connection lost; trying again") : null,
      head ? actions(head, data, place.run) : null));
}

function body(place) {
  if (state.error) {
    return h("main", { id: "main", tabindex: "-1", "data-key": `error-${place.page}` }, empty(state.error.message, state.error.next ? h("p", { class: "note" }, state.error.next) : null));
  }
  const inner = state.doc ? module(place).view(state.doc, context(place)) : h("p", { class: "loading" }, "Reading the journal…");
  return h("main", { id: "main", tabindex: "-1", "data-key": `${place.run}/${place.page}`, "aria-busy": state.doc ? null : "true" }, inner);
}

/** What a report says below every page: when it was made, and what it does not hold. */
function made(about) {
  const going = ["running", "paused"].includes(about.state) ? " The run had not ended then." : "";
  return h("footer", { class: "made" },
    h("p", {}, `A report made ${moment(about.time)} from event ${count(about.event)} of the journal.${going}`, h("span", { class: "on-screen" }, " Live updates, stopping and hints need culmen ui.")),
    about.left_out.length ? [h("p", {}, "Not in this report:"), h("ul", {}, about.left_out.map((each) => h("li", {}, each)))] : h("p", {}, "Nothing was left out."));
}

async function begin() {
  try {
    setTheme(localStorage.getItem("culmen-theme") || "auto");
  } catch {
    /* no storage: follow the system */
  }
  if (location.hash.startsWith("#token=")) history.replaceState(null, "", "#/");
  await data.begin();
  const listed = await data.get("runs").catch(() => ({ runs: [], single: false }));
  state.only = listed.single && listed.runs.length ? listed.runs[0].name : "";
  app.addEventListener("chartview", keep);
  listen(openPalette);
  window.addEventListener("hashchange", followed);
  window.addEventListener("beforeprint", () => { state.theme = document.documentElement.dataset.theme; document.documentElement.dataset.theme = "light"; });
  window.addEventListener("afterprint", () => { if (state.theme) document.documentElement.dataset.theme = state.theme; else delete document.documentElement.dataset.theme; });
  window.addEventListener("popstate", followed);
  if (data.live) setInterval(() => state.connected && tick(), 1000);
  await navigate();
  app.dataset.ready = count(listed.runs.length);
}

begin();
