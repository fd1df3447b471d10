"""What people send to a run, brought from its inbox into the search while a session runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.errors import Unavailable
from culmen.core.event import Entry, Event
from culmen.core.ports import Observer
from culmen.engine.driver import Driver
from culmen.store import inbox, views
from culmen.store.inbox import InboxMessage

INTERVAL = 0.4  # seconds between two looks into the folder
_KINDS = ("tell", "stop")


class InboxWatcher(Observer):
    """Hands messages to the driver, and, as an observer, forgets those that are journaled.

    A message that was journaled before its file was removed is known by its id, and not taken twice.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._seen: set[str] = set()
        for event in views.log(run, limit=1_000_000, kinds=_KINDS):
            self._forget(event)

    async def watch(self, driver: Driver) -> None:
        """Look into the inbox again and again, until cancelled."""
        while True:
            for message in await asyncio.to_thread(self._waiting):
                if message.id not in self._seen:
                    self._seen.add(message.id)
                    driver.take([entry(message)])
                    if message.kind == "pause":
                        driver.interrupt()
            await asyncio.sleep(INTERVAL)

    def _waiting(self) -> list[InboxMessage]:
        """Nothing while a database cannot be asked: the driver notices, too, and it decides what that means."""
        with contextlib.suppress(Unavailable):
            return inbox.waiting(self._run)
        return []

    def see(self, events: Iterable[Event]) -> None:
        """These are durable."""
        for event in events:
            if event.entry.kind in _KINDS:
                self._forget(event)

    def told(self, text: str) -> None:
        """Not its business."""

    def _forget(self, event: Event) -> None:
        message = str(event.entry.body.get("id", ""))
        if message:
            self._seen.add(message)
            with contextlib.suppress(Unavailable):
                inbox.remove(self._run, message)


def entry(message: InboxMessage) -> Entry:
    """A message as the journal holds it."""
    if message.kind == "stop":
        return Entry("stop", body={"reason": "user", "id": message.id})
    body = {"tell": message.kind, "id": message.id}
    if message.kind == "candidate":
        candidate = Candidate.of(message.parts, (), Origin("person"))
        return Entry("tell", effect="candidates", body=body, result=Proposal(candidates=(candidate,)))
    return Entry("tell", body={**body, "text": message.text} if message.text else body)
