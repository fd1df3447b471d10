"""`culmen compare power`: noise and evaluations for a gain, as a table and as data."""

from __future__ import annotations

from pathlib import Path

from .conftest import Place

PROGRAM = """\
import random


def run():
    return random.gauss(1.0, 0.2)
"""
EVALUATOR = """\
def score(output):
    return output
"""
TOML = """\
name = "noisy"
goal = "Return a number."
[seed]
files = ["guess.py"]
[evaluator]
file = "evaluator.py"
"""


def noisy(folder: Path) -> Place:
    task = folder / "noisy"
    task.mkdir()
    for name, text in {"task.toml": TOML, "guess.py": PROGRAM, "evaluator.py": EVALUATOR}.items():
        (task / name).write_text(text)
    return Place(folder)


def test_power_names_the_evaluations_that_a_gain_takes(tmp_path: Path) -> None:
    done = noisy(tmp_path).here(
        "compare", "power", "noisy", "--gain", "0.1", "--rounds", "40", "--json"
    )
    assert done.code == 0, done.err
    (plan,) = done.document["plans"]
    within = done.document["noise"]["within"]
    assert 0.01 < within < 0.1 and plan["gain"] == 0.1
    each = 2 * within * (2.8016 / 0.1) ** 2
    assert each <= plan["rounds"] < each + 1 and plan["final"] == 2 * plan["rounds"]
