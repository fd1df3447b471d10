"""A winner is checked against its evaluator's tolerances if there is no exact verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from culmen.cli.keep import replay_run
from culmen.core.candidate import Candidate
from culmen.core.task import NO_TOLERANCE, NOT_PUSHED
from culmen.core.usage import Budget
from culmen.engine.ledger import final_share
from culmen.extensions.audit.cli import find_signs
from culmen.run.study import Study
from culmen.store import views
from tests.evaluate.conftest import need
from tests.extensions.audit.worlds import (
    OLD_PACK,
    PACK,
    POINTS,
    PUSHED,
    SCALED,
    Programs,
    old,
    packing,
    triangle,
)

pytestmark = pytest.mark.jail


def bare(folder: Path, task: Any) -> Path:
    """A task of these without its verifier."""
    task(folder)
    (folder / "verify.py").unlink()
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace('verify = "verify.py"', ""))
    return folder


def finished(
    folder: Path, task: Path, name: str, texts: tuple[str, ...], budget: int = 60, **more: Any
) -> Path:
    study = Study.create(
        task,
        Programs(texts, name),
        budget=Budget(evaluations=budget),
        run_dir=folder,
        workers=2,
        **more,
    )
    assert study.run() == "finished"
    return folder


def ident(text: str, name: str) -> str:
    return Candidate.of({name: text}).id


BOTH = pytest.mark.parametrize(
    ("task", "name", "honest", "gamed", "line"),
    [
        (packing, "pack.py", PACK, PUSHED, "evaluator.py:3"),
        (triangle, "points.py", POINTS, SCALED, "evaluator.py:4"),
    ],
    ids=["radii pushed into the tolerance", "points scaled about their middle"],
)


@BOTH
def test_a_winner_that_lives_on_a_tolerance_is_named(
    tmp_path: Path, task: Any, name: str, honest: str, gamed: str, line: str
) -> None:
    need("restricted")
    run = finished(tmp_path / "run", bare(tmp_path / "task", task), name, (honest, gamed))
    status, false = views.run_status(run), ident(gamed, name)
    assert status.best is not None and status.best.id == false and not status.best.verified
    assert status.best.tolerance.startswith("used: ") and line in status.best.tolerance
    assert status.findings == 1
    grave = [each for each in find_signs(run) if each.grave]
    assert [(each.candidate, each.sign) for each in grave] == [
        (false, "forgiven")
    ] and line in grave[0].evidence
    before = status.best_before_first_finding
    assert before is not None and before.id == ident(honest, name)
    assert replay_run(run, verify=True).data["matches"]


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("policy", ["reject", "stop"])
def test_where_signs_reject_the_next_finalist_is_taken(
    tmp_path: Path, task: Any, name: str, honest: str, gamed: str, line: str, policy: str
) -> None:
    need("restricted")
    folder = bare(tmp_path / "task", task)
    run = finished(tmp_path / "run", folder, name, (honest, gamed), integrity=policy)
    best = views.run_status(run).best
    assert best is not None and best.id == ident(honest, name) and best.verified
    (row,) = [
        each for each in views.run_integrity(run, limit=10).findings if each.sign == "forgiven"
    ]  # while it searched
    assert row.candidate == ident(gamed, name)
    assert views.run_status(run).reason == ("integrity" if policy == "stop" else "strategy_done")
    assert replay_run(run, verify=True).data["matches"]


def test_an_honest_winner_holds(tmp_path: Path) -> None:
    need("restricted")
    folder = bare(tmp_path / "task", packing)
    (folder / "pack.py").write_text(PACK.replace("[0.1] * 25", "[0.09] * 25"))
    run = finished(tmp_path / "run", folder, "pack.py", (PACK,))
    best = views.run_status(run).best
    assert best is not None and best.verified and best.tolerance.startswith("held: ")
    assert (NOT_PUSHED in best.tolerance) is ("pushed: " not in best.tolerance)
    assert not [each for each in find_signs(run) if each.sign in ("forgiven", "leans")]


def test_an_evaluator_of_the_older_form_is_tightened_too(tmp_path: Path) -> None:
    need("restricted")
    gamed = OLD_PACK.replace(
        "return centers, radii,", "radii = radii + 0.499e-6\n    return centers, radii,"
    )
    assert gamed != OLD_PACK
    run = finished(
        tmp_path / "run", old(tmp_path / "task"), "initial_program.py", (OLD_PACK, gamed)
    )
    best = views.run_status(run).best
    assert (
        best is not None
        and best.tolerance.startswith("used: ")
        and "evaluator.py:13" in best.tolerance
    )


THRESHOLD = """\
def score(output):
    error = abs(float(output) - 1.0)
    return 1.0 if error < 1e-3 else 0.0
