"""A run killed at every effect's boundary ends as if never stopped.

Also while the final choice is being certified.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from culmen.core.evaluation import Observation
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.usage import Budget
from culmen.store import views
from culmen.store.database import FILE
from culmen.strategies import catalog
from culmen.testing import strategy_kit as kit
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

BUDGET = Budget(evaluations=40)


@dataclass(frozen=True)
class Vouching(Landscape):
    """An exact landscape with a verifier.

    It passes a third of the programs, repairs a third and refuses the rest.
    """

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        seconds, result = super().perform(effect, rng)
        request = effect.request
        if (
            isinstance(request, EvaluateRequest)
            and request.certify
            and isinstance(result, Observation)
        ):
            assert result.score is not None
            values = (result.score, max(0.0, result.score - 0.05), None)
            fate = int(request.candidate.digest[:8], 16) % 3
            result = msgspec.structs.replace(result, certified=values[fate], strict=fate == 0)
        return seconds, result


def verified_task():
    made = task(deterministic=True)
    return msgspec.structs.replace(
        made, evaluator=msgspec.structs.replace(made.evaluator, verifier="verify.py")
    )


@pytest.mark.slow
@pytest.mark.parametrize("order", ["request", "time"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("turboevolve", {"islands": "2"}),
        ("openevolve", {"islands": "2"}),
        ("gepa", {}),
        ("polca", {"epsilon": "off"}),
    ],
)
def test_kill_points_of_a_certified_run(name: str, given: dict[str, str], order: kit.Order):
    strategy, world = catalog.make_strategy(name, given), Vouching()
    whole = simulate(strategy, verified_task(), world, BUDGET, seed=3, workers=3, order=order)
    entries = [e.entry for e in whole.journal.read() if e.entry.kind == "done"]
    last = [e.result for e in entries if e.body.get("phase") == "final"]
    assert last and all(isinstance(seen, Observation) and seen.strict is not None for seen in last)
    assert whole.verdict is not None and whole.verdict.confirmed
    points = (
        len(entries) if name == "gepa" else len(entries) // 4
    )  # the end is the engine's, with every strategy
    kit.check_kill_points(strategy, verified_task(), world, BUDGET, order=order, points=points)


TOML = """
goal = "Return a large number."
deterministic = true
[seed]
parts = { "program.py" = "def run():\\n    return 1.0\\n" }
[evaluator]
verify = "verify.py"
[objective]
bounds = [0, 100]
"""
VERIFIER = """
def certify(output, case=None):
    if output > 17:
        return {"score": None, "feasible": False, "feedback": "not a witness"}
    return {"score": min(output, 12), "exact": str(output), "feasible": output <= 12, "repaired": "cut" * (output > 12)}
"""


def session(folder: Path, kill: int) -> int:
    """One process of the run; its exit code, negative for a signal."""
    command = [sys.executable, "-m", "tests.strategies.verified_run", str(folder), str(kill)]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=240, check=False, env=os.environ
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def told(run: Path) -> list[Any]:
    """Finished effects in order, without times.

    A request shows the times of its observations, so its mark is left out, too.
    """
    rows = []
    for event in views.log_events(run, limit=100_000, kinds=("done",)):
        entry, result = event.entry, event.entry.result
        if isinstance(result, Observation):
            result = (
                result.candidate,
                result.score,
                result.certified,
                result.strict,
                result.status,
                result.seed,
            )
        else:
            result = tuple(candidate.id for candidate in getattr(result, "candidates", ()))
        rows.append((entry.key, entry.effect, entry.body.get("phase"), result))
    return rows


@pytest.mark.jail
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_real_run_killed_after_every_single_effect(tmp_path: Path):
    """Real processes, journal, jail and verifier.

    SIGKILL after each effect, one session for each.
    """
    for name in ("whole", "killed"):
        folder = tmp_path / name / "task"
        folder.mkdir(parents=True)
        texts = {
            "task.toml": TOML,
            "evaluator.py": "def score(output):\n    return output\n",
            "verify.py": VERIFIER,
        }
        for file, text in texts.items():
            (folder / file).write_text(text)
    assert session(tmp_path / "whole", 0) == 0
    whole = told(tmp_path / "whole/run")
    assert sum(phase == "final" for *_, phase, _ in whole) >= 2 and len(whole) >= 12
    for done in range(1, len(whole) + 1):
        code = session(tmp_path / "killed", 1)
        assert (tmp_path / "killed/run" / FILE).is_file()
        now = told(tmp_path / "killed/run")
        assert now == whole[: len(now)]
        if code == 0:
            break
        assert len(now) == done
    assert session(tmp_path / "killed", 0) == 0
    assert told(tmp_path / "killed/run") == whole
    best, again = (views.run_status(tmp_path / name / "run").best for name in ("whole", "killed"))
    assert best is not None and best == again and best.certified is not None
