"""Certification in a run: the evaluations that are certified, the winner, and the words."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.cli.keep import replay_run
from culmen.core.candidate import Candidate
from culmen.core.errors import TaskError
from culmen.core.evaluation import Observation, Status
from culmen.core.event import EvaluateRequest, request_mark
from culmen.core.result import RunResult
from culmen.core.task import Limits, Objective, Task
from culmen.core.usage import Budget
from culmen.engine.ledger import final_share
from culmen.evaluate.local import LocalBackend
from culmen.jail import outcome
from culmen.jail.scorer import read_certificate
from culmen.report.facts import Facts
from culmen.report.sentences import say
from culmen.run.study import Study
from culmen.store import views
from culmen.tasks import example_path, load

TOML = """
goal = "Return a number."
deterministic = true
[seed]
parts = { "program.py" = "def run():\\n    return 1.0\\n" }
[evaluator]
verify = "verify.py"
[objective]
start = 1.0
bounds = [0, 100]
"""
EVALUATOR = "def score(output):\n    return output\n"
VERIFIER = """
def certify(output, case=None):
    if output > 50:
        raise ValueError("far off")
    if output > 20:
        return {"score": None, "feasible": False, "feedback": "not a witness"}
    return {"score": min(output, 10), "exact": "p/q", "feasible": output <= 10, "repaired": "cut" * (output > 10)}
