"""Costs of culmen itself: orchestration CPU per evaluated candidate, replay, and more.

Replay is given as speed; the rest is memory and start-up.

    python bench/bench_engine.py            # 200, 1,000 and 10,000 evaluations
    python bench/bench_engine.py --quick    # 200 and 1,000

The world is in-process and instant, so everything measured is the strategy (polca), engine, journal
and ledger; the CPU time of the world's own functions is measured in the same run and taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a session does

from culmen.core.brief import Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import (
    Custom,
    CustomRequest,
    Effect,
    EmbedRequest,
    EvaluateRequest,
    ProposeRequest,
    Result,
    Vectors,
    at_least,
)
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage
from culmen.engine.driver import Driver, replay_journal
from culmen.engine.search import Search
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.store.reader import JournalObservations
from culmen.strategies.polca import Polca

PROGRAM = "\n".join(
    f"def step_{i}(x):\n    return x * {i} + 1" for i in range(40)
)  # about 1.5 kB, as a small program
STRATEGY = Polca(batch=1)
TASK = Task("bench", seeds=({"main.py": PROGRAM + "\n# 0.0"},))


class Instant:
    """Noisy rewards around the number in the last line; every proposal is new."""

    def __init__(self) -> None:
        self.cpu = 0.0

    async def perform(self, effect: Effect) -> Result:
        if isinstance(effect.request, CustomRequest):
            await asyncio.sleep(float(effect.request.payload["seconds"]))
            return Custom({})
        began = time.thread_time()
        result = self._result(effect)
        self.cpu += time.thread_time() - began
        return result

    def _result(self, effect: Effect) -> Result:
        request, rng = effect.request, Random(effect.key)
        if isinstance(request, EvaluateRequest):
            mean = float(request.candidate.text.rpartition("# ")[2])
            return Observation(
                request.candidate.id,
                Status.OK,
                mean + rng.gauss(0, 0.1),
                feedback="fine",
                trust="verified",
            )
        if isinstance(request, ProposeRequest):
            mean = rng.gauss(0.5, 0.2)
            child = Candidate.of({"main.py": f"{PROGRAM}\n# {mean!r}"}, (request.brief.parent.id,))
            return Proposal((child,), usage=Usage(calls=1))
        if isinstance(request, EmbedRequest):
            rows = b"".join(rng.randbytes(256) for _ in range(4 * len(request.candidates)))
            import numpy as np

            array = (
                np.frombuffer(rows, np.uint8)
                .astype("<f4")
                .reshape(len(request.candidates), -1)[:, :256]
            )
            array = np.ascontiguousarray(array / np.linalg.norm(array, axis=1, keepdims=True))
            return Vectors(array.shape[0], array.shape[1], array.tobytes(), "random")
        return Text("")


def measure(evaluations: int, folder: Path) -> None:
    budget = Budget(evaluations=evaluations)
    journal = SqlJournal.create(
        folder / f"run-{evaluations}", RunMeta(id=f"run-{evaluations}", task=TASK, budget=budget)
    )
    world = Instant()
    search = Search(
        STRATEGY,
        TASK,
        budget,
        1,
        8,
        observations=JournalObservations(folder / f"run-{evaluations}"),
    )
    driver = Driver(search, world, journal, workers=8)
    began, wall = time.process_time(), time.perf_counter()
    state = asyncio.run(driver.run())
    cpu, wall = time.process_time() - began - world.cpu, time.perf_counter() - wall
    journal.close()
    candidates = len(search.evidence.account)
    size = sum(f.stat().st_size for f in (folder / f"run-{evaluations}").rglob("*") if f.is_file())
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    reader = SqlJournal.open(folder / f"run-{evaluations}", write=False)
    again = Search(STRATEGY, TASK, budget, 1, 8)
    start = time.perf_counter()
    replayed = replay_journal(again, reader.read(), at_least)
    speed = replayed.effects / (time.perf_counter() - start)
    assert state == "finished" and again.is_done and again.result_so_far == search.result_so_far
    print(
        f"{evaluations:>7} evaluations  {candidates:>6} candidates  "
        f"{1000 * cpu / evaluations:6.3f} ms CPU/evaluation  {1000 * cpu / candidates:6.3f} ms CPU/candidate  "
        f"{evaluations / wall:8.0f} evaluations/s  replay {speed:8.0f} effects/s  "
        f"peak {rss:5.0f} MB  {size / evaluations / 1024:5.1f} kB/evaluation on disk"
    )


def startup(words: list[str]) -> float:
    """CPU seconds of a fresh process, the median of five."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return sorted(times)[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    sizes = (200, 1000) if parser.parse_args().quick else (200, 1000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            measure(
                50, Path(folder)
            )  # imports and compiled statements belong to the start, not to an evaluation
        for size in sizes:
            measure(size, Path(folder))
    bare = startup([sys.executable, "-c", "pass"])
    print(f"python -c pass          {bare:.3f} CPU s")
    print(
        f"import culmen           {startup([sys.executable, '-c', 'import culmen']):.3f} CPU s (interpreter included)"
    )
    print(
        f"culmen --help           {startup([str(Path(sys.executable).with_name('culmen')), '--help']):.3f} CPU s"
    )


if __name__ == "__main__":
    main()
