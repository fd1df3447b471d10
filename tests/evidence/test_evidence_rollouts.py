"""Rollouts pass or fail by chance: never exact, never without an interval."""

from __future__ import annotations

import pytest

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective, Task
from culmen.engine.record import PromptHistory
from culmen.evidence.account import FINAL
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import pass_margin
from culmen.models.prompts.writer import score_text
from culmen.report.sentences import best_score_text, noise_sentence, reported_score_text

CASES = tuple(Case(f"c{number}", split="train") for number in range(6))
TASK = Task("skill", seeds=({"x": "0"},), cases=CASES, objective=Objective(bounds=(0.0, 1.0)))
FIRST = TASK.initial_candidates()[0]
OTHER = Candidate.of({"x": "1"}, (FIRST.id,))


def rollout(candidate: Candidate, case: str, reward: float) -> Observation:
    return Observation(candidate.id, Status.OK, reward, case, drew=("agent",))


def run_of(*rewards: float, final: int, repeated: bool = False) -> Evidence:
    """A run with these rewards of the initial candidate, and `final` fresh ones of 0."""
    run = Evidence(TASK)
    for number, reward in enumerate(rewards):
        case = "c0" if repeated else f"c{number}"
        run.observe(FIRST, rollout(FIRST, case, reward), "")
        run.observe(OTHER, rollout(OTHER, case, reward), "")
    for number in range(final):
        run.observe(FIRST, rollout(FIRST, f"c{number}", 0.0), FINAL)
    return run


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("count", [2, 3, 12])
def test_equal_rollouts_are_never_exact(count: int, repeated: bool) -> None:
    rewards = [0.0] * (count if repeated else min(count, 6))
    run = run_of(*rewards, final=2, repeated=repeated)
    report = run.ranking.noise_report
    assert report.exact is not True and "Scores are exact" not in noise_sentence(report)


def test_a_single_rollout_has_an_interval() -> None:
    result = run_of(0.0, 0.0, final=1).result()
    assert result is not None and result.count == 1
    assert result.margin == pytest.approx(0.79, abs=0.01)
    assert reported_score_text(result) == "0.00 (0 to 0.79)"


@pytest.mark.parametrize(("count", "low"), [(1, "0.21"), (2, "0.34"), (4, "0.51")])
def test_the_search_shows_the_interval_of_so_many_trials(count: int, low: str) -> None:
    """Also of a first program that always passed, whose gain no scale bounds yet."""
    run = Evidence(TASK)
    for number in range(count):
        run.observe(FIRST, rollout(FIRST, f"c{number}", 1.0), "")
    assert best_score_text(run.result()) == f"best 1.00 ({low} to 1)"


@pytest.mark.parametrize("passed, least", [(0, 0.43), (5, 0.43), (2, 0.3)])
def test_a_prompt_gives_the_interval_of_so_many_trials(passed: int, least: float) -> None:
    """Whatever a strategy's model has learnt of others: five trials are five trials."""
    rewards = [1.0] * passed + [0.0] * (5 - passed)
    run = run_of(*rewards, final=0)
    history = PromptHistory(TASK, run.account)
    brief = history.complete_brief(Brief(FIRST, reward=passed / 5))
    margin = brief.measured.margin
    assert margin is not None and margin >= least
    told = score_text(brief.reward, brief.measured, TASK.objective)
    assert told == f"{passed / 5:.2f} ± {margin:.2f} (5 evaluations)"


def test_the_margin_reaches_the_farther_end_of_wilsons_interval() -> None:
    assert pass_margin(0.0, 5, 0.0, 1.0) == pytest.approx(0.4345, abs=1e-4)
    assert pass_margin(0.5, 4, 0.0, 1.0) == pytest.approx(0.35, abs=0.01)
    assert pass_margin(4.0, 5, 2.0, 4.0) == pytest.approx(2 * 0.4345, abs=1e-3)
    assert pass_margin(1.0, 5, float("-inf"), 1.0) == 0.0
