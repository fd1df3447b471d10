"""OpenEvolve's loop (version 0.4.1): islands of programs, cells of features, one archive.

It asks for one candidate per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.ports import Lab
from culmen.extensions.baselines.population import ProgramIsland, ProgramPopulation
from culmen.strategies.judging import BUILT_IN, CascadeJudge, Judge
from culmen.strategies.memory.grid import ArchiveIsland, Elite, Placement, Selection
from culmen.strategies.seed_pool import Clusters, Everywhere, First
from culmen.strategies.settings import About, Cases, Format, check
from culmen.strategies.turboevolve import (
    Bins,
    Dimensions,
    Diverse,
    Exploitation,
    Exploration,
    Interval,
    Top,
    TurboEvolve,
)
from culmen.strategies.width import Fixed, Requery


@dataclass(frozen=True)
class Cascade:
    """Evaluation in two stages: all training cases only after a good score on the first ones."""

    first: Annotated[int, About("training cases of the first stage", least=1)] = 20
    threshold: Annotated[float, About("mean score there that opens the second stage")] = 0.5

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class OpenEvolve:
    """The baseline of `turboevolve`, on the same engine.

    It asks for one candidate per request, and never repeats a request.

    Islands keep all programs except those displaced from a cell; parents are drawn from the island,
    from the archive of all islands, or by score; every `interval` iterations the best of each
    island are copied to both neighbours.

    One initial program begins on the first island, from which empty islands draw; several begin on
    all, or on those that `starts` names.
    """

    paper = (
        "OpenEvolve, an open evolutionary coding agent (Sharma, 2025), after AlphaEvolve (Novikov "
        "et al., 2025)"
    )

    islands: Annotated[int, About("populations side by side", least=1)] = 5
    format: Format = "auto"
    features: Dimensions = ()
    bins: Bins = 10
    exploration: Exploration = 0.2
    exploitation: Exploitation = 0.7
    elites: Annotated[
        float, About("share of the `diverse` that are the island's best", least=0, most=1)
    ] = 0.1
    population: Annotated[int, About("programs on all islands together", least=2)] = 1000
    archive: Annotated[
        int, About("programs in the archive that elites are drawn from", least=1)
    ] = 100
    top: Top = 3
    diverse: Diverse = 2
    interval: Interval = 50
    rate: Annotated[
        float, About("share of an island that is copied, at least one program", least=0, most=1)
    ] = 0.1
    batch: Cases = None
    lanes: Annotated[
        int | None, About("iterations at once over all islands; none: one per worker", least=1)
    ] = None
    starts: Annotated[
        tuple[str, ...],
        About("island of each initial program; none: one on the first, several on all"),
    ] = ()
    cascade: Annotated[
        Cascade | None, About("two stages of an evaluation, instead of `batch`; none: one")
    ] = None

    def __post_init__(self) -> None:
        check(self)
        for text in self.starts:
            if not (text.isdecimal() and int(text) < self.islands):
                raise UserError(
                    f"an initial program cannot start on island '{text}'",
                    where="strategy openevolve: starts",
                    fix=f"give numbers from 0 to {self.islands - 1}, or raise islands",
                )

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        own = ("population", "archive", "cascade", "starts")
        shared = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in own
        }
        shared["lanes"] = self.lanes or lab.workers
        usual = Everywhere() if len(lab.seeds) > 1 else First()
        allocation = _Placed(tuple(map(int, self.starts))) if self.starts else usual
        engine = _Engine(width=Fixed(1), requery=Requery(times=0), allocation=allocation, **shared)
        object.__setattr__(engine, "sizes", (self.archive, self.population))
        object.__setattr__(engine, "cascade", self.cascade)
        await engine.search(lab)


@dataclass(frozen=True)
class _Placed:
    """Each initial program of the task on the island of its place; others on all."""

    places: tuple[int, ...]

    async def allocate(
        self, lab: Lab, seeds: Sequence[Candidate], rewards: Sequence[float], islands: int
    ) -> Clusters:
        homes: dict[str, list[int]] = {}
        for parts, island in zip(lab.task.seeds, self.places):
            homes.setdefault(Candidate.of(parts).digest, []).append(island)
        return [
            [n for n, seed in enumerate(seeds) if island in homes.get(seed.digest, [island])]
            for island in range(islands)
        ]


class _Engine(TurboEvolve):
    """TurboEvolve's loop over OpenEvolve's population.

    `sizes` are (programs in the archive, programs in all).
    """

    sizes: tuple[int, int]
    cascade: Cascade | None

    def make_judge(self, lab: Lab) -> Judge:
        if self.cascade is None:
            return super().make_judge(lab)
        stages = self.cascade.first, self.cascade.threshold
        return CascadeJudge(lab, self.features, self.bins, *stages)

    def make_islands(self, judge: Judge, chosen: Selection) -> Sequence[ArchiveIsland]:
        return ProgramPopulation(judge.empty_grid().axes, self.islands, chosen, *self.sizes).islands

    def migrate_if_due(
        self, islands: Sequence[ArchiveIsland], i: int, turn: int
    ) -> list[Placement]:
        island = islands[i]
        assert isinstance(island, ProgramIsland)  # make_islands makes no others
        return island.population.count_and_migrate(i, self.interval, self.rate)

    def turn_brief(
        self, lab: Lab, i: int, parent: Elite | None, inspirations: Sequence[Elite], k: int
    ) -> Brief:
        """As in `TurboEvolve`, with feature dimensions for each program shown."""
        brief = super().turn_brief(lab, i, parent, inspirations, k)
        names = self.features or lab.task.features or BUILT_IN
        shown = tuple(
            msgspec.structs.replace(exhibit, metrics=dict(zip(names, elite.features, strict=True)))
            for exhibit, elite in zip(brief.inspirations, inspirations, strict=True)
        )
        context = (
            f"Programs are told apart by their {', '.join(names)}; the best of each kind is kept."
        )
        return msgspec.structs.replace(brief, inspirations=shown, context=context)
