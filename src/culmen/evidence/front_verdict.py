"""Verdict with several objectives: the Pareto front of measured means, and one member.

A member leaves the front only if another is at least as good in every fresh mean and better in one
beyond their intervals, so luck in a few fresh evaluations does not choose among equals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean

from culmen.core.result import FrontPoint, RunResult, Z
from culmen.core.spread import ROUNDING
from culmen.evidence.account import Fact, PooledNoise
from culmen.evidence.front import FrontModel, nearest_to_ideal
from culmen.evidence.intervals import Chance, FreshMean, mean_of
from culmen.evidence.ranking import Ranking
from culmen.evidence.verdict import Verdict, replace_fields

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
