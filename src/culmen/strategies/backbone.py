"""Backbones of island searches: where programs are kept, and how islands exchange them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Annotated, ClassVar, Protocol

import msgspec

from culmen.core.brief import Brief
from culmen.strategies.judging import Judge
from culmen.strategies.memory.grid import (
    ArchiveIsland,
    Axis,
    Cell,
    Elite,
    GridIsland,
    Placement,
    Selection,
    migrate_to_next,
)
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


# OpenEvolve's database of programs (0.4.1): islands, cells that thin them, one archive.

_LEAST = 0.001  # weight of a program whose fitness is no higher
# cells that a near one is away along each axis at most, and tries for each place
_NEAR, _TRIES = 2, 3


@dataclass(eq=False)
class Member:
    """A program of one island.

    A `migrant` is a copy from another island, and does not migrate again.
    """

    elite: Elite
    island: int
    migrant: bool = False


class ProgramPopulation:
    """All islands of one search.

    `archive` and `most` are the sizes of the archive and of the whole population.
    """

    def __init__(
        self, axes: Sequence[Axis], islands: int, selection: Selection, archive: int, most: int
    ) -> None:
        self.axes, self.selection = tuple(axes), selection
        self._sizes = (archive, most)
        self._best: Member | None = None
        self._spans: list[tuple[float, float] | None] = [None] * len(self.axes)
        self.archive: list[Member] = []
        self.islands = [ProgramIsland(self, number) for number in range(islands)]
        self._generations, self._migrated = [0] * islands, 0

    def cell_of(self, features: Sequence[float]) -> Cell:
        """The cell of these features within the ranges seen so far.

        The middle one on an axis whose values were all alike.
        """
        return tuple(
            self._bin_index(axis, *each)
            for axis, each in zip(self.axes, zip(features, self._spans), strict=True)
        )

    @staticmethod
    def _bin_index(axis: Axis, value: float, span: tuple[float, float] | None) -> int:
        low, high = span or (value, value)
        share = 0.5 if high == low else min(1.0, max(0.0, (value - low) / (high - low)))
        return min(axis.bins - 1, int(share * axis.bins))

    def add_member(self, member: Member) -> Placement:
        """Add a program to its island and the archive, and to its cell if it beats the occupant."""
        values, island = member.elite.features, self.islands[member.island]
        self._spans = [
            (min(value, span[0]), max(value, span[1])) if span else (value, value)
            for value, span in zip(values, self._spans, strict=True)
        ]
        cell = self.cell_of(values)
        holder = island.cells.get(cell)
        wins = holder is None or member.elite.reward > holder.elite.reward
        if wins:
            island.cells[cell] = member
        island.members.append(member)
        if wins and holder is not None and holder in self.archive:
            self.archive[self.archive.index(holder)] = member
        self._archive_member(member)
        if self._best is None or member.elite.reward > self._best.elite.reward:
            self._best = member
        if wins and holder is not None:
            self._remove_member(holder)
        self._remove_surplus(member)
        return Placement(cell, wins, holder.elite if holder else None)

    def _archive_member(self, member: Member) -> None:
        """Add a program to the archive, in place of the worst one if it is full."""
        if member in self.archive:
            return
        if len(self.archive) < self._sizes[0]:
            self.archive.append(member)
            return
        worst = min(self.archive, key=lambda each: each.elite.reward)
        if member.elite.reward > worst.elite.reward:
            self.archive.remove(worst)
            self.archive.append(member)

    def _remove_member(self, member: Member) -> None:
        island = self.islands[member.island]
        island.members.remove(member)
        island.cells = {cell: held for cell, held in island.cells.items() if held is not member}
        if member in self.archive:
            self.archive.remove(member)

    def _remove_surplus(self, newest: Member) -> None:
        """Remove the worst, those without a cell first; never the newest or the best one."""
        members = [member for island in self.islands for member in island.members]
        if len(members) <= self._sizes[1]:
            return
        held = {member for island in self.islands for member in island.cells.values()}
        spare = [member for member in members if member is not newest and member is not self._best]
        spare.sort(key=lambda member: (member in held, member.elite.reward))
        for member in spare[: len(members) - self._sizes[1]]:
            self._remove_member(member)

    def count_and_migrate(self, island: int, interval: int, rate: float) -> list[Placement]:
        """Count an iteration of an island, and migrate if it is time.

        All islands exchange programs every `interval` iterations of the one that is furthest.
        """
        self._generations[island] += 1
        furthest = max(self._generations)
        if furthest - self._migrated < interval:
            return []
        self._migrated = furthest
        return self.copy_to_neighbours(rate)

    def copy_to_neighbours(self, rate: float) -> list[Placement]:
        """Copy the best `int(rate * size)` of each island, at least one, to both its neighbours.

        All are chosen before the first is copied. Copies are not chosen; programs that the
        neighbour has by then, and those that a copy displaced, are left out. Islands form a ring.
        """
        size, moves = len(self.islands), list[tuple[Member, int]]()
        for number, island in enumerate(self.islands if size > 1 else ()):
            own = [member for member in island.members if not member.migrant]
            own.sort(key=lambda member: -member.elite.reward)
            targets = (number + 1) % size, (number - 1) % size
            best = own[: max(1, int(len(own) * rate))]
            moves += [(member, target) for member in best for target in targets]
        placed = [self._copy_member(member, target) for member, target in moves]
        return [placement for placement in placed if placement is not None]

    def _copy_member(self, member: Member, target: int) -> Placement | None:
        """Copy a program to an island; None if it is gone, or the island has its text."""
        if member not in self.islands[member.island].members:
            return None
        digest = member.elite.rollout.candidate.digest
        there = {each.elite.rollout.candidate.digest for each in self.islands[target].members}
        if digest in there:
            return None
        return self.add_member(Member(member.elite, target, migrant=True))


class ProgramIsland:
    """One island of a population, with the interface of `memory.grid.GridIsland`."""

    def __init__(self, population: ProgramPopulation, number: int) -> None:
        self.population, self._number = population, number
        self.members: list[Member] = []
        self.cells: dict[Cell, Member] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def grid(self) -> ProgramIsland:
        """The island itself, which takes offers."""
        return self

    @property
    def best(self) -> Elite | None:
        """The program of the highest reward; None without any."""
        return max(
            (member.elite for member in self.members), key=lambda elite: elite.reward, default=None
        )

    @property
    def quality(self) -> float | None:
        """Mean reward of the programs that hold a cell; None without any."""
        return fmean(member.elite.reward for member in self.cells.values()) if self.cells else None

    def cell_of(self, features: Sequence[float]) -> Cell:
        """The present cell of these features."""
        return self.population.cell_of(features)

    def offer_elite(self, elite: Elite) -> Placement:
        """Add a program; returns the outcome for its cell."""
        return self.population.add_member(Member(elite, self._number))

    def draw_parent(self, rng: Random) -> Elite | None:
        """Draw a parent; None if this island and the first one are empty.

        From the whole island, from the archive (the island's own part of it, if any), or weighted
        by reward. An empty island draws from the first one.
        """
        if not self.members:
            first = self.population.islands[0]
            return first.draw_parent(rng) if first.members else None
        chosen, draw = self.population.selection, rng.random()
        if draw < chosen.exploration:
            return rng.choice(self.members).elite
        if draw < chosen.exploration + chosen.exploitation:
            archive = self.population.archive
            return rng.choice(
                [each for each in archive if each.island == self._number] or archive
            ).elite
        weights = [max(member.elite.reward, _LEAST) for member in self.members]
        return rng.choices(self.members, weights)[0].elite

    def draw_inspirations(self, parent: Elite, rng: Random) -> list[Elite]:
        """The best of the island, then programs of near cells, without the parent and repeats."""
        chosen = self.population.selection
        ranked = self.ranked_elites()
        shown = [elite for elite in ranked[: chosen.top + chosen.diverse] if elite is not parent]
        drawn = self._drawn_inspirations(parent, ranked, chosen.diverse, rng)
        return shown + [elite for elite in drawn if not any(elite is other for other in shown)]

    def ranked_elites(self) -> list[Elite]:
        """The programs of the island, best first."""
        return [each.elite for each in sorted(self.members, key=lambda each: -each.elite.reward)]

    def _drawn_inspirations(
        self, parent: Elite, ranked: list[Elite], wanted: int, rng: Random
    ) -> list[Elite]:
        """`wanted` programs: the best ones, then some of near cells, then any.

        Near cells are at most two away along each axis.
        """
        best = [
            elite
            for elite in ranked[: max(1, int(wanted * self.population.selection.elites))]
            if elite is not parent
        ][:wanted]
        if len(best) >= wanted:
            return best
        elites_by_cell = {
            self.cell_of(member.elite.features): member.elite for member in self.members
        }
        here, drawn = self.cell_of(parent.features), list(best)
        tops = [axis.bins - 1 for axis in self.population.axes]
        for _ in range(_TRIES * (wanted - len(best))):
            steps = [rng.randint(-_NEAR, _NEAR) for _ in here]
            near = elites_by_cell.get(
                tuple(
                    max(0, min(top, at + step))
                    for at, step, top in zip(here, steps, tops, strict=True)
                )
            )
            if (
                near is not None
                and near is not parent
                and not any(near is other for other in drawn)
            ):
                drawn.append(near)
            if len(drawn) == wanted:
                return drawn
        rest = [
            elite
            for elite in ranked
            if elite is not parent and not any(elite is other for other in drawn)
        ]
        return drawn + rng.sample(rest, min(wanted - len(drawn), len(rest)))
