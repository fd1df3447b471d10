"""Feature dimensions of a candidate for grids: built-in ones and any metric its evaluations report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab

BUILT_IN = ("complexity", "diversity")


class Features:
    """Measures rollouts on the named dimensions.

    `complexity` is the length of the candidate's text in characters; `diversity` the distance of its embedding from
    that of the first candidate measured (0..2 for embeddings of length 1); any other name is the mean of that metric
    over the observations, 0 where no finite value was reported.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._origin: tuple[float, ...] | None = None

    async def measure(self, lab: Lab, rollouts: Sequence[Rollout]) -> list[dict[str, float]]:
        """One mapping per rollout; asks for embeddings only if `diversity` is among the names."""
        spread = [0.0] * len(rollouts)
        if "diversity" in self.names and rollouts:
            vectors = await lab.embed([rollout.candidate for rollout in rollouts])
            if self._origin is None:
                self._origin = vectors[0]
            spread = [math.dist(self._origin, vector) for vector in vectors]
        return [
            {name: distance if name == "diversity" else value(name, rollout) for name in self.names}
            for rollout, distance in zip(rollouts, spread)
        ]


def value(name: str, rollout: Rollout) -> float:
    """`complexity`, or the mean of a reported metric."""
    if name == "complexity":
        return float(len(rollout.candidate.text))
    reported = [o.metrics[name] for o in rollout.observations if math.isfinite(o.metrics.get(name, math.nan))]
    return sum(reported) / len(reported) if reported else 0.0
