"""What a Slurm job runs: the evaluator of its node, which takes jobs from the spool until it is told to stop.

Before its time is up it takes nothing new and ends when it has answered. When Slurm ends it earlier (cancelled,
preempted, over its limit) all processes of the job get a SIGTERM, candidates too: whatever they come to then is no
fault of theirs, and is given back as lost.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from pathlib import Path
from typing import Any

from culmen.core.evaluation import Status
from culmen.evaluate.cluster import parcel as parcels
from culmen.evaluate.cluster.node import NodeEvaluator
from culmen.evaluate.cluster.parcel import Answer
from culmen.evaluate.cluster.spool import Spool

LAPSE = 60.0  # seconds without a pulse after which the other side counts as dead
BEAT = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_SETTLE = 0.25  # seconds in which the signal that ended a candidate reaches this process, too


def serve(folder: str, job: str, slots: int, life: float) -> None:
    """Evaluate up to `slots` at once; returns when the driver has stopped or its pulse has, or when Slurm says so.

    `life` is the number of seconds in which new work is taken. A job that Slurm starts again is another worker.
    """
    asyncio.run(_Worker(Spool(Path(folder)), f"{job}.{secrets.token_hex(3)}", slots, life).serve())


class _Worker:
    def __init__(self, spool: Spool, name: str, slots: int, life: float) -> None:
        self._spool, self._name, self._slots = spool, name, slots
        self._node = NodeEvaluator()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._until = time.monotonic() + life
        self._admitted = self._ending = False

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.current_task()
        assert serving is not None
        loop.add_signal_handler(signal.SIGTERM, self._end, serving)
        beating = asyncio.create_task(self._beat())
        try:
            await self._begin()
            await self._take()
            await self._give_back()
        except asyncio.CancelledError:
            if not self._ending:
                raise
        finally:
            self._spool.drop(f"workers/{self._name}")
            beating.cancel()
            await self._node.close()

    def _end(self, serving: asyncio.Task[Any]) -> None:
        self._ending = True
        if not self._admitted:
            serving.cancel()

    async def _begin(self) -> None:
        spool = self._spool
        named = [name for name in spool.names(".") if name.startswith("parcel-")]
        parcel, terms = spool.get(named[0]), spool.get("terms")
        assert parcel is not None and terms is not None
        greeting = await self._node.begin(parcel, named[0].removeprefix("parcel-"), terms)
        spool.put(f"workers/{self._name}", greeting)

    async def _beat(self) -> None:
        while True:
            self._spool.beat(f"pulses/{self._name}")
            await asyncio.sleep(BEAT)

    async def _take(self) -> None:
        pause, looked = _FIRST_PAUSE, 0.0
        while not self._ending:
            last = time.monotonic() > self._until
            if last and not self._tasks:
                return
            if not self._admitted or time.monotonic() - looked > BEAT:
                looked = time.monotonic()
                if self._dismissed():
                    return
            for number in self._spool.names("cancel"):
                if number in self._tasks:
                    self._node.cancel(number)
            busy = (self._admitted and not last and self._claim()) or bool(self._tasks)
            pause = _FIRST_PAUSE if busy else min(pause * 1.5, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    def _dismissed(self) -> bool:
        """Whether the driver has stopped, is dead, or counts this worker as gone."""
        admitted, spool = self._spool.admitted(self._name), self._spool
        if self._admitted and not admitted:
            return True
        self._admitted = admitted
        return spool.get("stop") is not None or spool.silent("pulse") > LAPSE

    def _claim(self) -> bool:
        """Take what there is room for."""
        taken = False
        for number in self._spool.names("jobs"):
            if len(self._tasks) >= self._slots:
                break
            content = self._spool.claim(number, self._name)
            if content is not None:
                taken = True
                task = self._tasks[number] = asyncio.create_task(self._evaluate(number, content))
                task.add_done_callback(lambda _, n=number: self._tasks.pop(n, None))
        return taken

    async def _evaluate(self, number: str, content: bytes) -> None:
        seconds, _, job = content.partition(b"\n")
        answer = await self._node.evaluate(number, job, float(seconds))
        if self._doubtful(parcels.load(answer, Answer)):
            await asyncio.sleep(_SETTLE)
        if self._ending:
            answer = parcels.dump(Answer(lost="job_ended"))
        self._spool.put(f"done/{number}", answer)
        self._spool.drop(f"held/{self._name}/{number}")

    def _doubtful(self, answer: Answer) -> bool:
        """Whether a signal to the whole job may have made it what it is."""
        seen = answer.observation
        return seen is not None and (seen.status is not Status.OK or self._node.shares_processes)

    async def _give_back(self) -> None:
        """Answer for everything that is still held: lost here, to be tried elsewhere."""
        for number in list(self._tasks):
            self._node.cancel(number)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
