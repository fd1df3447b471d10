"""OpenEvolve's loop (version 0.4.1): islands of programs, cells of features, one archive.

It asks for one candidate per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab
from culmen.strategies.backbone import Openevolve
from culmen.strategies.island_loops import Fixed, IslandLoops, Requery, Usual
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import Selection
from culmen.strategies.seed_pool import Clusters, Evaluated, Everywhere
from culmen.strategies.settings import About, Cases, Format, check
from culmen.strategies.turboevolve import (
    Bins,
    Dimensions,
    Diverse,
    Exploitation,
    Exploration,
    Interval,
    Top,
)


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

    islands: Annotated[int, About("populations side by side", 1, 10_000)] = 5
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
        backbone = Openevolve(self.population, self.archive)
        loops = IslandLoops(
            backbone,
            self.islands,
            self.lanes or lab.workers,
            Fixed(1),
            self.format,
            Requery(times=0),
            Selection(self.exploration, self.exploitation, self.elites, self.top, self.diverse),
            Usual(),
            self.interval,
            self.rate,
            tail=0.0,
        )
        usual = Everywhere() if len(lab.seeds) > 1 else backbone.ONE_SEED
        allocation = _Placed(tuple(map(int, self.starts))) if self.starts else usual
        await loops.search(lab, self._make_judge(lab), allocation, Evaluated())

    def _make_judge(self, lab: Lab) -> Judge:
        if self.cascade is None:
            return Judge(lab, self.features, self.bins, self.batch)
        stages = self.cascade.first, self.cascade.threshold
        return CascadeJudge(lab, self.features, self.bins, *stages)


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


class CascadeJudge(Judge):
    """Evaluator in two stages: on the first cases, and on the others if that was good enough.

    A candidate whose mean score on the `first` training cases does not reach `threshold` keeps that
    score.
    """

    def __init__(
        self, lab: Lab, names: Sequence[str], bins: int, first: int, threshold: float
    ) -> None:
        super().__init__(lab, names, bins, None)
        self._first, self._least = first, lab.task.objective.reward(threshold)

    async def evaluate_candidates(
        self, lab: Lab, candidates: Sequence[Candidate]
    ) -> Sequence[Rollout]:
        return await lab.gather(*(self._evaluate_in_stages(lab, each) for each in candidates))

    async def _evaluate_in_stages(self, lab: Lab, candidate: Candidate) -> Rollout:
        cases = lab.task.split("train") or (None,)
        seen = await lab.evaluate(candidate, cases[: self._first])
        passed = seen.reward is not None and seen.reward >= self._least
        if not passed or len(cases) <= self._first:
            return seen
        more = await lab.evaluate(candidate, cases[self._first :])
        return Rollout(
            candidate, seen.observations + more.observations, seen.rewards + more.rewards
        )
