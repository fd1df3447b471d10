"""What a backend of this machine really does: evaluations a second, and what each costs the driver."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Status
from culmen.core.task import Task
from culmen.evaluate.cluster import make
from culmen.evaluate.cluster.choice import BackendChoice
from culmen.evaluate.taskfiles import load

_FILES = {
    "task.toml": 'name = "scale"\ngoal = "Return a number."\n[seed]\nfiles = ["p.py"]\n[evaluator]\npackages = []\n',
    "p.py": "def run():\n    return 1.0\n",
    "evaluator.py": "def score(output):\n    return float(output)\n",
}


class Measured(msgspec.Struct, frozen=True):
    """`seconds` to start, then over `evaluations`: how many a second, the median round trip, the driver's CPU each."""

    backend: str
    workers: int
    evaluations: int
    seconds: float
    per_second: float
    round_trip_ms: float
    driver_ms: float
    lost: int


def measure(name: str, choice: BackendChoice, workers: int, evaluations: int) -> Measured:
    """Evaluate so many different programs, `workers` at once, after as many to warm up as there are workers twice."""
    with tempfile.TemporaryDirectory() as folder:
        for file, text in _FILES.items():
            Path(folder, file).write_text(text)
        return asyncio.run(_measure(name, choice, load(folder), workers, evaluations))


async def _measure(name: str, choice: BackendChoice, task: Task, workers: int, evaluations: int) -> Measured:
    backend: Any = make(choice, task, workers)
    began = time.perf_counter()
    await backend.start()
    started = time.perf_counter() - began
    gate, times, statuses = asyncio.Semaphore(workers), list[float](), list[Status]()

    async def one(n: int) -> None:
        async with gate:
            asked = time.perf_counter()
            seen = await backend.evaluate(Candidate.of({"p.py": f"def run():\n    return {n}.0\n"}), None, n)
            times.append(time.perf_counter() - asked)
            statuses.append(seen.status)

    try:
        await asyncio.gather(*(one(n) for n in range(2 * workers)))
        times.clear()
        statuses.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one(n) for n in range(evaluations)))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        await backend.close()
    lost = sum(status is not Status.OK for status in statuses)
    each = statistics.median(times)
    return Measured(
        name, workers, evaluations, started, evaluations / wall, 1000 * each, 1000 * cpu / evaluations, lost
    )


def has_ray() -> bool:
    """Whether the extra is installed."""
    return importlib.util.find_spec("ray") is not None


@contextmanager
def ray_nodes(count: int, cpus: int) -> Iterator[str]:
    """A Ray cluster of so many nodes on this machine's loopback; its address."""
    from culmen.evaluate.cluster.ray_connection import LOOPBACK, QUIET

    os.environ.update(QUIET | LOOPBACK | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, connect=False, head_node_args={"num_cpus": 0, **small})
    try:
        for _ in range(count):
            cluster.add_node(num_cpus=cpus, **small)
        yield cluster.address
    finally:
        cluster.shutdown()
