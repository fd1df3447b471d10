"""The training signal: rewards, advantages, their mix, and the clipped loss.

One function per formula, numpy alone. A group holds the results of one rollout barrier: `rewards`
of shape (n,), float64, n >= 1. Advantages have the same shape. Equations and sections are those of
PACEvolve++ (arXiv 2605.07039) unless another paper is named. Everything is float64: in float32
close rewards collapse to one value while their differences are still significant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from culmen.core.errors import UserError
from culmen.extensions.train import OBJECTIVES, Objective

Floats = NDArray[np.float64]

EPS_NUM = 1e-8
"""Added to a standard deviation before dividing (Section 3.3)."""
EPS_SKIP = 1e-6
"""Standard deviation below which a branch is noise, without an update (Section 3.3)."""
FAILED = -1.0
"""Reward of an experiment that could not be parsed, run or scored (equation 5)."""


def progress_reward(
    score: object,
    low: float,
    high: float,
    *,
    maximise: bool = True,
    scale: float = 5.0,
    power: float = 1.0,
) -> float:
    """Reward of a score between two bounds (equation 5), in 0..`scale`, or `FAILED`.

    It is `scale` * u^power with u the share of the way from the worse to the better bound, clamped
    to 0..1. `score` may be of any type: everything except a finite int or float (None, text, bool,
    NaN) gives `FAILED`. Raises `ValueError` unless low < high, scale > 0 and power > 0.
    """
    if not (low < high and scale > 0 and power > 0) or not math.isfinite(high - low):
        raise ValueError(
            f"need finite low < high, scale > 0 and power > 0, not {low}, {high}, {scale}, {power}"
        )
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return FAILED
    way = (score - low) if maximise else (high - score)
    return scale * min(1.0, max(0.0, way / (high - low))) ** power


def centred_advantages(rewards: ArrayLike) -> Floats:
    """Group-relative advantages A_i = R_i - mean(R) (Section 3.3; Dr. GRPO).

    They depend on the rewards' scale.
    """
    group = _checked_group(rewards)
    return group - group.mean()


def standardised_values(values: ArrayLike, eps: float = EPS_NUM) -> Floats:
    """Standardised values Phi(B)_i = (B_i - mean) / (std + eps) (Theorem 1).

    std is the population's standard deviation. The squared norm is at most n. A constant group
    gives zeros.
    """
    group = _checked_group(values)
    return (group - group.mean()) / (group.std() + eps)


def grpo_advantages(rewards: ArrayLike) -> Floats:
    """GRPO's advantages (R_i - mean) / (std + eps) (Section 2.2; ThetaEvolve)."""
    return standardised_values(rewards)


def max_at_k(rewards: ArrayLike, k: int) -> Floats:
    """PKPO's weights (equation 2): the best rewards of subsets that hold i.

    w_i is the sum of the best reward over all size-k subsets with i, over C(n, k). In closed form,
    O(n log n): with rewards ascending and 0-based ranks, i is the best of C(i, k-1) subsets, and a
    larger j is the best of C(j-1, k-2) that also hold i. `k` beyond n counts as n; raises
    `ValueError` below 1.
    """
    group, k, order = _ranked_group(rewards, k)
    n, ascending = len(group), group[order]
    own = _subset_shares((math.comb(i, k - 1) for i in range(n)), n, k) * ascending
    if k >= 2:
        above = (
            _subset_shares((math.comb(j - 1, k - 2) if j else 0 for j in range(n)), n, k)
            * ascending
        )
        own += np.concatenate([np.cumsum(above[::-1])[::-1][1:], [0.0]])
    return _original_order(own, order, group)


