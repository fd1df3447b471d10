"""`culmen import algotune`: task folders of a miniature checkout.

culmen runs and judges them.
"""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.importers import algotune, cli
from culmen.tasks.loading import load
from tests.evaluate.conftest import need

CHECKOUT = Path(__file__).parents[2] / "fixtures" / "algotune"
FILE = CHECKOUT / "AlgoTuneTasks" / "running_total" / "running_total.py"
FASTER = """
import numpy as np

class Solver:
    def solve(self, problem, **kwargs):
        totals = np.cumsum(problem.values)
        return {"totals": totals, "ends": (totals[0], totals[-1])}
"""


def culmen(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, object]:
    out = tmp_path_factory.mktemp("algotune") / "tasks"
    ran = culmen(
        *("import", "algotune", str(CHECKOUT)),
        *("--out", str(out), "--milliseconds", "2", "--json"),
    )
    assert ran.returncode == 1, ran.stderr  # one of the two tasks lacks a package
    return out, json.loads(ran.stdout)


def test_algotune_is_a_verb_of_the_group_import() -> None:
    assert cli.VERBS.groups["import"][1]["algotune"] is cli.algotune


def test_algotune_names_what_is_missing(imported: tuple[Path, object]) -> None:
    (lacking, fine) = imported[1]
    assert "no_such_solver" in lacking["error"] and lacking["fix"].startswith(
        "install what brings the module 'no_such_solver'"
    )
    assert fine["error"] == "" and fine["size"] > 1 and fine["weak"] == []


def test_algotune_the_reference_becomes_a_solver_without_the_rest() -> None:
    text = algotune.solver_text(FILE.read_text())
    names = {node.name for node in ast.walk(ast.parse(text)) if hasattr(node, "name")}
    assert {"Solver", "solve", "_scaled", "_add", "Series", "__init__"} <= names
    assert "START" in text and "self.factor = 1.0" in text and "# in plain Python" in text
    for left_out in ("generate_problem", "is_solution", "AlgoTuneTasks", "super()"):
        assert left_out not in text


def test_algotune_a_file_that_cannot_be_cut_is_taken_whole() -> None:
    text = algotune.whole_solver_text(FILE.read_text())
    names: dict = {"__name__": "solver"}
    exec(compile(text, "solver.py", "exec"), names)
    problem = names["RunningTotal"]().generate_problem(5)
    assert names["Solver"]().solve(problem)["ends"][0] == problem.values[0]


def evaluate(task: Task, *programs: str) -> list[Observation]:
    async def run() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return [
                await backend.evaluate(Candidate.of({"solver.py": text}), task.cases[0], 1)
                for text in programs
            ]
        finally:
            await backend.close()

    return asyncio.run(run())


@pytest.mark.jail
def test_algotune_an_imported_task_scores_by_the_speed_up(imported: tuple[Path, object]) -> None:
    need("restricted")
    task = load(imported[0] / "running_total")
    assert "running totals" in task.goal and "def is_solution" in task.goal
    assert {case.split for case in task.cases} == {"train", "val", "test"}
    listed = FASTER.replace("(totals[0], totals[-1])", "[totals[0], totals[-1]]")
    first, faster, wrong = evaluate(task, task.seeds[0]["solver.py"], FASTER, listed)
    assert first.score is not None and faster.score is not None
    assert faster.score > 1.2 * first.score
    assert wrong.status is Status.INVALID and "ends is no tuple" in wrong.feedback


def test_algotune_another_folder_or_task_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no AlgoTuneTasks"):
        algotune.task_files(tmp_path, [])
    with pytest.raises(UserError) as caught:
        algotune.task_files(CHECKOUT, ["runing_total"])
    assert "running_total" in caught.value.fix


def test_algotune_folders_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "running_total").mkdir()
    ran = culmen("import", "algotune", str(CHECKOUT), "running_total", "--out", str(tmp_path))
    assert ran.returncode and "--replace" in ran.stderr
    assert not list((tmp_path / "running_total").iterdir())


def test_algotune_results_without_work_that_pass_are_named() -> None:
    task = algotune.load_task(FILE)
    problem = task.generate_problem(3)
    assert algotune.weaknesses(task, problem, task.solve(problem)) == []
    task.is_solution = lambda problem, solution: True
    assert "NaN in place of all numbers" in algotune.weaknesses(task, problem, task.solve(problem))


def test_algotune_a_check_of_each_item_alone_is_named() -> None:
    """One right item as often as there should be items.

    It is right for a check that looks at each alone.
    """
    task = algotune.load_task(FILE)
    problem = task.generate_problem(3)
    right = [1.0, 2.0, 3.0]
    task.is_solution = lambda problem, solution: (
        isinstance(solution, list)
        and len(solution) == 3
        and all(each in right for each in solution)
    )
    assert algotune.weaknesses(task, problem, right) == ["the first item in place of all"]


class LongResults:
    """A task whose results grow faster than its work."""

    def generate_problem(self, n: int, random_seed: int = 1) -> int:
        return n

    def solve(self, problem: int) -> bytes:
        return bytes(problem << 20)

    def is_solution(self, problem: int, solution: bytes) -> bool:
        return len(solution) == problem << 20


def test_algotune_sizes_leave_room_for_the_result() -> None:
    """A size is not taken for its time alone: its results must reach the clock."""
    size, _ = algotune.find_size(LongResults(), 10.0)
    assert 0 < size << 20 <= (65536 << 10) // 2


def test_algotune_prints_a_line_a_task_as_it_ends(tmp_path: Path) -> None:
    ran = culmen("import", "algotune", str(CHECKOUT), "--out", str(tmp_path), "--milliseconds", "2")
    lines = [line for line in ran.stderr.splitlines() if " of 2  " in line]
    assert [line[:6] for line in lines] == ["1 of 2", "2 of 2"]
    assert any(line.endswith(": imported") for line in lines), ran.stderr
    assert any("No module named" in line for line in lines), ran.stderr


UNSOLVED = """
import logging

from AlgoTuneTasks.base import Task, register_task


@register_task("unsolved")
class Unsolved(Task):
    def generate_problem(self, n, random_seed=1):
        return [random_seed] * n

    def solve(self, problem):
        {line}

    def is_solution(self, problem, solution):
        return solution is not None
"""


@pytest.mark.parametrize(
    "line",
    [
        "raise ValueError('The solver ECOS is not installed.')",
        "logging.error('CVXPY solver error: The solver ECOS is not installed.')",
    ],
)
def test_algotune_a_solver_that_is_not_installed_is_a_missing_package(
    tmp_path: Path, line: str
) -> None:
    """The reference lets CVXPY's error pass, or logs it and has no result."""
    place = tmp_path / "AlgoTuneTasks" / "unsolved"
    place.mkdir(parents=True)
    file = place / "unsolved.py"
    file.write_text(UNSOLVED.format(line=line))
    found = algotune.import_task(file, tmp_path / "out", 1.0)
    assert "ECOS is not installed" in found.error
    assert "the module 'ecos'" in found.fix
