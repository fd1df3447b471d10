"""The common scale: 0 at a task's start, 1 at its best known value, else its target, else the best of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from culmen.core.task import Objective
from culmen.report.compare_read import Entry


class Scale(msgspec.Struct, frozen=True):
    """What 0 and 1 mean: scores in the task's direction, and where each comes from."""

    start: float
    start_from: str
    reference: float
    reference_from: str


def scale_of(objective: Objective, runs: Sequence[Entry], values: Sequence[float]) -> Scale:
    """The scale of a task for these runs, whose values those are."""
    firsts = [run.moments[0].best for run in runs if run.moments]
    begun = [value for value in firsts if value is not None]
    best = objective.score(max(map(objective.reward, values), default=0.0))
    if objective.start is not None:
        start, origin = objective.start, "declared by the task"
    elif begun:
        start, origin = float(median(begun)), "median of the runs' first scores"
    else:
        start, origin = objective.score(min(map(objective.reward, values), default=0.0)), "lowest value of these runs"
    candidates = [(objective.known, "best known value"), (objective.target, "target"), (best, "best of these runs")]
    for value, what in candidates:
        if value is not None and objective.reward(value) > objective.reward(start):
            return Scale(start, origin, value, what)
    return Scale(start, origin, start, "nothing: no run is better than the start")


def normalised(value: float | None, scale: Scale) -> float:
    """0 at the start or below, or without a value; 1 at the reference; more beyond it."""
    width = scale.reference - scale.start
    return 0.0 if value is None or width == 0 else max(0.0, (value - scale.start) / width)
