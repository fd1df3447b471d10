"""The ledger by hand: the rest of a budget, refusals, and the share of the final choice."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

from culmen.core.brief import Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Evaluator, Objective, Task, parse_metric_goals
from culmen.core.usage import Budget, Usage
from culmen.engine.ledger import NOTHING, Ledger, Reservations, final_seconds, final_share, usage_of
from culmen.testing.virtual import simulate

from .worlds import Does, Hill

ONE = Usage(evaluations=1)
DEAR = Usage(evaluations=1, calls=2, input_tokens=100, dollars=0.1)


def test_seconds_are_left_but_for_the_share_of_the_final_choice_and_never_less_than_none() -> None:
    ledger = Ledger(Budget(seconds=100.0), 0)
    assert (
        ledger.budget_left("seconds") == pytest.approx(90.0)
        and ledger.budget_left("calls") == math.inf
    )
    ledger.elapsed = 30.0
    assert ledger.budget_left("seconds") == pytest.approx(60.0)
    ledger.elapsed = 95.0
    assert ledger.budget_left("seconds") == 0.0
    assert Ledger(Budget(seconds=100.0, final=0.3), 0).budget_left("seconds") == pytest.approx(70.0)
    assert (final_seconds(Budget()), final_seconds(Budget(final=0.3))) == (0.1, 0.3)


def test_what_is_reserved_counts_as_spent_until_it_is_settled_and_nothing_is_left_of_what_is_exceeded() -> (
    None
):
    ledger = Ledger(Budget(evaluations=10, calls=5), 2)
    ledger.reserve(1, Usage(evaluations=3, calls=4))
    assert (ledger.budget_left("evaluations"), ledger.budget_left("calls")) == (5.0, 1.0)
    assert (
        ledger.refusing_budget(Usage(calls=2)) == "calls"
        and ledger.exhausted_budget(Usage(calls=2)) == ""
    )
    ledger.settle(1, Usage(evaluations=3, calls=7))
    assert (ledger.budget_left("evaluations"), ledger.budget_left("calls")) == (5.0, 0.0)
    assert (
        ledger.exhausted_budget(Usage(calls=1)) == "calls"
        and ledger.refusing_budget(Usage(evaluations=5)) == "calls"
    )
    assert ledger.refusing_budget(NOTHING) == ledger.exhausted_budget(NOTHING) == ""


def test_the_final_choice_has_what_was_kept_and_owes_nothing_to_what_was_abandoned() -> None:
    ledger = Ledger(Budget(evaluations=10, calls=5), 4)
    ledger.reserve(1, Usage(evaluations=2, calls=9))
    ledger.open_reserve()
    assert ledger.budget_left("evaluations") == 10.0
    ledger.settle(1, NOTHING)
    assert ledger.budget_left("evaluations") == 10.0
    assert (
        ledger.refusing_budget(Usage(evaluations=1, calls=50)) == ""
    )  # it only evaluates, which costs no calls here
    assert ledger.refusing_budget(Usage(evaluations=11)) == "evaluations"


def test_where_evaluations_cost_money_a_tenth_is_kept_and_limits_the_final_choice() -> None:
    ledger = Ledger(Budget(evaluations=100, dollars=10.0, tokens=1000), 0)
    assert ledger.budget_left("dollars") == 10.0
    ledger.learn_cost(DEAR)
    assert (ledger.budget_left("dollars"), ledger.budget_left("tokens")) == pytest.approx(
        (9.0, 900.0)
    )
    ledger.open_reserve()
    assert ledger.budget_left("dollars") == 10.0
    assert ledger.refusing_budget(Usage(evaluations=1, dollars=10.1)) == "dollars"
    assert Ledger(Budget(dollars=10.0, final=0.5), 0).budget_left("dollars") == 10.0


def test_evaluations_are_affordable_as_often_as_the_dearest_fits_into_what_is_left() -> None:
    for budget, fit in (
        (Budget(calls=9, final=0.0), 4),
        (Budget(dollars=0.3, final=0.0), 3),
        (Budget(tokens=350, final=0.0), 3),
        (Budget(calls=10), 4),
        (Budget(evaluations=2, calls=9), 2),
        (Budget(), math.inf),
    ):
        ledger = Ledger(budget, 0)
        ledger.learn_cost(Usage(evaluations=1, calls=1, dollars=0.05))
        ledger.learn_cost(DEAR)
        ledger.learn_cost(Usage(evaluations=1, calls=1))
        assert ledger.affordable_evaluations == fit


def test_what_a_call_in_flight_may_have_cost_counts_as_spent_but_for_its_evaluation() -> None:
    ledger = Ledger(Budget(calls=5, evaluations=5), 0)
    for _ in range(2):
        ledger.charge_loss(Usage(evaluations=1, calls=1))
    assert ledger.possibly_lost == Usage(evaluations=2, calls=2) and ledger.spent == Usage(calls=2)


def test_progress_is_the_share_of_the_tightest_budget() -> None:
    assert Ledger(Budget(), 0).progress == 0.0
    ledger = Ledger(Budget(evaluations=50, calls=10, seconds=100.0), 10)
    ledger.settle(1, Usage(evaluations=10, calls=1))
    assert ledger.progress == 0.25
    ledger.elapsed = 60.0
    assert ledger.progress == 0.6
    ledger.elapsed = 200.0
    assert ledger.progress == 1.0


def kept(evaluations: int, cases: int = 0, metrics: bool = False, **task: object) -> int:
    """Evaluations of a budget that are kept for the final choice."""
    objective = (
        Objective(metrics=parse_metric_goals({"speed": "max", "size": "min"}))
        if metrics
        else Objective()
    )
    listed = tuple(Case(str(n), n) for n in range(cases))
    made = Task("t", seeds=({"a": "1"},), cases=listed, objective=objective)
    return final_share(Budget(evaluations=evaluations), msgspec.structs.replace(made, **task))


def test_with_several_objectives_every_member_of_a_front_is_confirmed_three_times_within_a_fifth() -> (
    None
):
    assert kept(200, metrics=True) == 27 and kept(100, metrics=True) == 20
    assert kept(1000, cases=5, metrics=True) == 45
    assert kept(200, metrics=True, deterministic=True) == 9
    assert kept(200, cases=2, metrics=True, deterministic=True) == 18


class Scattered(Hill):
    """Every candidate is the best in something: none is better in both metrics."""

    def observe(self, request, rng):
        x = float(request.candidate.text)
        metrics = {"speed": x, "size": x}
        return Observation(
            request.candidate.id, Status.OK, rng.random(), seed=request.seed, metrics=metrics
        )


def test_of_a_noisy_front_as_many_members_are_confirmed_as_can_be_evaluated_twice() -> None:
    async def search(lab) -> None:
        await lab.gather(*(lab.evaluate(Candidate.of({"x": str(n)}), [None]) for n in range(7)))

    task = Task(
        "t",
        seeds=({"x": "9"},),
        objective=Objective(metrics=parse_metric_goals({"speed": "max", "size": "min"})),
    )
    world = Scattered()
    run = simulate(Does(search), task, world, Budget(evaluations=18, final=0.5), trial=False)
    assert run.verdict is not None and len(run.verdict.finalists) == 5
    assert world.calls == 7 + 5 * 2  # eleven are left, one too few for a sixth


def test_a_data_set_that_fits_just_into_a_fifth_is_reported_whole() -> None:
    assert (kept(100, cases=5), kept(100, cases=6)) == (20, 10)
    assert (kept(100, cases=8, deterministic=True), kept(100, cases=9, deterministic=True)) == (
        20,
        10,
    )
    tolerant = {
        "deterministic": True,
        "evaluator": Evaluator(path="/e.py"),
    }  # a winner is looked into, too
    pushes = 6  # of the winner's output
    assert (kept(100, cases=6, **tolerant), kept(100, cases=7, **tolerant)) == (
        20 + pushes,
        10 + pushes,
    )


def test_tiny_budgets_keep_nothing_or_one_evaluation_for_a_verifier() -> None:
    verified = Evaluator(verifier="/verify.py")
    assert [kept(n) for n in (1, 9, 10)] == [0, 0, 1]
    assert [kept(n, evaluator=verified) for n in (1, 2, 9)] == [0, 1, 1]


def test_an_evaluation_costs_what_its_models_cost_and_one_evaluation() -> None:
    seen = Observation("a", Status.OK, 1.0)
    assert usage_of(seen) == ONE
    asked = msgspec.structs.replace(seen, usage=Usage(calls=2, dollars=0.5))
    assert usage_of(asked) == Usage(evaluations=1, calls=2, dollars=0.5)
    assert (
        usage_of(Text("a summary", usage=Usage(calls=1))) == Usage(calls=1)
        and usage_of(None) == NOTHING
    )


def test_where_all_that_hold_something_wait_for_more_the_last_is_refused_and_the_others_go_on() -> (
    None
):
    ledger = Ledger(Budget(calls=5), 0)
    owner = Reservations(ledger)

    async def main() -> None:
        assert (
            await owner.open_reservation(1, Usage(calls=2))
            == ""
            == await owner.open_reservation(2, Usage(calls=2))
        )
        first = asyncio.create_task(owner.grow_reservation(1, Usage(calls=5)))
        await asyncio.sleep(0)
        assert not first.done()  # the second may end without asking for more
        assert await owner.grow_reservation(2, Usage(calls=4)) == "calls"
        for _ in range(3):
            await asyncio.sleep(0)
        assert not first.done()
        owner.release(2)
        assert await first == "" and owner.release(1) == Usage(calls=5)

    asyncio.run(main())


def test_who_has_got_more_holds_it_and_waits_no_longer() -> None:
    owner = Reservations(Ledger(Budget(calls=5), 0))

    async def main() -> None:
        assert (
            await owner.open_reservation(1, Usage(calls=2))
            == ""
            == await owner.grow_reservation(1, Usage(calls=3))
        )
        assert await owner.open_reservation(2, Usage(calls=1)) == ""
        second = asyncio.create_task(owner.grow_reservation(2, Usage(calls=3)))
        await asyncio.sleep(0)
        assert not second.done()  # the first goes on, and will give back what it holds
        owner.release(1)
        assert await second == ""

    asyncio.run(main())


def test_who_performs_no_effect_takes_the_place_of_none() -> None:
    owner = Reservations(Ledger(Budget(calls=5), 0))

    async def main() -> None:
        assert await owner.open_reservation(1, Usage(calls=4)) == ""
        assert not owner.permit_current_effect(Usage(calls=2)) and owner.permit_current_effect(
            Usage(calls=1)
        )
        assert owner.release(1) == Usage(calls=4)

    asyncio.run(main())
