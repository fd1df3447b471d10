"""OpenEvolve's loop: islands of MAP-Elites grids, one candidate per request, the same initial programs everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from culmen.core.ports import Lab
from culmen.strategies.seed_pool import Everywhere
from culmen.strategies.settings import About, Cases, Format, check
from culmen.strategies.turboevolve import (
    Bins,
    Dimensions,
    Diverse,
    EliteShare,
    Exploitation,
    Exploration,
    Interval,
    Rate,
    Top,
    TurboEvolve,
)
from culmen.strategies.width import Fixed, Requery


@dataclass(frozen=True)
class OpenEvolve:
    """The baseline of `turboevolve`, on the same engine: one candidate per request, never asked for twice, and all
    islands begin from the same initial programs. What differs in a comparison is then what TurboEvolve adds.

    The proportions of parent selection, inspirations, islands and migration are OpenEvolve's defaults; where its
    populations and its archive differ from a grid's occupants, the grid is used here.
    """

    paper = "OpenEvolve, an open evolutionary coding agent (Sharma, 2025), after AlphaEvolve (Novikov et al., 2025)"

    islands: Annotated[int, About("populations side by side", least=1)] = 5
    format: Format = "auto"
    features: Dimensions = ()
    bins: Bins = 10
    exploration: Exploration = 0.2
    exploitation: Exploitation = 0.7
    elites: EliteShare = 0.2
    top: Top = 3
    diverse: Diverse = 2
    interval: Interval = 50
    rate: Rate = 0.1
    batch: Cases = None
    lanes: Annotated[int | None, About("iterations at once over all islands; none: one per worker", least=1)] = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        shared = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shared["lanes"] = self.lanes or lab.workers
        engine = TurboEvolve(width=Fixed(1), requery=Requery(times=0), allocation=Everywhere(), **shared)
        await engine.search(lab)
