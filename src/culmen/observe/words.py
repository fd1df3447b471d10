"""The events of a run in plain words."""

from __future__ import annotations

from typing import Any

from culmen.core.evaluation import Observation
from culmen.core.event import Edits, Entry, Vectors
from culmen.core.result import NoiseReport
from culmen.observe import statements
from culmen.observe.figures import clean, count, dollars, doubt, joined, number


def words(entry: Entry) -> str:
    """One event as a sentence fragment."""
    if entry.kind == "done":
        return _done(entry)
    if entry.kind == "started":
        of, case = (str(entry.body.get(name, "")) for name in ("of", "case"))
        return (
            f"{entry.effect} started"
            + (f" of {of[:8]}" if of else "")
            + (f" on {case}" if case else "")
        )
    if entry.kind == "held":
        return (
            f"{entry.effect} asks a model; it costs at most {_cost(entry.body.get('most', {}))} in "
            "all"
        )
    if entry.kind == "torn":
        return f"{entry.effect} was cut off; it may have cost {_cost(entry.body.get('usage', {}))}"
    if entry.kind == "tell":
        return _told(entry)
    if entry.kind == "stop":
        reason = str(entry.body.get("reason", ""))
        return f"search told to end: {'by a person' if reason == 'user' else reason}"
    if entry.kind == "state":
        return joined(
            [
                str(entry.body.get("state", "")),
                str(entry.body.get("error") or entry.body.get("reason") or ""),
            ],
            ": ",
        )
    return _note(entry)


def _told(entry: Entry) -> str:
    """A message sent by a person, as a sentence fragment."""
    made = joined(candidate.id for candidate in getattr(entry.result, "candidates", ()))
    kind = str(entry.body.get("tell", ""))
    if kind == "pause":
        return "told to pause, to be resumed"
    return f"told a {kind}: {made or _short(entry.body.get('text', ''))}"


def _done(entry: Entry) -> str:
    result: Any = entry.result
    if isinstance(result, Observation):
        outcome = (
            number(result.score) + doubt(result.trust)
            if result.ok
            else joined([result.status.value, result.reason], ": ")
        )
        case = f" on case {result.case}" if result.case else ""
        return f"evaluated {result.candidate}{case}: {outcome} ({result.seconds:.2f} s)"
    if isinstance(result, Vectors):
        return f"embedded {count(result.count, 'candidate')} with {result.embedder}"
    if isinstance(result, Edits):
        return f"edited: {count(len(result.parts), 'new text')}{_fault(result)}"
    if hasattr(result, "candidates"):
        ids = joined(candidate.id for candidate in result.candidates)
        return f"proposed {ids or 'nothing'}{_by(result)}{_fault(result)}"
    if hasattr(result, "text"):
        return f"wrote {count(len(result.text), 'character')}{_by(result)}{_fault(result)}"
    if entry.effect.startswith("session."):
        return session_done(entry)
    return f"{entry.effect} done"


def _by(result: Any) -> str:
    tokens = f", {result.usage.tokens:,} tokens" if result.usage.tokens else ""
    return f" by {result.model}{tokens}" if result.model else ""


def _fault(result: Any) -> str:
    return f" ({result.fault.replace('_', ' ')})" if result.fault else ""


def _cost(usage: dict[str, Any]) -> str:
    return joined(
        [count(int(usage.get("calls", 0)), "call"), dollars(float(usage.get("dollars", 0.0)))]
    )


def _note(entry: Entry) -> str:
    if about := agent_note(entry):
        return about
    body = dict(entry.body)
    kind = str(body.pop("note", "note"))
    if said := noise_note(entry):
        return said
    fields = joined(f"{name} {_short(value)}" for name, value in body.items())
    made = [_made(candidate) for candidate in getattr(entry.result, "candidates", ())]
    return joined(
        ["seeds" if kind == "seeds" else "new" if made else kind.replace("_", " "), *made, fields],
        "  ",
    )


def noise_note(entry: Entry) -> str:
    """A sentence from a note on the evaluator's noise; "" for any other entry."""
    if entry.kind != "note" or entry.body.get("note") != "noise":
        return ""
    exact, sd, repeats = (entry.body.get(name) for name in ("exact", "sd", "repeats"))
    return statements.noise(NoiseReport(exact, float(sd or 0.0), int(repeats or 0)))


def _made(candidate: Any) -> str:
    """A candidate with its operator and note."""
    origin = candidate.origin
    return (
        candidate.id
        if origin.operator == "seed"
        else f"{candidate.id} by {joined([origin.operator, origin.note])}"
    )


def _short(value: Any) -> str:
    """A value in at most 80 characters; of a structure, its id or its size."""
    if isinstance(value, dict):
        text = (
            str(value["id"])
            if "id" in value
            else " ".join(f"{name} {_short(each)}" for name, each in value.items())
        )
    elif isinstance(value, list | tuple):
        nested = any(isinstance(each, dict | list | tuple) for each in value)
        text = f"({len(value)})" if nested else " ".join(map(_short, value)) or "none"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = clean(text)
    return text if len(text) <= 80 else text[:77] + "..."


# Actions of agents in plain words: results of session effects, and notes of strategies with agents.

_WORD = 80  # characters kept of an agent's text


