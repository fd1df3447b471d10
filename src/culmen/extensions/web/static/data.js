// Where documents come from: this server, or the page itself, if it is a report. Pages know nothing else.

/** The source of this page: embedded documents if there are any, else the server. */
export function source() {
  const embedded = document.getElementById("culmen-documents");
  return embedded ? new Embedded(embedded) : new Server();
}

class Server {
  constructor() {
    this.live = true;
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) localStorage.setItem("culmen-token", given);
    this.token = localStorage.getItem("culmen-token") || "";
    this.writing = false;
  }

  /** Ask the server whether our token is the one it printed. */
  async begin() {
    if (!this.token) return;
    this.writing = await this.post("token", {}).then(() => true, () => false);
  }

  /** A document by path ("runs/NAME/overview") and parameters. */
  async get(path, params = {}) {
    return this.answer(await fetch(`/api/${encodePath(path)}${query(params)}`, { headers: { accept: "application/json" } }));
  }

  /** Candidates of a run by id, remark and code (`views.SearchResult`). */
  search(run, text) {
    return this.get(`runs/${run}/search`, { text });
  }

  /** Whether the texts of a candidate can be had. */
  holds() {
    return true;
  }

  /** Send a message to a run; throws an error that says what is wrong. */
  async post(path, body) {
    const headers = { "content-type": "application/json", "x-culmen-token": this.token };
    return this.answer(await fetch(`/api/${encodePath(path)}`, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  /** Call back whenever a run (or, without a name, any run) changes; returns a function that ends it. */
  listen(run, changed, connected) {
    const events = new EventSource(run ? `/api/runs/${encodeURIComponent(run)}/stream` : "/api/stream");
    let first = true;
    events.onmessage = () => {
      if (!first) changed();
      first = false;
    };
    events.onopen = () => connected(true);
    events.onerror = () => connected(false);
    return () => events.close();
  }

  async answer(response) {
    if (response.ok) return response.json();
    const text = await response.text();
    let told = { what: text };
    try {
      told = JSON.parse(text).error;
    } catch {
      /* the guard answers in plain text */
    }
    throw Object.assign(new Error(told.what || response.statusText), { next: told.next || "", status: response.status });
  }
}

/** A report: its documents as `culmen.extensions.web.report` puts them together. */
class Embedded {
  constructor(element) {
    this.element = element;
    this.live = false;
    this.writing = false;
  }

  /** Read the documents; unpack them where they are compressed. */
  async begin() {
    const { type, textContent } = this.element;
    this.documents = JSON.parse(type === "application/gzip" ? await unpacked(textContent) : textContent);
    this.made = this.documents.made;
  }

  async get(path, params = {}) {
    const { run, runs, pages, candidates } = this.documents;
    if (path === "runs") return runs;
    const page = path.startsWith(`runs/${run}/`) ? path.slice(`runs/${run}/`.length) : "";
    if (page === "candidate") {
      const id = this.find(params.id);
      if (id) return { ...candidates[id] };
      throw Object.assign(new Error(`This report does not hold the texts of candidate ${params.id}.`), { next: `culmen show ${run} ${params.id} prints them, culmen ui shows them.` });
    }
    if (!Object.hasOwn(pages, page)) throw Object.assign(new Error("This report holds the pages of one run, and not this one."), { next: "culmen ui shows all runs, and compares them." });
    return page === "candidates" ? pageOf(pages[page], params) : { ...pages[page] };
  }

  /** The full id of a candidate whose texts are here, by its first digits or as best or seed; "" for none. */
  find(name) {
    const { candidates, names } = this.documents;
    const id = Object.hasOwn(names, name) ? names[name] : name;
    return Object.hasOwn(candidates, id) ? id : Object.keys(candidates).find((each) => id && each.startsWith(id)) || "";
  }

  /** What the server does, over the candidates whose texts are here. */
  async search(run, text) {
    const { pages, candidates } = this.documents;
    const wanted = text.toLowerCase();
    const rows = [...pages.candidates.rows].sort((a, b) => a.seq - b.seq || (a.id < b.id ? -1 : 1));
    const found = new Map();
    const note = (id, part, whole) => new Set(whole.split("\n").filter((line) => line.toLowerCase().includes(wanted)).map((line) => line.trim().slice(0, 160))).forEach((line) => {
      const known = found.get(`${part}\n${line}`);
      if (known) known.count += 1;
      else found.set(`${part}\n${line}`, { id, text: line, part, line: part ? 1 + whole.split("\n").findIndex((each) => each.includes(line)) : 0, count: 1 });
    });
    for (const { id, note: remark } of rows) {
      note(id, "", remark);
      for (const [part, code] of Object.entries((candidates[id] || { parts: {} }).parts)) note(id, part, code);
    }
    const all = [...found.values()];
    return { ids: rows.filter(({ id }) => id.startsWith(text)).map(({ id }) => id).slice(0, 8), remarks: all.filter(({ part }) => !part).slice(0, 8), lines: all.filter(({ part }) => part).slice(0, 8), searched: Object.keys(candidates).length, all: pages.candidates.all };
  }

  holds(id) {
    return Boolean(this.find(id));
  }

  listen() {
    return () => {};
  }
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

function query(params) {
  const pairs = [];
  for (const [name, value] of Object.entries(params)) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined) pairs.push([name, each]);
  }
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

const LEVELS = ["certified", "verified", "proxied", "self-reported"];

/** What the server does for the table of candidates, over rows that are all here (given in the order of `best`). */
export function pageOf(whole, params) {
  const wanted = (row) =>
    (!params.text || [row.id, ...row.parents, row.operator, row.model].some((text) => text.includes(params.text))) &&
    (!params.operator || row.operator === params.operator) &&
    (!params.model || row.model === params.model) &&
    (!params.island || String(row.island) === params.island) &&
    (!params.status || row.status === params.status) &&
    (!params.trust || (row.count && LEVELS.indexOf(row.trust) <= LEVELS.indexOf(params.trust)));
  const rows = whole.rows.filter(wanted);
  const sort = params.sort || "best";
  const down = params.order === "desc" ? -1 : 1;
  if (sort === "best") down < 0 && rows.reverse();
  else rows.sort((a, b) => compare(value(a, sort), value(b, sort), down) || a.seq - b.seq || (a.id < b.id ? -1 : 1));
  const offset = Number(params.offset || 0);
  const limit = Number(params.limit || 50);
  return { ...whole, rows: rows.slice(offset, offset + limit), total: rows.length, offset, limit, sort, order: params.order || "asc" };
}

function value(row, sort) {
  if (sort === "parents") return row.parents.join(" ") || null;
  if (sort === "mean") return row.search_mean;
  if (sort === "expected") return row.mean;
  if (sort === "trust") return row.count ? LEVELS.indexOf(row.trust) : null;
  return row[sort] === "" ? null : row[sort];
}

function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null); // nothing comes last either way
  return a < b ? -down : a > b ? down : 0;
}
