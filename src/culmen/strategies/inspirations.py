"""Choice of the programs that a request shows beside the parent (TurboEvolve, Section 6.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Annotated, Protocol

from culmen.core.errors import UserError
from culmen.strategies.memory.grid import ArchiveIsland, Elite, Selection
from culmen.strategies.settings import About, check


class Inspirations(Protocol):
    """Rule by which a request's inspirations are chosen."""

    def draw_inspirations(
        self, island: ArchiveIsland, parent: Elite, selection: Selection, rng: Random
    ) -> list[Elite]:
        """Programs of the island, without the parent and without repeats."""
        ...


@dataclass(frozen=True)
class Usual:
    """The backbone's own rule."""

    def draw_inspirations(
        self, island: ArchiveIsland, parent: Elite, selection: Selection, rng: Random
    ) -> list[Elite]:
        return island.draw_inspirations(parent, rng)


@dataclass(frozen=True)
class Middle:
    """The best of the island, then programs at middle distance from the parent.

    Programs besides the best are ordered by the distance of their cells from the parent's;
    `diverse` are drawn from the shares `low` to `high` of that order. The paper suggests it
    ("favor mid-range contexts") and gives no bounds; .3 and .7 are ours.
    """

    low: Annotated[float, About("share of nearer programs left out", least=0, most=1)] = 0.3
    high: Annotated[float, About("share up to which programs are drawn", least=0, most=1)] = 0.7

    def __post_init__(self) -> None:
        check(self)
        if not self.low < self.high:
            raise UserError(
                f"no distance lies between {self.low:g} and {self.high:g}",
                where="inspirations",
                fix="give low below high, as middle(low=0.3, high=0.7)",
            )

    def draw_inspirations(
        self, island: ArchiveIsland, parent: Elite, selection: Selection, rng: Random
    ) -> list[Elite]:
        others = [elite for elite in island.ranked_elites() if elite is not parent]
        here, cell = island.grid.cell_of(parent.features), island.grid.cell_of
        rest = sorted(
            others[selection.top :], key=lambda elite: math.dist(here, cell(elite.features))
        )
        band = rest[math.floor(self.low * len(rest)) : math.ceil(self.high * len(rest))]
        return others[: selection.top] + rng.sample(band, min(selection.diverse, len(band)))
