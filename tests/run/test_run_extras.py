"""Packages that only extras bring: a verb that lacks one names it before anything is made.

The message states how to install it.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_WITHOUT = """
import sys
sys.modules |= dict.fromkeys({missing!r})  # as where they are not installed
from culmen.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without(missing: set[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`culmen arguments` in an interpreter that finds none of these packages."""
    command = [sys.executable, "-c", _WITHOUT.format(missing=sorted(missing)), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "area"
    folder.mkdir()
    (folder / "program.py").write_text("def run():\n    return 2.5\n")
    (folder / "evaluator.py").write_text("def score(output):\n    return -abs(output - 3.14)\n")
    (folder / "task.toml").write_text('goal = "Near pi."\n[seed]\nfiles = ["program.py"]\n')
    return folder


def test_a_plain_installation_has_all_that_the_demo_needs():
    """`pip install culmen && culmen demo`: cma is no extra.

    The extra of its old name adds nothing.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(requirement.startswith("cma") for requirement in project["dependencies"])
    assert project["optional-dependencies"]["offline"] == []


@pytest.mark.extension("bench")
def test_a_comparison_names_the_extra_it_lacks_before_it_runs_anything(task: Path):
    making = [
        "--tasks",
        "area",
        "--strategies",
        "polca,beam",
        "--seeds",
        "2",
        "--budget",
        "evaluations=10",
    ]
    ran = without({"scipy"}, task.parent, "compare", *making)
    assert ran.returncode == 2
    told = " ".join(ran.stderr.split())
    assert (
        "needs the package scipy, which is not installed" in told
        and "pip install 'culmen[compare]'" in told
    )
    assert not (task.parent / "runs").exists()


@pytest.mark.extension("bench")
@pytest.mark.parametrize(("missing", "extra"), [("sklearn", "pools"), ("scipy", "compare")])
def test_a_bench_names_the_extra_it_lacks_before_it_runs_anything(
    missing: str, extra: str, tmp_path: Path
):
    """A pool of more programs than islands is clustered, which needs scikit-learn.

    The tests of a comparison need scipy.
    """
    strategies = "best_of_n,turboevolve(pool=erdos_min_overlap)"
    making = [
        "--tasks",
        "erdos_min_overlap",
        "--strategies",
        strategies,
        "--seeds",
        "1",
        "--budget",
        "evaluations=100",
    ]
    ran = without({missing}, tmp_path, "compare", *making, "--out", "out")
    told = " ".join(ran.stderr.split())
    assert (
        ran.returncode == 2
        and f"pip install 'culmen[{extra}]'" in told
        and not (tmp_path / "out").exists()
    )


@pytest.mark.slow
@pytest.mark.jail
@pytest.mark.extension("builtin")
def test_the_default_strategy_and_a_packing_task_run_without_scipy(tmp_path: Path):
    ran = without({"scipy"}, tmp_path, "demo", "--run-dir", "a", "--seconds", "10")
    assert (ran.returncode, ran.stderr.count("Traceback")) == (0, 0), ran.stderr


@pytest.mark.extension("mcp")
def test_the_server_for_coding_agents_names_its_extra(tmp_path: Path):
    ran = without({"mcp"}, tmp_path, "mcp")
    assert ran.returncode == 2 and "pip install 'culmen[mcp]'" in ran.stderr
