"""Priorities, contrast, summaries, features."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Rollout, Status
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.strategies import catalog
from culmen.strategies.judging import dimension_value
from culmen.strategies.memory.priorities import Mean, Newest, Quantile, ThisRound, Ucb, UcbSigma
from culmen.strategies.memory.queue import PriorityQueue, Statistics, Trace
from culmen.strategies.polca import Polca
from culmen.strategies.summarizer import (
    Summarizer,
    contrast_pairs,
    extract_guidance,
    shorten_middle,
    split_by_success,
    success_threshold,
)
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness


def rollout(name, *rewards, feedback="", metrics=None):
    candidate = Candidate.of({"p": name})
    common = {"case": "c", "feedback": feedback, "metrics": metrics or {}}
    made = [
        Observation(candidate.id, Status.ERROR if r is None else Status.OK, r, **common)
        for r in rewards
    ]
    return Rollout(candidate, tuple(made), rewards)


def statistics(*rounds):
    """One rollout list per round; unknown candidates are born in it."""
    made = Statistics()
    for number, rollouts in enumerate(rounds):
        for r in rollouts:
            made.add_rollout(r, number)
    return made


def test_mean_and_both_forms_of_ucb():
    made = statistics([rollout("a", 1.0, 3.0), rollout("b", 2.5)])
    assert Mean()(made).tolist() == [2.0, 2.5]
    wide, narrow = math.sqrt(math.log(3)), math.sqrt(math.log(3) / 2)
    assert Ucb(0.5)(made).tolist() == pytest.approx([2.0 + 0.5 * narrow, 2.5 + 0.5 * wide])
    assert UcbSigma(0.5)(made).tolist() == pytest.approx([2.0 + narrow, 2.5 + wide])
    assert UcbSigma(0.5, horizon=100)(made).tolist() == pytest.approx(
        [2.0 + math.sqrt(math.log(100) / 2), 2.5 + math.sqrt(math.log(100))]
    )
    with pytest.raises(UserError):
        Ucb(-1.0)


def test_a_negative_spread_is_refused():
    with pytest.raises(UserError, match="sigma"):
        UcbSigma(sigma=-1.0)


@pytest.mark.parametrize("name", ["beam", "sequential", "polca", "pedigree"])
def test_what_a_summary_costs_is_told_where_there_is_one(name):
    assert "summary" in catalog.make_strategy(name, {"summarizer": "on"}).asides
    assert catalog.make_strategy(name, {"summarizer": "off"}).asides == ""


def test_newest_is_the_order_of_arrival():
    assert Newest()(
        statistics([rollout("a", 9.0)], [rollout("b", 1.0), rollout("c", None)])
    ).tolist() == [1, 2, 3]


def test_this_round_judges_the_last_generation_by_its_own_iteration():
    first = [rollout("a", 9.0)]
    made = statistics(first, [*first, rollout("b", 1.0, 3.0), rollout("c", 4.0)])
    old, *new = ThisRound()(made).tolist()
    assert math.isnan(old) and new == [2.0, 4.0]


def test_a_generation_that_fails_altogether_does_not_replace_the_one_before():
    made = statistics([rollout("a", 1.0), rollout("b", 2.0)], [rollout("c", None)])
    scores = ThisRound()(made).tolist()
    assert scores[:2] == [1.0, 2.0] and math.isnan(scores[2])


@pytest.mark.parametrize(
    ("tau", "objective", "seen", "level"),
    [
        (0.7, Objective(), [], 0.7),
        (10.0, Objective(direction="min"), [], -10.0),
        (None, Objective(bounds=(0.0, 1.0)), [0.0, 0.0, 0.0], 0.5),
        (None, Objective(), [1.0, 2.0, 6.0], 2.0),
        (Quantile(0.75), Objective(), [0.0, 1.0, 2.0, 3.0, 4.0], 3.0),
        (
            None,
            Objective(),
            [0.0, 1.0, 1.0, 1.0],
            0.0,
        ),  # the median is the best there is: step below it
        (None, Objective(), [1.0, 1.0], 1.0),
        (None, Objective(), [], 0.0),
    ],
)
def test_threshold(tau, objective, seen, level):
    assert success_threshold(tau, objective, seen) == level


@given(st.lists(st.one_of(st.none(), st.floats(-5, 5))), st.floats(-5, 5))
def test_every_trace_is_a_success_or_a_failure(rewards, level):
    traces = [Trace("c", reward, "ok", "") for reward in rewards]
    good, bad = split_by_success(traces, level)
    assert len(good) + len(bad) == len(traces)
    assert all(t.reward > level for t in good) and all(
        t.reward is None or t.reward <= level for t in bad
    )


def queue_of(*rollouts):
    queue = PriorityQueue()
    queue.add([r.candidate for r in rollouts])
    queue.update(rollouts)
    return queue


def test_contrast_draws_one_of_each_kind_and_the_one_there_is():
    queue = queue_of(
        rollout("mixed", 1.0, 0.0, None),
        rollout("good", 1.0),
        rollout("bad", None, feedback="boom"),
    )
    cases = {"c": Case("c", input={"n": 1})}
    mixed, good, bad = contrast_pairs(queue, 0.5, 10, 9000, cases, Random(0), Objective())
    assert mixed["success"]["score"] == 1.0 and mixed["failure"]["score"] in (0.0, None)
    assert (
        mixed["success"]["input"] == '{"n": 1}'
        and mixed["program"] == "mixed"
        and mixed["count"] == 3
    )
    assert good["success"] and good["failure"] is None
    assert (
        bad["success"] is None
        and bad["failure"]["status"] == "error"
        and bad["failure"]["feedback"] == "boom"
    )


def test_contrast_varies_with_the_generator_and_leaves_out_the_unseen():
    queue = queue_of(*(rollout(f"{n}", float(n)) for n in range(30)))
    queue.add([Candidate.of({"p": "unseen"})])
    drawn = [
        [p["program"] for p in contrast_pairs(queue, 15.0, 6, 9000, {}, Random(seed), Objective())]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(names[:3] == ["29", "28", "27"] and "unseen" not in names for names in drawn)


@given(st.text(max_size=400), st.integers(60, 300))
@example("0123456789" * 40, 60)
def test_clip_keeps_both_ends_and_the_size(text, chars):
    short = shorten_middle(text, chars)
    assert len(short) <= chars + 10
    assert short == text or (short[:20] == text[:20] and short[-10:] == text[-10:])


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        ("<reasoning>why</reasoning>\n<summary>\n do this \n</summary> bye", "do this"),
        ("<SUMMARY>do this", "do this"),
        ("<reasoning>why</reasoning> do this", "do this"),
        ("do this", "do this"),
        ("<reasoning>cut off", ""),
        ("", ""),
    ],
)
def test_guidance_is_what_the_reply_advises(reply, advice):
    assert extract_guidance(reply) == advice


def test_features_are_lengths_and_means_of_finite_metrics():
    made = rollout("12345", 1.0, 2.0, metrics={"m": 4.0, "bad": math.nan})
    assert dimension_value("complexity", made) == 5.0
    assert dimension_value("m", made) == 4.0
    assert dimension_value("bad", made) == dimension_value("missing", made) == 0.0


@pytest.mark.parametrize("tau", [0.2, 0.45])
def test_the_summarizer_contrasts_what_lies_above_tau_with_what_lies_below(tau):
    """A summarizer that took another threshold would call other trajectories successes."""
    witness = Witness(Landscape(sigma=0.15, gamma=0.1))
    strategy = Polca(epsilon=None, tau=tau, summarizer=Summarizer(every=0))
    simulate(strategy, task(), witness, Budget(evaluations=240, final=0.0), seed=3)
    slots = [request.slots for request in witness.summaries]
    pairs = [pair for each in slots for pair in each["pairs"]]
    good = [pair["success"]["score"] for pair in pairs if pair["success"]]
    bad = [
        pair["failure"]["score"]
        for pair in pairs
        if pair["failure"] and pair["failure"]["score"] is not None
    ]
    assert {each["level"] for each in slots} == {tau} and all(
        f"above {tau:.6g}" in each["success"] for each in slots
    )
    assert (
        len(good) > 5
        and len(bad) > 5
        and all(isinstance(pair["mean score"], float) for pair in pairs)
    )
    assert min(good) > tau >= max(bad)
    assert min(good) < tau + 0.1 and max(bad) > tau - 0.15  # nothing between is left out


@pytest.mark.parametrize("name", ["turboevolve", "map_elites", "openevolve"])
def test_what_is_drawn_to_inspire_is_shown_to_the_model(name):
    witness = Witness(Landscape())
    simulate(
        catalog.make_strategy(name),
        task(),
        witness,
        Budget(evaluations=80, final=0.0),
        seed=1,
        workers=2,
    )
    shown = [brief.inspirations for brief in witness.briefs if brief.parent is not None]
    assert sum(map(bool, shown)) > len(shown) / 2
    for brief in witness.briefs:
        names = [exhibit.candidate.id for exhibit in brief.inspirations]
        assert len(set(names)) == len(names) and (
            brief.parent is None or brief.parent.id not in names
        )
