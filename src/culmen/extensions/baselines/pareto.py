"""GEPA's memory: the per-case Pareto frontier (Algorithm 2), and the family tree.

Merges are made from the family tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from culmen.core.candidate import Candidate, Origin
from culmen.core.spread import sum_floats


class Frontier:
    """Candidates by key with one reward per case; a missing or failed case counts as -inf."""

    def __init__(self) -> None:
        self._rewards: dict[str, dict[str, float]] = {}
        self._best: dict[str, float] = {}
        self._fronts: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._rewards)

    def __contains__(self, key: object) -> bool:
        return key in self._rewards

    def add(self, key: str, rewards: Mapping[str, float | None]) -> bool:
        """Enter a candidate; True if it is now among the best on some case.

        A known key is not entered again.
        """
        if key in self._rewards:
            return False
        mine = self._rewards[key] = {
            case: -math.inf if r is None else r for case, r in rewards.items()
        }
        leads = False
        for case, reward in mine.items():
            best = self._best.get(case, -math.inf)
            if reward > best or case not in self._fronts:
                self._best[case], self._fronts[case] = reward, {key: None}
                leads = True
            elif reward == best:
                self._fronts[case][key] = None
                leads = True
        return leads

    def rewards_of(self, key: str) -> dict[str, float]:
        """The rewards of one candidate by case; KeyError for an unknown one."""
        return self._rewards[key]

    def mean_reward(self, key: str) -> float:
        """Mean reward over the candidate's cases, -inf if any failed or there is none."""
        mine = self._rewards[key]
        return sum_floats(mine.values()) / len(mine) if mine else -math.inf

    def dominates(self, one: str, other: str) -> bool:
        """True if `one` is at least as good on every case and better on one."""
        mine, its = self._rewards[one], self._rewards[other]
        cases = {**mine, **its}
        gaps = [(mine.get(case, -math.inf), its.get(case, -math.inf)) for case in cases]
        return all(a >= b for a, b in gaps) and any(a > b for a, b in gaps)

    def led_case_counts(self) -> dict[str, int]:
        """Number of cases on which each candidate is among the best.

        Candidates dominated by another one of them are left out.
        """
        members = list(dict.fromkeys(key for front in self._fronts.values() for key in front))
        kept = [
            key
            for key in members
            if not any(self.dominates(other, key) for other in members if other != key)
        ]
        counts = {key: sum(key in front for front in self._fronts.values()) for key in kept}
        return {key: count for key, count in counts.items() if count}

    def sample_candidate(self, rng: Random) -> str | None:
        """A candidate with probability proportional to its led cases; None if there is none."""
        counts = self.led_case_counts()
        return rng.choices(list(counts), list(counts.values()))[0] if counts else None


_ATTEMPTS = 10


class Merge(NamedTuple):
    """A merged candidate and the ids of its two parents."""

    child: Candidate
    one: str
    two: str


class Family:
    """Ancestry of candidates, and the merges made so far."""

    def __init__(self) -> None:
        self.members: dict[str, Candidate] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        self._made: dict[tuple[str, str, str], None] = {}

    def add(self, candidate: Candidate, *parents: str) -> None:
        """Enter a candidate with its parents."""
        self.members.setdefault(candidate.id, candidate)
        self._parents.setdefault(candidate.id, parents)

    def ancestors_of(self, key: str) -> dict[str, None]:
        """All ancestors, nearest first."""
        ancestors: dict[str, None] = {}
        queue = list(self._parents.get(key, ()))
        while queue:
            name = queue.pop(0)
            if name not in ancestors:
                ancestors[name] = None
                queue += self._parents.get(name, ())
        return ancestors

    def draw_merge(self, frontier: Frontier, rng: Random) -> Merge | None:
        """Merge two leading candidates, neither descended from the other; None if no draw fits.

        They are merged through a common ancestor that is no better than either, if each has a part
        that only it changed. A few pairs are drawn.
        """
        leaders = list(frontier.led_case_counts())
        for _ in range(_ATTEMPTS if len(leaders) > 1 else 0):
            one, two = rng.sample(leaders, 2)
            above, beside = self.ancestors_of(one), self.ancestors_of(two)
            if one in beside or two in above:
                continue
            for ancestor in (name for name in above if name in beside):
                if (one, two, ancestor) in self._made or not self._is_worth_merging(
                    frontier, ancestor, one, two
                ):
                    continue
                self._made[one, two, ancestor] = self._made[two, one, ancestor] = None
                better = one if frontier.mean_reward(one) >= frontier.mean_reward(two) else two
                parts = self._merged_parts(ancestor, one, two, better)
                return Merge(Candidate.of(parts, (one, two), Origin(operator="merge")), one, two)
        return None

    def _is_worth_merging(self, frontier: Frontier, ancestor: str, one: str, two: str) -> bool:
        floor = frontier.mean_reward(ancestor) if ancestor in frontier else float("-inf")
        if floor > min(frontier.mean_reward(one), frontier.mean_reward(two)):
            return False
        old, a, b = (self.members[key].parts for key in (ancestor, one, two))
        only_one = any(a.get(name) != text and b.get(name) == text for name, text in old.items())
        only_two = any(b.get(name) != text and a.get(name) == text for name, text in old.items())
        return only_one and only_two

    def _merged_parts(self, ancestor: str, one: str, two: str, better: str) -> Mapping[str, str]:
        """Each part from the candidate that changed it.

        If both did, from the one of higher mean.
        """
        old, a, b = (self.members[key].parts for key in (ancestor, one, two))
        best = self.members[better].parts
        return {
            name: b[name] if a[name] == text else a[name] if b[name] == text else best[name]
            for name, text in old.items()
        }
