"""Costs of a proxy: evaluate(path) with the candidate in a process of its own.

It is held against both in one, and a single call.

    python bench/bench_proxied.py [RUNS]

The evaluators pack 26 circles in the two usual ways: one imports the program, the other starts an
interpreter that does and pickles what it returned. The program lays the circles out on a grid,
which takes no time at all, so that only what surrounds it is compared; another one also works a
little. Both ways are measured in turn on one worker, after a few evaluations to get warm.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Scoring
from culmen.core.task import Evaluator, Limits, Task
from culmen.evaluate.local import LocalBackend

JUDGE = """
import numpy as np

def judge(centers, radii):
    centers, radii = np.asarray(centers, dtype=float), np.asarray(radii, dtype=float)
    if centers.shape != (26, 2) or radii.shape != (26,) or np.isnan(centers).any() or np.isnan(radii).any():
        return 0.0
    for i in range(26):
        x, y, r = *centers[i], radii[i]
        if r < 0 or x - r < -1e-6 or x + r > 1 + 1e-6 or y - r < -1e-6 or y + r > 1 + 1e-6:
            return 0.0
        for j in range(i):
            if np.sqrt(np.sum((centers[i] - centers[j]) ** 2)) < r + radii[j] - 1e-6:
                return 0.0
    return float(np.sum(radii))
"""
LOAD = """
import importlib.util

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
IMPORTING = (
    JUDGE
    + LOAD
    + """
def evaluate(program_path):
    centers, radii, _ = load(program_path).run_packing()
    return {"combined_score": judge(centers, radii) / 2.635}
"""
)
STARTING = (
    JUDGE
    + '''
import os, pickle, subprocess, sys, tempfile

SCRIPT = """
import importlib.util, pickle, sys
import numpy as np
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
with open(sys.argv[2], "wb") as file:
    pickle.dump(program.run_packing(), file)
"""

def evaluate(program_path):
    with tempfile.TemporaryDirectory() as folder:
        script, out = os.path.join(folder, "script.py"), os.path.join(folder, "out")
        with open(script, "w") as file:
            file.write(SCRIPT)
        subprocess.run([sys.executable, script, program_path, out], check=True, timeout=60)
        with open(out, "rb") as file:
            centers, radii, _ = pickle.load(file)
    return {"combined_score": judge(centers, radii) / 2.635}
'''
)
CALLING = (
    LOAD
    + """
import time
import numpy as np

def took(call, times):
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times

def evaluate(program_path):
    same = load(program_path).same
    small, large = np.arange(1000.0), np.zeros(1 << 20)
    return {
        "combined_score": 1.0,
        "number": took(lambda: same(1.5), 2000),
        "thousand": took(lambda: same(small), 1000),
        "large": took(lambda: same(large), 10),
    }
"""
)
PROGRAM = """
import numpy as np

def run_packing():
    cells = (np.arange(6) + 0.5) / 6
    centers = np.array([(x, y) for x in cells for y in cells])[:26]
    radii = np.full(26, 0.5 / 6)
    return centers, radii, float(radii.sum())

def same(value):
    return value
"""
WORKING = (
    PROGRAM.replace("run_packing", "start")
    + """
def run_packing():
    centers, radii, _ = start()
    for _ in range(4000):  # as programs do that search: pull every circle away from its nearest neighbour
        gaps = centers[:, None] - centers
        far = np.sqrt((gaps ** 2).sum(-1)) + np.eye(26)
        centers = np.clip(centers + 1e-6 * gaps[np.arange(26), far.argmin(1)], radii[:, None], 1 - radii[:, None])
    return centers, 0.99 * radii, float(radii.sum())
"""
)
CANDIDATE, SEARCHES = (Candidate.of({"program.py": text}) for text in (PROGRAM, WORKING))
LIMITS = Limits(seconds=120.0)


def backend(folder: Path, source: str, trust: str) -> LocalBackend:
    """One worker for this evaluator, with the candidate behind a proxy or beside it."""
    path = folder / "evaluator.py"
    folder.mkdir()
    path.write_text(source)
    task = Task(
        "bench",
        seeds=({"program.py": PROGRAM},),
        evaluator=Evaluator("legacy", str(path)),
        limits=LIMITS,
    )
    return LocalBackend(task, 1, scoring=Scoring(trust))


async def compare(
    folder: Path, source: str, candidate: Candidate, runs: int
) -> tuple[float, float]:
    """Median milliseconds proxied and unproxied, the two taken in turn."""
    folder.mkdir()
    both = [backend(folder / trust, source, trust) for trust in ("proxied", "self-reported")]
    times: list[list[float]] = [[], []]
    try:
        for each in both:
            await each.start()
        for number in range(runs + 3):
            for each, kept in zip(both, times):
                start = time.perf_counter()
                seen = await each.evaluate(candidate, None, number)
                kept.append(1000 * (time.perf_counter() - start))
                assert seen.ok and seen.trust == each.scoring.trust, seen
    finally:
        for each in both:
            await each.close()
    return statistics.median(times[0][3:]), statistics.median(times[1][3:])


async def calls(folder: Path) -> dict[str, float]:
    """Seconds of one call behind a proxy: a number, 1,000 doubles, 8 MB, there and back."""
    one = backend(folder, CALLING, "proxied")
    try:
        await one.start()
        rounds = [(await one.evaluate(CANDIDATE, None, number)).metrics for number in range(5)]
    finally:
        await one.close()
    return {
        name: statistics.median(each[name] for each in rounds)
        for name in ("number", "thousand", "large")
    }


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        print(
            f"{'evaluator, median of ' + str(runs):38} {'proxied':>9} {'unproxied':>9} {'ratio':>6}"
        )
        for number, (name, source, candidate) in enumerate(
            (
                ("starts an interpreter, pickles", STARTING, CANDIDATE),
                ("imports the program", IMPORTING, CANDIDATE),
                ("imports a program that works a little", IMPORTING, SEARCHES),
            )
        ):
            proxied, plain = asyncio.run(compare(folder / str(number), source, candidate, runs))
            print(f"{name:38} {proxied:6.1f} ms {plain:6.1f} ms {proxied / plain:6.2f}")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        each = asyncio.run(calls(folder / "calls"))
    print(f"one call, a number there and back       {1e6 * each['number']:8.0f} us")
    print(f"one call, 1,000 doubles there and back  {1e6 * each['thousand']:8.0f} us")
    print(f"one call, 8 MB there and back           {1e3 * each['large']:8.1f} ms")


if __name__ == "__main__":
    main()
