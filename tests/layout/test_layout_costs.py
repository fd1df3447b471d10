"""Costs of culmen itself that do not depend on the machine: commits, bytes, modules."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import culmen
from culmen.report.story import keep_way
from culmen.testing.scripted import ScriptedModel

ROOT = Path(__file__).parents[2]
PROGRAM = "\n".join(f"def step_{i}(x):\n    return x * {i} + 1" for i in range(40))
PROGRAM += "\n\nVALUE = 0.0\n"
EVALUATIONS = 120
MODULES = {"--help": 250, "--version": 250}


def scripted_model() -> ScriptedModel:
    """A model that answers at once with another number in the program."""
    draws = random.Random(1)

    def answer(call) -> str:
        line = f"VALUE = {draws.gauss(0.5, 0.3)!r}"
        old = re.findall("^VALUE = .*$", call.prompt, re.MULTILINE)
        if "<<<<<<< SEARCH" in call.prompt and old:
            return f"<<<<<<< SEARCH\n{old[-1]}\n=======\n{line}\n>>>>>>> REPLACE\n"
        return f"```python\n{PROGRAM.replace('VALUE = 0.0', line)}```\n"

    return ScriptedModel(answer)


def score(text: str) -> float:
    """The nearer to 1 the better, with noise."""
    found = re.search("^VALUE = (.*)$", text, re.MULTILINE)
    return -abs(1.0 - float(found[1])) + random.gauss(0, 0.05) if found else -9.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of each strategy."""
    made: dict[str, Path] = {}
    for strategy in ("pedigree", "map_elites"):
        made[strategy] = tmp_path_factory.mktemp("runs") / strategy
        culmen.optimize(
            PROGRAM,
            score,
            strategy=strategy,
            model=scripted_model(),
            budget=culmen.Budget(evaluations=EVALUATIONS),
            workers=2,
            run_dir=made[strategy],
            progress=False,
        )
    return made


COUNTED = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import culmen
from tests.layout.test_layout_costs import EVALUATIONS, PROGRAM, score, scripted_model

counts = {{"sql": 0, "_run_once": 0}}

def count(frame, event, called):
    if event == "call" and frame.f_code.co_name == "_run_once":
        counts["_run_once"] += 1
    elif event == "c_call" and type(called.__self__).__module__ == "sqlite3":
        counts["sql"] += called.__name__ in ("execute", "executemany")

threading.setprofile(count)
sys.setprofile(count)
budget = culmen.Budget(evaluations=EVALUATIONS)
asked = dict(strategy=sys.argv[1], model=scripted_model(), budget=budget, workers=2)
culmen.optimize(PROGRAM, score, run_dir=sys.argv[2], progress=False, **asked)
sys.setprofile(None)
print(counts["sql"] / EVALUATIONS, counts["_run_once"] / EVALUATIONS)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "sql", "turns"), [("pedigree", 20, 11), ("map_elites", 20, 11)]
)
def test_calls_of_the_database_and_turns_of_the_event_loop(
    tmp_path: Path, strategy: str, sql: float, turns: float
) -> None:
    """An evaluation takes few of both, whatever else the machine does.

    Database calls rise from 12-14 alone to 17 beside three of its kind: fewer share a commit.
    """
    command = [sys.executable, "-c", COUNTED, strategy, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    calls, looped = map(float, done.stdout.split()[-2:])
    assert 0 < calls <= sql and 0 < looped <= turns


@pytest.mark.parametrize("words", ["--help", "--version"])
def test_help_imports_little(words: str) -> None:
    code = (
        "import sys; from culmen.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: print(*sys.modules)\n"
        "else: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, words], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "culmen.cli.main" in loaded and len(loaded) <= MODULES[words]
    assert not {"numpy", "sqlite3", "asyncio"} & loaded


STARTED = """
import culmen, os, sys, threading

first = threading.Lock()

def answer(prompt):
    first.acquire()  # calls are made side by side, one of them prints
    print(*sys.modules, flush=True)
    os._exit(0)

asked = dict(model=answer, budget=culmen.Budget(evaluations=9), progress=False)
culmen.optimize("VALUE = 1.0", lambda text: 1.0, run_dir=sys.argv[1], **asked)
"""


def test_a_start_loads_little_until_the_first_model_call(tmp_path: Path) -> None:
    """Readers of replies, of task folders and of runs wait until they are needed."""
    command = [sys.executable, "-c", STARTED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "culmen.models.caller" in loaded and len(loaded) <= 490
    late = (
        "core.replies.forms",
        "tasks.loading",
        "store.views.listing",
        "evaluate.integrity.pushing",
    )
    assert not {f"culmen.{name}" for name in late} & loaded


def test_importing_culmen_imports_little() -> None:
    code = "import sys; before = len(sys.modules); import culmen; print(len(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 40


def test_a_plain_install_has_few_packages_and_no_pydantic() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, wanted = {"culmen"}, [Requirement(line) for line in project["dependencies"]]
    while wanted:
        need = wanted.pop()
        if need.name not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
            found.add(need.name)
            wanted += [Requirement(line) for line in distribution(need.name).requires or ()]
    assert len(found) <= 24 and not {"pydantic", "genai-prices"} & found, found


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "most"), [("pedigree", 1.8), ("map_elites", 2.2)])
def test_commits_an_evaluation(runs: dict[str, Path], strategy: str, most: float) -> None:
    """A call's start is committed with the result that it follows from, on a slow machine, too."""
    with sqlite3.connect(runs[strategy] / "journal.db") as connection:
        (commits,) = connection.execute("SELECT count(DISTINCT time) FROM event").fetchone()
    assert commits / EVALUATIONS <= most


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "most"), [("pedigree", 4_500), ("map_elites", 5_500)])
def test_bytes_an_evaluation(runs: dict[str, Path], strategy: str, most: int) -> None:
    files = [each for each in runs[strategy].rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) / EVALUATIONS <= most


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["status", "best", "story"])
def test_readers_of_a_finished_run_import_no_arrays_and_no_model_of_values(
    runs: dict[str, Path], verb: str
) -> None:
    keep_way(runs["pedigree"])
    code = "import sys; from culmen.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, verb, str(runs["pedigree"])],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "culmen.store.views" in loaded and len(loaded) <= 360
    assert not {"numpy", "culmen.evidence.evidence", "asyncio.base_events"} & set(loaded)
