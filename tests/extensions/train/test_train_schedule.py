"""The schedule of alpha, the floor of noise and the size of the frontier, as in the paper."""

from __future__ import annotations

import pytest

from culmen.core.usage import Budget
from culmen.extensions.train.objectives import AdvantageRule
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.extensions.train.schedule import PhaseSchedule
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate


def notes(run, kind):
    return [e.entry.body for e in run.journal.read() if e.entry.body.get("note") == kind]


def plus(**settings):
    return PacevolvePlusPlus(
        **{"scaffold": Pacevolve(islands=4), "worst": 0.0, "best": 1.0, **settings}
    )


@pytest.mark.parametrize(("staleness", "barriers"), [(0, 6), (1, 6), (2, 6)])
def test_alpha_goes_from_0_to_1_over_the_barriers_that_the_budget_has_room_for(staleness, barriers):
    budget = Budget(evaluations=1 + 4 * barriers, final=0.0)
    run = simulate(plus(staleness=staleness), task(), Landscape(), budget, trial=False)
    alphas = [note["alpha"] for note in notes(run, "barrier")]
    assert alphas == pytest.approx([n / (barriers - 1) for n in range(barriers)])


def test_alpha_follows_barriers_that_become_dearer_or_cheaper_and_never_falls():
    dearer, cheaper = PhaseSchedule(begun=0.1), PhaseSchedule(begun=0.1)
    shares = [0.2, 0.3, 0.5, 0.7, 0.9, 1.0]
    rising = [dearer.weight(n, share) for n, share in enumerate(shares)]
    assert rising[0] == 0.0 and rising == sorted(rising) and rising[-1] == 1.0
    shares = [0.4, 0.5, 0.55, 0.6, 0.8, 1.0]
    rising = [cheaper.weight(n, share) for n, share in enumerate(shares)]
    assert rising[0] == 0.0 and rising == sorted(rising) and rising[-1] == 1.0


def test_a_last_barrier_that_only_begins_is_not_counted():
    schedule = PhaseSchedule()
    assert [schedule.weight(n, 0.3 * (n + 1)) for n in range(3)] == [0.0, 0.5, 1.0]
    assert PhaseSchedule().weight(3, 0.0) == 0.0  # without a budget


def test_planned_barriers_are_kept_to_whatever_the_budget():
    schedule = PhaseSchedule(planned=3)
    assert [schedule.weight(n, 0.9) for n in range(4)] == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 1.0])
def test_noise_is_compared_with_rewards_and_not_with_the_spread_of_the_frontier(alpha):
    rewards = [3.0, 3.05, 3.1, 3.2, 3.25, 3.3, 3.4, 3.5]
    signal = AdvantageRule(noise=0.05).training_signal(rewards, alpha)
    assert not signal.skip and len(signal.advantages) == 8
    if alpha > 0:
        assert dict(signal.spreads)["frontier"] < 0.05 < dict(signal.spreads)["rewards"]
    near = [3.0 + 0.01 * n for n in range(8)]
    assert AdvantageRule(noise=0.05).training_signal(near, alpha).skip == "rewards_collapsed"


@pytest.mark.parametrize(
    ("islands", "k", "size", "told"),
    [
        (8, None, 4, 0),
        (4, None, 3, 0),
        (3, None, 2, 0),
        (4, 4, 4, 1),
        (4, 2, 2, 0),
        (2, None, 2, 1),
    ],
)
def test_the_frontier_is_smaller_than_the_group_or_it_is_told(islands, k, size, told):
    strategy = plus(scaffold=Pacevolve(islands=islands), k=k)
    assert strategy.frontier_size == size
    run = simulate(strategy, task(), Landscape(), Budget(evaluations=20), trial=False)
    assert len(notes(run, "frontier_is_group")) == told


def test_a_tie_at_the_top_gives_credit_unless_the_frontier_is_the_group():
    tied = [5.0, 5.0, 1.0, 0.0]
    assert plus(k=4).advantage_rule().training_signal(tied, 0.5).skip == "frontier_collapsed"
    advantages = plus().advantage_rule().training_signal(tied, 0.5).advantages
    assert advantages[0] == advantages[1] > 0 > advantages[3]


def test_an_objective_without_a_frontier_has_nothing_to_tell_about_it():
    strategy = plus(objective="grpo", k=4)
    run = simulate(strategy, task(), Landscape(), Budget(evaluations=20), trial=False)
    assert notes(run, "barrier") and not notes(run, "frontier_is_group")
