"""Letters from scores, and a small part of the bench of inheritance between evaluations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import bench_inherit
from bench.inherit import runs, table


def run_bench(*words: object) -> list[list[str]]:
    """The cells of the rows that the script prints, without the head."""
    command = [sys.executable, bench_inherit.__file__, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_letters_of_evaluations_in_turn():
    assert table.letter_of("count", "AAA", [0, 1, 2]) == "C"
    assert table.letter_of("count", "AAA", [5, 5, 5]) == "F"
    assert table.letter_of("count", "AAA", [5, None, 5]) == "E"
    assert table.letter_of("draws", "AAA", [0.3, 0.3, 0.3]) == "Z"
    assert table.letter_of("value", "AAA", [3, 3, 3]) == "="
    assert table.letter_of("first", "ABA", [1, 2, 1]) == "F"
    assert table.letter_of("first", "ABA", [1, 1, 1]) == "C"
    assert table.letter_of("first", "BAB", [2, 1, 1]) == "P"
    assert table.with_seed(table.letter_of("draws", "AA", [0.3, 0.4]), [0.6, 0.6]) == "V="
    assert table.with_seed("Z", [0.3, 0.3]) == "Z"


def test_letters_of_processes_that_begin_alike():
    assert table.letter_together("draws", "AAA", [0.3, 0.3, 0.4]) == "S"
    assert table.letter_together("draws", "AAA", [0.3, 0.5, 0.4]) == "V"
    assert table.letter_together("count", "AAA", [0, 0, 1]) == "S"
    assert table.letter_together("count", "AAA", [1, 0, 2]) == "C"


def test_letters_after_an_event():
    assert table.letter_after("count", "BA", [0, 1], [0, 1]) == "R"
    assert table.letter_after("count", "BA", [0, 1], [2, 3]) == "C"
    assert table.letter_after("count", "BA", [0, 0], [0, 0]) == "F"
    assert table.letter_after("draws", "BA", [0.3, 0.4], [0.3, 0.4]) == "R"
    assert table.letter_after("first", "BA", [1, 1], [2, 2]) == "R"
    assert table.letter_after("first", "BA", [1, 1], [1, 1]) == "C"


@pytest.mark.jail
def test_states_that_no_isolation_changes():
    words = ("--row", "np_seed_inside", "--row", "set_order", "--column", "fn 1w")
    found = run_bench("table", *words, "--column", "call 1w")
    assert found == [["np_seed_inside", "Z", "Z"], ["set_order", "=", "="]]


def test_a_run_is_kept_and_judged(tmp_path: Path):
    kept = tmp_path / "aa.jsonl"
    words = ("aa", "--form", "function", "--noise", "np.random.seed", "--workers", 1)
    ((*cells,),) = run_bench(*words, "--seeds", 1, "--evaluations", 16, "--json", kept)
    (row,) = map(json.loads, kept.read_text().splitlines())
    assert row["made"] <= 16 and row["failed"] == 0 and not row["exact"]
    assert cells == list(runs.cells([row]))
    assert run_bench(*words, "--seeds", 1, "--evaluations", 16, "--json", kept, "--kept") == [cells]


def test_programs_have_the_same_worth_and_the_last_evaluators_no_noise():
    assert [name for name, noise in runs.NOISES.items() if noise.exact] == list(runs.NOISES)[-3:]
    assert runs.holds(0.6, 0.1, 0.5) and not runs.holds(0.7, 0.1, 0.5)
    assert runs.holds(0.6, None, 0.5) is None
