"""The events of a run in plain words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import INITIAL, Candidate
from culmen.core.evaluation import Observation
from culmen.core.event import Edits, Entry, Vectors
from culmen.core.json import JsonObject
from culmen.report.figures import (
    count_text,
    dollars_text,
    escape_controls,
    join_nonempty,
    number_text,
    trust_suffix,
)
from culmen.report.sentences import noise_note


def describe_entry(entry: Entry) -> str:
    """One event as a sentence fragment."""
    body, effect = entry.body, entry.effect
    if entry.kind == "done":
        return _describe_result(entry)
    if entry.kind == "started":
        of, case = (str(body.get(name, "")) for name in ("of", "case"))
        return f"{effect} started{f' of {of[:8]}' * bool(of)}{f' on {case}' * bool(case)}"
    if entry.kind == "held":
        return f"{effect} asks a model; it costs at most {_cost_text(body.get('most', {}))} in all"
    if entry.kind == "torn":
        return f"{effect} was cut off; it may have cost {_cost_text(body.get('usage', {}))}"
    if entry.kind == "tell":
        ids = join_nonempty(each.id for each in getattr(entry.result, "candidates", ()))
        told = f"received a {body.get('tell', '')}: {ids or _short_value(body.get('text', ''))}"
        return "asked to pause, to be resumed" if body.get("tell") == "pause" else told
    if entry.kind == "stop":
        reason = str(body.get("reason", ""))
        return f"search asked to end: {'by a person' if reason == 'user' else reason}"
    if entry.kind == "state":
        why = str(body.get("error") or body.get("reason") or "")
        return join_nonempty([str(body.get("state", "")), why], ": ")
    return _describe_note(entry)


def _describe_result(entry: Entry) -> str:
    result = entry.result
    if isinstance(result, Observation):
        reason = "" if result.reason == result.status.value else result.reason
        outcome = join_nonempty([result.status.value, reason], ": ")
        if result.ok:
            outcome = number_text(result.score) + trust_suffix(result.trust)
        case = f" on case {result.case}" if result.case else ""
        return f"evaluated {result.candidate}{case}: {outcome} ({result.seconds:.2f} s)"
    if isinstance(result, Vectors):
        return f"embedded {count_text(result.count, 'candidate')} with {result.embedder}"
    if isinstance(result, Edits):
        return f"edited: {count_text(len(result.parts), 'new text')}{_fault_suffix(result.fault)}"
    if isinstance(result, Proposal | Text):
        tokens = f", {result.usage.tokens:,} tokens" if result.usage.tokens else ""
        by = f" by {result.model}{tokens}" if result.model else ""
        if isinstance(result, Text):
            made = f"wrote {count_text(len(result.text), 'character')}"
        else:
            made = f"proposed {join_nonempty(each.id for each in result.candidates) or 'nothing'}"
        return f"{made}{by}{_fault_suffix(result.fault)}"
    if entry.effect.startswith("session."):
        return describe_session(entry)
    return f"{entry.effect} done"


def _fault_suffix(fault: str) -> str:
    return f" ({fault.replace('_', ' ')})" if fault else ""


def _cost_text(usage: JsonObject) -> str:
    calls = count_text(int(usage.get("calls", 0)), "call")
    return f"{calls}, {dollars_text(float(usage.get('dollars', 0.0)))}"


def _describe_note(entry: Entry) -> str:
    body = dict(entry.body)
    kind = str(body.pop("note", "note"))
    if known := agent_note(entry) or noise_note(entry):
        return known
    made = [_describe_candidate(each) for each in getattr(entry.result, "candidates", ())]
    name = "new" if made and kind != "seeds" else kind.replace("_", " ")
    fields = join_nonempty(f"{name} {_short_value(value)}" for name, value in body.items())
    return join_nonempty([name, *made, fields], "  ")


def _describe_candidate(candidate: Candidate) -> str:
    """A candidate with its operator and note."""
    origin = candidate.origin
    by = f" by {join_nonempty([origin.operator, origin.note])}"
    return candidate.id + by * (origin.operator != INITIAL)


def _short_value(value: object, limit: int = 80) -> str:
    """A value in at most 80 characters; of a structure, its id or its size."""
    if isinstance(value, dict):
        pairs = " ".join(f"{name} {_short_value(each)}" for name, each in value.items())
        text = str(value.get("id", pairs))
    elif isinstance(value, list | tuple):
        nested = any(isinstance(each, dict | list | tuple) for each in value)
        text = f"({len(value)})" if nested else " ".join(map(_short_value, value)) or "none"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = escape_controls(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _short_text(text: object) -> str:
    """An agent's text on one line, shortened."""
    return _short_value(" ".join(str(text).split()))


# Actions of agents in plain words: results of session effects, and notes of strategies with agents.


def describe_session(entry: Entry) -> str:
    """A finished session effect as a sentence fragment."""
    data: JsonObject = getattr(entry.result, "data", {})
    describe = _DONE.get(entry.effect.partition(".")[2])
    action = f"{entry.effect} done" if describe is None else describe(data, entry)
    return f"agent {agent_tag(entry.body.get('agent'))} {action}"


