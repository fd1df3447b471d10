"""A line of work on the numbers of one candidate: generations of CMA-ES, each a batch of experiments.

The optimiser's state is the seed and the rewards so far, so it lives wherever the journal lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from culmen.core.candidate import Candidate, Origin
from culmen.core.event import Edits
from culmen.core.ports import Lab

_PATIENCE = 4  # generations without a gain after which a line begins anew
_STEP, _LEAST = 0.1, 0.001  # initial deviation, in the size of each number or its list


@dataclass
class Tuning:
    """One line: it begins at the best candidate, and again there with half the step when it gets no further."""

    size: int
    step: float = _STEP
    parent: Candidate | None = None
    seed: int = 0
    stalled: int = 0
    possible: bool = True
    rewards: list[list[float | None]] = field(default_factory=list[list[float | None]])

    async def generation(self, lab: Lab, best: Candidate) -> list[Candidate]:
        """The next candidates to try; none where there is nothing to tune."""
        if self.parent is None or (self.stalled >= _PATIENCE and best.id == self.parent.id):
            self._begin(lab, best, self.step if self.parent is None else self.step / 2)
        elif self.stalled >= _PATIENCE:
            self._begin(lab, best, min(_STEP, self.step * 2))
        surface = lab.task.surface
        edits: Edits = await lab.edit(
            "cma",
            (self.parent or best,),
            seed=self.seed,
            size=self.size,
            step=self.step,
            generations=self.rewards,
            frozen=list(surface.frozen),
            marked=surface.markers != "off",
        )
        self.possible = bool(edits.parts)
        origin = Origin("offline:cma", model="offline")
        return [Candidate.of(parts, ((self.parent or best).id,), origin) for parts in edits.parts]

    def tell(self, rewards: Sequence[float | None], gain: bool) -> None:
        """What the generation scored, in its order, and whether one of them leads now."""
        self.rewards.append(list(rewards))
        self.stalled = 0 if gain else self.stalled + 1

    def _begin(self, lab: Lab, best: Candidate, step: float) -> None:
        self.parent, self.stalled, self.seed = best, 0, lab.rng.getrandbits(30)
        self.rewards, self.step = [], step if step >= _LEAST else _STEP
