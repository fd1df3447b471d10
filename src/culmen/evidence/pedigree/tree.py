"""Exact inference on family trees, and the posterior of a sample given the parameters.

Gaussian messages go up the tree, then down.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import (
    Flags,
    Floats,
    Ints,
    padded_array,
    share_below,
    sum_by_row,
    with_room,
)
from culmen.evidence.pedigree.observations import RewardScale, ScaledScores

GROUP = 16  # least number of rows of one height that are processed at once


class TreePrior(NamedTuple):
    """Prior of the true rewards: child = parent + drift + step, step ~ N(0, t²).

    `step` is t², `drift` (rows,) that of each row's children. Rows without parents, and those
    that stand `alone` (rows,), have the precision and mean of the origin.
    """

    step: float
    drift: Floats
    alone: Flags
    origin_precision: float
    origin_mean: float


class Posterior(NamedTuple):
    """Marginals of all rows.

    `own`: precision from a row and its descendants alone; `cavity`: precision of its parent
    without it (0 for rows without a parent).
    """

    mean: Floats
    variance: Floats
    own: Floats
    cavity: Floats


class Messages:
    """Precision, and precision times mean, of each row, and its messages to its parent."""

    def __init__(self, weight: Floats, pull: Floats) -> None:
        self.weight, self.pull = weight.copy(), pull.copy()
        self.sent_weight, self.sent_pull = np.zeros(len(weight)), np.zeros(len(weight))
        self.own, self.cavity = np.zeros(len(weight)), np.zeros(len(weight))


class FamilyTree:
    """Parents and heights (above the lowest descendant) of all rows; it only grows.

    Rows of one height are independent of one another and are processed at once; the few of
    great height one by one.
    """

    def __init__(self) -> None:
        self._size = 0
        self._parents: list[int] = []
        self._heights = np.zeros(64, np.int64)
        self._groups: list[Ints] = []
        self._top = np.zeros(0, np.int64)
        self._top_parents = np.zeros(0, np.int64)  # places in `_top`, -1 for none

    def _add_rows(self, parents: Ints) -> None:
        """Take in new rows; `parents` (rows,) are those of all rows."""
        for row in range(self._size, len(parents)):
            above = int(parents[row])
            self._parents.append(above)
            self._heights = with_room(self._heights, row)
            height = 0
            while above >= 0 and self._heights[above] <= height:
                height += 1
                self._heights[above], above = height, self._parents[above]
        self._size = len(parents)
        self._sort_by_height(parents)

    def _sort_by_height(self, parents: Ints) -> None:
        """Sort the rows by height."""
        heights = self._heights[: self._size]
        counts = np.bincount(heights)
        # the next height has as many rows or fewer: each needs a child of its own
        high = int((counts >= GROUP).sum())
        order, ends = np.argsort(heights, kind="stable"), np.cumsum(counts)[:high]
        self._groups = np.split(order, ends)[:high]
        self._top = np.sort(order[int(ends[-1]) if high else 0 :])
        place = np.full(self._size + 1, -1)
        place[self._top] = np.arange(len(self._top))
        self._top_parents = place[parents[self._top]]

    def sweep(self, parents: Ints, weight: Floats, pull: Floats, prior: TreePrior) -> Posterior:
        """Posterior of all rows, as many as in the last sweep or more.

        `parents` (rows,): row of each parent, -1 for none, smaller than the child's. `weight`:
        precision of a row's own observations; `pull`: that times their mean.
        """
        if len(parents) > self._size:
            self._add_rows(parents)
        parent = np.where(prior.alone, -1, parents)
        above = prior.drift[np.maximum(parent, 0)]
        messages = Messages(weight, pull)
        self._send_up(messages, parent, above, prior)
        self._pass_top(messages, above, prior)
        self._send_down(messages, parent, above, prior)
        mean, variance = messages.pull / messages.weight, 1.0 / messages.weight
        return Posterior(mean, variance, messages.own, messages.cavity)

    def _send_up(self, m: Messages, parent: Ints, above: Floats, prior: TreePrior) -> None:
        """Messages of the groups to their parents, lowest first."""
        for group in self._groups:
            rows = group[(parent[group] >= 0) & (m.weight[group] > 0)]
            m.sent_weight[rows] = 1.0 / (1.0 / m.weight[rows] + prior.step)
            m.sent_pull[rows] = m.sent_weight[rows] * (m.pull[rows] / m.weight[rows] - above[rows])
            np.add.at(m.weight, parent[rows], m.sent_weight[rows])
            np.add.at(m.pull, parent[rows], m.sent_pull[rows])

    def _send_down(self, m: Messages, parent: Ints, above: Floats, prior: TreePrior) -> None:
        """Messages of parents to the groups, highest first."""
        far = prior.origin_precision
        for group in reversed(self._groups):
            roots, below = group[parent[group] < 0], group[parent[group] >= 0]
            m.own[below] = m.weight[below]
            m.weight[roots] += far
            m.pull[roots] += far * prior.origin_mean
            over = parent[below]
            m.cavity[below] = np.maximum(m.weight[over] - m.sent_weight[below], far)
            precision = 1.0 / (1.0 / m.cavity[below] + prior.step)
            rest = (m.pull[over] - m.sent_pull[below]) / m.cavity[below]
            m.pull[below] += precision * (rest + above[below])
            m.weight[below] += precision

    def _pass_top(self, m: Messages, above: Floats, prior: TreePrior) -> None:
        """Messages up and down among the rows of great height."""
        top, t2, far = self._top, prior.step, prior.origin_precision
        kin = np.where(prior.alone[top], -1, self._top_parents).tolist()
        w, h, b = m.weight[top].tolist(), m.pull[top].tolist(), above[top].tolist()
        up_w, up_h, cavity = [0.0] * len(top), [0.0] * len(top), [0.0] * len(top)
        for i in range(len(kin) - 1, -1, -1):
            p = kin[i]
            if p >= 0 and w[i] > 0:
                up_w[i] = 1.0 / (1.0 / w[i] + t2)
                up_h[i] = up_w[i] * (h[i] / w[i] - b[i])
                w[p] += up_w[i]
                h[p] += up_h[i]
        m.own[top] = w
        for i, p in enumerate(kin):
            if p < 0:
                w[i] += far
                h[i] += far * prior.origin_mean
                continue
            rest = w[p] - up_w[i]
            cavity[i] = rest = rest if rest > far else far
            precision = 1.0 / (1.0 / rest + t2)
            h[i] += precision * ((h[p] - up_h[i]) / rest + b[i])
            w[i] += precision
        m.weight[top], m.pull[top], m.cavity[top] = w, h, cavity
        m.sent_weight[top], m.sent_pull[top] = up_w, up_h


HEAVY = 5.0  # degrees of freedom of Student's law, for noise with heavy tails
REPEATS = 8  # degrees of freedom within candidates from which tails can be judged
OUTLYING = 6.0  # deviations from which a residual shows a heavy tail


_NOTHING, _NONE = np.zeros(0), np.zeros(0, bool)


class Parameters(NamedTuple):
    """Learnt parameters of a run; docs/evidence.md has the equations."""

    scale: RewardScale
    next_look: int
    noise: float = math.nan
    step: float = math.nan
    drift: float = 0.0
    first_step: float = 0.0
    weight: float = 0.0
    drifts: Floats = _NOTHING
    effects: Floats = _NOTHING
    ruined: Flags = _NONE
    root_variance: float = 0.0
    root_mean: float = 0.0
    fall: float = math.inf
    settled: bool = False

    def padded_to(self, rows: int, cases: int) -> Parameters:
        """Parameters for more rows and cases: drifts as the mean, no effects, nothing ruined."""
        if len(self.drifts) == rows and len(self.effects) == cases:
            return self
        return self._replace(
            drifts=padded_array(self.drifts, rows, self.drift),
            effects=padded_array(self.effects, cases, 0.0),
            ruined=padded_array(self.ruined, rows, False),
        )


class Within(NamedTuple):
    """Scatter within candidates: weights of all scores (None: 1), and the weighted squares."""

    weights: Floats | None
    squares: float


def scatter_within(scores: ScaledScores, parameters: Parameters) -> Within:
    """Scatter of scores about their candidate's mean, case effects taken out.

    If repeats show heavy tails, scores far off weigh less: (h + 1) / (h + r² / s²).
    """
    if not scores.degrees:
        return Within(None, 0.0)
    values = scores.values - parameters.effects[scores.cases]
    means = sum_by_row(scores.rows, values, scores.size) / np.maximum(scores.counts, 1)
    rest = values - means[scores.rows]
    squares = rest * rest
    if scores.degrees >= REPEATS and not scores.noiseless:
        off = np.abs(rest[scores.counts[scores.rows] > 1])
        variance = (1.4826 * share_below(off, 0.5)) ** 2
        if variance > 0 and float(off.max()) ** 2 > OUTLYING**2 * variance:
            known = parameters.noise  # nan before the first guess
            weights = (HEAVY + 1.0) / (
                HEAVY + squares / (max(known, variance) if known > 0 else variance)
            )
            return Within(weights, float((weights * squares).sum()))
    return Within(None, float(squares.sum()))


def tree_prior(parameters: Parameters, scores: ScaledScores) -> TreePrior:
    """Prior of the tree; an origin that is not known yet is next to flat about the median."""
    if parameters.root_variance > 0:
        origin = 1.0 / parameters.root_variance, parameters.root_mean
    else:
        flat = 1.0 / (1e4 * (parameters.step + scores.spread**2))
        origin = flat, scores.median
    return TreePrior(parameters.step, parameters.drifts, parameters.ruined, *origin)


def tree_posterior(parameters: Parameters, scores: ScaledScores, tree: FamilyTree) -> Posterior:
    """Exact posterior of all rows given the parameters, which must be padded."""
    values, weights = scores.values, None
    if scores.case_count > 1:
        values = values - parameters.effects[scores.cases]
    if scores.degrees >= REPEATS:
        weights = scatter_within(scores, parameters).weights
    pull = sum_by_row(scores.rows, values if weights is None else weights * values, scores.size)
    weight = scores.counts if weights is None else sum_by_row(scores.rows, weights, scores.size)
    prior, noise = tree_prior(parameters, scores), parameters.noise
    return tree.sweep(scores.parents, weight / noise, pull / noise, prior)


def extended_posterior(
    parameters: Parameters, scores: ScaledScores, tree: FamilyTree
) -> tuple[Parameters, Posterior]:
    """Posterior with more observations than the parameters were learnt from.

    Children ruined since then are found by the learnt `fall` and stand alone, too.
    """
    known = parameters.padded_to(scores.size, scores.case_count)
    found = tree_posterior(known, scores, tree)
    if known.fall == math.inf:
        return known, found
    fallen = scores.parents >= 0
    fallen &= scores.counts > 0
    fallen &= scores.means - found.mean[scores.parents] < -known.fall
    if not (fallen & ~known.ruined).any():
        return known, found
    known = known._replace(ruined=known.ruined | fallen)
    return known, tree_posterior(known, scores, tree)
