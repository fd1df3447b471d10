// What a person may do: stop a run that goes on, give it a hint, hand in a candidate; say what a run is, put it away.

import { h } from "./dom.js";
import { dialog } from "./parts.js";

const UNREAD = ["damaged", "unreadable"];

/** Buttons for the state the run is in; none in a report, or where the address carried no token. */
export function actions(head, data, run) {
  if (!data.live || head.over || UNREAD.includes(head.state)) return null;
  const why = data.writing ? null : "Open the address that culmen ui printed: it contains the token required for writing.";
  const button = (text, open, extra) => h("button", { type: "button", class: `button ${extra || ""}`, disabled: Boolean(why), title: why, onclick: open }, text);
  return h("div", { class: "actions", role: "group", "aria-label": "Act on this run" },
    button("Hint", () => hint(data, run)),
    button("Candidate", () => candidate(data, run)),
    head.state === "running" ? button("Stop", () => stop(data, run, head), "danger") : null);
}

const TAKEN = "Sent: the search takes it in within a second.";
const LEFT = "Left for the run: it is taken in when the run is resumed.";

/** A dialog that sends what was filled in; `told` makes the sentence of the answer, `after` is called once it is closed. */
function form(title, fields, send, { verb = "Send", told = (answer) => (answer.taken ? TAKEN : LEFT), after = null } = {}) {
  const said = h("p", { class: "said", role: "status" });
  dialog(title, (close) => {
    const sendButton = h("button", { type: "submit", class: "button primary" }, verb);
    return h("form", { onsubmit: async (event) => {
      event.preventDefault();
      sendButton.disabled = true;
      try {
        const answer = await send(new FormData(event.target));
        said.textContent = told(answer);
        said.className = "said good";
        if (after) after();
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

/** Answer a prompt in the place of a model. */
export function reply(data, run, question) {
  form(`Prompt ${question.number}`, [
    h("details", { open: true }, h("summary", {}, "The prompt"), h("pre", { class: "plain asked" }, question.text)),
    h("label", { for: "answer" }, "Your answer, in the form that the prompt asks for"),
    h("textarea", { id: "answer", name: "answer", class: "code-input", rows: 14, spellcheck: "false" }),
    h("p", { class: "note" }, "It is journaled like a model's reply. An empty one answers nothing."),
  ], (fields) => data.post(`runs/${run}/answer`, { prompt: question.number, text: fields.get("answer") }), { told: () => "Sent: the search goes on with it." });
}

/** Tags and a remark of a run. */
export function label(data, run, after) {
  form(`What ${run.name} is`, [
    h("label", { for: "tags" }, "Tags, with commas between them"),
    h("input", { id: "tags", name: "tags", value: run.tags.join(", "), autocomplete: "off" }),
    h("label", { for: "remark" }, "Remark"),
    h("textarea", { id: "remark", name: "remark", rows: 4, maxlength: 4000 }, run.remark),
    h("p", { class: "note" }, "Kept in the run's folder (labels.jsonl), beside the journal: the search does not see it."),
  ], (fields) => data.post(`runs/${run.name}/labels`, { tags: fields.get("tags").split(","), remark: fields.get("remark") }), { verb: "Save", told: () => "Saved.", after });
}

/** Compress runs, or delete them: one after the other, so that the first that cannot be put away stops the rest. */
export function putAway(data, names, how, after) {
  const each = how === "archive" ? "Each becomes one compressed file beside its folder (culmen runs archive --restore unpacks it), which is checked before the folder is deleted. Runs that have not finished are left as they are." : "Their folders are deleted, journals and all. Nothing brings them back.";
  form(how === "archive" ? "Archive runs" : "Delete runs", [
    h("ul", {}, names.map((name) => h("li", {}, name))),
    h("p", { class: "note" }, each),
    how === "delete" ? [h("label", { for: "sure" }, `Type ${names.length} to delete ${names.length === 1 ? "this run" : `these ${names.length} runs`}`), h("input", { id: "sure", name: "sure", required: true, pattern: String(names.length), autocomplete: "off" })] : null,
  ], async () => {
    try {
      for (const name of names) await data.post(`runs/${name}/${how}`, {});
    } finally {
      after();
    }
  }, { verb: how === "archive" ? "Archive" : "Delete", told: () => (how === "archive" ? "Archived." : "Deleted.") });
}
