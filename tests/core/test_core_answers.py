"""Answers of evaluators that say that they failed, and honest zeros that do not."""

from __future__ import annotations

from typing import Any

import pytest

from culmen.core.answers import (
    is_no_score,
    read_refusal,
    settle_answer,
)
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Refusal, Status, culprit_of, is_excused
from culmen.core.task import Objective
from culmen.jail.plain import answer_texts

PROGRAM = Candidate.of({"main.py": "def run():\n    return 1\n"})
MOST, LEAST = Objective(), Objective(direction="min")


def refusal_of(answer: dict[str, Any], feedback: str = "") -> Refusal | None:
    """The refusal read from a dict as an evaluator returns it."""
    artifacts = answer.pop("artifacts", {})
    numbers = {
        name: float(value)
        for name, value in answer.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    texts = {name: str(text) for name, text in artifacts.items()}
    return read_refusal(numbers, texts | answer_texts(answer, artifacts), feedback)


def scored(score: float, refusal: Refusal | None, case: str = "") -> Observation:
    return Observation(PROGRAM.id, Status.OK, score, case=case, refusal=refusal)


@pytest.mark.parametrize(
    ("answer", "absent"),
    [
        ({"score": 0, "status": "external_missing_judge"}, "service"),
        ({"score": 0, "status": "judge_unavailable"}, "service"),
        ({"score": 0, "error": "ModuleNotFoundError: No module named 'ortools'"}, "package"),
        ({"score": 0, "artifacts": {"error": "g++: command not found"}}, "package"),
        ({"score": 0, "artifacts": {"error": "connection refused"}}, "service"),
        ({"score": 0, "details": {"error": "simulator not reachable at :9000"}}, "service"),
        ({"score": 0, "artifacts": {"build": {"error": "rustc is not installed"}}}, "package"),
        ({"score": 0, "status": "exec_error"}, ""),
        ({"score": 0, "validity": 0.0}, ""),
        ({"score": 0, "validity": -1}, ""),
        ({"score": 0, "valid": False}, ""),
        ({"score": 0, "error": "NameError: name 'x' is not defined"}, ""),
        ({"score": 0, "artifacts": {"failure_stage": "load_data"}}, ""),
    ],
)
def test_a_status_a_validity_or_an_error_says_that_the_whole_answer_failed(
    answer: dict[str, Any], absent: str
) -> None:
    refusal = refusal_of(answer)
    assert refusal is not None and refusal.whole and refusal.absent == absent
    assert is_no_score(scored(0.0, refusal), MOST)


@pytest.mark.parametrize(
    ("name", "words", "absent"),
    [
        ("state", "judge_unreachable", "service"),
        ("outcome", "grader_offline", "service"),
        ("result", "evaluator backend unavailable", "service"),
        ("run_state", "skipped: no docker", "package"),
        ("status", "needs_judge", "service"),
        ("status", "external_judge_required", "service"),
        ("status", "pending_setup", ""),
        ("status", "unscored", ""),
        ("note", "Please launch the grading container on port 9000 first", "service"),
        ("message", "could not reach the grading service at localhost:8080", "service"),
        ("message", "The verifier did not answer within 30 s", "service"),
        ("message", "set JUDGE_URL to the address", "service"),
        ("message", "pip install ortools to score this task", "package"),
        ("message", "ortools is required but could not be imported", "package"),
        ("hint", "Run `make judge` before evaluating", "service"),
        ("reason", "the grader isn't running", "service"),
        ("reason", "connect ECONNREFUSED 127.0.0.1:9000", "service"),
    ],
)
def test_other_wordings_report_an_absence_too(name: str, words: str, absent: str) -> None:
    refusal = refusal_of({"score": 0, name: words})
    assert refusal is not None and refusal.absent == absent and words in refusal.words
    assert is_no_score(scored(0.0, refusal), MOST)


@pytest.mark.parametrize(
    "words",
    [
        "start the search nearer to the goal",
        "the server was overloaded by this policy",
        "game over: no moves left",
        "not better than the baseline",
        "failed 9 of 9 checks; run the tests first",
        "requests did not reach the service centre in time",
    ],
)
@pytest.mark.parametrize("name", ["message", "outcome"])
def test_words_on_a_program_report_no_absence(name: str, words: str) -> None:
    assert refusal_of({"score": 0, name: words}) is None


@pytest.mark.parametrize(
    ("artifacts", "feedback", "absent"),
    [
        ({"stderr": "Traceback (most recent call last):\n  x\nValueError: no"}, "", ""),
        ({"stderr": "sh: 1: gfortran: not found"}, "", "package"),
        ({"text_feedback": "this task needs `ale_bench`, which is not installed"}, "", "package"),
        ({}, "the judge is not running: start it with make judge", "service"),
    ],
)
def test_other_texts_count_where_something_is_absent_or_stderr_holds_an_error(
    artifacts: dict[str, str], feedback: str, absent: str
) -> None:
    refusal = refusal_of({"score": 0, "artifacts": artifacts}, feedback)
    assert refusal is not None and not refusal.whole and refusal.absent == absent
    assert is_no_score(scored(0.0, refusal), MOST)
    assert not is_no_score(scored(0.0, refusal), MOST, lowest=-5.0), "0 is not the worst known"


@pytest.mark.parametrize(
    "answer",
    [
        {"score": 0},
        {"score": 0, "status": "ok"},
        {"score": 0, "status": "success", "error": ""},
        {"score": 0, "status": "success_without_errors", "error": None},
        {"score": 0, "error": "None", "validity": 1.0},
        {"score": 0, "validity": -0.5},
        {"score": 0, "error": 0.25, "accuracy": 0.0, "passed": 0},
        {"score": 0, "status": "baseline"},
        {"score": 0, "status": "Needs improvement: 0/4 modules correct."},
        {"score": 0, "status": "requires further optimization"},
        {"score": 0, "correct": False, "success": False},
        {"score": 0, "errors": "case 1: IndexError; case 2: IndexError"},
        {"score": 0, "artifacts": {"case_2": "ValueError: x", "case_7": "wrong answer"}},
        {"score": 0, "case1": {"error": "IndexError"}, "case2": {"error": "KeyError"}},
        {"score": 0, "artifacts": {"stderr": "DeprecationWarning: use y"}},
        {
            "score": 0,
            "artifacts": {"text_feedback": "no solver found a tour; the token is missing"},
        },
        {"score": 0, "artifacts": {"log": "No module named 'numpy'"}},
    ],
)
def test_an_honest_zero_says_nothing_of_the_kind(answer: dict[str, Any]) -> None:
    assert refusal_of(answer, "expected 3, got 4: closing bracket missing") is None


def test_the_words_are_the_evaluators_own() -> None:
    refusal = refusal_of(
        {
            "score": 0,
            "status": "external_missing_judge",
            "artifacts": {"text_feedback": "judge not reachable at :8081; docker compose up -d"},
        }
    )
    assert refusal is not None
    assert refusal.words == (
        "status: external_missing_judge; judge not reachable at :8081; docker compose up -d"
    )


WHOLE, ABSENT = Refusal("error: no", whole=True), Refusal("no judge", True, "service")


@pytest.mark.parametrize(
    ("score", "objective", "lowest", "failed"),
    [
        (0.4, MOST, None, False),  # credit for a part
        (0.4, MOST, 0.5, False),
        (0.0, MOST, -5.0, True),  # the usual number of an answer that failed
        (-30.0, MOST, None, True),
        (-30.0, MOST, -2.0, True),
        (-3.0, MOST, -100.0, False),  # others that did not fail score less
        (1e9, LEAST, None, True),
        (1e9, LEAST, -12.0, True),
        (3.0, LEAST, -12.0, False),
        (0.0, LEAST, -12.0, True),
        (0.1, Objective(bounds=(0.1, 1.0)), 0.5, True),  # none lower is allowed
        (1.0, Objective(direction="min", bounds=(0.0, 1.0)), -0.2, True),
    ],
)
def test_its_number_is_no_score_if_it_is_the_worst_known(
    score: float, objective: Objective, lowest: float | None, failed: bool
) -> None:
    assert is_no_score(scored(score, WHOLE), objective, lowest) is failed
    assert not is_no_score(scored(score, None), objective, lowest)


def test_a_failing_program_shows_the_number_of_failure() -> None:
    assert is_no_score(scored(0.1, WHOLE), MOST, failing=0.1)
    assert not is_no_score(scored(0.2, WHOLE), MOST, failing=0.1)


def test_an_error_on_one_case_is_a_score_unless_something_is_absent() -> None:
    assert not is_no_score(scored(0.0, WHOLE, case="c1"), MOST)
    assert is_no_score(scored(0.0, ABSENT, case="c1"), MOST)


def test_what_is_absent_is_not_the_candidates_fault_unless_its_own_text_names_it() -> None:
    away = settle_answer(PROGRAM, scored(0.0, ABSENT), MOST)
    assert (away.status, away.reason, culprit_of(away)) == (Status.INVALID, "refused", "provider")
    assert away.score is None and is_excused(away) and away.last_words == "no judge"
    words = "error: ModuleNotFoundError: No module named 'torch'"
    missing = scored(0.0, Refusal(words, whole=True, absent="package"))
    assert culprit_of(settle_answer(PROGRAM, missing, MOST)) == "scorer"
    importing = Candidate.of({"main.py": "import os, torch\n"})
    assert culprit_of(settle_answer(importing, missing, MOST)) == "candidate"
    own = settle_answer(PROGRAM, scored(0.0, WHOLE), MOST)
    assert culprit_of(own) == "candidate" and own.metrics == {"claimed_score": 0.0}


def test_an_exception_that_a_program_raised_is_its_evaluators_to_judge() -> None:
    raised = scored(0.0, Refusal("ZeroDivisionError", raised=True))
    assert settle_answer(PROGRAM, raised, MOST) is raised
