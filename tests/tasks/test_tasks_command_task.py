"""A command as evaluator of the verbs that search and check: no file is written for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Place

PROGRAM = "LEVEL = 3\n"
BENCH = "import level\nprint('points', level.LEVEL, 'of 9')\n"


def folder_with_bench(folder: Path, bench: str = BENCH) -> Place:
    """A program, and a script that prints its score."""
    (folder / "level.py").write_text(PROGRAM)
    (folder / "bench.py").write_text(bench)
    return Place(folder)


COMMAND = ("--edit", "level.py", "--metric", "points {}", "--", "python3", "bench.py")


@pytest.mark.extension("judge")
def test_check_takes_a_command(tmp_path: Path):
    place = folder_with_bench(tmp_path)
    done = place.here("check", "--times", "2", "--json", *COMMAND)
    assert done.code == 0, done.err
    assert done.document["seeds"][0]["mean"] == 3.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.py", "level.py"]


@pytest.mark.extension("judge")
def test_an_error_is_in_the_words_of_the_command(tmp_path: Path):
    place = folder_with_bench(tmp_path, "raise SystemExit('own words of the script')\n")
    done = place.here("check", "--times", "2", *COMMAND)
    assert done.code == 1 and "own words of the script" in done.out.replace("\n", " ")


@pytest.mark.extension("bench", "judge")
def test_power_takes_a_command(tmp_path: Path):
    bench = "import level, random\nprint('points', level.LEVEL + random.random())\n"
    place = folder_with_bench(tmp_path, bench)
    done = place.here("compare", "power", "--rounds", "4", "--json", *COMMAND)
    assert done.code == 0 and 0.0 < done.document["noise"]["within"] < 1.0


@pytest.mark.extension("audit", "judge")
def test_audit_takes_a_command(tmp_path: Path):
    place = folder_with_bench(tmp_path)
    done = place.here("audit", "--only", "cheap", "--seconds", "20", "--json", *COMMAND)
    assert done.code in (0, 1, 6), done.err
    assert done.document["kind"] == "task" and done.document["honest"]["score"] == 3.0


@pytest.mark.extension("judge")
def test_a_run_takes_a_command_and_finds_a_better_file(tmp_path: Path):
    place = folder_with_bench(tmp_path)
    words = ("--budget", "evaluations=16", "--name", "one", "--workers", "2", "--seed", "1")
    done = place.here("run", *words, "--json", *COMMAND)
    assert done.code == 0, done.err
    assert done.document["best"]["score"] > 3.0
    assert place.here("resume", "one", "--json").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("check", ".", *COMMAND),
        ("check", "--edit", "level.py"),
        ("check",),
        ("run", "--metric", "points {}", "."),
        ("check", "--", "python3", "bench.py"),
        ("check", "--edit", "nothing.py", "--", "python3", "bench.py"),
    ],
)
def test_half_of_a_command_is_refused(tmp_path: Path, words: tuple[str, ...]):
    done = folder_with_bench(tmp_path).here(*words)
    assert done.code == 2 and "next" in done.err
