// Small pieces that several pages share.

import { h } from "./dom.js";
import { MISSING, digits, duration, measured, number, typeset, words } from "./format.js";
import { meaning } from "./terms.js";

/** A section with a heading; `aside` stands at the heading's right. */
export const section = (title, props, ...children) =>
  h("section", { class: `card ${props.wide ? "wide" : ""}`, "aria-label": title, "data-key": props.key || null },
    h("header", { class: "card-head" }, h("h2", {}, title), props.aside || null),
    props.note ? h("p", { class: "note" }, props.note) : null,
    children);

/** In place of what is not there: a sentence that says why. */
export const empty = (sentence, more) => h("div", { class: "empty" }, h("p", {}, sentence), more || null);

const LONG = 60; // characters of a value that gets a line of its own

/** What a strategy's notes say of it: a sentence each, marked where it is not as it should be. */
export const condition = (found) => (found.length ? h("ul", { class: "condition", "data-role": "condition" }, found.map((each) => h("li", { class: each.healthy ? "good" : "warn" }, typeset(each.text)))) : null);

/** A long word with places where it may break: after signs, not within names. */
export const breakable = (text) => text.split(/(?<=[(,=/_-])(?=[^\s/])/).flatMap((piece, n) => (n ? [h("wbr"), piece] : [piece]));

/** A few facts, label above value. */
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([label, value, title]) =>
    h("div", { class: typeof value === "string" && value.length > LONG ? "wide" : null }, h("dt", {}, label), h("dd", { title: title || null }, value === "" || value === null || value === undefined ? MISSING : typeof value === "string" ? breakable(value) : value))));

const TONES = {
  finished: "plain", stopped: "warn", running: "live", starting: "live", interrupted: "warn", paused: "warn", failed: "bad", damaged: "bad", unreadable: "bad",
  scored: "plain", ok: "plain", mixed: "warn", unseen: "quiet", error: "bad", timeout: "bad", invalid: "warn", rejected: "bad", lost: "quiet",
  grave: "bad", certified: "good", verified: "plain", proxied: "warn", "self-reported": "warn",
};

/** What people read instead of a level's name. */
const SHOWN = { verified: "scored apart" };
/** A word with a colour; the word alone says it all. */
export const pill = (word, title) => h("span", { class: `pill pill-${TONES[word] || "quiet"}`, title: title || meaning(word) }, SHOWN[word] || words(word));

/** How a run stands, in a colour that is seen from afar. */
export const statePill = (label, title) => h("span", { class: `pill state pill-${TONES[label] || "quiet"}`, "data-state": label, title: title || meaning(label) }, label);

/** A button that copies a text, with a `name` for readers where it is long; none where the browser lets nothing be copied. */
export const copyButton = (text, name = text) => (navigator.clipboard ? h("button", { type: "button", class: "button copy", "aria-label": `Copy ${name}`, onclick: (event) => { navigator.clipboard.writeText(text); event.target.textContent = "Copied"; } }, "Copy") : null);

const REST = 180; // milliseconds that a pointer rests before a glance opens, and that it may be away
let glance = null; // {box, from}: there is one at a time

/** Handlers that show a box while the pointer or the focus is on an element; `make` gives its content, or a promise of it. */
export function peek(make) {
  let waiting = 0;
  const later = (act) => { clearTimeout(waiting); waiting = setTimeout(act, REST); };
  const close = () => { if (glance) glance.box.remove(); glance = null; };
  const show = async (from) => {
    if (!from.isConnected || (glance && glance.from === from)) return;
    close();
    const box = h("div", { class: "peek", role: "tooltip", onpointerenter: () => clearTimeout(waiting), onpointerleave: () => later(close) });
    glance = { box, from };
    try {
      box.append(h("div", {}, await make()));
    } catch (error) {
      box.append(h("p", { class: "note" }, error.message));
    }
    if (!glance || glance.box !== box || !from.isConnected) return;
    document.body.append(box);
    const { left, top, bottom } = from.getBoundingClientRect();
    const above = bottom + box.offsetHeight > innerHeight && top > innerHeight - bottom;
    Object.assign(box.style, { left: `${Math.max(8, Math.min(left, innerWidth - box.offsetWidth - 8))}px`, top: above ? `${Math.max(8, top - box.offsetHeight - 4)}px` : `${bottom + 4}px` });
  };
  return {
    onpointerenter: ({ pointerType, currentTarget }) => pointerType === "mouse" && later(() => show(currentTarget)),
    onpointerleave: () => later(close),
    onfocus: ({ currentTarget }) => currentTarget.matches(":focus-visible") && show(currentTarget),
    onblur: () => later(close),
    onpointerdown: () => { clearTimeout(waiting); close(); },
    onkeydown: (event) => { if (event.key === "Escape" || event.key === "Enter" || event.key === " ") close(); },
  };
}

