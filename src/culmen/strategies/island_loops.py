"""Loops on islands that never wait for one another, of K candidates a turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, NamedTuple, Protocol

import msgspec

from culmen.core.brief import Brief, Exhibit
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Rollout
from culmen.core.json import JsonObject
from culmen.core.ports import Lab
from culmen.strategies.backbone import Backbone
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import ArchiveIsland, Elite, Placement, Selection
from culmen.strategies.seed_pool import Allocation, InitialScores
from culmen.strategies.settings import About, check

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


# Choice of the programs that a request shows beside the parent (TurboEvolve, Section 6.3).


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


# Number of candidates per request (TurboEvolve, 3.2), and repeated requests (3.1).


class WidthCounter(Protocol):
    """Current width of one island: `k` candidates per request.

    `record` takes the outcome of an iteration: True if it took a cell of the island's archive, and
    True if it replaced a cell's occupant.
    """

    @property
    def k(self) -> int: ...

    def record_iteration(self, took: bool, replaced: bool) -> None: ...


class Width(Protocol):
    """A rule for the width; every island begins a counter of its own."""

    def begin_counter(self) -> WidthCounter: ...


@dataclass(frozen=True)
class Fixed:
    """Always `k` candidates."""

    k: Annotated[int, About("candidates per request", least=1)] = 1

    def __post_init__(self) -> None:
        check(self)

    def begin_counter(self) -> WidthCounter:
        return self

    def record_iteration(self, took: bool, replaced: bool) -> None: ...


@dataclass(frozen=True)
class Adaptive:
    """K in {least, least + step, ..., most}, adapted to updates of the island's archive.

    K grows after a window without any update and falls after a window in which every iteration
    updated the archive. The first `warmup` iterations keep `start` and are not counted; then c is
    the number of iterations in each window of `window` that updated the archive, and K becomes
    min(most, K + step) if c = 0, max(least, K - step) if c = window, and stays otherwise.
    "Replacement" in the paper is taken widely, as any cell taken; strictly with `new_cells` false.
    """

    start: Annotated[int, About("candidates per request at first", least=1)] = 5
    least: Annotated[int, About("fewest candidates per request", least=1)] = 1
    most: Annotated[int, About("most candidates per request", least=1)] = 7
    step: Annotated[int, About("change of the width", least=1)] = 2
    window: Annotated[int, About("iterations per window, T in the paper", least=1)] = 3
    warmup: Annotated[int, About("iterations before the first window", least=0)] = 3
    new_cells: Annotated[
        bool, About("empty cells that are taken count as updates; false: replaced occupants alone")
    ] = True

    def __post_init__(self) -> None:
        check(self)
        legal = range(self.least, self.most + 1, self.step)
        if self.start not in legal or self.most not in legal:
            raise UserError(
                f"a width of {self.start} cannot move in steps of {self.step} between "
                f"{self.least} and {self.most}",
                where="width",
                fix="choose start and most from least, least + step, least + 2 step, ...",
            )

    def begin_counter(self) -> WidthCounter:
        return _Windowed(self)


class _Windowed:
    def __init__(self, rule: Adaptive) -> None:
        self.k, self._rule = rule.start, rule
        self._seen, self._count = -rule.warmup, 0

    def record_iteration(self, took: bool, replaced: bool) -> None:
        self._seen += 1
        if self._seen <= 0:
            return
        self._count += took if self._rule.new_cells else replaced  # c, the sum of u over the window
        if self._seen < self._rule.window:
            return
        if self._count == 0:
            self.k = min(self._rule.most, self.k + self._rule.step)
        elif self._count == self._rule.window:
            self.k = max(self._rule.least, self.k - self._rule.step)
        self._seen = self._count = 0


@dataclass(frozen=True)
class Requery:
    """Repeated requests if a reply holds too few candidates; the first K are taken.

    Replies with fewer candidates are accepted, but below `minimum` (or below K, if K is smaller)
    the same request is repeated, up to `times`, and its candidates are added.
    """

    minimum: Annotated[int, About("candidates below which a round asks again", least=0)] = 2
    times: Annotated[int, About("repeated requests in a round at most", least=0)] = 1

    def __post_init__(self) -> None:
        check(self)

    async def propose_with_retries(
        self, lab: Lab, brief: Brief
    ) -> tuple[list[Candidate], list[str]]:
        """The candidates, each content once, and the faults of requests."""
        candidates: dict[str, Candidate] = {}
        faults: list[str] = []
        for _ in range(1 + self.times):
            answer = await lab.propose(msgspec.structs.replace(brief, k=brief.k - len(candidates)))
            faults += [answer.fault] if answer.fault else []
            for candidate in answer.candidates:
                candidates.setdefault(candidate.id, candidate)
            if len(candidates) >= min(self.minimum, brief.k):
                break
        return list(candidates.values())[: brief.k], faults
