"""Capacity of one driver: the number of evaluations that it serves at once.

With --real also the capacity of this machine's backends.

    python bench/bench_scale.py [--at-once 10,100,1000] [--strategy best_of_n] [--real]

Workers are simulated, the driver is not: every completion is journaled and fed to a real search,
and the time this takes on this machine passes on the virtual clock, too. So a driver that is too
slow leaves workers idle, as in a real run.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import importlib.util
import math
import os
import resource
import secrets
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Status
from culmen.core.event import Effect, Entry, EvaluateRequest
from culmen.core.options import BackendChoice
from culmen.core.ports import Journal, MinimalStrategy
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine.driver import effect_facts
from culmen.engine.search import Search
from culmen.evaluate.backends import make_backend
from culmen.strategies import catalog
from culmen.tasks import load
from culmen.testing.landscape import Faults, Landscape, task

LEVELS = (10, 100, 1_000, 10_000, 100_000)
# law of an evaluation's seconds: 1 % are under 2 s, 1 % over half an hour
MEDIAN, SPREAD = 60.0, 1.5
STRAGGLERS, SLOWER = 0.01, 10.0
CALL_MEDIAN, CALL_SPREAD = 8.0, 0.5
FAULTS = Faults(error=0.03, timeout=0.01, lost=0.005)
_LEAST = 2_000  # evaluations of a level, and at least one per worker
_REAL = 400  # evaluations of each measurement of a real backend
_EXAMPLES = (1.0, 10.0, 60.0, 600.0)  # seconds of an evaluation


class Figure(msgspec.Struct, frozen=True):
    """One level: `workers` evaluations at once.

    `driver_ms` is the driver's processor time per evaluation (engine and journal), `commit_ms` the
    median wall time of one commit, `batch` the mean number of evaluations in it. `driver_busy` is
    the driver's processor time, `workers_busy` the workers' time, as shares of the virtual time,
    `per_second` evaluations per virtual second, `calls` the most model calls at once.
    """

    workers: int
    evaluations: int
    hours: float
    per_second: float
    driver_ms: float
    commit_ms: float
    batch: float
    driver_busy: float
    workers_busy: float
    calls: int
    peak_mb: float

    @property
    def limiting_resource(self) -> str:
        """The resource that limits the rate: driver or workers."""
        return "driver" if self.workers_busy < 0.8 else "workers"


def mean_seconds() -> float:
    """The mean duration of an evaluation, stragglers included."""
    return MEDIAN * math.exp(SPREAD**2 / 2) * (1 + STRAGGLERS * (SLOWER - 1))


def saturating_workers(figures: Sequence[Figure], seconds: float) -> float:
    """Number of concurrent evaluations that keep the driver busy all the time.

    Each takes `seconds`, at the driver's cost in the last measurement.
    """
    return seconds / (figures[-1].driver_ms / 1000)


def measure_driver(strategy: MinimalStrategy, workers: int, seed: int = 1) -> Figure:
    """One level; takes about a millisecond of this machine for every evaluation."""
    from culmen.store.database import RunMeta
    from culmen.store.journal import SqlJournal

    wanted = max(_LEAST, workers)
    # large enough that the run does not end, and no completion waits for the slowest
    budget = Budget(evaluations=20 * wanted)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqlJournal.create(
            Path(folder) / "run", RunMeta(id="scale", task=task(), budget=budget)
        )
        try:
            return _Simulation(
                Search(strategy, task(), budget, seed, workers), journal, workers
            ).run(wanted)
        finally:
            journal.close()


class _Simulation:
    def __init__(self, search: Search, journal: Journal, workers: int) -> None:
        self._search, self._journal, self._workers = search, journal, workers
        self._world = Landscape(sigma=0.1, faults=FAULTS)
        self._waiting: deque[Effect] = deque()
        self._running: list[tuple[float, int, Entry]] = []
        self._free, self._calls, self._most_calls = workers, 0, 0
        self._started: list[Entry] = []
        self._worker_seconds = self._driver_seconds = 0.0
        self._commits: list[float] = []
        self._done = 0

    def run(self, wanted: int) -> Figure:
        """Run until `wanted` evaluations are done."""
        now = self._take_effects(0.0, self._search.start)
        while self._running and self._done < wanted:
            now = max(now, self._running[0][0])
            batch: list[Entry] = []
            while self._running and self._running[0][0] <= now:
                entry = heapq.heappop(self._running)[2]
                if entry.key in self._search.in_flight:
                    batch.append(entry)
                    self._release_slot(entry)
            if batch:
                now = self._commit_batch(now, batch)
        return self._measured_figure(now)

    def _release_slot(self, entry: Entry) -> None:
        if entry.effect == "evaluate":
            self._free += 1
            self._done += 1
        else:
            self._calls -= 1

    def _commit_batch(self, now: float, batch: list[Entry]) -> float:
        """Journal and deliver completions; the virtual time afterwards."""
        entries = [*self._started, *self._search.outbox, *batch]
        self._started, self._search.outbox = [], []
        began, cpu = time.perf_counter(), time.process_time()
        self._journal.append(entries)
        self._commits.append(time.perf_counter() - began)
        self._driver_seconds += time.process_time() - cpu
        now += self._commits[-1]
        for entry in batch:
            now = self._take_effects(now, lambda e=entry: self._search.feed(e))
        return now

    def _take_effects(self, now: float, next_effects: Callable[[], Sequence[Effect]]) -> float:
        """Begin the effects that the search asks for as soon as a worker is free.

        Returns the time afterwards.
        """
        began = time.process_time()
        effects = next_effects()
        spent = time.process_time() - began
        self._driver_seconds += spent
        now += spent
        for effect in effects:
            if effect.kind == "evaluate":
                self._waiting.append(effect)
            else:
                self._calls += 1
                self._begin_effect(effect, now)
        self._most_calls = max(self._most_calls, self._calls)
        while self._waiting and self._free:
            self._free -= 1
            self._begin_effect(self._waiting.popleft(), now)
        return now

    def _begin_effect(self, effect: Effect, now: float) -> None:
        rng = Random(f"{effect.mark}/{effect.key}")
        _, result = self._world.perform(effect, rng)
        if isinstance(effect.request, EvaluateRequest):
            seconds = rng.lognormvariate(math.log(MEDIAN), SPREAD) * (
                SLOWER if rng.random() < STRAGGLERS else 1.0
            )
            seconds = seconds if effect.key > 1 else 1.0  # the seed: everything waits for it
            self._worker_seconds += seconds
        else:
            seconds = rng.lognormvariate(math.log(CALL_MEDIAN), CALL_SPREAD)
        done = Entry(
            "done",
            effect.key,
            effect.mark,
            effect.kind,
            effect_facts(effect, "search"),
            result,
            now + seconds,
        )
        heapq.heappush(self._running, (now + seconds, effect.key, done))
        self._started.append(Entry("started", effect.key, effect.mark, effect.kind))

    def _measured_figure(self, now: float) -> Figure:
        unfinished = sum(
            max(0.0, ends - now) for ends, _, entry in self._running if entry.effect == "evaluate"
        )
        return Figure(
            workers=self._workers,
            evaluations=self._done,
            hours=now / 3600,
            per_second=self._done / now,
            driver_ms=1000 * self._driver_seconds / self._done,
            commit_ms=1000 * sorted(self._commits)[len(self._commits) // 2],
            batch=self._done / len(self._commits),
            driver_busy=self._driver_seconds / now,
            workers_busy=(self._worker_seconds - unfinished) / (self._workers * now),
            calls=self._most_calls,
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )


_FILES = {
    "task.toml": (
        'name = "scale"\ngoal = "Return a number."\n[seed]\nfiles = ["p.py"]\n[evaluator]\npackages = []\n'
    ),
    "p.py": "def run():\n    return 1.0\n",
    "evaluator.py": "def score(output):\n    return float(output)\n",
}


class BackendFigure(msgspec.Struct, frozen=True):
    """Rate of a backend over `evaluations`, and `seconds` to start it.

    `per_second` is evaluations per second, `round_trip_ms` the median round trip, `driver_ms` the
    driver's processor time per evaluation.
    """

    backend: str
    workers: int
    evaluations: int
    seconds: float
    per_second: float
    round_trip_ms: float
    driver_ms: float
    lost: int


def measure_backend(
    name: str, choice: BackendChoice, workers: int, evaluations: int
) -> BackendFigure:
    """Evaluate `evaluations` different programs, `workers` at once.

    Twice as many evaluations as workers come before, to warm up.
    """
    with tempfile.TemporaryDirectory() as folder:
        for file, text in _FILES.items():
            Path(folder, file).write_text(text)
        return asyncio.run(_measure_backend(name, choice, load(folder), workers, evaluations))


async def _measure_backend(
    name: str, choice: BackendChoice, task: Task, workers: int, evaluations: int
) -> BackendFigure:
    backend = make_backend(choice, task, workers)
    began = time.perf_counter()
    await backend.start()
    started = time.perf_counter() - began
    slots, times, statuses = asyncio.Semaphore(workers), list[float](), list[Status]()

    async def evaluate_program(n: int) -> None:
        async with slots:
            sent = time.perf_counter()
            observation = await backend.evaluate(
                Candidate.of({"p.py": f"def run():\n    return {n}.0\n"}), None, n
            )
            times.append(time.perf_counter() - sent)
            statuses.append(observation.status)

    try:
        await asyncio.gather(*(evaluate_program(n) for n in range(2 * workers)))
        times.clear()
        statuses.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(evaluate_program(n) for n in range(evaluations)))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        await backend.close()
    lost = sum(status is not Status.OK for status in statuses)
    median_seconds = statistics.median(times)
    return BackendFigure(
        name,
        workers,
        evaluations,
        started,
        evaluations / wall,
        1000 * median_seconds,
        1000 * cpu / evaluations,
        lost,
    )


@contextmanager
def ray_nodes(count: int, cpus: int) -> Iterator[str]:
    """A Ray cluster of `count` nodes on this machine's loopback; its address."""
    from culmen.extensions.cluster.ray_connection import LOOPBACK, QUIET

    os.environ.update(
        QUIET | LOOPBACK | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    )
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args={"num_cpus": 0, **small})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=cpus, **small)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def measure_backends() -> Iterator[BackendFigure]:
    """The backends of this machine: processes on it, and Ray if it is installed."""
    for workers in (1, 2):
        yield measure_backend("local", BackendChoice(), workers, _REAL)
    if importlib.util.find_spec("ray") is None:
        return
    with ray_nodes(3, 2) as address:
        for workers in (1, 6):
            yield measure_backend(
                "ray, 3 nodes", BackendChoice("ray", address=address), workers, _REAL
            )