"""
PLAIN = """\
def score(output):
    return float(output)
"""


def scalar(folder: Path, scorer: str) -> Path:
    folder.mkdir()
    (folder / "task.toml").write_text(
        'name = "one"\ngoal = "Near one."\n[seed]\nfiles = ["pack.py"]\n'
    )
    (folder / "pack.py").write_text("def run():\n    return 0.5\n")
    (folder / "evaluator.py").write_text(scorer)
    return folder


def test_a_threshold_of_the_problem_is_no_game(tmp_path: Path) -> None:
    need("restricted")
    near = "def run():\n    return 1.0 + 5e-4\n"
    run = finished(
        tmp_path / "run",
        scalar(tmp_path / "task", THRESHOLD),
        "pack.py",
        (near,),
        integrity="reject",
    )
    best = views.run_status(run).best
    assert best is not None and best.id == ident(near, "pack.py") and best.score == 1.0
    assert best.tolerance.startswith("doubtful: ") and "may be a threshold" in best.tolerance


def test_what_could_not_be_checked_is_said(tmp_path: Path) -> None:
    need("restricted")
    run = finished(
        tmp_path / "run",
        scalar(tmp_path / "task", PLAIN),
        "pack.py",
        ("def run():\n    return 1.0\n",),
    )
    best = views.run_status(run).best
    assert best is not None and best.verified
    assert best.tolerance == NO_TOLERANCE  # scores are not known to be exact: nothing was pushed


@pytest.mark.parametrize(
    ("scorer", "kept"), [(PLAIN, 3 + 6), (THRESHOLD, 7 + 6)], ids=["none", "one"]
)
def test_evaluations_for_a_look_at_tolerances_are_kept_where_there_are_any(
    tmp_path: Path, scorer: str, kept: int
) -> None:
    folder = scalar(tmp_path / "task", scorer)
    study = Study.create(
        folder,
        "best_of_n",
        run_dir=tmp_path / "run",
        budget=Budget(evaluations=300),
        model="offline",
    )
    assert final_share(study.meta.budget, study.meta.task, exact=True) == kept


@pytest.mark.slow
def test_a_check_takes_no_evaluation_that_the_budget_has_not(tmp_path: Path) -> None:
    need("restricted")
    folder = bare(tmp_path / "task", packing)
    for budget in (3, 4, 5, 6, 8):
        run = finished(tmp_path / f"run-{budget}", folder, "pack.py", (PACK, PUSHED), budget)
        status = views.run_status(run)
        assert status.evaluations <= budget
        assert status.best is not None and status.best.id == ident(PUSHED, "pack.py")


def test_a_fork_that_rejects_asks_again_where_the_parent_found_out_late(tmp_path: Path) -> None:
    need("restricted")
    run = finished(
        tmp_path / "run", bare(tmp_path / "task", triangle), "points.py", (POINTS, SCALED)
    )
    false = ident(SCALED, "points.py")
    best = views.run_status(run).best
    assert best is not None and best.id == false
    fork = Study.fork(run, tmp_path / "fork", integrity="reject")
    fork.run()
    best = views.run_status(tmp_path / "fork").best
    assert best is not None and best.id == ident(POINTS, "points.py")
