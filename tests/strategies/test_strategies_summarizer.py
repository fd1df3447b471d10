"""Summaries: their sources, how much of them is shown, when one is made, and their cost."""

from __future__ import annotations

from random import Random

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Rollout, Status
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.strategies.memory.priorities import Quantile
from culmen.strategies.memory.queue import PriorityQueue
from culmen.strategies.summarizer import (
    RunningSummary,
    Summarizer,
    contrast_pairs,
    shorten_middle,
    success_threshold,
)
from culmen.testing.landscape import Faults, Landscape, task
from culmen.testing.virtual import simulate

from .helpers import Witness


def test_a_text_that_is_too_long_keeps_two_thirds_of_its_head_and_one_of_its_tail():
    text = "0123456789" * 10
    assert shorten_middle(text, 100) == text
    assert shorten_middle(text, 50) == f"{text[:20]}\n[... left out ...]\n{text[-10:]}"
    assert shorten_middle(text, 20) == shorten_middle(text, 5) == "\n[... left out ...]\n"


@pytest.mark.parametrize(
    ("tau", "seen", "level"),
    [
        (None, [1.0, 2.0, 3.0, 6.0, 7.0], 3.0),
        (Quantile(0.5), [0.0, 1.0], 0.5),
        (Quantile(1.0), [0.0, 1.0, 2.0], 1.0),
        (Quantile(0.5), [0.0, 1.0, 2.0, 3.0, 4.0], 2.0),
    ],
)
def test_the_level_is_a_quantile_below_the_highest_reward(tau, seen, level):
    assert success_threshold(tau, Objective(), seen) == level


def contrasted(*texts, chars, **seen):
    """The pairs of programs with these texts, each with one success."""
    queue = PriorityQueue()
    for text in texts:
        candidate = Candidate.of({"p": text})
        queue.add([candidate])
        queue.update(
            [
                Rollout(
                    candidate,
                    (Observation(candidate.id, Status.OK, 1.0, case="c", **seen),),
                    (1.0,),
                )
            ]
        )
    return contrast_pairs(
        queue, 0.5, 10, chars, {"c": Case("c", input="i" * 900)}, Random(0), Objective()
    )


def test_programs_share_the_room_half_for_the_text_and_a_quarter_for_each_trajectory():
    pairs = contrasted("a" * 900, "b" * 900, chars=2400, feedback="f" * 900)
    assert len(pairs) == 2
    for pair in pairs:
        seen = pair["success"]
        assert (len(pair["program"]), len(seen["input"]), len(seen["feedback"])) == (600, 150, 150)
    alone = contrasted("a" * 900, chars=2400, feedback="f" * 900, artifacts={"output": "o" * 700})[
        0
    ]
    assert len(alone["program"]) == 900
    assert [len(alone["success"][name]) for name in ("input", "feedback", "output")] == [200] * 3


def test_twelve_metrics_are_shown_where_there_are_any():
    shown = contrasted("a", chars=2400, metrics={f"m{n:02}": float(n) for n in range(20)})[0][
        "success"
    ]
    assert shown["metrics"] == {f"m{n:02}": float(n) for n in range(12)}
    assert "metrics" not in contrasted("a", chars=2400)[0]["success"]


class Reading:
    """Reads the running summary after every new program."""

    def __init__(self, summarizer, programs):
        self.summarizer, self.programs, self.read = summarizer, programs, []

    async def search(self, lab):
        summary, queue = RunningSummary(self.summarizer, None), PriorityQueue()
        for n in range(self.programs):
            candidate = Candidate.of({"p": f"{n}"})
            queue.add([candidate])
            queue.update(
                [Rollout(candidate, (Observation(candidate.id, Status.OK, 1.0),), (float(n),))]
            )
            self.read.append(await summary.read(lab, queue))


@pytest.mark.parametrize(
    ("summarizer", "asked", "read"),
    [
        (Summarizer(every=3), [3, 6], ["", "", *["climb"] * 5]),
        (Summarizer(every=1), [1, 2, 3, 4, 5, 6, 7], ["climb"] * 7),
        (Summarizer(every=0), [1, 2, 3, 4, 5, 6, 7], ["climb"] * 7),
        (None, [], [""] * 7),
    ],
)
def test_a_summary_serves_until_so_many_programs_are_new(summarizer, asked, read):
    strategy, witness = Reading(summarizer, 7), Witness()
    simulate(strategy, task(), witness, Budget(evaluations=9))
    assert (
        strategy.read == read
        and [len(request.slots["pairs"]) for request in witness.summaries] == asked
    )


def test_a_model_that_gives_nothing_leaves_the_last_summary():
    strategy = Reading(Summarizer(every=0), 30)
    simulate(strategy, task(), Landscape(faults=Faults(silent=0.5)), Budget(evaluations=40), seed=1)
    first = strategy.read.index("climb")
    assert strategy.read[first:] == ["climb"] * (30 - first)


def test_what_summaries_cost_is_told():
    told = "a summary, one call with up to about 6,000 tokens of prompt"
    assert Summarizer().price == told and Summarizer().cost == f"{told}, for every 10 new programs"
    assert Summarizer(chars=1000, every=0).cost == (
        "a summary, one call with up to about 1,000 tokens of prompt, in every iteration"
    )
