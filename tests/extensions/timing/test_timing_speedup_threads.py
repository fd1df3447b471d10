"""Programs with threads on a busy machine have their true speed-up, or none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from culmen.core.evaluation import Status, culprit_of
from culmen.extensions.timing.speedup import Round, Use, estimate_speedup
from tests.extensions.timing.test_timing_speedup import evaluate, write_task

HASHES = """
import hashlib
from concurrent.futures import ThreadPoolExecutor

def one(problem, number):
    return hashlib.sha256(problem[0] * problem[1] + bytes([number])).hexdigest()
"""
EVALUATOR = (
    HASHES
    + """
def generate(seed):
    return [bytes([seed % 251]), 3_000_000]

def reference(problem):
    return [one(problem, number) for number in range(4)]

def check(problem, found):
    return found == reference(problem)
"""
)
ALONE = f"{HASHES}\nclass Solver:\n    def solve(self, problem):\n        return [one(problem, n) for n in range(4)]\n"
KEPT = (
    HASHES
    + """
pool = ThreadPoolExecutor(4)
class Solver:
    def solve(self, problem):
        return list(pool.map(lambda number: one(problem, number), range(4)))
"""
)
FRESH = (
    HASHES
    + """
class Solver:
    def solve(self, problem):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda number: one(problem, number), range(4)))
"""
)


@pytest.fixture
def load() -> Iterator[None]:
    """Other programs that want every core."""
    loop = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(loop) for _ in range(6)]
    yield
    for each in others:
        each.kill()
        each.wait()


@pytest.mark.jail
@pytest.mark.usefixtures("load")
def test_threads_are_not_charged_for_the_load_of_others(tmp_path: Path) -> None:
    folder = write_task(tmp_path, **{"evaluator.py": EVALUATOR, "solver.py": ALONE})
    found = evaluate(folder, {"alone": ALONE, "kept": KEPT, "fresh": FRESH})
    assert found["alone"].score is not None, "one thread is timed beside any load"
    for name in ("kept", "fresh"):
        seen = found[name]
        if seen.score is None:
            assert (seen.status, seen.reason) == (Status.LOST, "machine_busy"), seen.feedback
            assert culprit_of(seen) == "machine" and "one worker" in seen.feedback
        else:
            assert 0.8 < seen.score < 1.25, (name, seen.feedback)


def test_the_least_time_of_a_run_is_without_others_only_if_other_threads_worked() -> None:
    assert Use(wall=0.03, waited=0.01, processor=0.02, first=0.02).least == pytest.approx(0.02)
    assert Use(wall=0.05, waited=0.0, processor=0.02, first=0.02).least == 0.05, "it slept"
    assert Use(wall=0.05, waited=0.0, processor=0.02, first=0.005).least == 0.02
    assert Use(wall=0.05, waited=0.015, processor=0.02, first=0.005).least == pytest.approx(0.005)


def test_an_estimate_tells_what_the_load_may_have_made_of_it() -> None:
    def rounds(unsure: float) -> list[Round]:
        return [Round(0.02, 0.02, 0.0, unsure, 0.0, 0.0) for _ in range(8)]

    assert estimate_speedup(rounds(0.0)).unsure == 0.0
    assert estimate_speedup(rounds(0.7)).unsure == pytest.approx(1.01, abs=0.01)
    few = [*rounds(0.0)[:5], *rounds(0.7)[:3]]
    assert estimate_speedup(few).unsure == 0.0, "most rounds were undisturbed"
