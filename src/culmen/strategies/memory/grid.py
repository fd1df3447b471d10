"""Grids of MAP-Elites (Mouret and Clune, 2015): the best candidate of every cell.

Islands draw from grids and exchange candidates.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from culmen.core.evaluation import Rollout
from culmen.core.spread import sum_floats


@dataclass(frozen=True)
class Axis:
    """One feature dimension in `bins` equal bins between `low` and `high`.

    Outside values fall in the end bins. Without bounds the axis adapts: it spans the values seen,
    and the grid is rebuilt when that range grows.
    """

    name: str
    bins: int = 10
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float] | None:
        """Both ends, if they are declared."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Elite:
    """A cell's occupant: its rollout, its mean reward and its features.

    Rewards are higher-is-better; there is one feature per axis.
    """

    rollout: Rollout
    reward: float
    features: tuple[float, ...]


Cell = tuple[int, ...]


class Placement(NamedTuple):
    """Outcome of offering a candidate to a grid.

    Its cell, `entered` (True if it was inserted), and the cell's previous occupant.
    """

    cell: Cell
    entered: bool
    replaced: Elite | None = None

    @property
    def outcome(self) -> str:
        """`new` (the cell was empty), `replaced` (the occupant was worse) or `refused`."""
        return "refused" if not self.entered else "new" if self.replaced is None else "replaced"


class Grid:
    """Cells by feature values, each with the candidate of the highest reward.

    On a tie the earlier candidate stays. Occupants are kept in order of reward.
    """

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.axes = tuple(axes)
        self._spans = [axis.span for axis in self.axes]
        self._cells: dict[Cell, Elite] = {}
        self._ranked: list[Elite] = []  # best first

    def __len__(self) -> int:
        return len(self._cells)

    def offer_elite(self, elite: Elite) -> Placement:
        """Offer a candidate, its features in the order of the axes; returns the outcome."""
        if self._widen_axes(elite.features):
            held = list(self._cells.values())
            self._cells, self._ranked = {}, []
            for old in held:
                self._place_elite(old)
        return self._place_elite(elite)

    def _place_elite(self, elite: Elite) -> Placement:
        cell = self.cell_of(elite.features)
        holder = self._cells.get(cell)
        if holder is not None:
            if holder.reward >= elite.reward:
                return Placement(cell, False, holder)
            self._ranked = [each for each in self._ranked if each is not holder]
        self._cells[cell] = elite
        insort(self._ranked, elite, key=lambda each: -each.reward)
        return Placement(cell, True, holder)

    def _widen_axes(self, features: Sequence[float]) -> bool:
        """Widen adaptive axes to cover these values; True if any span grew."""
        before = list(self._spans)
        for i, (axis, value) in enumerate(zip(self.axes, features)):
            low, high = self._spans[i] or (value, value)
            self._spans[i] = axis.span or (min(low, value), max(high, value))
        return self._spans != before

    def cell_of(self, features: Sequence[float]) -> Cell:
        """The indices of the cell of these feature values."""
        return tuple([self._bin_index(i, value) for i, value in enumerate(features)])

    def _bin_index(self, i: int, value: float) -> int:
        low, high = self._spans[i] or (value, value)
        if high <= low or value <= low:
            return 0
        last = self.axes[i].bins - 1
        return last if value >= high else min(int((value - low) / (high - low) * (last + 1)), last)

    def elite_at_rank(self, rank: int) -> Elite:
        """The occupant at this place, 0 for the best; ties in the order of taking their cells."""
        return self._ranked[rank]

    @property
    def quality(self) -> float | None:
        """Mean reward of the occupants; None without any."""
        return sum_floats(each.reward for each in self._ranked) / len(self) if len(self) else None

    def ranked_elites(self, most: int | None = None) -> list[Elite]:
        """The occupants, or the best `most` of them, best first."""
        return self._ranked[:most]


_POOL = 16  # occupants among which the most different ones are looked for


