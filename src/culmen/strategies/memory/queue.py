"""POLCA's memory (Section 3): the priority queue, and statistics and traces by candidate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, is_excused
from culmen.core.json import JsonObject
from culmen.strategies.memory.priorities import Earliest, Priority, RunningSample, Ties

if TYPE_CHECKING:
    from culmen.evidence.ranking import Ranking


def top_rows(scores: Floats, k: int, ties: Ties, rng: Random) -> list[int]:
    """Rows of the k highest scores, highest first; fewer if there are fewer.

    NaN rows only if all are NaN.
    """
    rows = np.flatnonzero(~np.isnan(scores))
    if len(rows) == 0:
        scores, rows = np.zeros(len(scores)), np.arange(len(scores))
    if len(rows) > k:
        last = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= last]
    ordered = ties.order_rows([int(row) for row in rows], rng)
    return sorted(ordered, key=lambda row: -float(scores[row]))[:k]


class PriorityQueue:
    """Q: all admitted candidates of a search, in order of arrival, with their statistics.

    `take` selects programs to explore and marks them as in use until `release`, so that loops
    sharing one queue work on different programs; when all are in use they are shared.
    """

    def __init__(self, floor: float | None = None, ranking: Ranking | None = None) -> None:
        self.statistics = Statistics(floor, ranking)
        self.traces = Traces()
        self.rewards = RunningSample(1024)
        self.candidates: list[Candidate] = []
        self._rows: dict[str, int] = {}
        self._in_hand: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.candidates)

    def add(self, candidates: Iterable[Candidate], round: int = 0) -> None:
        """Enter candidates proposed in iteration `round`; known ones keep their row."""
        for candidate in candidates:
            if candidate.id not in self._rows:
                self._rows[candidate.id] = self.statistics.add_candidate(candidate.id, round)
                self.candidates.append(candidate)

    def update(self, rollouts: Iterable[Rollout], round: int = 0) -> None:
        """UPDATESTATS with rollouts of members made in iteration `round`."""
        for rollout in rollouts:
            self.statistics.add_rollout(rollout, round)
            self.traces.add_rollout(rollout)
            self.rewards.extend(r for r in rollout.rewards if r is not None)

    def take(self, k: int, priority: Priority, ties: Ties, rng: Random) -> list[Candidate]:
        """SELECTPROGRAMS: up to k members of highest priority, highest first, marked as in use."""
        if not self.candidates:
            return []
        scores = np.array(priority(self.statistics), dtype=float)
        held = [self._rows[key] for key in self._in_hand]
        if len(held) < len(self):
            scores[held] = np.nan
        chosen = [self.candidates[row] for row in top_rows(scores, k, ties, rng)]
        for candidate in chosen:
            self._in_hand[candidate.id] = self._in_hand.get(candidate.id, 0) + 1
        return chosen

    def release(self, candidates: Sequence[Candidate]) -> None:
        """Release the candidates that `take` returned."""
        for candidate in candidates:
            self._in_hand[candidate.id] -= 1
            if not self._in_hand[candidate.id]:
                del self._in_hand[candidate.id]

    def sample_rows(self, n: int, rng: Random) -> list[int]:
        """Rows of up to `n` observed members.

        All if they fit, else half the best by mean, half at random.
        """
        seen = np.flatnonzero(self.statistics.observation_counts() > 0)
        if len(seen) <= n:
            return [int(row) for row in seen]
        best = [
            int(seen[i])
            for i in top_rows(self.statistics.mean_rewards()[seen], (n + 1) // 2, Earliest(), rng)
        ]
        drawn = [int(seen[i]) for i in rng.sample(range(len(seen)), n)]
        return best + [row for row in drawn if row not in best][: n - len(best)]

    def mean_reward(self, candidate: Candidate) -> float | None:
        """Mean reward of a member; None without a score."""
        return self.statistics.entry_summary(candidate.id).mean


Floats = NDArray[np.float64]
_ROUND = ("round", "round_total", "round_scored", "round_failed")


class EntrySummary(NamedTuple):
    """One candidate's numbers; rewards are higher-is-better.

    `observations` in all (excused ones excluded), `failures` of them without a score, `mean` with
    failures at the floor (None: unknown).
    """

    observations: int
    failures: int
    mean: float | None


class Statistics:
    """Counts, means and spreads by candidate id.

    A failed observation counts as the `floor`: the lowest reward the objective allows if it
    declares one, otherwise the lowest reward seen so far in this memory (so means of candidates
    with failures can move as the floor does). An excused observation counts for nothing. A
    candidate without any score has mean -inf: it ranks last.
    """

    _columns = ("scored", "scored_mean", "failed", "birth", *_ROUND)

    def __init__(self, floor: float | None = None, ranking: Ranking | None = None) -> None:
        self._declared, self._ranking = floor, ranking
        self._lowest = math.inf
        self._index: dict[str, int] = {}
        self._data = {name: np.zeros(64) for name in self._columns}
        self._total = 0

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: object) -> bool:
        return key in self._index

    @property
    def floor(self) -> float:
        """The reward of a failed observation (0 while neither declared nor observed)."""
        if self._declared is not None:
            return self._declared
        return 0.0 if self._lowest == math.inf else self._lowest

    @property
    def total_observations(self) -> int:
        """Observations of all candidates together, excused ones excluded (n in Appendix C)."""
        return self._total

    def add_candidate(self, key: str, birth: int) -> int:
        """Make room for a candidate proposed in round `birth`; returns its row.

        A known key keeps its row.
        """
        if key in self._index:
            return self._index[key]
        row = self._index[key] = len(self._index)
        if row >= len(self._data["scored"]):
            self._data = {
                name: np.concatenate([column, np.zeros_like(column)])
                for name, column in self._data.items()
            }
        self._data["birth"][row] = self._data["round"][row] = birth
        return row

    def add_rollout(self, rollout: Rollout, round: int = 0) -> None:
        """Take in one rollout made in iteration `round` (non-decreasing within a loop)."""
        key = rollout.candidate.id
        row = self.add_candidate(key, round)
        if self._data["round"][row] != round:
            for name, start in zip(_ROUND, (round, 0.0, 0.0, 0.0), strict=True):
                self._data[name][row] = start
        for observation, reward in zip(rollout.observations, rollout.rewards, strict=True):
            if is_excused(observation):
                continue
            self._total += 1
            self._count_observation(row, reward)

    def _count_observation(self, row: int, reward: float | None) -> None:
        data = self._data
        if reward is None:
            data["failed"][row] += 1
            data["round_failed"][row] += 1
            return
        self._lowest = min(self._lowest, reward)
        count = data["scored"][row] + 1
        data["scored"][row] = count
        data["scored_mean"][row] += (reward - data["scored_mean"][row]) / count
        data["round_total"][row] += reward
        data["round_scored"][row] += 1

    def raw_column(self, name: str) -> Floats:
        """One raw column, a row per candidate in order of arrival; a view, not to be written to."""
        return self._data[name][: len(self)]

    def observation_counts(self) -> Floats:
        """T: observations per candidate."""
        return self.raw_column("scored") + self.raw_column("failed")

    def mean_rewards(self) -> Floats:
        """Mean reward per candidate with failures at the floor; -inf without any score."""
        scored, failed = self.raw_column("scored"), self.raw_column("failed")
        total = scored * self.raw_column("scored_mean") + failed * self.floor
        return np.where(scored > 0, total / np.maximum(scored + failed, 1), -np.inf)

    def latest_means(self) -> Floats:
        """Mean reward of each candidate's last round; -inf if that round gave no score."""
        scored, failed = self.raw_column("round_scored"), self.raw_column("round_failed")
        total = self.raw_column("round_total") + failed * self.floor
        return np.where(scored > 0, total / np.maximum(scored + failed, 1), -np.inf)

    def confidence_widths(self, n: int | None = None) -> Floats:
        """sqrt(log n / T) per candidate (eq. 1 and Appendix C), 0 without observations.

        `n` defaults to the number of observations so far.
        """
        counts = self.observation_counts()
        return (
            np.where(
                counts > 0,
                math.log(max(n or self.total_observations, 1)) / np.maximum(counts, 1),
                0.0,
            )
            ** 0.5
        )

    def posterior_means(self) -> Floats:
        """Posterior mean reward of each candidate by the run's evidence; -inf without any score."""
        if self._ranking is None:
            return self.mean_rewards()
        return self._ranking.worths_of(list(self._index))

    def entry_summary(self, key: str) -> EntrySummary:
        """The numbers of one candidate; KeyError for an unknown one."""
        row = self._index[key]
        scored, failed = int(self._data["scored"][row]), int(self._data["failed"][row])
        if scored == 0:
            return EntrySummary(failed, failed, None)
        total = scored * float(self._data["scored_mean"][row]) + failed * self.floor
        return EntrySummary(scored + failed, failed, total / (scored + failed))

    def as_dict(self, key: str) -> JsonObject:
        """Plain data for a note."""
        summary = self.entry_summary(key)
        return {
            "id": key,
            "mean": summary.mean,
            "count": summary.observations,
            "failures": summary.failures,
        }


