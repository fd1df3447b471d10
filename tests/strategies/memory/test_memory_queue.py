"""Selection by priority, programs in hand, traces, samples."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.task import Task
from culmen.evidence.evidence import Evidence
from culmen.strategies.memory.priorities import Earliest, Mean, RunningSample, Shuffled
from culmen.strategies.memory.queue import PriorityQueue, Traces, top_rows

score = st.one_of(st.integers(-3, 3).map(float), st.just(float("-inf")))


def scored(n, *rewards):
    candidate = Candidate.of({"p": str(n)})
    observations = tuple(Observation(candidate.id, Status.OK, r) for r in rewards)
    return Rollout(candidate, observations, rewards)


def queue_of(*rewards):
    queue = PriorityQueue()
    rollouts = [scored(n, reward) for n, reward in enumerate(rewards)]
    queue.add([r.candidate for r in rollouts])
    queue.update(rollouts)
    return queue


@given(st.lists(score, min_size=1, max_size=30), st.integers(1, 10))
def test_top_is_the_head_of_a_stable_sort(scores, k):
    expected = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]
    assert top_rows(np.array(scores), k, Earliest(), Random(0)) == expected


@given(st.lists(score, min_size=1, max_size=30), st.integers(1, 10), st.integers(0, 5))
def test_shuffled_ties_change_the_order_among_equals_only(scores, k, seed):
    chosen = top_rows(np.array(scores), k, Shuffled(), Random(seed))
    assert [scores[i] for i in chosen] == sorted(scores, reverse=True)[:k]
    assert len(dict.fromkeys(chosen)) == len(chosen)
    assert chosen == top_rows(np.array(scores), k, Shuffled(), Random(seed))


def test_nan_is_passed_over_while_others_are_left():
    assert top_rows(np.array([np.nan, 1.0, np.nan]), 3, Earliest(), Random(0)) == [1]
    assert top_rows(np.array([np.nan, np.nan]), 1, Earliest(), Random(0)) == [0]


def test_what_is_in_hand_is_passed_over_until_released_and_shared_when_nothing_else_is_left():
    queue, rng = queue_of(1.0, 3.0, 2.0), Random(0)
    names = [c.id for c in queue.candidates]

    def take(k):
        return queue.take(k, Mean(), Earliest(), rng)

    first = take(1)
    assert [c.id for c in first] == [names[1]]
    second = take(2)
    assert [c.id for c in second] == [names[2], names[0]]
    third = take(1)
    assert third == first
    queue.release(first)  # the third holds it still: all are in hand, so the best are shared
    fourth = take(2)
    assert [c.id for c in fourth] == [names[1], names[2]]
    for held in (second, third, fourth):
        queue.release(held)
    assert [c.id for c in take(3)] == [names[1], names[2], names[0]]


def test_what_was_released_may_be_taken_at_once_and_what_two_hold_only_when_both_released_it():
    queue, rng = queue_of(1.0, 2.0), Random(0)
    low, high = queue.candidates
    for _ in range(3):
        assert queue.take(1, Mean(), Earliest(), rng) == [high]
        queue.release([high])
    assert queue.take(2, Mean(), Earliest(), rng) == [high, low]
    assert queue.take(1, Mean(), Earliest(), rng) == [high]  # shared
    queue.release([low, high])
    assert queue.take(1, Mean(), Earliest(), rng) == [low]


def test_a_sample_is_all_that_was_observed_or_half_of_it_the_best():
    queue = queue_of(*map(float, range(9)))
    queue.add([Candidate.of({"p": "never observed"})])
    assert queue.sample_rows(9, Random(0)) == list(range(9))
    drawn = [queue.sample_rows(5, Random(seed)) for seed in range(40)]
    assert all(rows[:3] == [8, 7, 6] and len(set(rows)) == 5 for rows in drawn)
    assert set().union(*(rows[3:] for rows in drawn)) == set(range(6))
    of_four = [queue.sample_rows(4, Random(seed)) for seed in range(40)]
    assert {tuple(rows[:2]) for rows in of_four} == {(8, 7)} and len(
        {rows[2] for rows in of_four}
    ) > 3
    assert {len(rows) for rows in of_four} == {4}


def test_a_queue_remembers_traces_rewards_and_rounds():
    queue = queue_of(1.0, 5.0)
    assert [trace.reward for trace in queue.traces.traces_of(queue.candidates[1].id)] == [5.0]
    assert queue.rewards.quantiles(0.0, 1.0) == [1.0, 5.0]
    assert (
        queue.statistics.raw_column("birth").tolist()
        == queue.statistics.raw_column("round").tolist()
        == [0.0, 0.0]
    )
    assert queue.candidates[0].id in queue.statistics and "another" not in queue.statistics


def told(rollouts, evidence):
    """Give the evidence of a run the observations of these rollouts, as the engine does."""
    for rollout in rollouts:
        for observation in rollout.observations:
            evidence.observe(rollout.candidate, observation)


@pytest.mark.parametrize("again", [[], [2.6]])
def test_a_child_of_a_better_parent_is_believed_to_be_better_once_repeats_differ(again):
    """Until then one evaluation is taken to tell all."""
    good, bad, *equals = (
        scored(n, reward) for n, reward in enumerate([9.0, 1.0, 2.0, 2.0, 1.5, 3.0])
    )
    equals.append(scored(2, *again))
    children = [
        Candidate.of({"p": name}, (parent.candidate.id,))
        for name, parent in (("g", good), ("b", bad))
    ]
    evidence = Evidence(Task("t"))
    queue = PriorityQueue(ranking=evidence.ranking)
    queue.add([rollout.candidate for rollout in (good, bad, *equals)])
    queue.add(children)
    made = [Rollout(c, (Observation(c.id, Status.OK, 4.0),), (4.0,)) for c in children]
    told([good, bad, *equals, *made], evidence)
    believed = queue.statistics.posterior_means()
    assert believed[-2:].tolist() == [4.0, 4.0] if not again else believed[-2] > believed[-1] + 0.5
    assert believed.max() == believed[0] > 4.0  # that it was seen itself says more than kinship


def test_what_is_believed_is_what_the_evidence_of_the_run_says_and_without_it_the_mean():
    evidence, root = Evidence(Task("t")), Candidate.of({"p": "root"})
    known, bare = PriorityQueue(0.0, evidence.ranking), PriorityQueue(0.0)
    never, broken = (Candidate.of({"p": text}, (root.id,)) for text in ("never", "broken"))
    for queue in (known, bare):
        queue.add([never, root, broken])
    failure = Rollout(broken, (Observation(broken.id, Status.ERROR),), (None,))
    rewards = (1.0, None, 2.0)
    statuses = [Status.ERROR if reward is None else Status.OK for reward in rewards]
    seen = tuple(Observation(root.id, status, reward) for status, reward in zip(statuses, rewards))
    rollouts = [failure, Rollout(root, seen, rewards)]
    told(rollouts, evidence)
    for queue in (known, bare):
        queue.update(rollouts)
    belief = evidence.ranking.belief_of(root.id)
    assert belief is not None and known.statistics.posterior_means().tolist() == [
        -np.inf,
        belief.mean,
        -np.inf,
    ]
    assert (
        bare.statistics.posterior_means().tolist() == [-np.inf, 1.0, -np.inf] and belief.mean != 1.0
    )


def test_an_empty_queue_gives_nothing():
    assert PriorityQueue().take(5, Mean(), Earliest(), Random(0)) == []


def test_traces_keep_the_newest_and_leave_lost_ones_out():
    traces = Traces(keep=2, chars=3)
    candidate = Candidate.of({"p": "x"})
    observations = [
        Observation(candidate.id, Status.OK, 1.0, feedback="first"),
        Observation(candidate.id, Status.LOST),
        Observation(candidate.id, Status.ERROR, reason="memory_limit", feedback="second"),
        Observation(candidate.id, Status.OK, 2.0, feedback="third"),
    ]
    traces.add_rollout(
        Rollout(candidate, tuple(observations), tuple(o.score for o in observations))
    )
    assert [(t.reward, t.status, t.feedback) for t in traces.traces_of(candidate.id)] == [
        (None, "error (memory_limit)", "sec"),
        (2.0, "ok", "thi"),
    ]


def test_traces_keep_the_first_three_texts_at_half_the_length():
    candidate = Candidate.of({"p": "x"})
    for traces, feedback, text in ((Traces(), 1500, 750), (Traces(chars=8), 8, 4)):
        artifacts = {name: "y" * 2000 for name in "abcd"}
        seen = Observation(candidate.id, Status.OK, 1.0, feedback="z" * 2000, artifacts=artifacts)
        for _ in range(9):
            traces.add_rollout(Rollout(candidate, (seen,), (1.0,)))
        kept = traces.traces_of(candidate.id)
        assert len(kept) == 8 and len(kept[0].feedback) == feedback
        assert kept[0].texts == tuple((name, "y" * text) for name in "abc")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=2000))
def test_a_sample_is_bounded_and_spread_over_all_that_was_seen(values):
    sample = RunningSample(limit=100)
    sample.extend(values)
    assert len(sample) <= 100
    low, high = sample.quantiles(0.0, 1.0)
    assert min(values) <= low <= high <= max(values)


def test_quantiles_of_a_thinned_sample_are_close():
    sample, rng = RunningSample(limit=100), Random(0)
    sample.extend(rng.random() for _ in range(50_000))
    assert all(
        abs(got - q) < 0.15 for got, q in zip(sample.quantiles(0.1, 0.5, 0.9), (0.1, 0.5, 0.9))
    )
