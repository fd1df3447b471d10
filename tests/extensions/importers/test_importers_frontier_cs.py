"""`culmen import frontier-cs`: task folders of a miniature checkout.

culmen runs and judges them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.importers import frontier_cs
from culmen.tasks.loading import load
from tests.evaluate.conftest import need

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
CHECKOUT = Path(__file__).parents[2] / "fixtures" / "frontier_cs"
GREEDY = (CHECKOUT / "algorithmic" / "solutions" / "3" / "some-model_1.cpp").read_text()


def culmen(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, object]]]:
    out = tmp_path_factory.mktemp("frontier") / "tasks"
    ran = culmen("import", "frontier-cs", str(CHECKOUT), "--out", str(out), "--json")
    assert ran.returncode == 1, ran.stderr  # two of the three cannot be imported
    return out, {each["name"]: each for each in json.loads(ran.stdout)}


def evaluate(task: Task, programs: dict[str, str]) -> dict[str, list[Observation]]:
    async def run() -> dict[str, list[Observation]]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return {
                name: [
                    await backend.evaluate(Candidate.of({"solution.cpp": text}), case, 1)
                    for case in task.cases
                ]
                for name, text in programs.items()
            }
        finally:
            await backend.close()

    return asyncio.run(run())


def test_frontier_each_problem_that_cannot_be_imported_names_the_change(
    imported: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    done = imported[1]
    assert list(done) == ["3", "12", "40"]
    assert "interactive" in str(done["12"]["error"]) and "leave it out" in str(done["12"]["fix"])
    assert "'soon'" in str(done["40"]["error"]) and str(done["40"]["fix"]).endswith(
        "40/config.yaml"
    )
    assert done["3"]["error"] == "" and "2 of its 3 tests are public" in done["3"]["notes"]  # type: ignore[operator]


def test_frontier_outputs_are_judged_by_the_checker(
    imported: tuple[Path, dict[str, dict[str, object]]],
) -> None:
    need("namespaces")
    task = load(imported[0] / "3")
    assert (task.limits.seconds, [case.id for case in task.cases]) == (2.0, ["1", "2"])
    print_text = '#include <cstdio>\nint main() {{ std::puts("{}"); }}\n'
    programs = {
        "greedy": GREEDY,
        "first": print_text.format("1 1"),
        "twice": print_text.format("2 1 1"),
        "letters": print_text.format("many"),
        "broken": "int main() { return }\n",
    }
    found = evaluate(task, programs)
    assert [o.score for o in found["greedy"]] == [1.0, 1.0]
    assert found["greedy"][1].metrics["unbounded"] == pytest.approx(1.5)
    assert [o.score for o in found["first"]] == pytest.approx([5 / 14, 0.1], abs=1e-6)
    assert [o.score for o in found["twice"]] == [0.0, 0.0]
    assert "position 1 comes twice" in found["twice"][0].feedback
    assert [o.score for o in found["letters"]] == [0.0, 0.0]
    assert {o.status for o in found["broken"]} == {Status.ERROR}


@pytest.mark.slow
def test_frontier_recorded_programs_become_a_bank(
    imported: tuple[Path, dict[str, dict[str, object]]], tmp_path: Path
) -> None:
    task = imported[0] / "3"
    assert sorted(path.parent.name for path in task.glob("bank/*/*.cpp")) == ["other", "some-model"]
    words = (
        "--model",
        f"bank:{task / 'bank'}",
        "--budget",
        "evaluations=16",
        "--run-dir",
        str(tmp_path / "run"),
    )
    ran = culmen("run", str(task), *words, "--json", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["best"]["score"] == 1.0


def test_frontier_a_checker_that_fails_is_no_fault_of_the_output(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "testlib.h", tmp_path)
    shutil.copy(CHECKOUT / "algorithmic" / "problems" / "3" / "chk.cc", tmp_path)
    frontier_cs.compile_checker(tmp_path / "chk.cc", tmp_path / "checker")
    assert frontier_cs.judge_output(tmp_path, "2\n3 4\n", "1 2", "4\n")["score"] == 1.0
    with pytest.raises(RuntimeError, match="status 3"):
        frontier_cs.judge_output(tmp_path, "2\n3 4\n", "1 2", "no number\n")


@pytest.mark.parametrize(
    ("settings", "seconds", "memory"),
    [
        ("time: 2s\nmemory: 4g", 2.0, 4096),
        ("time: 500ms\nmemory: 64m", 0.5, 1024),
        ("time_limit: 1500\nmemory_limit: 2097152", 1.5, 2048),
    ],
)
def test_frontier_limits_are_read_in_their_units(
    tmp_path: Path, settings: str, seconds: float, memory: int
) -> None:
    folder = tmp_path / "1"
    shutil.copytree(CHECKOUT / "algorithmic" / "problems" / "3", folder)
    (folder / "config.yaml").write_text(settings)
    problem = frontier_cs._Problem(folder)
    assert (problem.seconds, problem.memory_mb) == (seconds, memory)


def test_frontier_a_checker_that_does_not_compile_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    shutil.copytree(CHECKOUT / "algorithmic" / "problems" / "3", folder)
    (folder / "chk.cc").write_text("#include <testlib.h>\nint main() { return nothing; }\n")
    done = frontier_cs.import_problem(folder, tmp_path / "task", CHECKOUT / "testlib.h")
    assert "'nothing' was not declared" in done.error.replace("‘", "'").replace("’", "'")


def test_frontier_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no problem of Frontier-CS"):
        frontier_cs.problem_folders(tmp_path, [])
    with pytest.raises(UserError, match="there is no problem '4'"):
        frontier_cs.problem_folders(CHECKOUT, ["4"])
    with pytest.raises(UserError, match=r"testlib\.h"):
        frontier_cs.find_header(tmp_path, tmp_path / "testlib.h")
