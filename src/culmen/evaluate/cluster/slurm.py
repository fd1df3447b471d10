"""Evaluations in Slurm jobs: each job is a worker with one jail that takes evaluations from a shared folder.

A job an evaluation would cost seconds each; so a job serves many. Slurm decides where and when jobs run. Workers that
end (time limit, preemption, a node that dies) are submitted again, and what they held is tried elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import Unavailable, UserError
from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster.choice import Choice
from culmen.evaluate.cluster.parcel import Terms
from culmen.evaluate.cluster.remote import NODE_SLOTS, Lost
from culmen.evaluate.cluster.slurm_asking import Asking
from culmen.evaluate.cluster.slurm_crew import Crew
from culmen.evaluate.cluster.slurm_worker import BEAT
from culmen.evaluate.cluster.spool import Spool

WAIT_SECONDS = 3600.0  # for a first worker: queues are long
_PAUSE = 0.05
_LAST_PART = 0.25  # of a job's time, at most, in which nothing new is begun


class SlurmCarrier:
    """See `remote.Carrier`. `workers` is how many evaluations are wanted at once, all jobs together."""

    def __init__(self, choice: Choice, workers: int, tell: Callable[[str], None] | None = None) -> None:
        self.retries, self.terms = choice.retries, b""
        self._choice, self._tell = choice, tell or _unheard
        self._slots = min(NODE_SLOTS, choice.slots or math.ceil(workers / max(1, choice.jobs)))
        name = secrets.token_hex(8)
        home = choice.texts.get("folder") or str(Path.home() / ".cache/culmen/slurm")
        self._spool = Spool(Path(home).expanduser().resolve() / name)
        self._asking, self._crew = Asking({}), None
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._first: asyncio.Future[bytes] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: UserError | None = None
        self._news = asyncio.Event()

    async def open(self, parcel: bytes, name: str) -> bytes:
        """Raises `UserError` with Slurm's own words where it refuses the jobs, `Unavailable` where none starts."""
        cluster = self._choice.texts.get("cluster", "slurm")
        if cluster == "slurm" and shutil.which("sbatch") is None:
            fix = "run culmen on a login node of the cluster, or use --backend ray"
            raise UserError("there is no sbatch on this machine", where="--backend slurm", fix=fix)
        self._lay_out(parcel, name)
        self._asking = Asking(self._setup(cluster, self._agreed.seconds))
        wait = self._choice.wait or WAIT_SECONDS
        self._crew = Crew(self._spool, self._asking, self._choice.jobs, wait, self._lose, self._tell)
        self._first = asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._serve()))
        await self._asking.start()
        await self._crew.begin()
        self._tasks.append(asyncio.create_task(self._watch(self._crew)))
        return await self._patiently(self._first)

    def _lay_out(self, parcel: bytes, name: str) -> None:
        try:
            self._spool.make()
            self._spool.put(f"parcel-{name}", parcel)
            self._beat()
            self._spool.tidy()
        except OSError as error:
            fix = "name a folder that all nodes see: --backend-set folder=PATH"
            raise UserError(f"cannot write: {error}", where=str(self._spool.root.parent), fix=fix) from None

    def _setup(self, cluster: str, seconds: float) -> dict[str, Any]:
        """What the launcher must know."""
        life = 60.0 * self._choice.minutes or math.inf
        if life < seconds:
            self._tell(
                f"Note: one evaluation may take {seconds:.0f} s, and a job ends after {life:.0f} s "
                f"(--backend-set minutes={self._choice.minutes}): what it holds then is tried again."
            )
        texts = {name: text for name, text in self._choice.texts.items() if name not in ("cluster", "folder")}
        return {
            "folder": str(self._spool.root),
            "name": f"culmen-{self._spool.root.name[:8]}",
            "cluster": cluster,
            "slots": self._slots,
            "minutes": self._choice.minutes,
            "life": life - min(seconds, _LAST_PART * life) if life < math.inf else life,
            "needs": msgspec.structs.asdict(self._choice.needs),
            "texts": texts,
        }

    def _beat(self) -> None:
        self._spool.beat("pulse")
        self._spool.put("terms", parcels.dump(msgspec.structs.replace(self._agreed, workers=self._slots)))

    @property
    def _agreed(self) -> Terms:
        return parcels.load(self.terms, Terms)

    def room(self) -> int:
        """See `remote.Carrier`."""
        return self._slots * self._choice.jobs

    async def carry(self, number: str, job: bytes, seconds: float) -> bytes:
        """See `remote.Carrier`."""
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._check()
        self._spool.put(f"jobs/{number}", f"{seconds}\n".encode() + job)
        try:
            return await self._patiently(future)
        except Lost:
            raise
        except BaseException:
            if not self._spool.drop(f"jobs/{number}") and self._spool.root.exists():
                self._spool.put(f"cancel/{number}", b"")
            raise
        finally:
            self._waiting.pop(number, None)

    async def _patiently(self, future: asyncio.Future[bytes]) -> bytes:
        while not future.done():
            self._check()
            await asyncio.wait({future}, timeout=BEAT)
        return future.result()

    def _check(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    async def _serve(self) -> None:
        """Keep the pulse, bring answers home, let workers in. Waits for nobody: workers take silence for death."""
        beaten, pause = 0.0, _PAUSE
        try:
            while self._trouble is None:
                if time.monotonic() - beaten > BEAT:
                    beaten = time.monotonic()
                    self._beat()
                found = self._collect() + self._admit()
                if self._crew is not None and self._crew.departed():
                    self._news.set()
                pause = _PAUSE if found or self._waiting else min(pause * 1.5, 1.0)
                await asyncio.sleep(pause)
        except UserError as error:
            self._trouble = error
        except OSError as error:
            fix = "see that it is there and has room; then culmen resume"
            self._trouble = Unavailable(f"cannot write: {error}", where=str(self._spool.root), fix=fix)

    async def _watch(self, crew: Crew) -> None:
        """Look at the queue, as long as that makes sense."""
        while self._trouble is None:
            try:
                await crew.look()
            except UserError as error:
                self._trouble = error
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), crew.pause)
            self._news.clear()

    def _admit(self) -> int:
        """The first worker's greeting says what the run agrees on; later ones must come up to that."""
        crew, first = self._crew, self._first
        admitted = 0
        for worker in crew.strangers if crew is not None else []:
            greeting = self._spool.get(f"workers/{worker}")
            if greeting is None or crew is None or first is None or (first.done() and not self._agreed.level):
                continue
            if first.done():
                crew.demand(greeting, self._agreed)
            crew.admit(worker)
            admitted += 1
            if not first.done():
                first.set_result(greeting)
        return admitted

    def _collect(self) -> int:
        found = self._spool.names("done")
        for number in found:
            answer = self._spool.get(f"done/{number}")
            self._spool.drop(f"done/{number}")
            self._spool.drop(f"cancel/{number}")
            future = self._waiting.get(number)
            if answer is not None and future is not None and not future.done():
                future.set_result(answer)
        return len(found)

    def _lose(self, numbers: Iterable[str], reason: str) -> None:
        """These came to nothing, but for those that were answered before."""
        self._collect()
        for number in numbers:
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_exception(Lost(reason))

    async def close(self) -> None:
        """See `remote.Carrier`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._spool.root.exists():
            self._spool.put("stop", b"")
            await self._asking.close()


def _unheard(text: str) -> None:
    """For those who listen to nothing."""
