"""The final choice with several objectives: every member of the front is evaluated again, on the same cases.

What is reported is the front of the fresh means. A member leaves it only if another is at least as good in every fresh
mean and better in one beyond their intervals, so luck in a few fresh evaluations does not choose among equals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.engine.finale import FinalChoice, Finale, FreshMean, Spread, fresh_mean
from culmen.engine.lab import EngineLab
from culmen.engine.ledger import MEMBERS, TWICE
from culmen.engine.record import CandidateTally, RewardNoise, Scoreboard
from culmen.memory.front import FrontModel, FrontPoint, dispersed

_Measured = tuple[FrontPoint, dict[str, FreshMean]]


class FrontFinale(Finale):
    """The final choice of a task with several objectives."""

    def __init__(self, task: Task, record: Scoreboard, evaluations: float) -> None:
        super().__init__(task, record, evaluations)
        self._model = record.front or FrontModel(task.objective.metrics, task.objective.constraints)
        rows = self._model.front()
        points, _ = self._model.rewards()
        each = 1 if self._exact and not self._pool else TWICE
        most = max(1, min(MEMBERS, self._kept // each - (self._initial is not None)))
        kept = [rows[place] for place in dispersed(points[rows], most)] if rows else []
        self._field = [tally for row in kept if (tally := record.tally(self._model.ids[row])) is not None]

    async def run(self, lab: EngineLab) -> None:
        """Evaluate every member, and the initial program, on the same cases."""
        if not self._field or self._kept < 1:
            return
        self._finalists, self._confirming = self._named(self._field), True
        each = self._kept // len(self._finalists)
        whole = len(self._pool)
        if self._exact:
            each = min(each, whole or 1)
        elif whole and each > whole:
            each -= each % whole
        cases = self._drawn(lab, self._pool, each)
        await lab.gather(*(lab.evaluate_afresh(lab.find(name), cases) for name in self._finalists))
        self._choose()

    def verdict(self) -> FinalChoice | None:
        """The choice so far: the front, and of it the member with the best combined score."""
        self._choose()
        found = super().verdict()
        return None if found is None else msgspec.structs.replace(found, front=self._front())

    def _choose(self) -> None:
        """Of the front, the member with the best mean of the combined score."""
        tallies = [tally for point in self._front() if (tally := self._record.tally(point.id)) is not None]

        def worth(tally: CandidateTally) -> float:
            fresh = [self._worth(seen) for seen in self._fresh.get(tally.id, ())]
            return fmean(fresh) if fresh else tally.mean

        self._chosen = max(tallies, key=worth, default=None)

    def _front(self) -> tuple[FrontPoint, ...]:
        """The front of what was evaluated afresh; before that, what the search believes."""
        sound = (id for id in self._finalists if not self._barred(id))
        fresh = {id: seen for id in sound if (seen := [o for o in self._fresh.get(id, ()) if o.ok])}
        if not fresh:
            return tuple(map(self._model.point, self._model.front()))
        known = self._measured(fresh)
        feasible = [id for id, (point, _) in known.items() if point.feasible]
        left = feasible or list(known)
        return tuple(known[id][0] for id in left if not any(self._beats(known, other, id) for other in left))

    def _measured(
        self, fresh: Mapping[str, Sequence[Observation]]
    ) -> dict[str, tuple[FrontPoint, dict[str, FreshMean]]]:
        """What the fresh evaluations say of each finalist."""
        objective = self._task.objective
        named = dict.fromkeys([*(g.name for g in objective.metrics), *(c.metric for c in objective.constraints)])
        found: dict[str, _Measured] = {}
        for id, seen in fresh.items():
            others = [each for other, each in fresh.items() if other != id]
            means = {name: fresh_mean(_by_case(seen, name), 0, self._spread_of(name, others)) for name in named}
            metrics = {name: mean.mean for name, mean in means.items()}
            margins = {name: mean.margin for name, mean in means.items() if mean.margin is not None}
            failures = len(self._fresh[id]) - len(seen)
            held = not any(each.excess(metrics[each.metric]) for each in objective.constraints)
            point = FrontPoint(id, metrics, margins, len(self._fresh[id]), failures, held, confirmed=True)
            found[id] = point, means
        return found

    def _spread_of(self, name: str, others: Sequence[Sequence[Observation]]) -> Spread:
        """Chance in one metric: of repeats on a case, pooled over the other finalists."""
        groups = [values for seen in others for values in _by_case(seen, name).values()]
        degrees = sum(len(values) - 1 for values in groups)
        squares = math.fsum((value - fmean(values)) ** 2 for values in groups for value in values)
        within = squares / degrees if degrees and not self._pool else None
        noise = RewardNoise(within, 0.0, 0.0, repeats=degrees, squares=squares)
        return Spread(noise, len(self._pool) or None, self._exact)

    def _beats(self, known: Mapping[str, _Measured], one: str, other: str) -> bool:
        """Whether `one` dominates `other` beyond noise; the initial program leaves the front without that proof."""
        if one == other:
            return False
        clearly = False
        for goal in self._task.objective.metrics:
            a, b = (known[id][1][goal.name] for id in (one, other))
            gap = goal.reward(a.mean) - goal.reward(b.mean)
            if gap < 0:
                return False
            noise = 0.0 if other == self._initial else math.hypot(a.margin or 0.0, b.margin or 0.0)
            clearly = clearly or gap > noise
        same = all(known[one][1][g.name].mean == known[other][1][g.name].mean for g in self._task.objective.metrics)
        return clearly or (same and list(known).index(one) < list(known).index(other))


def _by_case(seen: Sequence[Observation], name: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in seen:
        found.setdefault(one.case, []).append(one.metrics[name])
    return found
