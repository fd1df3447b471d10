"""`culmen compare score`: given candidates measured again, for a table of a paper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.evidence.account import FINAL
from culmen.evidence.evidence import Evidence
from culmen.evidence.intervals import mean_of
from culmen.evidence.verdict import FreshComparison
from culmen.extensions.bench.fresh_scores import FILE, FreshScore, fresh_scores, keep_scores
from culmen.extensions.bench.measure import (
    ScoreRequest,
    Wanted,
    make_evaluations,
    measure_candidates,
    measurement_of_run,
    measurement_of_task,
)
from culmen.extensions.bench.measure_cli import measurement_remarks, score_text
from culmen.extensions.bench.score import Scored
from culmen.run.options import folder_task
from culmen.store.evidence import evidence_before

from .conftest import Place
from .test_cli_power import noisy

UNIT = Objective(bounds=(0.0, 1.0))
SEED = {"main.py": "seed"}
SPLIT = tuple(Case(str(number), split="test") for number in range(6))


def wanted(
    folder: Path, task: Task, repeats: int, reward: Callable[[str, int, int], float | None]
) -> Wanted:
    """A measurement of the initial program and another one.

    Their scores are `reward(program, case, repeat)`.
    """
    (folder / "other.py").write_text("other")
    here = Path.cwd()
    os.chdir(folder)
    try:
        made = measurement_of_task(task, ["seed", "other.py"], ScoreRequest(repeats=repeats))
    finally:
        os.chdir(here)
    made = Wanted(made.names, made.meta, folder, made.plan, False)
    for candidate, case, again in made.plan.missing:
        number = int(case.id) if case else 0
        score = reward(candidate.parts["main.py"], number, again)
        told = (None, "error") if score is None else (score, "ok")
        of, split = (len(made.plan.cases), made.plan.split) if case else (0, "")
        keep_scores(
            folder, [FreshScore(candidate.id, split, str(number) if case else "", of, again, *told)]
        )
    return made


def as_the_final_choice(made: Wanted) -> Evidence:
    """The evidence of a run whose final choice made these evaluations."""
    evidence = Evidence(made.plan.task)
    for each in made.scores:
        status = Status.OK if each.score is not None else Status.ERROR
        candidate = next(one for one in made.plan.candidates if one.id == each.candidate)
        evidence.observe(candidate, Observation(candidate.id, status, each.score, each.case), FINAL)
    evidence.account.top = max(each.score for each in made.scores if each.score is not None)
    return evidence


@pytest.mark.parametrize("cases", [(), SPLIT], ids=["no data set", "six cases"])
@pytest.mark.parametrize("fails", [False, True])
def test_means_and_intervals_are_those_of_the_final_choice(
    tmp_path: Path, cases: tuple[Case, ...], fails: bool
):
    def reward(program: str, case: int, again: int) -> float | None:
        if fails and program == "other" and (case, again) == (0, 2):
            return None
        return 0.3 + 0.08 * case + 0.02 * (again % 3) + (0.1 + 0.01 * again) * (program == "other")

    made = wanted(tmp_path, Task("t", seeds=(SEED,), cases=cases, objective=UNIT), 4, reward)
    first, second = measure_candidates(made).rows
    evidence = as_the_final_choice(made)
    for row in (first, second):
        fresh = evidence.verdict.fresh_mean(row.id)
        assert fresh is not None and (row.score, row.margin) == pytest.approx(
            (fresh.mean, fresh.margin)
        )
        assert (row.evaluations, row.failures) == (fresh.count, fresh.failures)
    gain = evidence.verdict.estimate_gain(second.id, first.id)
    assert (second.difference, second.difference_margin) == pytest.approx(
        (gain.gain, gain.error.margin)
    )
    assert second.failures == fails and first.difference is None
    assert (first.new_margin is None) == (not cases)


def test_differences_are_paired_on_the_cases(tmp_path: Path):
    """The cases differ far more than the programs do."""
    task = Task("t", seeds=(SEED,), cases=SPLIT, objective=UNIT)
    made = wanted(
        tmp_path,
        task,
        1,
        lambda program, case, _: 0.1 * case + 0.05 * (program == "other") + 0.001 * case**2,
    )
    _, second = measure_candidates(made).rows
    assert second.difference == pytest.approx(0.05)
    assert second.new_margin is not None and second.difference_margin is not None
    assert second.difference_margin < second.new_margin / 5
    (tmp_path / FILE).write_bytes(b"\n".join((tmp_path / FILE).read_bytes().splitlines()[:-1]))
    part = measure_candidates(made)
    assert (
        not part.is_complete and part.made == 11
    )  # without its partner an evaluation is in no difference
    assert part.rows[1].difference == pytest.approx(0.05)


@pytest.mark.parametrize("values", [(1.0, 1.0), (0.0, 0.0), (1.0, 0.0)])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (None, None)])
@pytest.mark.parametrize("cases", [(), SPLIT[:1]])
def test_a_few_binary_scores_are_never_certain(
    tmp_path: Path,
    values: Sequence[float],
    bounds: tuple[float | None, float | None],
    cases: tuple[Case, ...],
):
    task = Task("t", seeds=(SEED,), cases=cases, objective=Objective(bounds=bounds))
    made = measure_candidates(wanted(tmp_path, task, 2, lambda _, __, again: values[again]))
    for row in made.rows:
        assert row.margin is None or row.margin > 0.2
        assert row.difference_margin is None or row.difference_margin > 0.2
        text = score_text(row, made)
        assert "unknown" in text or " to " in text or "±" in text
        assert "± 0" not in text.replace("± 0.", "")


def test_declared_exact_scores_are_made_once_and_called_exact(tmp_path: Path):
    task = Task("t", seeds=(SEED,), objective=UNIT, deterministic=True)
    assert measurement_of_task(task).evaluations == 1
    made = measure_candidates(wanted(tmp_path, task, 1, lambda *_: 0.25))
    assert (
        score_text(made.rows[0], made) == "0.25 (exact)" and made.rows[1].difference_margin == 0.0
    )


def test_a_program_that_never_scores_has_no_score(tmp_path: Path):
    task = Task("t", seeds=(SEED,))
    made = measure_candidates(
        wanted(tmp_path, task, 3, lambda program, *_: 1.0 if program == "seed" else None)
    )
    assert (made.rows[1].score, made.rows[1].failures, made.rows[1].difference) == (None, 3, None)
    assert score_text(made.rows[1], made) == "-"


def test_budgets_limit_the_measurement_as_a_whole(tmp_path: Path):
    task = Task("t", seeds=(SEED,), cases=SPLIT, objective=UNIT)
    made = measurement_of_task(task, (), ScoreRequest(budget=Budget(evaluations=20)))
    assert (made.plan.repeats, made.evaluations) == (3, 18)
    with pytest.raises(UserError, match="takes 6 evaluations"):
        measurement_of_task(task, (), ScoreRequest(budget=Budget(evaluations=5)))
    with pytest.raises(UserError, match="no limit of calls"):
        measurement_of_task(task, (), ScoreRequest(budget=Budget(calls=5)))
    with pytest.raises(UserError, match="there are no val cases"):
        measurement_of_task(task, (), ScoreRequest("val"))


def test_what_was_spent_before_counts_against_the_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    noisy(tmp_path)
    monkeypatch.chdir(tmp_path)
    task = folder_task("noisy", None, "")
    made = measurement_of_task(task, (), ScoreRequest(repeats=4, budget=Budget(dollars=1.0)))
    made.folder.mkdir(parents=True)
    (name,) = made.names
    keep_scores(
        made.folder, [FreshScore(name, "", "", 0, again, 1.0, dollars=0.5) for again in range(2)]
    )
    made = measurement_of_task(task, (), ScoreRequest(repeats=4, budget=Budget(dollars=1.0)))
    outcome = make_evaluations(made)
    assert (outcome.made, outcome.left) == (0, 2) and len(fresh_scores(made.folder)) == 2
    measured = measure_candidates(made)
    assert measured.dollars == measured.rows[0].dollars == 1.0 and not measured.is_complete
    assert measurement_remarks(made, measured, outcome)[0].startswith(
        "2 evaluations left (the budget is spent)"
    )


def test_an_answer_that_reports_a_missing_judge_is_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    noisy(tmp_path)
    answer = {"score": 0, "status": "judge_unavailable", "feedback": "start the judge server"}
    (tmp_path / "noisy" / "evaluator.py").write_text(f"def score(output):\n    return {answer}\n")
    monkeypatch.chdir(tmp_path)
    made = measurement_of_task(folder_task("noisy", None, ""), (), ScoreRequest(repeats=2))
    outcome = make_evaluations(made)
    measured = measure_candidates(made)
    (row,) = measured.rows
    assert row.score is None and row.excused == 2 and not row.failures
    remarks = measurement_remarks(made, measured, outcome)
    assert any("status: judge_unavailable" in each for each in remarks)
    power = Place(tmp_path).here("compare", "power", "noisy")
    assert power.code != 0 and "the initial program is refused" in power.err
    assert "start the judge server" in power.err


def test_a_task_is_scored_and_the_same_command_makes_nothing_again(tmp_path: Path):
    place = noisy(tmp_path)
    (tmp_path / "better.py").write_text(
        (tmp_path / "noisy" / "guess.py").read_text().replace("1.0", "1.5")
    )
    made = place.here(
        "compare",
        "score",
        "noisy",
        "seed",
        "better.py",
        "--repeats",
        "4",
        "--workers",
        "2",
        "--json",
    )
    assert made.code == 0, made.err
    first, second = made.document["rows"]
    assert made.document["complete"] and (first["name"], second["name"]) == ("seed", "better.py")
    assert second["difference"] == pytest.approx(0.5)  # the same random seeds
    assert second["score"] == pytest.approx(first["score"] + 0.5)
    again = place.here(
        "compare", "score", "noisy", "seed", "better.py", "--repeats", "4", "--latex"
    )
    assert "0 evaluations to be made, 8 of 8 are there" in again.err and r"\midrule" in again.out
    unknown = place.here("compare", "score", "noisy", "nope.py")
    assert unknown.code == 2 and "there is no program file 'nope.py'" in unknown.err


@pytest.mark.slow
def test_a_killed_measurement_goes_on_where_it_was(tmp_path: Path):
    noisy(tmp_path)
    command = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "compare",
        "score",
        "noisy",
        "--repeats",
        "300",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "[30/300]" in line:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    (folder,) = (tmp_path / "runs").iterdir()
    before = {(each.case, each.repeat): each.score for each in fresh_scores(folder)}
    assert 30 <= len(before) < 300
    made = Place(tmp_path).here("compare", "score", "noisy", "--repeats", "300")
    assert (
        made.code == 0
        and f"{300 - len(before)} evaluations to be made, {len(before)} of 300" in made.err
    )
    after = fresh_scores(folder)
    assert len(after) == 300 and {each.repeat for each in after} == set(range(300))
    assert before.items() <= {(each.case, each.repeat): each.score for each in after}.items()


def test_a_run_is_scored_by_default_its_best_beside_its_initial_program(
    done: Place, tmp_path: Path
):
    run = tmp_path / "first"
    run.mkdir()
    for each in (done.root / "runs" / "first").iterdir():
        if each.is_file():
            (run / each.name).write_bytes(each.read_bytes())
    made = done.here("compare", "score", str(run), "--repeats", "2", "--json")
    assert made.code == 0, made.err
    first, second = made.document["rows"]
    assert (first["name"], second["name"]) == ("seed", "best")
    assert first["margin"] == 0.0 and second["difference"] == second["score"] - first["score"] > 0
    words = done.here("compare", "score", str(run))
    assert words.code == 0 and "(exact)" in words.out and "0 evaluations to be made" in words.err
    for word, near in (("bset", "did you mean best"), ("0" * 12, "the latest are ")):
        unknown = done.here("compare", "score", str(run), word)
        assert unknown.code == 2 and f"there is no candidate '{word}'" in unknown.err
        assert near in unknown.err
    missing = done.here("compare", "score", str(run), "--split", "test")
    assert missing.code == 2 and "there are no test cases" in missing.err


def test_the_search_of_a_run_says_what_its_noise_is(tmp_path: Path):
    place = noisy(tmp_path)
    made = place.here("run", "noisy", "--budget", "evaluations=30", "--run-dir", "runs/a", "-q")
    assert made.code == 0, made.err
    run = tmp_path / "runs" / "a"
    assert place.here("compare", "score", "a", "seed", "--repeats", "3", "--json").code == 0
    measured = measurement_of_run(run, ["seed"], ScoreRequest(repeats=3))
    (row,) = measure_candidates(measured).rows
    rewards = [each.score for each in measured.scores if each.score is not None]
    with evidence_before(run, 2**62) as evidence:
        evidence.account.fresh.clear()
        seed = measured.plan.candidates[0]
        for value in rewards:
            evidence.observe(seed, Observation(seed.id, Status.OK, value), FINAL)
        chance = FreshComparison(evidence.ranking).noise_prior(seed.id, 0)
    assert chance.noise.repeats > 0 and row.margin == pytest.approx(
        mean_of({"": rewards}, 0, chance).margin
    )


def test_a_third_candidate_on_the_test_cases_is_said(tmp_path: Path):
    made = wanted(
        tmp_path, Task("t", seeds=(SEED,), cases=SPLIT, objective=UNIT), 1, lambda *_: 0.5
    )
    assert measure_candidates(made).looked == 2
    assert not any(
        "no longer fresh" in each
        for each in measurement_remarks(made, measure_candidates(made), Scored())
    )
    keep_scores(tmp_path, [FreshScore("c" * 12, "test", "0", 6, 0, 0.9)])
    (told, *_) = measurement_remarks(made, measure_candidates(made), Scored())
    assert told.startswith("3 candidates have been scored on the test cases")


def test_a_run_whose_evaluator_has_changed_is_refused(tmp_path: Path):
    place = noisy(tmp_path)
    place.here("run", "noisy", "--budget", "evaluations=4", "--run-dir", "runs/a", "-q")
    (tmp_path / "noisy" / "evaluator.py").write_text("def score(output):\n    return 2 * output\n")
    refused = place.here("compare", "score", "a")
    assert refused.code == 2 and "the evaluator has changed since this run" in refused.err
    assert not (tmp_path / "runs" / "a" / FILE).exists()
