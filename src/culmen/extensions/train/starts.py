"""The program from which each decision of a barrier starts.

It is the island's own choice, or a state reused by PUCT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from culmen.core.evaluation import Rollout
from culmen.core.json import JsonObject
from culmen.extensions.baselines.tree import Tree, TreeNode
from culmen.strategies.settings import About, check

Scored = tuple[Rollout, float]


class Starting(Protocol):
    """The starts of one search.

    They are taken before the decisions of a barrier, and given back with the result of each, the
    barrier that took first first.
    """

    def take_starts(self, count: int) -> Sequence[Rollout | None]: ...

    def give_back(self, found: Sequence[Scored | None]) -> list[JsonObject]: ...


class Starts(Protocol):
    """The setting; `begin(seeds)` for one search."""

    def begin_search(self, seeds: Sequence[Scored]) -> Starting: ...


@dataclass(frozen=True)
class Islands:
    """Every island draws its parent from its own population (PACEvolve)."""

    def begin_search(self, seeds: Sequence[Scored]) -> Starting:
        return _Own()


@dataclass(frozen=True)
class Puct:
    """States of one archive for all islands, chosen by PUCT.

    Source: TTT-Discover; see the strategy `puct`. A barrier's starts lie on different lines of
    descent while there are any; an expansion without a result counts, too.
    """

    c: Annotated[float, About("weight of exploration", least=0)] = 1.0
    children: Annotated[int, About("programs kept of one expansion", least=1)] = 2
    most: Annotated[int, About("programs kept in all; initial programs always are", least=2)] = 1000

    def __post_init__(self) -> None:
        check(self)

    def begin_search(self, seeds: Sequence[Scored]) -> Starting:
        return _Reused(self, seeds)


class _Own:
    def take_starts(self, count: int) -> Sequence[Rollout | None]:
        return [None] * count

    def give_back(self, found: Sequence[Scored | None]) -> list[JsonObject]:
        return []


class _Reused:
    def __init__(self, rules: Puct, seeds: Sequence[Scored]) -> None:
        self._c, self._tree = rules.c, Tree(rules.most, rules.children)
        self._taken: list[list[TreeNode | None]] = []  # of each barrier under way
        self._known = {rollout.candidate.id for rollout, _ in seeds}
        for rollout, reward in seeds:
            self._tree.add_root(rollout, reward)

    def take_starts(self, count: int) -> Sequence[Rollout | None]:
        self._taken.append([self._tree.take_node(self._c) for _ in range(count)])
        return [node.rollout if node else None for node in self._taken[-1]]

    def give_back(self, found: Sequence[Scored | None]) -> list[JsonObject]:
        """Expand every state taken; a note for each. Known programs do not become new states."""
        notes: list[JsonObject] = []
        for node, one in zip(self._taken.pop(0), found, strict=True):
            fresh = [one] if one is not None and one[0].candidate.id not in self._known else []
            self._known.update(rollout.candidate.id for rollout, _ in fresh)
            if node is None:  # no seed could be scored: children that score become roots
                for rollout, reward in fresh:
                    self._tree.add_root(rollout, reward)
                continue
            kept = self._tree.expand(node, fresh)
            notes.append(
                {
                    "parent": node.rollout.candidate.id,
                    "value": node.value,
                    "expansions": node.expansions,
                    "total": self._tree.expansions,
                    "kept": [child.rollout.candidate.id for child in kept],
                    "states": len(self._tree),
                }
            )
        return notes
