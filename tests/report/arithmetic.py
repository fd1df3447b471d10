"""Figures of a run by a second way: plain sums over the events of its journal."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from culmen.core.candidate import Candidate
from culmen.core.event import Entry
from culmen.store.journal import SqlJournal


@dataclass
class Seen:
    """One evaluation: its number from 1, its event, its time, and what came of it."""

    number: int
    seq: int
    elapsed: float
    candidate: str
    case: str
    score: float | None
    status: str
    reason: str
    seconds: float
    trust: str
    phase: str
    culprit: str
    metrics: dict[str, float]


@dataclass
class Spent:
    """Cost of a request: one `done` event that is no evaluation."""

    seq: int
    effect: str
    role: str
    model: str
    calls: int
    read: int
    written: int
    dollars: float
    faults: dict[str, int]
    born: list[str] = field(default_factory=list)


class Arithmetic:
    """All events of a run, and sums over them."""

    def __init__(self, folder: Path) -> None:
        with SqlJournal.open(folder, write=False) as journal:
            self.meta = journal.meta
            self.events = [(event.seq, event.entry) for event in journal.read()]
        self.folder = folder
        self.goal = self.meta.task.objective
        self.sign = -1.0 if self.goal.direction == "min" else 1.0
        self.seen: list[Seen] = []
        self.costs: list[Spent] = []
        self.candidates: dict[str, Candidate] = {}
        self.born_at: dict[str, int] = {}
        for seq, entry in self.events:
            self._read(seq, entry)

    def _read(self, seq: int, entry: Entry) -> None:
        result: Any = entry.result
        if hasattr(result, "status"):
            number = len(self.seen) + 1
            made = result.candidate, result.case, result.score, result.status.value, result.reason
            phase = str(entry.body.get("phase", ""))
            more = result.seconds, result.trust, phase, result.culprit, result.metrics
            self.seen.append(Seen(number, seq, entry.elapsed, *made, *more))
            return
        born = [each for each in getattr(result, "candidates", ()) if each.id not in self.born_at]
        for each in born:
            self.candidates[each.id], self.born_at[each.id] = each, seq
        usage = getattr(result, "usage", None)
        if entry.kind == "done" and usage is not None:
            about = entry.effect, entry.body.get("role", ""), getattr(result, "model", "")
            spent = usage.calls, usage.input_tokens, usage.output_tokens, usage.dollars
            faults = dict(getattr(result, "faults", {}))
            self.costs.append(Spent(seq, *about, *spent, faults, [each.id for each in born]))

    # -- candidates

    @cached_property
    def by_candidate(self) -> dict[str, list[Seen]]:
        """Evaluations of each candidate."""
        found: dict[str, list[Seen]] = defaultdict(list)
        for each in self.seen:
            found[each.candidate].append(each)
        return found

    def searched(self, name: str) -> list[Seen]:
        """Evaluations of a candidate by the search."""
        return [each for each in self.by_candidate.get(name, ()) if not each.phase]

    def fresh(self, name: str) -> list[Seen]:
        """Evaluations of a candidate after the search, those it is excused of left out."""
        seen = self.by_candidate.get(name, ())
        return [each for each in seen if each.phase == "final" and not each.culprit]

    def scores(self, seen: Iterable[Seen]) -> list[float]:
        return [each.score for each in seen if each.score is not None]

    def search_mean(self, name: str) -> float | None:
        """Mean score of a candidate in the search."""
        found = self.scores(self.searched(name))
        return fmean(found) if found else None

    def metric_mean(self, seen: Sequence[Seen], metric: str) -> float:
        """Mean of a metric: of the means by case."""
        return mean_by_case([(each.case, each.metrics[metric]) for each in seen if each.metrics])

    def failures(self, name: str) -> Counter[str]:
        """The search's evaluations of a candidate without a score, by status."""
        return Counter(
            "lost" if each.culprit else each.status
            for each in self.searched(name)
            if each.score is None
        )

    # -- spending

    def dollars_to(self, seq: int) -> float:
        """Dollars spent up to an event."""
        return sum(each.dollars for each in self.costs if each.seq <= seq)

    def share_of_request(self, name: str) -> float:
        """Dollars of the request that made a candidate, shared alike among its siblings."""
        made = [each for each in self.costs if name in each.born]
        return made[0].dollars / len(made[0].born) if made else 0.0


def mean_by_case(pairs: Sequence[tuple[str, float]]) -> float:
    """Mean of the means by case."""
    by_case: dict[str, list[float]] = defaultdict(list)
    for case, value in pairs:
        by_case[case].append(value)
    return fmean(fmean(each) for each in by_case.values())
