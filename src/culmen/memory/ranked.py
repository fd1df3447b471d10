"""A population as a ranked list: the best first, none twice, trimmed to a size; parents by tournament."""

from __future__ import annotations

import bisect
from random import Random

from culmen.core.evaluation import Rollout


class Population:
    """At most `size` rollouts by reward (higher first; the earlier first among equals)."""

    def __init__(self, size: int = 100) -> None:
        self._size = size
        self._members: list[tuple[float, int, Rollout]] = []
        self._ids: set[str] = set()
        self._count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, candidate: object) -> bool:
        return candidate in self._ids

    def add(self, rollout: Rollout) -> bool:
        """Take in a scored rollout; False if it has no score, is known, or is not good enough."""
        reward, name = rollout.reward, rollout.candidate.id
        if reward is None or name in self._ids:
            return False
        self._count += 1
        bisect.insort(self._members, (-reward, self._count, rollout))
        self._ids.add(name)
        if len(self._members) > self._size:
            self._ids.discard(self._members.pop()[2].candidate.id)
        return name in self._ids

    @property
    def best(self) -> Rollout | None:
        """The first of the list."""
        return self._members[0][2] if self._members else None

    def tournament(self, top: int, size: int, rng: Random) -> Rollout | None:
        """The best of `size` drawn without replacement from the first `top`; None while there is none."""
        among = min(top, len(self._members))
        if not among:
            return None
        return self._members[min(rng.sample(range(among), min(size, among)))][2]

    def head(self, count: int) -> list[Rollout]:
        """The best `count`."""
        return [rollout for _, _, rollout in self._members[:count]]
