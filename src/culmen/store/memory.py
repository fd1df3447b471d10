"""A journal in memory, for simulations and tests: nothing survives the process, nothing is imported for SQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from culmen.core.event import Entry, Event
from culmen.store.checks import check


class MemoryJournal:
    """Keeps entries as they are given. `clock` supplies the wall time shown in events (Unix seconds)."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._events: list[Event] = []
        self._closed = False

    def append(self, entries: Sequence[Entry]) -> list[Event]:
        """All entries or, if one is refused (`ValueError`), none."""
        if self._closed:
            raise ValueError("this journal is closed")
        for entry in entries:
            check(entry)
        first, now = len(self._events) + 1, self._clock()
        events = [Event(first + place, now, entry) for place, entry in enumerate(entries)]
        self._events += events
        return events

    def read(self, after: int = 0) -> Iterator[Event]:
        """Events with `seq` > `after`, in order, also those appended while reading."""
        place = max(after, 0)
        while place < len(self._events):
            yield self._events[place]
            place += 1

    def close(self) -> None:
        """No more appending; reading goes on."""
        self._closed = True
