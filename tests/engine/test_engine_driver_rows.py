"""The live driver's journal rows, the effects that it holds back, and its stops.

With gates instead of time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from culmen.core.brief import Brief, Proposal, Text, no_budget
from culmen.core.candidate import Candidate
from culmen.core.errors import Unavailable
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import (
    CustomRequest,
    EditRequest,
    Effect,
    EmbedRequest,
    Entry,
    EvaluateRequest,
    ProposeRequest,
    Request,
    WriteRequest,
    at_least,
    request_mark,
)
from culmen.core.usage import Budget, Usage
from culmen.engine import driver as drivers
from culmen.engine.driver import Driver, canonical_result, effect_facts, effect_subject
from culmen.evidence.account import CHOICE, FINAL, SEARCH
from culmen.store.journal import MemoryJournal

from .worlds import Climb, Does, Instant, driver

ONE, TWO = Candidate.of({"x": "1"}), Candidate.of({"x": "2"})
Gate = Callable[[Effect], Awaitable[None]]


def over(run: Driver) -> str:
    """Run it; what hangs is an error."""
    return asyncio.run(asyncio.wait_for(run.run(), 20))


def made(
    does: Callable[[Any], Awaitable[Any]], gate: Gate | None = None, **options: Any
) -> tuple[Driver, MemoryJournal]:
    journal = options.pop("journal", None) or MemoryJournal()
    budget = options.pop("budget", Budget(evaluations=60, final=0.1))
    return driver(
        journal, Instant(gate=gate), budget, Does(does), **{"trial": False, **options}
    ), journal


def rows(journal: MemoryJournal, *kinds: str) -> list[Entry]:
    return [event.entry for event in journal.read() if event.entry.kind in kinds]


async def a_while() -> None:
    """Others have their turn."""
    for _ in range(50):
        await asyncio.sleep(0)


async def for_ever() -> None:
    await asyncio.Event().wait()


# What is written of an effect.


def effect(request: Request) -> Effect:
    return Effect(1, request_mark(request), request)


@pytest.mark.parametrize(
    ("request_", "told", "of"),
    [
        (EvaluateRequest(ONE, None, 1), {}, {"of": ONE.id}),
        (EvaluateRequest(ONE, Case("hard"), 1), {}, {"of": ONE.id, "case": "hard"}),
        (ProposeRequest(Brief(ONE, role="coder"), 1), {"role": "coder"}, {"of": ONE.id}),
        (ProposeRequest(Brief(), 1), {"role": "proposer"}, {}),
        (WriteRequest("critic", {}, 1), {"role": "critic"}, {}),
        (EmbedRequest((ONE, TWO)), {"candidates": [ONE.id, TWO.id]}, {}),
        (EditRequest("cut", (ONE,), {}, 1), {}, {}),
        (
            CustomRequest(
                "session.end",
                {"agent": 0, "kind": "own", "tool": "", "reason": None, "secret": 1},
                1,
            ),
            {"agent": 0, "kind": "own"},
            {},
        ),
    ],
)
def test_rows_say_what_readers_need_beside_the_result(
    request_: Request, told: dict, of: dict
) -> None:
    """Evaluations and edits of the choice and of the confirmation have their phase.

    Those of the search have none.
    """
    assert effect_facts(effect(request_), SEARCH) == told and effect_subject(effect(request_)) == of
    plain = isinstance(request_, EvaluateRequest | EditRequest)
    for phase in (CHOICE, FINAL):
        assert effect_facts(effect(request_), phase) == ({"phase": phase} if plain else told)


def test_numbers_of_an_observation_become_floats_as_the_journal_will_return_them() -> None:
    floats = Observation(ONE.id, Status.OK, 2.0, metrics={"a": 1.0})
    for score, metric in ((2, 1.0), (2.0, 1), (2, True)):
        found = canonical_result(Observation(ONE.id, Status.OK, score, metrics={"a": metric}))
        assert isinstance(found, Observation) and found == floats
        assert type(found.score) is type(found.metrics["a"]) is float
    failed = canonical_result(Observation(ONE.id, Status.ERROR, None, metrics={"a": 1}))
    assert (
        isinstance(failed, Observation)
        and failed.score is None
        and type(failed.metrics["a"]) is float
    )
    for same in (floats, Observation(ONE.id, Status.ERROR), Text("words")):
        assert canonical_result(same) is same


# When it is written.


class Counted(MemoryJournal):
    """Counts its transactions; notes whether garbage was collected during a replay."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.collecting: list[bool] = []

    def append(self, entries):
        self.batches.append([entry.kind for entry in entries])
        return super().append(entries)

    def retrace(self, after=0):
        self.collecting.append(gc.isenabled())
        return super().retrace(after)