def sloo_weights(rewards: ArrayLike, k: int) -> Floats:
    """SLOO k-1 weights (equation 3): the gain of the best of k by i; never negative.

    The gain is averaged over the subsets that hold i. Only subsets whose best is i count. Of these,
    rank j is second best in C(j, k-2), which gives a prefix sum. The k-1 lowest ranks are exactly
    0; equal rewards get equal credit. A group of one, or k = 1, has no alternative to subtract:
    zeros. Shifting by the largest reward first leaves the weights unchanged and small differences
    exact.
    """
    group, k, order = _ranked_group(rewards, k)
    n = len(group)
    if k < 2:
        return np.zeros(n)
    ascending = group[order] - group.max()
    best = _subset_shares((math.comb(i, k - 1) for i in range(n)), n, k) * ascending
    second = _subset_shares((math.comb(j, k - 2) for j in range(n)), n, k) * ascending
    weights = np.maximum(0.0, best - np.concatenate([[0.0], np.cumsum(second)[:-1]]))
    # too few rewards below these for them to be the best of any k
    weights[np.searchsorted(ascending, ascending) < k - 1] = 0.0
    return _original_order(weights, order, group)


def entropic_advantages(
    rewards: ArrayLike, gamma: float = math.log(2), beta: float | None = None
) -> Floats:
    """TTT-Discover's advantages (Section 2.2).

    A_i = exp(beta (R_i - max)) / mean over j != i of the same, minus 1. `beta` is given, or found
    so that the tilted distribution is `gamma` nats from uniform. If ties at the top keep it from
    getting that far (it never exceeds ln(n/m) with m at the top), nine tenths of the way are taken,
    so two candidates do not give an advantage of 10^12. Solved on rewards divided by their span:
    free of shift and scale. Constant groups and groups of one give zeros.
    """
    group = _checked_group(rewards)
    n, span = len(group), float(np.ptp(group))
    if n < 2 or span == 0.0:
        return np.zeros(n)
    below = (group - group.max()) / span  # -1..0
    tilt = beta * span if beta is not None else _inverse_temperature(below, gamma)
    weights = np.exp(tilt * below)
    others = (weights.sum() - weights) / (n - 1)
    return weights / (others + 1e-12) - 1.0


def mixing_weight(step: int, steps: int) -> float:
    """alpha_t: 0 at the first of `steps` planned barriers, 1 at the last, linear.

    See Section 3.3.
    """
    return 0.0 if steps <= 1 else min(1.0, max(0.0, step / (steps - 1)))


def is_collapsed(branch: ArrayLike, floor: float = EPS_SKIP) -> bool:
    """True if a branch is numerical noise, which allows no update.

    Its standard deviation is not finite, or below `floor`.
    """
    spread = float(np.std(np.asarray(branch, dtype=np.float64)))
    return not math.isfinite(spread) or spread < floor


