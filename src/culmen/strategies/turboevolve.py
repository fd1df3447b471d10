"""TurboEvolve: islands of MAP-Elites grids, K candidates per request, divided seed pools.

K adapts to progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import (
    ArchiveIsland,
    Elite,
    GridIsland,
    Placement,
    Selection,
    migrate_to_next,
)
from culmen.strategies.seed_pool import Allocate, Evaluated, KmeansElite, PoolScores
from culmen.strategies.settings import About, Cases, Format, check
from culmen.strategies.width import Adaptive, Fixed, Requery, Width, WidthCounter

Dimensions = Annotated[
    tuple[str, ...],
    About("dimensions of the grid; none: the task's, else complexity and diversity"),
]
Bins = Annotated[int, About("bins per dimension", least=1)]
Exploration = Annotated[
    float, About("share of parents drawn from all cells alike", least=0, most=1)
]
Exploitation = Annotated[
    float,
    About("share of parents drawn from the elites; the rest is drawn by rank", least=0, most=1),
]
EliteShare = Annotated[
    float, About("share of the cells that counts as the elites", least=0, most=1)
]
Top = Annotated[int, About("best other programs shown", least=0)]
Diverse = Annotated[int, About("programs from distant cells shown", least=0)]
Interval = Annotated[int, About("iterations of an island between two migrations", least=1)]
Rate = Annotated[
    float, About("share of an island that competes for cells of the next; 0: none", least=0, most=1)
]
_Widths = Annotated[Width, About("candidates per request", choices=(Adaptive, Fixed))]
Judged = Sequence[tuple[Rollout, Elite | None]]


@dataclass(frozen=True)
class TurboEvolve:
    """Search on islands, each a MAP-Elites grid, that never wait for one another.

    An island draws a parent and inspirations, asks for K candidates in one request, evaluates them,
    inserts them, and adapts its K: wider after three iterations that changed nothing in its grid,
    narrower after three that all did. Every `interval` iterations the best of an island compete for
    cells of the next one on the ring.

    Several seeds (a pool, `culmen run --pool`) are evaluated, clustered by meaning, one cluster per
    island, and mixed a little. For deterministic evaluators and expensive model calls: one prompt
    pays for several candidates.
    """

    paper = (
        "TurboEvolve: LLM-driven program evolution with verbalized sampling, adaptive K and seed "
        "pools"
    )

    islands: Annotated[int, About("populations side by side", least=1)] = 5
    width: _Widths = field(default=Adaptive())
    format: Format = "verbalized_auto"
    requery: Annotated[Requery, About("action if a reply holds too few candidates")] = field(
        default=Requery()
    )
    allocation: Allocate = field(default=KmeansElite())
    pool_scores: PoolScores = field(default=Evaluated())
    features: Dimensions = ()
    bins: Bins = 10
    exploration: Exploration = 0.2
    exploitation: Exploitation = 0.7
    elites: EliteShare = 0.2
    top: Top = 3
    diverse: Diverse = 2
    interval: Interval = 10
    rate: Rate = 0.1
    batch: Cases = None
    lanes: Annotated[
        int | None, About("turns at once over all islands; none: one on each", least=1)
    ] = None

    def __post_init__(self) -> None:
        check(self)

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        archives = lab.restored
        if not isinstance(archives, _Archives):
            judge = self.make_judge(lab)
            islands = self.make_islands(judge, self.selection)
            await self.insert_initial_programs(lab, judge, islands)  # 3.3
            clocks = [IslandClock(self.width.begin_counter()) for _ in islands]
            lanes = range(max(self.islands, self.lanes or 0))
            places = [lane % self.islands for lane in lanes]
            archives = _Archives(judge, islands, clocks, places)
        lanes = range(len(archives.places))
        await lab.gather(*(self.run_lane(lab, archives, lane) for lane in lanes))

    @property
    def selection(self) -> Selection:
        """Rule by which islands choose parents and inspirations."""
        return Selection(self.exploration, self.exploitation, self.elites, self.top, self.diverse)

    def make_judge(self, lab: Lab) -> Judge:
        """The evaluator that all islands share."""
        return Judge(lab, self.features, self.bins, self.batch)

    def make_islands(self, judge: Judge, chosen: Selection) -> Sequence[ArchiveIsland]:
        """The islands, empty."""
        return [GridIsland(judge.empty_grid(), chosen) for _ in range(self.islands)]

    def migrate_if_due(
        self, islands: Sequence[ArchiveIsland], i: int, turn: int
    ) -> list[Placement]:
        """Migrate after a turn of one island, if it is due."""
        if turn % self.interval:
            return []
        grids = [island for island in islands if isinstance(island, GridIsland)]
        return migrate_to_next(grids, i, self.rate)

    async def insert_initial_programs(
        self, lab: Lab, judge: Judge, islands: Sequence[ArchiveIsland]
    ) -> None:
        """Divide the feasible seeds, ranked by score, among islands and insert them (3.3)."""
        seeds = await self.pool_scores.initial_elites(lab, judge)
        clusters = await self.allocation.allocate(
            lab,
            [seed.rollout.candidate for seed in seeds],
            [seed.reward for seed in seeds],
            len(islands),
        )
        for i, (island, cluster) in enumerate(zip(islands, clusters)):
            placed = [(seeds[n], island.grid.offer_elite(seeds[n])) for n in cluster]
            fates = [{**_elite_data(island, elite), "outcome": at.outcome} for elite, at in placed]
            lab.note("seeded", island=i, seeds=fates)

    async def run_lane(self, lab: Lab, archives: _Archives, lane: int) -> None:
        """Loop on one island, or, for a further lane, on each in turn.

        A turn awaits nothing of any other loop.
        """
        judge, islands, clocks, places = archives
        while True:
            await lab.checkpoint(archives)
            i = places[lane]
            if lane >= self.islands:
                places[lane] = (i + 1) % self.islands
            island, width, turn = islands[i], clocks[i].width, clocks[i].begin_turn()
            parent = island.draw_parent(lab.rng)
            inspirations = island.draw_inspirations(parent, lab.rng) if parent else []
            brief = self.turn_brief(lab, i, parent, inspirations, width.k)
            candidates, faults = await self.requery.propose_with_retries(lab, brief)  # 3.1
            candidates = [*candidates, *lab.handed()]  # a person's candidates count like a model's
            judged = await judge.judge_candidates(lab, judge.take_unknown(candidates))
            placed = {
                r.candidate.id: island.grid.offer_elite(elite) for r, elite in judged if elite
            }  # in the reply's order
            fates = {at.outcome for at in placed.values()}
            width.record_iteration(
                bool(fates & {"new", "replaced"}), "replaced" in fates
            )  # 3.2, u of this iteration
            migrants = self.migrate_if_due(islands, i, turn)
            lab.note(
                "event",
                island=i,
                turn=turn,
                k=brief.k,
                next_k=width.k,
                cells=len(island),
                quality=island.grid.quality,
                best=island.best.reward if island.best else None,
                parent=_elite_data(island, parent) if parent else None,
                inspirations=[_elite_data(island, elite) for elite in inspirations],
                candidates=_candidate_outcomes(island, candidates, judged, placed),
                faults=faults,
                migrated=sum(at.entered for at in migrants),
            )

    def turn_brief(
        self, lab: Lab, i: int, parent: Elite | None, inspirations: Sequence[Elite], k: int
    ) -> Brief:
        """The request of one turn.

        An empty island improves the first initial program, or asks for a first candidate.
        """
        if parent is None:
            first = lab.seeds[0] if lab.seeds else None
            return Brief(first, k=k, format=self.format, island=i)
        shown = tuple(Exhibit(elite.rollout.candidate, elite.reward) for elite in inspirations)
        rollout = parent.rollout
        seen = rollout.observations
        return Brief(
            rollout.candidate, seen, parent.reward, shown, k=k, format=self.format, island=i
        )


@dataclass
class IslandClock:
    """An island's width, and the number of its turns begun."""

    width: WidthCounter
    turns: int = 0

    def begin_turn(self) -> int:
        """The number of the next turn, from 1."""
        self.turns += 1
        return self.turns