def test_that_an_evaluation_has_started_is_written_with_the_next_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "_SOON", 60.0)

    async def search(lab) -> None:
        for _ in range(20):
            await lab.evaluate(ONE, [None])

    journal = Counted()
    run, _ = made(search, journal=journal, budget=Budget(evaluations=20, final=0.0))
    assert over(run) == "finished"
    assert ["started"] not in journal.batches
    assert sum("done" in kinds for kinds in journal.batches) == 20
    assert [kind for kinds in journal.batches for kind in kinds].count("started") == 20


def test_a_result_is_written_together_with_the_start_of_the_call_that_follows_from_it() -> None:
    async def search(lab) -> None:
        for _ in range(10):
            parent = await lab.propose(Brief(ONE))
            await lab.evaluate(parent.candidates[0], [None])

    journal = Counted()
    calls = list[str]()

    async def gate(effect: Effect) -> None:
        if isinstance(effect.request, ProposeRequest):
            assert effect.key in {entry.key for entry in rows(journal, "started")}
            calls.append(effect.mark)

    run, _ = made(search, gate, journal=journal, budget=Budget(evaluations=10, final=0.0))
    assert over(run) == "finished" and len(calls) == 10
    together = [kinds for kinds in journal.batches if {"done", "started"} <= set(kinds)]
    assert len(together) >= 18, "9 evaluations with the next call, 10 proposals with an evaluation"
    assert len(journal.batches) <= 2 * 10 + 5


def test_a_run_that_is_cancelled_while_it_writes_writes_nothing_twice() -> None:
    class Slow(MemoryJournal):
        """Takes a while for its fifth transaction, and sets an event before."""

        def __init__(self) -> None:
            super().__init__()
            self.tries, self.begun, self.go_on = 0, threading.Event(), threading.Event()

        def append(self, entries):
            self.tries += 1
            if self.tries == 5:
                self.begun.set()
                assert self.go_on.wait(20)
            return super().append(entries)

    journal = Slow()
    run = driver(journal, Instant(), Budget(evaluations=30))

    async def cut_off() -> None:
        task = asyncio.create_task(run.run())
        await asyncio.to_thread(journal.begun.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        journal.go_on.set()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cut_off())
    done = [entry.key for entry in rows(journal, "done")]
    assert done and len(done) == len(set(done))
    again = driver(journal, Instant(), Budget(evaluations=30))
    assert over(again) == "finished"


def test_what_hangs_is_written_down_a_moment_after_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drivers, "_SOON", 1 / 512)

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        while effect.key not in {entry.key for entry in rows(journal, "started")}:
            await asyncio.sleep(0)

    run, journal = made(search, gate, budget=Budget(evaluations=9))
    assert over(run) == "finished"


def test_a_note_is_written_at_once_while_everything_else_hangs() -> None:
    async def search(lab) -> None:
        async def noting() -> None:
            await lab.evaluate(TWO, [None])
            lab.note("seen")

        await lab.gather(lab.evaluate(ONE, [None]), noting())

    async def gate(effect: Effect) -> None:
        while isinstance(effect.request, EvaluateRequest) and effect.request.candidate == ONE:
            if any(entry.body["note"] == "seen" for entry in rows(journal, "note")):
                return
            await asyncio.sleep(0)

    run, journal = made(search, gate, workers=2)
    assert over(run) == "finished"


def test_garbage_is_not_collected_during_a_replay_and_afterwards_as_before() -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    collecting = gc.isenabled()
    try:
        for enabled in (True, False):
            (gc.enable if enabled else gc.disable)()
            run, journal = made(search, journal=Counted())
            assert over(run) == "finished" and gc.isenabled() == enabled
            assert isinstance(journal, Counted) and journal.collecting == [False]
    finally:
        (gc.enable if collecting else gc.disable)()


