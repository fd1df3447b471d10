"""One agent's session, acting: its work tree, queue, program or tools, and what it used. See `core/session.py`."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from culmen.agents import adapters
from culmen.agents.adapters import programs
from culmen.agents.adapters.base import Adapter, Job
from culmen.agents.sandbox import confinement, merge, records, safe, sandbox, worktree
from culmen.agents.sandbox.hosting import Host
from culmen.agents.sandbox.intake import printable
from culmen.agents.sandbox.layout import tag
from culmen.agents.sandbox.place import Place
from culmen.agents.sandbox.settings import LEFT_CHARS
from culmen.agents.sandbox.tools import Tools
from culmen.agents.sandbox.waiting import NO_PROCESS, Waiting
from culmen.core.errors import UserError
from culmen.core.event import Custom
from culmen.core.session import Done, Ended, EndSession, Nudge, Open, Opened, Tool, Wait, Waited, plain
from culmen.core.usage import Usage


class Session:
    """The session of one agent, found as an earlier process left it."""

    def __init__(self, place: Place, agent: int) -> None:
        self._place, self.agent = place, agent
        self._control = place.layout.control(agent)
        self._waiting = Waiting(place, agent, self._control / "waits.jsonl")
        self._tools: Tools | None = None
        self._opened = records.get(self._control / "opened.json")
        if self._opened is not None:
            self._waiting.kind, self._waiting.limits = self._opened["kind"], self._opened["limits"]

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
        self._waiting.kind, self._waiting.limits = ask.kind, dict(ask.limits)
        return opened

    async def wait(self, ask: Wait) -> Custom:
        """Until there is something to tell."""
        return await self._waiting.wait(ask)

    async def tool(self, call: Tool) -> Custom:
        """One tool call."""
        if self._tools is None:
            self._tools = Tools(self._cage(), self._control / "tools.jsonl", self._place.going)
        return Custom(plain(await self._tools.use(call)))

    async def nudge(self, ask: Nudge) -> Custom:
        """Once, even if it is asked for again after a crash: then there is nobody to hear it."""
        self._waiting.stir()
        host = self._waiting.host
        delivered = host is not None and await host.nudge(ask.text)
        return Custom(plain(Done(delivered)))

    def answered(self) -> None:
        """Results were written for it: its clock starts again."""
        self._waiting.stir()

    @property
    def alive(self) -> bool:
        """Whether somebody may read an answer."""
        host = self._waiting.host
        return self._waiting.over is None and (host is None or not host.over)

    async def end(self, ask: EndSession) -> Custom:
        """End every process; say what it left and what it used since the last wait."""
        known = records.get(self._control / "ended.json")
        if known is not None:
            return Custom(known["ended"], msgspec.convert(known["usage"], Usage))
        await self.stop(ask.reason)
        await self._place.meter.shut(self.agent)
        usage, host = self._waiting.usage(), self._waiting.host
        ended = Ended(
            self._left(merge.SHARED),
            self._left(f"notes/{tag(self.agent)}.md"),
            self._transcript(),
            host.claimed if host else {},
        )
        known = {"ended": plain(ended), "usage": msgspec.to_builtins(usage), "time": int(time.time())}
        records.put(self._control / "ended.json", known)
        self._place.meter.told(self.agent)
        return Custom(known["ended"], usage)

    async def stop(self, reason: str) -> None:
        """End every process; waits that are under way return."""
        self._waiting.over = self._waiting.over or Waited(ended="finished", word=reason)
        if self._waiting.host is not None:
            await self._waiting.host.end(reason)
        if self._tools is not None:
            await self._tools.end()
        self._waiting.ring()

    async def close(self) -> None:
        """Let everything go; records stay."""
        if self._waiting.host is not None:
            await self._waiting.host.end("stopped")
        if self._tools is not None:
            await self._tools.close()
            self._tools = None
        await self._waiting.close()

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
                token, model = await meter.open(self.agent, ask.model, adapter.wires, ask.limits, self._waiting.ring)
            port = (sandbox.PORT if cage.way else sandbox.free_port()) if token else 0
            url = f"http://127.0.0.1:{port}" if port else ""
            job = Job(cage.tree, cage.home, ask.prompt, model, url, token, limits=ask.limits)
            file = layout.transcript(self.agent)
            host = Host(self._cage(), adapter, job, file, self._waiting.ring, self._place.going)
            await host.start()
            self._waiting.host = host
            version = await asyncio.to_thread(_version, adapter)
        except (UserError, OSError) as error:
            return msgspec.structs.replace(opened, fault=" ".join(str(error).split()))
        return msgspec.structs.replace(opened, metered=adapter.metered, version=version)

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
        return programs.version(programs.find(adapter.program))
    except UserError:
        return ""
