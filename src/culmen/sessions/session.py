"""One agent's session, acting: its work tree, queue, program or tools, and what it used. See `core/session.py`."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.event import Custom
from culmen.core.session import Done, End, Ended, Nudge, Open, Opened, Tool, Wait, Waited, plain
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.sessions import adapters, confinement, merge, records, safe, sandbox, worktree
from culmen.sessions.adapters import programs
from culmen.sessions.adapters.base import Adapter, Job
from culmen.sessions.bell import Bell
from culmen.sessions.confinement import Way
from culmen.sessions.hosting import Host
from culmen.sessions.intake import Batch, Queue, printable
from culmen.sessions.layout import QUEUE, Layout, tag
from culmen.sessions.metered import Meter
from culmen.sessions.settings import LEFT_CHARS, WORD_CHARS, Settings
from culmen.sessions.tools import Tools
from culmen.sessions.view import View

_POLL = 1.0  # seconds between looks at the queue where nothing rang
_REPORT = 10.0  # seconds that usage waits at most before it is told
NO_PROCESS = ("builtin", "offline")


@dataclass
class Place:
    """What all sessions of a run share. `going` says whether the search goes on; `broke` is set when the run's budget
    refused an agent's model call."""

    layout: Layout
    task: Task
    settings: Settings
    way: Way
    view: View
    meter: Meter
    going: Callable[[], bool]
    broke: bool = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """What no agent may see, wherever it lies."""
        evaluator = self.task.evaluator
        files = [path for path in (evaluator.path, evaluator.verifier) if path]
        return tuple([str(self.layout.run), *(str(Path(path).parent) for path in files), *files])

    @property
    def part(self) -> str:
        """The task's only part, "" if it has several or none is known."""
        names = {name for seed in self.task.seeds for name in seed}
        return names.pop() if len(names) == 1 else ""


