"""The final choice among rivals: which are looked at, the cost, and which give way."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from culmen.core.evaluation import Case
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task

from .test_engine_finale import THREE, Table, around, ended, noisy
from .worlds import TASK, Looks, Script, Turns, named, split

FLOOR = msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, None)))
BARE = msgspec.structs.replace(TASK, seeds=())


def spent(
    task: Task, world: Script | Table, search: Looks, kept: int | None = 40
) -> tuple[RunResult, dict[str, int]]:
    """The result, and the evaluations of the final choice by text."""
    result, asked = ended(task, world, search, kept)
    return result, {text: sum(seen.values()) for text, seen in asked.items()}


# The race.


@pytest.mark.parametrize(
    ("kept", "each"),
    [(40, 20), (36, 18), (35, 17), (24, 12), (17, 8), (8, 4), (7, 3), (3, 1), (2, 1), (None, 12)],
)
def test_a_clear_leader_is_confirmed_without_a_race(kept: int | None, each: int) -> None:
    """By all kept evaluations, shared with the initial program.

    Without a limit it is as with 24.
    """
    result, asked = spent(TASK, Table(noisy), THREE, kept)
    assert asked == {"2": each, "0.0": each} and result.finalists == named("2", "0.0")
    assert result.initial is not None and (result.count, result.initial.count) == (each, each)


CLOSE: Turns = {"0.0": around(0.0), "1": around(1.99), "2": around(2.0)}


@pytest.mark.parametrize(
    ("kept", "race", "each"),
    [(40, 10, 15), (24, 6, 9), (17, 4, 6), (12, 2, 5), (8, 2, 3), (7, 0, 3)],
)
def test_a_quarter_of_what_is_kept_is_raced_by_the_leader_and_its_strongest_rival(
    kept: int, race: int, each: int
) -> None:
    """Evaluations of the race helped to choose, so they are no part of the reported score."""
    result, asked = spent(TASK, Script(CLOSE), THREE, kept)
    assert asked["0.0"] == each and sum(asked.values()) == 2 * each + race
    assert (
        min(asked.get("1", 0), asked.get("2", 0)) == race // 2
    )  # the last look may fall to either
    assert result.initial is not None and (result.count, result.initial.count) == (each, each)
    assert result.id in named("1", "2") and result.finalists[-1] == named("0.0")[0]


def test_what_is_far_behind_is_not_looked_at() -> None:
    others = tuple(f"0.{n}" for n in range(1, 10))
    world = Script({**CLOSE, **{text: around(float(text)) for text in others}})
    _, asked = spent(TASK, world, Looks((*THREE.texts, *others)))
    assert set(asked) == {"0.0", "1", "2"}


def test_looks_overrule_a_search_that_was_lucky_with_the_leader() -> None:
    """The search saw "2" ahead by less than its noise.

    The looks at "2" are low, those at the rival are not.
    """
    lucky = [2.1, 1.9, 2.2, 1.8]
    world = Script(
        {"0.0": around(0.0), "1": [1.95, 1.8, 2.1, 1.75, *around(1.9)], "2": [*lucky, *around(1.2)]}
    )
    result, asked = spent(TASK, world, THREE)
    assert result.id == named("1")[0] and asked["2"] >= 2
    assert result.score == pytest.approx(1.9, abs=0.06) and result.count >= 15
    believed = Script({**world.turns, "2": [*lucky, *around(2.0)]})
    assert spent(TASK, believed, THREE)[0].id == named("2")[0]


def test_on_a_data_set_the_better_half_of_eight_finalists_is_looked_at_twice_as_often_in_each_round() -> (
    None
):
    search = Looks(("0.0", *map(str, range(1, 10))), 3)
    task = msgspec.structs.replace(TASK, cases=split(train=100))
    result, asked = spent(task, Table(noisy), search, 120)
    assert asked == {
        "9": 10 + 45,
        "8": 10,
        "7": 3,
        "6": 3,
        "5": 1,
        "4": 1,
        "3": 1,
        "2": 1,
        "0.0": 45,
    }
    assert result.id == named("9")[0] and result.finalists[-1] == named("0.0")[0]


# Candidates that fail at times.


def test_where_candidates_fail_at_times_six_tenths_are_raced_and_the_rest_confirms() -> None:
    flaky = [*around(0.5)[:3], None, *around(0.5)]
    result, asked = spent(TASK, Script({**CLOSE, "0.0": flaky}), THREE)
    assert sum(asked.values()) == 40  # what was kept for a second winner is spent on both, too
    assert asked["1"] + asked["2"] - result.count == 24
    assert result.initial is not None and result.count == result.initial.count == asked["0.0"] == 8
    steady, _ = spent(TASK, Script(CLOSE), THREE)
    # failures of a program that is far weaker say little of the winner
    assert result.margin and steady.margin and steady.margin < result.margin < 4 * steady.margin


def fails_half(text: str, case: Case | None, rng: Random) -> float | None:
    if text == "lucky":
        return 1.0 if rng.random() < 0.5 else None
    return {"0.0": 0.3, "steady": 0.8}[text] + rng.gauss(0, 0.02)


@pytest.mark.parametrize("times", [1, 2, 6])
def test_a_steady_candidate_beats_one_that_scores_more_and_fails_half_of_the_time(
    times: int,
) -> None:
    task, search = (
        msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, 1.0))),
        ("0.0", "lucky", "steady"),
    )
    result, asked = spent(task, Table(fails_half), Looks(search, times), 60)
    assert result.id == named("steady")[0] and not result.failures
    assert result.score == pytest.approx(0.8, abs=0.02) and asked["0.0"] >= result.count > 4


# Who gives way.


def confirmed(
    second: float, *then: float | str | None, task: Task = FLOOR, kept: int = 40
) -> tuple[RunResult, dict[str, int]]:
    """The result where "2" scores 10, clearly more than "1" with `second`.

    `then` are the scores of "2" in its confirmation.
    """
    world = Script({"0.0": around(0.5), "1": around(second), "2": around(10, *then, after=4)})
    return spent(task, world, THREE, kept)


def test_a_winner_that_fails_from_the_first_gives_way_before_all_of_its_confirmation_is_spent() -> (
    None
):
    result, asked = confirmed(9.5, *[None] * 100)
    assert (result.id, result.failures) == (named("1")[0], 0) and asked["2"] == 5  # a quarter of 20
    assert result.confirmed and result.count == asked["1"] >= 15 and sum(asked.values()) <= 40


def test_a_winner_that_fails_once_stays_where_it_is_better_all_the_same() -> None:
    result, asked = confirmed(5.0, 10.0, None)
    assert (result.id, result.failures) == (named("2")[0], 1) and "1" not in asked
    fresh = [10.0, 0.0, *around(10.0)[6 : 4 + result.count]]
    assert (
        result.score == pytest.approx(sum(fresh) / len(fresh)) and result.count == asked["2"] >= 15
    )


def test_a_winner_that_fails_in_the_rest_of_its_confirmation_gives_way_then() -> None:
    result, asked = confirmed(9.5, *around(10.0)[:4], *[None] * 100)
    assert result.id == named("1")[0] and asked["2"] in (5, 10) and result.count == asked["1"] >= 10


def test_who_was_confirmed_and_fell_is_told_among_the_finalists() -> None:
    result, _ = confirmed(9.5, *[None] * 100)
    assert set(result.finalists) == set(named("2", "1", "0.0"))


def test_where_all_fail_afresh_nothing_is_confirmed() -> None:
    turns = {
        text: around(level, *[None] * 100, after=4) for text, level in (("1", 9.5), ("2", 10.0))
    }
    result, asked = spent(
        msgspec.structs.replace(FLOOR, seeds=()), Script(turns), Looks(("1", "2"))
    )
    assert (
        not result.confirmed
        and not result.verified
        and result.failures
        and sum(asked.values()) <= 40
    )
    assert Counter(asked).total() == result.failed["candidate"]


# Where scores seem exact.

FIVE: dict[str, list[float]] = {"0.0": [0.1], "1": [1.0], "2": [2.0] * 2, "3": [0.3], "4": [0.4]}


def test_scores_that_seemed_exact_and_are_not_are_measured_by_all_that_is_left() -> None:
    """One evaluation of each would do; the first fresh one differs from the search's."""
    search = Looks(tuple(FIVE), 2)
    exact, asked = spent(TASK, Script(FIVE), search)
    assert asked == {"2": 1, "0.0": 1} and exact.margin == 0.0 and exact.noise.exact is True
    result, asked = spent(TASK, Script({**FIVE, "2": [2.0, 2.0, 1.5, 1.7]}), search)
    assert (
        asked == {"2": 20, "0.0": 20}
        and result.count == 20
        and result.margin
        and result.noise.exact is False
    )
    result, asked = spent(BARE, Script({**FIVE, "2": [2.0, 2.0, 1.5, 1.7]}), search)
    assert asked == {"2": 40} and result.count == 40
    said = msgspec.structs.replace(TASK, deterministic=True)
    assert (
        spent(said, Script({"0.0": [0.1], "2": [2.0, 1.5]}), Looks(("0.0", "2"), 1))[0].count == 1
    )
