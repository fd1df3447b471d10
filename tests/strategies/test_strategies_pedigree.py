"""The default strategy: what it measures, decides and asks for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from bench.truth import worlds

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.event import EvaluateRequest, ProposeRequest
from culmen.core.usage import Budget, Usage
from culmen.evidence.pedigree import StepLaw, ValueModel
from culmen.strategies.costs import Costs
from culmen.strategies.pedigree import PedigreeSearch, Prior
from culmen.testing.virtual import Simulation, simulate


class Watched:
    """A world that remembers what it was asked."""

    def __init__(self, world: worlds.SimulatedWorld) -> None:
        self.world, self.evaluated, self.briefs = world, list[tuple[str, str]](), list[Brief]()
        self.texts: list[str] = []

    def perform(self, effect: Any, rng: Any) -> Any:
        request = effect.request
        if isinstance(request, EvaluateRequest):
            self.evaluated.append((request.candidate.id, request.case.id if request.case else ""))
        elif isinstance(request, ProposeRequest):
            self.briefs.append(request.brief)
        elif effect.kind == "write":
            self.texts.append(request.role)
        return self.world.perform(effect, rng)


def search(
    world: worlds.SimulatedWorld, budget: Budget, seed: int = 1, workers: int = 1, **settings: Any
) -> tuple[Watched, Simulation]:
    """One search of a world."""
    watched = Watched(world)
    return watched, simulate(
        PedigreeSearch(**settings), world.task(), watched, budget, seed=seed, workers=workers
    )


def notes(done: Simulation, kind: str) -> list[dict[str, Any]]:
    """The notes of one kind."""
    bodies = [event.entry.body for event in done.journal.read() if event.entry.kind == "note"]
    return [body for body in bodies if body.get("note") == kind]


def repeats(watched: Watched) -> int:
    """Evaluations of a candidate on a case it was evaluated on before."""
    return len(watched.evaluated) - len(set(watched.evaluated))


def test_an_exact_evaluator_is_found_out_and_paid_once() -> None:
    watched, done = search(worlds.SimulatedWorld(), Budget(evaluations=150))
    assert notes(done, "noise")[-1]["exact"] is True
    assert watched.evaluated[0] == watched.evaluated[1]  # the first candidate, twice
    assert repeats(watched) < 35  # leaders once more, and the final choice


def test_a_users_word_saves_the_repeats() -> None:
    world = worlds.SimulatedWorld()
    task = msgspec.structs.replace(world.task(), deterministic=True)
    watched = Watched(world)
    simulate(PedigreeSearch(), task, watched, Budget(evaluations=150), seed=1)
    assert repeats(watched) <= 3  # the final choice


def test_noise_is_measured_and_told() -> None:
    _, done = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=150))
    (note,) = notes(done, "noise")
    assert (
        note["exact"] is False and note["repeats"] == 1 and 0 < note["sd"] < 0.3
    )  # one repeat differed
    known = done.search.evidence.model.noise
    assert known.exact is False and known.repeats > 5 and known.sd == pytest.approx(0.1, rel=0.3)
    assert notes(done, "pedigree")


def test_with_noise_it_finds_more_than_greedy_does() -> None:
    from bench.truth.rules import Greedy

    def mean(strategy: Any) -> float:
        total = 0.0
        for seed in range(6):
            world = worlds.SimulatedWorld(noise=0.1, number=seed)
            done = simulate(strategy, world.task(), world, Budget(evaluations=150), seed=seed)
            total += (
                worlds.hidden_quality(done.search.lab.find(done.verdict.id)) / 6
                if done.verdict
                else 0.0
            )
        return total

    assert mean(PedigreeSearch()) > mean(Greedy()) + 0.05


def test_dear_calls_ask_for_more_children_each() -> None:
    cheap, _ = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=100))
    dear, _ = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=1000, calls=25))
    assert {brief.k for brief in cheap.briefs} == {1}
    assert sum(brief.k for brief in dear.briefs) > 3 * len(dear.briefs)


def test_cases_are_evaluated_one_at_a_time_and_bad_candidates_on_few() -> None:
    world = worlds.SimulatedWorld(noise=0.02, cases=20, effect=0.2, interaction=0.05)
    watched, _ = search(world, Budget(evaluations=200))
    looks: dict[str, int] = {}
    for candidate, _case in watched.evaluated:
        looks[candidate] = looks.get(candidate, 0) + 1
    assert sorted(looks.values())[len(looks) // 2] == 1  # most candidates are seen on one case only
    assert max(looks.values()) > 3


def test_an_exact_data_set_is_never_evaluated_twice_on_a_case_once_that_is_known() -> None:
    watched, done = search(worlds.SimulatedWorld(cases=5, interaction=0.1), Budget(evaluations=120))
    assert notes(done, "noise")[-1]["exact"] is True
    assert repeats(watched) < 30


def test_on_a_data_set_leaders_are_looked_at_on_several_cases_until_the_noise_is_known() -> None:
    """With one case for each candidate, the part of the case in a score is unknown."""
    _, done = search(
        worlds.SimulatedWorld(cases=24, interaction=0.2, answers=True), Budget(evaluations=100)
    )
    seen = Counter(
        e.entry.result.candidate
        for e in done.journal.read()
        if isinstance(e.entry.result, Observation)
    )
    assert sum(count - 1 for count in seen.values()) >= 30 and max(seen.values()) >= 5


def test_a_summary_is_asked_for_only_when_progress_stalls() -> None:
    moving, _ = search(worlds.SimulatedWorld(), Budget(evaluations=40))
    stuck, _ = search(worlds.SimulatedWorld(shape=worlds.deceptive_shape), Budget(evaluations=200))
    assert not moving.texts and 0 < len(stuck.texts) < 12


@pytest.mark.slow
def test_a_stalled_search_leaves_its_basin() -> None:
    found = []
    for seed in range(4):
        world = worlds.SimulatedWorld(shape=worlds.deceptive_shape, number=seed)
        done = simulate(
            PedigreeSearch(), world.task(), world, Budget(evaluations=600), seed=seed, workers=2
        )
        assert done.verdict is not None
        found.append(worlds.hidden_quality(done.search.lab.find(done.verdict.id)))
    assert max(found) > 0.7  # the first basin ends at 0.5


@pytest.mark.slow
def test_lucky_candidates_of_the_beginning_do_not_stall_long_noisy_searches() -> None:
    """Some estimates of the first evaluations stay above all later ones.

    They do so for a thousand evaluations.
    """
    found = list[float]()
    for seed in range(10_000, 10_003):
        _, done = search(
            replace(worlds.FAMILY["smooth, noise 6 steps"], number=seed),
            Budget(evaluations=1200),
            seed,
        )
        assert done.verdict is not None
        found.append(worlds.hidden_quality(done.search.lab.find(done.verdict.id)))
    assert sum(found) / 3 > 0.35, found


def test_prompts_show_the_parent_worst_first_and_others_that_are_no_kin() -> None:
    watched, _ = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=120))
    brief = next(b for b in reversed(watched.briefs) if len(b.observations) > 1)
    scores = [o.score for o in brief.observations]
    assert scores == sorted(scores, key=lambda s: s or 0.0)
    assert brief.parent is not None and brief.inspirations
    for other in brief.inspirations:
        assert (
            other.candidate.id != brief.parent.id and brief.parent.id not in other.candidate.parents
        )


def test_any_number_of_workers_are_busy() -> None:
    _, done = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=120), workers=8)
    _, alone = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=120))
    assert done.seconds < alone.seconds / 4


def test_what_an_earlier_run_learnt_is_a_prior() -> None:
    model, plain = ValueModel(prior=StepLaw(0.3, 0.02, -0.01)), ValueModel()
    for one in (model, plain):
        one.observe("a", 0.1)
        one.observe("a", 0.2)
        one.add_candidate("b", ("a",))
        one.observe("b", 0.9)
    assert model.value_of("b").mean < 0.5 < plain.value_of("b").mean
    _, done = search(
        worlds.SimulatedWorld(noise=0.1), Budget(evaluations=40), prior=Prior(0.1, 0.06, -0.03)
    )
    assert done.verdict is not None


class Left:
    """The part of a lab that `Costs` asks."""

    workers = 2

    def __init__(self, **left: float) -> None:
        self._left = left

    def left(self, budget: str) -> float:
        return self._left.get(budget, float("inf"))


@pytest.mark.parametrize(
    ("left", "evaluation", "one", "four"),
    [
        ({"evaluations": 100.0}, 0.01, 0.01, 0.04),
        ({"calls": 10.0}, 0.0, 0.1, 0.1),
        ({"evaluations": 100.0, "calls": 10.0}, 0.01, 0.1, 0.1),
        ({}, 0.0, 1.0, 1.0),
        ({"evaluations": 2.0}, 0.5, 0.5, 2.0),
    ],
)
def test_costs_are_the_largest_share_of_any_budget(
    left: dict[str, float], evaluation: float, one: float, four: float
) -> None:
    costs = Costs(Left(**left))  # type: ignore[arg-type]
    assert (
        costs.evaluation_share(),
        costs.request_share(1),
        costs.request_share(4),
    ) == pytest.approx((evaluation, one, four))


def test_costs_of_a_call_follow_what_calls_took_so_far() -> None:
    """Two calls for two candidates each; evaluations of 4 seconds.

    A call has 100 tokens in, 50 out, and takes 6 seconds and a dollar.
    """
    answer = Proposal(
        (Candidate.of({"x": "1"}), Candidate.of({"x": "2"})),
        usage=Usage(calls=1, input_tokens=100, output_tokens=50, dollars=1.0),
    )
    for left, one, four in (
        ({"tokens": 1000.0}, 0.125, 0.2),  # 100 and 25 a candidate
        (
            {"dollars": 10.0},
            0.1 * (100 + 4 * 25) / (100 + 4 * 50),
            0.1 * (100 + 4 * 100) / (100 + 4 * 50),
        ),
        ({"seconds": 100.0}, (6 + 4) / 2 / 100, (6 + 4 * 4) / 2 / 100),  # two workers
    ):
        costs = Costs(Left(**left))  # type: ignore[arg-type]
        for _ in range(2):
            costs.add_answer(answer, 2, 6.0)
            costs.add_evaluation(4.0)
        assert (costs.request_share(1), costs.request_share(4)) == pytest.approx((one, four))


def test_costs_after_one_call_and_one_evaluation_are_theirs() -> None:
    one = Proposal(
        (Candidate.of({"x": "1"}),), usage=Usage(calls=1, input_tokens=100, output_tokens=50)
    )
    costs = Costs(Left(tokens=1000.0))  # type: ignore[arg-type]
    costs.add_answer(one, 1, 6.0)
    assert (costs.request_share(1), costs.request_share(4)) == pytest.approx((0.15, 0.3))
    costs = Costs(Left(seconds=100.0))  # type: ignore[arg-type]
    costs.add_evaluation(4.0)
    assert costs.evaluation_share() == pytest.approx(0.02)  # two workers
    assert costs.request_share(3) == pytest.approx(0.06)
    costs.add_evaluation(8.0)
    assert costs.evaluation_share() == pytest.approx(0.03)


def test_an_answer_without_candidates_costs_what_one_would_and_a_clock_set_back_costs_nothing() -> (
    None
):
    costs = Costs(Left(tokens=1000.0))  # type: ignore[arg-type]
    costs.add_answer(Proposal((), usage=Usage(calls=1, input_tokens=100, output_tokens=50)), 2, 1.0)
    assert (costs.request_share(1), costs.request_share(4)) == pytest.approx((0.15, 0.3))
    costs = Costs(Left(seconds=100.0))  # type: ignore[arg-type]
    costs.add_answer(Proposal(()), 1, -5.0)
    costs.add_evaluation(4.0)
    assert costs.request_share(1) == pytest.approx(0.02)


def asked_costs(call: Usage, answer: Usage, **left: float) -> Costs:
    """Costs after one call for one candidate, and two evaluations that asked a model."""
    costs = Costs(Left(**left))  # type: ignore[arg-type]
    costs.add_answer(Proposal((Candidate.of({"x": "1"}),), usage=call), 1, 0.0)
    for _ in range(2):
        costs.add_evaluation(0.0, answer)
    return costs


def test_answers_of_models_count_against_calls_tokens_and_dollars() -> None:
    call, answer = (
        Usage(calls=1, input_tokens=100, output_tokens=50, dollars=0.5),
        Usage(calls=1, input_tokens=20, dollars=0.1),
    )
    for left, each, one in (
        ({"dollars": 10.0}, 0.01, 0.06),
        ({"tokens": 1000.0}, 0.02, 0.17),
        ({"calls": 10.0}, 0.1, 0.2),
        ({"dollars": 10.0, "evaluations": 50.0}, 0.02, 0.06),
    ):
        costs = asked_costs(call, answer, **left)
        assert (costs.evaluation_share(), costs.request_share(1)) == pytest.approx((each, one)), (
            left
        )


def test_a_call_that_no_budget_limits_is_taken_to_cost_ten_answers_also_of_the_cache() -> None:
    for answer, price, of_four in (
        (Usage(calls=1, dollars=0.1), 10.0, 28.0),
        (Usage(cache_hits=1), 10.0, 28.0),
        (Usage(calls=15, cache_hits=5), 0.5, 1.4),  # a rollout of an agent
        (Usage(), 0.0, 0.0),
    ):
        costs = asked_costs(Usage(calls=1, dollars=4.0), answer, evaluations=100.0)
        assert costs.evaluation_share() == pytest.approx(0.01)
        shares = costs.request_share(1), costs.request_share(4)
        assert shares == pytest.approx(((1 + price) / 100, (4 + of_four) / 100)), answer
        limited = asked_costs(Usage(calls=1), answer, evaluations=100.0, tokens=1e9)
        assert limited.request_share(1) == pytest.approx(0.01)


def test_few_calls_are_under_way_at_a_time_where_answers_of_models_are_paid_and_few_are_left() -> (
    None
):
    call, answer = Usage(calls=1, dollars=4.5), Usage(calls=1, dollars=0.5)
    for left, most in (
        (
            {"dollars": 800.0},
            10.0,
        ),  # a call with its first answer costs 5, and 160 of them are 10 in each of 16 rounds
        ({"dollars": 120.0}, 1.5),
        ({"dollars": 10.0}, 1.0),
        ({"calls": 64.0}, 2.0),
        ({"evaluations": 4.0, "dollars": 800.0}, 1.0),
        ({"evaluations": 4.0}, math.inf),
    ):
        assert asked_costs(call, answer, **left).most_requests() == pytest.approx(most), left
    assert asked_costs(call, Usage(), dollars=10.0).most_requests() == math.inf


def test_proposals_that_ask_no_model_cost_their_evaluations_alone() -> None:
    """Beside answers that cost money: no other rate of exchange, and no wait for a round."""
    answer = Usage(calls=1, input_tokens=20, dollars=0.1)
    for left in ({"evaluations": 100.0}, {"dollars": 10.0}):
        costs = asked_costs(Usage(), answer, **left)
        shares = costs.evaluation_share(), costs.request_share(1), costs.request_share(4)
        assert shares == pytest.approx((0.01, 0.01, 0.04)), left
        assert costs.most_requests() == math.inf and not costs.should_wait(8, 0)
    cached = asked_costs(Usage(cache_hits=1), answer, evaluations=100.0)
    assert cached.request_share(1) > 0.1, "a repeated run decides alike"


def test_where_only_dollars_are_told_a_call_costs_the_same_whatever_it_asks_for() -> None:
    costs = Costs(Left(dollars=10.0))  # type: ignore[arg-type]
    costs.add_answer(Proposal((), usage=Usage(calls=1, dollars=1.0)), 1, 1.0)
    assert (costs.request_share(1), costs.request_share(4)) == pytest.approx((0.1, 0.1))


def test_the_notes_tell_evaluations_from_requests() -> None:
    watched, done = search(worlds.SimulatedWorld(noise=0.1), Budget(evaluations=100))
    told = [(note["action"], note["of"]) for note in notes(done, "pedigree")]
    assert len([of for action, of in told if action == "children"]) in (
        len(watched.briefs),
        len(watched.briefs) - 1,
    )
    assert {of for action, of in told if action == "again"} <= {id for id, _ in watched.evaluated}
    assert {action for action, _ in told} == {"again", "children"}


def test_settings_out_of_range_are_refused() -> None:
    from culmen.core.errors import UserError

    with pytest.raises(UserError, match="most"):
        replace(PedigreeSearch(), most=9)
