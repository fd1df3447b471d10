"""Running statistics equal recomputation from all observations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.strategies.memory.queue import Statistics

CANDIDATES = [Candidate.of({"p": str(n)}) for n in range(5)]
reward = st.floats(-100, 100).map(lambda x: round(x, 3))
outcome = st.one_of(reward, st.none(), st.just("lost"))
rollouts = st.lists(
    st.tuples(st.integers(0, 4), st.lists(outcome, max_size=4), st.sampled_from(["", "a", "b"]))
)


def rollout(candidate, outcomes, case=""):
    def observe(outcome):
        status = (
            Status.LOST if outcome == "lost" else Status.ERROR if outcome is None else Status.OK
        )
        return Observation(
            candidate.id, status, None if isinstance(outcome, str) else outcome, case
        )

    observations = tuple(observe(o) for o in outcomes)
    return Rollout(candidate, observations, tuple(o.score for o in observations))


@given(rollouts, st.sampled_from([None, -200.0]))
def test_statistics_equal_recomputation(made, declared):
    statistics = Statistics(declared)
    seen = {c.id: [] for c in CANDIDATES}
    for round, (n, outcomes, case) in enumerate(made):
        statistics.add_rollout(rollout(CANDIDATES[n], outcomes, case), round)
        seen[CANDIDATES[n].id] += [(o, case, round) for o in outcomes if o != "lost"]
    scores = [o for kept in seen.values() for o, _, _ in kept if o is not None]
    floor = declared if declared is not None else min(scores, default=0.0)
    assert statistics.floor == floor
    assert statistics.total_observations == sum(map(len, seen.values()))
    for row, key in enumerate(statistics._index):
        values = [floor if o is None else o for o, _, _ in seen[key]]
        summary = statistics.entry_summary(key)
        assert (summary.observations, summary.failures) == (
            len(values),
            sum(o is None for o, _, _ in seen[key]),
        )
        if all(o is None for o, _, _ in seen[key]):
            assert summary.mean is None and statistics.mean_rewards()[row] == -math.inf
            continue
        assert summary.mean == pytest.approx(np.mean(values), abs=1e-9)
        assert statistics.mean_rewards()[row] == pytest.approx(np.mean(values), abs=1e-9)


def test_latest_is_the_mean_of_the_last_round_alone():
    statistics, candidate = Statistics(), CANDIDATES[0]
    statistics.add_rollout(rollout(candidate, [1.0, 3.0]), 1)
    statistics.add_rollout(rollout(candidate, [10.0]), 2)
    statistics.add_rollout(rollout(candidate, [20.0]), 2)
    assert statistics.latest_means().tolist() == [15.0]
    assert statistics.entry_summary(candidate.id).mean == 8.5


def test_failures_of_the_last_round_count_at_the_floor_in_it():
    statistics, (one, other, third, fourth, *_) = Statistics(2.0), CANDIDATES
    statistics.add_rollout(rollout(one, [7.0]), 1)
    statistics.add_rollout(rollout(one, [4.0, 6.0, None, None]), 2)
    statistics.add_rollout(rollout(other, [9.0]), 1)
    statistics.add_rollout(rollout(other, [None]), 2)
    statistics.add_rollout(rollout(third, [None, 5.0]), 2)
    statistics.add_rollout(rollout(fourth, [5.0]), 2)
    assert statistics.latest_means().tolist() == [3.5, -math.inf, 3.5, 5.0]


def test_the_less_was_observed_of_a_candidate_the_wider_it_is():
    statistics, (one, other, third, *_) = Statistics(0.0), CANDIDATES
    statistics.add_rollout(rollout(one, [4.0, None, 5.0, "lost"]))
    statistics.add_rollout(rollout(other, [4.0]))
    statistics.add_rollout(rollout(third, []))
    assert statistics.observation_counts().tolist() == [3.0, 1.0, 0.0]
    for n, shown in ((None, 4), (20, 20)):
        log = math.log(shown)
        assert statistics.confidence_widths(n) == pytest.approx(
            [math.sqrt(log / 3), math.sqrt(log), 0.0]
        )
    assert Statistics().confidence_widths().tolist() == []
    once = Statistics()
    once.add_rollout(rollout(one, [1.0]))
    assert once.confidence_widths().tolist() == [0.0]


def test_what_a_model_believes_is_told_by_candidate_and_nothing_of_what_gave_no_score():
    statistics = Statistics()
    for candidate, seen in zip(
        CANDIDATES, ([1.0], [None], [3.0, 3.1], ["lost"], [2.0]), strict=True
    ):
        statistics.add_rollout(rollout(candidate, seen))
    believed = statistics.posterior_means().tolist()
    assert believed[1] == believed[3] == -math.inf
    assert believed[0] < believed[4] < believed[2]
    statistics.add_rollout(rollout(Candidate.of({"p": "later"}), ["lost"]))
    assert statistics.posterior_means().tolist() == [*believed, -math.inf]


def test_a_failure_counts_as_the_lowest_reward_seen_anywhere_also_if_that_is_seen_later():
    statistics = Statistics()
    statistics.add_rollout(rollout(CANDIDATES[0], [4.0, None]))
    assert statistics.entry_summary(CANDIDATES[0].id).mean == 4.0
    statistics.add_rollout(rollout(CANDIDATES[1], [0.0]))
    assert statistics.entry_summary(CANDIDATES[0].id).mean == 2.0


def test_rows_survive_growth():
    statistics = Statistics()
    many = [Candidate.of({"p": str(n)}) for n in range(300)]
    for n, candidate in enumerate(many):
        statistics.add_rollout(rollout(candidate, [float(n)]), n)
    assert statistics.mean_rewards().tolist() == [float(n) for n in range(300)]
    assert statistics.raw_column("birth").tolist() == [float(n) for n in range(300)]
