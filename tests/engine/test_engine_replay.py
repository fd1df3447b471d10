"""Replay by hand: pending effects, those perhaps paid for in vain, journaled ones, forks."""

from __future__ import annotations

import msgspec
import pytest
from bench.truth import worlds

from culmen.core.event import Entry, Event, at_least
from culmen.core.usage import Budget, Usage
from culmen.engine.driver import Replayed, _drop_notes, graft_results, replay_journal  # pyright: ignore[reportPrivateUsage]
from culmen.engine.search import Search
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.virtual import Simulation, simulate

WORLD = worlds.SimulatedWorld(noise=0.1)


def killed(after: int, workers: int = 3, **options: object) -> Simulation:
    """A run that ends in the middle, with several effects in flight."""
    return simulate(
        PedigreeSearch(),
        WORLD.task(),
        WORLD,
        Budget(evaluations=60),
        seed=2,
        workers=workers,
        kill_after=after,
        **options,
    )  # type: ignore[arg-type]


def replayed(
    events: list[Event], evaluations: int = 60, workers: int = 3
) -> tuple[Search, Replayed]:
    search = Search(
        PedigreeSearch(), WORLD.task(), Budget(evaluations=evaluations), 2, workers, None, at_least
    )
    return search, replay_journal(search, events, at_least)


def more(events: list[Event], *entries: Entry) -> list[Event]:
    return [*events, *(msgspec.structs.replace(events[-1], entry=entry) for entry in entries)]


@pytest.mark.parametrize("after", [1, 7, 20, 31])
def test_what_was_in_flight_is_pending_and_what_its_calls_may_have_cost_is_missing(
    after: int,
) -> None:
    events = list(killed(after).journal.read())
    search, found = replayed(events)
    done = [event.entry.key for event in events if event.entry.kind == "done"]
    started = {event.entry.key for event in events if event.entry.kind == "started"}
    assert found.effects == len(done) and found.elapsed == max(
        event.entry.elapsed for event in events
    )
    assert {effect.key for effect in found.pending} == set(search.in_flight) and not set(
        done
    ) & set(search.in_flight)
    assert started - set(done) <= set(search.in_flight)
    calls = {e.key for e in found.pending if e.kind == "propose" and e.key in started}
    assert {entry.key for entry in found.missing} == calls  # an evaluation costs time alone
    for entry in found.missing:
        request = search.in_flight[entry.key].request
        expected = msgspec.structs.replace(at_least(request), evaluations=0)
        assert Usage(**entry.body["usage"]) == expected and entry.elapsed == found.elapsed
    search.close()


def test_a_replay_begins_at_nothing() -> None:
    search, found = replayed([])
    assert (found.elapsed, found.effects, found.missing) == (0.0, 0, [])
    assert Replayed([]).elapsed == 0.0 and Replayed([]).effects == 0
    search.close()


def proposing() -> tuple[list[Event], int]:
    """A beginning with a model call in flight, and its key."""
    for after in range(3, 40):
        events = list(killed(after).journal.read())
        search, found = replayed(events)
        search.close()
        if found.missing:
            return events, found.missing[0].key
    raise AssertionError("no call was ever in flight")


def test_what_a_call_had_reserved_is_missing_too_until_it_is_done_or_torn() -> None:
    events, key = proposing()
    plain, found = replayed(events)
    effect = plain.in_flight[key]
    least = Usage(**found.missing[0].body["usage"])
    held = Entry("held", key, effect.mark, effect.kind, {"most": {"calls": 2, "input_tokens": 70}})
    _, with_held = replayed(more(events, held))
    told = {entry.key: Usage(**entry.body["usage"]) for entry in with_held.missing}
    assert told[key] == least + Usage(calls=2, input_tokens=70)
    torn = Entry("torn", key, effect.mark, effect.kind, {"usage": msgspec.to_builtins(told[key])})
    search, again = replayed(more(events, held, torn))
    assert key in {each.key for each in again.pending} and key not in {
        entry.key for entry in again.missing
    }
    begun = Entry("started", key, effect.mark, effect.kind)
    _, twice = replayed(more(events, held, torn, begun))
    assert {entry.key: Usage(**entry.body["usage"]) for entry in twice.missing}[key] == least
    for one in (plain, search):
        one.close()


