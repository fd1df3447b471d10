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
    """Precision, and precision times mean, of each row, and its messages to its parent.

    By place, as `parent` (-1 for none) and `above`, the drift of the parent's children.
    """

    def __init__(self, weight: Floats, pull: Floats, parent: Ints, above: Floats) -> None:
        self.weight, self.pull, self.parent, self.above = weight, pull, parent, above
        self.sent_weight, self.sent_pull = np.zeros(len(weight)), np.zeros(len(weight))
        self.own, self.cavity = weight, np.zeros(len(weight))


class FamilyTree:
    """Parents and heights (above the lowest descendant) of all rows; it only grows.

    Rows of one height are independent of one another and are processed at once; the few of
    great height one by one. Each row has a place: those of great height first, then the groups,
    highest first, so that a new leaf has the last one.
    """

    def __init__(self) -> None:
        self._size = self._top = 0  # rows, and those of great height
        self._parents: list[int] = []
        self._heights = np.zeros(64, np.int64)
        self._starts: list[int] = []  # first place of each group, lowest first
        # rows by place, places by row, and by place that of the parent, -1 for none
        self._order = self._places = self._above = np.zeros(0, np.int64)

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
        if not (is_childless and self._starts):
            return self._sort_by_height(parents)
        for row in range(first, self._size):  # no height changed: they join the lowest
            self._order, self._places = with_room(self._order, row), with_room(self._places, row)
            self._above, above = with_room(self._above, row), int(parents[row])
            self._order[row] = self._places[row] = row
            self._above[row] = self._places[above] if above >= 0 else -1

    def _sort_by_height(self, parents: Ints) -> None:
        """Sort the rows by height."""
        heights = self._heights[: self._size]
        counts = np.bincount(heights)
        # the next height has as many rows or fewer: each needs a child of its own
        high = int((counts >= GROUP).sum())
        order, ends = np.argsort(heights, kind="stable"), np.cumsum(counts)[:high]
        groups = np.split(order, ends)
        self._order = np.concatenate([np.sort(groups[-1]), *groups[-2::-1]])
        self._starts, self._top = (self._size - ends).tolist(), len(groups[-1])
        self._places = np.empty(self._size, np.int64)
        self._places[self._order] = np.arange(self._size)
        above = parents[self._order]
        self._above = np.where(above >= 0, self._places[above], -1)

    def sweep(self, parents: Ints, weight: Floats, pull: Floats, prior: TreePrior) -> Posterior:
        """Posterior of all rows, as many as in the last sweep or more.

        `parents` (rows,): row of each parent, -1 for none, smaller than the child's. `weight`:
        precision of a row's own observations; `pull`: that times their mean.
        """
        if len(parents) > self._size:
            self._add_rows(parents)
        order, places = self._order[: self._size], self._places[: self._size]
        parent = np.where(prior.alone[order], -1, self._above[: self._size])
        above = prior.drift[order][np.maximum(parent, 0)]
        m = Messages(weight[order], pull[order], parent, above)
        bounds = [*zip(self._starts, [self._size, *self._starts])]
        self._send_up(m, bounds, prior)
        self._pass_top(m, prior)
        self._send_down(m, bounds, prior)
        mean, variance = m.pull / m.weight, 1.0 / m.weight
        return Posterior(mean[places], variance[places], m.own[places], m.cavity[places])

    def _send_up(self, m: Messages, bounds: list[tuple[int, int]], prior: TreePrior) -> None:
        """Messages of the groups to their parents, lowest first."""
        for first, end in bounds:
            sends = (m.parent[first:end] >= 0) & (m.weight[first:end] > 0)
            rows = np.flatnonzero(sends) + first
            weight, over = m.weight[rows], m.parent[rows]
            m.sent_weight[rows] = sent = 1.0 / (1.0 / weight + prior.step)
            m.sent_pull[rows] = pull = sent * (m.pull[rows] / weight - m.above[rows])
            np.add.at(m.weight, over, sent)
            np.add.at(m.pull, over, pull)

    def _send_down(self, m: Messages, bounds: list[tuple[int, int]], prior: TreePrior) -> None:
        """Messages of parents to the groups, highest first."""
        far = prior.origin_precision
        roots = np.flatnonzero(m.parent[self._top :] < 0) + self._top
        m.own[roots] = 0.0
        m.weight[roots] += far
        m.pull[roots] += far * prior.origin_mean
        for first, end in reversed(bounds):
            over, below = m.parent[first:end], slice(first, end)
            if over.min() < 0:
                rows = np.flatnonzero(over >= 0)
                over, below = over[rows], rows + first
            m.cavity[below] = rest = np.maximum(m.weight[over] - m.sent_weight[below], far)
            precision = 1.0 / (1.0 / rest + prior.step)
            news = (m.pull[over] - m.sent_pull[below]) / rest
            m.pull[below] += precision * (news + m.above[below])
            m.weight[below] += precision

    def _pass_top(self, m: Messages, prior: TreePrior) -> None:
        """Messages up and down among the rows of great height."""
        top, t2, far = slice(self._top), prior.step, prior.origin_precision
        kin, b = m.parent[top].tolist(), m.above[top].tolist()
        w, h = m.weight[top].tolist(), m.pull[top].tolist()
        up_w, up_h, cavity = [0.0] * len(kin), [0.0] * len(kin), [0.0] * len(kin)
        for i in range(len(kin) - 1, -1, -1):
            p = kin[i]
            if p >= 0 and w[i] > 0:
                up_w[i] = 1.0 / (1.0 / w[i] + t2)
                up_h[i] = up_w[i] * (h[i] / w[i] - b[i])
                w[p] += up_w[i]
                h[p] += up_h[i]
        m.own = m.weight.copy()
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
