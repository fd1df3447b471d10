"""Reports of `check` about evaluators that fail, that say so, or whose failures pay.

Each is a real evaluator of every form: functions, folders, call, serve, and metrics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import culmen
from culmen.cli.main import main
from culmen.evaluate.check import TaskReport, check_task
from culmen.evaluate.failing_programs import failing_programs
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load

PROGRAM = "def run():\n    return 4\n"
NO_JUDGE = (
    '{"combined_score": 0.0, "validity": 0.0, "status": "external_missing_judge", '
    '"artifacts": {"text_feedback": "judge not reachable at http://localhost:8081"}}'
)
CATCHING = """
import importlib.util

def evaluate(path):
    try:
        spec = importlib.util.spec_from_file_location("program", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {"combined_score": -abs(module.run() - 9.5)}
    except Exception:
        return {"combined_score": 0.0}
"""


def folder(path: Path, evaluator: str, program: str = PROGRAM, toml: str = "") -> Path:
    """A task folder; of OpenEvolve's kind, whose form an extension adds, without a task.toml."""
    if not toml:
        pytest.importorskip("culmen.extensions.compat")
    path.mkdir(exist_ok=True)
    (path / "initial_program.py").write_text(program)
    (path / "evaluator.py").write_text(evaluator)
    if toml:
        (path / "task.toml").write_text(toml)
    return path


def checked(path: Path) -> TaskReport:
    task = load(path)
    return asyncio.run(check_task(task, LocalBackend(task, 2), 2))


def errors(report: TaskReport) -> list[str]:
    return [each.what for each in report.findings if each.level == "error"]


SEED = '[seed]\nfiles = ["initial_program.py"]\n'
REFUSING = {
    "legacy": ("def evaluate(path):\n    return " + NO_JUDGE, ""),
    "call": (
        "def score(output):\n    return {'score': 0, 'status': 'judge_unavailable', "
        "'feedback': 'start the judge server'}",
        SEED,
    ),
    "call, artifacts": (
        "def score(output):\n    return {'score': 0, "
        "'artifacts': {'error': 'g++: command not found'}}",
        SEED,
    ),
    "serve": (
        "def score(call):\n    call()\n    return {'score': 0, 'error': 'simulator not running'}",
        SEED,
    ),
    "minimised": (
        "def score(output):\n    return {'score': 1e9, 'error': 'the solver is not installed'}",
        SEED + '[objective]\ndirection = "min"\n',
    ),
}


@pytest.mark.parametrize("form", REFUSING)
def test_an_initial_program_that_is_refused_is_an_error_in_the_evaluators_own_words(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluator, toml = REFUSING[form]
    path = folder(tmp_path / "task", evaluator, toml=toml)
    report = checked(path)
    (what,) = errors(report)
    assert what.startswith("the initial program is refused: it scores ")
    words = ("not reachable", "judge", "g++", "simulator not running", "not installed")
    assert any(each in what for each in words)
    assert report.seeds[0].mean is None and "invalid" in report.seeds[0].statuses
    assert main(["check", str(path)]) == 1
    assert "the initial program is refused" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "answer",
    [
        {"score": 0.0, "status": "no_gpu"},
        {"score": 0.0, "error": "No module named 'torch'"},
        {"combined_score": 0.0, "validity": 0},
        (0.0, {"artifacts": {"stderr": "sh: 1: nvcc: not found"}}),
        (0.0, "the judge is not running"),
    ],
)
def test_a_function_that_refuses_the_initial_program(answer: Any) -> None:
    report = culmen.check(PROGRAM, lambda text: answer)
    assert not report.fit and "the initial program is refused" in errors(report)[0]


@pytest.mark.parametrize(
    "answer",
    [
        0.0,
        {"score": 0.0, "status": "ok"},
        {"score": 0.0, "validity": 1.0, "error": ""},
        (0.0, "nothing fits yet: case 2 raised IndexError"),
        {"score": 0.0, "artifacts": {"case_1": "error: list index out of range"}},
    ],
)
def test_an_honest_zero_can_be_searched(answer: Any) -> None:
    report = culmen.check(PROGRAM, lambda text: answer)
    assert report.fit and report.seeds[0].mean == 0.0


def test_an_error_that_is_the_candidates_on_one_case_is_a_score() -> None:
    def evaluator(text: str, case: Any) -> dict[str, Any]:
        error = {"error": "ValueError: not a number"} if case.input == 2 else {}
        return {"score": 0.0 if error else 1.0, **error}

    report = culmen.check(PROGRAM, evaluator, cases=[1, 2, 3])
    assert report.fit and report.seeds[0].mean == pytest.approx(2 / 3)


def test_a_number_that_failing_programs_get_is_no_score_of_an_answer_that_failed() -> None:
    def evaluator(text: str) -> dict[str, Any]:
        return {"score": 0.1, "error": "the licence is missing"}

    report = culmen.check(PROGRAM, evaluator)
    assert (
        not report.fit
        and "it scores 0.1, but its evaluator reports error: the licence is missing"
        in "".join(errors(report))
    )


def executed(text: str, failure: float, sign: float) -> float:
    """The score of a program by an evaluator that catches everything."""
    try:
        names: dict[str, Any] = {}
        exec(text, names)
        return sign * abs(names["run"]() - 9.5)
    except Exception:  # noqa: BLE001 - as evaluators do
        return failure


@pytest.mark.parametrize(
    ("evaluator", "direction"),
    [
        (lambda text: executed(text, 0.0, -1.0), "max"),
        (lambda text: executed(text, 0.0, 1.0), "min"),
        (lambda text: {"score": executed(text, -1.0, -1.0), "accuracy": 0.5}, "max"),
        (lambda text: (executed(text, 1.0, 1.0), {"loss": 2.0}), "min"),
    ],
)
def test_a_crash_that_pays_a_function(evaluator: Callable[[str], Any], direction: str) -> None:
    report = culmen.check(PROGRAM, evaluator, direction=direction)
    (what,) = errors(report)
    assert what.startswith("failing pays: a program that raises scores ")
    assert ("above" if direction == "max" else "better than") in what and not report.fit


def test_a_crash_that_pays_in_a_folder(tmp_path: Path) -> None:
    report = checked(folder(tmp_path / "task", CATCHING))
    assert errors(report) == [
        "failing pays: a program that raises scores 0, above the initial program's -5.5, so a "
        "search would find such programs"
    ]
    assert "let the evaluator raise" in report.findings[0].fix


def test_a_crash_that_pays_a_program_that_is_served(tmp_path: Path) -> None:
    evaluator = (
        "def score(call):\n    try:\n        return -abs(call() - 9.5)\n"
        "    except Exception:\n        return 0.0\n"
    )
    (what,) = errors(checked(folder(tmp_path / "task", evaluator, toml=SEED)))
    assert "a program that raises scores 0" in what


def test_an_empty_result_that_pays_a_called_program_warns(tmp_path: Path) -> None:
    evaluator = (
        "def score(output):\n    try:\n        return -abs(output - 9.5)\n"
        "    except TypeError:\n        return 0.0\n"
    )
    report = checked(folder(tmp_path / "task", evaluator, toml=SEED))
    (what,) = [each.what for each in report.findings if "failing pays" in each.what]
    assert "a program that returns an empty list scores 0" in what and report.fit


@pytest.mark.parametrize(
    "evaluator",
    [
        lambda text: executed(text, -100.0, -1.0),
        lambda text: executed(text, -5.5, -1.0),
        lambda text: 1.0 if "def" in text else 0.0,
        lambda text: float(len(text)),  # runs no program
    ],
)
def test_failing_does_not_pay_where_it_scores_no_more(evaluator: Callable[[str], float]) -> None:
    report = culmen.check(PROGRAM, evaluator)
    assert report.fit and "failing pays" not in str(report)


@pytest.mark.parametrize("text", ["Answer the question.", "1", "'a text'"])
def test_a_text_that_is_no_program_is_not_made_to_fail(text: str) -> None:
    report = culmen.check(text, lambda text: -float(len(text)))
    assert report.fit and "failing pays" not in str(report)


def test_failing_programs_keep_what_the_evaluator_looks_up(tmp_path: Path) -> None:
    text = "class Shop:\n    def price(self, n):\n        return n\n\n\ndef run():\n    return 1\n"
    task = load(folder(tmp_path / "task", CATCHING, text))
    raising, idle = failing_programs(task, task.initial_candidates()[0])
    assert "class Shop" in raising.candidate.text and "def run()" in idle.candidate.text
    names: dict[str, Any] = {}
    exec(idle.candidate.text, names)
    assert names["run"]() is None and names["Shop"]().price(3) is None
    with pytest.raises(RuntimeError, match="on purpose"):
        exec(raising.candidate.text + "\nrun()", {})


def test_an_evaluator_that_fails_at_random_at_the_start_is_named_with_its_rate() -> None:
    """Whatever fails first: the initial program is evaluated again, and the rate is reported."""
    rates = list[str]()
    for start in range(10):
        draws = random.Random(start)

        def evaluator(text: str, draws: random.Random = draws) -> float:
            if draws.random() < 0.3:
                raise RuntimeError("simulator lost")
            return 1.0

        rates.append("".join(errors(culmen.check("x = 1", evaluator))))
    found = [rate for rate in rates if rate]
    assert len(found) >= 8
    assert all(
        "test_tasks_check_refused.py:" in rate and "raises RuntimeError in " in rate
        for rate in found
    )


def test_an_evaluator_that_always_raises_is_given_up() -> None:
    def evaluator(text: str) -> float:
        raise RuntimeError("simulator lost")

    report = culmen.check("x = 1", evaluator)
    assert report.evaluations == 8 and not report.fit and "simulator lost" in str(report)
