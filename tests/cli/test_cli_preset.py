"""`--preset`: a task's other defaults by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import TaskError, UserError
from culmen.run.plan import requested_run
from culmen.run.request import RunRequest
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.polca import Polca
from culmen.tasks import load, write_new

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
    task = made(tmp_path / "t")
    plan = requested_run(task, RunRequest(preset="paper"))
    assert isinstance(plan.strategy, Polca) and (plan.strategy.epsilon, plan.strategy.explore) == (
        0.02,
        3,
    )
    assert plan.options.budget.evaluations == 7
    plan = requested_run(
        task, RunRequest(preset="paper", settings=["explore=2"], budget="evaluations=9")
    )
    assert isinstance(plan.strategy, Polca) and (plan.strategy.epsilon, plan.strategy.explore) == (
        0.02,
        2,
    )
    assert plan.options.budget.evaluations == 9
    assert not isinstance(requested_run(task, RunRequest()).strategy, Polca)


def test_what_no_preset_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no preset 'pape'"):
        requested_run(made(tmp_path / "t"), RunRequest(preset="pape"))
    with pytest.raises(TaskError, match="strateg"):
        load(made(tmp_path / "u", PRESET.replace("strategy", "strateg")))
    with pytest.raises(TaskError):
        load(made(tmp_path / "v", PRESET.replace("evaluations=7", "evaluations=x")))


def test_programs_of_a_bank_alone_are_searched_by_best_of_n(tmp_path: Path) -> None:
    (tmp_path / "bank" / "large").mkdir(parents=True)
    (tmp_path / "bank" / "large" / "p.py").write_text("VALUE = 1\n")
    task, bank = made(tmp_path / "t"), f"bank:{tmp_path / 'bank'}"
    assert isinstance(requested_run(task, RunRequest(model=[bank])).strategy, BestOfN)
    for other in (
        {"model": [bank], "strategy": "polca"},
        {"model": ["offline"]},
        {"model": [bank, "ollama/a"]},
    ):
        assert not isinstance(requested_run(task, RunRequest(**other)).strategy, BestOfN)
