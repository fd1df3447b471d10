"""Pareto fronts of noisy candidates: value models, domination and hypervolume.

Each metric has a value model, and domination is by posterior means. A point is a row of rewards,
one per objective, each turned so that higher is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from culmen.core.result import FrontPoint
from culmen.core.spread import sum_floats
from culmen.core.task import Constraint, MetricGoal
from culmen.evidence.account import Fact
from culmen.evidence.pedigree import ValueModel

Floats = NDArray[np.float64]


def nondominated_rows(points: Floats) -> list[int]:
    """Rows that no other row equals or exceeds in every column and exceeds in one; sorted.

    Of equal rows the first.
    """
    order = np.lexsort([np.arange(len(points)), *(-points.T[::-1])])
    if points.shape[1] == 2:
        second = points[order, 1]
        before = np.maximum.accumulate(np.append(-np.inf, second[:-1]))
        return sorted(order[second > before].tolist())
    kept: list[int] = []
    for row in order.tolist():
        if not kept or not (points[kept] >= points[row]).all(axis=1).any():
            kept.append(row)
    return sorted(kept)


def hypervolume(points: Floats, reference: Floats) -> float:
    """Volume dominated by the points above the reference point.

    Exact, by slices along the last column. Quick for two columns, and for three with fewer than
    about a hundred points (Zitzler and Thiele, 1998).
    """
    points = points[(points > reference).all(axis=1)]
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(points.max() - reference[0])
    points = points[nondominated_rows(points)]
    points = points[np.argsort(-points[:, -1], kind="stable")]
    below = np.append(points[1:, -1], reference[-1])
    slices = points[:, -1] - below
    return sum_floats(
        hypervolume(points[: row + 1, :-1], reference[:-1]) * float(height)
        for row, height in enumerate(slices)
        if height > 0
    )


def chebyshev_distances(points: Floats, weights: Floats, ideal: Floats, spans: Floats) -> Floats:
    """Augmented weighted Chebyshev distance of each point from the ideal one.

    Columns are in units of `spans`.
    """
    short = (ideal - points) / spans * weights
    # weight of the sum in the augmented Chebyshev distance (Steuer and Choo, 1983)
    return short.max(axis=1) + 0.05 * short.sum(axis=1)


def column_spans(points: Floats) -> Floats:
    """Span of each column; if it is 0, the column's magnitude, else 1."""
    span, size = np.ptp(points, axis=0), np.abs(points).max(axis=0)
    return np.where(span > 0, span, np.where(size > 0, size, 1.0))


def dispersed_rows(points: Floats, limit: int) -> list[int]:
    """At most `limit` rows of a front that together dominate the most, greedily; sorted."""
    if len(points) <= limit:
        return list(range(len(points)))
    span = column_spans(points)
    scaled = (points - points.max(axis=0)) / span
    reference = np.full(points.shape[1], -1.1)
    chosen: list[int] = []
    for _ in range(limit):
        rest = [row for row in range(len(points)) if row not in chosen]
        gains = [hypervolume(scaled[[*chosen, row]], reference) for row in rest]
        chosen.append(rest[int(np.argmax(gains))])
    return sorted(chosen)


