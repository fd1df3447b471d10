"""The log: events of a run in plain words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation
from culmen.core.event import Edits, Entry, Event, Vectors
from culmen.observe.figures import clean, clock, count, dollars, joined, number
from culmen.store import views

_PAGE = 500
_POLL = 0.5  # seconds between two looks at a run that goes on
_OVER = ("finished", "failed", "paused", "interrupted")


def answer(screen: Screen, run: Path, last: int | None, follow: bool) -> Answer:
    """The last events (all of them for None); with `follow` those that come, until the run ends."""
    if follow and screen.as_json:
        raise UserError("--follow never ends, so it cannot give one document", where="--json", fix="leave one out")
    events = _events(run, last)
    if screen.as_json:
        return Answer({"run": run.name, "events": [_plain(event) for event in events]})

    def show(screen: Screen) -> None:
        for event in events:
            _line(screen, event)
        if follow:
            _follow(screen, run, events[-1].seq if events else 0)

    return Answer(None, show)


def _events(run: Path, last: int | None) -> list[Event]:
    after = 0 if last is None else max(0, views.status(run).events - last)
    events: list[Event] = []
    while page := views.log(run, after, _PAGE):
        events += page
        after = page[-1].seq
    return events


def _follow(screen: Screen, run: Path, after: int) -> None:
    while True:
        state = views.status(run).state  # asked first: what is journaled before the end is still shown
        page = views.log(run, after, _PAGE)
        for event in page:
            _line(screen, event)
            after = event.seq
        if state in _OVER and not page:
            return
        if len(page) < _PAGE:
            time.sleep(_POLL)


def _plain(event: Event) -> dict[str, Any]:
    plain = msgspec.to_builtins(event)
    return {"seq": plain["seq"], "time": plain["time"], "words": words(event.entry), **plain["entry"]}


def _line(screen: Screen, event: Event) -> None:
    entry = event.entry
    screen.line(f"{event.seq:>6}  {clock(entry.elapsed):>7}  {_number(entry):>5}  {words(entry)}")


def _number(entry: Entry) -> str:
    return f"#{entry.key}" if entry.kind in ("started", "done", "torn") and entry.key else ""


def words(entry: Entry) -> str:
    """One event as a sentence fragment."""
    if entry.kind == "done":
        return _done(entry)
    if entry.kind == "started":
        return f"{entry.effect} started"
    if entry.kind == "torn":
        return f"{entry.effect} was cut off by a crash; it may have cost {_cost(entry.body.get('usage', {}))}"
    if entry.kind == "stop":
        return f"search told to end: {entry.body.get('reason', '')}"
    if entry.kind == "state":
        return joined(
            [str(entry.body.get("state", "")), str(entry.body.get("error") or entry.body.get("reason") or "")], ": "
        )
    return _note(entry)


def _done(entry: Entry) -> str:
    result: Any = entry.result
    if isinstance(result, Observation):
        outcome = number(result.score) if result.ok else joined([result.status.value, result.reason], ": ")
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
    return f"{entry.effect} done"


def _by(result: Any) -> str:
    tokens = f", {result.usage.tokens:,} tokens" if result.usage.tokens else ""
    return f" by {result.model}{tokens}" if result.model else ""


def _fault(result: Any) -> str:
    return f" ({result.fault.replace('_', ' ')})" if result.fault else ""


def _cost(usage: dict[str, Any]) -> str:
    return joined([count(int(usage.get("calls", 0)), "call"), dollars(float(usage.get("dollars", 0.0)))])


def _note(entry: Entry) -> str:
    body = dict(entry.body)
    kind = str(body.pop("note", "note"))
    fields = joined(f"{name} {_short(value)}" for name, value in body.items())
    candidates = getattr(entry.result, "candidates", ())
    return joined([kind.replace("_", " "), joined(c.id for c in candidates), fields], ": ")


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else clean(str(value))
    return text if len(text) <= 80 else text[:77] + "..."
