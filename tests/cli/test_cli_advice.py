"""Findings of `culmen check` before a search: missing modules, and the cases."""

from __future__ import annotations

import shlex

from .conftest import EVALUATOR, TOML, Place


def test_check_names_the_helper_one_folder_up(place: Place) -> None:
    (place.root / "helpers.py").write_text("def off(x):\n    return -(x - 7.0) ** 2\n")
    place.task("peak", evaluator="from helpers import off\n\n\n" + EVALUATOR)
    made = place.here("check", "peak")
    said = " ".join((made.out + made.err).split())
    assert made.code in (1, 2) and "pip install" not in said
    assert str(place.root / "helpers.py") in said.replace(" ", "")


CASES = [
    '{"id": "a", "input": {"x": 1, "hint": "red"}, "info": "red", "split": "train"}',
    '{"id": "b", "input": {"x": 2, "hint": "blue"}, "info": "blue", "split": "train"}',
    '{"id": "c", "input": {"x": 3, "hint": "red"}, "info": "red", "split": "val"}',
    '{"id": "d", "input": {"x": 4, "hint": "blue"}, "info": "blue", "split": "test"}',
]


def problems(place: Place, *lines: str) -> str:
    """The findings of `check` on these cases."""
    seed, evaluator = "def run(x):\n    return 1.0\n", "def score(output, case):\n    return 1.0\n"
    toml = TOML.replace('goal = "', 'cases = "cases.jsonl"\ngoal = "').replace("start = -16.0", "")
    folder = place.task("peak", seed, evaluator, toml.replace("0.0]", "2.0]"))
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
    made = place.here("check", "peak")
    return " ".join((made.out + made.err).split())


def test_a_column_that_gives_the_answer_away_is_named(place: Place) -> None:
    said = problems(place, *CASES)
    assert "the input's 'hint' is the answer in all cases" in said and "'x'" not in said


def test_the_same_case_in_several_splits_and_with_two_answers_is_named(place: Place) -> None:
    plain = [line.replace(', "hint": "red"', "").replace(', "hint": "blue"', "") for line in CASES]
    said = problems(
        place,
        *plain,
        '{"id": "e", "input": {"x": 1}, "info": "red", "split": "test"}',
        '{"id": "f", "input": {"x": 2}, "info": "blue", "split": "train"}',
        '{"id": "g", "input": {"x": 3}, "info": "green", "split": "val"}',
    )
    assert "1 of 4 inputs stand in several splits: a (train) = e (test)" in said
    assert "1 of 4 inputs stand twice in one split: b (train) = f (train)" in said
    assert "1 of 4 inputs have two answers: c (val) = g (val)" in said
    assert "answer in all cases" not in said


def test_honest_cases_have_no_such_line(place: Place) -> None:
    plain = [line.replace(', "hint": "red"', "").replace(', "hint": "blue"', "") for line in CASES]
    said = problems(place, *plain)
    assert "inputs" not in said and "in all cases" not in said


def test_commands_of_a_check_carry_its_options_and_work_when_pasted(place: Place) -> None:
    """An evaluator alone needs its program and direction again, or the next step fails."""
    (place.root / "judge.py").write_text("def score(output):\n    return abs(output - 7.0)\n")
    (place.root / "my first.py").write_text("def run():\n    return 5.0\n")
    options = ("--seed-program", "my first.py", "--direction", "min")
    made = place.here("check", "judge.py", *options, "--times", "1")
    assert made.code == 0, made.err
    lines = [line.removeprefix("next").strip() for line in made.out.splitlines()]
    audit, run = (line for line in lines if line.startswith("culmen "))
    words = shlex.split(audit.partition("  ")[0])[1:]
    made = place.here(*words, "--only", "nonfinite")
    assert made.code == 0 and "minimise" in made.out, made.err + made.out
    assert shlex.join(words[1:]).replace("--program", "--seed-program") in made.out  # its own step
    words = shlex.split(run.partition("  ")[0])[1:]
    made = place.here(*words, "--budget", "evaluations=4", "--json")
    assert made.code == 0 and made.document["direction"] == "min", made.err


def test_a_command_that_gives_no_score_names_no_folder_to_check(place: Place) -> None:
    """There is no task there: the proposed command would fail."""
    (place.root / "loud.py").write_text("raise SystemExit(3)\n")
    made = place.here("run", "--edit", "loud.py", "--budget", "evaluations=4", "--command", "false")
    assert made.code == 1 and "gives no score" in made.err, made.err
    assert "culmen check" not in made.err
