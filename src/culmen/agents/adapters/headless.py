"""Programs that are started with a prompt, print events as lines of JSON, and leave; and how any
program's output is read: lines among garbage, of any length, from pipes that may never close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import msgspec

from culmen.agents.adapters import AgentJob, OnEvent, Parting, Pipes, Plan, ProgramEvent

# after its last event a program should leave; some wait for what they left running
LEAVE_SECONDS = 60.0
_UNREACHABLE = (
    "connection refused",
    "econnrefused",
    "connection error",
    "fetch failed",
    "error sending request",
    "unable to connect",
)
LONGEST = 32 << 20  # bytes of one line; agents put whole files into an event
BOUND = 4000  # characters of anything that is passed on
# seconds a pipe may stay silent after its program has gone: others may hold it open for ever
QUIET = 2.0
_CHUNK = 1 << 16


class LineReader:
    """Lines of a stream until it ends, or until `gone` is set and nothing more comes for `QUIET`
    seconds.

    `patience` ends it after so many silent seconds even while the process is there. Lines over
    `longest` bytes are dropped; `dropped` counts them.
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
            await asyncio.wait(
                (reading, gone), timeout=self.patience, return_when=asyncio.FIRST_COMPLETED
            )
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


class StreamTail:
    """The end of a stream as text, read to the end in the background."""

    def __init__(self, size: int = BOUND) -> None:
        self._kept, self._size = bytearray(), size

    def add(self, piece: bytes) -> None:
        """Take one more line."""
        self._kept += piece[-4 * self._size :] + b"\n"
        del self._kept[: -4 * self._size]

    async def collect(self, lines: LineReader) -> None:
        """Take all lines, to the end."""
        async for line in lines:
            self.add(line)

    @property
    def text(self) -> str:
        """At most `size` characters."""
        return self._kept.decode("utf-8", "replace").strip()[-self._size :]


async def follow(wait: Awaitable[int], gone: asyncio.Event) -> int:
    """Set `gone` when the process has ended; its exit code. What is waited for may be shared: it is
    not cancelled.
    """
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
            value = (
                value[step]
                if isinstance(value, list) and -len(value) <= step < len(value)
                else None
            )
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
    words = (
        value if isinstance(value, str) else msgspec.json.encode(value).decode() if value else ""
    )
    words = " ".join(words[: 4 * size].split())
    return words if len(words) <= size else words[: size - 1] + "…"


class StreamReading:
    """What one kind of event stream amounts to. Subclasses take events and set what they learn.

    `over` says that by its own account the program has finished; `fault` why it did not, `ended`
    the word for that; `stuck` that the last event showed no progress.
    """

    def __init__(self, job: AgentJob, heard: OnEvent) -> None:
        self.job, self._heard = job, heard
        self.session, self.word, self.fault, self.ended = job.resume, "", "", ""
        self.over = self.stuck = False
        self.claimed: dict[str, float] = {}

    def line(self, line: bytes) -> None:
        """One line of its output."""
        event = parse(line)
        if event is None:
            return self.hear("life")
        self.over = self.stuck = False
        self.take(event)
        if not self.stuck:
            self.hear("life")

    def take(self, event: dict[str, Any]) -> None:
        """One event; whatever it holds, it must not raise."""
        raise NotImplementedError

    def finish(self, code: int | None) -> None:
        """The program has gone: last conclusions."""

    def hear(self, kind: str, text: str = "") -> None:
        """Tell the host."""
        self._heard(
            ProgramEvent(
                kind,
                text if kind in ("text", "session") and len(text) <= BOUND else short(text, BOUND),
            )
        )

    def known_as(self, session: str) -> None:
        """The program has named its session."""
        if session and session != self.session and len(session) <= 200:
            self.session = session
            self.hear("session", session)

    def failed(self, fault: str) -> None:
        """Something went wrong; it may try again."""
        self.fault, self.stuck = fault, True
        self.hear("trouble", fault)

    def said(self, text: str) -> None:
        """Text meant for people; the last one counts."""
        if text.strip():
            self.word = text.strip()[-BOUND:]
            self.hear("text", text)

    def count(self, **amounts: float) -> None:
        """Add to what the program claims."""
        for name, amount in amounts.items():
            if amount:
                self.claimed[name] = self.claimed.get(name, 0.0) + amount


class HeadlessDialogue:
    """One run of such a program; the host's `ProgramDialogue`. `feed` is what it is to read on its
    standard input.
    """

    def __init__(self, pipes: Pipes, reading: StreamReading, feed: str = "") -> None:
        self._pipes, self._reading, self._feed = pipes, reading, feed

    @property
    def session(self) -> str:
        """Its own name for the session, "" before it told."""
        return self._reading.session

    async def say(self, text: str) -> bool:
        """Such a program takes no message while it runs."""
        return False

    async def run(self) -> Parting:
        """Read to the end."""
        if self._feed and self._pipes.stdin is not None:
            self._pipes.stdin.write(self._feed.encode("utf-8", "replace"))
            self._pipes.stdin.close()  # once it is written
        gone = asyncio.Event()
        leaving = asyncio.ensure_future(follow(self._pipes.wait(), gone))
        complaints = StreamTail()
        aside = asyncio.ensure_future(complaints.collect(LineReader(self._pipes.stderr, gone)))
        try:
            await self._events(LineReader(self._pipes.stdout, gone))
            await asyncio.wait((leaving,), timeout=LEAVE_SECONDS)
            if leaving.done():
                await aside
            return self._parting(leaving.result() if leaving.done() else None, complaints.text)
        finally:
            aside.cancel()
            leaving.cancel()

    async def _events(self, lines: LineReader) -> None:
        async for line in lines:
            self._reading.line(line)
            lines.patience = LEAVE_SECONDS if self._reading.over else None

    def _parting(self, code: int | None, complaint: str) -> Parting:
        reading = self._reading
        reading.finish(code)
        ended, fault = reading.ended, reading.fault
        if not ended:
            ended = "crashed" if fault or code or not reading.over else "finished"
        why = "" if ended == "finished" else explain(fault, code, complaint)
        if ended == "crashed" and any(sign in why.lower() for sign in _UNREACHABLE):
            ended = "unavailable"
        return Parting(ended, reading.word, why or fault, reading.session, reading.claimed, code)


def explain(fault: str, code: int | None, complaint: str) -> str:
    """One bounded text: what it said was wrong, how it left, the end of its error output."""
    left = "" if code in (0, None) else f"exit code {code}"
    return "; ".join(
        part for part in (short(fault, 1000), left, short(complaint[-1000:], 1000)) if part
    )


class HeadlessAdapter:
    """What adapters of such programs share. By default they are metered, and are told more by
    resuming the session.
    """

    name = program = ""
    metered, nudges, resumes = True, False, True
    wires: tuple[str, ...] = ()
    reading = StreamReading

    def plan(self, job: AgentJob) -> Plan:
        """How to start it. Raises UserError if the program is not installed."""
        raise NotImplementedError

    def talk(self, pipes: Pipes, job: AgentJob, heard: OnEvent) -> HeadlessDialogue:
        """Read what it prints."""
        return HeadlessDialogue(pipes, self.reading(job, heard))
