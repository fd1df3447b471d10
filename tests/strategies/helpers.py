"""Running a strategy and reading what it asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result, WriteRequest
from culmen.testing.landscape import Landscape


@dataclass
class Witness:
    """A landscape that remembers the effects it performed, in order."""

    world: Landscape = field(default_factory=Landscape)
    effects: list[Effect] = field(default_factory=list)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        self.effects.append(effect)
        return self.world.perform(effect, rng)

    def of(self, kind):
        return [effect.request for effect in self.effects if isinstance(effect.request, kind)]

    @property
    def evaluations(self):
        return self.of(EvaluateRequest)

    @property
    def briefs(self):
        return [request.brief for request in self.of(ProposeRequest)]

    @property
    def summaries(self):
        return self.of(WriteRequest)

    @property
    def kinds(self):
        return [effect.kind for effect in self.effects]
