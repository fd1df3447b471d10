// What somebody said, as it is meant to be read: prose, code in its colours, JSON to unfold. Everything ends up in text nodes.

import { codeBlock, languageOf, patchBlock } from "./code.js";
import { h } from "./dom.js";
import { plural } from "./format.js";

const MOST = 200_000; // characters beyond which a text is shown as it is
const ENTRIES = 200; // entries of one list or object that are shown
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)\n([\s\S]*?)(?:^ {0,3}\1[`~]*[ \t]*$|(?![\s\S]))/gm;

/** A text as elements; `spoken` if it is prose rather than the output of a program. */
export function rendered(text, spoken) {
  if (text.length > MOST) return [plain(text)];
  const value = parsed(text);
  if (value !== undefined) return [json(value)];
  const lines = text.trim().split("\n");
  const rows = lines.length > 1 ? lines.map(parsed) : [undefined];
  if (rows.every((row) => row !== undefined)) return rows.map((row) => json(row));
  if (/^(diff --git |--- [^\n]*\n\+\+\+ )/.test(text)) return [h("div", { class: "boxed" }, patchBlock(text, "A difference"))];
  return pieces(text, spoken);
}

/** Prose and the fenced blocks in it. */
function pieces(text, spoken) {
  const found = [];
  let at = 0;
  const between = (piece) => piece.trim() && found.push(spoken ? prose(piece.trim()) : plain(piece.replace(/^\n+|\s+$/g, "")));
  for (const match of text.matchAll(FENCE)) {
    between(text.slice(at, match.index));
    at = match.index + match[0].length;
    found.push(block(match[3], match[2].trim().toLowerCase()));
  }
  between(text.slice(at));
  return found;
}

const NAMES = { python: "py", bash: "sh", shell: "sh", javascript: "js", typescript: "ts", rust: "rs", "c++": "cpp", yaml: "yml" };

function block(text, name) {
  if (name === "diff" || name === "patch") return h("div", { class: "boxed" }, patchBlock(text, "A difference"));
  const value = ["", "json", "action", "tool"].includes(name) ? parsed(text) : undefined;
  if (value !== undefined) return json(value);
  return h("div", { class: "boxed" }, codeBlock(text, languageOf(`x.${NAMES[name] || name}`, ""), name || "A block of text"));
}

/** An object or a list written as JSON; undefined for any other text. */
function parsed(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const plain = (text) => h("div", { class: "plain" }, text);

/** Paragraphs, with `names` in the font of code. */
const prose = (text) => h("div", { class: "prose" }, text.split(/(`[^`\n]+`)/).map((part, place) => (place % 2 ? h("code", {}, part.slice(1, -1)) : part)));

/** JSON to unfold: short things stand on one line, texts of several lines as they are meant. */
export function json(value, name, depth = 0) {
  const label = name === undefined ? null : h("span", { class: "k-name" }, `${name}: `);
  if (value === null || typeof value !== "object") return h("div", { class: "json-line" }, label, scalar(value));
  const entries = Array.isArray(value) ? value.map((each, place) => [place, each]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${plural(entries.length, "entry")}]` : `{${plural(entries.length, "field")}}`;
  if (!entries.length) return h("div", { class: "json-line" }, label, Array.isArray(value) ? "[]" : "{}");
  const shown = entries.slice(0, ENTRIES).map(([key, each]) => json(each, key, depth + 1));
  if (entries.length > ENTRIES) shown.push(h("div", { class: "note" }, `and ${entries.length - ENTRIES} more`));
  return h("details", { class: "json", open: depth < 2 && entries.length <= 30 }, h("summary", {}, label, h("span", { class: "note" }, size)), h("div", { class: "json-in" }, shown));
}

function scalar(value) {
  if (typeof value !== "string") return h("span", { class: typeof value === "number" ? "k-number" : "k-keyword" }, String(value));
  return value.includes("\n") ? plain(value) : h("span", { class: "k-string" }, value);
}
