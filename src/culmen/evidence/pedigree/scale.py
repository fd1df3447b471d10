"""The scale of the value model: rewards or their logarithms, and scores that are failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, Ints, share_below, sum_by_row
from culmen.evidence.pedigree.observations import Sample

EVIDENCE = 3.0  # least gain in log likelihood of steps for scores to be taken as logarithms
HUGE = 1e100  # magnitude from which rewards are divided by the largest one
ABSURD = 30.0  # spreads below the median and the first score from which a score is a failure

REACH = 5.0
"""Deviations of one evaluation within which candidates inform about the noise at a level.

They are counted by the largest deviation that those nearer leave plausible (95 %): 30 true
deviations are out of reach from three repeats on.
"""


class RewardScale(NamedTuple):
    """Transformation to the scale on which steps from parents to children are alike.

    `sign` 0: rewards unchanged; else logarithms of rewards that all have this sign, cut below the
    magnitude `least`. Rewards under `absurd` count as failures. `unit` divides rewards so huge that
    their squares overflow.
    """

    sign: int
    least: float
    absurd: float
    unit: float = 1.0

    @classmethod
    def from_sample(cls, sample: Sample) -> RewardScale:
        """Scale by all scores so far, the first one, and those of parents and their children."""
        raw, first = sample.rewards, float(sample.rewards[0])
        middle = share_below(raw, 0.5)
        spread = max(share_below(raw, 0.95) - share_below(raw, 0.25), abs(first - middle))
        absurd = min(middle, first) - ABSURD * spread if spread > 0 else -math.inf
        sign = int(np.sign(first))
        if sign and (np.sign(raw) == sign).all() and _grow_by_shares(*_parent_child_means(sample)):
            return cls(sign, 0.01 * float(np.abs(raw).min()), -math.inf)
        largest = float(np.abs(raw).max())
        return cls(0, 0.0, absurd, largest if largest > HUGE else 1.0)

    def is_sound(self, raw: Floats) -> Flags:
        """True for rewards that do not count as failures."""
        return raw >= self.absurd

    def to_model_scale(self, raw: Floats) -> Floats:
        """Rewards on the model's scale."""
        if not self.sign:
            return raw / self.unit
        return self.sign * np.log(np.maximum(self.sign * raw, self.least))

    def to_rewards(self, mean: Floats, sd: Floats) -> tuple[Floats, Floats]:
        """Means and standard deviations in units of the reward."""
        if not self.sign:
            return mean * self.unit, sd * self.unit
        size = np.exp(np.minimum(self.sign * mean, 700.0))
        return self.sign * size, size * sd


@dataclass(frozen=True)
class ScaledScores:
    """Sound scores of a sample, on the model's scale, and counts for inference.

    `rewards`, as `values` on the scale, on `cases` by candidates `rows`; by row: `parents`,
    `counts` of sound scores, and `failed` evaluations, absurd scores among them.
    """

    rewards: Floats
    values: Floats
    rows: Ints
    cases: Ints
    parents: Ints
    counts: Floats
    failed: Floats
    case_count: int
    noiseless: bool

    @classmethod
    def from_sample(cls, sample: Sample, scale: RewardScale) -> ScaledScores:
        """Scores of the sample on this scale."""
        rewards, rows, cases, failed = sample.rewards, sample.rows, sample.cases, sample.failures
        sound = scale.is_sound(rewards)
        if not sound.all():
            failed = failed + sum_by_row(rows[~sound], None, sample.size)
            rewards, rows, cases = rewards[sound], rows[sound], cases[sound]
        values, counts = scale.to_model_scale(rewards), sum_by_row(rows, None, sample.size)
        shape = sample.case_count, sample.is_noiseless
        return cls(rewards, values, rows, cases, sample.parents, counts, failed, *shape)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.parents)

    @cached_property
    def means(self) -> Floats:
        """Mean score by row, 0 without one."""
        return sum_by_row(self.rows, self.values, self.size) / np.maximum(self.counts, 1)

    @cached_property
    def median(self) -> float:
        """Median of the scores (of an even number, the upper one)."""
        return share_below(self.values, 0.5)

    @cached_property
    def low_reward(self) -> float:
        """A low sound reward that is not an outlier, for failures to count as.

        The smaller of the median of the first initial program's rewards and the 5 % quantile of
        all. That program is the first candidate without parents, by observations, with a reward.
        """
        low = share_below(self.rewards, 0.05)
        initial = self.rows[self.parents[self.rows] < 0]
        if not len(initial):
            return low
        return min(share_below(self.rewards[self.rows == initial.min()], 0.5), low)

    @cached_property
    def spread(self) -> float:
        """Largest difference of two scores."""
        return float(self.values.max() - self.values.min())

    @cached_property
    def repeated(self) -> Ints:
        """Rows with two scores or more."""
        return np.flatnonzero(self.counts > 1)

    @cached_property
    def near(self) -> Flags:
        """True for rows within reach of the best repeated one or of the initial program.

        The noise is learnt from these. On a data set all are.
        """
        return self._are_near(self.means)

    @cached_property
    def near_repeated(self) -> Ints:
        """The rows among `repeated` that are near: all that most questions need to know."""
        return self.repeated[self._are_near(self.means[self.repeated])]

    @cached_property
    def residuals(self) -> Floats:
        """Differences of scores from their candidate's mean."""
        return self.values - self.means[self.rows]

    @cached_property
    def tails(self) -> tuple[float, float]:
        """`tails_of` the residuals."""
        return self.tails_of(self.residuals)

    def tails_of(self, residuals: Floats) -> tuple[float, float]:
        """Median and maximum magnitude of residuals of `near_repeated` rows."""
        off = np.abs(residuals[np.isin(self.rows, self.near_repeated)])
        return share_below(off, 0.5), float(off.max())

    def _are_near(self, means: Floats) -> Flags:
        if self._reach is None:
            return np.ones(len(means), bool)
        levels, reach = self._reach
        return _distances(means, levels) <= reach

    @cached_property
    def _reach(self) -> tuple[Floats, float] | None:
        """The levels that noise is learnt about, and the reach around them; None: everywhere."""
        repeated = self.repeated
        if self.case_count > 1 or not len(repeated):
            return None
        root = int(np.argmax((self.parents < 0) & (self.counts > 0)))
        is_root = self.parents[root] < 0 and self.counts[root] > 0
        levels = np.append(self.means[root : root + is_root], self.means[repeated].max())
        among = self.counts[self.rows] > 1
        rows = self.rows[among]
        squares = sum_by_row(rows, (self.values[among] - self.means[rows]) ** 2, self.size)
        spreads = (self.means[repeated], squares[repeated], self.counts[repeated] - 1)
        return levels, reach_of(np.column_stack(spreads), levels)

    @cached_property
    def degrees(self) -> float:
        """Degrees of freedom within candidates near the leader."""
        return float((self.counts[self.near_repeated] - 1).sum())


