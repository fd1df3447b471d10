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
_KINDS = ("done", "note", "torn", "stop", "state", "tell")
_OVER = ("finished", "failed", "paused", "interrupted")


class Log(msgspec.Struct, frozen=True):
    """The events of one run, with or without those that only say that an effect was started."""

    run: Path
    starts: bool = False

    def after(self, seq: int) -> list[Event]:
        """One page of events beyond `seq`."""
        return views.log(self.run, seq, _PAGE, _KINDS + (("started",) if self.starts else ()))

    def last(self, count: int | None) -> list[Event]:
        """The last `count` events, all of them for None."""
        seq = 0
        if count is not None:  # at most every other event is a start
            seq = max(0, views.status(self.run).events - 3 * count)
        events: list[Event] = []
        while page := self.after(seq):
            events += page
            seq = page[-1].seq
        return events if count is None else events[-count:]


def answer(screen: Screen, log: Log, last: int | None, follow: bool) -> Answer:
    """The last events (all of them for None); with `follow` those that come, until the run ends."""
    if follow and screen.as_json:
        raise UserError("--follow goes on, so it cannot give one document", where="--json", fix="leave one out")
    events = log.last(last)
    if screen.as_json:
        return Answer({"run": log.run.name, "events": [_plain(event) for event in events]})

    def show(screen: Screen) -> None:
        for event in events:
            _line(screen, event)
        if follow:
            _follow(screen, log, events[-1].seq if events else 0)

    return Answer(None, show)


def _follow(screen: Screen, log: Log, seq: int) -> None:
    while True:
        state = views.status(log.run).state  # asked first: what is journaled before the end is still shown
        page = log.after(seq)
        for event in page:
            _line(screen, event)
            seq = event.seq
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
    made = [_made(candidate) for candidate in getattr(entry.result, "candidates", ())]
    return joined(["seeds" if kind == "seeds" else "new" if made else kind.replace("_", " "), *made, fields], "  ")


def _made(candidate: Any) -> str:
    """A candidate with what made it."""
    origin = candidate.origin
    return candidate.id if origin.operator == "seed" else f"{candidate.id} by {joined([origin.operator, origin.note])}"


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else clean(str(value))
    return text if len(text) <= 80 else text[:77] + "..."
