"""The best candidate after every single evaluation, by the rule of `store.ranking`.

The store notes its own series once per transaction, which may hold many evaluations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(slots=True)
class _Tally:
    order: int
    count: int = 0
    failed: int = 0
    mean: float = 0.0

    @property
    def group(self) -> tuple[int, int]:
        return self.failed, self.count


class Leader:
    """Highest mean minus one standard error (spread pooled over all candidates) among those that never failed; among
    all that ever scored where there is none. Rewards, higher is better. What a verifier certified stands in place of
    the bound.

    Among candidates of equal counts the bound follows the mean, so that a heap for each count that occurs is enough;
    what a heap holds of a candidate that has moved on is dropped when it comes to the top.
    """

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self._groups: dict[tuple[int, int], list[tuple[float, int, str]]] = {}
        self._spread, self._degrees = 0.0, 0
        self._certified: dict[str, float] = {}

    def see(self, candidate: str, reward: float | None, certified: float | None = None) -> None:
        """One more evaluation; None if it failed. `certified` is the verifier's value, the worst of several counts."""
        if certified is not None:
            self._certified[candidate] = min(certified, self._certified.get(candidate, certified))
        tally = self._tallies.setdefault(candidate, _Tally(len(self._tallies)))
        if reward is None:
            tally.failed += 1
        else:
            tally.count += 1
            delta = reward - tally.mean
            tally.mean += delta / tally.count
            self._spread += delta * (reward - tally.mean)
            self._degrees += tally.count > 1
        if tally.count:
            heappush(self._groups.setdefault(tally.group, []), (-tally.mean, tally.order, candidate))

    @property
    def mean(self) -> float | None:
        """The leader's mean (or certified) reward; None while nothing has scored."""
        vouched = [value for name, value in self._certified.items() if not self._tallies[name].failed]
        found = max(vouched, default=None)
        best = None if found is None else (True, found)
        sd = math.sqrt(max(0.0, self._spread) / self._degrees) if self._degrees else 0.0
        for failed, count in sorted(self._groups):
            top = self._top((failed, count))
            if top is not None and (best is None or (not failed, top - sd / math.sqrt(count)) > best):
                best, found = (not failed, top - sd / math.sqrt(count)), top
        return found

    def _top(self, group: tuple[int, int]) -> float | None:
        """The highest mean of a group; the group is dropped where nobody is left in it."""
        heap = self._groups[group]
        while heap:
            name = heap[0][2]
            tally = self._tallies[name]
            if tally.group == group and tally.mean == -heap[0][0] and name not in self._certified:
                return tally.mean
            heappop(heap)
        del self._groups[group]
        return None
