"""Optimisers written with ask and tell."""

from __future__ import annotations

from culmen.core.brief import Brief


class HillClimber:
    """Improves the best single rollout; first looks at every seed."""

    def __init__(self, task, seeds, rng):
        self.best = None
        self.waiting = list(seeds)
        self.rng = rng

    def ask(self):
        if self.waiting:
            asked, self.waiting = self.waiting, []
            return asked
        parent = self.best[1] if self.best else None
        return [Brief(parent, k=1 + self.rng.randrange(2)), Brief(parent)]

    def tell(self, rollouts):
        for rollout in rollouts:
            if rollout.reward is not None and (self.best is None or rollout.reward > self.best[0]):
                self.best = (rollout.reward, rollout.candidate)


class Counter:
    """Ends by itself after three turns, and notes the rollouts that it received."""

    told = ()

    def __init__(self, task, seeds, rng):
        self.seeds, self.turns = seeds, 0
        Counter.told = ()

    def ask(self):
        self.turns += 1
        return self.seeds[0] if self.turns <= 3 else []

    def tell(self, rollouts):
        Counter.told += (tuple(r.candidate.id for r in rollouts),)