"""


def folder(path: Path, verifier: str = VERIFIER, toml: str = TOML) -> Path:
    """A task whose verifier repairs above 10, rejects above 20 and breaks above 50."""
    for name, text in {"task.toml": toml, "evaluator.py": EVALUATOR, "verify.py": verifier}.items():
        (path / name).write_text(text)
    return path


def program(value: float) -> Candidate:
    return Candidate.of({"program.py": f"def run():\n    return {value}\n"})


def seen(task: Task, *values: float, certify: bool = True) -> list[Observation]:
    """One evaluation of each program that returns a value."""

    async def all_values() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return [
                await backend.evaluate(program(value), None, 0, certify=certify) for value in values
            ]
        finally:
            await backend.close()

    return asyncio.run(all_values())


def test_the_loader_finds_the_verifier_and_counts_it_in_the_digest(tmp_path: Path) -> None:
    task = load(folder(tmp_path))
    assert task.evaluator.verifier == str(tmp_path / "verify.py")
    before = task.digest, task.evaluator.digest
    folder(tmp_path, VERIFIER + "\n# stricter\n")
    assert load(tmp_path).digest != before[0] and load(tmp_path).evaluator.digest != before[1]
    without = load(folder(tmp_path, toml=TOML.replace('verify = "verify.py"', "")))
    assert without.evaluator.verifier == "" and without.digest != before[0]


@pytest.mark.parametrize(
    ("old", "new", "piece"),
    [
        ('"verify.py"', '"verfy.py"', "file 'verfy.py' does not exist"),
        ('"verify.py"', '"../verify.py"', "leads out of the folder"),
        ('verify = "verify.py"', 'verify = "verify.py"\nform = "legacy"', "evaluate"),
        ('verify = "verify.py"', 'verify = "evaluator.py"', "certify"),
    ],
)
@pytest.mark.extension("compat")
def test_what_cannot_verify_is_told_before_the_run(
    tmp_path: Path, old: str, new: str, piece: str
) -> None:
    with pytest.raises(TaskError, match=piece):
        load(folder(tmp_path, toml=TOML.replace(old, new)))


def test_a_verifier_that_does_not_load_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no_such_module"):
        seen(
            load(folder(tmp_path, "import no_such_module\ndef certify(output):\n    return {}\n")),
            1.0,
        )


def test_what_a_verifier_says_goes_with_the_evaluation(tmp_path: Path) -> None:
    task = load(folder(tmp_path))
    passes, repaired, refused, broken, invalid = seen(task, 7.0, 15.0, 30.0, 60.0, 101.0)
    assert (passes.score, passes.certified, passes.strict) == (7.0, 7.0, True)
    assert passes.artifacts["certificate"] == "p/q" and "repaired" not in passes.artifacts
    assert (repaired.score, repaired.certified, repaired.strict) == (15.0, 10.0, False)
    assert repaired.artifacts["repaired"] == "cut"
    for observation, piece in ((refused, "not verified: not a witness"), (broken, "far off")):
        assert observation.ok and observation.certified is None and observation.strict is False
        assert piece in observation.feedback
    assert invalid.status is Status.INVALID and invalid.strict is None
    (plain,) = seen(task, 7.0, certify=False)
    assert plain.ok and plain.certified is None and plain.strict is None


BAD_VERIFIERS = {
    "nan": "{'score': float('nan'), 'feasible': True}",
    "infinite": "{'score': float('inf'), 'feasible': True}",
    "a text": "{'score': '7', 'feasible': True}",
    "a boolean": "{'score': True, 'feasible': True}",
    "beyond the bounds": "{'score': 1000.0, 'feasible': True}",
    "nobody says whether feasible": "{'score': 7.0}",
    "feasible is a number": "{'score': 7.0, 'feasible': 1}",
    "unknown key": "{'score': 7.0, 'feasible': True, 'trust': 'me'}",
    "a bare number": "7.0",
    "nothing": "None",
}


@pytest.mark.parametrize("name", BAD_VERIFIERS)
def test_a_verifier_that_talks_nonsense_certifies_nothing(tmp_path: Path, name: str) -> None:
    verdict = outcome.EvaluationOutcome(Status.OK, score=7.0)
    try:
        answer = read_certificate(eval(BAD_VERIFIERS[name], {"float": float}))
    except TypeError as error:
        answer = {"kind": "raised", "feedback": str(error)}
    said = outcome.with_certificate(verdict, answer, Objective(bounds=(0, 100)))
    assert said.certified is None and said.strict is False and "not verified" in said.feedback


def test_a_verifier_that_hangs_ends_and_the_evaluation_stands(tmp_path: Path) -> None:
    task = load(folder(tmp_path, "def certify(output):\n    while True:\n        pass\n"))
    task = msgspec.structs.replace(task, limits=Limits(scorer_seconds=0.5))
    (observation,) = seen(task, 7.0)
    assert observation.ok and observation.score == 7.0 and observation.strict is False
    assert "did not answer in time" in observation.feedback


def test_a_certified_evaluation_is_another_effect() -> None:
    plain = EvaluateRequest(program(1.0), None, 3)
    assert request_mark(plain) != request_mark(msgspec.structs.replace(plain, certify=True))
    assert request_mark(plain) == request_mark(EvaluateRequest(program(1.0), None, 3, False))


def test_one_evaluation_is_kept_even_of_small_budgets(tmp_path: Path) -> None:
    task = load(folder(tmp_path))
    plain = msgspec.structs.replace(
        task, evaluator=msgspec.structs.replace(task.evaluator, verifier="")
    )
    assert [final_share(Budget(evaluations=n), task) for n in (1, 5, 100)] == [0, 1, 4]
    assert [final_share(Budget(evaluations=n), plain) for n in (1, 5, 100)] == [
        0,
        0,
        7 + 6,
    ]  # a tolerance may be looked into, and the output pushed


@dataclass(frozen=True)
class Values:
    """Tries the programs that return these values."""

    values: tuple[float, ...]

    async def search(self, lab: Any) -> None:
        await lab.gather(*(lab.evaluate(program(value)) for value in self.values))


def reported(task: Path, place: Path, *values: float, evaluations: int = 20) -> RunResult:
    """The report of a run over these values; its journal replays to the same choice."""
    study = Study.create(
        task,
        Values(values),
        budget=Budget(evaluations=evaluations),
        run_dir=place,
        workers=2,
        random_seed=1,
    )
    assert study.run() == "finished"
    again = replay_run(place, verify=True)
    assert again.data["matches"] and again.data["finished"], again.data["differences"]
    best = views.best_result(place)
    assert best is not None and study.best is not None and study.best.certified == best.certified
    return best


def test_what_is_certified_wins_over_what_only_scores(tmp_path: Path) -> None:
    """30 scores most and is refused, 15 is repaired to 10, 9 passes: 15 wins with 10.

    It is not called verified.
    """
    best = reported(folder(tmp_path), tmp_path / "run", 9.0, 30.0, 15.0)
    assert (best.score, best.certified, best.strict, best.verified, best.confirmed) == (
        15.0,
        10.0,
        False,
        False,
        True,
    )
    assert (
        say("certificate", Facts(result=best)) == "not as given; repaired, strictly feasible: 10.0"
    )
    assert say("trust", Facts(result=best)).startswith("certified: ")


def test_what_passes_as_given_is_verified(tmp_path: Path) -> None:
    best = reported(folder(tmp_path), tmp_path / "run", 3.0, 9.0, 55.0)
    assert (best.score, best.certified, best.strict, best.verified) == (9.0, 9.0, True, True)
    assert say("certificate", Facts(result=best)) == "yes, exactly and as given: 9.0"
    (last,) = [
        o for o in views.stream_observations(tmp_path / "run", best.id) if o.strict is not None
    ]
    assert last.certified == 9.0 and last.artifacts["certificate"] == "p/q"


def test_where_no_other_is_accepted_the_certified_initial_program_stays_the_best(
    tmp_path: Path,
) -> None:
    best = reported(folder(tmp_path), tmp_path / "run", 30.0, 40.0)
    assert (best.score, best.certified, best.strict, best.verified) == (1.0, 1.0, True, True)
    assert best.kept_initial


def test_a_small_budget_still_certifies_the_best(tmp_path: Path) -> None:
    best = reported(folder(tmp_path), tmp_path / "run", 2.0, 8.0, 4.0, 1.0, evaluations=4)
    assert (best.score, best.certified, best.verified) == (8.0, 8.0, True)


def test_without_a_verifier_nothing_changes(tmp_path: Path) -> None:
    task = folder(tmp_path, toml=TOML.replace('verify = "verify.py"', ""))
    best = reported(task, tmp_path / "run", 30.0, 15.0)
    assert (best.score, best.certified, best.strict, best.verified) == (30.0, None, None, True)
    assert say("certificate", Facts(result=best)) == ""
    assert say("trust", Facts(result=best)).startswith("scored apart: ")


def test_lower_is_better_where_the_task_says_so(tmp_path: Path) -> None:
    task = folder(tmp_path, toml=TOML.replace("start = 1.0", 'direction = "min"'))
    best = reported(task, tmp_path / "run", 12.0, 0.5, 30.0)
    assert (best.score, best.certified, best.verified) == (0.5, 0.5, True)
    best = reported(task, tmp_path / "worse", 12.0, 9.5, 30.0)
    assert best.score == 1.0 and best.kept_initial  # none is better than what was brought


@pytest.mark.slow
@pytest.mark.extension("builtin")
def test_a_real_task_from_search_to_certificate(tmp_path: Path) -> None:
    """The jailed program's array reaches the verifier bit by bit."""
    task = load(example_path("first_autocorr_ineq"))
    place = tmp_path / "run"
    source = "import numpy as np\ndef run():\n    return np.array([0.1, 0.7, 0.3, 0.3])\n"
    seeds = ({"heights.py": source},)
    Study.create(
        msgspec.structs.replace(task, seeds=seeds),
        "best_of_n",
        budget=Budget(evaluations=2),
        run_dir=place,
    ).run()
    best = views.best_result(place)
    assert (
        best is not None
        and best.verified
        and best.certified == pytest.approx(best.score, rel=1e-15)
    )
    from tests.evaluate.certify.modules import modules

    assert (
        best.certified
        == modules("first_autocorr_ineq")["verify"].certify([0.1, 0.7, 0.3, 0.3])["score"]
    )
    assert (
        json.loads(msgspec.json.encode(views.run_status(place)))["best"]["certified"]
        == best.certified
    )
