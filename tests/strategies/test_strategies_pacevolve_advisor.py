"""The advisor's requests one by one: repeats, accepted replies, and rules in their place."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from random import Random

import msgspec
import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.extensions.train.plus_plus import PacevolvePlusPlus
from culmen.extensions.train.policy import TRAINED
from culmen.strategies.pacevolve.advisor import (
    Advising,
    AdvisorReply,
    Planning,
    Upkeep,
    from_menu,
    read_hypotheses,
)
from culmen.strategies.pacevolve.implementing import Implementing
from culmen.strategies.pacevolve.memory import FailureMemory, IdeaRepository
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.testing.landscape import Faults, Landscape, landscape_program, task
from culmen.testing.virtual import simulate

from .test_strategies_pacevolve_scaffold import Heard, notes, one_idea, paper


def tried(*tries):
    """Ideas 1, 2, ... with these numbers of experiments under them."""
    ideas = IdeaRepository()
    for number, count in enumerate(tries, 1):
        ideas = ideas.with_idea(f"idea {number}")
        for n in range(count):
            ideas = ideas.with_result(number, f"score {n}")
    return ideas


class Answers:
    """A voice with one answer for each step."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    async def answer_step(self, lab, step, **slots):
        self.asked.append(slots)
        return AdvisorReply(json.dumps(self.answers[step]))


def tidied(upkeep, ideas, number=0, voice=None, planned=()):
    failures = FailureMemory(9)
    after, dropped = asyncio.run(upkeep.tidy_ideas(None, voice, ideas, number, failures, planned))
    return after, dropped, [(f.idea, f.kind, f.reason) for f in failures.latest_failures(9)]


def test_ideas_never_tried_are_given_up_first_then_those_tried_most():
    after, dropped, failures = tidied(Upkeep(cap=1), tried(2, 1, 0, 3, 2, 1))
    assert dropped == [3, 4, 1, 5, 2] and [idea.number for idea in after.ideas] == [6]
    assert failures == [
        ("idea 2", "pruned", "after 1 experiments"),
        ("idea 5", "pruned", "after 2 experiments"),
        ("idea 1", "pruned", "after 2 experiments"),
        ("idea 4", "pruned", "after 3 experiments"),
    ]  # nothing failed under the third
    assert tidied(Upkeep(cap=1), tried(2, 1, 0, 3, 2, 1), planned={3, 4})[1] == [1, 5, 2, 6]


def test_ideas_that_the_advisor_names_are_given_up_before_all_others():
    ideas, voice = (
        tried(2, 1, 0, 3, 2, 1),
        Answers(prune={"drop": ["#6", 9, None, "none", True, 2, 6]}),
    )
    assert tidied(Upkeep(cap=3, tries=1), ideas, voice=voice)[1] == [6, 2, 3]
    assert [(slots["count"], len(slots["ideas"])) for slots in voice.asked] == [(3, 6)]
    assert (
        tidied(Upkeep(cap=6, tries=1), ideas, voice=voice)[1] == [] and len(voice.asked) == 1
    )  # none is too many


def test_a_history_is_condensed_by_the_advisor_else_to_its_latest_result():
    condense = Upkeep(condense=2, tries=1)
    assert tidied(Upkeep(condense=2), tried(1), 1)[0].find_idea(1).results == ("score 0",)
    shorter = tidied(Upkeep(condense=2), tried(2), 1)[0]
    assert shorter.find_idea(1).results == ("2 experiments; the latest: score 1",)
    assert tidied(Upkeep(condense=2), shorter, 1)[0] == shorter  # once
    said = tidied(
        condense, tried(2), 1, Answers(condense={"description": "steps", "result": "both failed"})
    )[0].find_idea(1)
    assert (said.description, said.results, said.tries) == ("steps", ("both failed",), 2)
    said = tidied(condense, tried(2), 1, Answers(condense={"result": "both failed"}))[0].find_idea(
        1
    )
    assert (said.description, said.results) == ("idea 1", ("both failed",))
    assert tidied(condense, tried(2), 1, Answers(condense={"results": 3}))[0] == shorter


