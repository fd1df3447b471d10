"""The course of a run for its first chart: no luck shown as success.

It is the same however often it is looked at.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import msgspec
import pytest

from culmen.evidence.pedigree import ValueModel
from culmen.extensions.bench.records import read_run
from culmen.store import views
from culmen.store.database import open_snapshot
from culmen.store.evidence import RunEvidence
from culmen.store.journal import SqlJournal
from tests.store.runs import new_run, observed, program, proposed

TRUE = [Random(f"true {n}").gauss(0.2, 0.15) for n in range(20)]


def noisy(folder: Path, count: int, direction: str = "max") -> SqlJournal:
    """A program and nineteen children, of the true scores `TRUE`.

    They are evaluated in turn with noise of 0.3.
    """
    run, chance = new_run(folder, "noisy", direction), Random(7)
    programs = [program(n, (program(0).id,) if n else ()) for n in range(20)]
    run.append([proposed(n, each) for n, each in enumerate(programs)])
    for n in range(count):
        score = TRUE[n % 20] + chance.gauss(0.0, 0.3)
        run.append([observed(100 + n, programs[n % 20], score, elapsed=float(n))])
    return run


def course(folder: Path) -> views.LeaderCourse:
    return views.LeaderCourse(folder / "noisy", views.run_meta(folder / "noisy"))


@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_line_is_what_may_be_expected_and_not_the_luckiest_score(
    tmp_path: Path, direction: str
):
    noisy(tmp_path, 400, direction).close()
    points, seen = course(tmp_path).points(), views.search_evaluations(tmp_path / "noisy")
    best = max if direction == "max" else min
    luckiest = best(each.score for each in seen if each.score is not None)
    last = points[-1]
    assert len(seen) == 400 and [each.n for each in seen] == list(range(1, 401))
    assert abs(last.score - luckiest) > 0.3 and last.low <= last.score <= last.high
    leader = [program(n, (program(0).id,) if n else ()).id for n in range(20)].index(last.candidate)
    assert last.low <= TRUE[leader] <= last.high and abs(TRUE[leader] - best(TRUE)) < 0.15
    assert [p.evaluations for p in points[:40]] == list(range(1, 41)) and 40 < len(points) < 120


def test_looking_often_is_looking_once(tmp_path: Path):
    run = noisy(tmp_path, 60)
    watched = course(tmp_path)
    first = list(watched.points())
    chance, late = Random(8), program(99, (program(11).id,))
    for n in range(60, 300):
        if n == 150:
            run.append([proposed(5000, late)])
        run.append(
            [observed(100 + n, late if n > 150 else program(n % 20), chance.gauss(0.6, 0.3))]
        )
        if n % 7 == 0:
            watched.points()
    assert watched.points() == course(tmp_path).points() and watched.points()[: len(first)] == first
    run.close()


def test_the_final_choice_is_no_part_of_the_search(tmp_path: Path):
    run = noisy(tmp_path, 60)
    before = course(tmp_path).points()
    for n in range(30):
        fresh = observed(900 + n, program(3, (program(0).id,)), 9.0)
        run.append([msgspec.structs.replace(fresh, body={"phase": "final"})])
    seen = views.search_evaluations(tmp_path / "noisy")
    assert (
        course(tmp_path).points() == before
        and max(each.score for each in seen if each.score is not None) < 2.0
    )
    run.close()


@pytest.mark.slow
def test_of_very_many_evaluations_a_dot_stands_for_those_alike(tmp_path: Path):
    noisy(tmp_path, 4_000).close()
    seen = views.search_evaluations(tmp_path / "noisy")
    assert len(seen) < 1_600 and sum(each.count for each in seen) == 4_000
    assert max(each.score for each in seen if each.score is not None) > 1.0 and [
        each.seq for each in seen
    ] == sorted(each.seq for each in seen)


def last_leaders(run: Path, count: int) -> set[tuple[float, str]]:
    """Scores and ids of those that led by the run's evidence after each of the last evaluations."""
    evidence, found = RunEvidence(views.run_meta(run), run), set[tuple[float, str]]()
    with open_snapshot(run) as connection:
        for each in views.search_evaluations(run)[-count:]:
            evidence.read(connection, each.seq)
            leader = evidence.evidence.leader()
            score = None if leader is None else evidence.evidence.verdict.score_of(leader)
            assert score is not None
            found.add((score.score, score.id))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["max", "min"])
def test_the_best_so_far_of_noisy_scores_is_no_lucky_mean(tmp_path: Path, direction: str):
    """Of runs beside one another, in tables and the notebook's curve.

    The last point is the score that is reported now.
    """
    noisy(tmp_path, 400, direction).close()
    run = tmp_path / "noisy"
    best = max if direction == "max" else min
    seen = [each.score for each in views.search_evaluations(run) if each.score is not None]
    found, expected = (
        views.progress_points(run),
        {point.evaluations: point.score for point in course(tmp_path).points()},
    )
    assert len(found) > 40 and all(
        point.mean == expected[point.evaluations] for point in found[:-1]
    )
    assert (
        found[-1].mean == views.best_result(run).value
        and found[-1].count == views.best_result(run).count
    )
    assert all(abs(point.mean - best(seen)) > 0.2 for point in found[30:])
    assert len(views.progress_points(run, views.ROUGH)) < len(found)
    told = read_run(run).moments
    assert len(told) == 400 and abs(told[-1].best - found[-1].mean) < 0.1 < abs(
        told[-1].best - best(seen)
    )
    assert (told[-1].best, told[-1].candidate) in last_leaders(run, 400 // 20)


def test_the_best_so_far_of_exact_scores_is_the_best_score(tmp_path: Path):
    with new_run(tmp_path, "exact") as run:
        programs = [program(n) for n in range(30)]
        run.append([proposed(n, each) for n, each in enumerate(programs)])
        numbers = (0, 0, *range(30))  # the first one often enough to see that it is exact
        run.append(
            [observed(100 + n, programs[each], float(each % 7)) for n, each in enumerate(numbers)]
        )
    points = views.leader_course(tmp_path / "exact", views.run_meta(tmp_path / "exact"))
    assert len(points) == 32 and points[-1].score == 6.0
    assert (
        views.progress_points(tmp_path / "exact")[-1].mean
        == 6.0
        == read_run(tmp_path / "exact").moments[-1].best
    )


def modelled(among: Iterable[ValueModel]) -> int:
    """The number of candidates that value models know which are not `among` these."""
    gc.collect()
    return sum(
        len(each)
        for each in gc.get_objects()
        if type(each) is ValueModel and all(each is not a for a in among)
    )


def test_a_run_that_outgrows_the_value_model_takes_no_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A search of hours looks at itself every few seconds.

    Memory that it no longer asks for must not stay.
    """
    for module in ("culmen.store.evidence", "culmen.store.views.course", "culmen.evidence.account"):
        monkeypatch.setattr(sys.modules[module], "MODELLED", 60)
    others, run = (
        [each for each in gc.get_objects() if type(each) is ValueModel],
        noisy(tmp_path, 60),
    )
    watched = course(tmp_path)
    assert watched.points() and views.run_status(run.run_dir).best and modelled(others) == 20
    run.append([observed(900, program(0), 0.1)])
    assert watched.points() == [] and views.run_status(run.run_dir).best and modelled(others) == 0
