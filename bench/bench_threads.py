"""Scores of programs with threads and `metric = "speedup"` beside a load.

    python bench/bench_threads.py [--loads 0 4 12] [--repeats 3] [--workers 1]

Four hashes of one long text, by one thread (the reference, and the program `alone`), by a pool of
threads that stays (`kept`), and by one that is made anew in each call (`fresh`): the same work, so
1.00 is right but for the handing over. Each is evaluated beside so many busy processes; beside what
else the machine did is printed, too (load average).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.evaluate.local import LocalBackend
from culmen.tasks.loading import load

HASH = """
import hashlib
from concurrent.futures import ThreadPoolExecutor

def one(problem, number):
    return hashlib.sha256(problem[0] * problem[1] + bytes([number])).hexdigest()
"""
EVALUATOR = f"""{HASH}
def generate(seed):
    return [bytes([seed % 251]), 5_000_000]

def reference(problem):
    return [one(problem, number) for number in range(4)]

def check(problem, found):
    return found == reference(problem)
"""
SOLVER = """{hash}
{before}
class Solver:
    def solve(self, problem):
        {body}
"""
MAPPED = "return list(pool.map(lambda number: one(problem, number), range(4)))"
PROGRAMS = {
    "alone": ("", "return [one(problem, number) for number in range(4)]"),
    "kept": ("pool = ThreadPoolExecutor(4)", MAPPED),
    "fresh": ("", f"with ThreadPoolExecutor(4) as pool:\n            {MAPPED}"),
}
TOML = """
goal = "Hash."
[seed]
files = ["solver.py"]
[evaluator]
metric = "speedup"
entry = "Solver.solve"
[limits]
seconds = 30
"""


def main() -> None:
    """Print a table: a row for each load, the scores of each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 4, 12])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    for count in asked.loads:
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            found = asyncio.run(measure(asked.repeats, asked.workers))
        finally:
            for each in busy:
                each.kill()
        row = "  ".join(f"{name} {' '.join(map(outcome, seen))}" for name, seen in found.items())
        print(f"beside {count} (load {os.getloadavg()[0]:.0f}): {row}", flush=True)


def outcome(seen: Observation) -> str:
    """The score, or the reason that there is none."""
    return f"{seen.score:.3f}" if seen.score is not None else seen.reason


async def measure(repeats: int, workers: int) -> dict[str, list[Observation]]:
    """Evaluations of each program."""
    with tempfile.TemporaryDirectory() as place:
        texts = {
            name: SOLVER.format(hash=HASH, before=before, body=body)
            for name, (before, body) in PROGRAMS.items()
        }
        files = {"task.toml": TOML, "evaluator.py": EVALUATOR, "solver.py": texts["alone"]}
        for name, text in files.items():
            Path(place, name).write_text(text)
        backend = LocalBackend(load(place), workers)
        try:
            await backend.start()
            return {
                name: list(
                    await asyncio.gather(
                        *(
                            backend.evaluate(Candidate.of({"solver.py": text}), None, number)
                            for number in range(repeats)
                        )
                    )
                )
                for name, text in texts.items()
            }
        finally:
            await backend.close()


if __name__ == "__main__":
    main()
