"""Backbones of island searches: where programs are kept, and how islands exchange them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import msgspec

from culmen.core.brief import Brief
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import (
    ArchiveIsland,
    Elite,
    GridIsland,
    Placement,
    Selection,
    migrate_to_next,
)
from culmen.strategies.memory.population import ProgramIsland, ProgramPopulation
from culmen.strategies.seed_pool import Allocation, Everywhere, First
from culmen.strategies.settings import About, check


class Backbone(Protocol):
    """Populations of an island search.

    `ELITES` and `INTERVAL` are its defaults of the share of elites and of the iterations between
    migrations; `ONE_SEED` places a single initial program.
    """

    ELITES: ClassVar[float]
    INTERVAL: ClassVar[int]
    ONE_SEED: ClassVar[Allocation]

    def make_islands(
        self, judge: Judge, islands: int, selection: Selection
    ) -> Sequence[ArchiveIsland]:
        """The islands, empty."""
        ...

    def migrate_if_due(
        self, islands: Sequence[ArchiveIsland], i: int, turn: int, interval: int, rate: float
    ) -> list[Placement]:
        """Migrate after turn `turn` (from 1) of island `i`, if it is due."""
        ...

    def with_features(
        self, brief: Brief, names: Sequence[str], inspirations: Sequence[Elite]
    ) -> Brief:
        """The request with the backbone's words on feature dimensions."""
        ...


@dataclass(frozen=True)
class Grids:
    """Occupants of grids alone; an island's best compete for cells of the next on the ring."""

    ELITES: ClassVar[float] = 0.2
    INTERVAL: ClassVar[int] = 10
    ONE_SEED: ClassVar[Allocation] = Everywhere()

    def make_islands(
        self, judge: Judge, islands: int, selection: Selection
    ) -> Sequence[ArchiveIsland]:
        return [GridIsland(judge.empty_grid(), selection) for _ in range(islands)]

    def migrate_if_due(
        self, islands: Sequence[ArchiveIsland], i: int, turn: int, interval: int, rate: float
    ) -> list[Placement]:
        if turn % interval:
            return []
        grids = [island for island in islands if isinstance(island, GridIsland)]
        return migrate_to_next(grids, i, rate)

    def with_features(
        self, brief: Brief, names: Sequence[str], inspirations: Sequence[Elite]
    ) -> Brief:
        return brief


@dataclass(frozen=True)
class Openevolve:
    """OpenEvolve's populations (version 0.4.1): programs, their cells, one archive.

    The best of each island are copied to both neighbours; an empty island draws from the first;
    prompts state the feature dimensions.
    """

    population: Annotated[int, About("programs on all islands together", least=2)] = 1000
    archive: Annotated[
        int, About("programs in the archive that elites are drawn from", least=1)
    ] = 100

    ELITES: ClassVar[float] = 0.1
    INTERVAL: ClassVar[int] = 50
    ONE_SEED: ClassVar[Allocation] = First()

    def __post_init__(self) -> None:
        check(self)

    def make_islands(
        self, judge: Judge, islands: int, selection: Selection
    ) -> Sequence[ArchiveIsland]:
        axes = judge.empty_grid().axes
        return ProgramPopulation(axes, islands, selection, self.archive, self.population).islands

    def migrate_if_due(
        self, islands: Sequence[ArchiveIsland], i: int, turn: int, interval: int, rate: float
    ) -> list[Placement]:
        island = islands[i]
        assert isinstance(island, ProgramIsland)  # make_islands makes no others
        return island.population.count_and_migrate(i, interval, rate)

    def with_features(
        self, brief: Brief, names: Sequence[str], inspirations: Sequence[Elite]
    ) -> Brief:
        shown = tuple(
            msgspec.structs.replace(exhibit, metrics=dict(zip(names, elite.features, strict=True)))
            for exhibit, elite in zip(brief.inspirations, inspirations, strict=True)
        )
        context = (
            f"Programs are told apart by their {', '.join(names)}; the best of each kind is kept."
        )
        return msgspec.structs.replace(brief, inspirations=shown, context=context)
