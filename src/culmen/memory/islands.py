"""Islands: a grid each, with the rules by which parents, inspirations and migrants are drawn from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from culmen.memory.grid import Elite, Grid, Placement

_POOL = 16  # occupants among which the most different ones are looked for


@dataclass(frozen=True)
class Selection:
    """How one island chooses.

    A parent is, with probability `exploration`, any occupant alike; with probability `exploitation`, one of the best
    `elites` share of the occupants alike; otherwise any occupant, weighted by its rank from the bottom. Inspirations
    are the `top` best occupants and `diverse` ones from cells far from the parent's.
    """

    exploration: float = 0.2
    exploitation: float = 0.7
    elites: float = 0.2
    top: int = 3
    diverse: int = 2


class Island:
    """One population: the occupants of a grid."""

    def __init__(self, grid: Grid, selection: Selection) -> None:
        self.grid, self.selection = grid, selection

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def best(self) -> Elite | None:
        """The occupant of the highest reward; None while there is none."""
        return self.grid.ranked(0) if len(self) else None

    def parent(self, rng: Random) -> Elite | None:
        """Draw what to improve; None while the island is empty."""
        size, draw = len(self), rng.random()
        if not size:
            return None
        if draw < self.selection.exploration:
            return self.grid.ranked(rng.randrange(size))
        if draw < self.selection.exploration + self.selection.exploitation:
            return self.grid.ranked(rng.randrange(max(1, round(self.selection.elites * size))))
        return self.grid.ranked(_weighted(size, rng))

    def inspirations(self, parent: Elite, rng: Random) -> list[Elite]:
        """The best occupants, then different ones, none of them the parent, none twice."""
        shown = [elite for elite in self.grid.elites(self.selection.top + 1) if elite is not parent]
        shown = shown[: self.selection.top]
        size = len(self)
        drawn = [self.grid.ranked(rank) for rank in rng.sample(range(size), min(_POOL, size))]
        fresh = [elite for elite in drawn if elite is not parent and not any(elite is other for other in shown)]
        here, cell = self.grid.cell(parent.features), self.grid.cell
        far = sorted(fresh, key=lambda elite: -math.dist(here, cell(elite.features)))
        return shown + far[: self.selection.diverse]

    def distance(self, one: Elite, other: Elite) -> float:
        """How many cells apart two candidates are, along the straight line."""
        return math.dist(self.grid.cell(one.features), self.grid.cell(other.features))

    def emigrants(self, rate: float) -> list[Elite]:
        """The best `rate` share of the occupants, at least one; none from an empty island or at rate 0."""
        return self.grid.elites(max(1, math.ceil(rate * len(self)))) if rate > 0 else []


def migrate(islands: Sequence[Island], source: int, rate: float) -> list[Placement]:
    """Send the emigrants of one island to the next one on the ring, where they compete for cells like newcomers."""
    target = (source + 1) % len(islands)
    if target == source:
        return []
    return [islands[target].grid.offer(elite) for elite in islands[source].emigrants(rate)]


def _weighted(size: int, rng: Random) -> int:
    """A rank in 0..size-1 with probability proportional to size - rank."""
    return min(size - 1, int(size * (1.0 - math.sqrt(rng.random()))))
