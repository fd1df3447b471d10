"""Folders of open-galapagos by a seeded draw: the evaluator's figure beside that of `check`.

CULMEN_FOLDERS is the number that is compared (200 by default). AlgoTune's tasks are left out: their
figures are measured times. A folder is passed over if its evaluator raises here, takes more than a
minute, or gives another figure the second time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.evaluate.check import TaskReport, check_task
from culmen.evaluate.local import LocalBackend
from culmen.tasks.loading import load
from tests.differential.comparing import COMPARED, same

galapagos = pytest.importorskip("galapagos", reason="python -m tests.differential")

FOLDERS = int(os.environ.get("CULMEN_FOLDERS", "200"))
TASKS = Path(galapagos.__file__).parent / "tasks"
SECONDS = 60
OWN = """
import importlib.util, json, os, sys
evaluator, program = sys.argv[1:]
sys.path.insert(0, os.path.dirname(evaluator))
spec = importlib.util.spec_from_file_location("evaluator", evaluator)
module = sys.modules["evaluator"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found = module.evaluate(program)
print("\\n@@" + json.dumps(getattr(found, "metrics", found)["combined_score"]))
"""

pytestmark = pytest.mark.timeout(0)


def own_figure(folder: Path) -> Any:
    """The `combined_score` of the folder's evaluator for its first program, None without one."""
    (program,) = folder.glob("initial_program.*")
    command = [sys.executable, "-c", OWN, str(folder / "evaluator.py"), str(program)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(run.stdout.rpartition("@@")[2]) if "@@" in run.stdout else None


def report_of(folder: Path) -> TaskReport | str:
    """The report of `culmen check`, or the reason why there is none."""
    task = load(folder)
    try:
        return asyncio.run(check_task(task, LocalBackend(task, 1), 1, case_limit=1))
    except UserError as error:
        return str(error)


def compare(folder: Path) -> str:
    """Compare one folder; returns the outcome in a few words."""
    figure = own_figure(folder)
    if figure is None:
        return "passed over: no figure here"
    report = report_of(folder)
    assert isinstance(report, TaskReport), f"{folder.name}: {figure}, here {report}"
    (seed,) = report.seeds
    if seed.mean is None:  # on purpose: no score beside words that say that it failed
        (named,) = (each.what for each in report.findings if " is refused: " in each.what)
        assert f"it scores {figure:.6g}, but its evaluator reports " in named
        COMPARED["folders: the figure, and the words by which it is refused"] += 1
        return "the figure, refused by its words"
    if seed.mean != figure and own_figure(folder) != figure:
        return "passed over: not the same figure twice"
    same("folders: the figure of check", figure, seed.mean, folder.name)
    return "the same figure"


def test_check_gives_the_evaluators_own_figure() -> None:
    found = sorted(path.parent.name for path in TASKS.glob("*/card.yaml"))
    names = [name for name in found if not name.startswith("algotune_")]
    random.Random(48).shuffle(names)
    outcomes: Counter[str] = Counter()
    for name in names:
        outcomes[compare(TASKS / name)] += 1
        compared = sum(COMPARED.values())
        print(f"{compared:>3}", name, dict(outcomes), flush=True)
        if compared == FOLDERS:
            return
    pytest.fail(f"only {sum(COMPARED.values())} folders can be compared here")