class Session:
    """The session of one agent, found as an earlier process left it."""

    def __init__(self, place: Place, agent: int) -> None:
        self._place, self.agent = place, agent
        layout = place.layout
        self._control = layout.control(agent)
        self._waits = records.Log(self._control / "waits.jsonl")
        self._opened = records.get(self._control / "opened.json")
        self._handed = {one["ticket"] for wait in self._waits.records for one in wait["waited"].get("experiments", ())}
        self._queue = Queue(layout.tree(agent), agent, place.part)
        self._changed = asyncio.Event()
        self._bell: Bell | None = None
        self._host: Host | None = None
        self._tools: Tools | None = None
        self._over: Waited | None = None
        self._unreported = 0.0
        self._quiet = time.monotonic()

    @property
    def is_open(self) -> bool:
        """Whether it was opened, by this or an earlier process."""
        return self._opened is not None

    @property
    def record(self) -> Mapping[str, Any]:
        """What was written down when it was opened."""
        return self._opened or {}

    async def open(self, ask: Open, files: Mapping[str, bytes], base: str) -> Opened:
        """Make the work tree from `files` and start the program. A session that was opened before stays as it is."""
        if self._opened is not None:
            return msgspec.convert(self._opened["opened"], Opened)
        place, layout = self._place, self._place.layout
        adapter = None if ask.kind in NO_PROCESS else _adapter(ask.kind)
        if isinstance(adapter, str):
            return Opened(base, fault=adapter)
        cage = self._cage()
        texts = worktree.texts_of({path: text for path, text in ask.texts.items() if path not in worktree.VIEWED})
        view = None if place.way.name else layout.view
        await asyncio.to_thread(shutil.rmtree, layout.work(self.agent), True)
        layout.tree(self.agent).parent.mkdir(parents=True)
        confinement.prepare(cage)
        if view is not None:
            await asyncio.to_thread(place.view.restore)  # unconfined agents may have written into it
        await asyncio.to_thread(worktree.make, layout.tree(self.agent), self.agent, {**files, **texts}, None, view)
        await asyncio.to_thread(worktree.give, layout.work(self.agent), cage.owner)
        place.meter.remember(self.agent)
        opened = Opened(base, place.way.isolation)
        if adapter is not None:
            opened = await self._start(adapter, ask, cage, opened)
            if opened.fault:
                return opened
        put = {path: merge.blob(data) for path, data in texts.items()}
        self._opened = {"opened": plain(opened), "kind": ask.kind, "limits": ask.limits, "texts": put, "base": base}
        records.put(self._control / "opened.json", self._opened)
        return opened

    async def wait(self, ask: Wait) -> Custom:
        """Until there is something to tell; the same wait is always answered the same."""
        for record in self._waits.records:
            if record["nth"] == ask.nth:
                return Custom(record["waited"], msgspec.convert(record["usage"], Usage))
        try:
            waited, done = await self._until()
        except asyncio.CancelledError:  # the run ends, or the search: nobody waits for this agent any more
            if self._host is not None:
                await self._host.end("stopped")
            raise
        usage = self._usage()
        total = msgspec.to_builtins(self._reported() + usage)
        record = {"nth": ask.nth, "waited": plain(waited), "usage": msgspec.to_builtins(usage), "total": total}
        await asyncio.to_thread(self._waits.add, record)
        self._handed.update(one.ticket for one in waited.experiments)
        await asyncio.to_thread(self._queue.remove, done)
        self._place.meter.told(self.agent)
        self._unreported = 0.0
        return Custom(record["waited"], usage)

    async def tool(self, call: Tool) -> Custom:
        """One tool call."""
        if self._tools is None:
            self._tools = Tools(self._cage(), self._control / "tools.jsonl", self._place.going)
        return Custom(plain(await self._tools.use(call)))

    async def nudge(self, ask: Nudge) -> Custom:
        """Once, even if it is asked for again after a crash: then there is nobody to hear it."""
        self._quiet = time.monotonic()
        delivered = self._host is not None and await self._host.nudge(ask.text)
        return Custom(plain(Done(delivered)))

    def answered(self) -> None:
        """Results were written for it: its clock starts again."""
        self._quiet = time.monotonic()

    @property
    def alive(self) -> bool:
        """Whether somebody may read an answer."""
        return self._over is None and (self._host is None or not self._host.over)

    async def end(self, ask: End) -> Custom:
        """End every process; say what it left and what it used since the last wait."""
        known = records.get(self._control / "ended.json")
        if known is not None:
            return Custom(known["ended"], msgspec.convert(known["usage"], Usage))
        await self.stop(ask.reason)
        await self._place.meter.shut(self.agent)
        usage = self._usage()
        ended = Ended(
            self._left(merge.SHARED),
            self._left(f"notes/{tag(self.agent)}.md"),
            self._transcript(),
            self._host.claimed if self._host else {},
        )
        known = {"ended": plain(ended), "usage": msgspec.to_builtins(usage), "time": int(time.time())}
        records.put(self._control / "ended.json", known)
        self._place.meter.told(self.agent)
        return Custom(known["ended"], usage)

    async def stop(self, reason: str) -> None:
        """End every process; waits that are under way return."""
        self._over = self._over or Waited(ended="finished", word=reason)
        if self._host is not None:
            await self._host.end(reason)
        if self._tools is not None:
            await self._tools.end()
        self._changed.set()

    async def close(self) -> None:
        """Let everything go; records stay."""
        if self._host is not None:
            await self._host.end("stopped")
        if self._tools is not None:
            await self._tools.close()
            self._tools = None
        if self._bell is not None:
            self._bell.close()
            self._bell = None
        self._waits.close()

    def _cage(self) -> sandbox.Cage:
        place = self._place
        return sandbox.Cage(
            place.layout, self.agent, place.settings, place.way.name, place.way.proc, hidden=place.hidden,
            socket=place.meter.socket,
        )  # fmt: skip

    async def _start(self, adapter: Adapter, ask: Open, cage: sandbox.Cage, opened: Opened) -> Opened:
        """Start the program; what stands in the way is said, not raised."""
        meter, layout = self._place.meter, self._place.layout
        try:
            token, model = "", ask.model
            if adapter.metered:
                token, model = await meter.open(self.agent, ask.model, adapter.wires, ask.limits, cage.owner)
            port = (sandbox.PORT if cage.way else sandbox.free_port()) if token else 0
            url = f"http://127.0.0.1:{port}" if port else ""
            job = Job(cage.tree, cage.home, ask.prompt, model, url, token, limits=ask.limits)
            file = layout.transcript(self.agent)
            self._host = Host(self._cage(), adapter, job, file, self._changed.set, self._place.going)
            await self._host.start()
            version = await asyncio.to_thread(_version, adapter)
        except (UserError, OSError) as error:
            return msgspec.structs.replace(opened, fault=" ".join(str(error).split()))
        return msgspec.structs.replace(opened, metered=adapter.metered, version=version)

    async def _until(self) -> tuple[Waited, list[str]]:
        """What to tell next, and the requests that are then dealt with."""
        if self._bell is None:
            folder = self._place.layout.tree(self.agent) / QUEUE
            self._bell = Bell(folder, self._changed.set)
        while True:
            self._changed.clear()
            over = self._ended()  # looked at before the queue: what was asked before the end is still found
            batch = await asyncio.to_thread(self._queue.look, self._handed.__contains__)
            if told := self._heard(batch):
                return told, batch.taken
            await asyncio.to_thread(self._queue.remove, batch.taken)
            if over is not None and not batch.taken:
                self._over = over
                return over, []
            if self._report_due():
                return Waited(), []
            if (idle := self._idle()) is not None:
                self._quiet = time.monotonic()
                return Waited(idle=idle), []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _POLL if self._bell.works else _POLL / 20)

    def _heard(self, batch: Batch) -> Waited | None:
        """A look at the queue as something to tell, None if nothing is."""
        self._place.view.refuse(self.agent, batch.refused)
        if batch.finish is not None:
            self._over = Waited(ended="finished", word=batch.finish)
        if not (batch.experiments or batch.reports or batch.finish is not None):
            return None
        finish = batch.finish or ""
        ended = "finished" if batch.finish is not None else ""
        return Waited(tuple(batch.experiments), tuple(batch.reports), ended, finish)

    def _ended(self) -> Waited | None:
        """Whether and how the session is over; a limit that is reached ends it."""
        if self._over is not None:
            return self._over
        kind, host = self.record.get("kind", ""), self._host
        if kind in NO_PROCESS:
            return None
        if host is None:
            return Waited(ended="interrupted")
        if host.failure is not None:
            raise host.failure
        cause = self._limit(host)
        if cause and not host.over:
            self._over = Waited(ended=cause)
            asyncio.ensure_future(host.end(cause)).add_done_callback(lambda _: self._changed.set())
            return self._over
        if not host.over:
            return None
        parting = host.parting
        assert parting is not None
        if host.cause:
            return Waited(ended="crashed", word=host.cause)
        word = parting.word if parting.ended == "finished" else parting.why or parting.word
        return Waited(ended=parting.ended, word=printable(word, WORD_CHARS))

    def _limit(self, host: Host) -> str:
        """The limit that this session has reached, "" if none."""
        if host.seconds >= self.record["limits"].get("seconds", float("inf")):
            return "seconds"
        return self._place.meter.stopped(self.agent) or ("budget" if self._place.broke else "")

    def _idle(self) -> float | None:
        """Seconds without a sign of life, if they are as many as the limit; who waits for us does not idle."""
        if self._host is None or not all(map(self._place.view.answered, self._handed)):
            return None
        idle = time.monotonic() - max(self._host.life, self._quiet)
        return idle if idle >= self.record["limits"].get("idle", float("inf")) else None

    def _report_due(self) -> bool:
        if self._usage() == Usage():
            self._unreported = 0.0
            return False
        now = time.monotonic()
        self._unreported = self._unreported or now
        return now - self._unreported >= _REPORT

    def _usage(self) -> Usage:
        """What was used and not yet told."""
        if self.record.get("kind", "") in NO_PROCESS:
            return Usage()
        return self._place.meter.usage(self.agent) - self._reported()

    def _reported(self) -> Usage:
        """What all waits together have told."""
        return msgspec.convert(self._waits.records[-1]["total"], Usage) if self._waits.records else Usage()

    def _left(self, path: str) -> str:
        try:
            data = safe.read(self._place.layout.tree(self.agent), path, LEFT_CHARS * 4)
        except (safe.Refused, OSError):
            return ""
        return printable(data.decode("utf-8", "replace"), LEFT_CHARS)

    def _transcript(self) -> str:
        file = self._place.layout.transcript(self.agent)
        return str(file.relative_to(self._place.layout.run)) if file.exists() else ""


def _adapter(kind: str) -> Adapter | str:
    """The adapter of that name, or why there is none."""
    try:
        return adapters.named(kind)
    except UserError as error:
        return " ".join(str(error).split())


def _version(adapter: Adapter) -> str:
    try:
        return programs.version(programs.find(adapter.program).file)
    except UserError:
        return ""
