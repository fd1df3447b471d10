"""The parts of an evaluator that coding agents may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.tasks import example_path, examples, load
from culmen.tasks.reading import MAX_SHOWN, text_for_agents

EVALUATOR = '''\
"""Circles in a square."""

N = 26
TOLERANCE: float = 1e-6
ANSWER = [0.12345678, 0.23456789, 0.34567891, 0.45678912, 0.56789123, 0.67891234, 0.78912345, 0.89123456, 0.91234567]


def score(output, strict=False):
    """The sum of the radii.

    None where circles overlap.
    """
    return _sum(output)


def _sum(output):
    return 26.0
'''
TOML = 'goal = "Pack."\n[seed]\nfiles = ["pack.py"]\n{more}'


def folder(place: Path, more: str = "") -> Path:
    (place / "evaluator.py").write_text(EVALUATOR)
    (place / "pack.py").write_text("def run():\n    return 1\n")
    (place / "task.toml").write_text(TOML.format(more=more))
    return place


def test_by_default_what_it_says_of_itself(tmp_path: Path) -> None:
    text = load(folder(tmp_path)).evaluator.shown
    assert (
        "Circles in a square." in text and "N = 26" in text and "TOLERANCE: float = 1e-06" in text
    )
    assert "def score(output, strict=False):" in text and "None where circles overlap." in text
    assert "ANSWER" not in text and "_sum" not in text and "26.0" not in text


def test_all_of_it_or_nothing(tmp_path: Path) -> None:
    assert load(folder(tmp_path, '[agents]\nevaluator = "full"\n')).evaluator.shown == EVALUATOR
    assert load(folder(tmp_path, '[agents]\nevaluator = "none"\n')).evaluator.shown == ""
    with pytest.raises(TaskError, match="evaluator"):
        load(folder(tmp_path, '[agents]\nevaluator = "some"\n'))


def test_what_is_shown_changes_no_score_and_so_no_digest(tmp_path: Path) -> None:
    digests = set()
    for how in ("full", "none", "public"):
        task = load(folder(tmp_path, f'[agents]\nevaluator = "{how}"\n'))
        digests.add(task.digest)
    # the file beside the evaluator is no part of its digest, nor is what agents read
    assert len(digests) == 1


def test_long_files_are_cut_and_others_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * MAX_SHOWN)
    assert (
        text_for_agents(path, "full").endswith("# cut here")
        and len(text_for_agents(path, "full")) < MAX_SHOWN + 20
    )
    path.write_text("#!/bin/sh\necho {\n")
    assert text_for_agents(path, "public") == ""


def test_every_built_in_task_says_something() -> None:
    for name, _ in examples():
        if (example_path(name) / "evaluator.py").is_file():
            assert "def " in load(example_path(name)).evaluator.shown, name
