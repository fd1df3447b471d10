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
from culmen.store.views import StrategyNote

T = TypeVar("T")


class Span(NamedTuple):
    """One effect from start to end in active seconds; `end` None while it runs, `outcome` done | torn | abandoned."""

    key: int
    effect: str
    start: float
    end: float | None
    outcome: str


class Digest:
    """Spans, costs, notes and places of evaluations of one run, up to the event `last`, which `refresh` moves on.

    Each of them is read when it is first asked for, and from then on only extended: the first page of a long run need
    not wait for what it does not show. `names` maps the path of a strategy's class to what it is called; `name` is what
    the run is called, its folder's name by default. Usable from several threads at once. Lists are only appended to,
    but for `spans`, whose open ones get their end.
    """

    def __init__(self, run: Path, names: Mapping[str, str] | None = None, name: str = "") -> None:
        self.run, self.name, self._names, self.last = run, name or run.name, names or {}, 0
        self._spans: list[Span] = []
        self._sessions: list[float] = []
        self._costs: list[tuple[int, Usage]] = []
        self._evaluations: list[int] = []
        self._faults: Counter[str] = Counter()
        self._notes: list[StrategyNote] = []
        self._open: dict[int, int] = {}
        self._read_to: dict[str, int] = {}  # how far each part has been read
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
        """See what was journaled since the last time."""
        with self._lock:
            self.last = max(self.last, views.last_seq(self.run))
        return self

    @property
    def spans(self) -> list[Span]:
        """All effects, in the order in which they were started."""
        self._bring("marks", self._read_marks)
        return self._spans

    @property
    def sessions(self) -> list[float]:
        """Active seconds at which a process took the run up."""
        self._bring("marks", self._read_marks)
        return self._sessions

    @property
    def costs(self) -> list[tuple[int, Usage]]:
        """Seq, and everything spent up to there."""
        self._bring("costs", self._read_costs)
        return self._costs

    @property
    def faults(self) -> Counter[str]:
        """What went wrong in calls by kind, also what a retry made good."""
        self._bring("costs", self._read_costs)
        return self._faults

    @property
    def evaluations(self) -> list[int]:
        """Seq of every observation."""
        self._bring("evaluations", self._read_evaluations)
        return self._evaluations

    @property
    def notes(self) -> list[StrategyNote]:
        """What the strategy noted."""
        self._bring("notes", self._read_notes)
        return self._notes

    def spent_at(self, seq: int) -> Usage:
        """What model calls and other effects had cost when event `seq` was journaled."""
        costs = self.costs
        place = bisect_right(costs, seq, key=lambda cost: cost[0])
        return costs[place - 1][1] if place else Usage()

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

    def _bring(self, part: str, read: Callable[[int, int], None]) -> None:
        """Let a part read what it has not seen up to `last`."""
        if self._read_to.get(part, 0) == self.last:
            return
        with self._lock:
            after, last = self._read_to.get(part, 0), self.last
            if after < last:
                read(after, last)
                self._read_to[part] = last

    def _read_marks(self, after: int, last: int) -> None:
        for mark in views.effect_marks(self.run, after, last):
            self._mark(mark)

    def _read_costs(self, after: int, last: int) -> None:
        spent = self._costs[-1][1] if self._costs else Usage()
        for cost in views.costs(self.run, after, last):
            spent = spent + cost.usage
            self._costs.append((cost.seq, spent))
            self._faults.update(cost.faults)

    def _read_evaluations(self, after: int, last: int) -> None:
        self._evaluations += views.evaluated(self.run, after, last)

    def _read_notes(self, after: int, last: int) -> None:
        self._notes += views.strategy_notes(self.run, after, last)

    def _mark(self, mark: views.EffectMark) -> None:
        if mark.kind == "started":
            self._end(mark.key, mark.elapsed, "torn")  # of an earlier session
            self._open[mark.key] = len(self._spans)
            self._spans.append(Span(mark.key, mark.effect, mark.elapsed, None, ""))
        elif mark.kind in ("done", "torn"):
            self._end(mark.key, mark.elapsed, mark.kind)
        else:
            if mark.kind == "state" and mark.elapsed not in self._sessions:
                self._sessions.append(mark.elapsed)
            for key in list(self._open):
                self._end(key, mark.elapsed, "abandoned")

    def _end(self, key: int, elapsed: float, outcome: str) -> None:
        place = self._open.pop(key, None)
        if place is not None:
            self._spans[place] = self._spans[place]._replace(end=elapsed, outcome=outcome)
