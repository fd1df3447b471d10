"""Arms of the comparison: a trained advisor, a frontier model as advisor, and end to end."""

from __future__ import annotations

import pytest

from culmen.core.errors import UserError
from culmen.core.event import Custom
from culmen.core.usage import Budget, Usage
from culmen.extensions.train.arms import EndToEnd, FrontierAdvisor, TrainedAdvisor
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.models.prompts.writer import PromptWriter
from culmen.strategies import catalog
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Landscape, landscape_program, task
from culmen.testing.virtual import simulate

from .test_train_schedule import notes, plus


class Watched(Landscape):
    """Keeps the training's requests; a policy asked for a program writes one, or `text`."""

    def __init__(self, text=None, **settings):
        super().__init__(**settings)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "asked", [])

    def train(self, request):
        self.asked.append(request)
        result, payload = super().train(request), request.payload
        if payload.get("step") != "implement":
            return result
        level = request.seed % 1000 / 1000
        program = landscape_program(level, request.seed)["program"]
        text = f"```\n{program}```" if self.text is None else self.text
        return Custom({"sample": {**result.data["sample"], "text": text}, "text": text}, Usage())

    def of(self, kind):
        return [request.payload for request in self.asked if request.kind == kind]

    def steps(self):
        return {payload["step"] for payload in self.of("train.sample")}


def kinds(run):
    return {e.entry.effect for e in run.journal.read() if e.entry.kind == "done"}


def searched(world, **settings):
    strategy = plus(**settings)
    return simulate(strategy, task(), world, Budget(evaluations=41), trial=False)


def test_a_frontier_advisor_is_the_runs_model_and_nothing_is_trained():
    world = Watched()
    run = searched(world, arm=FrontierAdvisor())
    assert not world.asked and {"write", "propose"} <= kinds(run)
    barriers = notes(run, "barrier")
    assert len(barriers) >= 8 and {b["skip"] for b in barriers} == {"not_training"}


def test_a_trained_advisor_leaves_programs_to_the_runs_model():
    world = Watched()
    run = searched(world, policy="model")
    assert world.steps() == {"generate", "classify", "select"}
    assert "propose" in kinds(run) and TrainedAdvisor() == PacevolvePlusPlus().arm


def test_end_to_end_the_policy_writes_and_its_programs_share_the_advantage():
    world = Watched()
    run = searched(world, arm=EndToEnd(), policy="model")
    assert world.steps() == {"generate", "classify", "select", "implement"}
    assert "propose" not in kinds(run)
    assert any(note["better"] for note in notes(run, "experiment"))
    for update, barrier in zip(world.of("train.update"), notes(run, "barrier"), strict=False):
        written = [one for one in update["batch"] if "mu=" in one["sample"]["text"]]
        wanted = [round(a, 10) for a in barrier["advantages"]]
        assert len(written) >= 4 and {one["advantage"] for one in written} == set(wanted)


def test_a_policy_that_never_writes_a_program_ends_the_search():
    """Nothing is evaluated and nothing learnt, so that no budget of evaluations would end it."""
    run = searched(Watched(text="I would rather not."), arm=EndToEnd(), policy="model")
    barriers = notes(run, "barrier")
    assert len(barriers) == 20 and notes(run, "advisor_unreadable") and run.search.is_done
    assert all(note["failures"] == {"no_candidate": 4} for note in barriers)
    assert all(note["rewards"] == [-1.0] * 4 for note in barriers)


def test_relaxed_barriers_keep_the_programs_of_later_groups_for_their_update():
    world = Watched()
    searched(world, arm=EndToEnd(), policy="model", staleness=1)
    sizes = [
        sum("mu=" in one["sample"]["text"] for one in update["batch"])
        for update in world.of("train.update")
    ]
    assert len(sizes) > 3 and min(sizes) >= 4


def test_a_program_is_asked_for_with_what_the_parent_showed():
    world = Watched()
    searched(world, arm=EndToEnd(), policy="model")
    slots = next(p for p in world.of("train.sample") if p["step"] == "implement")["slots"]
    prompt = PromptWriter(task()).text_prompt("advisor.implement", slots)
    assert prompt.system.startswith("You write programs")
    for words in (slots["experiment"], "mu=0.0", "score 0.000", "program"):
        assert words in prompt.user


def test_the_tiny_policy_writes_no_programs():
    with pytest.raises(UserError, match="writes no programs"):
        plus(arm=EndToEnd())
    made = catalog.make_strategy("pacevolve_plus_plus", {"arm": "end_to_end", "policy": "model"})
    assert made.arm == EndToEnd() and made.scaffold == PacevolvePlusPlus().scaffold
    assert isinstance(made.scaffold, Pacevolve)
