"""Running statistics of every candidate over all its observations (POLCA, Algorithm 1, UPDATESTATS).

Kept as columns, so that the priorities of ten thousand candidates are a few array operations.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.core.evaluation import Rollout, Status

Floats = NDArray[np.float64]
_ROUND = ("round", "round_total", "round_scored", "round_failed")


class Summary(NamedTuple):
    """One candidate's numbers; rewards are higher-is-better.

    `observations` made in all (lost ones excluded), `failures` of them without a score, `mean` and `sd` (sample
    standard deviation) with failures at the floor, `latest` the mean of its last round. None: not known.
    """

    observations: int
    failures: int
    mean: float | None
    sd: float | None
    latest: float | None


class Statistics:
    """Counts, means and spreads by candidate id.

    A failed observation counts as the `floor`: the lowest reward the objective allows if it declares one, otherwise
    the lowest reward seen so far in this memory (so means of candidates with failures can move as the floor does).
    A lost observation counts for nothing. A candidate without any score has mean -inf: it ranks last.
    """

    _columns = ("scored", "scored_mean", "scored_m2", "failed", "birth", *_ROUND)

    def __init__(self, floor: float | None = None) -> None:
        self._declared = floor
        self._lowest = math.inf
        self._index: dict[str, int] = {}
        self._cases: dict[str, dict[str, list[float]]] = {}
        self._data = {name: np.zeros(64) for name in self._columns}
        self._total = 0

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    @property
    def floor(self) -> float:
        """What a failed observation counts as (0 while neither declared nor observed)."""
        if self._declared is not None:
            return self._declared
        return 0.0 if self._lowest == math.inf else self._lowest

    @property
    def total(self) -> int:
        """Observations of all candidates together, lost ones excluded (n in Appendix C)."""
        return self._total

    def add(self, key: str, birth: int = 0) -> int:
        """Make room for a candidate proposed in round `birth`; returns its row. A known key keeps its row."""
        if key in self._index:
            return self._index[key]
        row = self._index[key] = len(self._index)
        if row >= len(self._data["scored"]):
            self._data = {name: np.concatenate([column, np.zeros_like(column)]) for name, column in self._data.items()}
        self._data["birth"][row] = self._data["round"][row] = birth
        return row

    def update(self, rollout: Rollout, round: int = 0) -> None:
        """Take in one rollout made in iteration `round` (non-decreasing within a loop)."""
        key = rollout.candidate.id
        row = self.add(key, round)
        if self._data["round"][row] != round:
            for name, start in zip(_ROUND, (round, 0.0, 0.0, 0.0), strict=True):
                self._data[name][row] = start
        for observation, reward in zip(rollout.observations, rollout.rewards, strict=True):
            if observation.status is Status.LOST:
                continue
            self._total += 1
            self._count(row, reward)
            if observation.case:
                self._count_case(key, observation.case, reward)

    def _count(self, row: int, reward: float | None) -> None:
        data = self._data
        if reward is None:
            data["failed"][row] += 1
            data["round_failed"][row] += 1
            return
        self._lowest = min(self._lowest, reward)
        count = data["scored"][row] + 1
        before = reward - data["scored_mean"][row]
        mean = data["scored_mean"][row] + before / count
        data["scored"][row], data["scored_mean"][row] = count, mean
        data["scored_m2"][row] += before * (reward - mean)
        data["round_total"][row] += reward
        data["round_scored"][row] += 1

    def _count_case(self, key: str, case: str, reward: float | None) -> None:
        tally = self._cases.setdefault(key, {}).setdefault(case, [0.0, 0.0, 0.0])
        if reward is None:
            tally[2] += 1
        else:
            tally[0] += 1
            tally[1] += reward

    def column(self, name: str) -> Floats:
        """One raw column, a row per candidate in order of arrival; a view, not to be written to."""
        return self._data[name][: len(self)]

    def counts(self) -> Floats:
        """T: observations per candidate."""
        return self.column("scored") + self.column("failed")

    def means(self) -> Floats:
        """Mean reward per candidate with failures at the floor; -inf without any score."""
        scored, failed = self.column("scored"), self.column("failed")
        total = scored * self.column("scored_mean") + failed * self.floor
        return np.where(scored > 0, total / np.maximum(scored + failed, 1), -np.inf)

    def latest(self) -> Floats:
        """Mean reward of each candidate's last round; -inf where that round gave no score."""
        scored, failed = self.column("round_scored"), self.column("round_failed")
        total = self.column("round_total") + failed * self.floor
        return np.where(scored > 0, total / np.maximum(scored + failed, 1), -np.inf)

    def widths(self, n: int | None = None) -> Floats:
        """sqrt(log n / T) per candidate (the uncertainty of eq. 1 and Appendix C), 0 without observations.

        `n` defaults to the observations made so far.
        """
        counts = self.counts()
        return np.where(counts > 0, math.log(max(n or self.total, 1)) / np.maximum(counts, 1), 0.0) ** 0.5

    def summary(self, key: str) -> Summary:
        """The numbers of one candidate; KeyError for an unknown one."""
        row = self._index[key]
        scored, failed = int(self._data["scored"][row]), int(self._data["failed"][row])
        count = scored + failed
        if scored == 0:
            return Summary(count, failed, None, None, None)
        mean = (scored * float(self._data["scored_mean"][row]) + failed * self.floor) / count
        gap = float(self._data["scored_mean"][row]) - self.floor if failed else 0.0
        m2 = float(self._data["scored_m2"][row]) + gap * gap * scored * failed / count
        sd = math.sqrt(max(m2, 0.0) / (count - 1)) if count > 1 else None
        return Summary(count, failed, mean, sd, self._latest(row))

    def _latest(self, row: int) -> float | None:
        scored, failed = self._data["round_scored"][row], self._data["round_failed"][row]
        if scored == 0:
            return None
        return float((self._data["round_total"][row] + failed * self.floor) / (scored + failed))

    def cases(self, key: str) -> dict[str, float]:
        """Mean reward of one candidate by case id, failures at the floor; empty without a data set."""
        tallies = self._cases.get(key, {})
        return {case: (total + bad * self.floor) / (good + bad) for case, (good, total, bad) in tallies.items()}

    def as_dict(self, key: str) -> dict[str, Any]:
        """Plain data for a note."""
        summary = self.summary(key)
        return {"id": key, "mean": summary.mean, "count": summary.observations, "failures": summary.failures}
