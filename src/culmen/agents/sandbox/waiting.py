"""What a session has to tell, one wait after another, each answered once and for all."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec

from culmen.agents.sandbox.bell import Bell
from culmen.agents.sandbox.hosting import Host
from culmen.agents.sandbox.intake import Batch, Queue, printable
from culmen.agents.sandbox.layout import QUEUE
from culmen.agents.sandbox.place import Place
from culmen.agents.sandbox.records import Log
from culmen.agents.sandbox.settings import WORD_CHARS
from culmen.core.event import Custom
from culmen.core.session import Wait, Waited, plain
from culmen.core.usage import Usage

_POLL = 1.0  # seconds between looks at the queue where nothing rang
_REPORT = 10.0  # seconds that usage waits at most before it is told
NO_PROCESS = ("builtin", "offline")


class Waiting:
    """The waits of one agent's session. `host` is its program in this process, None if it has none here; `kind` and
    `limits` are those it was opened with, "" while it was not."""

    def __init__(self, place: Place, agent: int, log: Path) -> None:
        self._place, self._agent = place, agent
        self._log = Log(log)
        told = [one for wait in self._log.records for one in wait["waited"].get("experiments", ())]
        self._handed = {one["ticket"] for one in told}
        self._queue = Queue(place.layout.tree(agent), agent, place.part, sum(bool(one.get("fault")) for one in told))
        del self._log.records[:-1]  # earlier waits are in the journal: only the last can be asked for again
        self._changed = asyncio.Event()
        self._bell: Bell | None = None
        self._unreported, self._quiet = 0.0, time.monotonic()
        self.host: Host | None = None
        self.kind, self.limits = "", dict[str, float]()
        self.over: Waited | None = None
        self._settling: asyncio.Future[None] | None = None

    async def wait(self, ask: Wait) -> Custom:
        """Until there is something to tell; the same wait is always answered the same."""
        for record in self._log.records:
            if record["nth"] == ask.nth:
                return Custom(record["waited"], msgspec.convert(record["usage"], Usage))
        if self._settling is not None:
            await self._settling
        try:
            waited, done = await self._next()
        except asyncio.CancelledError:  # the run ends, or the search: nobody waits for this agent any more
            if self.host is not None:
                await self.host.end("stopped")
            raise
        usage = self.usage()
        total = msgspec.to_builtins(self._reported() + usage)
        record = {"nth": ask.nth, "waited": plain(waited), "usage": msgspec.to_builtins(usage), "total": total}
        self._log.add(record, sync=False)
        del self._log.records[:-1]
        self._handed.update(one.ticket for one in waited.experiments)
        self._settling = asyncio.ensure_future(asyncio.to_thread(self._settle, done))
        self._place.meter.told(self._agent)
        self._unreported = 0.0
        return Custom(record["waited"], usage)

    def _settle(self, done: list[str]) -> None:
        """What need not keep the agent waiting: the next wait waits for it. (Should the power fail before, an
        experiment may be asked for again under its old ticket.)"""
        self._log.sync()
        self._queue.remove(done)

    def ring(self) -> None:
        """Something has changed: look again."""
        self._changed.set()

    def stir(self) -> None:
        """It was spoken to, or answered: its clock starts again."""
        self._quiet = time.monotonic()

    def usage(self) -> Usage:
        """What was used and no wait has told."""
        if self.kind in ("", *NO_PROCESS):
            return Usage()
        return self._place.meter.usage(self._agent) - self._reported()

    async def close(self) -> None:
        """Let everything go; records stay."""
        if self._settling is not None:
            await self._settling
            self._settling = None
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self._log.close()

    async def _next(self) -> tuple[Waited, list[str]]:
        """What to tell next, and the requests that are then dealt with."""
        if self._bell is None:
            self._bell = Bell(self._place.layout.tree(self._agent) / QUEUE, self.ring)
        while True:
            self._changed.clear()
            over = self._ended()  # looked at before the queue: what was asked before the end is still found
            patient = self.kind in NO_PROCESS  # nobody reads there that a request was turned away
            batch = await asyncio.to_thread(self._queue.look, self._handed.__contains__, patient)
            if told := self._heard(batch):
                return told, batch.taken
            await asyncio.to_thread(self._queue.remove, batch.taken)
            if over is not None and not batch.taken:
                self.over = over
                return over, []
            if self._report_due():
                return Waited(), []
            if (idle := self._idle()) is not None:
                self.stir()
                return Waited(idle=idle), []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _POLL if self._bell.works else _POLL / 20)

    def _heard(self, batch: Batch) -> Waited | None:
        """A look at the queue as something to tell, None if nothing is."""
        self._place.view.refuse(self._agent, batch.refused)
        if batch.finish is not None:
            self.over = Waited(ended="finished", word=batch.finish)
        if not (batch.experiments or batch.reports or batch.finish is not None):
            return None
        ended, word = ("finished", batch.finish) if batch.finish is not None else ("", "")
        return Waited(tuple(batch.experiments), tuple(batch.reports), ended, word)

    def _ended(self) -> Waited | None:
        """Whether and how the session is over; a limit that is reached ends it."""
        host = self.host
        if self.over is not None or self.kind in NO_PROCESS:
            return self.over
        if host is None:
            return Waited(ended="interrupted")
        if host.failure is not None:
            raise host.failure
        if not host.over:
            if cause := self._limit(host):
                self.over = Waited(ended=cause)
                self._ending = asyncio.ensure_future(host.end(cause))  # which rings
            return None
        return self._parted(host)

    def _parted(self, host: Host) -> Waited:
        """How a program that is gone has ended."""
        parting = host.parting
        assert parting is not None
        if host.cause:
            return Waited(ended="crashed", word=host.cause)
        word = parting.word if parting.ended == "finished" else parting.why or parting.word
        return Waited(ended=parting.ended, word=printable(word, WORD_CHARS))

    def _limit(self, host: Host) -> str:
        """The limit that this session has reached, "" if none."""
        if host.seconds >= self.limits.get("seconds", float("inf")):
            return "seconds"
        return self._place.meter.stopped(self._agent)

    def _idle(self) -> float | None:
        """Seconds without a sign of life, if they are as many as the limit; who waits for us does not idle."""
        if self.host is None or not all(map(self._place.view.answered, self._handed)):
            return None
        idle = time.monotonic() - max(self.host.life, self._quiet)
        return idle if idle >= self.limits.get("idle", float("inf")) else None

    def _report_due(self) -> bool:
        if self.usage() == Usage():
            self._unreported = 0.0
            return False
        now = time.monotonic()
        self._unreported = self._unreported or now
        return now - self._unreported >= _REPORT

    def _reported(self) -> Usage:
        """What all waits together have told."""
        return msgspec.convert(self._log.records[-1]["total"], Usage) if self._log.records else Usage()
