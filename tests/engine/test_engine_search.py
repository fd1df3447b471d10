"""Budgets, replay, kill points, the final choice: on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from bench.truth.worlds import SimulatedWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import JournalMismatch, UserError
from culmen.core.evaluation import Case
from culmen.core.event import Custom, ProposeRequest, at_least, encode_json, request_mark
from culmen.core.usage import Budget, Usage
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.store.journal import MemoryJournal
from culmen.testing.virtual import simulate

from .worlds import EXACT, TASK, Climb, Hill


def done(journal):
    return [
        (e.entry.key, e.entry.mark, e.entry.result)
        for e in journal.read()
        if e.entry.kind == "done"
    ]


@pytest.mark.parametrize("evaluations", [1, 5, 9, 10, 57, 200])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_evaluations_budget_is_hard_and_spent(evaluations, workers):
    run = simulate(Climb(), TASK, Hill(), Budget(evaluations=evaluations), seed=1, workers=workers)
    assert run.search.ledger.spent.evaluations <= evaluations
    assert run.search.ledger.spent.evaluations >= evaluations - 3
    assert run.search.reason == "evaluations"


def test_model_calls_tokens_and_dollars_are_reserved_before_they_start():
    def estimate(request):
        costly = isinstance(request, ProposeRequest)
        return (
            Usage(calls=1, input_tokens=150, output_tokens=50, dollars=0.02)
            if costly
            else at_least(request)
        )

    for budget in (Budget(calls=7), Budget(tokens=1000), Budget(dollars=0.1)):
        run = simulate(Climb(), TASK, Hill(), budget, seed=2, workers=2, estimate=estimate)
        spent = run.search.ledger.spent
        assert spent.calls <= (budget.calls or 1000)
        assert spent.tokens <= (budget.tokens or 10**9)
        assert spent.dollars <= (budget.dollars or 10**9) + 1e-9
        assert run.verdict is not None


def test_nothing_is_left_unspent_because_estimates_are_high():
    """Each call may cost 10 and costs 1: reservations block only until they are settled."""

    def estimate(request):
        return (
            Usage(calls=1, dollars=0.1)
            if isinstance(request, ProposeRequest)
            else at_least(request)
        )

    run = simulate(Climb(), TASK, Hill(), Budget(dollars=0.5), seed=2, workers=2, estimate=estimate)
    assert run.search.ledger.spent.calls > 35


@dataclass(frozen=True)
class Crowd:
    """Asks for far more at once than the budget has room for."""

    async def search(self, lab):
        await lab.gather(*(lab.evaluate(lab.seeds[0]) for _ in range(1000)))


def test_what_the_budget_refused_is_not_asked_again_one_by_one():
    """A step must not cost as much as all that waits.

    A thousand wait here while fifty are done one after the other.
    """
    asked = []

    def estimate(request):
        asked.append(request)
        return at_least(request)

    run = simulate(
        Crowd(), TASK, Hill(), Budget(evaluations=50), seed=1, workers=1, estimate=estimate
    )
    assert 45 <= run.search.ledger.spent.evaluations <= 50
    assert len(asked) < 4000


def test_the_seconds_budget_ends_the_search_and_leaves_time_for_the_final_choice():
    run = simulate(Climb(), TASK, Hill(), Budget(seconds=100, final=0.3), seed=3, workers=2)
    assert run.search.reason == "seconds"
    assert run.seconds <= 100
    assert run.verdict.confirmed


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 150), st.integers(0, 3), st.sampled_from(["request", "time"]))
def test_replaying_a_journal_gives_the_same_state(kill, seed, order):
    journal = MemoryJournal()
    run = simulate(
        Climb(),
        TASK,
        Hill(),
        Budget(evaluations=90),
        seed=seed,
        workers=3,
        order=order,
        journal=journal,
        kill_after=kill,
    )
    again = Search(Climb(), TASK, Budget(evaluations=90), seed, 3)
    left = replay_journal(again, journal.read(), at_least)
    assert again.phase == run.search.phase
    assert again.result_so_far == run.search.result_so_far
    assert again.ledger.spent == run.search.ledger.spent
    assert {e.key for e in left.pending} == set(run.search.in_flight)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=4), st.integers(0, 2))
def test_killed_and_resumed_equals_never_stopped(kills, seed):
    straight, killed = MemoryJournal(), MemoryJournal()
    world = {"seed": seed, "workers": 3, "order": "request"}
    simulate(Climb(), TASK, Hill(), Budget(evaluations=90), journal=straight, **world)
    for kill in kills:
        simulate(
            Climb(), TASK, Hill(), Budget(evaluations=90), journal=killed, kill_after=kill, **world
        )
    end = simulate(Climb(), TASK, Hill(), Budget(evaluations=90), journal=killed, **world)
    assert done(killed) == done(straight)
    notes = [e.entry.body for e in killed.read() if e.entry.kind == "note"]
    assert notes == [e.entry.body for e in straight.read() if e.entry.kind == "note"]
    assert end.search.is_done


def test_money_in_flight_at_a_crash_is_shown_and_counts_against_the_budget():
    def estimate(request):
        return (
            Usage(calls=1, dollars=1.0)
            if isinstance(request, ProposeRequest)
            else at_least(request)
        )

    def killed(after):
        journal = MemoryJournal()
        simulate(
            Climb(),
            TASK,
            Hill(),
            Budget(dollars=20),
            journal=journal,
            kill_after=after,
            estimate=estimate,
        )
        begun = {
            e.entry.key
            for e in journal.read()
            if e.entry.kind == "started" and e.entry.effect == "propose"
        }
        return journal, len(begun - {e.entry.key for e in journal.read() if e.entry.kind == "done"})

    journal, torn_calls = next(found for after in range(5, 30) if (found := killed(after))[1])
    end = simulate(
        Climb(), TASK, Hill(), Budget(dollars=20), journal=journal, order="time", estimate=estimate
    )
    assert torn_calls > 0
    assert end.search.ledger.possibly_lost.dollars == torn_calls
    assert end.search.ledger.spent.dollars <= 20


def test_a_changed_strategy_is_a_mismatch_that_names_the_effect_and_the_way_out():
    journal = MemoryJournal()
    simulate(Climb(lanes=4), TASK, Hill(), Budget(evaluations=50), journal=journal, kill_after=20)
    with pytest.raises(JournalMismatch) as caught:
        replay_journal(
            Search(Climb(lanes=1, batch=1), TASK, Budget(evaluations=50), 0),
            journal.read(),
            at_least,
        )
    assert "effect" in str(caught.value)
    assert "fork" in caught.value.fix


def test_minibatches_are_drawn_with_replacement_unless_a_repeat_would_teach_nothing():
    drawn = []

    class Draw:
        async def search(self, lab):
            drawn.append([[case.id for case in lab.minibatch(n)] for n in [12, *[4] * 400]])

    for deterministic in (None, True):
        cases = tuple(Case(str(n), input=n) for n in range(10))
        on = msgspec.structs.replace(TASK, cases=cases, deterministic=deterministic)
        Search(Draw(), on, Budget(evaluations=50), 0).start()
    (many, *noisy), (few, *exact) = drawn
    assert len(many) == 12 and sorted(few) == sorted(case.id for case in cases)
    distinct = sum(len(set(batch)) == 4 for batch in noisy)
    assert distinct == pytest.approx(400 * 0.9 * 0.8 * 0.7, abs=50)  # five standard deviations
    assert all(len(set(batch)) == 4 for batch in exact)


def test_a_deterministic_task_is_never_asked_the_same_twice_during_the_search():
    @dataclass(frozen=True)
    class Again:
        async def search(self, lab):
            for _ in range(5):
                for text in ("1", "2", "3"):
                    await lab.evaluate(Candidate.of({"x": text}), lab.minibatch(3))

    run = simulate(Again(), EXACT, Hill(sigma=0), Budget(evaluations=100))
    assert run.search.reason == "strategy_done"
    assert (
        run.search.ledger.spent.evaluations == 3 + 2
    )  # three candidates; the winner and the initial program once more
    assert run.verdict.score == 3.0
    assert run.verdict.verified


def test_a_strategy_that_spins_on_known_answers_is_stopped_with_advice():
    @dataclass(frozen=True)
    class Spin:
        async def search(self, lab):
            while True:
                await lab.evaluate(lab.seeds[0])

    with pytest.raises(UserError, match="known already"):
        simulate(Spin(), EXACT, Hill(sigma=0), Budget(evaluations=100))


def test_many_proposals_before_the_first_evaluation_ends_are_no_waste():
    """A hundred lanes ask before any child is evaluated.

    The search must not end as one that finds nothing new.
    """

    @dataclass(frozen=True)
    class Wide:
        async def search(self, lab):
            await lab.gather(*(self.lane(lab) for _ in range(100)))

        async def lane(self, lab):
            while True:
                answer = await lab.propose(Brief(lab.seeds[0]))
                await lab.gather(*(lab.evaluate(child, [None]) for child in answer.candidates))

    slow = SimulatedWorld(evaluate_seconds=1000.0)
    run = simulate(Wide(), slow.task(), slow, Budget(evaluations=300), workers=100, calls=100)
    assert run.search.reason == "evaluations" and run.search.ledger.spent.evaluations > 280


def test_an_error_in_a_strategy_comes_out():
    @dataclass(frozen=True)
    class Broken:
        async def search(self, lab):
            await lab.evaluate(lab.seeds[0])
            raise ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError):
        simulate(Broken(), TASK, Hill(), Budget(evaluations=10))


def test_one_lucky_sample_does_not_win():
    """A candidate with one high look against one with many good ones.

    The engine's choice looks again.
    """

    @dataclass(frozen=True)
    class Lucky:
        async def search(self, lab):
            for text in [f"0.{n:02d}" for n in range(20)]:
                await lab.evaluate(Candidate.of({"x": text}))
            await lab.evaluate(Candidate.of({"x": "0.9"}), [None] * 6)

    good = 0
    gap = 0.0
    for seed in range(20):
        run = simulate(Lucky(), TASK, Hill(sigma=0.4), Budget(evaluations=80, final=0.5), seed=seed)
        true = float(run.search.lab.find(run.verdict.id).text)
        good += true == 0.9
        gap += (run.verdict.score - true) / 20
    assert good >= 17
    assert abs(gap) < 0.1


def test_failures_never_win_and_never_stop_a_search():
    run = simulate(Climb(), TASK, Hill(fail=0.4), Budget(evaluations=200), seed=5, workers=4)
    assert run.search.is_done
    assert run.verdict is not None
    everything = simulate(Climb(), TASK, Hill(fail=1.0), Budget(evaluations=50), seed=5)
    assert everything.search.is_done
    assert everything.verdict is None


def test_a_strategy_that_returns_ends_the_run_and_keeps_the_reserve_for_the_choice():
    @dataclass(frozen=True)
    class Short:
        async def search(self, lab):
            await lab.evaluate(lab.seeds[0], [None, None])
            await lab.propose(Brief(lab.seeds[0]))

    run = simulate(Short(), TASK, Hill(), Budget(evaluations=100))
    assert run.search.reason == "strategy_done"
    assert run.search.ledger.spent.evaluations > 2


def test_a_deterministic_task_with_a_hold_out_keeps_enough_to_run_it_once():
    cases = tuple(
        Case(f"{split}{i}", i, split=split) for split in ("train", "test") for i in range(4)
    )
    task = msgspec.structs.replace(EXACT, cases=cases)
    run = simulate(Climb(batch=2), task, Hill(sigma=0), Budget(evaluations=100), seed=3)
    assert run.verdict.split == "test"
    assert run.verdict.count == 4
    assert run.verdict.confirmed
    assert run.search.ledger.spent.evaluations <= 100


@pytest.mark.parametrize(
    "text", ["plain", 'quotes " and \\ and \n', "umlaut \u00e4 \u2028 \U0001f600", "\x00", "\ud800"]
)
def test_a_brief_that_is_written_already_gives_the_same_mark(text):
    for parent in (None, Candidate.of({"x": text})):
        request = ProposeRequest(Brief(parent, context=text), 7)
        assert request_mark(request, encode_json(request.brief)) == request_mark(request)


def test_texts_that_are_no_valid_unicode_have_marks_too():
    request = ProposeRequest(Brief(Candidate.of({"x": "\ud800"})), 1)
    assert request_mark(request) == request_mark(
        ProposeRequest(Brief(Candidate.of({"x": "\ud800"})), 1)
    )
    assert request_mark(request) != request_mark(
        ProposeRequest(Brief(Candidate.of({"x": "\ud801"})), 1)
    )


@dataclass(frozen=True)
class Tidy:
    """Asks what fits before it asks for it, and puts things in order when nothing more does."""

    async def search(self, lab):
        calls = 0
        while not lab.lacks(brief=Brief(lab.seeds[0])):
            await lab.propose(Brief(lab.seeds[0]))
            calls += 1
        while not lab.lacks(evaluations=2):
            await lab.evaluate(lab.seeds[0], repeats=2)
        await lab.effect("session.end", agent=0)  # free: always admitted
        lab.note("tidied", calls=calls, elapsed=lab.elapsed)
        return "tidied"


def test_a_strategy_can_ask_what_fits_and_say_why_it_ended():
    run = simulate(
        Tidy(), TASK, Hill(), Budget(evaluations=27, calls=5, final=0.0), seed=1, workers=2
    )
    assert run.search.reason == "tidied"
    assert run.search.ledger.spent.evaluations == 27  # 26, and one for the final choice
    notes = [event.entry.body for event in run.journal.read() if event.entry.kind == "note"]
    assert (
        notes[-1]["note"] == "tidied"
        and notes[-1]["calls"] == 5
        and 0 < notes[-1]["elapsed"] <= run.seconds
    )


def test_an_overrun_budget_still_admits_what_is_free():
    """An effect whose cost was not known before (an agent's session) may cost more than is left."""

    class Dear(Hill):
        def perform(self, effect, rng):
            if effect.kind == "session.wait":
                return 1.0, Custom(usage=Usage(calls=1, input_tokens=5000))
            return super().perform(effect, rng)

    class Agent:
        async def search(self, lab):
            await lab.evaluate(lab.seeds[0])
            await lab.effect("session.wait", agent=0)
            assert lab.lacks(brief=Brief(lab.seeds[0])) == "tokens"
            await lab.effect("session.end", agent=0)
            return "ended"

    run = simulate(Agent(), TASK, Dear(), Budget(tokens=1000), seed=1)
    assert run.search.reason == "ended" and run.search.ledger.spent.input_tokens == 5000
    assert run.verdict is not None and run.verdict.confirmed


def test_the_replay_of_nothing_is_nothing_and_initial_programs_are_known_from_the_start():
    begun = replay_journal(Search(Climb(), TASK, Budget(evaluations=20), 0), (), at_least)
    assert (begun.effects, begun.elapsed, begun.missing) == (0, 0.0, []) and begun.pending
    run = simulate(Climb(), TASK, Hill(), Budget(evaluations=40))
    noted = [e.entry for e in run.journal.read() if e.entry.body.get("note") == "candidates"]
    fresh = [candidate.id for entry in noted for candidate in entry.result.candidates]
    assert not set(fresh) & {candidate.id for candidate in TASK.initial_candidates()} and len(
        set(fresh)
    ) == len(fresh)
