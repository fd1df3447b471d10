"""Sequential linear programming with a trust region: the plain optimiser of baselines.

Packing, spreading and minimax problems have optima with about as many active constraints as
variables; there a linear model is sufficient, and convergence is fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Vector = NDArray[np.float64]  # shape (n,)
_FAR, _SMALLEST = 1000, 1e-12


@dataclass(frozen=True)
class Problem:
    """Maximise gain @ x subject to slack(x) >= 0 and lower <= x <= upper.

    `slack` returns the values, shape (m,), and their Jacobian, shape (m, n). `restore` makes a
    point feasible, at some loss of gain. With `level`, the sum of the variables it marks (shape
    (n,), 0 or 1) stays constant.
    """

    gain: Vector
    slack: Callable[[Vector], tuple[Vector, NDArray[np.float64]]]
    restore: Callable[[Vector], Vector]
    lower: Vector
    upper: Vector
    level: Vector | None = None


def climb(
    problem: Problem,
    x: Vector,
    until: float,
    radius: float = 0.1,
    beat: float = -np.inf,
    steps: int = 200,
) -> Vector:
    """A local optimum near `x`, or the best point at the end of the time or of the steps.

    `until` is a time on the clock of processor seconds, `steps` the number of steps. A step is at
    most `radius` in every coordinate; it grows after success, shrinks after failure. A climb is
    given up early if `_FAR` steps like the next would not bring it to the gain `beat`.
    """
    x = problem.restore(np.asarray(x, float))
    for _ in range(steps):
        if radius < _SMALLEST or time.process_time() > until:
            break
        step = _linear_step(problem, x, radius)
        if step is None:
            radius /= 4
            continue
        trial = problem.restore(np.clip(x + step, problem.lower, problem.upper))
        expected_gain, gain = problem.gain @ step, problem.gain @ (trial - x)
        # no gain nearby, up to second order, or too far below `beat`
        if expected_gain < 1e-14 or problem.gain @ x + _FAR * expected_gain < beat:
            break
        if gain > 0:
            x = trial
        if gain < 0.25 * expected_gain:
            radius /= 3
        elif gain > 0.75 * expected_gain:
            radius *= 1.5
    return x


def contest(problem: Problem, starts: Sequence[Vector], until: float, radius: float) -> Vector:
    """The winner of many short climbs.

    The best quarter goes on after 15 steps, and the best quarter of those after 20 more.
    """
    field = list(starts)
    for steps, step_radius in ((15, radius), (20, radius / 5), (200, radius / 5)):
        optima = [climb(problem, x, until, radius=step_radius, steps=steps) for x in field]
        field = sorted(optima, key=lambda x: -(problem.gain @ x))[: max(1, len(field) // 4)]
    return field[0]


def _linear_step(problem: Problem, x: Vector, radius: float) -> Vector | None:
    """The best step of the linear model, solved in units of the radius.

    The solver's tolerance shrinks with the radius.
    """
    values, jacobian = problem.slack(x)
    low = np.maximum((problem.lower - x) / radius, -1)
    high = np.minimum((problem.upper - x) / radius, 1)
    equality = {} if problem.level is None else {"A_eq": problem.level[None, :], "b_eq": [0.0]}
    # the other constraints cannot become active within the radius
    near = values < radius * np.abs(jacobian).sum(axis=1)
    bounds = np.column_stack([low, np.maximum(low, high)])
    solution = linprog(
        -problem.gain,
        -jacobian[near],
        values[near] / radius,
        bounds=bounds,
        method="highs",
        **equality,
    )
    return solution.x * radius if solution.status == 0 else None