class Audience:
    """Hears everything."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.heard: list[str] = []
        self.says: Callable[[str], None] = self.heard.append

    def see(self, events) -> None:
        self.events += events

    def told(self, text: str) -> None:
        self.says(text)

    remarked = told


def test_observers_see_every_event_to_the_last_word() -> None:
    audience, journal = Audience(), MemoryJournal()
    run = driver(journal, Instant(), Budget(evaluations=30), observers=(audience,))
    assert over(run) == "finished"
    assert audience.events == list(journal.read())
    assert audience.events[-1].entry.body["state"] == "finished"


# What runs at once.


@pytest.mark.parametrize(
    ("options", "peaks"),
    [
        ({"workers": 2, "calls": 3}, {"evaluate": 2, "propose": 3}),
        ({}, {"evaluate": 1, "propose": 64}),
    ],
)
def test_so_many_evaluations_and_so_many_calls_run_at_once(
    options: dict[str, int], peaks: dict[str, int]
) -> None:
    running, most = {"evaluate": 0, "propose": 0}, {"evaluate": 0, "propose": 0}

    async def search(lab) -> None:
        proposals = (lab.propose(Brief(ONE)) for _ in range(peaks["propose"] + 6))
        await lab.gather(*(lab.evaluate(ONE, [None]) for _ in range(9)), *proposals)

    async def gate(effect: Effect) -> None:
        running[effect.kind] += 1
        most[effect.kind] = max(most[effect.kind], running[effect.kind])
        try:
            await a_while()
        finally:
            running[effect.kind] -= 1

    run, _ = made(search, gate, **options)
    assert over(run) == "finished" and most == peaks


def test_what_is_prepared_for_the_final_choice_is_ready_once_before_it_asks_for_anything() -> None:
    asked: list[tuple[str, int]] = []

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None], repeats=2)

    async def prepare() -> None:
        asked.append((run.search.phase, run._world.hill.calls))  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]

    run, _ = made(search, before_final=prepare)
    assert over(run) == "finished" and asked == [("final", 2)]


def test_evaluations_of_the_final_choice_are_marked() -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None], repeats=2)

    run, journal = made(search)
    over(run)
    marked = [entry.body.get("phase", "search") for entry in rows(journal, "done")]
    assert marked[:2] == ["search", "search"] and set(marked[2:]) == {"final"}


# Money.


@pytest.mark.parametrize("ask", ["propose", "write"])
def test_a_model_is_not_asked_where_the_budget_does_not_hold_the_most_that_it_may_cost(
    ask: str,
) -> None:
    async def search(lab) -> None:
        while True:
            await (lab.ask(Brief(ONE)) if ask == "propose" else lab.write("critic"))

    async def gate(effect: Effect) -> None:
        raise AssertionError("it was asked")

    run, journal = made(search, gate, budget=Budget(calls=5), most=lambda _: Usage(calls=6))
    assert over(run) == "finished" and run.search.reason == "calls"
    (entry,) = rows(journal, "done")
    assert isinstance(entry.result, Proposal | Text) and entry.result.fault == no_budget("calls")


def test_what_an_effect_may_cost_beyond_its_estimate_is_durable_before_it_is_spent() -> None:
    told = []

    async def search(lab) -> None:
        await lab.gather(lab.ask(Brief(ONE)), lab.ask(Brief(TWO)))

    async def gate(effect: Effect) -> None:
        told.append(await run.hold_budget(Usage(evaluations=1, calls=2, input_tokens=50)))
        held = [(entry.key, entry.mark, entry.effect) for entry in rows(journal, "held")]
        assert (effect.key, effect.mark, "propose") in held
        if len(told) == 2:
            told.append(await run.hold_budget(Usage(calls=9)))

    run, journal = made(search, gate, budget=Budget(calls=5))
    assert over(run) == "finished" and told == ["", "", "calls"]
    held = rows(journal, "held")
    assert [Usage(**entry.body["most"]) for entry in held] == [Usage(calls=2, input_tokens=50)] * 2


def test_who_performs_nothing_holds_nothing() -> None:
    run, journal = made(Climb().search)
    assert asyncio.run(run.hold_budget(Usage(calls=1))) == "" and not rows(journal, "held")
    run.search.close()


def test_who_has_outlived_its_effect_holds_nothing() -> None:
    late: list[asyncio.Task[None]] = []

    async def search(lab) -> None:
        for _ in range(9):
            await lab.evaluate(ONE, [None])

    async def outliving() -> None:
        while not rows(journal, "done"):
            await asyncio.sleep(0)
        told.append(await run.hold_budget(Usage(calls=1)))
        told.append(str(run.search.reservations.permit_current_effect(Usage(calls=1))))
        told.append(await run.hold_budget(Usage(calls=3)))
        told.append(
            str(run.search.reservations.has_room_for(Usage(calls=2)))
        )  # nothing is reserved that nobody would release

    async def gate(effect: Effect) -> None:
        if effect.key == 1:
            late.append(asyncio.create_task(outliving()))
        if effect.key == 3:
            await late[0]

    told: list[str] = []
    run, journal = made(search, gate, budget=Budget(evaluations=60, calls=2))
    assert over(run) == "finished" and not rows(journal, "held")
    assert told == ["", "True", "calls", "True"]


def test_who_outlives_its_effect_while_it_waits_holds_nothing() -> None:
    late, told = list[asyncio.Task[None]](), list[bool]()

    async def search(lab) -> None:
        await lab.gather(lab.evaluate(ONE, [None]), lab.evaluate(TWO, [None]))
        await lab.evaluate(ONE, [None])

    async def waiting() -> None:
        assert await run.hold_budget(Usage(calls=1)) == ""

    async def gate(effect: Effect) -> None:
        if effect.key == 1:
            assert await run.hold_budget(Usage(calls=2)) == ""
            while len(rows(journal, "done")) < 1:  # the other one
                await asyncio.sleep(0)
        elif effect.key == 2:
            while not rows(journal, "held"):
                await asyncio.sleep(0)
            late.append(asyncio.create_task(waiting()))
            await a_while()
        else:
            await late[0]
            told.append(run.search.reservations.has_room_for(Usage(calls=2)))

    run, journal = made(search, gate, workers=2, budget=Budget(evaluations=60, calls=2))
    assert over(run) == "finished" and told and all(told) and len(rows(journal, "held")) == 1


def test_an_effect_that_is_cancelled_by_what_performs_it_ends_the_run_loudly() -> None:
    """The search would wait for its result for ever."""

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        raise asyncio.CancelledError

    run, journal = made(search, gate)
    with pytest.raises(RuntimeError, match="evaluate 1 cancelled itself"):
        over(run)
    assert rows(journal, "state")[-1].body["state"] == "failed"


def test_what_a_call_that_was_cut_off_may_have_cost_is_written_and_counted() -> None:
    async def search(lab) -> None:
        await lab.evaluate(TWO, [None])
        await lab.gather(lab.ask(Brief(ONE)), lab.evaluate(ONE, [None]))

    async def gate(effect: Effect) -> None:
        if isinstance(effect.request, ProposeRequest):
            run.submit_entries([Entry("stop", body={"reason": "user"})])
            await for_ever()
        if isinstance(effect.request, EvaluateRequest) and effect.key == 3:
            await for_ever()

    dear = Usage(calls=2, dollars=0.5)
    run, journal = made(
        search,
        gate,
        most=lambda request: dear if isinstance(request, ProposeRequest) else at_least(request),
    )
    assert over(run) == "finished" and run.search.reason == "user"
    (torn,) = rows(journal, "torn")
    assert (torn.effect, Usage(**torn.body["usage"])) == ("propose", dear)
    assert run.search.ledger.possibly_lost == dear


# How it stops.


def test_a_persons_stop_is_journaled_and_ends_what_hangs() -> None:
    async def search(lab) -> None:
        await lab.evaluate(TWO, [None])
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        if isinstance(effect.request, EvaluateRequest) and effect.request.candidate == ONE:
            asyncio.get_running_loop().call_soon(
                lambda: run.submit_entries([Entry("stop", body={"reason": "user"})])
            )
            await for_ever()

    run, journal = made(search, gate)
    assert over(run) == "finished" and run.search.reason == "user"
    assert [entry.body["reason"] for entry in rows(journal, "stop")] == ["user"]


@pytest.mark.parametrize("ask", ["evaluate", "propose"])
def test_a_second_interrupt_ends_what_hangs_and_the_next_session_asks_again(ask: str) -> None:
    async def search(lab) -> None:
        await (lab.evaluate(ONE, [None]) if ask == "evaluate" else lab.ask(Brief(ONE)))

    async def gate(effect: Effect) -> None:
        for _ in range(2):
            asyncio.get_running_loop().call_soon(run.interrupt)
        await for_ever()

    run, journal = made(search, gate)
    assert over(run) == "interrupted" and not rows(journal, "done", "torn")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("journal")]


def test_an_interrupt_waits_no_longer_than_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_GRACE", 1 / 64)

    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        run.interrupt()
        await for_ever()

    run, _ = made(search, gate)
    assert over(run) == "interrupted"


def test_nothing_begins_after_an_error() -> None:
    """Also not what a result asks for that comes with the error."""

    async def search(lab) -> None:
        async def lane() -> None:
            while True:
                await lab.evaluate(ONE, [None])

        await lab.gather(lane(), lane())

    async def gate(effect: Effect) -> None:
        await a_while()
        if effect.key == 1:
            raise ZeroDivisionError

    run, journal = made(search, gate, workers=2)
    with pytest.raises(ZeroDivisionError):
        over(run)
    assert {entry.key for entry in rows(journal, "started")} == {1, 2}
    assert [entry.key for entry in rows(journal, "done")] == [2]


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


@pytest.mark.parametrize(("seconds", "ended"), [(9.0, 2), (10.0, 1), (11.0, 1)])
def test_after_an_interrupt_what_runs_has_ten_seconds_to_end_and_nothing_begins(
    seconds: float, ended: int
) -> None:
    watch, audience, interrupted = Watch(), Audience(), []

    async def search(lab) -> None:
        await lab.evaluate(TWO, [None])
        for _ in range(9):
            await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        if effect.key == 2:
            run.interrupt()
            while ("started", 2) not in {
                (event.entry.kind, event.entry.key) for event in audience.events
            }:
                await asyncio.sleep(0)
            await a_while()  # the grace has begun
            watch.now += seconds
            run.submit_entries([])  # it looks at the clock again
            interrupted.append(effect.key)
            await (a_while() if ended > 1 else for_ever())

    run, journal = made(search, gate, clock=watch.monotonic, observers=(audience,))
    assert over(run) == "interrupted" and interrupted == [2]
    assert len(rows(journal, "done")) == ended and len(rows(journal, "started")) == 2
    assert rows(journal, "state")[-1].body == {"state": "interrupted", "reason": ""}
    assert rows(journal, "state")[-1].elapsed == seconds and run.elapsed == seconds


def test_a_search_ends_when_its_seconds_are_over_and_not_before() -> None:
    """A tenth of them is left for the final choice."""
    watch, seen = Watch(), []

    async def search(lab) -> None:
        await lab.evaluate(TWO, [None])
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        if isinstance(effect.request, EvaluateRequest) and effect.request.candidate == ONE:
            for seconds in (89.5, 0.5):
                seen.append(run.search.phase)
                watch.now += seconds
                run.submit_entries([])  # it looks at the clock
                await a_while()
            await for_ever()

    run, journal = made(search, gate, clock=watch.monotonic, budget=Budget(seconds=100.0))
    assert (
        over(run) == "finished" and run.search.reason == "seconds" and seen == ["search", "search"]
    )
    assert [(entry.body, entry.elapsed) for entry in rows(journal, "stop")] == [
        ({"reason": "seconds"}, 90.0)
    ]


def test_active_seconds_go_on_where_the_last_session_ended() -> None:
    watch = Watch()

    async def search(lab) -> None:
        for _ in range(9):
            await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        watch.now += 2.0
        if effect.key == 3:
            run.interrupt()

    run, journal = made(search, gate, clock=watch.monotonic)
    assert over(run) == "interrupted" and run.elapsed == 6.0
    watch.now += 1000.0
    again, _ = made(search, gate, clock=watch.monotonic, journal=journal)
    assert over(again) == "finished"
    done = rows(journal, "done")
    assert [entry.elapsed for entry in done] == [2.0 * (n + 1) for n in range(len(done))]


@pytest.mark.parametrize("state", ["interrupted", "failed"])
def test_an_error_comes_out_and_is_written_down_also_after_an_interrupt(state: str) -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        if state == "interrupted":
            run.interrupt()
        await a_while()
        raise ZeroDivisionError("oh")

    run, journal = made(search, gate)
    with pytest.raises(ZeroDivisionError):
        over(run)
    assert rows(journal, "state")[-1].body == {
        "state": state,
        "reason": "",
        "error": "ZeroDivisionError: oh",
    }


# A journal that cannot be written.


class Full(Counted):
    """Refuses these of its transactions."""

    def __init__(self, refused: range) -> None:
        super().__init__()
        self.refused, self.tries = refused, 0

    def append(self, entries):
        self.tries += 1
        if self.tries - 1 in self.refused:
            raise Unavailable("database or disk is full", where="here")
        return super().append(entries)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of 1 and 2 units."""
    monkeypatch.setattr(drivers, "_PAUSES", (1 / 1024, 2 / 1024))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("units", "retries"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 3)])
