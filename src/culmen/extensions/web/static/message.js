// What somebody said, as it is meant to be read: prose, code in its colours, JSON to unfold. Everything ends up in text nodes.

import { codeBlock, languageOf, patchBlock } from "./code.js";
import { h } from "./dom.js";
import { plural } from "./format.js";

const MOST = 200_000; // characters beyond which a text is shown as it is
const ENTRIES = 200; // entries of one list or object that are shown
const DIFFERENCE = /^(diff --git |--- [^\n]*\n\+\+\+ )/;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)\n([\s\S]*?)(?:^ {0,3}\1[`~]*[ \t]*$|(?![\s\S]))/gm;

/** A text as elements; `spoken` if it is prose rather than the output of a program. */
export function rendered(text, spoken) {
  if (text.length > MOST) return [plain(text)];
  const value = parsed(text);
  if (value !== undefined) return [json(value)];
  const lines = text.trim().split("\n");
  const rows = lines.length > 1 ? lines.map(parsed) : [undefined];
  if (rows.every((row) => row !== undefined)) return rows.map((row) => json(row));
  if (DIFFERENCE.test(text)) return [h("div", { class: "boxed" }, patchBlock(text, "A difference"))];
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

const MARK = /(`[^`\n]+`|\*\*[^*\n]+\*\*|^#{1,6} [^\n]*$)/m;

/** Paragraphs, with `names` in the font of code, headings and what is **stressed** in bold. */
const prose = (text) => h("div", { class: "prose" }, text.split(MARK).map((part, place) => (place % 2 ? marked(part) : part)));

function marked(part) {
  if (part[0] === "`") return h("code", {}, part.slice(1, -1));
  return h("strong", {}, part[0] === "#" ? part.replace(/^#+ /, "") : part.slice(2, -2));
}

const TEXT = /^(code|content|text|source|file_text|new_str|old_str|diff|patch|command)$/; // fields that may hold a program

/** JSON to unfold: short things stand on one line, texts of several lines as they are meant, in colours where the name of a file is known. */
export function json(value, name, depth = 0, language = "") {
  const label = name === undefined ? null : h("span", { class: "k-name" }, `${name}: `);
  if (value === null || typeof value !== "object") return h("div", { class: "json-line" }, label, scalar(value, String(name), language));
  const entries = Array.isArray(value) ? value.map((each, place) => [place, each]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${plural(entries.length, "entry")}]` : `{${plural(entries.length, "field")}}`;
  if (!entries.length) return h("div", { class: "json-line" }, label, Array.isArray(value) ? "[]" : "{}");
  if (depth && brief(entries)) return h("div", { class: "json-line" }, label, bracketed(entries, Array.isArray(value)));
  const file = [value.path, value.file, value.file_path].find((each) => typeof each === "string");
  const inner = file ? languageOf(file, "") : language;
  const shown = entries.slice(0, ENTRIES).map(([field, each]) => json(each, field, depth + 1, inner));
  if (entries.length > ENTRIES) shown.push(h("div", { class: "note" }, `and ${entries.length - ENTRIES} more`));
  const called = typeof value.tool === "string" ? h("strong", {}, `${value.tool} `) : null;
  return h("details", { class: "json", open: depth < 2 && entries.length <= 30 }, h("summary", {}, label, called, h("span", { class: "note" }, size)), h("div", { class: "json-in" }, shown));
}

const SHORT = 72; // characters of an object or a list that stands on one line

/** Whether entries are few, short and no objects themselves. */
const brief = (entries) => entries.length <= 12 && entries.every(([, each]) => (each === null || typeof each !== "object") && !String(each).includes("\n")) && entries.map(([field, each]) => `${field}: ${each}`).join(", ").length <= SHORT;

function bracketed(entries, listed) {
  const inner = entries.map(([field, each], place) => [place ? ", " : "", listed ? null : h("span", { class: "k-name" }, `${field}: `), scalar(each, field, "")]);
  return [listed ? "[" : "{", inner, listed ? "]" : "}"];
}

function scalar(value, name, language) {
  if (typeof value !== "string") return h("span", { class: typeof value === "number" ? "k-number" : "k-keyword" }, String(value));
  if (!value.includes("\n")) return h("span", { class: "k-string" }, value);
  if (DIFFERENCE.test(value)) return h("div", { class: "boxed" }, patchBlock(value, name));
  return language && TEXT.test(name) ? h("div", { class: "boxed" }, codeBlock(value, language, name)) : plain(value);
}

/** A prompt or a reply: as it is meant to be read, and folded as it was written. */
export function readable(text) {
  if (!text) return plain("(empty)");
  const shown = rendered(text, true);
  return [shown, h("details", {}, h("summary", {}, "As it was written"), plain(text))];
}