@pytest.mark.parametrize("lesson", ["a lesson", " "])
def test_a_result_ends_with_what_was_learnt_else_with_what_was_tried(lesson):
    world = Heard(
        lambda step, slots: {"lesson": lesson} if step == "result" else one_idea(step, slots)
    )
    run = simulate(paper(islands=1), task(), world, Budget(evaluations=8))
    made = [note["experiment"] for note in notes(run, "experiment")]
    shown = world.slots("generate")[len(made) - 1]["ideas"][0]["results"]
    assert len(shown) > 3
    assert [line.partition(": ")[2] for line in shown] == (
        [lesson] * len(shown) if lesson.strip() else made[:-1]
    )


@pytest.mark.parametrize(
    "choice", [{"idea": 99, "experiment": "x"}, {"idea": 1}, {"experiment": "x"}]
)
def test_a_choice_of_nothing_that_was_offered_is_asked_again_then_the_decision_fails(choice):
    world = Heard(lambda step, slots: choice if step == "select" else None)
    run = simulate(paper(islands=1), task(), world, Budget(evaluations=20, calls=40), trial=False)
    made = notes(run, "experiment")
    assert made and all(
        (note["outcome"], note["idea"]) == ("failed (advisor_format)", 0) for note in made
    )
    assert [bool(slots["reminder"]) for slots in world.slots("select")][:6] == [
        False,
        True,
        True,
    ] * 2


def test_a_decision_that_cannot_be_read_is_under_no_idea():
    run = simulate(
        paper(islands=1),
        task(),
        Landscape(faults=Faults(silent=1.0)),
        Budget(evaluations=20, calls=20),
    )
    assert {note["idea"] for note in notes(run, "experiment")} == {0}


def test_a_repeat_is_told_to_the_advisor_as_a_failure_of_its_idea():
    says = {"generate": {"hypotheses": ["one"]}, "select": {"idea": 1, "experiment": "the same"}}
    world = Heard(lambda step, slots: says.get(step), faults=Faults(error=1.0))
    run = simulate(paper(islands=1), task(), world, Budget(evaluations=20, calls=60), trial=False)
    told = world.slots("generate")[-1]["failures"]
    assert {
        "idea": "one",
        "experiment": "the same",
        "why": "repeat: chosen again after it had failed",
    } in told
    assert not any(slots["reminder"] for slots in world.slots("select"))  # it could be read
    assert [note["idea"] for note in notes(run, "experiment")][:3] == [1, 0, 0]


def test_a_plan_that_cannot_be_read_is_asked_again_with_a_reminder_one_that_repeats_without():
    empty = Heard(lambda step, slots: {"experiments": [{"idea": 1}]} if step == "plan" else None)
    simulate(Pacevolve(islands=1), task(), empty, Budget(evaluations=20, calls=30), trial=False)
    assert [bool(slots["reminder"]) for slots in empty.slots("plan")][:6] == [False, True, True] * 2
    plan = {"experiments": [{"idea": None, "experiment": "the same"}]}
    repeats = Heard(lambda step, slots: plan if step == "plan" else None, faults=Faults(error=1.0))
    simulate(Pacevolve(islands=1), task(), repeats, Budget(evaluations=20, calls=30), trial=False)
    assert len(repeats.slots("plan")) > 6 and not any(
        slots["reminder"] for slots in repeats.slots("plan")
    )


def test_a_plan_gives_up_the_ideas_that_it_names_unless_it_goes_on_with_them():
    first = [
        {"idea": None, "description": f"idea {n}", "experiment": f"try {n}"} for n in (1, 2, 3)
    ]
    then = [{"idea": 1, "experiment": "x"}, {"idea": True, "experiment": "y"}]  # true is no number
    plans = {0: {"experiments": first}, 3: {"experiments": then, "drop": [1, "2", None]}}
    world = Heard(lambda step, slots: plans.get(len(slots["ideas"])) if step == "plan" else None)
    run = simulate(Pacevolve(islands=1), task(), world, Budget(evaluations=9))
    shown = [
        (idea["number"], idea["description"], idea["tried"])
        for idea in world.slots("plan")[2]["ideas"]
    ]
    assert shown == [(1, "idea 1", 2), (3, "idea 3", 1), (4, "y", 1)]
    assert [note["idea"] for note in notes(run, "experiment")][:5] == [1, 2, 3, 1, 4]


@pytest.mark.parametrize(("direction", "words"), [("max", "higher"), ("min", "lower")])
def test_the_advisor_is_told_which_scores_are_better(direction, words):
    world, made = (
        Heard(),
        msgspec.structs.replace(task(seeds=(0.25,)), objective=Objective(direction=direction)),
    )
    simulate(paper(islands=1), made, world, Budget(evaluations=6))
    first = world.slots("generate")[0]
    assert (first["direction"], first["score"]) == (f"{words} scores are better", 0.25)