def agent_note(entry: Entry) -> str:
    """A note about agents as a sentence fragment; "" for any other note."""
    describe = _NOTES.get(str(entry.body.get("note", "")))
    return describe(entry.body) if describe is not None and "agent" in entry.body else ""


def agent_tag(agent: object) -> str:
    """Tag of an agent: a00, a01, ... as in paths; `-` for rows of initial programs."""
    return f"a{agent:02d}" if isinstance(agent, int) and agent >= 0 else "-"


def _describe_open(data: JsonObject, entry: Entry) -> str:
    if data.get("fault"):
        return f"cannot begin: {_short_text(data['fault'])}"
    facts = [str(entry.body.get("kind", "")), data.get("version", ""), data.get("isolation", "")]
    return f"begins ({join_nonempty(facts)})"


def _describe_wait(data: JsonObject, entry: Entry) -> str:
    usage = getattr(entry.result, "usage", None)
    asked = len(data.get("experiments", ()))
    ended = join_nonempty([data.get("ended", ""), _short_text(data.get("word", ""))], ": ")
    parts = [
        f"asks for {count_text(asked, 'experiment')}" if asked else "",
        f"has {count_text(len(data['reports']), 'report')}" if data.get("reports") else "",
        f"used {usage.tokens:,} tokens, {dollars_text(usage.dollars)}"
        if usage is not None and usage.calls
        else "",
        f"has been silent for {data['idle']:.0f} s" if data.get("idle") else "",
        f"is over: {ended}" if data.get("ended") else "",
    ]
    return join_nonempty(parts) or "is at work"


def _describe_answer(data: JsonObject, entry: Entry) -> str:
    closing = entry.body.get("closing")
    return "was answered" + (f"; no more experiments: {closing}" if closing else "")


def _describe_tool(data: JsonObject, entry: Entry) -> str:
    outcome = data.get("fault") or (f"exit code {data['code']}" if data.get("code") else "")
    return join_nonempty([f"used {entry.body.get('tool', 'a tool')}", outcome], ": ")


def _describe_commit(data: JsonObject, entry: Entry) -> str:
    parts = [
        f"committed {count_text(len(data.get('changed', ())), 'file')}",
        f"dropped {_list_paths(data['dropped'])}" if data.get("dropped") else "",
        f"kept both of {_list_paths(data['conflicts'])}" if data.get("conflicts") else "",
    ]
    return join_nonempty(parts)


def _list_paths(paths: Sequence[str]) -> str:
    more = f"and {len(paths) - 3} more" if len(paths) > 3 else ""
    return join_nonempty([*map(_short_text, paths[:3]), more])


def _describe_experiment(body: JsonObject) -> str:
    certified, score = body.get("certified"), body.get("score")
    outcome = join_nonempty([str(body.get("status", "")), str(body.get("reason", ""))], ": ")
    if score is not None:
        sure = "" if certified is None else f"certified {number_text(certified)}"
        reason = str(body.get("reason") or "").replace("_", " ")
        outcome = join_nonempty([number_text(score), sure, reason])
    who = "given" if body.get("agent") == -1 else f"agent {agent_tag(body.get('agent'))}"
    result = join_nonempty([str(body.get("candidate", "")), outcome])
    return f"experiment {body.get('n')}, {who}: {result}"


def _describe_agent(body: JsonObject) -> str:
    limits = join_nonempty(
        f"{name} {number_text(value)}" for name, value in body.get("limits", {}).items()
    )
    return f"agent {agent_tag(body['agent'])} of {body.get('agents')} is at work ({limits})"


def _describe_agent_end(body: JsonObject) -> str:
    parts = [
        f"agent {agent_tag(body['agent'])} of {body.get('agents')}: {body['ended']}",
        _short_text(body.get("word", "")),
        count_text(int(body.get("experiments", 0)), "experiment"),
        "a gain" if body.get("gained") else "no gain",
        f"{body['tokens']:,} tokens, {dollars_text(body['dollars'])}" if body.get("calls") else "",
    ]
    return join_nonempty(parts, "; ")


_DONE: dict[str, Callable[[JsonObject, Entry], str]] = {
    "open": _describe_open,
    "wait": _describe_wait,
    "answer": _describe_answer,
    "tool": _describe_tool,
    "nudge": lambda data, entry: (
        f"was nudged{'' if data.get('delivered', True) else ', which was not delivered'}"
    ),
    "end": lambda data, entry: f"was ended: {entry.body.get('reason', '')}",
    "commit": _describe_commit,
}
_NOTES: dict[str, Callable[[JsonObject], str]] = {
    "experiment": _describe_experiment,
    "agent": _describe_agent,
    "agent ended": _describe_agent_end,
    "report": lambda body: (
        f"agent {agent_tag(body['agent'])} reports: {_short_text(body.get('text', ''))}"
    ),
    "stand-in": lambda body: f"agent {agent_tag(body['agent'])}: {body.get('why', '')}",
}
