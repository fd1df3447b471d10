"""What a Slurm job runs: the evaluator of its node, which takes jobs from the spool until it is told to stop."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from culmen.evaluate.backends.node import NodeEvaluator
from culmen.evaluate.backends.spool import Spool

LAPSE = 60.0  # seconds without a pulse after which the other side counts as dead
BEAT = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


def serve(folder: str, worker: str, slots: int) -> None:
    """Evaluate up to `slots` at once; returns when the driver has stopped or its pulse has."""
    asyncio.run(_Worker(Spool(Path(folder)), worker, slots).serve())


class _Worker:
    def __init__(self, spool: Spool, name: str, slots: int) -> None:
        self._spool, self._name, self._slots = spool, name, slots
        self._node = NodeEvaluator()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        spool = self._spool
        (spool.root / "held" / self._name).mkdir(exist_ok=True)
        beating = asyncio.create_task(self._beat())
        try:
            named = [name for name in spool.names(".") if name.startswith("parcel-")]
            parcel, terms = spool.get(named[0]), spool.get("terms")
            assert parcel is not None and terms is not None
            greeting = await self._node.begin(parcel, named[0].removeprefix("parcel-"), terms)
            spool.put(f"workers/{self._name}", greeting)
            await self._take()
        finally:
            beating.cancel()
            await self._node.close()

    async def _beat(self) -> None:
        while True:
            self._spool.beat(f"workers/{self._name}.pulse")
            await asyncio.sleep(BEAT)

    async def _take(self) -> None:
        pause, looked = _FIRST_PAUSE, 0.0
        while True:
            if time.monotonic() - looked > BEAT:
                looked = time.monotonic()
                if self._spool.get("stop") is not None or self._spool.silent("pulse") > LAPSE:
                    return
            for number in self._spool.names("cancel"):
                if number in self._tasks:
                    self._node.cancel(number)
            pause = _FIRST_PAUSE if self._claim() or self._tasks else min(pause * 1.5, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

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
        self._spool.put(f"done/{number}", answer)
        self._spool.drop(f"held/{self._name}/{number}")