window.addEventListener("hashchange", () => { if (glance) glance.box.remove(); glance = null; });

const STATUS = { unseen: "not evaluated", mixed: "scored and failed" };

/** How a candidate fared, with what its failures were. */
export const statusPill = (row) =>
  h("span", { class: `pill pill-${TONES[row.status] || "quiet"}`, title: Object.entries(row.statuses).map(([name, n]) => `${n} ${name}`).join(", ") || meaning(row.status) }, STATUS[row.status] || row.status);

/** A number flush right, with the same digits under one another. */
export const cell = (text, props) => h("td", { class: "num", ...props }, text);

/** A candidate's id as a link. */
export const idLink = (ctx, id, text) => h("a", { class: "id", href: ctx.href("candidate", { id }) }, text || id.slice(0, 8));

/** `2.51 ± 0.01`; `0.4 (−0.7 to 1)` where the interval exceeds the bounds of the score. */
export const score = (mean, error, places, [low, high] = [null, null]) => {
  const [value, half] = measured(mean, error, places);
  const ends = [mean - error, mean + error];
  const cut = half && ((low !== null && ends[0] < low) || (high !== null && ends[1] > high));
  const shown = (end, bound, beyond) => (bound !== null && beyond ? number(bound) : number(end, digits(error)));
  const margin = cut ? `(${shown(ends[0], low, ends[0] < low)} to ${shown(ends[1], high, ends[1] > high)})` : half;
  return [value, margin ? h("span", { class: "error" }, ` ${margin}`) : null];
};

/** Buttons of which one is chosen. */
export const choice = (label, options, chosen, pick) =>
  h("div", { class: "choice", role: "group", "aria-label": label }, options.map(([value, text, why]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), disabled: Boolean(why), title: why || null, onclick: () => pick(value) }, text)));

/** A table inside a box that scrolls sideways where it must. */
export const table = (label, head, rows, props) =>
  h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    h("table", props || {}, h("caption", { class: "hidden" }, label), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));

/** A heading, with what it means; `term` where it is not the text itself. */
export const th = (text, props, term) => h("th", { scope: "col", title: meaning(term || text), ...props }, text);

/** A bar of how much is spent. */
export function meter(label, share, text) {
  const full = Math.max(0, Math.min(1, share));
  return h("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuenow": Math.round(100 * full), "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuetext": text },
    h("span", { class: full > 0.95 ? "full" : "", style: { width: `${(100 * full).toFixed(2)}%` } }));
}

/** A dialog; `body` gets a function that closes it. */
export function dialog(title, body) {
  const box = h("dialog", { class: "dialog", "aria-label": title, onclose: () => box.remove() });
  box.append(h("h2", {}, title), body(() => box.close()));
  document.body.append(box);
  box.showModal();
  return box;
}

/** A time that goes on while the page is looked at (`tick`). */
export function running(seconds) {
  const since = Date.now() - 1000 * seconds;
  return h("span", { "data-since": since }, duration(seconds));
}

/** Let all such times go on. */
export function tick() {
  for (const each of document.querySelectorAll("[data-since]")) each.textContent = duration((Date.now() - Number(each.dataset.since)) / 1000);
}

/** True for a text that is a picture: a PNG or JPEG file as a data URL. */
export const isPicture = (text) => /^data:image\/(png|jpeg);base64,/.test(text);

/** A picture no wider than its frame, with what it shows under it. */
export function picture(name, text) {
  return h("figure", { class: "picture" }, h("img", { src: text, alt: name }), h("figcaption", { class: "note" }, name));
}
