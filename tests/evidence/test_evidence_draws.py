"""Scores that draw random numbers are never exact; those on one draw are not called so."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.result import NoiseReport, RunResult
from culmen.core.task import MetricGoal, Objective, Task
from culmen.evidence.account import CHOICE, FINAL
from culmen.evidence.evidence import Evidence
from culmen.report.sentences import noise_sentence, result_sentence

FREE = Task("hill", seeds=({"x": "0"},))
DECLARED = msgspec.structs.replace(FREE, deterministic=True)
ONE_DRAW = msgspec.structs.replace(FREE, same_draws=True)
DREW = ("evaluator.rng",)
INITIAL = FREE.initial_candidates()[0]
OTHERS = tuple(Candidate.of({"x": str(number)}, (INITIAL.id,)) for number in range(1, 7))


def run_of(
    task: Task,
    drew: Sequence[str] = DREW,
    repeats: int = 3,
    final: int = 3,
    case: str = "",
) -> Evidence:
    """A run whose repeats agree, of a winner that is better by 6, both confirmed."""
    run = Evidence(task)

    def enter(candidate: Candidate, times: int, purpose: str) -> None:
        score = float(candidate.text)
        metrics = {"speed": score, "size": 2 * score}
        for _ in range(times):
            seen = Observation(
                candidate.id, Status.OK, score, case, drew=tuple(drew), metrics=metrics
            )
            run.observe(candidate, seen, purpose)

    for each in (INITIAL, *OTHERS):
        enter(each, repeats, "")
    for each in (OTHERS[-1], INITIAL):
        enter(each, final, FINAL)
    return run


def result_of(run: Evidence) -> RunResult:
    found = run.result()
    assert found is not None
    return found


@pytest.mark.parametrize("task", [FREE, DECLARED], ids=["free", "declared"])
def test_equal_repeats_of_scores_that_draw_prove_nothing(task: Task) -> None:
    exact, drawing = run_of(task, drew=()), run_of(task)
    assert exact.account.is_exact is True and result_of(exact).noise.exact is True
    assert result_of(exact).gain_margin == 0.0 and result_of(exact).margin == 0.0
    assert drawing.account.is_exact is False
    found = result_of(drawing)
    assert found.noise.exact is False and found.noise.draws
    assert found.gain == 6.0 and found.margin != 0.0 and found.gain_margin != 0.0
    for text in (result_sentence(found), noise_sentence(found.noise)):
        assert "exact" not in text.replace("not exact", ""), text


def test_one_score_that_drew_is_enough_wherever_it_was_made() -> None:
    for purpose in ("", CHOICE, FINAL):
        run = run_of(FREE, drew=())
        run.observe(INITIAL, Observation(INITIAL.id, Status.OK, 0.0, drew=DREW), purpose)
        assert run.account.is_exact is False and result_of(run).noise.exact is False, purpose
    run = run_of(FREE, drew=())
    run.observe(INITIAL, Observation(INITIAL.id, Status.ERROR, drew=DREW))
    assert not run.account.repeated.has_drawn  # it has no score


def test_noise_is_taken_into_account_from_the_first_evaluation_on() -> None:
    run = Evidence(FREE)
    model = run.model
    assert model.is_exact
    run.observe(INITIAL, Observation(INITIAL.id, Status.OK, 1.0, drew=DREW))
    assert run.account.is_exact is False and not model.is_exact and not model.is_noiseless
    late = Evidence(FREE)  # a model that is made later knows it from the same evaluation on
    late.observe(INITIAL, Observation(INITIAL.id, Status.OK, 1.0, drew=DREW))
    assert not late.model.is_exact


def test_a_certain_score_of_the_search_is_none_that_draws() -> None:
    for drew, error in (((), 0.0), (DREW, None)):
        run = run_of(DECLARED, drew, repeats=1, final=0)
        score = run.verdict.score_of(OTHERS[-1].id)
        assert score is not None and (score.se, score.margin, score.score) == (error, error, 6.0)
        assert run.account.is_settled  # another evaluation would be the same one


@pytest.mark.parametrize("drew", [(), DREW], ids=["quiet", "drawing"])
def test_scores_on_one_draw_have_no_margin_and_are_told_as_such(drew: Sequence[str]) -> None:
    run = run_of(ONE_DRAW, drew, repeats=1, final=3)
    found = result_of(run)
    assert run.account.is_exact is (False if drew else None) and run.account.is_settled
    assert found.noise.one_draw and not found.noise.exact and found.noise.draws is bool(drew)
    assert (found.gain, found.gain_margin, found.se, found.margin) == (6.0, None, None, None)
    assert not found.kept_initial and found.id == OTHERS[-1].id
    words = "on one draw" if drew else "with one random seed"
    assert f"; {words}; how it does on others was not measured" in result_sentence(found)
    sentence = noise_sentence(found.noise)
    assert "one random seed" in sentence and "exact" not in sentence
    assert ("none drew random numbers" in sentence) is not bool(drew)


def test_one_draw_of_a_task_declared_deterministic_that_draws_nothing_is_exact() -> None:
    task = msgspec.structs.replace(ONE_DRAW, deterministic=True)
    assert result_of(run_of(task, (), repeats=1)).noise == NoiseReport(True, repeats=4)
    drawing = result_of(run_of(task, repeats=1))
    assert drawing.noise.one_draw and drawing.noise.exact is False and drawing.gain_margin is None


def test_a_declared_task_that_draws_is_compared_on_one_draw() -> None:
    found = result_of(run_of(DECLARED, repeats=1, final=1))
    assert found.noise.one_draw and found.noise.draws and found.gain_margin is None
    assert "on one draw" in noise_sentence(found.noise)


def test_repeats_that_differ_on_one_draw_are_told_as_noise() -> None:
    run = run_of(ONE_DRAW, repeats=1)
    run.observe(INITIAL, Observation(INITIAL.id, Status.OK, 0.5, drew=DREW), FINAL)
    assert not result_of(run).noise.one_draw and result_of(run).noise.sd > 0


def test_a_whole_split_on_one_draw_is_compared_without_a_margin() -> None:
    task = msgspec.structs.replace(ONE_DRAW, cases=(Case("only"),))
    found = result_of(run_of(task, repeats=1, final=1, case="only"))
    assert (found.gain, found.gain_margin, found.margin) == (6.0, None, None)
    assert found.id == OTHERS[-1].id


@pytest.mark.parametrize("task", [FREE, DECLARED, ONE_DRAW], ids=["free", "declared", "one"])
def test_no_member_of_a_front_has_a_margin_of_nothing(task: Task) -> None:
    goals = Objective(metrics=(MetricGoal("speed"), MetricGoal("size")))
    several = msgspec.structs.replace(task, objective=goals)
    front = result_of(run_of(several, final=3)).front
    assert front and all(margin for point in front for margin in point.margins.values())
