"""The events of a run in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.event import Edits, Entry, Vectors
from culmen.core.json import JsonObject
from culmen.observe import statements
from culmen.observe.figures import (
    count_text,
    dollars_text,
    escape_controls,
    join_nonempty,
    number_text,
    trust_suffix,
)


def describe_entry(entry: Entry) -> str:
    """One event as a sentence fragment."""
    if entry.kind == "done":
        return _describe_result(entry)
    if entry.kind == "started":
        of, case = (str(entry.body.get(name, "")) for name in ("of", "case"))
        return (
            f"{entry.effect} started"
            + (f" of {of[:8]}" if of else "")
            + (f" on {case}" if case else "")
        )
    if entry.kind == "held":
        cost = _cost_text(entry.body.get("most", {}))
        return f"{entry.effect} asks a model; it costs at most {cost} in all"
    if entry.kind == "torn":
        cost = _cost_text(entry.body.get("usage", {}))
        return f"{entry.effect} was cut off; it may have cost {cost}"
    if entry.kind == "tell":
        return _describe_message(entry)
    if entry.kind == "stop":
        reason = str(entry.body.get("reason", ""))
        return f"search asked to end: {'by a person' if reason == 'user' else reason}"
    if entry.kind == "state":
        return join_nonempty(
            [
                str(entry.body.get("state", "")),
                str(entry.body.get("error") or entry.body.get("reason") or ""),
            ],
            ": ",
        )
    return _describe_note(entry)


def _describe_message(entry: Entry) -> str:
    """A message sent by a person, as a sentence fragment."""
    ids = join_nonempty(candidate.id for candidate in getattr(entry.result, "candidates", ()))
    kind = str(entry.body.get("tell", ""))
    if kind == "pause":
        return "asked to pause, to be resumed"
    return f"received a {kind}: {ids or _shorten_value(entry.body.get('text', ''))}"


def _describe_result(entry: Entry) -> str:
    result = entry.result
    if isinstance(result, Observation):
        outcome = (
            number_text(result.score) + trust_suffix(result.trust)
            if result.ok
            else join_nonempty([result.status.value, result.reason], ": ")
        )
        case = f" on case {result.case}" if result.case else ""
        return f"evaluated {result.candidate}{case}: {outcome} ({result.seconds:.2f} s)"
    if isinstance(result, Vectors):
        return f"embedded {count_text(result.count, 'candidate')} with {result.embedder}"
    if isinstance(result, Edits):
        return f"edited: {count_text(len(result.parts), 'new text')}{_fault_suffix(result)}"
    if isinstance(result, Proposal):
        ids = join_nonempty(candidate.id for candidate in result.candidates)
        return f"proposed {ids or 'nothing'}{_model_suffix(result)}{_fault_suffix(result)}"
    if isinstance(result, Text):
        length = count_text(len(result.text), "character")
        return f"wrote {length}{_model_suffix(result)}{_fault_suffix(result)}"
    if entry.effect.startswith("session."):
        return describe_session(entry)
    return f"{entry.effect} done"


def _model_suffix(result: Proposal | Text) -> str:
    tokens = f", {result.usage.tokens:,} tokens" if result.usage.tokens else ""
    return f" by {result.model}{tokens}" if result.model else ""


def _fault_suffix(result: Proposal | Text | Edits) -> str:
    return f" ({result.fault.replace('_', ' ')})" if result.fault else ""


def _cost_text(usage: JsonObject) -> str:
    return join_nonempty(
        [
            count_text(int(usage.get("calls", 0)), "call"),
            dollars_text(float(usage.get("dollars", 0.0))),
        ]
    )


def _describe_note(entry: Entry) -> str:
    if about := agent_note(entry):
        return about
    body = dict(entry.body)
    kind = str(body.pop("note", "note"))
    if sentence := statements.noise_note(entry):
        return sentence
    fields = join_nonempty(f"{name} {_shorten_value(value)}" for name, value in body.items())
    candidates = [
        _describe_candidate(candidate) for candidate in getattr(entry.result, "candidates", ())
    ]
    return join_nonempty(
        [
            "seeds" if kind == "seeds" else "new" if candidates else kind.replace("_", " "),
            *candidates,
            fields,
        ],
        "  ",
    )


def _describe_candidate(candidate: Candidate) -> str:
    """A candidate with its operator and note."""
    origin = candidate.origin
    return (
        candidate.id
        if origin.operator == "seed"
        else f"{candidate.id} by {join_nonempty([origin.operator, origin.note])}"
    )


def _shorten_value(value: object) -> str:
    """A value in at most 80 characters; of a structure, its id or its size."""
    if isinstance(value, dict):
        text = (
            str(value["id"])
            if "id" in value
            else " ".join(f"{name} {_shorten_value(each)}" for name, each in value.items())
        )
    elif isinstance(value, list | tuple):
        nested = any(isinstance(each, dict | list | tuple) for each in value)
        text = f"({len(value)})" if nested else " ".join(map(_shorten_value, value)) or "none"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = escape_controls(text)
    return text if len(text) <= 80 else text[:77] + "..."


# Actions of agents in plain words: results of session effects, and notes of strategies with agents.

_WORD = 80  # characters kept of an agent's text


def describe_session(entry: Entry) -> str:
    """A finished session effect as a sentence fragment."""
    data: JsonObject = getattr(entry.result, "data", {})
    what = entry.effect.partition(".")[2]
    action = _DONE.get(what, _describe_other)(data, entry)
    return f"agent {agent_tag(entry.body.get('agent'))} {action}"


def agent_note(entry: Entry) -> str:
    """A note about agents as a sentence fragment; "" for any other note."""
    teller = _NOTES.get(str(entry.body.get("note", "")))
    return teller(entry.body) if teller is not None and "agent" in entry.body else ""


def agent_tag(agent: object) -> str:
    """Tag of an agent: a00, a01, ... as in paths; `-` for rows of initial programs."""
    return f"a{agent:02d}" if isinstance(agent, int) and agent >= 0 else "-"


def _describe_open(data: JsonObject, entry: Entry) -> str:
    if data.get("fault"):
        return f"cannot begin: {_shorten_text(data['fault'])}"
    facts = join_nonempty(
        [str(entry.body.get("kind", "")), data.get("version", ""), data.get("isolation", "")]
    )
    return f"begins ({facts})"


def _describe_wait(data: JsonObject, entry: Entry) -> str:
    usage = getattr(entry.result, "usage", None)
    asked = len(data.get("experiments", ()))
    parts = [
        f"asks for {count_text(asked, 'experiment')}" if asked else "",
        f"has {count_text(len(data['reports']), 'report')}" if data.get("reports") else "",
        f"used {usage.tokens:,} tokens, {dollars_text(usage.dollars)}"
        if usage is not None and usage.calls
        else "",
        f"has been silent for {data['idle']:.0f} s" if data.get("idle") else "",
        f"is over: {join_nonempty([data['ended'], _shorten_text(data.get('word', ''))], ': ')}"
        if data.get("ended")
        else "",
    ]
    return join_nonempty(parts) or "is at work"


def _describe_answer(data: JsonObject, entry: Entry) -> str:
    closing = entry.body.get("closing")
    return "was answered" + (f"; no more experiments: {closing}" if closing else "")


def _describe_tool(data: JsonObject, entry: Entry) -> str:
    outcome = data.get("fault") or (f"exit code {data['code']}" if data.get("code") else "")
    return join_nonempty([f"used {entry.body.get('tool', 'a tool')}", outcome], ": ")


def _describe_nudge(data: JsonObject, entry: Entry) -> str:
    return "was nudged" + ("" if data.get("delivered", True) else ", which was not delivered")


def _describe_end(data: JsonObject, entry: Entry) -> str:
    return f"was ended: {entry.body.get('reason', '')}"


def _describe_commit(data: JsonObject, entry: Entry) -> str:
    parts = [
        f"committed {count_text(len(data.get('changed', ())), 'file')}",
        f"dropped {_list_paths(data['dropped'])}" if data.get("dropped") else "",
        f"kept both of {_list_paths(data['conflicts'])}" if data.get("conflicts") else "",
    ]
    return join_nonempty(parts)


def _describe_other(data: JsonObject, entry: Entry) -> str:
    return f"{entry.effect} done"


def _describe_experiment(body: JsonObject) -> str:
    certified, score = body.get("certified"), body.get("score")
    outcome = join_nonempty([str(body.get("status", "")), str(body.get("reason", ""))], ": ")
    if score is not None:
        outcome = number_text(score) + (
            f", certified {number_text(certified)}" if certified is not None else ""
        )
        outcome += f", {body['reason'].replace('_', ' ')}" if body.get("reason") else ""
    who = "given" if body.get("agent") == -1 else f"agent {agent_tag(body.get('agent'))}"
    result = join_nonempty([str(body.get("candidate", "")), outcome])
    return f"experiment {body.get('n')}, {who}: {result}"


def _describe_agent(body: JsonObject) -> str:
    limits = join_nonempty(
        f"{name} {number_text(value)}" for name, value in body.get("limits", {}).items()
    )
    return f"agent {agent_tag(body['agent'])} of {body.get('agents')} is at work ({limits})"


def _describe_agent_end(body: JsonObject) -> str:
    who = f"agent {agent_tag(body['agent'])} of {body.get('agents')}"
    gain = "a gain" if body.get("gained") else "no gain"
    cost = (
        f"{body['tokens']:,} tokens, {dollars_text(body['dollars'])}" if body.get("calls") else ""
    )
    experiments = count_text(int(body.get("experiments", 0)), "experiment")
    return join_nonempty(
        [f"{who}: {body['ended']}", _shorten_text(body.get("word", "")), experiments, gain, cost],
        "; ",
    )


def _describe_report(body: JsonObject) -> str:
    return f"agent {agent_tag(body['agent'])} reports: {_shorten_text(body.get('text', ''))}"


def _describe_stand_in(body: JsonObject) -> str:
    return f"agent {agent_tag(body['agent'])}: {body.get('why', '')}"


def _shorten_text(text: object) -> str:
    """An agent's text on one line, shortened."""
    flat = " ".join(escape_controls(str(text)).split())
    return flat if len(flat) <= _WORD else flat[: _WORD - 3] + "..."


def _list_paths(paths: Sequence[str]) -> str:
    shown = [_shorten_text(path) for path in paths[:3]]
    return join_nonempty([*shown, f"and {len(paths) - 3} more" if len(paths) > 3 else ""])


_DONE = {
    "open": _describe_open,
    "wait": _describe_wait,
    "answer": _describe_answer,
    "tool": _describe_tool,
    "nudge": _describe_nudge,
    "end": _describe_end,
    "commit": _describe_commit,
}
_NOTES = {
    "experiment": _describe_experiment,
    "agent": _describe_agent,
    "agent ended": _describe_agent_end,
    "report": _describe_report,
    "stand-in": _describe_stand_in,
}
