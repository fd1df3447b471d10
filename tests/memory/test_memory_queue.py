"""Selection by priority, programs in hand, traces, samples."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.memory.priorities import Earliest, Mean, RunningSample, Shuffled
from culmen.memory.queue import PriorityQueue, Traces, top

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
    assert top(np.array(scores), k, Earliest(), Random(0)) == expected


@given(st.lists(score, min_size=1, max_size=30), st.integers(1, 10), st.integers(0, 5))
def test_shuffled_ties_change_the_order_among_equals_only(scores, k, seed):
    chosen = top(np.array(scores), k, Shuffled(), Random(seed))
    assert [scores[i] for i in chosen] == sorted(scores, reverse=True)[:k]
    assert len(dict.fromkeys(chosen)) == len(chosen)
    assert chosen == top(np.array(scores), k, Shuffled(), Random(seed))


def test_nan_is_passed_over_while_others_are_left():
    assert top(np.array([np.nan, 1.0, np.nan]), 3, Earliest(), Random(0)) == [1]
    assert top(np.array([np.nan, np.nan]), 1, Earliest(), Random(0)) == [0]


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
    traces.update(Rollout(candidate, tuple(observations), tuple(o.score for o in observations)))
    assert [(t.reward, t.status, t.feedback) for t in traces.of(candidate.id)] == [
        (None, "error (memory_limit)", "sec"),
        (2.0, "ok", "thi"),
    ]


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
    assert all(abs(got - q) < 0.15 for got, q in zip(sample.quantiles(0.1, 0.5, 0.9), (0.1, 0.5, 0.9)))
