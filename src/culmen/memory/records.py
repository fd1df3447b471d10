"""Waiting for a record: how improbable the wait has become, and the lineages that a stalled search
tries meanwhile.
"""

from __future__ import annotations

import math
from random import Random

_LUCK = 4.0  # margins by which the best value must have fallen for the record to have been luck


class Records:
    """How long a search has waited for a record, and how improbable that is.

    After k records in W evaluations, S more without one have a chance of about (1 + S/W)^-k if
    records kept coming at the rate seen. A value is an estimate, and what set a record may prove to
    be worth far less: then the next record is the one that passes the best value of today, but the
    wait goes on, since nothing was found.
    """

    def __init__(self) -> None:
        self.count = self.at = 0
        self.level = -math.inf

    def see(self, level: float, now: int, margin: float) -> bool:
        """Enter the best value after `now` evaluations; whether it is a record by more than
        `margin`.
        """
        if level < self.level - _LUCK * margin:
            self.level = level
        if level <= self.level + margin:
            return False
        self.count += self.level > -math.inf  # the first value is no record
        self.level, self.at = level, now
        return True

    def chance(self, now: int, evaluations: int = 0, records: int = 0) -> float:
        """Chance to have waited until `now`, with `evaluations` and `records` made elsewhere at the
        same rate.
        """
        waited, count = max(now - self.at, 0), self.count + records
        return (1.0 + waited / max(self.at + evaluations, 1)) ** -count


class Lineages:
    """Searches of their own inside a search that has stalled, one after another: a lineage is a
    candidate that was never tried as a parent, and its descendants. Its records count within the
    lineage alone, so a search can walk through worse candidates to better ones. It is given up when
    its wait has become improbable, too.
    """

    def __init__(self, longest: int = 60) -> None:
        self.number = 0  # of the lineage that is being tried; 0 before the first
        self.members: list[int] = []  # nodes of it
        self._longest = longest
        self._records, self._now = Records(), 0
        self._evaluations = self._found = 0  # in lineages that were given up

    def begin(self, untried: list[int], level: list[float], rng: Random) -> None:
        """Begin with one of the `untried` nodes, drawn at random; `level` is the value of each."""
        self._evaluations, self._found = (
            self._evaluations + self._now,
            self._found + self._records.count,
        )
        node = rng.choice(untried)
        self.number, self.members = self.number + 1, [node]
        self._records, self._now = Records(), 0
        self._records.level = level[untried.index(node)]

    def grow(self, node: int) -> None:
        """A child of a member was evaluated."""
        self.members.append(node)
        self._now += 1

    def see(self, level: float, margin: float) -> None:
        """Enter the best value of the lineage."""
        self._records.see(level, self._now, margin)

    def over(self, whole: Records, threshold: float) -> bool:
        """Whether to give it up."""
        chance = self._records.chance(
            self._now, whole.at + self._evaluations, whole.count + self._found
        )
        return chance < threshold or self._now - self._records.at > self._longest
