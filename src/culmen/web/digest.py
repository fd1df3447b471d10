"""What a dashboard keeps of one run between two looks: only what is new is read again."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from culmen.core.usage import Usage
from culmen.store import views
from culmen.store.meta import RunMeta
from culmen.store.views import Remark

T = TypeVar("T")


class Span(NamedTuple):
    """One effect from start to end in active seconds; `end` None while it runs, `outcome` done | torn | abandoned."""

    key: int
    effect: str
    start: float
    end: float | None
    outcome: str


class Digest:
    """Spans, costs, notes and places of evaluations of one run, brought up to date by `refresh`.

    `names` maps the path of a strategy's class to what it is called. Usable from several threads at once. Lists are
    only appended to, but for `spans`, whose open ones get their end.
    """

    def __init__(self, run: Path, names: Mapping[str, str] | None = None) -> None:
        self.run, self._names = run, names or {}
        self.spans: list[Span] = []
        self.sessions: list[float] = []  # active seconds at which a process took the run up
        self.costs: list[tuple[int, Usage]] = []  # seq, everything spent up to there
        self.evaluations: list[int] = []  # seq of every observation
        self.faults: Counter[str] = Counter()  # what went wrong in calls, also what a retry made good
        self.notes: list[Remark] = []
        self.last = 0
        self._open: dict[int, int] = {}
        self.kept: dict[str, Any] = {}  # what a page has read so far, for itself
        self._memos: dict[str, tuple[int, Any]] = {}
        self._meta: RunMeta | None = None
        self._lock = threading.Lock()

    @property
    def meta(self) -> RunMeta:
        """The run's task and settings; what changes while it runs (the isolation found) is in its status."""
        self._meta = self._meta or views.meta(self.run)
        return self._meta

    def refresh(self) -> Digest:
        """Read what was journaled since the last time."""
        with self._lock:
            newest = views.pulse(self.run)
            if newest > self.last:
                for mark in views.marks(self.run, self.last):
                    if mark.seq <= newest:
                        self._mark(mark)
                spent = self.costs[-1][1] if self.costs else Usage()
                for cost in views.costs(self.run, self.last):
                    if cost.seq <= newest:
                        spent = spent + cost.usage
                        self.costs.append((cost.seq, spent))
                        self.faults.update(cost.faults)
                self.evaluations += [seq for seq in views.evaluated(self.run, self.last) if seq <= newest]
                self.notes += [note for note in views.remarks(self.run, self.last) if note.seq <= newest]
                self.last = newest
        return self

    def spent_at(self, seq: int) -> Usage:
        """What model calls and other effects had cost when event `seq` was journaled."""
        place = bisect_right(self.costs, seq, key=lambda cost: cost[0])
        return self.costs[place - 1][1] if place else Usage()

    def evaluations_at(self, seq: int) -> int:
        """How many evaluations had been made when event `seq` was journaled."""
        return bisect_right(self.evaluations, seq)

    @property
    def strategy(self) -> str:
        """What the run's strategy is called on the command line, else the name of its class."""
        path = str(self.meta.strategy.get("path", ""))
        return self._names.get(path) or path.rpartition(":")[2]

    def memo(self, name: str, state: int, make: Callable[[], T]) -> T:
        """What `make` made, kept while `state` (a seq, a count) is the same."""
        kept = self._memos.get(name)
        if kept is None or kept[0] != state:
            kept = self._memos[name] = (state, make())
        return kept[1]

    def running(self) -> list[Span]:
        """What is in flight, longest first."""
        return [self.spans[place] for place in self._open.values()]

    def _mark(self, mark: views.Mark) -> None:
        if mark.kind == "started":
            self._end(mark.key, mark.elapsed, "torn")  # of an earlier session
            self._open[mark.key] = len(self.spans)
            self.spans.append(Span(mark.key, mark.effect, mark.elapsed, None, ""))
        elif mark.kind in ("done", "torn"):
            self._end(mark.key, mark.elapsed, mark.kind)
        else:
            if mark.kind == "state" and mark.elapsed not in self.sessions:
                self.sessions.append(mark.elapsed)
            for key in list(self._open):
                self._end(key, mark.elapsed, "abandoned")

    def _end(self, key: int, elapsed: float, outcome: str) -> None:
        place = self._open.pop(key, None)
        if place is not None:
            self.spans[place] = self.spans[place]._replace(end=elapsed, outcome=outcome)
