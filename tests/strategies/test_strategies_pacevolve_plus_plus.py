"""The training beside the search: contents of updates, causes of alarms.

Also the starting points of decisions.
"""

from __future__ import annotations

import pytest

from culmen.core.errors import UserError
from culmen.core.event import Custom
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.extensions.baselines.puct import PuctSearch
from culmen.extensions.train.policy import Steps, decision_reward
from culmen.extensions.train.starts import Puct
from culmen.strategies.pacevolve.implementing import ExperimentOutcome, Implementing
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import simulate

from .test_strategies_pacevolve import plus
from .test_strategies_pacevolve_scaffold import notes, rollout


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 0.01),
        ({"policy": "model"}, 1e-5),
        ({"policy": "model", "rank": 0}, 1e-6),
        ({"policy": "model", "rate": 3e-4}, 3e-4),
    ],
)
def test_the_learning_rate_follows_what_is_trained_unless_it_is_given(settings, rate):
    assert plus(**settings).update_rules()["rate"] == rate


def test_updates_are_told_where_they_stand_in_the_plan():
    class Watched(Landscape):
        def train(self, request):
            if request.kind == "train.update":
                plans.append(request.payload["plan"])
            return super().train(request)

    plans = []
    simulate(plus(barriers=5), task(), Watched(), Budget(evaluations=60))
    assert [plan["step"] for plan in plans] == list(range(len(plans)))
    assert [plan["alpha"] for plan in plans][:6] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_search_that_trains_nothing_goes_on():
    run = simulate(plus(objective="none"), task(), Landscape(), Budget(evaluations=160), workers=4)
    assert len(notes(run, "barrier")) > 30 and not notes(run, "advisor_unreadable")


def test_a_score_beyond_the_best_level_is_told_as_clamped():
    run = simulate(plus(best=0.25), task(), Landscape(), Budget(evaluations=60))
    assert max(note["clamped"][1] for note in notes(run, "barrier")) > 0


def test_an_alarm_is_raised_where_more_than_four_fifths_of_a_barrier_failed():
    rules = plus(scaffold=Pacevolve(islands=4, implementing=Implementing(repairs=0)))
    run = simulate(
        rules,
        task(),
        Landscape(faults=Faults(error=0.7)),
        Budget(evaluations=100),
        workers=4,
        trial=False,
    )
    told = [
        (sum(note["failures"].values()), "failures" in note["alarms"])
        for note in notes(run, "barrier")
    ]
    assert {failed for failed, _ in told} >= {3, 4} and all(
        raised == (failed == 4) for failed, raised in told
    )


def test_no_role_is_nothing_to_train():
    with pytest.raises(UserError, match="cannot train nothing"):
        plus(roles=())


def alarms(rows, steps=None):
    steps = steps or Steps()
    return [steps.update_alarms(skip, told, failed) for skip, told, failed in rows]


def test_entropy_collapses_below_three_tenths_of_the_first():
    entropies = (2.0, 0.6, 0.59, 4.0, 0.7)
    raised = alarms(("", {"entropy": entropy}, 0.0) for entropy in entropies)
    assert raised == [[], [], ["entropy_collapse"], [], []]


def test_a_gradient_spikes_beyond_five_times_the_median_of_five_or_more():
    def raised(*norms):
        return alarms(("", {"grad_norm": norm}, 0.0) for norm in norms)

    assert raised(2.0, 2.0, 2.0, 2.0, 90.0) == raised(2.0, 2.0, 2.0, 2.0, 2.0)
    assert raised(2.0, 2.0, 2.0, 2.0, 2.0, 10.1, 10.0, 2.0) == [[]] * 5 + [
        ["gradient_spike"],
        [],
        [],
    ]


def test_most_of_a_barrier_failing_and_ten_barriers_without_a_step_raise_alarms():
    assert alarms([("", {}, 0.8), ("", {}, 0.81)]) == [[], ["failures"]]
    steps = Steps()
    skipped = [("group_collapsed", {}, 0.0)]
    assert alarms(skipped * 11, steps) == [[]] * 9 + [["skips"]] * 2
    assert alarms(
        [("", {}, 0.0), *skipped * 9, ("not_training", {}, 0.0), *skipped * 10], steps
    ) == [[]] * 20 + [["skips"]]


def test_rewards_go_from_zero_to_five_in_the_direction_of_the_task():
    def rewarded(direction, score):
        objective = Objective(direction=direction)
        return decision_reward(
            objective, ExperimentOutcome(rollout(objective.reward(score))), (0.0, 10.0)
        )

    assert [rewarded("max", score) for score in (2.5, 10.0, 12.0, -1.0)] == [1.25, 5.0, 5.0, 0.0]
    assert [rewarded("min", score) for score in (2.5, 10.0, 12.0, -1.0)] == [3.75, 0.0, 0.0, 5.0]
    assert decision_reward(Objective(), ExperimentOutcome(fault="error"), (0.0, 10.0)) == -1.0


def test_what_was_opened_is_told_and_a_prompt_that_is_cut_once():
    class Cutting(Landscape):
        def train(self, request):
            result = super().train(request)
            return (
                Custom({**result.data, "cut": True}, result.usage)
                if request.kind == "train.sample"
                else result
            )

    run = simulate(plus(), task(), Cutting(), Budget(evaluations=30))
    assert [(note["name"], note["version"]) for note in notes(run, "policy")] == [("tiny", 0)]
    assert [note["step"] for note in notes(run, "prompt_cut")] == ["generate"]
    assert not notes(simulate(plus(), task(), Landscape(), Budget(evaluations=30)), "prompt_cut")


def test_states_are_given_to_the_islands_and_back_as_puct_says():
    """Two seeds and no exploration: the better one first, then the other.

    Lines in use are passed over.
    """
    low, high, child = rollout(1.0), rollout(2.0), rollout(4.0)
    starting = Puct(c=0.0).begin_search([(low, 1.0), (high, 2.0)])
    assert starting.take_starts(2) == [high, low]
    first, second = starting.give_back(
        [(child, 4.0), (high, 2.0)]
    )  # what the second made is known already
    assert (first["parent"], first["value"], first["expansions"], first["total"]) == (
        high.candidate.id,
        4.0,
        1,
        1,
    )
    assert first["kept"] == [child.candidate.id] and first["states"] == 3
    assert (second["parent"], second["value"], second["expansions"], second["total"]) == (
        low.candidate.id,
        1.0,
        1,
        2,
    )
    assert second["kept"] == [] and second["states"] == 3
    assert starting.take_starts(1) == [child]
    assert [note["kept"] for note in starting.give_back([(child, 4.0)])] == [[]]


def test_without_a_seed_what_works_becomes_a_state_to_start_from():
    starting = Puct().begin_search([])
    assert starting.take_starts(2) == [None, None]
    assert starting.give_back([None, (rollout(1.0), 1.0)]) == []
    assert starting.take_starts(1) == [rollout(1.0)]


def test_the_archive_of_states_is_the_one_of_the_strategy_puct():
    assert Puct() == Puct(*(getattr(PuctSearch(), name) for name in ("c", "children", "most")))
