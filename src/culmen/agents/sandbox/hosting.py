"""The program behind a session: started in its sandbox, listened to, nudged, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from culmen.agents.adapters.base import Adapter, Job, Parting, Sign, Talk
from culmen.agents.sandbox import confinement, safe, sandbox
from culmen.agents.sandbox.intake import printable
from culmen.agents.sandbox.process import Running
from culmen.agents.sandbox.settings import WORD_CHARS
from culmen.agents.sandbox.watch import watch
from culmen.core.errors import UserError

_TRANSCRIPT = 16 << 20  # bytes; after that, signs are only counted
_FAREWELL = 2.0  # seconds an adapter gets to finish reading once its program is gone


class Host:
    """Runs one adapter's program. `ring` is called when it has ended; `going` says whether the run goes on."""

    def __init__(
        self, cage: sandbox.Cage, adapter: Adapter, job: Job, transcript: Path, ring: Callable[[], None],
        going: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._cage, self._adapter, self._job, self._file = cage, adapter, job, transcript
        self._ring, self._going = ring, going
        self._running: Running | None = None
        self._talk: Talk | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._began = self.life = time.monotonic()
        self._claims: dict[str, float] = {}
        self._again = False
        self.parting: Parting | None = None
        self.cause = ""
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Start it. Raises UserError if it is not installed, OSError if it cannot be started."""
        plan = self._adapter.plan(self._job)
        cage = self._cage = replace(self._cage, visible=plan.visible, network=plan.network)
        confinement.prepare(cage)
        for path, text in plan.files.items():
            home = cage.layout.home(cage.agent)
            await asyncio.to_thread(safe.write, home, path, text.encode(), cage.owner)
        port = sandbox.port_of(self._job.base_url)
        line = sandbox.command(cage, plan.argv, port)
        env = sandbox.environment(cage, plan.environment, plan.path)
        cwd = None if cage.way else Path(cage.tree)
        self._running = running = await Running.start(line, env, stdin=plan.stdin, cwd=cwd)
        self._talk = self._adapter.talk(running.pipes, self._job, self._heard)
        self.parting, self.life = None, time.monotonic()
        self._tasks = [asyncio.create_task(self._listen(running)), asyncio.create_task(self._guard(running))]
        for task in self._tasks:
            task.add_done_callback(self._done)

    @property
    def seconds(self) -> float:
        """Since it was first started."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether it has ended, by itself or not."""
        return self.parting is not None and not self._again

    @property
    def claimed(self) -> dict[str, float]:
        """What its program says it used, over all its processes."""
        last = self.parting.claimed if self.parting else {}
        return {name: self._claims.get(name, 0.0) + last.get(name, 0.0) for name in {**self._claims, **last}}

    async def nudge(self, text: str) -> bool:
        """Say something to it in the same session, by starting it again if it listens no other way."""
        if self.over or self._talk is None:
            return False
        self.life = time.monotonic()
        if self._adapter.nudges and await self._talk.say(text):
            return True
        if not self._adapter.resumes or not self._talk.session:
            return False
        self._again = True
        try:
            await self._stop()
            self._claims = self.claimed
            self._job = replace(self._job, resume=self._talk.session, prompt=text, claimed=self._claims)
            await self.start()
        except (UserError, OSError) as error:
            self.parting = Parting("crashed", why=str(error))
        finally:
            self._again = False
        if self.over:
            self._ring()
        return not self.over

    async def end(self, cause: str = "") -> None:
        """End every process; `cause` is why, if it has not ended by itself."""
        if not self.over:
            self.cause = self.cause or cause
        await self._stop()
        self._ring()

    async def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()
        tasks, self._tasks = [task for task in self._tasks if task is not asyncio.current_task()], []
        if tasks:
            await asyncio.wait(tasks[:1], timeout=_FAREWELL)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.parting is None:
            self.parting = Parting("crashed", why=self.cause)

    async def _listen(self, running: Running) -> None:
        assert self._talk is not None
        parting = await self._talk.run()
        if self._running is running:  # by itself
            await asyncio.shield(running.end())
        self.parting = self.parting or parting
        self._write(Sign("life", f"ended: {parting.ended} {parting.why}"), force=True)
        self._ring()

    async def _guard(self, running: Running) -> None:
        folders = [self._cage.layout.work(self._cage.agent)]
        cause = await watch(running.pid, folders, self._cage.settings, self._going, lambda: self.over or running.over)
        if cause:
            self.cause = cause
            await self.end(cause)

    def _done(self, task: asyncio.Task[None]) -> None:
        """A bug of ours must not look like an agent that says nothing."""
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self._ring()

    def _heard(self, sign: Sign) -> None:
        if sign.kind != "trouble":
            self.life = time.monotonic()
        self._write(sign)

    def _write(self, sign: Sign, force: bool = False) -> None:
        if sign.kind == "life" and not force:
            return
        row = {"seconds": round(self.seconds, 3), "kind": sign.kind, "text": printable(sign.text, WORD_CHARS)}
        with contextlib.suppress(OSError):  # a full disk costs a line of the transcript, not the session
            if not self._file.exists() or self._file.stat().st_size < _TRANSCRIPT:
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
