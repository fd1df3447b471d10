"""Loops on islands that never wait for one another, of K candidates a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.strategies.backbone import Backbone
from culmen.strategies.inspirations import Inspirations
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import ArchiveIsland, Elite, Placement, Selection
from culmen.strategies.seed_pool import Allocation, InitialScores
from culmen.strategies.width import Requery, Width, WidthCounter

Judged = Sequence[tuple[Rollout, Elite | None]]


@dataclass(frozen=True)
class IslandLoops:
    """The parts of an island search, and its loop.

    `lanes` are turns at once over all islands; `interval` and `rate` belong to migration; of the
    candidates of a request a share `tail` is asked for from the tail of the
    model's distribution.
    """

    backbone: Backbone
    islands: int
    lanes: int
    width: Width
    format: str
    requery: Requery
    selection: Selection
    inspirations: Inspirations
    interval: int
    rate: float
    tail: float

    async def search(
        self, lab: Lab, judge: Judge, allocation: Allocation, scores: InitialScores
    ) -> None:
        """Run until the budget ends it."""
        archives = lab.restored
        if not isinstance(archives, _Archives):
            islands = self.backbone.make_islands(judge, self.islands, self.selection)
            await self.insert_initial_programs(lab, judge, islands, allocation, scores)
            clocks = [IslandClock(self.width.begin_counter()) for _ in islands]
            places = [lane % self.islands for lane in range(max(self.islands, self.lanes))]
            archives = _Archives(judge, islands, clocks, places)
        lanes = range(len(archives.places))
        await lab.gather(*(self.run_lane(lab, archives, lane) for lane in lanes))

    async def insert_initial_programs(
        self,
        lab: Lab,
        judge: Judge,
        islands: Sequence[ArchiveIsland],
        allocation: Allocation,
        scores: InitialScores,
    ) -> None:
        """Divide the feasible initial programs, ranked by score, among islands and insert them."""
        seeds = await scores.initial_elites(lab, judge)
        programs, rewards = [s.rollout.candidate for s in seeds], [s.reward for s in seeds]
        clusters = await allocation.allocate(lab, programs, rewards, len(islands))
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
            inspirations = self.draw_inspirations(lab, island, parent)
            brief = self.turn_brief(lab, judge, i, parent, inspirations, width.k)
            candidates, faults = await self.requery.propose_with_retries(lab, brief)
            candidates = [*candidates, *lab.handed()]  # a person's candidates count like a model's
            judged = await judge.judge_candidates(lab, judge.take_unknown(candidates))
            placed = {
                r.candidate.id: island.grid.offer_elite(elite) for r, elite in judged if elite
            }  # in the reply's order
            fates = {at.outcome for at in placed.values()}
            width.record_iteration(
                bool(fates & {"new", "replaced"}), "replaced" in fates
            )  # u of this iteration (TurboEvolve, 3.2)
            migrants = self.backbone.migrate_if_due(islands, i, turn, self.interval, self.rate)
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
                migrated=sum(int(at.entered) for at in migrants),
            )

    def draw_inspirations(
        self, lab: Lab, island: ArchiveIsland, parent: Elite | None
    ) -> list[Elite]:
        """Programs shown beside the parent; none without one."""
        if parent is None:
            return []
        return self.inspirations.draw_inspirations(island, parent, self.selection, lab.rng)

    def turn_brief(
        self,
        lab: Lab,
        judge: Judge,
        i: int,
        parent: Elite | None,
        inspirations: Sequence[Elite],
        k: int,
    ) -> Brief:
        """The request of one turn.

        An empty island improves the first initial program, or asks for a first candidate.
        """
        if parent is None:
            first = lab.seeds[0] if lab.seeds else None
            brief = Brief(first, k=k, format=self.format, island=i)
        else:
            shown = tuple(Exhibit(each.rollout.candidate, each.reward) for each in inspirations)
            own = parent.rollout.candidate, parent.rollout.observations, parent.reward, shown
            brief = Brief(*own, k=k, format=self.format, island=i)
        brief = self.backbone.with_features(brief, judge.names, inspirations)
        context = "\n\n".join(filter(None, (brief.context, tail_text(self.tail, k))))
        return msgspec.structs.replace(brief, context=context)


def tail_text(share: float, k: int) -> str:
    """Words that ask for int(`share` * `k`) candidates from the tail; "" for none (2.3)."""
    count = int(share * k)
    if not count:
        return ""
    return (
        f"Draw at least {count} of the {k} candidates from the tail of what you hold possible: "
        "approaches that you would rarely give, each with a lower probability than the others."
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
