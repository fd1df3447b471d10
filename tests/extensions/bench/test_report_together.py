"""Results of runs, scored together on the same whole split: `culmen compare --score`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case
from culmen.core.event import Entry
from culmen.core.task import Task
from culmen.extensions.bench.fresh_scores import FILE, FreshScore, fresh_scores
from culmen.extensions.bench.records import read_compared
from culmen.extensions.bench.score import score_plan
from culmen.run.study import Study
from culmen.store import views
from culmen.store.journal import SqlJournal
from tests.cli.conftest import Place

CASES = 8
TOML = """\
name = "signs"
goal = "Say what is wanted."
cases = "cases.jsonl"

[seed]
files = ["guess.py"]

[evaluator]
file = "evaluator.py"
form = "call"
entry = "run"
packages = []

[objective]
direction = "max"
bounds = [0.0, 1.0]
"""
SEED = "def run(number):\n    return number < 4\n"
WORSE = "def run(number):\n    return number < 3\n"
BROKEN = "def run(number):\n    return 1 // (number - 5) and number < 4\n"
EVALUATOR = "def score(output, *, case):\n    return {'score': float(output == case.info)}\n"


def make_task(place: Place) -> Path:
    """A case is right where the program claims that it has one of the first six numbers."""
    folder = place.task("signs", SEED, EVALUATOR, TOML)
    rows = [{"id": str(n), "input": n, "info": n < 6, "split": "test"} for n in range(CASES)]
    rows += [{"id": "t", "input": 0, "info": True, "split": "train"}]
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def finished(place: Place, name: str, program: str, seed: int, score: float) -> Path:
    """A run that ended with this program.

    It was measured on three of the cases that happened to give it this score.
    """
    path = place.root / "runs" / name
    study = Study.create(
        str(place.root / "signs"), "best_of_n", run_dir=path, random_seed=seed, budget=10
    )
    candidate = Candidate.of({"guess.py": program})
    winner = {
        "id": candidate.id,
        "score": score,
        "count": 3,
        "confirmed": True,
        "split": "test",
        "cases": 3,
    }
    winner |= {"of": CASES, "margin": 0.6, "verified": True}
    with SqlJournal.open(study.path, write=True) as journal:
        journal.append([Entry("done", 1, "m", "propose", result=Proposal((candidate,)))])
        journal.append(
            [Entry("state", body={"state": "finished", "reason": "budget", "winner": winner})]
        )
        journal.set_meta(strategy={"path": f"x:{name[0].upper()}", "config": {}})
    return path


def counted(text: str) -> int:
    return int(re.findall(r"(\d+) evaluations? to be made", text)[0])


@pytest.mark.jail
def test_programs_are_scored_once_on_all_cases_and_kept(tmp_path: Path):
    place = Place(tmp_path)
    make_task(place)
    for seed in range(2):
        finished(place, f"a{seed}", SEED, seed, 1.0)
        finished(place, f"b{seed}", WORSE, seed, 0.3)
    before = place.here("compare", "runs")
    assert "3 of 8" in before.out and "next  culmen compare runs --score" in before.out
    made = place.here("compare", "runs", "--score", "--repeats", "1")
    assert made.code == 0, made.err
    assert counted(made.err) == 2 * CASES  # two programs; the initial one is one of them
    assert (
        "signs, maximise, scores on all 8 test cases, once" in made.out
        and "--score" not in made.out
    )
    after = place.here("compare", "runs", "--json").document["tasks"][
        0
    ]  # kept: nothing is asked for again
    assert not after["unequal"] and {run["on"] for run in after["runs"]} == {"8 of 8"}
    assert {run["strategy"]: run["value"] for run in after["runs"]} == {"A": 6 / 8, "B": 5 / 8}
    assert {row["strategy"]: row["nothing"] for row in after["rows"]} == {"A": 2, "B": 0}
    assert counted(place.here("compare", "runs", "--score", "--repeats", "1").err) == 0


@pytest.mark.jail
def test_what_is_missing_is_evaluated_and_what_a_budget_does_not_hold_refused(tmp_path: Path):
    place = Place(tmp_path)
    make_task(place)
    first, second = finished(place, "a0", SEED, 0, 1.0), finished(place, "b0", BROKEN, 0, 1.0)
    few = place.here("compare", "runs", "--score", "--score-budget", "evaluations=15", "--json")
    assert few.code == 2 and "takes 16 evaluations" in few.document["error"]["what"]
    assert not (first / FILE).exists()
    enough = place.here(
        "compare", "runs", "--score", "--score-budget", "evaluations=20"
    )  # twice would take 32
    assert enough.code == 0 and counted(enough.err) == 16
    lines = (second / FILE).read_text().splitlines()
    (second / FILE).write_text(
        "\n".join(line for line in lines if '"case":"5"' not in line) + '\n{"candidate": "cut'
    )
    (first / FILE).unlink()
    again = place.here("compare", "runs", "--score", "--repeats", "1")
    assert counted(again.err) == 2  # both programs on one case; the rest is known of the other run
    broken = next(each for each in fresh_scores(second) if each.status != "ok")
    assert (broken.case, broken.score) == ("5", None)
    third = finished(place, "c0", WORSE, 0, 1.0)
    assert counted(place.here("compare", "runs", "--score", "--repeats", "1").err) == CASES
    assert {each.candidate for each in fresh_scores(third)} == {
        views.best_result(path).id for path in (first, third)
    }  # pyright: ignore
    assert {each.split for each in read_compared(third).fresh} == {"test"}


def test_a_plan_evaluates_side_by_side_and_says_what_cannot_be():
    cases = tuple(Case(str(n), split="val") for n in range(5))
    task = Task("t", cases=cases)
    programs = [Candidate.of({"p": text}) for text in "aba"]
    plan = score_plan(task, programs)
    assert (plan.split, plan.repeats, len(plan.candidates)) == (
        "val",
        3,
        2,
    )  # until a mean rests on twelve
    assert [
        (each.parts["p"], case and case.id, again) for each, case, again in plan.missing[:4]
    ] == [
        ("a", "0", 0),
        ("b", "0", 0),
        ("a", "1", 0),
        ("b", "1", 0),
    ]
    known = [FreshScore(programs[0].id, "val", "0", 5, 0, 1.0)]
    assert len(score_plan(task, programs, known, repeats=1).missing) == 9
    assert score_plan(task, programs, most=25).repeats == 2
    assert score_plan(Task("t", deterministic=True), programs).missing[0][1:] == (None, 0)
    with pytest.raises(UserError, match="takes 10 evaluations"):
        score_plan(task, programs, most=9)
    with pytest.raises(UserError, match="there are no test cases"):
        score_plan(task, programs, split="test")