def mixed_advantages(group_branch: ArrayLike, frontier_branch: ArrayLike, alpha: float) -> Floats:
    """Mixed advantages (1 - alpha) Phi(group) + alpha Phi(frontier) (equation 4).

    alpha is in 0..1. Their mean is 0, their spread at most 1.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in 0..1, not {alpha}")
    return (1.0 - alpha) * standardised_values(group_branch) + alpha * standardised_values(
        frontier_branch
    )


def _inverse_temperature(below: Floats, gamma: float) -> float:
    """Inverse temperature of a tilted distribution `gamma` nats from uniform, by bisection."""
    n, top = len(below), int((below == 0.0).sum())
    goal = min(gamma, 0.9 * math.log(n / top))
    low, high = 0.0, 1.0
    while _tilted_divergence(below, high) < goal and high < 1e12:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _tilted_divergence(below, middle) < goal else (low, middle)
    return high


def _tilted_divergence(below: Floats, beta: float) -> float:
    """KL(q_beta || uniform) in nats."""
    logits = beta * below
    total = np.exp(logits).sum()
    share = np.exp(logits) / total
    return float((share * (logits - math.log(total))).sum() + math.log(len(below)))


def _checked_group(values: ArrayLike) -> Floats:
    group = np.asarray(values, dtype=np.float64)
    if group.ndim != 1 or not len(group) or not np.isfinite(group).all():
        raise ValueError("a group is a non-empty list of finite numbers")
    return group


def _ranked_group(rewards: ArrayLike, k: int) -> tuple[Floats, int, NDArray[np.intp]]:
    group = _checked_group(rewards)
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    return group, min(k, len(group)), np.argsort(group, kind="stable")


def _subset_shares(counts: Iterable[int], n: int, k: int) -> Floats:
    """Counts over C(n, k), divided as exact integers: the counts alone would overflow a float."""
    total = math.comb(n, k)
    return np.array([count / total for count in counts])


def _original_order(weights: Floats, order: NDArray[np.intp], group: Floats) -> Floats:
    """Weights in the original order; equal rewards share theirs.

    Their order among each other is arbitrary.
    """
    spread = np.empty_like(weights)
    spread[order] = weights
    _, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    return (np.bincount(inverse, spread) / counts)[inverse]


@dataclass(frozen=True)
class Signal:
    """Training signal of one group.

    `advantages` has one number per reward, or is empty with the reason in `skip`: then no optimiser
    step is taken. `spreads` are standard deviations by name (rewards, and each active branch), for
    the diagnostics.
    """

    advantages: tuple[float, ...] = ()
    skip: str = ""
    alpha: float = 0.0
    spreads: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class AdvantageRule:
    """Rule that turns rewards into advantages.

    objective   grpo (ThetaEvolve), dr_grpo, entropic (TTT-Discover), pkpo (Max@k: the SLOO weights
                as printed), max_at_k (these standardised like the frontier branch), or
                phase_adaptive (PACEvolve++)
    k           size of the frontier's subsets
    gamma       nats of the entropic tilt
    floor       standard deviation below which a branch is noise
    noise       evaluator noise in units of the reward, if known: rewards with a smaller standard
                deviation take no step. No floor for the branches: the frontier's spread is several
                times smaller than that of the rewards
    """

    objective: Objective = "phase_adaptive"
    k: int = 4
    gamma: float = math.log(2)
    floor: float = EPS_SKIP
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise UserError(
                f"there is no objective '{self.objective}'",
                where="objective",
                fix=f"one of {', '.join(OBJECTIVES)}",
            )

    def training_signal(self, rewards: Sequence[float], alpha: float) -> Signal:
        """Signal of one group at mixing weight `alpha` (used by phase_adaptive alone)."""
        if self.objective == "none":
            return Signal(skip="not_training")
        if len(rewards) < 2:
            return Signal(skip="group_too_small")
        if not all(map(math.isfinite, rewards)):
            return Signal(skip="rewards_not_finite")
        weight = {"phase_adaptive": alpha, "max_at_k": 1.0, "pkpo": 1.0}.get(self.objective, 0.0)
        branches = self._active_branches(rewards, weight)
        spreads = [("rewards", float(np.std(rewards)))]
        spreads += [(name, float(np.std(branch))) for name, branch in branches.items()]
        if is_collapsed(rewards, self.noise):
            return Signal(skip="rewards_collapsed", alpha=weight, spreads=tuple(spreads))
        for name, branch in branches.items():
            if is_collapsed(branch, self.floor):
                return Signal(skip=f"{name}_collapsed", alpha=weight, spreads=tuple(spreads))
        return Signal(
            tuple(map(float, self._combined_advantages(rewards, weight))),
            "",
            weight,
            tuple(spreads),
        )

    def _active_branches(self, rewards: Sequence[float], weight: float) -> dict[str, Floats]:
        """Branches active at this weight, by name."""
        branches = {"group": centred_advantages(rewards)} if weight < 1.0 else {}
        return branches | ({"frontier": sloo_weights(rewards, self.k)} if weight > 0.0 else {})

    def _combined_advantages(self, rewards: Sequence[float], weight: float) -> Floats:
        match self.objective:
            case "grpo":
                return grpo_advantages(rewards)
            case "dr_grpo":
                return centred_advantages(rewards)
            case "pkpo":
                return sloo_weights(rewards, self.k)
            case "entropic":
                return entropic_advantages(rewards, self.gamma)
            case _:
                return mixed_advantages(
                    centred_advantages(rewards), sloo_weights(rewards, self.k), weight
                )
