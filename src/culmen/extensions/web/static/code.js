// Program texts: syntax colours by a small lexer, and differences of two texts. Everything ends up in text nodes.

import { h } from "./dom.js";

const PYTHON = "and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield case True False None";
const CURLY = "abstract as async await bool boolean break byte case catch char class const continue crate default delete do double else enum export extends extern false final finally float fn for func function go goto if impl implements import in inline instanceof int interface let long loop match mod module move mut namespace new nil null package private protected pub public range ref return self short signed sizeof static struct super switch template this throw throws trait true try type typedef typeof union unsafe unsigned use using var virtual void volatile where while yield";
const PLAIN = "true false null yes no";

const LANGUAGES = {
  py: { words: PYTHON, comment: "#[^\\n]*", triple: true },
  sh: { words: "if then else elif fi for in do done while case esac function return local export set", comment: "#[^\\n]*" },
  toml: { words: PLAIN, comment: "#[^\\n]*" },
  curly: { words: CURLY, comment: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)" },
  json: { words: PLAIN, comment: "(?!)" },
};
const ENDINGS = { py: "py", pyi: "py", sh: "sh", bash: "sh", toml: "toml", yaml: "toml", yml: "toml", ini: "toml", json: "json", r: "sh", jl: "py", rb: "py" };
const CURLIES = ["c", "h", "cc", "cpp", "hpp", "cu", "rs", "go", "java", "kt", "js", "mjs", "ts", "tsx", "jsx", "swift", "cs", "scala", "php"];
const MOST = 200_000; // characters beyond which colours are not worth the wait

/** The language of a part, by its name, then by what the task says. */
export function languageOf(name, declared) {
  const ending = name.includes(".") ? name.split(".").pop().toLowerCase() : "";
  if (CURLIES.includes(ending)) return "curly";
  if (ENDINGS[ending]) return ENDINGS[ending];
  if (ending || !declared) return "";
  return declared === "python" ? "py" : CURLIES.includes(declared) || ["javascript", "typescript", "rust", "cpp", "c++"].includes(declared) ? "curly" : "";
}

/** Prose has long lines, and all of it is to be read: it is wrapped, which would spoil code. */
const wrapped = (language) => (language ? "" : "wrapped");

/** [kind, text] pieces; joined they are the text. */
export function lex(text, language) {
  const rules = LANGUAGES[language];
  if (!rules || text.length > MOST) return [["", text]];
  const triple = rules.triple ? `"""[\\s\\S]*?(?:"""|$)|'''[\\s\\S]*?(?:'''|$)|` : "";
  const pattern = new RegExp(
    `(?<comment>${rules.comment})|(?<string>${triple}"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?)|(?<number>\\b\\d[\\w.]*(?:(?<=[eE])[+-]\\d+)?)|(?<word>[A-Za-z_]\\w*)`,
    "g",
  );
  const known = new Set(rules.words.split(" "));
  const pieces = [];
  let at = 0;
  let before = "";
  for (const match of text.matchAll(pattern)) {
    if (match.index > at) pieces.push(["", text.slice(at, match.index)]);
    const { comment, string, number } = match.groups;
    const kind = comment !== undefined ? "comment" : string !== undefined ? "string" : number !== undefined ? "number" : known.has(match[0]) ? "keyword" : ["def", "class", "fn", "func", "function"].includes(before) ? "name" : "";
    pieces.push([kind, match[0]]);
    if (match.groups.word) before = match[0];
    at = match.index + match[0].length;
  }
  if (at < text.length) pieces.push(["", text.slice(at)]);
  return pieces;
}

/** Pieces line by line. */
function coloured(text, language) {
  const lines = [[]];
  for (const [kind, piece] of lex(text, language)) {
    piece.split("\n").forEach((part, place) => {
      if (place) lines.push([]);
      if (part) lines.at(-1).push(kind ? h("span", { class: `k-${kind}` }, part) : part);
    });
  }
  if (text.endsWith("\n")) lines.pop();
  return lines;
}