def session_done(entry: Entry) -> str:
    """A finished session effect as a sentence fragment."""
    data: dict[str, Any] = getattr(entry.result, "data", {})
    what = entry.effect.partition(".")[2]
    return f"agent {tag(entry.body.get('agent'))} {_DONE.get(what, _other)(data, entry)}"


def agent_note(entry: Entry) -> str:
    """A note about agents as a sentence fragment; "" for any other note."""
    teller = _NOTES.get(str(entry.body.get("note", "")))
    return teller(entry.body) if teller is not None and "agent" in entry.body else ""


def tag(agent: Any) -> str:
    """Tag of an agent: a00, a01, ... as in paths; `-` for rows of initial programs."""
    return f"a{agent:02d}" if isinstance(agent, int) and agent >= 0 else "-"


def _open(data: dict[str, Any], entry: Entry) -> str:
    if data.get("fault"):
        return f"cannot begin: {_said(data['fault'])}"
    facts = joined(
        [str(entry.body.get("kind", "")), data.get("version", ""), data.get("isolation", "")]
    )
    return f"begins ({facts})"


def _wait(data: dict[str, Any], entry: Entry) -> str:
    usage = getattr(entry.result, "usage", None)
    asked = len(data.get("experiments", ()))
    parts = [
        f"asks for {count(asked, 'experiment')}" if asked else "",
        f"has {count(len(data['reports']), 'report')}" if data.get("reports") else "",
        f"used {usage.tokens:,} tokens, {dollars(usage.dollars)}"
        if usage is not None and usage.calls
        else "",
        f"has been silent for {data['idle']:.0f} s" if data.get("idle") else "",
        f"is over: {joined([data['ended'], _said(data.get('word', ''))], ': ')}"
        if data.get("ended")
        else "",
    ]
    return joined(parts) or "is at work"


def _answer(data: dict[str, Any], entry: Entry) -> str:
    closing = entry.body.get("closing")
    return "was answered" + (f"; no more experiments: {closing}" if closing else "")


def _tool(data: dict[str, Any], entry: Entry) -> str:
    outcome = data.get("fault") or (f"exit code {data['code']}" if data.get("code") else "")
    return joined([f"used {entry.body.get('tool', 'a tool')}", outcome], ": ")


def _nudge(data: dict[str, Any], entry: Entry) -> str:
    return "was nudged" + ("" if data.get("delivered", True) else ", and nobody heard it")


def _end(data: dict[str, Any], entry: Entry) -> str:
    return f"was ended: {entry.body.get('reason', '')}"


def _commit(data: dict[str, Any], entry: Entry) -> str:
    parts = [
        f"committed {count(len(data.get('changed', ())), 'file')}",
        f"dropped {_listed(data['dropped'])}" if data.get("dropped") else "",
        f"kept both of {_listed(data['conflicts'])}" if data.get("conflicts") else "",
    ]
    return joined(parts)


def _other(data: dict[str, Any], entry: Entry) -> str:
    return f"{entry.effect} done"


def _experiment(body: dict[str, Any]) -> str:
    certified, score = body.get("certified"), body.get("score")
    outcome = joined([str(body.get("status", "")), str(body.get("reason", ""))], ": ")
    if score is not None:
        outcome = number(score) + (
            f", certified {number(certified)}" if certified is not None else ""
        )
        outcome += f", {body['reason'].replace('_', ' ')}" if body.get("reason") else ""
    who = "seed" if body.get("agent") == -1 else f"agent {tag(body.get('agent'))}"
    return f"experiment {body.get('n')}, {who}: {joined([str(body.get('candidate', '')), outcome])}"


def _agent(body: dict[str, Any]) -> str:
    limits = joined(f"{name} {number(value)}" for name, value in body.get("limits", {}).items())
    return f"agent {tag(body['agent'])} of {body.get('agents')} is at work ({limits})"


def _ended(body: dict[str, Any]) -> str:
    who = f"agent {tag(body['agent'])} of {body.get('agents')}"
    gain = "a gain" if body.get("gained") else "no gain"
    cost = f"{body['tokens']:,} tokens, {dollars(body['dollars'])}" if body.get("calls") else ""
    experiments = count(int(body.get("experiments", 0)), "experiment")
    return joined(
        [f"{who}: {body['ended']}", _said(body.get("word", "")), experiments, gain, cost], "; "
    )


def _report(body: dict[str, Any]) -> str:
    return f"agent {tag(body['agent'])} reports: {_said(body.get('text', ''))}"


def _stand_in(body: dict[str, Any]) -> str:
    return f"agent {tag(body['agent'])}: {body.get('why', '')}"


def _said(text: Any) -> str:
    """An agent's text on one line, shortened."""
    flat = " ".join(clean(str(text)).split())
    return flat if len(flat) <= _WORD else flat[: _WORD - 3] + "..."


def _listed(paths: Any) -> str:
    shown = [_said(path) for path in list(paths)[:3]]
    return joined([*shown, f"and {len(paths) - 3} more" if len(paths) > 3 else ""])


_DONE = {
    "open": _open,
    "wait": _wait,
    "answer": _answer,
    "tool": _tool,
    "nudge": _nudge,
    "end": _end,
    "commit": _commit,
}
_NOTES = {
    "experiment": _experiment,
    "agent": _agent,
    "agent ended": _ended,
    "report": _report,
    "stand-in": _stand_in,
}