def reach_of(spreads: Floats, levels: Floats) -> float:
    """The distance from the nearest of the `levels` up to which candidates inform about them.

    `spreads` has a row of mean, squares and degrees of freedom for each repeated candidate. The
    first one, by distance, that is further than `REACH` deviations of those before it ends it;
    infinity if none is. The nearest of each level always counts: beside a bound of the scores two
    evaluations are often equal by luck, and would put all others out of reach.
    """
    apart = np.abs(spreads[:, :1] - levels)
    distances = apart.min(axis=1)
    ranks = distances.copy()
    ranks[apart.argmin(axis=0)] = 0.0
    order = np.argsort(ranks, kind="stable")
    _, squares, degrees = np.cumsum(spreads[order], axis=0).T
    reach = REACH * np.sqrt(squares / _least_chi_square(degrees))
    out = np.flatnonzero((squares[:-1] > 0.0) & (ranks[order[1:]] > reach[:-1]))
    return float(distances[order[: out[0] + 1]].max()) if len(out) else math.inf


def _distances(means: Floats, levels: Floats) -> Floats:
    first, *others = (np.abs(means - level) for level in levels)
    for each in others:
        np.minimum(first, each, out=first)
    return first


def _least_chi_square(degrees: Floats) -> Floats:
    """The 5 % quantile of chi square (Wilson and Hilferty, 1931; 0.0039 for one degree)."""
    share = 2.0 / (9.0 * degrees)
    return degrees * np.maximum(0.0039, (1.0 - share - 1.645 * np.sqrt(share)) ** 3)


def _parent_child_means(sample: Sample) -> tuple[Floats, Floats]:
    """Mean rewards of parents and of their children, for pairs with scores of both."""
    counts = sum_by_row(sample.rows, None, sample.size)
    means = sum_by_row(sample.rows, sample.rewards, sample.size) / np.maximum(counts, 1)
    above = np.maximum(sample.parents, 0)
    children = np.flatnonzero((sample.parents >= 0) & (counts > 0) & (counts[above] > 0))
    return means[sample.parents[children]], means[children]


def _grow_by_shares(parents: Floats, children: Floats) -> bool:
    """True if Laplace's law of steps explains logarithms better; their Jacobian is 1/score."""
    if len(children) < 6:
        return False
    steps, ratios = np.abs(children - parents), np.abs(np.log(children / parents))
    if not ratios.any():
        return False
    plain = -len(steps) * math.log(float(steps.mean()))
    logs = -len(steps) * math.log(float(ratios.mean())) - float(np.log(np.abs(children)).sum())
    return logs > plain + EVIDENCE
