"""Prompts where lower scores are better.

Models see scores as the task has them, and the right words for better and worse.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pytest

from culmen.core.brief import Attempt, Brief, Exhibit, Measured
from culmen.core.candidate import Candidate
from culmen.core.event import WriteRequest
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.models.prompts.formats import FORMATS
from culmen.models.prompts.writer import Prompt, PromptWriter
from culmen.strategies import catalog
from culmen.testing.landscape import Landscape, task
from culmen.testing.virtual import simulate
from tests.strategies.helpers import Witness

DOWN = msgspec.structs.replace(task(seeds=(0.5,)), objective=Objective("min"))


def prose(strategy: str, **settings: str) -> dict[str, Prompt]:
    """The last prompt of every role that a search for low scores asks for prose."""
    witness = Witness(Landscape(sigma=0.05))
    simulate(
        catalog.make_strategy(strategy, settings), DOWN, witness, Budget(evaluations=200), seed=1
    )
    writer = PromptWriter(DOWN)
    asked = [
        effect.request for effect in witness.effects if isinstance(effect.request, WriteRequest)
    ]
    return {request.role: writer.text_prompt(request.role, request.slots) for request in asked}


def test_the_summarizer_sees_scores_not_rewards() -> None:
    user = prose("polca")["summarizer"].user
    shown = [
        float(number) for number in re.findall(r"^(?:score|mean score): (\S+)", user, re.MULTILINE)
    ]
    assert shown and min(shown) > -0.3, "scores of about 0 to 1 are shown with their sign turned"
    assert "lower is better" in user and "reward" not in user and "igher" not in user
    assert (level := re.search(r"\(a score below (\S+)\)", user)) and float(level[1]) > 0


def test_the_advisor_is_not_told_to_raise_what_should_fall() -> None:
    prompts = {
        **prose("pacevolve"),
        **prose("pacevolve", advising="advising", upkeep="upkeep(tries=3)"),
    }
    assert {"advisor.plan", "advisor.generate", "advisor.select", "advisor.result"} <= set(prompts)
    for role, prompt in prompts.items():
        assert not re.search(r"raise its score|higher", prompt.user), role
    for role in ("plan", "generate", "select"):
        assert "lower scores are better" in prompts[f"advisor.{role}"].user


@pytest.mark.parametrize(("direction", "word"), [("max", "better"), ("min", "worse")])
def test_what_came_of_earlier_changes_has_the_direction_of_the_task(
    direction: Literal["max", "min"], word: str
) -> None:
    objective = Objective(direction)
    parent, other = Candidate.of({"p": "x = 1\n"}), Candidate.of({"p": "y = 2\n"})
    brief = Brief(
        parent,
        reward=objective.reward(2.0),
        inspirations=(Exhibit(other, objective.reward(3.0), measured=Measured(4, 0, 0.25)),),
        attempts=(Attempt("doubled", objective.reward(2.5), Measured(1, 0, 0.0)),),
    )
    told = msgspec.structs.replace(DOWN, objective=objective)
    user = PromptWriter(told).brief_prompt(brief, FORMATS["rewrite"]).user
    assert f"score 2.5, {word} by 0.5: doubled" in user
    assert "Its score so far: 2." in user and "score 3.00 ± 0.25" in user
