"""A command as evaluator: the number that it prints, its copy of the folder, its limits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import floats, sampled_from

from culmen.core.errors import UserError
from culmen.jail.command import Command, check_metric, is_confined, read_metric


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        ("a 3\nb 4.5e-1 s\n", "", 0.45),
        ("nothing", "", None),
        ("time: 3 s\nsize: 9\n", "time: {}", 3.0),
        ("time: 3\ntime: 4\n", "time: {}", 4.0),
        ("t[0] = -2.", "t[0] = {}", -2.0),
        ("took 12ms", r"took (\d+)ms", 12.0),
        ("score: 1,234.5", "score: {}", 1234.5),
        ("seed 42\nscore 1,234.5", "", 1234.5),
        ("seed 42\nscore \N{MINUS SIGN}0.5", "", -0.5),
        ("(score: 0.5), 12ms.", "score: {}", 0.5),
        ("score=0.5,n=3", "score={},", 0.5),
        ("accuracy 93%", "", 93.0),
        ("1.5e+3", "", 1500.0),
        ("score: 0.3\nscore: nan", "score: {}", None),
        ("score: 0.3\nscore: -inf", "score: {}", None),
        ("score 0.3\n12:30:01 done", "", None),
        ("score 0.3 of 2024-01-05", "", None),
        ("score 0.3 over 5-fold", "", None),
        ("score: 1_000", "score: {}", None),
        ("score: 0x1F", "score: {}", None),
        ("Python 3.11.7", "", None),
        ("score 0.3\n" + "9" * 500, "", None),
        (f"{1e300:,.2f}", "", 1e300),
        ("score [0.1,0.25]", "", None),
        ('log\n{"a": {"b": 2}}\n', "a.b", 2.0),
        ('{\n "a": 1\n}\n', "a", 1.0),
        ('{"a": true}', "a", None),
        ('{"a": NaN}', "a", None),
        ('{"a": "2.5"}', "a", 2.5),
        ("[1, 2]", "a", None),
    ],
)
def test_the_metric_is_read(text: str, metric: str, value: float | None):
    assert read_metric(text, metric) == value


@given(
    floats(allow_nan=False, allow_infinity=False),
    sampled_from(["{!r}", "{:g}", "{:,}", "{:e}", "{:+.3f}"]),
    sampled_from(["{}", "score: {}", "It is {}.", "({})", "x={}", "{} units"]),
)
def test_a_number_as_python_prints_it_is_read(number: float, form: str, text: str):
    printed = form.format(number)
    assert read_metric("seed 7\n" + text.format(printed), "") == float(printed.replace(",", ""))


@pytest.mark.parametrize("metric", ["(", "(a)(b)"])
def test_a_metric_that_cannot_be_read_is_refused(metric: str):
    with pytest.raises(UserError):
        check_metric(metric)


def in_folder(folder: Path, script: str, metric: str = "", seconds: float = 60.0) -> Command:
    """A shell script in a folder."""
    return Command(("sh", "-c", script), ("value",), metric, str(folder), seconds)


def test_each_run_has_a_new_copy(tmp_path: Path):
    (tmp_path / "value").write_text("1")
    command = in_folder(tmp_path, "cat value; echo 2 > value; echo 3 > new; ls")
    for _ in range(2):
        result = command.run({"value": "5"})
        assert result.value == 5.0 and (tmp_path / "value").read_text() == "1"
    assert not (tmp_path / "new").exists()
    assert command.run({"value": None}).value is None


@pytest.mark.parametrize("has_git", [True, False])
def test_the_copy_has_everything_but_caches_and_what_culmen_wrote(tmp_path: Path, has_git: bool):
    for name in ("a/runs/x", "runs/judge/1.json", "a/__pycache__/y", "data/z", "b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    if has_git:
        (tmp_path / ".gitignore").write_text("data\n")
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    found = in_folder(tmp_path, "find -L . -type f | sort; echo 1").run({}).printed.split()
    ignore = ["./.gitignore"] * has_git
    assert found == [*ignore, "./a/runs/x", "./b", "./data/z", "1"]


def test_failures_are_no_numbers(tmp_path: Path):
    failed = in_folder(tmp_path, "echo 5; exit 3").run({})
    assert (failed.value, failed.code) == (None, 3) and "exit code 3" in failed.fault
    late = in_folder(tmp_path, "echo 5; exec sleep 60", seconds=0.5).run({})
    assert (late.value, late.code) == (None, None) and "more than 0.5 s" in late.fault


def test_exit_and_seconds_are_measured_from_outside(tmp_path: Path):
    assert in_folder(tmp_path, "exit 3", "exit").run({}).value == 0.0
    assert in_folder(tmp_path, "true", "exit").run({}).value == 1.0
    assert (in_folder(tmp_path, "true", "seconds").run({}).value or 0.0) > 0.0


def test_a_run_writes_into_its_copy_alone(tmp_path: Path):
    if not is_confined():
        pytest.skip("bubblewrap does not work here")
    (tmp_path / "kept").write_text("as it was")
    result = in_folder(tmp_path, f"echo spoiled > {tmp_path}/kept; echo 1").run({})
    assert result.value == 1.0 and (tmp_path / "kept").read_text() == "as it was"
