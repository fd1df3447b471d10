"""What a run's search knows of its candidates' true rewards: the value model (`memory.pedigree`) made from the tables.

It is kept while a run is looked at again and again, and then only told what is new.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from culmen.core.task import Task
from culmen.store import sql
from culmen.store.codec import unescape

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from culmen.memory.pedigree import StepLaw, ValueModel

MODELLED = 20_000  # evaluations up to which it is made
_KEPT = 8

_lock = threading.Lock()
_kept: OrderedDict[str, Estimates] = OrderedDict()


def estimates(connection: Connection, folder: Path, task: Task) -> Estimates | None:
    """The search's estimates so far; None where they would tell nothing more than the scores themselves (these are
    exact and there is one case at most), or where the run is too long for the model."""
    seen = sql.observation.c
    some = sql.select(seen.seq).limit(MODELLED + 1).subquery()  # a million need not be counted
    count = connection.execute(sql.select(sql.func.count()).select_from(some)).scalar_one()
    if not count or count > MODELLED:
        return None
    last = connection.execute(sql.select(sql.func.max(seen.seq))).scalar_one()
    name = str(folder.absolute())
    with _lock:
        found = _kept.pop(name, None)
        if found is None or not found.refresh(connection, count, last):
            found = Estimates(task)
            found.refresh(connection, count, last)
        _kept[name] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return None if found.noiseless else found


def step_law(connection: Connection, task: Task) -> StepLaw | None:
    """What the search of this run learnt of steps and noise; None without scores."""
    seen, found = sql.observation.c, Estimates(task)
    count, last = connection.execute(sql.select(sql.func.count(), sql.func.max(seen.seq))).one()
    found.refresh(connection, count, last or 0)
    return found.law


class Arrival(NamedTuple):
    """A candidate, its parents, and the event it came with."""

    candidate: str
    parents: list[str]
    seq: int


class ScoreRow(NamedTuple):
    """A score of a candidate on a case (None: it failed), whether the search's estimates count it, and its event."""

    candidate: str
    score: float | None
    case: str
    counts: bool
    seq: int


def arrivals(connection: Connection, after: int, last: int) -> list[Arrival]:
    """The candidates of the events after `after`, up to `last`, in the order in which the model takes them."""
    born = sql.candidate.c
    query = sql.select(born.id, born.parents, born.seq).where(born.seq > after, born.seq <= last)
    rows = connection.execute(query.order_by(born.seq, born.id)).all()
    return [Arrival(unescape(name), unescape(parents).split(), seq) for name, parents, seq in rows]


def score_rows(connection: Connection, after: int, last: int) -> list[ScoreRow]:
    """The scores of these events; those of the final choice and lost ones do not count."""
    seen = sql.observation.c
    made = sql.select(seen.candidate, seen.score, seen.case, seen.phase, seen.status, seen.seq)
    rows = connection.execute(made.where(seen.seq > after, seen.seq <= last).order_by(seen.seq)).all()
    return [
        ScoreRow(unescape(name), score, unescape(case), phase != "final" and status != "lost", seq)
        for name, score, case, phase, status, seq in rows
    ]


class Estimates:
    """The value model of one run; for any thread."""

    def __init__(self, task: Task) -> None:
        from culmen.memory.pedigree import ValueModel

        self._reward = task.objective.reward
        self._model: ValueModel = ValueModel(task.objective.floor, task.deterministic)
        self._lock = threading.Lock()
        self._count = self._last = self._born = 0
        self.noiseless = True

    @property
    def law(self) -> StepLaw | None:
        """What was learnt of steps and noise; None without scores."""
        with self._lock:
            return self._model.law

    def value(self, candidate: str) -> tuple[float, float] | None:
        """Reward to be expected of a candidate and its standard deviation; None while nothing is known of it."""
        with self._lock:
            value = self._model.value(candidate) if candidate in self._model.index else None
        return (value.mean, value.sd) if value is not None and math.isfinite(value.mean) else None

    def count(self, candidate: str) -> int:
        """How often it was evaluated."""
        with self._lock:
            return self._model.value(candidate).count if candidate in self._model.index else 0

    def leader(self, without: set[str]) -> str | None:
        """Of the candidates that scored, but for these, the one with the highest value minus one deviation."""
        with self._lock:
            bound = self._model.worth() - self._model.variance**0.5
            for name in without & self._model.index.keys():
                bound[self._model.index[name]] = -math.inf
            return self._model.ids[int(bound.argmax())] if len(bound) and math.isfinite(bound.max()) else None

    def refresh(self, connection: Connection, count: int, last: int) -> bool:
        """Learn what is new, of `count` observations up to event `last`. False if this is not the run it was: then
        begin anew."""
        with self._lock:
            if (count, last) == (self._count, self._last):
                return True
            self._enter(arrivals(connection, self._born, last))
            self._observe(score_rows(connection, self._last, last))
            self._last = last
            return self._count == count

    def learn(self, born: Iterable[Arrival], seen: Iterable[ScoreRow]) -> None:
        """Learn what somebody else has read: candidates, then scores, each in their order."""
        with self._lock:
            self._enter(born)
            self._observe(seen)

    def _enter(self, born: Iterable[Arrival]) -> None:
        for name, parents, seq in born:
            self._model.add(name, parents)
            self._born = seq

    def _observe(self, seen: Iterable[ScoreRow]) -> None:
        for name, score, case, counts, _ in seen:
            self._count += 1
            if counts:
                self._model.observe(name, None if score is None else self._reward(score), case)
        self.noiseless = self._model.noiseless
