"""Sums kept beside the events, in the same transaction: what views would otherwise have to add up from every event."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.evaluation import LEVELS, Observation, Status, rank
from culmen.core.event import Edits, Entry
from culmen.core.usage import Usage
from culmen.store.codec import escape

FAILURES = ("invalid", "error", "timeout", "rejected")


@dataclass(slots=True)
class Tally:
    """One candidate's scores within one append: count, mean, sum of squared deviations; and how it failed."""

    first: int
    count: int = 0
    mean: float = 0.0
    spread: float = 0.0
    failures: Counter[str] = field(default_factory=Counter[str])
    asked: int = 0
    accepted: int = 0
    strict: int = 0
    barred: int = 0
    low: float | None = None
    high: float | None = None
    grave: int | None = None
    trust: int | None = None

    def add(self, observation: Observation, seq: int) -> None:
        """One more observation (Welford), the event `seq`."""
        if observation.strict is not None or observation.signs:
            self._judge(observation, seq)
        if observation.score is None:
            self.failures[observation.status.value] += 1
            return
        weakness = rank(observation.trust) if observation.trust in LEVELS else rank("")
        if self.trust is None or weakness > self.trust:
            self.trust = weakness
        self.count += 1
        delta = observation.score - self.mean
        self.mean += delta / self.count
        self.spread += delta * (observation.score - self.mean)

    def _judge(self, observation: Observation, seq: int) -> None:
        """What a verifier and a guard said."""
        self.barred += observation.barred
        if self.grave is None and observation.grave is not None:
            self.grave = seq
        if observation.strict is None or observation.barred:
            return
        self.asked += 1
        self.strict += observation.strict
        if (value := observation.certified) is not None:
            self.accepted += 1
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    def row(self, candidate: str) -> tuple[Any, ...]:
        """In the order of the table's columns."""
        each = [self.failures[name] for name in FAILURES]
        scores = (candidate, self.count, self.mean, self.spread, sum(each), *each, self.failures["lost"], self.first)
        judged = (self.asked, self.accepted, self.strict, self.barred, self.low, self.high, self.grave, self.trust)
        return scores + judged


@dataclass(slots=True)
class Totals:
    """What one append adds to the tables of sums."""

    observations: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    spent: dict[tuple[str, str, str], list[Any]] = field(default_factory=dict[tuple[str, str, str], list[Any]])
    counters: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def see(self, entry: Entry, seq: int) -> None:
        """Count one entry."""
        self.counters["kind", entry.kind] += 1
        if entry.kind == "done":
            if isinstance(entry.result, Observation):
                self._observe(entry, entry.result, seq)
            self._finish(entry)
        elif entry.kind == "torn" and (usage := entry.body.get("usage")):
            self._spend(("torn", "", ""), msgspec.convert(usage, Usage))

    def spend_rows(self) -> list[tuple[Any, ...]]:
        """In the order of the table's columns."""
        return [(*key, *values) for key, values in self.spent.items()]

    def _observe(self, entry: Entry, observation: Observation, seq: int) -> None:
        candidate = observation.candidate
        phase = str(entry.body.get("phase", ""))
        self.observations.append(
            (
                seq,
                escape(candidate),
                escape(observation.case),
                observation.score,
                observation.status.value,
                escape(observation.reason),
                observation.seconds,
                str(observation.seed),
                escape(phase),
                escape(observation.trust),
            )
        )
        tally = self.tallies.get(candidate)
        if tally is None:
            tally = self.tallies[candidate] = Tally(seq)
        tally.add(observation, seq)
        self.counters["status", observation.status.value] += 1
        if observation.signs:
            self.counters["sign", ""] += 1
        if observation.status is Status.OK:
            self.counters["trust", escape(observation.trust)] += 1
        else:
            self.counters["reason", escape(observation.reason or observation.status.value)] += 1

    def _finish(self, entry: Entry) -> None:
        result = entry.result
        if isinstance(result, Proposal | Text | Edits) and result.fault:
            self.counters["fault", escape(result.fault)] += 1
        role, model = str(entry.body.get("role", "")), getattr(result, "model", "")
        key = (escape(entry.effect), escape(role), escape(model))
        self._spend(key, getattr(result, "usage", _FREE), int(isinstance(result, Observation)))

    def _spend(self, key: tuple[str, str, str], usage: Usage, evaluations: int = 0) -> None:
        sums = self.spent.get(key)
        if sums is None:
            sums = self.spent[key] = [0] * 8
        sums[0] += 1
        sums[1] += evaluations
        for place, value in enumerate(msgspec.structs.astuple(usage), 1):
            sums[place] += value


_FREE = Usage()
