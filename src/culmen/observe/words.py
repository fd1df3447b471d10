"""The events of a run in plain words."""

from __future__ import annotations

from typing import Any

from culmen.core.evaluation import Observation
from culmen.core.event import Edits, Entry, Vectors
from culmen.observe import agents
from culmen.observe.figures import clean, count, dollars, doubt, joined, number


def words(entry: Entry) -> str:
    """One event as a sentence fragment."""
    if entry.kind == "done":
        return _done(entry)
    if entry.kind == "started":
        return f"{entry.effect} started"
    if entry.kind == "torn":
        return f"{entry.effect} was cut off by a crash; it may have cost {_cost(entry.body.get('usage', {}))}"
    if entry.kind == "tell":
        return _told(entry)
    if entry.kind == "stop":
        reason = str(entry.body.get("reason", ""))
        return f"search told to end: {'by a person' if reason == 'user' else reason}"
    if entry.kind == "state":
        return joined(
            [str(entry.body.get("state", "")), str(entry.body.get("error") or entry.body.get("reason") or "")], ": "
        )
    return _note(entry)


def _told(entry: Entry) -> str:
    """What a person sent."""
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
        return agents.done(entry)
    return f"{entry.effect} done"


def _by(result: Any) -> str:
    tokens = f", {result.usage.tokens:,} tokens" if result.usage.tokens else ""
    return f" by {result.model}{tokens}" if result.model else ""


def _fault(result: Any) -> str:
    return f" ({result.fault.replace('_', ' ')})" if result.fault else ""


def _cost(usage: dict[str, Any]) -> str:
    return joined([count(int(usage.get("calls", 0)), "call"), dollars(float(usage.get("dollars", 0.0)))])


def _note(entry: Entry) -> str:
    if about := agents.note(entry):
        return about
    body = dict(entry.body)
    kind = str(body.pop("note", "note"))
    fields = joined(f"{name} {_short(value)}" for name, value in body.items())
    made = [_made(candidate) for candidate in getattr(entry.result, "candidates", ())]
    return joined(["seeds" if kind == "seeds" else "new" if made else kind.replace("_", " "), *made, fields], "  ")


def _made(candidate: Any) -> str:
    """A candidate with what made it."""
    origin = candidate.origin
    return candidate.id if origin.operator == "seed" else f"{candidate.id} by {joined([origin.operator, origin.note])}"


def _short(value: Any) -> str:
    """A value in at most 80 characters; of a structure what names it, or how much there is."""
    if isinstance(value, dict):
        text = str(value["id"]) if "id" in value else " ".join(f"{name} {_short(each)}" for name, each in value.items())
    elif isinstance(value, list | tuple):
        nested = any(isinstance(each, dict | list | tuple) for each in value)
        text = f"({len(value)})" if nested else " ".join(map(_short, value)) or "none"
    else:
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
    text = clean(text)
    return text if len(text) <= 80 else text[:77] + "..."
