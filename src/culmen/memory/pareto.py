"""The per-case Pareto frontier of GEPA (Algorithm 2): who is best on some case, and how often."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random


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
        """Enter a candidate; True if it is now among the best on some case. A known key is not entered again."""
        if key in self._rewards:
            return False
        mine = self._rewards[key] = {case: -math.inf if r is None else r for case, r in rewards.items()}
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

    def rewards(self, key: str) -> dict[str, float]:
        """The rewards of one candidate by case; KeyError for an unknown one."""
        return self._rewards[key]

    def mean(self, key: str) -> float:
        """Mean reward over the candidate's cases, -inf if any failed or there is none."""
        mine = self._rewards[key]
        return sum(mine.values()) / len(mine) if mine else -math.inf

    def dominates(self, one: str, other: str) -> bool:
        """At least as good on every case and better on one."""
        mine, its = self._rewards[one], self._rewards[other]
        cases = {**mine, **its}
        gaps = [(mine.get(case, -math.inf), its.get(case, -math.inf)) for case in cases]
        return all(a >= b for a, b in gaps) and any(a > b for a, b in gaps)

    def leads(self) -> dict[str, int]:
        """How many cases each candidate is among the best on, without those another one of them dominates."""
        members = list(dict.fromkeys(key for front in self._fronts.values() for key in front))
        kept = [key for key in members if not any(self.dominates(other, key) for other in members if other != key)]
        counts = {key: sum(key in front for front in self._fronts.values()) for key in kept}
        return {key: count for key, count in counts.items() if count}

    def sample(self, rng: Random) -> str | None:
        """A candidate with probability proportional to the cases it leads on; None if there is none."""
        counts = self.leads()
        return rng.choices(list(counts), list(counts.values()))[0] if counts else None
