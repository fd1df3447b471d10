"""Reading what programs write: lines of JSON among garbage, of any length, from pipes that may never close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec

LONGEST = 32 << 20  # bytes of one line; agents put whole files into an event
BOUND = 4000  # characters of anything that is passed on
QUIET = 2.0  # seconds a pipe may stay silent after its program has gone: others may hold it open for ever
_CHUNK = 1 << 16


class Lines:
    """Lines of a stream until it ends, or until `gone` is set and nothing more comes for `QUIET` seconds.

    `patience` ends it after so many silent seconds even while the process is there. Lines over `longest` bytes are
    dropped; `dropped` counts them.
    """

    def __init__(self, stream: asyncio.StreamReader, gone: asyncio.Event, longest: int = 0) -> None:
        self._stream, self._gone, self._longest = stream, gone, longest or LONGEST
        self.patience: float | None = None
        self.dropped = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest, skipping = bytearray(), False
        while chunk := await self._chunk():
            *whole, tail = chunk.split(b"\n")
            for piece in whole:
                if not skipping:
                    rest += piece
                    yield bytes(rest)
                rest, skipping = bytearray(), False
            if not skipping:
                rest += tail
            if len(rest) > self._longest:
                rest, skipping = bytearray(), True
                self.dropped += 1
        if rest and not skipping:
            yield bytes(rest)

    async def _chunk(self) -> bytes:
        """What comes next; b"" at the end."""
        reading = asyncio.ensure_future(self._read())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((reading, gone), timeout=self.patience, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not reading.done():
                await asyncio.wait((reading,), timeout=QUIET)
            return reading.result() if reading.done() else b""
        finally:
            gone.cancel()
            reading.cancel()

    async def _read(self) -> bytes:
        try:
            return await self._stream.read(_CHUNK)
        except OSError:  # a pipe that breaks has ended
            return b""


class Tail:
    """The end of a stream as text, read to the end in the background."""

    def __init__(self, size: int = BOUND) -> None:
        self._kept, self._size = bytearray(), size

    def add(self, piece: bytes) -> None:
        """Take one more line."""
        self._kept += piece[-4 * self._size :] + b"\n"
        del self._kept[: -4 * self._size]

    @property
    def text(self) -> str:
        """At most `size` characters."""
        return self._kept.decode("utf-8", "replace").strip()[-self._size :]


async def follow(wait: Awaitable[int], gone: asyncio.Event) -> int:
    """Set `gone` when the process has ended; its exit code. What is waited for may be shared: it is not cancelled."""
    try:
        return await asyncio.shield(wait)
    finally:
        gone.set()


def parse(line: bytes) -> dict[str, Any] | None:
    """A JSON object, or None for anything else."""
    line = line.strip()
    if not line.startswith(b"{"):
        return None
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def at(value: Any, *path: str | int) -> Any:
    """What lies at a path of keys and indices; None where it does not go on."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def text(value: Any, *path: str | int) -> str:
    """The string at a path; "" if there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str | int) -> float:
    """The number at a path, if it is finite and not negative; else 0."""
    found = at(value, *path)
    good = isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 1e15
    return float(found) if good else 0.0


def items(value: Any, *path: str | int) -> list[dict[str, Any]]:
    """The objects in the list at a path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def short(value: Any, size: int = 300) -> str:
    """Anything on one bounded line."""
    words = value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    words = " ".join(words[: 4 * size].split())
    return words if len(words) <= size else words[: size - 1] + "…"
