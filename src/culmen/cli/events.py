"""The log: events of a run in plain words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.event import Entry, Event
from culmen.observe.figures import clock
from culmen.observe.words import words
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
