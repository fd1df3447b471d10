"""The live driver: interrupts, deadlines, separate lines for evaluations and calls.

Also a journal that cannot be written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.errors import Unavailable, UserError
from culmen.core.evaluation import Observation
from culmen.core.event import EvaluateRequest, ProposeRequest, at_least
from culmen.core.usage import Budget, Usage
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.store.journal import MemoryJournal

from .worlds import TASK, Climb, Instant, driver


def states(journal):
    return [e.entry.body["state"] for e in journal.read() if e.entry.kind == "state"]


def test_a_run_ends_with_a_journaled_winner_and_replays_to_the_same_verdict():
    journal = MemoryJournal()
    run = driver(journal, Instant(), Budget(evaluations=120), workers=3)
    assert asyncio.run(run.run()) == "finished"
    last = [e.entry.body for e in journal.read() if e.entry.kind == "state"][-1]
    again = Search(Climb(), TASK, Budget(evaluations=120), 1, 3)
    replay_journal(again, journal.read(), at_least)
    assert last["winner"]["id"] == again.result_so_far.id
    assert last["winner"]["score"] == again.result_so_far.score
    assert again.is_done


def test_what_costs_money_is_journaled_before_it_starts():
    journal = MemoryJournal()

    async def gate(effect):
        if effect.kind == "propose":
            rows = {(e.entry.kind, e.entry.key) for e in journal.read()}
            assert ("started", effect.key) in rows

    assert (
        asyncio.run(driver(journal, Instant(gate=gate), Budget(evaluations=40)).run()) == "finished"
    )


def test_hung_evaluations_do_not_starve_model_calls():
    """Both workers hang; the model calls of the other lanes still come through."""
    proposed = 0

    @dataclass(frozen=True)
    class Lanes:
        async def search(self, lab):
            async def evaluating():
                await lab.evaluate(lab.seeds[0])

            async def proposing():
                for _ in range(20):
                    await lab.propose(Brief(lab.seeds[0]))

            await lab.gather(evaluating(), evaluating(), proposing())

    async def gate(effect):
        nonlocal proposed
        if isinstance(effect.request, EvaluateRequest):
            await asyncio.Event().wait()
        proposed += 1
        if proposed == 20:
            run.interrupt()
            run.interrupt()

    run = driver(
        MemoryJournal(), Instant(gate=gate), Budget(evaluations=40), Lanes(), workers=2, trial=False
    )
    assert asyncio.run(run.run()) == "interrupted"
    assert proposed == 20


def test_an_interrupt_lets_running_evaluations_finish_and_the_run_resumes_to_the_same_end():
    straight, broken = MemoryJournal(), MemoryJournal()
    asyncio.run(driver(straight, Instant(), Budget(evaluations=60)).run())
    count = 0

    async def gate(effect):
        nonlocal count
        count += 1
        if count == 25:
            run.interrupt()

    run = driver(broken, Instant(gate=gate), Budget(evaluations=60))
    assert asyncio.run(run.run()) == "interrupted"
    assert states(broken)[-1] == "interrupted"
    started = {e.entry.key for e in broken.read() if e.entry.kind == "started"}
    finished = {e.entry.key for e in broken.read() if e.entry.kind == "done"}
    assert started == finished  # the grace period let all of them end
    run = driver(broken, Instant(), Budget(evaluations=60))
    assert asyncio.run(run.run()) == "finished"
    keys = [e.entry.key for e in broken.read() if e.entry.kind == "done"]
    assert len(keys) == len(set(keys))


def test_the_seconds_budget_stops_a_run_whose_candidates_hang():
    async def gate(effect):
        if effect.key > 20:
            await asyncio.Event().wait()

    journal = MemoryJournal()
    run = driver(journal, Instant(gate=gate), Budget(seconds=0.3, final=0.5))
    assert asyncio.run(run.run()) == "finished"
    assert [e.entry.body["reason"] for e in journal.read() if e.entry.kind == "stop"] == [
        "seconds",
        "seconds",
    ]
    assert run.search.reason == "seconds"


def test_what_hangs_is_named_in_the_journal_before_it_ends():
    async def gate(effect):
        if effect.key > 20:
            await asyncio.Event().wait()

    journal = MemoryJournal()
    asyncio.run(driver(journal, Instant(gate=gate), Budget(seconds=0.3, final=0.5)).run())
    entries = [event.entry for event in journal.read()]
    ended = {entry.key for entry in entries if entry.kind == "done"}
    hung = [entry for entry in entries if entry.kind == "started" and entry.key not in ended]
    known = {c.id for entry in entries for c in getattr(entry.result, "candidates", ())}
    evaluations = [entry for entry in hung if entry.effect == "evaluate"]
    assert evaluations and all(entry.body["of"] in known for entry in evaluations)
    scored = {
        entry.key: entry.result.candidate
        for entry in entries
        if isinstance(entry.result, Observation)
    }
    begun = {
        entry.key: entry.body["of"]
        for entry in entries
        if entry.kind == "started" and entry.key in scored
    }
    assert begun == scored


def test_an_error_outside_pauses_the_run_and_loses_nothing():
    async def gate(effect):
        if isinstance(effect.request, ProposeRequest) and effect.key > 10:
            raise Unavailable("the provider is down", fix="resume later")

    journal = MemoryJournal()
    with pytest.raises(Unavailable):
        asyncio.run(driver(journal, Instant(gate=gate), Budget(evaluations=60)).run())
    assert states(journal)[-1] == "paused"
    assert asyncio.run(driver(journal, Instant(), Budget(evaluations=60)).run()) == "finished"


def test_a_bug_in_the_world_fails_the_run_and_comes_out():
    async def gate(effect):
        if effect.key > 10:
            raise ZeroDivisionError

    journal = MemoryJournal()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(driver(journal, Instant(gate=gate), Budget(evaluations=60)).run())
    assert states(journal)[-1] == "failed"


class FullDisk(MemoryJournal):
    """Refuses some appends, as a full disk does."""

    def __init__(self, refuse):
        super().__init__()
        self.refuse, self.appends = refuse, 0

    def append(self, entries):
        self.appends += 1
        if self.refuse(self.appends):
            raise Unavailable("database or disk is full", where="here")
        return super().append(entries)


class Listener:
    """An observer that passes sentences on to a person."""

    def __init__(self):
        self.heard = []

    def see(self, events):
        """Events do not matter here."""

    def told(self, text):
        self.heard.append(text)

    remarked = told


def test_a_full_disk_is_waited_for_and_the_run_goes_on():
    journal = FullDisk(lambda n: n == 12)
    listener = Listener()
    assert (
        asyncio.run(driver(journal, Instant(), Budget(evaluations=30), observers=(listener,)).run())
        == "finished"
    )
    keys = [e.entry.key for e in journal.read() if e.entry.kind == "done"]
    assert sorted(keys) == sorted(set(keys))
    waiting, on = listener.heard
    assert "database or disk is full" in waiting and "goes on" in on


class Talking(Climb):
    """Has something to say to a person, once."""

    async def search(self, lab):
        lab.note("crowded", told="Most were refused.")
        lab.note("crowded", refused=3)
        await super().search(lab)


def test_a_note_that_is_for_a_person_is_told_once_also_when_the_run_is_resumed():
    journal, listener = MemoryJournal(), Listener()
    for evaluations in (20, 20):
        run = driver(
            journal, Instant(), Budget(evaluations=evaluations), Talking(), observers=(listener,)
        )
        assert asyncio.run(run.run()) == "finished"
    assert listener.heard == ["Most were refused."]


def test_a_disk_that_stays_full_ends_the_session_with_everything_acknowledged_readable():
    journal = FullDisk(lambda n: n >= 12)
    with pytest.raises(Unavailable):
        asyncio.run(driver(journal, Instant(), Budget(evaluations=30), patience=0.0).run())
    readable = [e.entry.key for e in journal.read() if e.entry.kind == "done"]
    journal.refuse = lambda n: False
    assert asyncio.run(driver(journal, Instant(), Budget(evaluations=30)).run()) == "finished"
    assert [e.entry.key for e in journal.read() if e.entry.kind == "done"][
        : len(readable)
    ] == readable


def test_a_broken_observer_does_not_hurt_the_run():
    class Broken:
        def see(self, events):
            raise RuntimeError("tracker down")

    async def run():
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        return await driver(
            MemoryJournal(), Instant(), Budget(evaluations=10), observers=(Broken(),)
        ).run()

    assert asyncio.run(run()) == "finished"


def test_user_errors_of_a_strategy_come_out_as_they_are():
    @dataclass(frozen=True)
    class Wrong:
        async def search(self, lab):
            await lab.effect("train", step=1)

    async def refuse(effect):
        raise UserError("nothing performs this")

    with pytest.raises(UserError):
        asyncio.run(
            driver(MemoryJournal(), Instant(gate=refuse), Budget(evaluations=10), Wrong()).run()
        )


def test_proposals_that_fail_are_values():
    @dataclass
    class Mute:
        usage: Usage

        async def perform(self, effect):
            return Proposal(fault="empty", usage=self.usage)

    @dataclass(frozen=True)
    class Ask:
        async def search(self, lab):
            while True:
                await lab.propose(Brief(lab.seeds[0]))

    run = driver(MemoryJournal(), Mute(Usage(calls=1)), Budget(calls=5), Ask(), trial=False)
    assert asyncio.run(run.run()) == "finished"
    assert run.search.reason == "calls"
    run = driver(MemoryJournal(), Mute(Usage()), Budget(calls=5), Ask(), trial=False)
    assert asyncio.run(run.run()) == "finished"
    assert run.search.reason == "nothing_new"  # free answers for ever: no budget would end it


@pytest.mark.parametrize("earlier", [0, 20], ids=["new", "resumed"])
def test_nothing_starts_before_the_first_check_and_its_error_pauses_the_run(earlier):
    journal, events = MemoryJournal(), []
    if earlier:

        async def gate(effect):
            if sum(e.entry.kind == "done" for e in journal.read()) > earlier:
                broken.interrupt()

        broken = driver(journal, Instant(gate=gate), Budget(evaluations=120))
        assert asyncio.run(broken.run()) == "interrupted"

    async def refuse():
        events.extend(journal.read())
        raise UserError("the evaluator changed")

    run = driver(journal, Instant(), Budget(evaluations=120), before_live=refuse)
    with pytest.raises(UserError, match="the evaluator changed"):
        asyncio.run(run.run())
    added = list(journal.read())[len(events) :]
    assert not [e for e in added if e.entry.kind in ("started", "done")]
    assert (
        states(journal)[-1] == "paused" and "the evaluator changed" in added[-1].entry.body["error"]
    )
    assert bool(events) is bool(earlier)

    made: list[bool] = []

    async def accept():
        made.append(True)

    again = driver(journal, Instant(), Budget(evaluations=120), before_live=accept)
    assert asyncio.run(again.run()) == "finished" and made == [True]
    assert again.search.result_so_far == result_in(journal)


def result_in(journal):
    search = Search(Climb(), TASK, Budget(evaluations=120), 1, 1)
    replay_journal(search, journal.read(), at_least)
    return search.result_so_far


def test_an_interrupt_does_not_wait_for_the_first_check():
    journal, cancelled = MemoryJournal(), []

    async def hang():
        asyncio.get_running_loop().call_soon(run.interrupt)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    run = driver(journal, Instant(), Budget(evaluations=120), before_live=hang)
    assert asyncio.run(run.run()) == "interrupted"
    assert cancelled and states(journal) == ["running", "interrupted"]
    assert not [e for e in journal.read() if e.entry.kind in ("started", "done")]