def print_drivers(levels: Sequence[int], strategy: MinimalStrategy) -> None:
    """A line for each level, and the numbers at once that keep the driver busy."""
    print(
        f"Simulated workers, real driver: evaluations of {MEDIAN:g} s (median; mean {mean_seconds():.0f} s),"
        " 4.5 % fail, 1 % take ten times as long."
    )
    print(
        "at once  evaluations  a second  driver ms  commit ms  batch  driver busy  workers busy  calls  peak MB  limit"
    )
    figures: list[Figure] = []
    for workers in levels:
        figures.append(each := measure_driver(strategy, workers))
        print(
            f"{each.workers:7}  {each.evaluations:11}  {each.per_second:8.2f}  {each.driver_ms:9.2f}  "
            f"{each.commit_ms:9.1f}  {each.batch:5.1f}  {each.driver_busy:11.1%}  {each.workers_busy:12.1%}  "
            f"{each.calls:5}  {each.peak_mb:7.0f}  {each.limiting_resource}",
            flush=True,
        )
    named = (
        f"{saturating_workers(figures, s):.0f} of {s:g} s" for s in (*_EXAMPLES, mean_seconds())
    )
    print(f"At that cost the driver is busy all the time with {', '.join(named)} at once.")


def print_backends() -> None:
    """A line for each backend and number of workers."""
    print("Backends of this machine, with programs that take no time:")
    print("backend       at once  evaluations  a second  round trip ms  driver ms  start s  not ok")
    for each in measure_backends():
        print(
            f"{each.backend:12}  {each.workers:7}  {each.evaluations:11}  {each.per_second:8.1f}  "
            f"{each.round_trip_ms:13.1f}  {each.driver_ms:9.2f}  {each.seconds:7.1f}  {each.lost:6}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--at-once", default=",".join(map(str, LEVELS)), help="numbers of evaluations at once"
    )
    parser.add_argument("--strategy", default="best_of_n")
    parser.add_argument("--real", action="store_true", help="measure this machine's backends, too")
    given = parser.parse_args()
    print_drivers(
        [int(level) for level in given.at_once.split(",")],
        catalog.make_strategy(given.strategy, {}),
    )
    if given.real:
        print_backends()


if __name__ == "__main__":
    main()
