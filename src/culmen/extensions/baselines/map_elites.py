"""MAP-Elites with a language model as its variation operator, on one grid.

It is the baseline of the program-search family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import GridIsland, Selection
from culmen.strategies.settings import About, Cases, Proposals, WorkerLanes, check


@dataclass(frozen=True)
class MapElites:
    """Search over a feature grid that keeps the best program of every cell.

    A sampled program is improved in each turn. With probability `exploration` the parent is drawn
    uniformly from all cells, otherwise uniformly from the best `elites` share of them; it is shown
    with inspirations, which are the best program and some from distant cells. Each program is
    evaluated once, when it is proposed, and that score is kept: on noisy evaluators prefer `polca`.

    Dimensions are `complexity` (text length), `diversity` (embedding distance from the first
    program) and the names of metrics that the evaluator reports. Lanes run side by side and never
    wait for one another.
    """

    paper = (
        "Illuminating search spaces by mapping elites (Mouret and Clune, 2015), varied by a "
        "language model"
    )

    features: Annotated[
        tuple[str, ...], About("dimensions; none: the task's, else complexity and diversity")
    ] = ()
    bins: Annotated[int, About("bins per dimension", least=1)] = 10
    exploration: Annotated[
        float, About("share of parents drawn from all cells alike", least=0, most=1)
    ] = 0.3
    elites: Annotated[
        float, About("share of the cells that counts as the best", least=0, most=1)
    ] = 0.2
    inspirations: Annotated[int, About("other programs shown", least=0)] = 3
    proposals: Proposals = 1
    batch: Cases = None
    lanes: WorkerLanes = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        archive = lab.restored
        if not isinstance(archive, _Archive):
            judge = Judge(lab, self.features, self.bins, self.batch)
            chosen = Selection(
                self.exploration,
                1.0,
                self.elites,
                min(1, self.inspirations),
                max(0, self.inspirations - 1),
            )
            archive = _Archive(GridIsland(judge.empty_grid(), chosen), judge)
            lab.note("seeded", seeds=await self.insert_programs(lab, *archive, lab.seeds))
        await lab.gather(*(self.run_lane(lab, archive) for _ in range(self.lanes or lab.workers)))

    async def run_lane(self, lab: Lab, archive: _Archive) -> None:
        """Select, vary, evaluate new candidates, insert; every turn awaits a proposal."""
        island, judge = archive
        while True:
            await lab.checkpoint(archive)
            answer = await lab.propose(self.children_brief(lab, island))
            placed = await self.insert_programs(
                lab, island, judge, (*answer.candidates, *lab.handed())
            )
            best = island.best.reward if island.best else None
            entered = sum(each["outcome"] != "refused" for each in placed)
            lab.note(
                "grid",
                cells=len(island),
                quality=island.grid.quality,
                entered=entered,
                best=best,
                placed=placed,
            )

    async def insert_programs(
        self, lab: Lab, island: GridIsland, judge: Judge, programs: tuple[Candidate, ...]
    ) -> list[JsonObject]:
        """Evaluate new candidates and insert those that scored; their outcomes."""
        judged = await judge.judge_candidates(lab, judge.take_unknown(programs))
        return [
            {
                "id": elite.rollout.candidate.id,
                "reward": elite.reward,
                "features": list(elite.features),
                "outcome": island.grid.offer_elite(elite).outcome,
            }
            for _, elite in judged
            if elite is not None
        ]

    def children_brief(self, lab: Lab, island: GridIsland) -> Brief:
        """The request for children of one parent.

        Without a parent, improve the first initial program; without one, ask for a first program.
        """
        parent = island.draw_parent(lab.rng)
        if parent is None:
            return Brief(lab.seeds[0] if lab.seeds else None, k=self.proposals)
        shown = island.draw_inspirations(parent, lab.rng)
        exhibits = tuple(Exhibit(elite.rollout.candidate, elite.reward) for elite in shown)
        rollout = parent.rollout
        return Brief(
            rollout.candidate, rollout.observations, parent.reward, exhibits, k=self.proposals
        )


class _Archive(NamedTuple):
    """The grid of one search, and the judge of its candidates."""

    island: GridIsland
    judge: Judge
