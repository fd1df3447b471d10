"""The queue before the budget: requests start in their order, as far as the budget has room."""

from __future__ import annotations

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import (
    Effect,
    EvaluateRequest,
    ProposeRequest,
    Request,
    WriteRequest,
    at_least,
)
from culmen.core.usage import Budget, Usage
from culmen.engine.ledger import BudgetQueue, Ledger

ONE = Candidate.of({"program": "one"})


def priced(request: Request) -> Usage:
    """A dollar a thousand tokens: of 8,000 a reply without a limit."""
    if isinstance(request, ProposeRequest | WriteRequest):
        samples = request.brief.k if isinstance(request, ProposeRequest) else 1
        limit = request.limit
        tokens = samples * 8000 if limit is None else limit.samples * limit.tokens
        return Usage(calls=1, output_tokens=tokens, dollars=tokens / 1000)
    return at_least(request)


def gate(budget: Budget) -> tuple[Ledger, BudgetQueue]:
    ledger = Ledger(budget, 0)
    return ledger, BudgetQueue(ledger, priced)


def wanting(queue: BudgetQueue, *requests: Request) -> None:
    for key, request in enumerate(requests, len(queue.waiting) + 1):
        queue.add(Effect(key, f"mark {key}", request))


def keys(queue: BudgetQueue) -> list[int]:
    return [effect.key for effect in queue.admit(lambda request: False)]


def test_what_does_not_fit_waits_until_there_is_room() -> None:
    ledger, queue = gate(Budget(evaluations=3))
    wanting(queue, *(EvaluateRequest(ONE, None, seed) for seed in range(4)))
    assert keys(queue) == [1, 2, 3] and list(queue.waiting) == [4]
    assert keys(queue) == [] and not queue.closing
    ledger.settle(2, Usage())  # it cost nothing in the end
    assert keys(queue) == [4] and not queue.waiting


def test_admission_ends_once_no_effect_in_flight_could_make_room() -> None:
    ledger, queue = gate(Budget(evaluations=1))
    wanting(queue, EvaluateRequest(ONE, None, 1), EvaluateRequest(ONE, None, 2))
    assert keys(queue) == [1] and not queue.closing
    ledger.settle(1, Usage(evaluations=1))
    assert keys(queue) == [] and queue.closing == "evaluations"
    wanting(queue, WriteRequest("critic", {}, 3))
    assert keys(queue) == [], "nothing starts whose result could not be evaluated"
    queue.clear()
    assert not queue.waiting and not queue.closing and keys(queue) == []


def test_what_is_held_back_keeps_its_place() -> None:
    _, queue = gate(Budget(evaluations=9, calls=9, dollars=99))
    wanting(
        queue, ProposeRequest(Brief(), 1), EvaluateRequest(ONE, None, 2), ProposeRequest(Brief(), 3)
    )
    held = queue.admit(lambda request: isinstance(request, ProposeRequest))
    assert [effect.key for effect in held] == [2] and list(queue.waiting) == [1, 3]
    queue.drop(1)
    queue.drop(7)  # there is none
    assert keys(queue) == [3]


def test_an_effect_that_was_refused_before_can_be_dropped() -> None:
    _, queue = gate(Budget(evaluations=1))
    wanting(queue, EvaluateRequest(ONE, None, 1), EvaluateRequest(ONE, None, 2))
    assert keys(queue) == [1]
    queue.drop(2)
    assert not queue.waiting and keys(queue) == []


def test_a_request_beyond_the_whole_budget_is_made_shorter() -> None:
    ledger, queue = gate(Budget(dollars=5))
    wanting(queue, ProposeRequest(Brief(k=4), 1))
    (effect,) = queue.admit(lambda request: False)
    assert isinstance(effect.request, ProposeRequest) and effect.request.limit is not None
    assert (effect.request.limit.samples, effect.request.limit.tokens) == (1, 4096)
    assert ledger.budget_left("dollars") == 5 - 4.096


def test_before_a_first_reply_two_sizes_are_tried() -> None:
    ledger, queue = gate(Budget(dollars=2))
    limits = [request.limit for request in queue.shorter_requests(WriteRequest("critic", {}, 1))]
    assert [(limit.samples, limit.tokens) for limit in limits if limit] == [(1, 4096), (1, 1024)]
    wanting(queue, WriteRequest("critic", {}, 1))
    assert keys(queue) == [1] and ledger.budget_left("dollars") == 2 - 1.024


