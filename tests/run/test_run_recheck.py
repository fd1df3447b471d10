"""A resumed session begins with the initial program again.

Where scores were exact, another score stops the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, RoleUsage, Status
from culmen.core.task import Evaluator, Task
from culmen.evidence.account import Account, fact_of
from culmen.run.fork import finished_results
from culmen.run.recheck import is_repeatable
from culmen.run.study import Study
from culmen.store import views
from culmen.store.journal import SqlJournal

SCRIPT = """
import os, re, sys, time
import numpy
import culmen
from culmen.testing.scripted import ScriptedModel

folder, seeded, declared, slow = sys.argv[1:5]
DATA = float(numpy.random.default_rng(5 if seeded == "seeded" else None).random())

def evaluate(text):
    time.sleep(float(slow))
    return DATA - abs(float(text.partition("=")[2]) - 40) / 50

def improve(call):
    value = float(re.findall(r"VALUE = ([-\\d.]+)", call.prompt)[-1])
    return f"A step.\\n```python\\nVALUE = {value + 1.0}\\n```"

options = {"model": ScriptedModel(improve)}
if os.path.exists(folder):
    culmen.Study.resume(folder, evaluator=evaluate, **options).run(progress=False)
else:
    culmen.optimize("VALUE = 0.0", evaluate, budget=30, workers=1, random_seed=3, run_dir=folder, progress=False,
                    deterministic=True if declared == "declared" else None, **options)
"""


def session(run: Path, seeded: str, declared: str, slow: float = 0.0) -> list[str]:
    script = run.parent / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, str(script), str(run), seeded, declared, str(slow)]


def kill_after(run: Path, evaluations: int, seeded: str, declared: str) -> None:
    process = subprocess.Popen(session(run, seeded, declared, 0.05))
    until = time.monotonic() + 60
    while not run.exists() or len(scores(run)) < evaluations:
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def scores(run: Path) -> list[float | None]:
    try:
        with SqlJournal.open(run) as journal:
            results = [event.entry.result for event in journal.read()]
    except UserError:
        return []
    return [result.score for result in results if isinstance(result, Observation)]


@pytest.mark.parametrize("declared", ["declared", "seen"])
def test_data_drawn_at_import_without_a_seed_stop_the_resumed_run(
    tmp_path: Path, declared: str
) -> None:
    run = tmp_path / "run"
    kill_after(run, 18, "unseeded", declared)
    before = scores(run)
    ended = subprocess.run(session(run, "unseeded", declared), capture_output=True, text=True)
    assert ended.returncode == 1 and "ScoresChanged" in ended.stderr, ended.stderr
    assert f"the initial program scored {before[0]!r} before and scores " in ended.stderr
    assert "culmen runs fork RUN" in ended.stderr and "seed " in ended.stderr
    assert scores(run) == before  # nothing was ranked by the other data
    now = views.run_status(run)
    assert now.state == "paused" and "surroundings changed" in now.error
    kept = finished_results(run, views.run_meta(run).task.evaluator.digest)
    assert not any(isinstance(each, Observation) for each in kept.values())


@pytest.mark.parametrize("declared", ["declared", "seen"])
def test_a_resumed_run_with_the_same_data_equals_one_that_was_never_stopped(
    tmp_path: Path, declared: str
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    kill_after(run, 18, "seeded", declared)
    for each in (run, whole):
        subprocess.run(session(each, "seeded", declared), check=True)
    assert scores(run) == scores(whole)
    assert Study.open(run).best == Study.open(whole).best
    assert views.run_status(run).evaluations == views.run_status(whole).evaluations


INITIAL = Candidate.of({"x": "0"})
TASK = Task("hill", seeds=({"x": "0"},))


def account_of(task: Task, *scores: float | None) -> Account:
    """Three equal repeats of each of six candidates, then these of the initial program."""
    account = Account(task)
    for number in range(6):
        candidate = Candidate.of({"x": str(number)})
        for score in (*[float(number)] * 3, *(scores if not number else ())):
            status = Status.ERROR if score is None else Status.OK
            account.observe(fact_of(task, candidate, Observation(candidate.id, status, score), ""))
    return account


@pytest.mark.parametrize(
    ("repeatable", "deterministic", "evaluator", "recorded", "scores"),
    [
        (True, None, {}, {}, ()),
        (True, True, {}, {}, ()),
        (False, False, {}, {}, ()),
        (False, None, {}, {}, (0.5,)),  # scores are noisy
        (False, None, {}, {}, (None,)),
        (False, True, {}, {}, (None,)),  # it fails at times
        (False, True, {"keeps_state": True}, {}, ()),
        (False, True, {"metric": "speedup"}, {}, ()),
        (False, True, {"options": {"roles": ["judge"]}}, {}, ()),
        (False, True, {}, {"asked": (RoleUsage("judge", "m", 1),)}, ()),
        (False, True, {}, {"drew": ("evaluator.rng",)}, ()),
    ],
)
def test_only_what_must_give_the_same_score_is_compared(
    repeatable, deterministic, evaluator, recorded, scores
) -> None:
    task = msgspec.structs.replace(
        TASK, deterministic=deterministic, evaluator=Evaluator(**evaluator)
    )
    before = Observation(INITIAL.id, Status.OK, 0.0, **recorded)
    assert is_repeatable(task, account_of(task, *scores), before) is repeatable
