"""Observations in the order of their arrival, and the candidates they belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Floats, Ints, sum_by_row, with_room


class Sample(NamedTuple):
    """The first observations of a run, for inference.

    `parents` (size,): row of each row's parent, -1 for none. `rows`, `cases`, `rewards`: scored
    observations. `failures` (size,): failed observations of each row. `case_count`: cases scored so
    far. `exact`: repeating an evaluation is assumed to give the same score.
    """

    parents: Ints
    rows: Ints
    cases: Ints
    rewards: Floats
    failures: Floats
    case_count: int
    exact: bool

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.parents)

    @property
    def is_noiseless(self) -> bool:
        """True if one evaluation determines a candidate: exact, and at most one case."""
        return self.exact and self.case_count <= 1


class Observations:
    """All observations of a run. Append-only: `first` gives the same sample at any later time.

    A candidate has a number, its place among all that were added, and a row, its place among those
    that take part in inference: it gets one with the first observation of itself or of a
    descendant. Rows of ancestors are smaller than those of descendants. `declared`: the user's
    declaration of exactness, None if unknown.
    """

    def __init__(self, declared: bool | None = None) -> None:
        self.declared = declared
        self.index: dict[str, int] = {}
        self.ids: list[str] = []
        self.count = 0
        self.repeats = 0  # scored evaluations of a candidate on a case after the first
        self.confirmed = 0  # repeats with the same value, which no other candidate has
        # `count` at which a repeat first differed, or an evaluation first drew random numbers
        self.differed_at: int | None = None
        self._parents = np.full(64, -1, np.int64)  # by number
        self._row_of = np.full(64, -1, np.int64)  # by number
        self._row_parents = np.zeros(64, np.int64)  # by row
        self._size = 0  # rows
        self.is_in_order = True  # every row so far is its candidate's number
        self._rows = np.zeros(64, np.int64)  # by observation, as all that follow
        self._cases = np.zeros(64, np.int64)
        self._rewards = np.zeros(64)  # nan: failed
        self._sizes = np.zeros(64, np.int64)  # rows after this observation
        self._case_counts = np.zeros(64, np.int64)  # cases after it
        self._case_numbers: dict[str, int] = {}
        self._firsts: dict[tuple[int, int], float] = {}  # first score of a candidate on a case
        self._owners: dict[float, int] = {}  # candidate with this very score (-1: several)

    @property
    def parents(self) -> Ints:
        """Number of each candidate's parent, -1 for none."""
        return self._parents[: len(self.ids)]

    @property
    def rows(self) -> Ints:
        """Row of each candidate by number, -1 while it takes no part."""
        return self._row_of[: len(self.ids)]

    @property
    def case_count(self) -> int:
        """Number of cases with a scored evaluation."""
        return len(self._case_numbers)

    def add_candidate(self, id: str, parents: Sequence[str] = ()) -> int:
        """Enter a candidate and return its number; its parent is the first one known by now."""
        if id in self.index:
            return self.index[id]
        number = self.index[id] = len(self.ids)
        self.ids.append(id)
        self._parents = with_room(self._parents, number)
        self._row_of = with_room(self._row_of, number)
        above = (self.index[each] for each in parents if each in self.index and each != id)
        self._parents[number], self._row_of[number] = next(above, -1), -1
        return number

    def append(self, id: str, reward: float | None, case: str, drew: bool = False) -> bool:
        """Enter one evaluation (None: it failed); True if scores are to be judged anew.

        That is at the first score, the first repeat that differs, the first evaluation that `drew`
        random numbers, and the first second case.
        """
        number, index = self.add_candidate(id), self.count
        self._make_room(index)
        self._rows[index] = self._assign_row(number)
        self._rewards[index] = math.nan if reward is None else reward
        self.count += 1
        cases, differed_at = self.case_count, self.differed_at
        if reward is not None:
            case_number = self._case_numbers.setdefault(case, len(self._case_numbers))
            self._cases[index] = case_number
            self._judge_repeat(number, case_number, reward)
            if drew:
                self.differed_at = self.differed_at or self.count
        self._sizes[index], self._case_counts[index] = (
            self._size,
            self.case_count,
        )
        new_case = self.case_count != cases
        return self.differed_at != differed_at or (new_case and self.case_count <= 2)

    def sample_of_first(self, count: int) -> Sample:
        """Sample of the first `count` observations (at least 1)."""
        size, rewards = int(self._sizes[count - 1]), self._rewards[:count]
        scored, rows = ~np.isnan(rewards), self._rows[:count]
        failures = sum_by_row(rows[~scored], None, size)
        same = self.differed_at is None or count < self.differed_at
        return Sample(
            self._row_parents[:size],
            rows[scored],
            self._cases[:count][scored],
            rewards[scored],
            failures,
            int(self._case_counts[count - 1]),
            same if self.declared is None else self.declared,
        )

    def _make_room(self, place: int) -> None:
        self._rows, self._cases = with_room(self._rows, place), with_room(self._cases, place)
        self._rewards, self._sizes = with_room(self._rewards, place), with_room(self._sizes, place)
        self._case_counts = with_room(self._case_counts, place)

    def _assign_row(self, number: int) -> int:
        """Row of a candidate; it and its ancestors get one each if they have none."""
        line: list[int] = []
        while number >= 0 and self._row_of[number] < 0:
            line.append(number)
            number = int(self._parents[number])
        row = int(self._row_of[number]) if number >= 0 else -1
        for descendant in reversed(line):
            new_row = self._size
            self._row_parents = with_room(self._row_parents, new_row)
            self._row_parents[new_row] = row
            self._row_of[descendant] = row = new_row
            self.is_in_order &= descendant == new_row
            self._size += 1
        return row

    def _judge_repeat(self, number: int, case: int, reward: float) -> None:
        """Judge exactness: equal values count for it only if no other candidate has the value."""
        known = (number, case) in self._firsts
        first = self._firsts.setdefault((number, case), reward)
        self.repeats += known
        if reward != first:
            self.differed_at = self.differed_at or self.count
        elif known and self._owners.get(reward) == number:
            self.confirmed += 1
        owner = self._owners.get(reward, number)
        self._owners[reward] = number if owner == number else -1
