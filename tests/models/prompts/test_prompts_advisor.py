"""The advisor's three prompts, word by word: a parent's metrics and feedback are in each."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Rollout, Status
from culmen.core.ports import Lab
from culmen.core.task import Task
from culmen.models.prompts.writer import PromptWriter
from culmen.strategies.pacevolve.advisor import Advising, AdvisorReply, mean_metrics
from culmen.strategies.pacevolve.memory import Failure, FailureMemory, IdeaRepository

from .test_prompts_writer import check

ANSWERS = {
    "generate": {"hypotheses": ["Sort first.", "Cache the sums."]},
    "classify": {"exists": True, "idea": 1, "description": "Order the input."},
    "select": {"idea": 1, "experiment": "Sort the list before the loop."},
}
PARENT = Candidate.of({"main.py": "def run(n):\n    return list(range(n))\n"})
SEEN = (
    Observation(PARENT.id, Status.OK, 0.75, "a", metrics={"balance": 0.5, "speed": 1.0}),
    Observation(
        PARENT.id,
        Status.OK,
        0.25,
        "b",
        metrics={"balance": 0.25, "speed": float("inf")},
        feedback="Device 3 has twice the load of the others.",
    ),
    Observation(PARENT.id, Status.OK, 0.5, "c", feedback="Nothing to add."),
)


class Written:
    """Keeps every prompt as a model would get it, and gives the step's answer."""

    def __init__(self, task: Task) -> None:
        self.writer, self.prompts = PromptWriter(task), dict[str, Any]()

    async def answer_step(self, lab: Lab, step: str, **slots: object) -> AdvisorReply:
        self.prompts[step] = self.writer.text_prompt(f"advisor.{step}", slots)
        return AdvisorReply(json.dumps(ANSWERS[step]))


def decided(task: Task, advising: Advising, *observations: Observation) -> dict[str, Any]:
    voice, failures = Written(task), FailureMemory(9)
    failures.add(Failure("Order the input.", "Reverse the list.", "error", "IndexError"))
    ideas = IdeaRepository().with_idea("Order the input.").with_result(1, "score 0.5: no help")
    rollout = Rollout(PARENT, observations, tuple(one.score or 0.0 for one in observations))
    lab = cast(Lab, SimpleNamespace(task=task))
    asyncio.run(advising.decide(lab, voice, rollout, ideas, failures))
    return voice.prompts


@pytest.fixture
def task() -> Task:
    return Task("t", goal="Spread the load over the devices.", seeds=(PARENT.parts,))


@pytest.mark.parametrize("step", ANSWERS)
def test_each_step_shows_the_metrics_and_the_feedback_of_the_parent(step: str, task: Task) -> None:
    check(f"advisor_{step}", decided(task, Advising(), *SEEN)[step])


@pytest.mark.parametrize("step", ANSWERS)
def test_a_parent_without_them_leaves_no_empty_heading(step: str, task: Task) -> None:
    bare = Observation(PARENT.id, Status.OK, 0.5)
    user = decided(task, Advising(), bare)[step].user
    assert "0.5" in user and "metrics" not in user and "reported" not in user
    shown = decided(task, Advising(feedback_chars=0), *SEEN)[step].user
    assert "balance: 0.375" in shown and "Device 3" not in shown


def test_metrics_are_means_over_the_observations_that_have_them() -> None:
    assert mean_metrics(SEEN) == {"balance": 0.375, "speed": 1.0}


def test_long_feedback_loses_its_middle(task: Task) -> None:
    long = Observation(PARENT.id, Status.OK, 0.5, feedback="a" * 80 + "b" * 80)
    user = decided(task, Advising(feedback_chars=30), long)["generate"].user
    assert f"{'a' * 20}\n[… 130 characters left out …]\n{'b' * 10}" in user
