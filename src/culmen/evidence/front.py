"""Pareto fronts of noisy candidates: value models, domination and hypervolume.

Each metric has a value model, and domination is by posterior means. A point is a row of rewards,
one per objective, each turned so that higher is better.

Verdict with several objectives: the Pareto front of measured means, and one member.

A member leaves the front only if another is at least as good in every fresh mean and better in one
beyond their intervals, so luck in a few fresh evaluations does not choose among equals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from culmen.core.result import FrontPoint, RunResult, Z
from culmen.core.spread import ROUNDING, sum_floats
from culmen.core.task import Constraint, MetricGoal
from culmen.evidence.account import Fact, PooledNoise
from culmen.evidence.intervals import Chance, FreshMean, mean_of
from culmen.evidence.pedigree import ValueModel
from culmen.evidence.ranking import Ranking
from culmen.evidence.verdict import Verdict, replace_fields

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


Measured = tuple[FrontPoint, dict[str, FreshMean]]


class FrontVerdict(Verdict):
    """The front of a run by its account."""

    def __init__(self, ranking: Ranking, model: FrontModel) -> None:
        super().__init__(ranking)
        self.model = model

    def result(self) -> RunResult | None:
        """The front, and its default choice.

        Its fresh means chose it among all that were measured: its intervals hold for all of them at
        once (Bonferroni), those of the points for one each.
        """
        result = super().result()
        if result is None:
            return None
        many = max(1, len(self._fresh_scored()))
        wider = NormalDist().inv_cdf(1.0 - 0.025 / many) / Z
        margins = {
            name: None if margin is None else margin * wider
            for name, margin in (
                ("margin", result.margin),
                ("new_margin", result.new_margin),
                ("gain_margin", result.gain_margin),
            )
        }
        return replace_fields(result, front=self.front_points(), **margins)

    def chosen_candidate(self) -> str | None:
        """The default choice: the member nearest to the best value of every objective."""
        points = self.front_points()
        members = [point for point in points if self.account.tally(point.id) is not None]
        if not members:
            return None
        goals = self.task.objective.metrics
        return nearest_to_ideal(members, goals, [1.0] * len(goals)).id

    def initial_point(self) -> FrontPoint | None:
        """The initial program as a point: by its fresh evaluations, else by the search's posterior.

        None if it never scored.
        """
        name = self.ranking.best_initial()
        if name is None or name not in self.model.ids:
            return None
        fresh = [fact for fact in self.fresh_facts(name) if fact.reward is not None]
        if fresh:
            return self._measured_finalists(self._fresh_scored())[name][0]
        return self.model.front_point(self.model.ids.index(name))

    def keeps_initial(self, name: str) -> bool:
        """False: the initial program is on the front unless another beats it."""
        return False

    def front_points(self) -> tuple[FrontPoint, ...]:
        """The front of the fresh evaluations; before any, the one by the search's posteriors."""
        scored = self._fresh_scored()
        if not scored:
            return tuple(map(self.model.front_point, self.model.front_rows()))
        known = self._measured_finalists(scored)
        feasible = [name for name, (point, _) in known.items() if point.feasible]
        left = feasible or list(known)
        kept = [
            name
            for name in left
            if not any(self._dominates_beyond_noise(known, each, name) for each in left)
        ]
        return tuple(known[name][0] for name in kept)

    def _fresh_scored(self) -> dict[str, list[Fact]]:
        """Fresh evaluations that scored, by candidate; barred ones are left out."""
        return {
            name: seen
            for name in self.account.fresh
            if not self.is_barred(name)
            and (seen := [fact for fact in self.fresh_facts(name) if fact.reward is not None])
        }

    def _measured_finalists(self, scored: Mapping[str, Sequence[Fact]]) -> dict[str, Measured]:
        """Fresh means of each finalist, metric by metric."""
        objective = self.task.objective
        goals = [goal.name for goal in objective.metrics]
        named = dict.fromkeys([*goals, *(each.metric for each in objective.constraints)])
        found: dict[str, Measured] = {}
        for name, seen in scored.items():
            others = [each for other, each in scored.items() if other != name]
            means = {
                m: mean_of(_by_case(seen, m), 0, self._metric_noise_prior(m, others)) for m in named
            }
            metrics = {metric: mean.mean for metric, mean in means.items()}
            margins = {
                m: margin
                for m, mean in means.items()
                if (margin := self._known_margin(mean)) is not None
            }
            held = not any(each.excess(metrics[each.metric]) for each in objective.constraints)
            count = len(self.fresh_facts(name))
            point = FrontPoint(
                name, metrics, margins, count, count - len(seen), held, confirmed=True
            )
            found[name] = point, means
        return found

    def _known_margin(self, mean: FreshMean) -> float | None:
        """The margin of a metric; None if it is unknown, and for 0 that draws make uncertain."""
        if mean.margin is None or mean.margin > ROUNDING * abs(mean.mean):
            return mean.margin
        noise = self.ranking.noise_report
        return None if noise.draws or noise.one_draw else 0.0

    def _metric_noise_prior(self, metric: str, others: Sequence[Sequence[Fact]]) -> Chance:
        """Noise of one metric: of repeats on a case, pooled over the other finalists."""
        groups = [values for seen in others for values in _by_case(seen, metric).values()]
        repeats = sum(map(len, groups)) - len(groups)
        squares = math.fsum((value - fmean(values)) ** 2 for values in groups for value in values)
        noise = PooledNoise(
            squares / repeats if repeats else None, repeats=repeats, squares=squares
        )
        exact = self.account.is_settled or self.account.is_exact
        return Chance(noise, self.of or None, exact)

    def _dominates_beyond_noise(self, known: Mapping[str, Measured], one: str, other: str) -> bool:
        """True if `one` dominates `other` beyond noise.

        The initial program needs no such proof to leave the front.
        """
        if one == other:
            return False
        clearly = False
        for goal in self.task.objective.metrics:
            a, b = (known[name][1][goal.name] for name in (one, other))
            gap = goal.reward(a.mean) - goal.reward(b.mean)
            if gap < 0:
                return False
            initial = other == self.ranking.best_initial()
            noise = 0.0 if initial else math.hypot(a.margin or 0.0, b.margin or 0.0)
            clearly = clearly or gap > noise
        names = [goal.name for goal in self.task.objective.metrics]
        same = all(known[one][1][name].mean == known[other][1][name].mean for name in names)
        return clearly or (same and list(known).index(one) < list(known).index(other))


def _by_case(seen: Sequence[Fact], metric: str) -> dict[str, list[float]]:
    by_case: dict[str, list[float]] = {}
    for fact in seen:
        by_case.setdefault(fact.case, []).append(fact.metrics[metric])
    return by_case