class FrontModel:
    """Posterior of every candidate's metrics.

    Equal texts are one candidate, and relatives inform one another. `exact` is the user's
    declaration that repeating an evaluation gives the same values; None: to be found out.
    """

    def __init__(
        self,
        objectives: Sequence[MetricGoal],
        constraints: Sequence[Constraint] = (),
        exact: bool | None = None,
    ) -> None:
        self.objectives, self.constraints = tuple(objectives), tuple(constraints)
        self._signs = {goal.name: goal.reward(1.0) for goal in self.objectives}
        for each in self.constraints:
            self._signs.setdefault(each.metric, -1.0 if each.sense == "<=" else 1.0)
        self._models = {name: ValueModel(None, exact) for name in self._signs}
        self.models = list(
            self._models.values()
        )  # first those of the objectives, then of other constrained metrics
        self._firsts: dict[str, float] = {}
        self._barred: set[str] = set()
        self._front: tuple[int, list[int]] = (
            -1,
            [],
        )  # number of evaluations, and the front after them

    @property
    def ids(self) -> list[str]:
        """All candidates, in the order of their first evaluation."""
        return self.models[0].ids

    def observe(self, fact: Fact) -> None:
        """Enter one evaluation of the search; lost ones count for nothing."""
        if fact.is_excused:
            return
        if fact.barred:
            self.bar_candidate(fact.candidate)
        for name, model in self._models.items():
            model.add_candidate(fact.candidate, fact.parents)
            value = fact.metrics.get(name) if fact.reward is not None else None
            if value is not None:  # from the first one on: logarithms would bend the front
                value = self._signs[name] * (value - self._firsts.setdefault(name, value))
            model.observe(fact.candidate, value, fact.case, fact.drew)

    def bar_candidate(self, id: str) -> None:
        """Exclude a candidate that was rejected for its integrity from all fronts."""
        self._barred.add(id)
        self._front = (-1, [])

    def posterior_rewards(self) -> tuple[Floats, Floats]:
        """Posterior means and standard deviations of all candidates, one column per objective.

        Rows are those of `ids`, higher is better; nan for a metric that a candidate never gave.
        """
        found = [self._models[goal.name].expected_rewards() for goal in self.objectives]
        shifts = [goal.reward(self._firsts.get(goal.name, 0.0)) for goal in self.objectives]
        return np.column_stack(
            [mean + shift for (mean, _), shift in zip(found, shifts)]
        ), np.column_stack([sd for _, sd in found])

    def constraint_excess(self, values: Floats) -> Floats:
        """Amounts by which values violate the constraints; 0: feasible.

        `values` has shape (..., metrics), on the scales of `models`; the unit is the standard
        deviation of the candidates' means.
        """
        total = np.zeros(values.shape[:-1])
        for each in self.constraints:
            place, sign = list(self._signs).index(each.metric), self._signs[each.metric]
            model = self.models[place]
            worth = model.scaled_worths()
            size = float(np.std(worth[np.isfinite(worth)])) if np.isfinite(worth).any() else 0.0
            over = (
                values[..., place] - sign * (each.level - self._firsts.get(each.metric, 0.0))
            ) / (size or 1.0)
            total += np.maximum(over if (each.sense == "<=") == (sign > 0) else -over, 0.0)
        return total

    def front_rows(self) -> list[int]:
        """Rows of `ids` that no other dominates by its posterior means.

        Of the feasible ones or, if there are none, of those that violate the constraints least.
        """
        if self._front[0] != self.models[0].evaluations:
            self._front = self.models[0].evaluations, self._compute_front()
        return self._front[1]

    def _compute_front(self) -> list[int]:
        points, _ = self.posterior_rewards()
        known = ~np.isnan(points).any(axis=1) & np.array(
            [id not in self._barred for id in self.ids], bool
        )
        worth = np.column_stack([model.scaled_worths() for model in self.models])
        known &= np.isfinite(worth).all(axis=1)
        excess = np.where(
            known, self.constraint_excess(np.where(known[:, None], worth, 0.0)), np.inf
        )
        if not known.any():
            return []
        rows = np.flatnonzero(excess <= excess.min())
        return [int(rows[place]) for place in nondominated_rows(points[rows])]

    def front_point(self, row: int) -> FrontPoint:
        """Posterior of one candidate as a member of a front."""
        id, metrics, margins, count, failures = (
            self.ids[row],
            dict[str, float](),
            dict[str, float](),
            0,
            0,
        )
        for name, model in self._models.items():
            value = model.value_of(id)
            metrics[name] = self._signs[name] * value.mean + self._firsts.get(name, 0.0)
            if not model.is_noiseless and math.isfinite(value.sd):
                margins[name] = 1.96 * value.sd
            count, failures = value.count, value.failures
        held = not any(each.excess(metrics[each.metric]) for each in self.constraints)
        return FrontPoint(id, metrics, margins, count, failures, held)


def reward_rows(points: Sequence[FrontPoint], objectives: Sequence[MetricGoal]) -> Floats:
    """Members of a front as rows of rewards."""
    rows = [[goal.reward(point.metrics[goal.name]) for goal in objectives] for point in points]
    return np.array(rows, float).reshape(len(rows), len(objectives))


def reference_point(points: Floats, objectives: Sequence[MetricGoal]) -> Floats:
    """The reference point of the hypervolume, as rewards.

    Given coordinates, else the worst of these points less a tenth of their span.
    """
    given = [None if goal.reference is None else goal.reward(goal.reference) for goal in objectives]
    found = points.min(axis=0) - 0.1 * column_spans(points) if len(points) else np.zeros(len(given))
    return np.array(
        [float(found[at]) if value is None else value for at, value in enumerate(given)]
    )


def nearest_to_ideal(
    points: Sequence[FrontPoint], objectives: Sequence[MetricGoal], weights: Sequence[float]
) -> FrontPoint:
    """The member nearest to the ideal point by the augmented weighted Chebyshev distance.

    Objectives count in units of the front's span, `weights` are relative. Of equally near ones,
    such as the two of a front of two, the best in the first objective, whatever their order.
    """
    rows = reward_rows(points, objectives)
    weighed = np.array(weights, float)
    far = chebyshev_distances(rows, weighed, rows.max(axis=0), column_spans(rows)).round(9)
    order = range(len(points))
    return points[min(order, key=lambda at: (far[at], *(-rows[at]).tolist(), points[at].id))]
