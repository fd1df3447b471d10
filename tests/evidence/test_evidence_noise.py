"""Noise of a run, by the level and learnt near the leader, and the margins that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import stdev

import msgspec
import pytest

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective, Task
from culmen.evidence.account import FINAL, SEARCH
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import t_quantile_95
from culmen.report.sentences import result_sentence

TASK = Task("packing", seeds=({"x": "initial"},), objective=Objective(direction="min"))
INITIAL = TASK.initial_candidates()[0]


def named(text: str) -> Candidate:
    return Candidate.of({"x": text}, (INITIAL.id,))


def see(
    run: Evidence,
    candidate: Candidate,
    scores: Sequence[float],
    purpose: str = SEARCH,
    case: str = "",
) -> None:
    for score in scores:
        run.observe(candidate, Observation(candidate.id, Status.OK, score, case), purpose)


def packing(seed: int, looks: int, hopeless: int = 12) -> Evidence:
    """Wasted bins in per cent: sensible programs 8.8 (sd 3), the start 14.5 (sd 5), silly ones.

    The latter waste 160 to 390, and vary by a third.
    """
    draws, run = Random(seed), Evidence(TASK)
    see(run, INITIAL, [draws.gauss(14.5, 5.1) for _ in range(3)])
    for number in range(hopeless):
        level = draws.uniform(160.0, 390.0)
        silly = [draws.gauss(level, 0.35 * level) for _ in range(3)]
        see(run, named(f"silly {number}"), silly)
        see(
            run, named(f"sensible {number}"), [draws.gauss(8.8, 3.1) for _ in range(1 + number % 2)]
        )
    best = named("sensible 1")
    for _ in range(looks):
        see(run, best, [draws.gauss(8.8, 3.1)], FINAL)
        see(run, INITIAL, [draws.gauss(14.5, 5.1)], FINAL)
    return run


@pytest.mark.parametrize("looks", [3, 7, 16])
def test_hopeless_candidates_widen_no_interval(looks: int) -> None:
    widths, held = list[float](), 0
    for seed in range(60):
        run = packing(seed, looks)
        result = run.verdict.fresh_mean(INITIAL.id)
        assert result is not None and result.margin is not None
        values = [-fact.reward for fact in run.account.fresh[INITIAL.id] if fact.reward is not None]
        own = t_quantile_95(looks - 1) * stdev(values) / looks**0.5
        assert looks < 5 or result.margin <= 1.5 * own * (1 + 1e-9)
        widths.append(result.margin / own)
        held += abs(-result.mean - 14.5) <= result.margin
    assert sorted(widths)[30] <= 1.25 and held >= 0.9 * 60


def test_the_noise_that_is_reported_is_that_near_the_leader() -> None:
    found = [packing(seed, 7).ranking.noise_report.sd for seed in range(20)]
    assert all(1.0 < sd < 9.0 for sd in found)


def test_the_noise_of_a_result_is_that_at_the_level_of_its_fresh_scores() -> None:
    draws, run, lucky = Random(5), Evidence(TASK), named("lucky")
    see(run, INITIAL, [draws.gauss(14.5, 5.1) for _ in range(6)])
    for number in range(12):
        level = 3.0 + number
        see(run, named(f"{number}"), [draws.gauss(level, 0.35 * level) for _ in range(3)])
    see(run, lucky, [2.0, 2.4, 2.2])  # it leads the search, at a level of little noise
    for _ in range(12):
        see(run, lucky, [draws.gauss(14.0, 5.0)], FINAL)
        see(run, INITIAL, [draws.gauss(14.5, 5.1)], FINAL)
    result = run.result()
    assert result is not None and result.kept_initial
    own = stdev(fact.reward or 0.0 for fact in run.account.fresh[INITIAL.id])
    assert 0.7 * own <= result.noise.sd <= 1.4 * own


def test_exact_scores_name_the_initial_program_although_its_fresh_evaluation_was_lost() -> None:
    run, best = Evidence(TASK), named("best")
    see(run, INITIAL, [14.51234, 14.51234])
    see(run, best, [8.75123, 8.75123])
    see(run, best, [8.75123], FINAL)
    run.observe(INITIAL, Observation(INITIAL.id, Status.LOST, reason="provider_away"), FINAL)
    result = run.result()
    assert result is not None and result.noise.exact and result.initial is not None
    assert (result.initial.score, result.initial.margin) == (14.51234, 0.0)
    assert result.gain == pytest.approx(-5.76111) and result.gain_margin == 0.0
    assert "initial 14.5123 → best 8.75123" in result_sentence(result)


@pytest.mark.parametrize("optimum", [1e-3, 1e-6, 1e-9])
def test_lucky_repeats_beside_the_optimum_are_not_the_noise(optimum: float) -> None:
    """Random searches that often end within `optimum` of the lowest value, elsewhere otherwise."""
    for seed in range(20):
        draws, run = Random(seed), Evidence(TASK)
        see(run, INITIAL, [draws.gauss(-0.97, 0.2) for _ in range(5)])
        for number in range(20):
            found = [draws.random() < 0.75 for _ in range(2 + number % 2)]
            scores = [optimum * draws.random() - 1.36 if hit else -0.95 for hit in found]
            see(run, named(str(number)), scores)
        assert 0.05 < run.ranking.noise_report.sd < 0.4


def test_the_margin_of_an_estimate_is_bounded_by_the_noise_near_it() -> None:
    """The live line, while a search is under way, without any fresh evaluation."""
    for seed in range(20):
        score = packing(seed, 0).verdict.score_of(INITIAL.id)
        assert score is not None and score.margin is not None and score.margin < 20.0


@pytest.mark.parametrize("fresh", [0, 1, 2])
def test_without_a_repeat_that_differed_no_margin_is_invented(fresh: int) -> None:
    """A run stopped early, of a task that is declared noisy and has exact scores."""
    task = msgspec.structs.replace(TASK, deterministic=False, objective=Objective())
    run = Evidence(task)
    see(run, INITIAL, [-16.0, -16.0])
    for number, score in enumerate((-12.0, -325303594.0, -10.0, -325303588.0, -14.0)):
        see(run, named(str(number)), [score])
    see(run, named("2"), [-10.0] * fresh, FINAL)
    see(run, INITIAL, [-16.0] * fresh, FINAL)
    result = run.result()
    assert result is not None and result.initial is not None and result.noise.sd == 0.0
    assert not result.margin and not result.initial.margin and not result.gain_margin
    assert " to " not in result_sentence(result)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_pass_or_fail_is_told_in_words_and_never_exact(value: float) -> None:
    run = Evidence(msgspec.structs.replace(TASK, objective=Objective(bounds=(0.0, 1.0))))
    see(run, INITIAL, [1.0 - value] * 2)
    see(run, named("a"), [value] * 2)
    for candidate, score in ((named("a"), value), (INITIAL, 1.0 - value)):
        see(run, candidate, [score] * 4, FINAL)
    result = run.result()
    assert result is not None and result.noise.exact is None and result.margin is None
    assert (result.se, result.gain_margin) == (None, None)
    words = result_sentence(result)
    assert "exact" not in words and "±" not in words
    if value:
        assert "equal in 8 of 8 repeats, so up to 31 % of repeats may differ" in words


def test_on_a_data_set_with_fixed_answers_these_cases_have_no_margin_and_new_ones_have() -> None:
    cases = tuple(Case(f"t{n}", n, split="test") for n in range(14))
    task = msgspec.structs.replace(
        TASK, objective=Objective(bounds=(0.0, 1.0)), cases=(*cases, Case("train", 0))
    )
    run, margins = Evidence(task), set[float | None]()
    see(run, INITIAL, [0.0] * 6, case="train")
    see(run, named("a"), [1.0] * 6, case="train")
    for candidate, passed in ((INITIAL, 3), (named("a"), 9)):
        for place, case in enumerate(cases):
            see(run, candidate, [float(place < passed)], FINAL, case.id)
        mean = run.verdict.fresh_mean(candidate.id)
        assert mean is not None and mean.new_margin is not None and mean.new_margin > 0.2
        margins.add(mean.margin)
    assert margins == {None}