def test_replies_are_never_limited_to_next_to_nothing() -> None:
    _, queue = gate(Budget(dollars=1))
    queue.learn_reply_size(
        0, WriteRequest("critic", {}, 1), Text("ok", usage=Usage(calls=1, output_tokens=2))
    )
    limits = [request.limit for request in queue.shorter_requests(WriteRequest("critic", {}, 1))]
    assert [(limit.samples, limit.tokens) for limit in limits if limit] == [(1, 256)]


def test_later_replies_are_limited_to_what_the_roles_longest_suggest() -> None:
    ledger, queue = gate(Budget(dollars=5))
    brief = ProposeRequest(Brief(k=2), 1)
    queue.learn_reply_size(1, brief, Proposal(usage=Usage(calls=1, output_tokens=400)))
    queue.learn_reply_size(
        2, brief, Proposal(usage=Usage(calls=2, output_tokens=400))
    )  # shorter ones
    seen = Observation(ONE.id, Status.OK, 1.0, usage=Usage(calls=1, output_tokens=9999))
    queue.learn_reply_size(3, EvaluateRequest(ONE, None, 1), seen)
    assert ledger.longest_replies == {"proposer": 400}
    limits = [request.limit for request in queue.shorter_requests(brief)]
    assert [(limit.samples, limit.tokens) for limit in limits if limit] == [(2, 600), (1, 600)]


def test_no_cut_reply_is_asked_for_while_any_of_several_short_requests_is_under_way() -> None:
    ledger, queue = gate(Budget(dollars=20))
    silent = Proposal(reply="x" * 4000, usage=Usage(calls=1))  # no tokens reported
    queue.learn_reply_size(0, ProposeRequest(Brief(), 0), silent)
    ledger.reserve(9, Usage())
    ledger.settle(9, Usage(dollars=11))

    def ask(key: int, samples: int) -> Request:
        queue.add(Effect(key, f"mark {key}", ProposeRequest(Brief(k=samples), key)))
        (effect,) = queue.admit(lambda request: False)
        ledger.settle(key, Usage())
        return effect.request

    first, second = ask(1, 2), ask(2, 2)  # 16 dollars each: only shorter ones fit
    assert isinstance(first, ProposeRequest) and first.limit is not None
    queue.learn_reply_size(1, first, silent)
    alone = ask(3, 1)
    assert isinstance(alone, ProposeRequest) and alone.limit is None
    queue.learn_reply_size(2, second, silent)
    later = ask(4, 1)
    assert isinstance(later, ProposeRequest) and later.limit is not None


def test_room_is_counted_behind_what_waits() -> None:
    _, queue = gate(Budget(evaluations=2))
    assert queue.budget_without_room(EvaluateRequest(ONE, None, 1)) == ""
    wanting(queue, EvaluateRequest(ONE, None, 1), EvaluateRequest(ONE, None, 2))
    assert queue.budget_without_room(EvaluateRequest(ONE, None, 3)) == "evaluations"
    assert queue.budget_without_room(Usage(evaluations=1)) == "evaluations"
    queue.drop(2)
    assert queue.budget_without_room(Usage(evaluations=1)) == ""


def test_a_request_to_a_model_has_room_if_a_shorter_one_has() -> None:
    _, queue = gate(Budget(dollars=9))
    assert (
        queue.budget_without_room(ProposeRequest(Brief(k=4), 1)) == ""
    )  # of 32 dollars, and 16, 8, 4
    wanting(queue, ProposeRequest(Brief(), 1))  # 8 dollars
    assert queue.budget_without_room(ProposeRequest(Brief(k=4), 2)) == "dollars", (
        "1,024 tokens are 1.024"
    )
    assert queue.budget_without_room(EvaluateRequest(ONE, None, 3)) == ""


def test_evaluations_that_ask_models_count_at_the_highest_cost_so_far() -> None:
    ledger, queue = gate(Budget(evaluations=9, calls=5, dollars=9))
    ledger.learn_cost(Usage(calls=2, dollars=1))
    wanting(queue, *(EvaluateRequest(ONE, None, seed) for seed in range(3)))
    assert keys(queue) == [1, 2] and list(queue.waiting) == [3]


def test_requests_to_models_do_not_count_what_evaluations_cost() -> None:
    ledger, queue = gate(Budget(calls=10))
    ledger.learn_cost(Usage(calls=2))
    wanting(queue, WriteRequest("critic", {}, 1))
    assert keys(queue) == [1] and ledger.budget_left("calls") == 9 - 1, (
        "a tenth is kept for the final choice"
    )
