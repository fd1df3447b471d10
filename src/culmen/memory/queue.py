"""The priority queue of POLCA (Section 3): candidates, their statistics and traces, and selection by priority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.memory.quantile import Sample
from culmen.memory.selection import Earliest, Priority, Ties
from culmen.memory.statistics import Floats, Statistics
from culmen.memory.traces import Traces


def top(scores: Floats, k: int, ties: Ties, rng: Random) -> list[int]:
    """Rows of the k highest scores, highest first; fewer if there are fewer. NaN rows only if all are NaN."""
    rows = np.flatnonzero(~np.isnan(scores))
    if len(rows) == 0:
        scores, rows = np.zeros(len(scores)), np.arange(len(scores))
    if len(rows) > k:
        last = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= last]
    ordered = ties.order([int(row) for row in rows], rng)
    return sorted(ordered, key=lambda row: -float(scores[row]))[:k]


class PriorityQueue:
    """Q: everything admitted to a search, in order of arrival, with what is known of it.

    `take` selects programs to explore and marks them as in hand until `release`, so that loops sharing one queue
    spread over different programs; when all are in hand they are shared.
    """

    def __init__(self, floor: float | None = None, keep: int = 8) -> None:
        self.statistics = Statistics(floor)
        self.traces = Traces(keep)
        self.rewards = Sample(1024)
        self.candidates: list[Candidate] = []
        self._rows: dict[str, int] = {}
        self._in_hand: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.candidates)

    def add(self, candidates: Iterable[Candidate], round: int = 0) -> None:
        """Enter candidates proposed in iteration `round`; known ones stay where they are."""
        for candidate in candidates:
            if candidate.id not in self._rows:
                self._rows[candidate.id] = self.statistics.add(candidate.id, round)
                self.candidates.append(candidate)

    def update(self, rollouts: Iterable[Rollout], round: int = 0) -> None:
        """UPDATESTATS with rollouts of members made in iteration `round`."""
        for rollout in rollouts:
            self.statistics.update(rollout, round)
            self.traces.update(rollout)
            self.rewards.extend(r for r in rollout.rewards if r is not None)

    def take(self, k: int, priority: Priority, ties: Ties, rng: Random) -> list[Candidate]:
        """SELECTPROGRAMS: up to k members of highest priority, highest first, now in hand."""
        if not self.candidates:
            return []
        scores = np.array(priority(self.statistics), dtype=float)
        held = [self._rows[key] for key in self._in_hand]
        if len(held) < len(self):
            scores[held] = np.nan
        chosen = [self.candidates[row] for row in top(scores, k, ties, rng)]
        for candidate in chosen:
            self._in_hand[candidate.id] = self._in_hand.get(candidate.id, 0) + 1
        return chosen

    def release(self, candidates: Sequence[Candidate]) -> None:
        """Give back what `take` returned."""
        for candidate in candidates:
            self._in_hand[candidate.id] -= 1
            if not self._in_hand[candidate.id]:
                del self._in_hand[candidate.id]

    def sample(self, n: int, rng: Random) -> list[int]:
        """Rows of up to `n` members that were observed: all if they fit, else half the best by mean, half at random."""
        seen = np.flatnonzero(self.statistics.counts() > 0)
        if len(seen) <= n:
            return [int(row) for row in seen]
        best = [int(seen[i]) for i in top(self.statistics.means()[seen], (n + 1) // 2, Earliest(), rng)]
        drawn = [int(seen[i]) for i in rng.sample(range(len(seen)), n)]
        return best + [row for row in drawn if row not in best][: n - len(best)]

    def mean(self, candidate: Candidate) -> float | None:
        """Mean reward of a member; None without a score."""
        return self.statistics.summary(candidate.id).mean