@dataclass(frozen=True)
class Selection:
    """Rule by which one island chooses parents and inspirations.

    The parent is drawn uniformly from all occupants with probability `exploration`, uniformly from
    the best `elites` share with probability `exploitation`, otherwise from all, weighted by rank
    from the bottom. Inspirations are the `top` best occupants and `diverse` ones from cells far
    from the parent's.
    """

    exploration: float = 0.2
    exploitation: float = 0.7
    elites: float = 0.2
    top: int = 3
    diverse: int = 2


class IslandCells(Protocol):
    """The cells of an island, which take offers."""

    @property
    def quality(self) -> float | None: ...

    def cell_of(self, features: Sequence[float]) -> Cell: ...

    def offer_elite(self, elite: Elite) -> Placement: ...


class ArchiveIsland(Protocol):
    """One population, from which parents and inspirations are drawn."""

    def __len__(self) -> int: ...

    @property
    def grid(self) -> IslandCells: ...

    @property
    def best(self) -> Elite | None: ...

    def draw_parent(self, rng: Random) -> Elite | None: ...

    def draw_inspirations(self, parent: Elite, rng: Random) -> list[Elite]: ...

    def ranked_elites(self) -> list[Elite]: ...


class GridIsland:
    """One population: the occupants of a grid."""

    def __init__(self, grid: Grid, selection: Selection) -> None:
        self.grid, self.selection = grid, selection

    def __len__(self) -> int:
        return len(self.grid)

    @property
    def best(self) -> Elite | None:
        """The occupant of the highest reward; None without any."""
        return self.grid.elite_at_rank(0) if len(self) else None

    def draw_parent(self, rng: Random) -> Elite | None:
        """Draw a parent; None while the island is empty."""
        size, draw = len(self), rng.random()
        if not size:
            return None
        if draw < self.selection.exploration:
            return self.grid.elite_at_rank(rng.randrange(size))
        if draw < self.selection.exploration + self.selection.exploitation:
            return self.grid.elite_at_rank(
                rng.randrange(max(1, round(self.selection.elites * size)))
            )
        return self.grid.elite_at_rank(_draw_weighted_rank(size, rng))

    def draw_inspirations(self, parent: Elite, rng: Random) -> list[Elite]:
        """The best occupants, then different ones, without the parent and without repeats."""
        shown = [
            elite
            for elite in self.grid.ranked_elites(self.selection.top + 1)
            if elite is not parent
        ]
        shown = shown[: self.selection.top]
        size = len(self)
        drawn = [
            self.grid.elite_at_rank(rank) for rank in rng.sample(range(size), min(_POOL, size))
        ]
        fresh = [
            elite
            for elite in drawn
            if elite is not parent and not any(elite is other for other in shown)
        ]
        here, cell = self.grid.cell_of(parent.features), self.grid.cell_of
        far = sorted(fresh, key=lambda elite: -math.dist(here, cell(elite.features)))
        return shown + far[: self.selection.diverse]

    def ranked_elites(self) -> list[Elite]:
        """The occupants, best first."""
        return self.grid.ranked_elites()

    def emigrants(self, rate: float) -> list[Elite]:
        """The best `rate` share of the occupants, at least one.

        None from an empty island or at rate 0.
        """
        return self.grid.ranked_elites(max(1, math.ceil(rate * len(self)))) if rate > 0 else []


def migrate_to_next(islands: Sequence[GridIsland], source: int, rate: float) -> list[Placement]:
    """Send the emigrants of one island to the next one on the ring.

    There they compete for cells like new candidates.
    """
    target = (source + 1) % len(islands)
    if target == source:
        return []
    return [islands[target].grid.offer_elite(elite) for elite in islands[source].emigrants(rate)]


def _draw_weighted_rank(size: int, rng: Random) -> int:
    """A rank in 0..size-1 with probability proportional to size - rank."""
    return min(size - 1, int(size * (1.0 - math.sqrt(rng.random()))))
