"""What a decision came to, on the scale that every task's training shares (PACEvolve++, equation 5)."""

from __future__ import annotations

from culmen.core.errors import UserError
from culmen.core.task import Objective
from culmen.strategies.pacevolve.implementing import ExperimentOutcome


def reward(objective: Objective, outcome: ExperimentOutcome, bounds: tuple[float, float]) -> float:
    """0..5 between the bounds (y_min, y_max), scores beyond them clamped; -1 for a decision without a score."""
    from culmen.train.objectives import progress_reward

    score = objective.score(outcome.scored[1]) if outcome.scored else None
    return progress_reward(score, *bounds, maximise=objective.direction == "max")


def bounds(objective: Objective, start: float, worst: float | None, *best: float | None) -> tuple[float, float]:
    """y_min and y_max: `worst`, or else what the initial programs score (`start`, a reward), and the first level given
    of `best`, the target and the best known value. Raises `UserError` without two different ones."""
    seeds = objective.score(start) if start > float("-inf") else objective.start
    first = worst if worst is not None else seeds
    last = next((level for level in (*best, objective.target, objective.known) if level is not None), None)
    if first is None or last is None or first == last:
        raise UserError(
            f"rewards need two different levels, not {first} and {last}",
            where="strategy pacevolve_plus_plus",
            fix="--set worst=SCORE --set best=SCORE, or [objective] target in task.toml",
        )
    return min(first, last), max(first, last)
