"""What agents do, in plain words: results of session effects, and the notes of a strategy that has agents."""

from __future__ import annotations

from typing import Any

from culmen.core.event import Entry
from culmen.observe.figures import clean, count, dollars, joined, number

_WORD = 80  # characters of an agent's own words


def done(entry: Entry) -> str:
    """A finished session effect."""
    data: dict[str, Any] = getattr(entry.result, "data", {})
    what = entry.effect.partition(".")[2]
    return f"agent {tag(entry.body.get('agent'))} {_DONE.get(what, _other)(data, entry)}"


def note(entry: Entry) -> str:
    """A note about agents, "" for any other."""
    teller = _NOTES.get(str(entry.body.get("note", "")))
    return teller(entry.body) if teller is not None and "agent" in entry.body else ""


def tag(agent: Any) -> str:
    """a00, a01, ... as in paths; the seeds' rows belong to nobody."""
    return f"a{agent:02d}" if isinstance(agent, int) and agent >= 0 else "-"


def _open(data: dict[str, Any], entry: Entry) -> str:
    if data.get("fault"):
        return f"cannot begin: {_said(data['fault'])}"
    facts = joined([str(entry.body.get("kind", "")), data.get("version", ""), data.get("isolation", "")])
    return f"begins ({facts})"


def _wait(data: dict[str, Any], entry: Entry) -> str:
    usage = getattr(entry.result, "usage", None)
    asked = len(data.get("experiments", ()))
    parts = [
        f"asks for {count(asked, 'experiment')}" if asked else "",
        f"has {count(len(data['reports']), 'report')}" if data.get("reports") else "",
        f"used {usage.tokens:,} tokens, {dollars(usage.dollars)}" if usage is not None and usage.calls else "",
        f"has been silent for {data['idle']:.0f} s" if data.get("idle") else "",
        f"is over: {joined([data['ended'], _said(data.get('word', ''))], ': ')}" if data.get("ended") else "",
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
        outcome = number(score) + (f", certified {number(certified)}" if certified is not None else "")
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
    return joined([f"{who}: {body['ended']}", _said(body.get("word", "")), experiments, gain, cost], "; ")


def _report(body: dict[str, Any]) -> str:
    return f"agent {tag(body['agent'])} reports: {_said(body.get('text', ''))}"


def _stand_in(body: dict[str, Any]) -> str:
    return f"agent {tag(body['agent'])}: {body.get('why', '')}"


def _said(text: Any) -> str:
    """Words of an agent, on one line."""
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