_TEXTS = 3  # artifacts that are kept of one observation


class Trace(NamedTuple):
    """Summary of one observation; `reward` is None if the candidate failed."""

    case: str
    reward: float | None
    status: str
    feedback: str
    metrics: Mapping[str, float] = {}
    texts: tuple[tuple[str, str], ...] = ()  # artifacts: the output, conversations, and others


class Traces:
    """The newest `keep` traces of every candidate, each text cut to `chars` characters.

    The paper keeps all trajectories; a bound keeps long searches small, and the newest are the most
    informative.
    """

    def __init__(self, keep: int = 8, chars: int = 1500) -> None:
        self._keep = keep
        self._chars = chars
        self._traces: dict[str, list[Trace]] = {}

    def add_rollout(self, rollout: Rollout) -> None:
        """Enter one rollout; failures that are not the candidate's fault are left out."""
        traces = self._traces.setdefault(rollout.candidate.id, [])
        for observation, reward in zip(rollout.observations, rollout.rewards, strict=True):
            if not is_excused(observation):
                traces.append(self._make_trace(observation, reward))
        del traces[: -self._keep]

    def _make_trace(self, observation: Observation, reward: float | None) -> Trace:
        status = observation.status.value + (
            f" ({observation.reason})" if observation.reason else ""
        )
        texts = tuple(
            (name, text[: self._chars // 2])
            for name, text in observation.readable_artifacts[:_TEXTS]
        )
        feedback = observation.feedback[: self._chars]
        return Trace(observation.case, reward, status, feedback, observation.metrics, texts)

    def traces_of(self, key: str) -> list[Trace]:
        """Traces of one candidate, oldest first."""
        return self._traces.get(key, [])