/** A text with line numbers. */
export function codeBlock(text, language, label) {
  const lines = coloured(text, language).map((line, place) => h("li", { "data-n": place + 1 }, line));
  return h("div", { class: `code ${wrapped(language)}`, tabindex: "0", role: "region", "aria-label": label }, h("ol", {}, lines));
}

const CONTEXT = 4; // unchanged lines shown around a change

/** What changed from one text to another, line by line. */
export function diffBlock(before, after, language, label) {
  const rows = diff(lines(before), lines(after));
  const left = coloured(before, language);
  const right = coloured(after, language);
  const near = rows.map((row) => row.sign !== " ");
  const keep = near.map((_, place) => near.slice(Math.max(0, place - CONTEXT), place + CONTEXT + 1).some(Boolean));
  const shown = [];
  let hidden = 0;
  const fold = () => {
    if (hidden) shown.push(h("li", { class: "fold" }, `${hidden} unchanged ${hidden === 1 ? "line" : "lines"}`));
    hidden = 0;
  };
  rows.forEach((row, place) => {
    if (!keep[place]) {
      hidden += 1;
      return;
    }
    fold();
    const look = { "+": "add", "-": "del", " ": null }[row.sign];
    shown.push(h("li", { class: look, "data-old": row.old ?? "", "data-new": row.new ?? "", "data-sign": row.sign }, row.sign === "-" ? left[row.old - 1] : right[row.new - 1]));
  });
  fold();
  return h("div", { class: `code diff ${wrapped(language)}`, tabindex: "0", role: "region", "aria-label": label }, h("ol", {}, shown));
}

/** A unified diff as git writes it. */
export function patchBlock(text, label, prose = false) {
  const look = (line) => (/^(diff|index|---|\+\+\+|@@|new file|deleted file)/.test(line) ? "fold" : { "+": "add", "-": "del" }[line[0]] || null);
  return h("div", { class: `code patch ${prose ? "wrapped" : ""}`, tabindex: "0", role: "region", "aria-label": label }, h("ol", {}, text.trimEnd().split("\n").map((line) => h("li", { class: look(line) }, line))));
}

/** How many lines were added and removed. */
export function changed(before, after) {
  const rows = diff(lines(before), lines(after));
  return [rows.filter((row) => row.sign === "+").length, rows.filter((row) => row.sign === "-").length];
}

function lines(text) {
  const found = text.split("\n");
  if (text.endsWith("\n")) found.pop();
  return text ? found : [];
}

const FAR = 4000; // edits beyond which texts are simply different

/** Myers' greedy algorithm: the shortest list of lines kept, removed and added. */
export function diff(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = edits(a.slice(start, a.length - end), b.slice(start, b.length - end));
  const rows = [];
  let [i, j] = [0, 0];
  const push = (sign) => {
    if (sign !== "+") i += 1;
    if (sign !== "-") j += 1;
    rows.push({ sign, old: sign === "+" ? null : i, new: sign === "-" ? null : j });
  };
  for (let k = 0; k < start; k += 1) push(" ");
  for (const sign of middle) push(sign);
  for (let k = 0; k < end; k += 1) push(" ");
  return rows;
}

function edits(a, b) {
  const most = Math.min(a.length + b.length, FAR);
  const trace = [];
  let v = new Map([[1, 0]]);
  for (let d = 0; d <= most; d += 1) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? (v.get(k + 1) ?? 0) : (v.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      v.set(k, x);
      if (x >= a.length && x - k >= b.length) return path(trace, a.length, b.length);
    }
  }
  return [...a.map(() => "-"), ...b.map(() => "+")];
}

function path(trace, n, m) {
  const signs = [];
  let [x, y] = [n, m];
  for (let d = trace.length - 1; d >= 0; d -= 1) {
    const v = trace[d];
    const k = x - y;
    const down = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const px = d ? (v.get(from) ?? 0) : 0;
    const py = d ? px - from : 0;
    while (x > px && y > py) {
      signs.push(" ");
      x -= 1;
      y -= 1;
    }
    if (d) signs.push(down ? "+" : "-");
    [x, y] = [px, py];
  }
  return signs.reverse();
}
