"""Programs that are started with a prompt, print events as lines of JSON, and leave."""

from __future__ import annotations

import asyncio
from typing import Any

from culmen.agents.adapters.base import Heard, Job, Parting, Pipes, Sign
from culmen.agents.adapters.lines import BOUND, Lines, Tail, follow, parse, short

LEAVE_SECONDS = 60.0  # after its last event a program should leave; some wait for what they left running
_UNREACHABLE = (
    "connection refused", "econnrefused", "connection error", "fetch failed", "error sending request",
    "unable to connect",
)  # fmt: skip


class Reading:
    """What one kind of event stream amounts to. Subclasses take events and set what they learn.

    `over` says that by its own account the program has finished; `fault` why it did not, `ended` the word for that;
    `stuck` that the last event showed no progress.
    """

    def __init__(self, job: Job, heard: Heard) -> None:
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
        self._heard(Sign(kind, text if kind in ("text", "session") and len(text) <= BOUND else short(text, BOUND)))

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


class Headless:
    """One run of such a program; `Talk` of the host. `feed` is what it is to read on its standard input."""

    def __init__(self, pipes: Pipes, reading: Reading, feed: str = "") -> None:
        self._pipes, self._reading, self._feed = pipes, reading, feed

    @property
    def session(self) -> str:
        """Its own name for the session, "" before it told."""
        return self._reading.session

    async def say(self, text: str) -> bool:
        """It does not listen."""
        return False

    async def run(self) -> Parting:
        """Read to the end."""
        if self._feed and self._pipes.stdin is not None:
            self._pipes.stdin.write(self._feed.encode("utf-8", "replace"))
            self._pipes.stdin.close()  # once it is written
        gone = asyncio.Event()
        leaving = asyncio.ensure_future(follow(self._pipes.wait(), gone))
        complaints = Tail()
        aside = asyncio.ensure_future(self._complaints(complaints, gone))
        try:
            await self._events(Lines(self._pipes.stdout, gone))
            await asyncio.wait((leaving,), timeout=LEAVE_SECONDS)
            if leaving.done():
                await aside
            return self._parting(leaving.result() if leaving.done() else None, complaints.text)
        finally:
            aside.cancel()
            leaving.cancel()

    async def _events(self, lines: Lines) -> None:
        async for line in lines:
            self._reading.line(line)
            lines.patience = LEAVE_SECONDS if self._reading.over else None

    async def _complaints(self, tail: Tail, gone: asyncio.Event) -> None:
        async for line in Lines(self._pipes.stderr, gone):
            tail.add(line)

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
    return "; ".join(part for part in (short(fault, 1000), left, short(complaint[-1000:], 1000)) if part)