def test_hypotheses_are_kept_to_three_sentences():
    found = read_hypotheses('{"hypotheses": ["One. Two! Three? Four."]}')
    assert found == ["One. Two! Three?"]


def test_the_menu_knows_an_idea_by_its_words():
    known = [{"number": 4, "description": "wider"}, {"number": 7, "description": "finer"}]
    said = [
        json.loads(from_menu("classify", {"ideas": known, "hypothesis": h}, Random(0)))
        for h in ("finer", "new")
    ]
    assert said == [{"exists": True, "idea": 7}, {"exists": False, "idea": None}]


def test_what_the_advisor_costs_is_told():
    assert (
        Pacevolve(advising=Advising(hypotheses=4)).asides
        == "an advisor's decision for every experiment, 6 calls"
    )
    assert Pacevolve(upkeep=Upkeep(tries=1)).asides == (
        "an advisor's plan for every 8 experiments, one call, and for each result and each idea given up"
    )


@pytest.mark.parametrize("role", TRAINED)
def test_every_reply_of_a_step_that_is_trained_is_in_the_update_of_its_version(role):
    class Watched(Landscape):
        def train(self, request):
            result, version = super().train(request), request.payload.get("version")
            if request.kind == "train.update":
                trained[version] = sorted(one["sample"]["text"] for one in request.payload["batch"])
            elif request.payload.get("step") == role:
                drawn[version].append(result.data["text"])
            return result

    drawn, trained = defaultdict(list), {}
    rules = PacevolvePlusPlus(
        scaffold=Pacevolve(islands=3), policy="model", roles=(role,), worst=0.0, best=1.0
    )
    run = simulate(rules, task(), Watched(), Budget(evaluations=24), seed=1)
    assert len(trained) >= 3 and not any(note["skip"] for note in notes(run, "barrier"))
    assert trained == {version: sorted(drawn[version]) for version in trained}


# The implementer.


class Coder(Heard):
    """Writes programs with these numbers in turn, then nothing; those with a negative one fail."""

    def __init__(self, *numbers, feedback="no"):
        super().__init__()
        object.__setattr__(self, "numbers", list(numbers))
        object.__setattr__(self, "feedback", feedback)

    def propose(self, brief, rng):
        number = self.numbers.pop(0) if self.numbers else None
        return (
            Proposal(fault="empty")
            if number is None
            else Proposal((Candidate.of(landscape_program(number)),))
        )

    def observe(self, candidate, seed, rng):
        seen = super().observe(candidate, seed, rng)
        bad = Observation(candidate.id, Status.ERROR, seed=seed, feedback=self.feedback)
        return seen if seen.score >= 0 else bad


def written(*numbers, evaluations, feedback="no", **settings):
    """The outcomes of experiments, and the failures that the advisor was shown."""
    world = Coder(*numbers, feedback=feedback)
    rules = Pacevolve(
        islands=1, advising=Planning(experiments=1), implementing=Implementing(**settings)
    )
    run = simulate(rules, task(), world, Budget(evaluations=evaluations, calls=20, final=0.0))
    told = {failure["why"] for slots in world.slots("plan") for failure in slots["failures"]}
    return [note["outcome"] for note in notes(run, "experiment")], told


def test_code_that_was_repaired_is_not_evaluated_again():
    outcomes, _ = written(-1.0, 0.5, -1.0, 0.75, evaluations=4)
    assert outcomes[:2] == ["score 0.5 (better than 0)", "score 0.75 (better than 0.5)"]


@pytest.mark.parametrize(
    ("numbers", "why"),
    [((0.0, 0.0), "unchanged"), ((None, None), "empty"), ((-1.0, -1.0, -1.0), "failed before")],
)
def test_why_there_is_no_candidate_is_told(numbers, why):
    _, told = written(*numbers, 0.5, 0.6, evaluations=6, attempts=2, repairs=0)
    assert f"no_candidate: {why}" in told


def test_a_failure_is_told_by_the_last_line_of_its_feedback_cut_at_200_characters():
    _, told = written(
        -1.0, 0.5, 0.6, evaluations=4, feedback="Traceback\n" + "e" * 300 + "\n\n", repairs=0
    )
    assert f"error: {'e' * 200}" in told
