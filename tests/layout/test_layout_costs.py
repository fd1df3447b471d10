"""Costs of culmen itself that do not depend on the machine: commits, bytes, modules."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import culmen
from culmen.testing.scripted import ScriptedModel

PROGRAM = "\n".join(f"def step_{i}(x):\n    return x * {i} + 1" for i in range(40))
PROGRAM += "\n\nVALUE = 0.0\n"
EVALUATIONS = 120


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


def test_importing_culmen_imports_little() -> None:
    code = "import sys; before = len(sys.modules); import culmen; print(len(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 40


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "most"), [("pedigree", 1.8), ("map_elites", 3.1)])
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
def test_a_status_imports_no_arrays_and_no_model_of_values(runs: dict[str, Path]) -> None:
    code = (
        "import sys; from culmen.cli.main import main; main(['status', sys.argv[1]]);"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(runs["pedigree"])],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1].split()
    assert "culmen.store.views" in loaded and len(loaded) <= 420
    assert not {"numpy", "culmen.evidence.evidence", "asyncio.base_events"} & set(loaded)