def test_after_a_stop_only_the_final_choice_is_pending() -> None:
    events, _ = proposing()
    stop = Entry("stop", elapsed=events[-1].entry.elapsed, body={"reason": "seconds"})
    search, found = replayed(more(events, stop))
    assert search.phase == "final"
    assert {effect.key for effect in found.pending} == set(search.in_flight)
    assert found.effects == 1 + sum(event.entry.kind == "done" for event in events)
    search.close()


def test_what_was_cut_off_and_is_wanted_no_more_is_not_pending() -> None:
    events, key = proposing()
    plain, found = replayed(events)
    effect = plain.in_flight[key]
    stop = Entry("stop", elapsed=events[-1].entry.elapsed, body={"reason": "seconds"})
    torn = Entry("torn", key, effect.mark, effect.kind, {"usage": found.missing[0].body["usage"]})
    search, after = replayed(more(events, stop, torn))
    assert key not in search.in_flight and key not in {each.key for each in after.pending}
    for one in (plain, search):
        one.close()


def test_notes_that_the_journal_holds_are_not_made_again() -> None:
    run = killed(25)
    events = list(run.journal.read())
    known = {event.entry.key for event in events if event.entry.kind == "note"}
    search, _ = replayed(events)
    assert known and not known & {entry.key for entry in search.outbox if entry.kind == "note"}
    cut = [
        event for event in events if event.entry.kind != "note" or event.entry.key <= max(known) - 2
    ]
    other, _ = replayed(cut)
    again = [entry.key for entry in other.outbox if entry.kind == "note"]
    assert again[:2] == sorted(known)[-2:]
    for one in (search, other):
        one.close()


def test_of_the_notes_made_at_once_those_up_to_the_journaled_one_are_dropped() -> None:
    outbox = [Entry("note", key, body={"note": str(key)}) for key in (3, 4, 7)]
    for journaled, kept in ((2, [3, 4, 7]), (3, [4, 7]), (5, [7])):
        _drop_notes(outbox, journaled)
        assert [entry.key for entry in outbox] == kept


def test_a_fork_with_a_larger_budget_takes_all_that_its_parent_found_in_its_order() -> None:
    events = list(killed(30).journal.read())
    finished = {
        e.entry.mark: e.entry.result
        for e in events
        if e.entry.kind == "done" and e.entry.result is not None
    }
    fork = Search(PedigreeSearch(), WORLD.task(), Budget(evaluations=90), 2, 3, None, at_least)
    entries = graft_results(fork, finished)
    done = [entry for entry in entries if entry.kind == "done"]
    assert [entry.mark for entry in done] == list(finished) and len(done) == 30
    notes = [entry.key for entry in entries if entry.kind == "note"]
    assert notes == sorted(set(notes)) and notes
    same = Search(PedigreeSearch(), WORLD.task(), Budget(evaluations=90), 2, 3, None, at_least)
    found = replay_journal(
        same, [msgspec.structs.replace(events[0], entry=entry) for entry in entries], at_least
    )
    assert {effect.mark for effect in found.pending} == {
        effect.mark for effect in fork.in_flight.values()
    }
    for one in (fork, same):
        one.close()


def test_a_fork_takes_nothing_that_it_does_not_ask_for() -> None:
    events = list(killed(10).journal.read())
    result = next(e.entry.result for e in events if e.entry.kind == "done")
    assert result is not None
    fork = Search(PedigreeSearch(), WORLD.task(), Budget(evaluations=90), 2, 3, None, at_least)
    asked = set(fork_marks := {"another mark": result})
    assert graft_results(fork, fork_marks) == [] and asked.isdisjoint(
        e.mark for e in fork.in_flight.values()
    )
    fork.close()
