"""From candidates to elites: evaluation of new candidates, features of scored ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from culmen.core.candidate import Candidate, key_of
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.core.spread import sum_floats
from culmen.strategies.memory.grid import Axis, Elite, Grid


class Known:
    """Candidates seen so far in a search, by content."""

    def __init__(self) -> None:
        self._met: set[int] = set()

    def take_unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates not seen before, each once, in their order; they count as seen from now on."""
        fresh = {c.digest: c for c in reversed(candidates) if key_of(c.digest) not in self._met}
        self._met.update(key_of(digest) for digest in fresh)
        return list(reversed(fresh.values()))


class Judge(Known):
    """Evaluator shared by all grids of a search.

    A content is evaluated once, and `diversity` has one origin. `names` are the feature dimensions
    (none: the task's, else complexity and diversity), `batch` the cases per evaluation (None: all
    training cases).
    """

    def __init__(self, lab: Lab, names: Sequence[str], bins: int, batch: int | None) -> None:
        self.names, self._bins, self._batch = (
            tuple(names or lab.task.features or BUILT_IN),
            bins,
            batch,
        )
        self._features = Features(self.names)
        super().__init__()

    def empty_grid(self) -> Grid:
        """An empty grid over the feature dimensions."""
        return Grid([Axis(name, self._bins) for name in self.names])

    async def judge_candidates(
        self, lab: Lab, candidates: Sequence[Candidate]
    ) -> list[tuple[Rollout, Elite | None]]:
        """Evaluate side by side on the same cases.

        Returns an elite for each candidate that was scored, in the order given.
        """
        rollouts = await self.evaluate_candidates(lab, candidates)
        elites = {
            elite.rollout.candidate.id: elite for elite in await self.scored_elites(lab, rollouts)
        }
        return [(rollout, elites.get(rollout.candidate.id)) for rollout in rollouts]

    async def evaluate_candidates(
        self, lab: Lab, candidates: Sequence[Candidate]
    ) -> Sequence[Rollout]:
        """All candidates side by side, each on the same cases."""
        cases = None if self._batch is None else lab.minibatch(self._batch)
        return await lab.gather(*(lab.evaluate(candidate, cases) for candidate in candidates))

    async def scored_elites(self, lab: Lab, rollouts: Sequence[Rollout]) -> list[Elite]:
        """An elite with features for each candidate that has a reward."""
        scored = {r.candidate.id: (r, r.reward) for r in rollouts if r.reward is not None}
        measured = await self._features.measure(lab, [rollout for rollout, _ in scored.values()])
        return [
            Elite(rollout, reward, tuple(float(at[name]) for name in self.names))
            for (rollout, reward), at in zip(scored.values(), measured)
        ]


BUILT_IN = ("complexity", "diversity")


class Features:
    """Measurement of rollouts on the named dimensions.

    `complexity` is the length of the candidate's text in characters; `diversity` the distance of
    its embedding from that of the first candidate measured (0..2 for embeddings of length 1);
    `score` the reward if no metric has that name; any other name is the mean of that metric over
    the observations, 0 if no finite value was reported. A dimension that none of the first
    candidates measured reports is a `UserError`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._origin: tuple[float, ...] | None = None
        self._unknown = [name for name in self.names if name not in (*BUILT_IN, "score")]

    async def measure(self, lab: Lab, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        """One mapping per rollout; asks for embeddings only if `diversity` is among the names."""
        self._check_dimensions(rollouts)
        spread = [0.0] * len(rollouts)
        if "diversity" in self.names and rollouts:
            vectors = await lab.embed([rollout.candidate for rollout in rollouts])
            if self._origin is None:
                self._origin = vectors[0]
            spread = [math.dist(self._origin, vector) for vector in vectors]
        return [
            {
                name: distance if name == "diversity" else dimension_value(name, rollout)
                for name in self.names
            }
            for rollout, distance in zip(rollouts, spread)
        ]

    def _check_dimensions(self, rollouts: Sequence[Rollout]) -> None:
        """Raise `UserError` for a dimension on which all candidates would be equal."""
        reported = sorted(
            {name for rollout in rollouts for seen in rollout.observations for name in seen.metrics}
        )
        lacking = [name for name in self._unknown if name not in reported] if rollouts else []
        if lacking:
            what = f"no evaluation reports the feature dimension '{lacking[0]}'"
            known = ", ".join(dict.fromkeys([*BUILT_IN, "score", *reported]))
            raise UserError(what, where="features", fix=f"name one of {known}")
        self._unknown = self._unknown if not rollouts else []


def dimension_value(name: str, rollout: Rollout) -> float:
    """`complexity`, `score`, or the mean of a reported metric."""
    if name == "complexity":
        return float(len(rollout.candidate.text))
    reported = [
        o.metrics[name]
        for o in rollout.observations
        if math.isfinite(o.metrics.get(name, math.nan))
    ]
    if name == "score" and not reported:
        return rollout.reward or 0.0
    return sum_floats(reported) / len(reported) if reported else 0.0
