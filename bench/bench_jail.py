"""Costs of a jailed evaluation: median of a trivial candidate, rate with two workers.

They are held against fresh interpreters.

python bench/bench_jail.py [RUNS]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.local import LocalBackend
from culmen.jail import probes

SCORE = "def score(output): return output\n"
CANDIDATE = Candidate.of({"program": "import numpy\ndef run(): return float(numpy.ones(3).sum())"})


async def measure(level: str, path: Path, runs: int) -> tuple[float, float, float]:
    """Median and 99th percentile in milliseconds on one worker, evaluations per second on two."""
    task = Task("bench", evaluator=Evaluator(path=str(path)), limits=Limits(seconds=10.0))
    one, two = LocalBackend(task, 1, level=level), LocalBackend(task, 2, level=level)
    try:
        await one.start()
        await two.start()
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            observation = await one.evaluate(CANDIDATE, None, 0)
            times.append(1000 * (time.perf_counter() - start))
            assert observation.score == 3.0, observation
        await asyncio.gather(*(two.evaluate(CANDIDATE, None, 0) for _ in range(20)))
        start = time.perf_counter()
        done = await asyncio.gather(*(two.evaluate(CANDIDATE, None, 0) for _ in range(runs)))
        rate = runs / (time.perf_counter() - start)
        assert all(o.ok for o in done)
        return statistics.median(times), statistics.quantiles(times, n=100)[98], rate
    finally:
        await one.close()
        await two.close()


def fresh(runs: int) -> float:
    """Median milliseconds of a new interpreter that imports numpy and does the same."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import numpy; numpy.ones(3).sum()"], check=True)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print(
        f"trivial candidate, numpy imported, {runs} runs, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    plain = fresh(max(5, runs // 20))
    print(f"{'fresh python + numpy':<22} median {plain:7.1f} ms")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evaluator.py"
        path.write_text(SCORE)
        for level in probes.LEVELS[:-1]:
            try:
                median, tail, rate = asyncio.run(measure(level, path, runs))
            except IsolationError as error:
                print(f"{level:<22} not here: {error}")
                continue
            faster = f"{plain / median:5.1f} x faster than fresh"
            print(
                f"{level:<22} median {median:7.1f} ms  p99 {tail:7.1f} ms  two workers {rate:6.1f}/s  {faster}"
            )


if __name__ == "__main__":
    main()
