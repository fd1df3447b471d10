"""Replay: a run's journal, or another run's results, fed to a fresh search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from culmen.core.event import (
    Effect,
    Entry,
    Event,
    Result,
)
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.engine.ledger import loss_group
from culmen.engine.search import Estimate, Search


@dataclass
class Replayed:
    """Result of a replay.

    Effects to start (again), entries still to journal, active seconds so far.
    """

    pending: list[Effect]
    missing: list[Entry] = field(default_factory=list[Entry])
    elapsed: float = 0.0
    effects: int = 0


def replay_journal(search: Search, events: Iterable[Event], estimate: Estimate) -> Replayed:
    """Feed the journal to a fresh search.

    Effects that started and never finished are pending again; their largest cost is entered as
    `torn`. Raises `JournalMismatch` if the search asks for a different effect.
    """
    pending = {effect.key: effect for effect in search.start()}
    started = set[int]()
    held: dict[int, Usage] = {}  # the largest cost of its model calls
    elapsed, count = search.ledger.elapsed, 0
    for event in events:
        entry = event.entry
        elapsed = max(elapsed, entry.elapsed)
        if entry.kind == "started":
            started.add(entry.key)
        elif entry.kind == "note":
            _drop_notes(search.outbox, entry.key)
        elif entry.kind == "held":
            held[entry.key] = Usage(**entry.body["most"])
        elif entry.kind == "tell":
            pending.update((effect.key, effect) for effect in search.feed(entry))
        elif entry.kind in ("done", "torn", "stop") and (entry.key or entry.kind == "stop"):
            count += 1
            started.discard(entry.key)
            held.pop(entry.key, None)
            pending.pop(entry.key, None)
            for effect in search.feed(entry):
                pending[effect.key] = effect
            if entry.kind == "torn" and entry.key in search.in_flight:
                pending[entry.key] = search.in_flight[entry.key]
            if entry.kind == "stop":
                pending = {
                    key: effect for key, effect in pending.items() if key in search.in_flight
                }
    cut = [
        torn_entry(effect, estimate(effect.request) + held.get(key, Usage()), elapsed)
        for key, effect in pending.items()
        if key in started
    ]
    missing = [entry for entry in cut if entry.body["usage"]]
    return Replayed(list(pending.values()), missing, elapsed, count)


def _drop_notes(outbox: list[Entry], number: int) -> None:
    """Drop the search's notes up to this one: the journal holds them.

    Done at each note, to bound memory.
    """
    kept = 0
    for entry in outbox:
        if entry.key > number:
            break
        kept += 1
    del outbox[:kept]


def torn_entry(effect: Effect, cost: Usage, elapsed: float) -> Entry:
    """The entry for the largest cost of an effect whose result is lost."""
    usage = msgspec.structs.replace(cost, evaluations=0)
    body: JsonObject = {"usage": {} if usage == Usage() else msgspec.to_builtins(usage)}
    if group := loss_group(effect):
        body["group"] = group
    return Entry("torn", effect.key, effect.mark, effect.kind, body, elapsed=elapsed)


def graft_results(search: Search, finished: Mapping[str, Result]) -> list[Entry]:
    """Feed a fresh search the finished results of another run, by equal requests.

    Results are fed in the order of that run. Returns the entries that make this a journal of its
    own. A fork with a larger budget thus repeats its parent's search exactly before it goes on; one
    with another strategy gets results as far as its first requests happen to agree.
    """
    entries: list[Entry] = []
    asked = {effect.mark: effect for effect in search.start()}
    for mark, result in finished.items():
        effect = asked.pop(mark, None)
        if effect is None or search.phase != "search":
            continue
        entries += search.outbox
        search.outbox.clear()
        entries.append(Entry("done", effect.key, mark, effect.kind, result=result))
        asked.update((following.mark, following) for following in search.feed(entries[-1]))
    return entries
