"""Results of timed programs are as long as the task allows, and too long ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.evaluation import Status
from tests.extensions.timing.test_timing_speedup import TOML, evaluate, write_task

pytestmark = pytest.mark.jail

MANY = 66 << 20  # bytes, beyond what any other answer of a program may have
EVALUATOR = """
def generate(seed):
    return [seed, {size}]

def reference(problem):
    return b"1" * problem[1]

def check(problem, found):
    return len(found) >= problem[1]
"""
SOLVER = "class Solver:\n    def solve(self, problem):\n        return b'1' * ({} * problem[1])\n"


def test_speedup_a_long_result_is_taken_if_the_task_allows_it(tmp_path: Path) -> None:
    toml = f"{TOML}output_kb = {(MANY >> 10) + 1}\nscorer_memory_mb = 1024\n"
    files = {"task.toml": toml, "evaluator.py": EVALUATOR.format(size=MANY)}
    found = evaluate(write_task(tmp_path, **files), {"same": SOLVER.format(1)})
    assert found["same"].ok, found["same"].feedback


def test_speedup_a_result_beyond_the_limit_is_named(tmp_path: Path) -> None:
    small = {"task.toml": f"{TOML}output_kb = 64\n"}
    fits = write_task(tmp_path, **small, **{"evaluator.py": EVALUATOR.format(size=40_000)})
    found = evaluate(fits, {"long": SOLVER.format(2), "same": SOLVER.format(1)})
    assert (found["long"].status, found["long"].reason) == (Status.REJECTED, "output_limit")
    assert "65536 are allowed" in found["long"].feedback and found["same"].ok
    never = write_task(tmp_path, **small, **{"evaluator.py": EVALUATOR.format(size=80_000)})
    found = evaluate(never, {"same": SOLVER.format(1)})
    assert found["same"].status is Status.LOST
    assert "the reference's result has 80" in found["same"].feedback
    assert "raise [limits] output_kb" in found["same"].feedback
