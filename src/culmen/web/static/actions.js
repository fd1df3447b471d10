// What a person may do to a run that goes on: stop it, give a hint, hand in a candidate.

import { h } from "./dom.js";
import { dialog } from "./parts.js";

const OVER = ["finished", "damaged", "unreadable"];

/** Buttons for the state the run is in; none in a report, or where the address carried no token. */
export function actions(head, data, run) {
  if (!data.live || OVER.includes(head.state)) return null;
  const why = data.writing ? null : "Open the address that culmen ui printed: it carries the token that writing takes.";
  const button = (text, open, extra) => h("button", { type: "button", class: `button ${extra || ""}`, disabled: Boolean(why), title: why, onclick: open }, text);
  return h("div", { class: "actions", role: "group", "aria-label": "Act on this run" },
    button("Hint", () => hint(data, run)),
    button("Candidate", () => candidate(data, run)),
    head.state === "running" ? button("Stop", () => stop(data, run, head), "danger") : null);
}

function form(title, fields, send) {
  const said = h("p", { class: "said", role: "status" });
  dialog(title, (close) => {
    const sendButton = h("button", { type: "submit", class: "button primary" }, "Send");
    return h("form", { onsubmit: async (event) => {
      event.preventDefault();
      sendButton.disabled = true;
      try {
        const answer = await send(new FormData(event.target));
        said.textContent = answer.taken ? "Sent: the search takes it in within a second." : "Left for the run: it is taken in when the run is resumed.";
        said.className = "said good";
        setTimeout(close, 1600);
      } catch (error) {
        said.textContent = [error.message, error.next].filter(Boolean).join(": ");
        said.className = "said bad";
        sendButton.disabled = false;
      }
    } }, fields, said, h("div", { class: "buttons" }, h("button", { type: "button", class: "button", onclick: close }, "Cancel"), sendButton));
  });
}

function hint(data, run) {
  form("Give a hint", [
    h("label", { for: "hint" }, "What should be tried, or left?"),
    h("textarea", { id: "hint", name: "hint", rows: 4, maxlength: 4000, required: true }),
    h("p", { class: "note" }, "It is journaled, and every later request for candidates carries it. A run without a model has nobody to read it."),
  ], (fields) => data.post(`runs/${run}/hint`, { text: fields.get("hint") }));
}

async function candidate(data, run) {
  const best = await data.get(`runs/${run}/candidate`, { id: "best" }).catch(() => data.get(`runs/${run}/candidate`, { id: "seed" }).catch(() => ({ parts: { candidate: "" } })));
  const names = Object.keys(best.parts);
  form("Hand in a candidate", [
    names.map((name, place) => [
      h("label", { for: `part-${place}` }, name),
      h("textarea", { id: `part-${place}`, name: `part-${place}`, class: "code-input", rows: names.length > 1 ? 8 : 18, spellcheck: "false", required: true }, best.parts[name]),
    ]),
    h("p", { class: "note" }, "Begins as the best so far. It is evaluated at once, and counts in the final choice like any other."),
  ], (fields) => data.post(`runs/${run}/candidate`, { parts: Object.fromEntries(names.map((name, place) => [name, fields.get(`part-${place}`)])) }));
}

function stop(data, run, head) {
  form("Stop the search", [
    h("fieldset", {},
      h("legend", { class: "hidden" }, "How"),
      h("label", { class: "radio" }, h("input", { type: "radio", name: "how", value: "finish", checked: true }), h("span", {}, h("b", {}, "Finish now"), " End the search and make the final choice from what was found.")),
      h("label", { class: "radio" }, h("input", { type: "radio", name: "how", value: "pause" }), h("span", {}, h("b", {}, "Pause"), " End the process as Ctrl-C does; culmen resume goes on from there."))),
    h("p", { class: "note" }, `${head.run} is run ${head.owner ? `by ${head.owner}` : "by another process"}.`),
  ], (fields) => data.post(`runs/${run}/stop`, { pause: fields.get("how") === "pause" }));
}
