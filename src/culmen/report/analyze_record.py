"""A run as plain tables, read from its journal in one pass: what the analyses of TurboEvolve, Section 6, are made from.

Rewards are scores turned so that higher is better; a gain is a candidate's reward minus that of the parent it was
asked to improve (the paper's delta).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.brief import Proposal
from culmen.core.evaluation import Observation, Status, weakest
from culmen.core.event import Event
from culmen.core.task import Objective
from culmen.report.analyze_leader import Leader
from culmen.report.analyze_training import Barrier, barrier
from culmen.store import views

_PAGE = 2000
_KINDS = ("done", "note")
_GRIDS = ("event", "grid")  # notes that tell how many cells are taken

Vector = tuple[float, ...]


class Moment(msgspec.Struct, frozen=True):
    """A run after so many evaluations: active seconds, known dollars, and the score of the candidate that was best then
    (in the task's own direction, None while nothing had scored)."""

    evaluations: int
    seconds: float
    dollars: float
    best: float | None = None


class Child(msgspec.Struct, frozen=True):
    """One candidate of a reply. `rank` counts from 1 in the order of the reply; `status` is that of its evaluation, or
    `known` for a content that had been evaluated before, or `unseen` if it never was. `cell` is its place in the grid.
    """

    rank: int
    status: str
    reward: float | None = None
    cell: Vector | None = None


class Ask(msgspec.Struct, frozen=True):
    """One request for candidates (the paper's event), after `evaluations` of the run.

    `k` candidates were asked for. `distance` is how far the parent was from the candidates shown beside it, on average
    over those, in the grid's features, each scaled to 0..1 by all values that the run has seen; `inspiration` is the
    highest reward among those shown. None where the journal does not tell.
    """

    evaluations: int
    k: int
    children: tuple[Child, ...]
    parent: float | None = None
    cell: Vector | None = None
    island: int = 0
    turn: int = 0
    next_k: int | None = None
    inspiration: float | None = None
    distance: float | None = None

    def gain(self, child: Child) -> float | None:
        """The child's reward minus the parent's; None if either has none."""
        return None if child.reward is None or self.parent is None else child.reward - self.parent


class Filled(msgspec.Struct, frozen=True):
    """The state of one island's grid after `evaluations` of the run: cells taken, mean reward of their occupants."""

    evaluations: int
    island: int
    cells: int
    quality: float | None


class Record(msgspec.Struct, frozen=True):
    """One run. `moments` has one row per evaluation, those included that failed or were made for the final choice;
    `unpriced` counts the calls whose price is unknown, `trust` is the level of the weakest score (`core.trust`)."""

    run: str
    task: str
    direction: str
    strategy: str
    config: dict[str, Any]
    model: str
    moments: tuple[Moment, ...] = ()
    asks: tuple[Ask, ...] = ()
    filled: tuple[Filled, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    unpriced: int = 0
    trust: str = ""

    @property
    def evaluations(self) -> int:
        """All that were made, also those that failed."""
        return len(self.moments)


def read(run: Path | str) -> Record:
    """The tables of one run; raises `UserError` where there is none, `JournalDamaged` where it cannot be read."""
    meta = views.meta(run)
    reader = _Reader(meta.task.objective)
    for event in _events(run):
        reader.see(event)
    return Record(
        run=meta.id,
        task=meta.task.name,
        direction=meta.task.objective.direction,
        strategy=str(meta.strategy.get("path", "")),
        config=meta.strategy.get("config") or {},
        model=str(meta.extra.get("model") or meta.models.get("default", "")),
        moments=tuple(reader.moments),
        asks=tuple(reader.asks()),
        filled=tuple(reader.filled),
        barriers=tuple(reader.barriers),
        unpriced=reader.unpriced,
        trust=weakest(reader.trust),
    )


def _events(run: Path | str) -> Iterator[Event]:
    after = 0
    while page := views.log(run, after, _PAGE, _KINDS):
        yield from page
        after = page[-1].seq


class _Reader:
    """Events in their order, turned into rows."""

    def __init__(self, objective: Objective) -> None:
        self._objective, self._leader = objective, Leader()
        self.moments: list[Moment] = []
        self.filled: list[Filled] = []
        self.barriers: list[Barrier] = []
        self.unpriced = 0
        self.trust: set[str] = set()
        self._dollars = 0.0
        self._means: dict[str, tuple[int, float]] = {}
        self._failed: dict[str, str] = {}
        self._noted: list[tuple[int, dict[str, Any]]] = []
        self._replies: list[tuple[int, Proposal, float | None]] = []

    def see(self, event: Event) -> None:
        """Count one event."""
        entry = event.entry
        usage = getattr(entry.result, "usage", None)
        if entry.kind == "done" and usage is not None:
            self._dollars += usage.dollars
            self.unpriced += usage.unpriced
        if isinstance(entry.result, Observation):
            self._observe(entry.result)
            best = None if self._leader.mean is None else self._objective.score(self._leader.mean)
            self.moments.append(Moment(len(self.moments) + 1, entry.elapsed, self._dollars, best))
        elif entry.kind == "done" and isinstance(entry.result, Proposal) and entry.result.candidates:
            self._reply(entry.result)
        elif entry.kind == "note" and entry.body.get("note") in _GRIDS and "cells" in entry.body:
            self._note(entry.body)
        elif entry.kind == "note" and entry.body.get("note") == "barrier":
            self.barriers.append(barrier(entry.body, len(self.moments)))

    def asks(self) -> list[Ask]:
        """The requests as the strategy noted them; without such notes, as the replies in the journal tell them."""
        if self._noted:
            scale = _scale(body for _, body in self._noted)
            return [_noted(evaluations, body, scale) for evaluations, body in self._noted]
        return [self._plain(*reply) for reply in self._replies]

    def _observe(self, seen: Observation) -> None:
        if seen.status is Status.LOST:
            return
        if seen.score is None:
            self._failed.setdefault(seen.candidate, seen.status.value)
            self._leader.see(seen.candidate, None)
            return
        self.trust.add(seen.trust)
        count, mean = self._means.get(seen.candidate, (0, 0.0))
        reward = self._objective.reward(seen.score)
        certified = None if seen.certified is None else self._objective.reward(seen.certified)
        self._leader.see(seen.candidate, reward, certified)
        self._means[seen.candidate] = (count + 1, mean + (reward - mean) / (count + 1))

    def _reply(self, reply: Proposal) -> None:
        parents = reply.candidates[0].parents
        _, mean = self._means.get(parents[0], (0, None)) if parents else (0, None)
        self._replies.append((len(self.moments), reply, mean))

    def _note(self, body: dict[str, Any]) -> None:
        island, quality = int(body.get("island", 0)), body.get("quality")
        self.filled.append(Filled(len(self.moments), island, int(body["cells"]), quality))
        if "candidates" in body and "k" in body:
            self._noted.append((len(self.moments), body))

    def _plain(self, evaluations: int, reply: Proposal, parent: float | None) -> Ask:
        children = tuple(self._child(rank, candidate.id) for rank, candidate in enumerate(reply.candidates, 1))
        return Ask(evaluations, len(children), children, parent)

    def _child(self, rank: int, name: str) -> Child:
        if name in self._failed:
            return Child(rank, self._failed[name])
        if name not in self._means:
            return Child(rank, "unseen")
        return Child(rank, "ok", self._means[name][1])


def _noted(evaluations: int, body: dict[str, Any], scale: list[tuple[float, float]]) -> Ask:
    parent, shown = body.get("parent") or {}, body.get("inspirations") or []
    rewards = [each["reward"] for each in shown if each.get("reward") is not None]
    return Ask(
        evaluations=evaluations,
        k=int(body["k"]),
        children=tuple(
            Child(int(child["rank"]) + 1, str(child["status"]), child.get("reward"), _vector(child.get("cell")))
            for child in body["candidates"]
        ),
        parent=parent.get("reward"),
        cell=_vector(parent.get("cell")),
        island=int(body.get("island", 0)),
        turn=int(body.get("turn", 0)),
        next_k=body.get("next_k"),
        inspiration=max(rewards, default=None),
        distance=_mean_distance(parent, shown, scale),
    )


def _vector(values: Any) -> Vector | None:
    return None if values is None else tuple(float(value) for value in values)


def _scale(bodies: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Lowest and highest value of every feature that the notes hold."""
    rows = [
        each["features"]
        for body in bodies
        for each in (body.get("parent") or {}, *(body.get("inspirations") or []), *body["candidates"])
        if each.get("features")
    ]
    return [(min(column), max(column)) for column in zip(*rows)]


def _mean_distance(parent: dict[str, Any], shown: list[dict[str, Any]], scale: list[tuple[float, float]]) -> Any:
    places = [_scaled(each["features"], scale) for each in shown if each.get("features")]
    if not places or not parent.get("features"):
        return None
    home = _scaled(parent["features"], scale)
    return sum(math.dist(home, place) for place in places) / len(places)


def _scaled(features: list[float], scale: list[tuple[float, float]]) -> list[float]:
    return [(value - low) / (high - low) if high > low else 0.0 for value, (low, high) in zip(features, scale)]
