"""Runs on equal terms: one program has one value, no shown gain is none.

Luck of the cases makes no difference between runs.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from culmen.core.task import Objective
from culmen.extensions.bench.compare import compare_runs
from culmen.extensions.bench.fresh_scores import FreshScore
from culmen.extensions.bench.records import ComparedRun, Measurement
from tests.extensions.bench import luck
from tests.extensions.bench.test_compare import one, rows

LUCK = {"a": [0.9, 0.85, 0.95, 0.9, 1.0, 0.9], "b": [0.6, 0.5, 0.5, 0.7, 0.6, 0.4]}
UNIT = Objective("max", bounds=(0.0, 1.0))


def measured(name: str, seed: int, score: float, program: str, **more: Any) -> ComparedRun:
    """A run measured on 3 of 24 cases, which began with the program `initial`."""
    given: dict[str, Any] = {
        "program": program,
        "initial_program": "initial",
        "margin": 0.3,
        "count": 3,
    }
    given |= {"split": "test", "cases": 3, "of": 24, "objective": UNIT}
    return one(name, seed, score, **{**given, **more})


def gained(
    name: str, seed: int, initial: float, gain: float, margin: float | None, program: str
) -> ComparedRun:
    first, more = Measurement(initial, 0.3, 3), Measurement(gain, margin, 3)
    return measured(name, seed, initial + gain, program, initial=first, gain=more)


def test_runs_that_returned_the_untouched_program_have_one_value():
    """Each drew other cases, and so one strategy's runs all scored above the other's."""
    (part,) = compare_runs(
        [
            measured(name, seed, score, "initial")
            for name, each in LUCK.items()
            for seed, score in enumerate(each)
        ]
    ).tasks
    (pair,) = part.pairs
    assert (pair.probability.value, pair.p, pair.apart) == (0.5, 1.0, False)
    assert len({run.value for run in part.runs}) == 1 and all(run.nothing for run in part.runs)
    for row in part.rows:
        assert (row.nothing, row.on) == (6, "3 of 24")
        assert row.normalised.value == row.normalised.low == row.normalised.high == 0.0


@pytest.mark.parametrize("program", ["initial", "better"])
def test_equal_programs_are_one_program_whatever_cases_were_drawn(program: str):
    """Also where only some runs showed its gain by themselves."""
    drawn = [(name, seed, score) for name, each in LUCK.items() for seed, score in enumerate(each)]
    gains = [gained(name, seed, 0.5, score - 0.5, 0.3, program) for name, seed, score in drawn]
    (part,) = compare_runs(gains).tasks
    assert len({run.value for run in part.runs}) == 1 and part.pairs[0].probability.value == 0.5
    assert part.basis == "gains over the initial program" and part.unequal


def test_a_gain_that_its_interval_does_not_show_is_none():
    shown = [gained("a", seed, 0.5, 0.4, 0.2, f"a{seed}") for seed in range(3)]
    unshown = [gained("b", seed, 0.5, 0.4, 0.5, f"b{seed}") for seed in range(2)]
    unknown = [gained("b", 2, 0.5, 0.4, None, "b2")]
    (part,) = compare_runs([*shown, *unshown, *unknown]).tasks
    assert {row.strategy: row.nothing for row in part.rows} == {"a": 0, "b": 3}
    assert [run.value for run in part.runs] == pytest.approx([0.9] * 3 + [0.5] * 3)
    assert part.runs[0].margin == 0.2 and part.scale.start_from == "the initial program"


def test_gains_of_minimised_scores_lead_downwards():
    down = Objective("min", bounds=(0.0, 1.0))
    better = gained("a", 0, 0.5, -0.4, 0.2, "a")
    worse = gained("b", 0, 0.5, 0.4, 0.2, "b")
    (part,) = compare_runs(
        [ComparedRun(**{**_fields(run), "objective": down}) for run in (better, worse)]
    ).tasks
    assert [(run.value, run.nothing) for run in part.runs] == [
        (pytest.approx(0.1), False),
        (0.5, True),
    ]


def _fields(run: ComparedRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def test_one_gain_that_is_shown_and_one_that_is_not_are_not_different_for_that():
    """All runs of each group returned one program: their errors are one error, not six."""
    one_program = [gained("a", seed, 0.5, 0.20, 0.4, "a") for seed in range(6)]
    other = [gained("b", seed, 0.5, 0.15, 0.4, "b") for seed in range(6)]
    (part,) = compare_runs([*one_program, *other]).tasks
    assert {row.strategy: row.nothing for row in part.rows} == {"a": 0, "b": 6}
    assert not part.pairs[0].apart and "cannot tell" in part.pairs[0].sentence


def test_programs_scored_together_are_compared_case_by_case():
    def fresh(program: str, right: int) -> list[FreshScore]:
        return [
            FreshScore(program, "test", str(case), 24, 0, float(case < right)) for case in range(24)
        ]

    first, same, good = fresh("initial", 12), fresh("p", 12), fresh("q", 22)
    runs = [measured("a", seed, 1.0, "p", fresh=(*same, *first)) for seed in range(6)]
    runs += [measured("b", seed, 0.1, "q", fresh=(*good, *first)) for seed in range(6)]
    (part,) = compare_runs(runs).tasks
    assert part.basis == "scores on all 24 test cases, once" and not part.unequal
    assert {run.strategy: run.value for run in part.runs} == {"a": 0.5, "b": 22 / 24}
    assert part.pairs[0].first == "b" and part.pairs[0].apart and rows(part)["a"].on == "24 of 24"
    holed = [*runs[:-1], measured("b", 5, 0.1, "q", fresh=(*good[:-1], *first))]
    assert not compare_runs(holed).tasks[0].unequal  # known of the other runs of this program
    (partly,) = compare_runs(
        [run if run.strategy == "m:a" else measured("b", run.seed, 0.1, "q") for run in runs]
    ).tasks
    assert partly.unequal and "all 24" not in partly.basis


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["untouched", "one program", "different"])
@pytest.mark.parametrize("together", [False, True])
def test_equally_good_groups_are_seldom_called_different(kind: str, together: bool):
    called = 0
    for number in range(40):
        world = luck.World(Random(f"{kind} {together} {number}"), 12)
        groups = [luck.group(world, name, 6, kind, 1.0, together) for name in "ab"]
        called += compare_runs([run for each in groups for run in each]).tasks[0].pairs[0].apart
    assert called <= 5  # of 40; at 5 % each, more come up in 1 of 75 such tests


def test_a_large_difference_is_found_once_programs_are_scored_together():
    found = 0
    for number in range(10):
        world = luck.World(Random(number), 3)
        groups = [
            luck.group(world, "a", 6, "different", 0.0, True),
            luck.group(world, "b", 6, "different", 4.0, True),
        ]
        found += compare_runs([run for each in groups for run in each]).tasks[0].pairs[0].apart
    assert found >= 8


def test_no_value_or_interval_lies_outside_the_bounds_of_the_score():
    """The sum of two measurements can be more than there is.

    It is the initial program's pooled score and a gain measured on other cases.
    """
    lucky = [gained("a", seed, 0.4, 0.6, 0.3, f"a{seed}") for seed in range(2)]
    other = [gained("b", seed, 0.9, 0.0, 0.2, "initial") for seed in range(2)]
    (part,) = compare_runs([*lucky, *other]).tasks
    assert part.basis == "gains over the initial program" and part.bounds == (0.0, 1.0)
    (best,) = [row for row in part.rows if row.strategy == "a"]
    assert best.best == 1.0 and best.mean.value == 1.0
    assert all(
        end is None or 0.0 <= end <= 1.0
        for row in part.rows
        for end in (row.mean.low, row.mean.high)
    )
