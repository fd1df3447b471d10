"""An archive of states; PUCT chooses the one to expand next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from culmen.core.evaluation import Rollout

_LEAST_SCALE = 1e-6


@dataclass(eq=False)
class TreeNode:
    """A state: its rollout, its reward R, its parent state, and its counts.

    `expansions` is n, the number of expansions of the state or a descendant; `best` is m, the
    highest reward of its own children; `hands` counts the uses in progress.
    """

    rollout: Rollout
    reward: float
    parent: TreeNode | None = None
    expansions: int = 0
    best: float | None = None
    hands: int = 0

    @property
    def value(self) -> float:
        """Q: the best reward among its children, or its own before it was expanded."""
        return self.reward if self.best is None or not self.expansions else self.best

    def with_ancestors(self) -> list[TreeNode]:
        """The state and its ancestors, youngest first."""
        ancestors: list[TreeNode] = []
        node: TreeNode | None = self
        while node is not None:
            ancestors.append(node)
            node = node.parent
        return ancestors


class Tree:
    """At most `most` states, the roots never evicted.

    Of one expansion the best `children` are kept. PUCT(s) = Q(s) + c * scale * P(s) * sqrt(1 + T) /
    (1 + n(s)), where P(s) falls linearly with the rank of R(s) and sums to 1, T counts all
    expansions, and scale is the range of R over states that are not roots.
    """

    def __init__(self, most: int, children: int) -> None:
        self._most, self._children = most, children
        self.nodes: list[TreeNode] = []
        self.expansions = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def add_root(self, rollout: Rollout, reward: float) -> None:
        """Add a root."""
        self.nodes.append(TreeNode(rollout, reward))

    def puct_scores(self, c: float) -> list[float]:
        """PUCT of every node, in the order of `nodes`."""
        size = len(self)
        if not size:
            return []
        grown = [node.reward for node in self.nodes if node.parent is not None] or [
            node.reward for node in self.nodes
        ]
        scale = max(max(grown) - min(grown), _LEAST_SCALE)
        order = sorted(range(size), key=lambda i: -self.nodes[i].reward)
        ranks = {i: rank for rank, i in enumerate(order)}
        step = 2.0 / (size * (size + 1))  # the prior of the last rank
        spread = c * scale * math.sqrt(1.0 + self.expansions)
        return [
            node.value + spread * (size - ranks[i]) * step / (1.0 + node.expansions)
            for i, node in enumerate(self.nodes)
        ]

    def take_node(self, c: float) -> TreeNode | None:
        """The state of highest PUCT, marked as in use; None from an empty tree.

        Ancestors and descendants of states in use are passed over while other states remain. Ties
        go to the higher reward, then to the older state.
        """
        if not self.nodes:
            return None
        scores = self.puct_scores(c)
        order = sorted(range(len(self)), key=lambda i: (-scores[i], -self.nodes[i].reward, i))
        held = {node: None for node in self.nodes if node.hands}
        above = {node: None for one in held for node in one.with_ancestors()}
        free = [
            i
            for i in order
            if self.nodes[i] not in above
            and not any(a in held for a in self.nodes[i].with_ancestors())
        ]
        chosen = self.nodes[(free or order)[0]]
        chosen.hands += 1
        return chosen

    def expand(self, node: TreeNode, found: Sequence[tuple[Rollout, float]]) -> list[TreeNode]:
        """Release a state with its scored children, possibly none; returns the children kept."""
        node.hands -= 1
        self.expansions += 1
        for one in node.with_ancestors():
            one.expansions += 1
        if not found:
            return []
        top = max(reward for _, reward in found)
        node.best = top if node.best is None else max(node.best, top)
        best = sorted(found, key=lambda pair: -pair[1])[: self._children]
        kept = [TreeNode(rollout, reward, node) for rollout, reward in best]
        self.nodes += kept
        self._evict_worst()
        return kept

    def _evict_worst(self) -> None:
        """Drop the worst; roots and states in use stay."""
        surplus = len(self) - self._most
        if surplus > 0:
            loose = [
                i for i, node in enumerate(self.nodes) if node.parent is not None and not node.hands
            ]
            gone = dict.fromkeys(sorted(loose, key=lambda i: self.nodes[i].reward)[:surplus])
            self.nodes = [node for i, node in enumerate(self.nodes) if i not in gone]
