"""`--preset`: a task's other defaults by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.cli.options import PlaceFlags, RunFlags, of_run
from culmen.core.errors import TaskError, UserError
from culmen.evaluate.taskfiles import load, write_new
from culmen.strategies.polca import Polca

PRESET = """
[presets.paper]
strategy = "polca"
budget = "evaluations=7"
settings = { epsilon = 0.02, explore = 3 }
"""


def made(folder: Path, text: str = PRESET) -> Path:
    write_new(folder)
    toml = folder / "task.toml"
    toml.write_text(toml.read_text() + text)
    return folder


def test_a_preset_stands_between_the_command_line_and_the_tasks_defaults(tmp_path: Path) -> None:
    task = load(made(tmp_path / "t"))
    strategy, options = of_run(task, RunFlags(preset="paper"), PlaceFlags())
    assert isinstance(strategy, Polca) and (strategy.epsilon, strategy.explore) == (0.02, 3)
    assert options.budget.evaluations == 7
    strategy, options = of_run(
        task, RunFlags(preset="paper", settings=["explore=2"], budget="evaluations=9"), PlaceFlags()
    )
    assert (strategy.epsilon, strategy.explore, options.budget.evaluations) == (0.02, 2, 9)
    plain, _ = of_run(task, RunFlags(), PlaceFlags())
    assert not isinstance(plain, Polca)


def test_what_no_preset_is_says_so(tmp_path: Path) -> None:
    task = load(made(tmp_path / "t"))
    with pytest.raises(UserError, match="no preset 'pape'"):
        of_run(task, RunFlags(preset="pape"), PlaceFlags())
    with pytest.raises(TaskError, match="strateg"):
        load(made(tmp_path / "u", PRESET.replace("strategy", "strateg")))
    with pytest.raises(TaskError):
        load(made(tmp_path / "v", PRESET.replace("evaluations=7", "evaluations=x")))