def test_a_journal_that_stays_unwritable_is_tried_again_as_long_as_patience_lasts(
    units: int, retries: int
) -> None:
    journal = Full(range(2, 1000))
    run = driver(journal, Instant(), Budget(evaluations=30), patience=units / 1024)
    with pytest.raises(Unavailable):
        over(run)
    assert journal.tries == 2 + 1 + retries + 1  # two that went well, and the last words


@pytest.mark.usefixtures("impatient")
def test_what_was_delivered_and_could_not_be_written_is_among_the_last_words() -> None:
    journal = Full(range(4, 7))
    run = driver(journal, Instant(), Budget(evaluations=30), patience=3 / 1024)
    with pytest.raises(Unavailable):
        over(run)
    assert "done" in journal.batches[-1] and journal.batches[-1][-1] == "state"
    again = driver(journal, Instant(), Budget(evaluations=30))
    assert over(again) == "finished"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("interrupts", "state"), [(0, "finished"), (1, "interrupted"), (2, "")])
def test_only_a_second_interrupt_ends_the_wait(interrupts: int, state: str) -> None:
    journal, audience = Full(range(2, 6 if interrupts < 2 else 1000)), Audience()
    run = driver(journal, Instant(), Budget(evaluations=30), observers=(audience,))

    def says(text: str) -> None:
        audience.heard.append(text)
        for _ in range(interrupts if len(audience.heard) == 1 else 0):
            run.interrupt()

    audience.says = says
    if state:
        assert over(run) == state and rows(journal, "state")[-1].body["state"] == state
        assert audience.heard == [
            "Waiting, for 300 s at most: database or disk is full (here).",
            "The journal can be written again: the run goes on.",
        ]
    else:
        with pytest.raises(Unavailable):
            over(run)
        assert len(audience.heard) == 1


