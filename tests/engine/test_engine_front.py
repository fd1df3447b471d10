"""The final choice with several objectives.

How often each candidate is evaluated, and the members of the reported front.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest

from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task, parse_constraint, parse_metric_goals
from culmen.core.usage import Budget
from culmen.testing.virtual import simulate

from .worlds import Looks, named, split

GOALS = parse_metric_goals({"x": "max", "y": "max"})
TASK = Task("front", seeds=({"x": "0.0"},), objective=Objective(metrics=GOALS))
BARE = msgspec.structs.replace(TASK, seeds=())

Pair = tuple[float, float]
Fresh = Callable[[str, int, int], "Pair | str | None"]


@dataclass
class Measured:
    """Two metrics by text: nearly steady in the search, those of `fresh` in the final choice.

    `fresh` has them by text, case and how often it was asked (None: it fails, "cheats": it is
    rejected for its integrity).
    """

    levels: dict[str, Pair]
    fresh: Fresh | None = None
    times: int = 4
    made: Counter[tuple[str, str]] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        assert isinstance(request, EvaluateRequest)
        text, case = request.candidate.text, request.case or Case("", 0)
        nth = self.made[text, case.id]
        self.made[text, case.id] += 1
        searched = sum(many for (of, _), many in self.made.items() if of == text) <= self.times
        told: Pair | str | None = self.levels[text]
        if not searched:
            self.after[text] += 1
            told = (
                told
                if self.fresh is None
                else self.fresh(text, case.input, nth - self.times * (not case.id))
            )
        elif self.times > 1:
            told = (
                self.levels[text][0] + (0.01, -0.01)[nth % 2],
                self.levels[text][1] + (0.01, -0.01)[nth // 2 % 2],
            )
        if isinstance(told, tuple):
            metrics = dict(zip("xy", told, strict=True))
            return 1.0, Observation(
                request.candidate.id, Status.OK, sum(told), case.id, metrics=metrics
            )
        status = Status.REJECTED if told else Status.ERROR
        return 1.0, Observation(
            request.candidate.id, status, case=case.id, reason="integrity_admits" if told else ""
        )


def ended(world: Measured, kept: int, task: Task = TASK) -> RunResult:
    """The verdict of a run with `kept` evaluations for its final choice."""
    used = len(world.levels) * world.times
    budget = Budget(used + kept, final=max(0.0, kept - 0.5) / (used + kept))
    verdict = simulate(
        Looks(tuple(world.levels), world.times), task, world, budget, trial=False
    ).verdict
    assert verdict is not None
    return verdict


def on(verdict: RunResult, *texts: str) -> list[str]:
    """The texts among these that are on the front, in its order."""
    texts_of = dict(zip(named(*texts), texts, strict=True))
    return [texts_of[point.id] for point in verdict.front]


THREE = {"0.0": (0.5, 0.5), "a": (10.0, 1.0), "b": (6.0, 6.0), "c": (1.0, 10.0)}
MANY = {"0.0": (0.5, 0.5), **{f"{n}": (float(n), 13.0 - n) for n in range(1, 13)}}


# Who is evaluated, and how often.


@pytest.mark.parametrize(
    ("kept", "members", "each"),
    [
        (40, 3, 10),
        (9, 3, 2),
        (8, 3, 2),
        (7, 2, 2),
        (6, 2, 2),
        (5, 1, 2),
        (3, 1, 1),
        (2, 1, 1),
        (0, 0, 0),
    ],
)
def test_members_of_a_noisy_front_are_evaluated_twice_at_least_or_there_are_fewer(
    kept: int, members: int, each: int
) -> None:
    world = Measured(THREE)
    verdict = ended(world, kept)
    assert world.after == (Counter({text: each for text in world.after}) if kept else Counter())
    assert len(world.after) == members + (kept > 0) and ("0.0" in world.after) == (kept > 0)
    assert len(verdict.front) == (members or 3) and verdict.confirmed == (kept > 0)
    assert len(verdict.finalists) == len(world.after)


def test_eight_members_at_most_and_a_single_evaluation_goes_to_the_best_spread() -> None:
    world = Measured(MANY)
    ended(world, 40)
    assert len(world.after) == 9 and set(world.after.values()) == {4}
    world = Measured({text: level for text, level in MANY.items() if text != "0.0"})
    ended(world, 40, BARE)
    assert len(world.after) == 8 and set(world.after.values()) == {5}
    world = Measured(THREE)
    assert ended(world, 1).initial is None and world.after == {"b": 1}


@pytest.mark.parametrize(
    ("cases", "kept", "exact", "each"),
    [
        ((), 40, True, 1),
        (split(train=4, test=3), 40, True, 3),
        (split(train=4, test=3), 40, False, 9),  # every case thrice, not one of them four times
        (split(train=4, test=3), 12, False, 3),
        (split(train=4, test=3), 8, False, 2),
        (split(train=4, test=50), 40, False, 10),
    ],
)
def test_cases_are_looked_at_as_often_as_one_another(
    cases: tuple[Case, ...], kept: int, exact: bool, each: int
) -> None:
    world = Measured(THREE, times=1 if exact else 4)
    ended(world, kept, msgspec.structs.replace(TASK, cases=cases, deterministic=exact or None))
    assert world.after == dict.fromkeys(THREE, each)
    looks = {
        text: {case: n for (of, case), n in world.made.items() if of == text and "test" in case}
        for text in THREE
    }
    assert all(
        found == looks["a"] and max(found.values(), default=0) <= -(-each // 3)
        for found in looks.values()
    )


def test_exact_members_are_as_many_as_there_are_evaluations_beside_the_initial_program() -> None:
    world = Measured(THREE, times=1)
    ended(world, 3, msgspec.structs.replace(TASK, deterministic=True))
    assert len(world.after) == 3 and set(world.after.values()) == {1} and "0.0" in world.after


# What is said of them.


def t(degrees: float) -> float:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    return float(stats.t.ppf(0.975, degrees))


def test_margins_are_of_a_members_own_spread_with_that_of_the_others() -> None:
    """Ten evaluations each: the spread of "a" is none, of the two others one at each."""

    def fresh(text: str, case: int, nth: int) -> Pair | None:
        x, y = THREE[text]
        return (x, y) if text == "a" else (x + (1, -1)[nth % 2], y)

    verdict = ended(Measured({text: THREE[text] for text in ("0.0", "a", "b")}, fresh), 30)
    first, second = verdict.front
    assert (first.metrics, first.count, first.failures) == (
        {"x": 10.0, "y": 1.0},
        10,
        0,
    ) and first.confirmed
    assert first.margins == {}  # equal in ten of ten, whatever the others do
    assert second.margins == pytest.approx({"x": t(17) * ((10 + 8 * 10 / 18) / 17 / 10) ** 0.5})


@pytest.mark.parametrize(("step", "variance"), [(2.0, 1.0), (4.0, 5 / 3)])
def test_on_a_data_set_repeats_of_all_members_tell_the_noise_and_each_of_them_once(
    step: float, variance: float
) -> None:
    """Four cases twice: of each member four degrees of freedom.

    Noise is not more than the spread of cases.
    """

    def fresh(text: str, case: int, nth: int) -> Pair:
        return THREE[text][0] + case + step * nth, THREE[text][1]

    levels = {text: THREE[text] for text in ("a", "b")}
    verdict = ended(
        Measured(levels, fresh), 16, msgspec.structs.replace(BARE, cases=split(train=4, test=4))
    )
    assert [point.count for point in verdict.front] == [8, 8]
    for point in verdict.front:
        assert point.margins["x"] == pytest.approx(t(8) * (variance / 4) ** 0.5)


def test_the_interval_of_the_chosen_member_holds_for_all_that_it_was_chosen_from() -> None:
    """Four are measured ten times each, so four intervals share 0.05; one alone has its own."""
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")

    def fresh(text: str, case: int, nth: int) -> Pair:
        return THREE[text][0] + (1, -1)[nth % 2], THREE[text][1]

    for levels, base, many in ((THREE, TASK, 4), ({"b": THREE["b"]}, BARE, 1)):
        verdict = ended(Measured({text: levels[text] for text in levels}, fresh), 10 * many, base)
        assert verdict.se is not None and verdict.count == 10
        wider = stats.norm.ppf(1 - 0.025 / many) / stats.norm.ppf(0.975)
        degrees = 17 if many > 1 else 9  # eight of the other members' evaluations
        assert verdict.margin == pytest.approx(wider * t(degrees) * verdict.se)


def test_a_sample_of_cases_has_the_spread_of_cases() -> None:
    def fresh(text: str, case: int, nth: int) -> Pair:
        return float(case), THREE[text][1]

    levels = {text: THREE[text] for text in ("a", "b")}
    verdict = ended(
        Measured(levels, fresh), 8, msgspec.structs.replace(BARE, cases=split(train=4, test=4))
    )
    assert all(
        point.margins["x"] > 0.1 for point in verdict.front
    )  # noise is not known: one look at each case


def test_failures_are_counted_and_what_never_scored_afresh_is_not_on_the_front() -> None:
    def fresh(text: str, case: int, nth: int) -> Pair | None:
        return None if text == "b" or (text == "a" and nth % 2) else THREE[text]

    verdict = ended(Measured(THREE, fresh), 40)
    assert on(verdict, *THREE) == ["a", "c"]
    assert [(point.count, point.failures) for point in verdict.front] == [(10, 5), (10, 0)]


# Who is on the front.


def matched(
    first: Pair, second: Pair, initial: Pair = (0.5, 0.5), noise: float = 1.0, fails: bool = False
) -> str:
    """The front of "a" and "b" with such means of x and y.

    Ten evaluations of x differ by `noise` from their mean (except for the initial program), y is
    the same in all: the margins of x are 0.615, of their difference 0.870.
    """
    means = {"a": first, "b": second, "0.0": initial}

    def fresh(text: str, case: int, nth: int) -> Pair | None:
        if fails and nth and text != "0.0":
            return None
        x, y = means[text]
        return (x if text == "0.0" or fails else x + (noise, -noise)[nth % 2]), y

    verdict = ended(Measured({text: THREE[text] for text in means}, fresh), 30)
    return "".join(on(verdict, *means))


def test_a_member_leaves_where_another_is_better_in_one_beyond_noise_and_worse_in_none() -> None:
    assert matched((4.8, 3.0), (4.0, 3.0)) == "ab" and matched((4.0, 3.0), (4.8, 3.0)) == "ab"
    assert matched((5.2, 3.0), (4.0, 3.0)) == "a" and matched((4.0, 3.0), (5.2, 3.0)) == "b"
    assert matched((5.2, 3.0), (4.0, 3.1)) == "ab"
    assert matched((5.0, 3.1), (4.0, 3.0)) == "a"  # there is no noise in the other
    assert matched((5.0, 3.0), (5.0, 3.0)) == "a"  # one of equals


def test_the_initial_program_leaves_to_whatever_is_better_and_stays_beside_what_is_not() -> None:
    assert matched((5.0, 3.0), (3.0, 5.0), (4.9, 3.0)) == "ab"
    assert (
        matched((5.0, 3.0), (3.0, 5.0), (5.1, 3.0)) == "ab0.0"
    )  # better than one of them by too little
    assert matched((5.0, 3.0), (3.0, 5.0), (6.5, 3.0)) == "b0.0"


def test_where_nothing_tells_the_noise_the_means_decide() -> None:
    assert matched((5.0, 3.0), (4.5, 3.0), fails=True) == "a"
    assert matched((5.0, 3.0), (4.5, 3.1), fails=True) == "ab"


def test_what_violates_a_constraint_afresh_is_reported_only_where_all_do() -> None:
    levels = {text: THREE[text] for text in ("0.0", "a", "b")}
    task = msgspec.structs.replace(
        TASK, objective=Objective(metrics=GOALS[:1], constraints=(parse_constraint("y >= 0.7"),))
    )

    def ends(first: float, second: float) -> tuple[list[str], set[bool]]:
        means = {"0.0": (20.0, 0.5), "a": (10.0, first), "b": (6.0, second)}
        verdict = ended(Measured(levels, lambda text, case, nth: means[text]), 30, task)
        return on(verdict, *levels), {point.feasible for point in verdict.front}

    assert ends(0.7, 5.0) == (["a"], {True})
    assert ends(0.6, 0.5) == (["0.0"], {False})


def test_the_member_nearest_to_the_best_of_every_objective_stands_for_the_front() -> None:
    """By fresh evaluations, or those of the search before there are any.

    No sum of metrics decides.
    """
    assert ended(Measured(THREE), 0).id == named("b")[0]

    def fresh(text: str, case: int, nth: int) -> Pair | None:
        return {
            "a": (15.0, 1.0),
            "b": (6.0, 6.0),
            "c": None if nth else (1.0, 20.0),
            "0.0": (0.5, 0.5),
        }[text]

    verdict = ended(Measured(THREE, fresh), 40)
    assert (
        on(verdict, *THREE) == ["a", "b", "c"] and verdict.id == named("b")[0]
    )  # the sum is greater for a


def test_a_member_that_cheats_is_off_the_front_whatever_is_left() -> None:
    def fresh(text: str, case: int, nth: int) -> Pair | str | None:
        return "cheats" if text == "b" and nth else THREE[text]

    verdict = ended(Measured(THREE, fresh), 40)
    assert on(verdict, *THREE) == ["a", "c"] and verdict.id in named("a", "c")
    verdict = ended(Measured(THREE, lambda text, case, nth: "cheats" if text == "b" else None), 40)
    assert (
        on(verdict, *THREE) == ["a", "c"]
        and not verdict.confirmed
        and verdict.id in named("a", "c")
    )
