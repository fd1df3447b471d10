"""The power of a task: the measured noise, and the cost of finding a gain."""

from __future__ import annotations

import asyncio
import random
from random import Random
from typing import Any

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective, Task
from culmen.evaluate.function import FunctionBackend
from culmen.extensions.bench.power import (
    needed_evaluations,
    sample_noise,
    summarize_noise,
)

CASES = (*(Case(f"t{n}", split="test") for n in range(20)), Case("a", split="train"))
TASK = Task("quiz", "g", seeds=({"p": "x"},), cases=CASES, objective=Objective(bounds=(0.0, 1.0)))
PLAIN = Task("hill", "g", seeds=({"p": "x"},))


def seen(scores: list[float | None]) -> list[Observation]:
    """Observations of the initial program with these scores; None: a failure."""
    name = TASK.initial_candidates()[0].id
    return [
        Observation(name, Status.ERROR if s is None else Status.OK, s, seconds=2.0) for s in scores
    ]


def passes(rate: float, rounds: int, seed: int, cases: int = 20) -> list[float | None]:
    draws = Random(seed)
    return [float(draws.random() < rate) for _ in range(rounds * cases)]


def test_noise_is_measured_within_cases_and_between_them() -> None:
    sample = summarize_noise(PLAIN, seen([1.0, 3.0, None]), 1)
    assert (sample.within, sample.between, sample.failed, sample.seconds) == (2.0, 0.0, 1, 2.0)
    two = Task("two", "g", seeds=({"p": "x"},), cases=(Case("a"), Case("b")))
    sample = summarize_noise(two, seen([0.0, 10.0, 2.0, 10.0]), 2)
    assert sample.within == 1.0  # of the first case 2, of the second 0
    assert sample.between == pytest.approx(81 / 2 - 1.0 / 2)  # means 1 and 10, less their noise


def test_a_gain_takes_the_evaluations_of_the_formula() -> None:
    sample = summarize_noise(TASK, seen(passes(0.7, 50, 1)), 20)
    plan = needed_evaluations(sample, 0.1)
    each = 2 * sample.within * (2.801585 / 0.1) ** 2  # z.975 + z.8
    assert (plan.rounds - 1) * 20 < each <= plan.rounds * 20 and plan.final == 2 * 20 * plan.rounds
    assert plan.budget * 0.3 * 0.6 >= plan.final and plan.seconds == plan.final * 2.0
    assert needed_evaluations(sample, 0.2).rounds == pytest.approx(plan.rounds / 4, abs=1)
    exact = summarize_noise(TASK, seen([0.5] * 40), 20)
    assert needed_evaluations(exact, 0.001).rounds == 1


def test_evaluations_of_that_number_find_the_gain_in_eight_of_ten() -> None:
    draws, found, trials = Random(3), 0, 400
    sample = summarize_noise(TASK, seen(passes(0.7, 50, 1)), 20)
    many = needed_evaluations(sample, 0.1).final // 2
    for _ in range(trials):
        one, two = (sum(draws.random() < rate for _ in range(many)) / many for rate in (0.7, 0.8))
        error = (one * (1 - one) / many + two * (1 - two) / many) ** 0.5
        found += two - one > 1.96 * error
    assert 0.74 < found / trials < 0.9


def measure(function: Any, task: Task = PLAIN, rounds: int = 5) -> Any:
    return asyncio.run(sample_noise(task, FunctionBackend(task, function, 2), rounds, workers=2))


def test_the_initial_program_is_evaluated_with_a_random_seed_for_each_round() -> None:
    sample = measure(lambda candidate: random.random())  # the backend seeds it
    assert len({*sample.rounds}) == 5
    assert measure(lambda candidate: random.random()).rounds == sample.rounds
    assert sample.evaluations == 5 and sample.failed == 0


def test_without_an_initial_program_or_a_score_there_is_no_noise_to_measure() -> None:
    with pytest.raises(UserError, match="no initial program"):
        measure(lambda candidate: 1.0, Task("none", "g"))

    def broken(candidate: Candidate) -> float:
        raise ValueError("no")

    with pytest.raises(UserError, match="never scored"):
        measure(broken)