class Speechless(Counted):
    """Refuses the last words."""

    def append(self, entries):
        if entries[-1].body.get("state") not in (None, "running"):
            raise Unavailable("database or disk is full")
        return super().append(entries)


@pytest.mark.parametrize(("fails", "error"), [(False, Unavailable), (True, ZeroDivisionError)])
def test_last_words_that_cannot_be_written_are_an_error_unless_there_was_one(
    fails: bool, error: type[Exception]
) -> None:
    async def search(lab) -> None:
        await lab.evaluate(ONE, [None])

    async def gate(effect: Effect) -> None:
        if fails:
            raise ZeroDivisionError

    run, _ = made(search, gate, journal=Speechless())
    with pytest.raises(error):
        over(run)


def test_many_results_at_once_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that are not yet durable must be among the observations at hand."""
    monkeypatch.setattr(drivers, "_MOST", 4)

    async def search(lab) -> None:
        await lab.gather(*(lab.evaluate(Candidate.of({"x": str(n)}), [None]) for n in range(40)))

    ready = asyncio.Event()
    begun = list[int]()

    async def gate(effect: Effect) -> None:
        begun.append(effect.key)
        if len(begun) == 40:
            ready.set()
        await ready.wait()

    journal = Counted()
    run, _ = made(search, gate, journal=journal, workers=40, budget=Budget(evaluations=40, final=0))
    assert over(run) == "finished"
    done = [kinds.count("done") for kinds in journal.batches]
    assert sum(done) == 40 and 1 < max(done) <= 4
