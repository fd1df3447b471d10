"""From candidates to elites: evaluate what is new to the run, and measure what was scored."""

from __future__ import annotations

from collections.abc import Sequence

from culmen.core.candidate import Candidate
from culmen.core.compact import Numbers, name_of
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.memory.grid import Axis, Elite, Grid
from culmen.strategies.parts.features import BUILT_IN, Features


class Known:
    """Contents met so far in a search."""

    def __init__(self) -> None:
        self._met = Numbers()

    def unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those not met before, each once, in their order; they count as met from now on."""
        fresh = {c.digest: c for c in reversed(candidates) if name_of(c.digest) not in self._met}
        for digest in fresh:
            self._met.put(name_of(digest))
        return list(reversed(fresh.values()))


class Judge(Known):
    """Shared by all grids of a search, so that a content is evaluated once and `diversity` has one origin.

    `names` are the feature dimensions (none: the task's, else complexity and diversity), `batch` the cases per
    evaluation (None: all training cases).
    """

    def __init__(self, lab: Lab, names: Sequence[str], bins: int, batch: int | None) -> None:
        self.names, self._bins, self._batch = tuple(names or lab.task.features or BUILT_IN), bins, batch
        self._features = Features(self.names)
        super().__init__()

    def grid(self) -> Grid:
        """An empty grid over the feature dimensions."""
        return Grid([Axis(name, self._bins) for name in self.names])

    async def judge(self, lab: Lab, candidates: Sequence[Candidate]) -> list[tuple[Rollout, Elite | None]]:
        """Evaluate side by side on the same cases; an elite for each candidate that was scored, in the order given."""
        cases = None if self._batch is None else lab.minibatch(self._batch)
        rollouts = await lab.gather(*(lab.evaluate(candidate, cases) for candidate in candidates))
        scored = {r.candidate.id: (r, r.reward) for r in rollouts if r.reward is not None}
        measured = await self._features.measure(lab, [rollout for rollout, _ in scored.values()])
        elites = {
            rollout.candidate.id: Elite(rollout, reward, tuple(float(at[name]) for name in self.names))
            for (rollout, reward), at in zip(scored.values(), measured)
        }
        return [(rollout, elites.get(rollout.candidate.id)) for rollout in rollouts]