class _Archives(NamedTuple):
    """The islands of one search, the judge that they share, and each lane's next island."""

    judge: Judge
    islands: Sequence[ArchiveIsland]
    clocks: list[IslandClock]
    places: list[int]


def _candidate_outcomes(
    island: ArchiveIsland,
    candidates: Sequence[Candidate],
    judged: Judged,
    placed: dict[str, Placement],
) -> list[JsonObject]:
    """Outcome of each candidate in the order of the reply.

    Rank, status, reward and cell (Section 6).
    """
    known = {
        rollout.candidate.id: _candidate_outcome(island, rollout, elite, placed)
        for rollout, elite in judged
    }
    repeat = {"status": "known"}  # judged before, on this island or another
    return [
        {"id": c.id, "rank": rank, "weight": c.origin.weight, **known.get(c.id, repeat)}
        for rank, c in enumerate(candidates)
    ]


def _candidate_outcome(
    island: ArchiveIsland, rollout: Rollout, elite: Elite | None, placed: dict[str, Placement]
) -> JsonObject:
    if elite is None:
        return {"status": next((o.status.value for o in rollout.observations if not o.ok), "lost")}
    return {
        "status": "ok",
        **_elite_data(island, elite),
        "outcome": placed[rollout.candidate.id].outcome,
    }


def _elite_data(island: ArchiveIsland, elite: Elite) -> JsonObject:
    """Id, reward, features, and present cell of an elite, for the journal.

    All cells within one note belong to one layout of the grid.
    """
    cell = list(island.grid.cell_of(elite.features))
    return {
        "id": elite.rollout.candidate.id,
        "reward": elite.reward,
        "features": list(elite.features),
        "cell": cell,
    }
