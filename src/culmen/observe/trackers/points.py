"""Events turned into what trackers show: one point per evaluation, one span per effect."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from culmen.core.evaluation import Observation, Status
from culmen.core.event import Event
from culmen.core.task import Objective
from culmen.core.usage import Usage
from culmen.report.analyze_leader import Leader


class About(msgspec.Struct, frozen=True):
    """The run that is tracked: its name, its task and strategy, and flat settings as texts."""

    run: str
    task: str
    strategy: str
    settings: dict[str, str]


class Point(msgspec.Struct, frozen=True):
    """After so many `evaluations`: the score just seen (None: it failed), the best so far in the task's own direction,
    everything spent, active `seconds`, and the wall clock in Unix seconds."""

    evaluations: int
    score: float | None
    best: float | None
    usage: Usage
    seconds: float
    time: float

    def figures(self) -> dict[str, float]:
        """What there is to plot, by name."""
        spent = self.usage
        found: dict[str, float | None] = {"score": self.score, "best": self.best, "seconds": self.seconds}
        found |= {"dollars": spent.dollars, "calls": float(spent.calls), "tokens": float(spent.tokens)}
        return {name: value for name, value in found.items() if value is not None}


class Span(msgspec.Struct, frozen=True):
    """One finished effect in Unix seconds, with its result."""

    key: int
    effect: str
    role: str
    start: float
    end: float
    result: Any


class Tracker(Protocol):
    """What a tracking library is wrapped in; used from one thread only. Any error ends this tracker alone."""

    def start(self, about: About) -> None: ...

    def point(self, point: Point) -> None: ...

    def span(self, span: Span) -> None: ...

    def close(self, state: str) -> None: ...


class Points:
    """Counts events in their order."""

    def __init__(self, objective: Objective) -> None:
        self._objective, self._leader, self._usage = objective, Leader(), Usage()
        self._begun: dict[int, tuple[float, str]] = {}
        self.evaluations = 0
        self.state = ""

    def see(self, event: Event) -> tuple[Point | None, Span | None]:
        """What this event adds."""
        entry = event.entry
        if entry.kind == "started":
            self._begun[entry.key] = (event.time, str(entry.body.get("role", "")))
        elif entry.kind == "state":
            self.state = str(entry.body.get("state", ""))
        if entry.kind != "done":
            return None, None
        start, role = self._begun.pop(entry.key, (event.time, ""))
        role = str(entry.body.get("role", "")) or role
        self._usage = self._usage + (getattr(entry.result, "usage", None) or Usage())
        return self._point(event), Span(entry.key, entry.effect, role, start, event.time, entry.result)

    def _point(self, event: Event) -> Point | None:
        seen = event.entry.result
        if not isinstance(seen, Observation):
            return None
        if seen.status is not Status.LOST:
            turn = self._objective.reward
            reward = None if seen.score is None else turn(seen.score)
            self._leader.see(seen.candidate, reward, None if seen.certified is None else turn(seen.certified))
        self.evaluations += 1
        best = None if self._leader.mean is None else self._objective.score(self._leader.mean)
        return Point(self.evaluations, seen.score, best, self._usage, event.entry.elapsed, event.time)
