"""Exact inference on family trees: Gaussian messages up the tree, then down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from culmen.evidence.pedigree.arrays import Flags, Floats, Ints, with_room

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
        first, is_childless = self._size, True
        for row in range(first, len(parents)):
            above = int(parents[row])
            self._parents.append(above)
            self._heights = with_room(self._heights, row)
            height = 0
            while above >= 0 and self._heights[above] <= height:
                height += 1
                self._heights[above], above = height, self._parents[above]
                is_childless = False
        self._size = len(parents)
        if is_childless and self._groups:  # no height changed: the new rows join the lowest
            self._groups[0] = np.append(self._groups[0], np.arange(first, self._size))
        else:
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
