"""Waiting for a record: the chance of the wait, and lineages for a stalled search."""

from __future__ import annotations

import math
from random import Random

_LUCK = 4.0  # fall of the best value, in margins, after which a record counts as luck


class Records:
    """The time that a search has waited for a record, and the chance of such a wait.

    After k records in W evaluations, S more without one have a chance of about (1 + S/W)^-k if
    records kept coming at the rate seen. A value is an estimate, and a record may prove to be worth
    far less: then the next record is the one that passes the best value of today, but the wait goes
    on, since there was no discovery.
    """

    def __init__(self) -> None:
        self.count = self.at = 0
        self.level = -math.inf

    def record_best(self, level: float, now: int, margin: float) -> bool:
        """Enter the best value after `now` evaluations; True if it is a record by over `margin`."""
        if level < self.level - _LUCK * margin:
            self.level = level
        if level <= self.level + margin:
            return False
        self.count += self.level > -math.inf  # the first value is no record
        self.level, self.at = level, now
        return True

    def wait_chance(self, now: int, evaluations: int = 0, records: int = 0) -> float:
        """Chance of a wait until `now`.

        `evaluations` and `records` were made elsewhere at the same rate.
        """
        waited, count = max(now - self.at, 0), self.count + records
        return (1.0 + waited / max(self.at + evaluations, 1)) ** -count


class Lineages:
    """Searches of their own inside a search that has stalled, one after another.

    A lineage is a candidate that was never tried as a parent, and its descendants. Its records
    count within the lineage alone, so a search can walk through worse candidates to better ones. It
    is given up when its wait has become improbable, too.
    """

    def __init__(self, longest: int = 60) -> None:
        self.number = 0  # number of the present lineage; 0 before the first
        self.members: list[int] = []  # nodes of it
        self._longest = longest
        self._records, self._now = Records(), 0
        self._evaluations = self._found = 0  # in lineages that were given up

    def begin_lineage(self, untried: list[int], level: list[float], rng: Random) -> None:
        """Begin with one of the `untried` nodes, drawn at random; `level` is the value of each."""
        self._evaluations, self._found = (
            self._evaluations + self._now,
            self._found + self._records.count,
        )
        node = rng.choice(untried)
        self.number, self.members = self.number + 1, [node]
        self._records, self._now = Records(), 0
        self._records.level = level[untried.index(node)]

    def add_child(self, node: int) -> None:
        """Enter a child of a member that was evaluated."""
        self.members.append(node)
        self._now += 1

    def record_best(self, level: float, margin: float) -> None:
        """Enter the best value of the lineage."""
        self._records.record_best(level, self._now, margin)

    def should_give_up(self, records: Records, threshold: float) -> bool:
        """True if the lineage should be given up."""
        chance = self._records.wait_chance(
            self._now, records.at + self._evaluations, records.count + self._found
        )
        return chance < threshold or self._now - self._records.at > self._longest
