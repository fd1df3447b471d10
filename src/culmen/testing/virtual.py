"""Searches on a virtual clock: real engine and journal, simulated world.

    result = simulate(Polca(), task, world, Budget(evaluations=300), seed=1)

There is no sleeping and no network. A world gives the duration and the result of an effect.
`order="request"` delivers completions in the order of the requests, whatever their duration;
`"time"` in the order in which they finish on the virtual clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

import msgspec

from culmen.core.event import Effect, Entry, Result, at_least
from culmen.core.ports import Journal, MinimalStrategy, Proposer
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine.driver import effect_facts, replay_journal
from culmen.engine.loop import CheckpointBarrier, CheckpointStore, pack_state
from culmen.engine.search import Estimate, Search
from culmen.store.journal import MemoryJournal


class VirtualWorld(Protocol):
    """Performs an effect: (its virtual seconds, its result).

    `rng` is seeded by the effect alone.
    """

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]: ...


@dataclass
class Simulation:
    """A simulated run: its search, journal, and virtual `seconds`.

    `performed` is the number of effects performed in this session.
    """

    search: Search
    journal: Journal
    seconds: float
    performed: int
    killed: bool

    @property
    def verdict(self) -> RunResult | None:
        """The engine's choice."""
        return self.search.result_so_far


def simulate(
    strategy: MinimalStrategy,
    task: Task,
    world: VirtualWorld,
    budget: Budget,
    *,
    seed: int = 0,
    workers: int = 1,
    calls: int = 64,
    order: Literal["request", "time"] = "time",
    journal: Journal | None = None,
    proposer: Proposer | None = None,
    estimate: Estimate = at_least,
    kill_after: int | None = None,
    told: Sequence[tuple[int, Entry]] = (),
    stop_at: float | None = None,
    trial: bool = True,
    checkpoints: CheckpointStore | None = None,
    every: int = 0,
) -> Simulation:
    """Run until the search is done or for `kill_after` completions.

    If `journal` holds a beginning, resume that run. `told` are a person's entries (`tell`,
    `stop`), each with the number of completions of the whole run after which it is sent; entries
    already in the journal are not sent again. Without `trial` the engine evaluates no initial
    program by itself. `checkpoints` stores the state of the search after `every` completions.
    """
    journal = journal if journal is not None else MemoryJournal()
    search = Search(
        *(strategy, task, budget, seed, workers, proposer, estimate),
        stop_at=stop_at,
        trial=trial,
        barrier=CheckpointBarrier(every, patience=1.0),
    )
    replayed = replay_journal(search, journal.retrace(), estimate)
    last = 0  # event fed
    if checkpoints is not None:
        search.save = lambda state: checkpoints.write(last, pack_state(state, search.anchors))
    clock = _Clock(world, {"evaluate": workers, "other": calls}, order, replayed.elapsed)
    clock.enqueue(replayed.pending)
    for entry in replayed.missing:
        journal.append([entry])
        clock.enqueue(search.feed(entry))
    before = [event.entry for event in journal.read()]
    finished = sum(entry.kind == "done" for entry in before)
    waiting = list(told)[
        sum(entry.kind in ("tell", "stop") and bool(entry.body.get("id")) for entry in before) :
    ]
    performed = 0
    while not search.is_done:
        while waiting and waiting[0][0] <= finished + performed and not search.is_done:
            entry = msgspec.structs.replace(waiting.pop(0)[1], elapsed=clock.now)
            entries, search.outbox = search.outbox, []
            journal.append([*entries, entry])
            clock.enqueue(search.feed(entry))
        if search.is_done:
            break
        if kill_after is not None and performed >= kill_after:
            search.close()
            return Simulation(search, journal, clock.now, performed, True)
        entries = [
            msgspec.structs.replace(e, elapsed=clock.now)
            for e in (*search.outbox, *clock.start_effects(search))
        ]
        search.outbox = []
        entry = clock.next_completion(search.deadline)
        last = journal.append([*entries, entry])[-1].seq
        clock.enqueue(search.feed(entry))
        performed += entry.kind == "done"
    journal.append(search.outbox)
    search.outbox = []
    return Simulation(search, journal, clock.now, performed, False)


class _Clock:
    """Effects waiting for a slot and effects running, on virtual time."""

    def __init__(self, world: VirtualWorld, slots: dict[str, int], order: str, now: float) -> None:
        self.now, self._world, self._free, self._order = now, world, dict(slots), order
        self._waiting: dict[str, list[tuple[int, Effect]]] = {line: [] for line in slots}
        self._running: list[tuple[float, int, Entry]] = []

    def enqueue(self, effects: list[Effect]) -> None:
        for effect in effects:
            heapq.heappush(self._waiting[_line(effect.kind)], (effect.key, effect))

    def start_effects(self, search: Search) -> list[Entry]:
        """Start the effects that have a slot; the `started` entries."""
        for _, key, run in self._running:
            self._free[_line(run.effect)] += key not in search.in_flight  # abandoned ones
        self._running = [run for run in self._running if run[2].key in search.in_flight]
        heapq.heapify(self._running)
        started: list[Entry] = []
        while open_lines := [line for line, n in self._free.items() if n and self._waiting[line]]:
            line = min(open_lines, key=lambda line: self._waiting[line][0][0])
            key, effect = heapq.heappop(self._waiting[line])
            if key not in search.in_flight:
                continue
            self._free[line] -= 1
            seconds, result = self._world.perform(effect, Random(f"{effect.mark}/{key}"))
            finish = self.now + seconds
            done = Entry(
                "done",
                key,
                effect.mark,
                effect.kind,
                effect_facts(effect, search.purpose),
                result,
                finish,
            )
            heapq.heappush(self._running, (key if self._order == "request" else finish, key, done))
            started.append(Entry("started", key, effect.mark, effect.kind))
        return started

    def next_completion(self, deadline: float) -> Entry:
        """The next completion, or the stop entry if the phase's time is over before it."""
        if not self._running:
            raise AssertionError("the search is not done, yet nothing runs")
        _, _, entry = self._running[0]
        if entry.elapsed > deadline:
            self.now = max(self.now, deadline)
            for _, _, run in self._running:
                self._free[_line(run.effect)] += 1
            self._running = []
            return Entry("stop", body={"reason": "seconds"}, elapsed=self.now)
        heapq.heappop(self._running)
        self._free[_line(entry.effect)] += 1
        self.now = max(self.now, entry.elapsed)
        return msgspec.structs.replace(entry, elapsed=self.now)


def _line(kind: str) -> str:
    return "evaluate" if kind == "evaluate" else "other"
