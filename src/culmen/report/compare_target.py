"""What it took to reach a target: evaluations and dollars, runs that never got there included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from culmen.core.task import Objective
from culmen.report.analyze_record import Moment
from culmen.report.compare_read import Entry
from culmen.report.compare_stats import expected_running_time, median_to_target


class Target(msgspec.Struct, frozen=True):
    """The score to reach (None: there are no scores) and where it comes from."""

    score: float | None
    origin: str


class Reach(msgspec.Struct, frozen=True):
    """How many runs got there, as their best so far told it. `evaluations` and `dollars` are medians over all runs, a
    run that did not counting as later than any; `expected_*` what all runs spent per run that got there. None: too few
    did, or a price is unknown."""

    reached: int
    evaluations: float | None
    expected_evaluations: float | None
    dollars: float | None
    expected_dollars: float | None


def target(objective: Objective, values: Sequence[float]) -> Target:
    """The task's target, else its best known value, else the middle of what the runs came to."""
    if objective.target is not None:
        return Target(objective.target, "the task's target")
    if objective.known is not None:
        return Target(objective.known, "the best known value")
    if not values:
        return Target(None, "nothing has a value")
    return Target(float(median(values)), "the median of all runs, for the task declares none")


def reach(runs: Sequence[Entry], objective: Objective, aim: Target) -> Reach:
    """What the runs of one strategy took."""
    first = [_first(run, objective, aim.score) for run in runs]
    reached = [moment is not None for moment in first]
    evaluations = _both(runs, first, lambda moment: moment.evaluations, lambda run: run.evaluations, reached)
    priced = not any(run.unpriced for run in runs)
    money = _both(runs, first, lambda moment: moment.dollars, lambda run: run.dollars, reached)
    return Reach(sum(reached), *evaluations, *(money if priced else (None, None)))


def _first(run: Entry, objective: Objective, score: float | None) -> Moment | None:
    """The moment at which the best so far was as good as the target."""
    if score is None:
        return None
    wanted = objective.reward(score)
    hits = (each for each in run.moments if each.best is not None and objective.reward(each.best) >= wanted)
    return next(hits, None)


def _both(
    runs: Sequence[Entry],
    first: Sequence[Moment | None],
    until: Callable[[Moment], float],
    whole: Callable[[Entry], float],
    reached: Sequence[bool],
) -> tuple[float | None, float | None]:
    """Median and expected running time in one currency."""
    spent = [whole(run) if moment is None else until(moment) for run, moment in zip(runs, first)]
    return median_to_target(spent, reached), expected_running_time(spent, reached)
