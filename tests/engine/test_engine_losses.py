"""Effects that a crash cut off: charged in full, until others show what their kind needs."""

from __future__ import annotations

from random import Random

import pytest

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.event import CustomRequest, Effect, EvaluateRequest, ProposeRequest
from culmen.core.usage import Budget, Usage
from culmen.engine.driver import torn_entry
from culmen.engine.ledger import Ledger, loss_group

LARGEST = Usage(calls=1, input_tokens=3000, output_tokens=1000, dollars=0.007)
PROGRAM = Candidate.of({"program": "x"})


def effect(request: object) -> Effect:
    return Effect(1, "mark", request)  # pyright: ignore[reportArgumentType]


def ledger_after(calls: int, dollars: float = 0.0001) -> Ledger:
    """A ledger that lost an evaluation, and then saw as many calls of this price end."""
    ledger = Ledger(Budget(dollars=0.01, tokens=10_000, calls=100), 0)
    ledger.charge_loss(LARGEST, "evaluate")
    for key in range(calls):
        used = Usage(calls=1, input_tokens=60, output_tokens=2, dollars=dollars)
        ledger.settle(key, used)
        ledger.learn_effect_cost("evaluate", used)
    return ledger


def test_a_lost_call_is_charged_in_full_while_nothing_else_is_known() -> None:
    ledger = ledger_after(0)
    spent = [ledger.spent.at_most(name) for name in ("calls", "tokens", "dollars")]
    assert spent == pytest.approx([1, 4000, 0.007])
    assert ledger.refusing_budget(LARGEST) == "dollars"


def test_what_others_do_not_need_is_given_back_and_the_call_is_not() -> None:
    ledger = ledger_after(10)
    assert ledger.spent.calls == 11
    assert ledger.spent.at_most("tokens") == pytest.approx(11 * 62, abs=1)
    assert ledger.spent.at_most("dollars") == pytest.approx(11 * 0.0001)
    assert ledger.refusing_budget(LARGEST) == ""


def test_no_more_is_charged_than_the_call_can_have_cost() -> None:
    ledger = ledger_after(3, dollars=0.02)
    assert ledger.spent.at_most("dollars") == pytest.approx(3 * 0.02 + 0.007)


def test_losses_without_a_group_and_effects_of_another_stay_as_they_are() -> None:
    ledger = ledger_after(0)
    ledger.charge_loss(LARGEST)  # of a journal made before groups
    ledger.learn_effect_cost("propose proposer", Usage(calls=1, dollars=0.0001))
    ledger.learn_effect_cost("", Usage(calls=1, dollars=0.0001))
    assert ledger.spent.at_most("dollars") == pytest.approx(2 * 0.007)


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_the_likely_cost_of_lost_calls_is_seldom_below_the_true_one(spread: float) -> None:
    rng, below = Random(5), 0
    for _ in range(2_000):
        ledger = Ledger(Budget(dollars=10.0), 0)
        lost = [max(0.0, rng.gauss(1.0, spread)) for _ in range(8)]
        for _ in lost:
            ledger.charge_loss(Usage(calls=1, dollars=100.0), "evaluate")
        for _ in range(5):
            used = Usage(calls=1, dollars=max(0.0, rng.gauss(1.0, spread)))
            ledger.learn_effect_cost("evaluate", used)
        below += ledger.spent.at_most("dollars") < sum(lost)
    assert below < 0.05 * 2_000


def test_effects_of_one_kind_and_role_are_a_group() -> None:
    proposal = effect(ProposeRequest(Brief(PROGRAM, role="advisor"), 0))
    assert loss_group(proposal) == "propose advisor"
    assert loss_group(effect(EvaluateRequest(PROGRAM, None, 0))) == "evaluate"
    assert loss_group(effect(CustomRequest("session", {}, 0))) == ""
    assert torn_entry(proposal, LARGEST, 1.0).body["group"] == "propose advisor"
