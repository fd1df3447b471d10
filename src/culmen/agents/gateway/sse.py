"""Server-sent events (WHATWG HTML, section 9.2), read piece by piece as they arrive."""

from __future__ import annotations

import re
from typing import NamedTuple

LONGEST = 32 * 2**20  # bytes of one event; beyond that the stream is passed on but no longer read

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")


class Event(NamedTuple):
    """One event: its bytes as they came (the blank line included), its name ("" if it has none) and its data."""

    raw: bytes
    name: str
    data: str


class Events:
    """Cuts a stream of bytes into events. `lost` says that an event was too long to be read."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer that are known to hold no end of an event
        self.lost = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are whole after this chunk."""
        if self.lost:
            return []
        self._buffer += chunk
        found: list[Event] = []
        while (end := _END.search(self._buffer, max(0, self._seen - 3))) is not None:
            raw = bytes(self._buffer[: end.end()])
            del self._buffer[: end.end()]
            self._seen = 0
            found.append(_event(raw))
        self._seen = len(self._buffer)
        if self._seen > LONGEST:
            self.lost = True
            self._buffer.clear()
        return found

    def rest(self) -> list[Event]:
        """What came after the last blank line, as an event: some servers leave the final one out."""
        raw = bytes(self._buffer)
        self._buffer.clear()
        return [_event(raw)] if raw.strip() else []


def _event(raw: bytes) -> Event:
    name, data = "", []
    for line in re.split(r"\r\n|\n|\r", raw.decode("utf-8", "replace").removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return Event(raw, name, "\n".join(data))
