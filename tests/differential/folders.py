"""Example folders: the figure of a package's own evaluation beside that of `culmen check`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.evaluate.check import TaskReport, check_task
from culmen.evaluate.local import LocalBackend
from culmen.tasks.loading import load
from tests.differential.comparing import COMPARED, same

SECONDS = float(os.environ.get("CULMEN_SECONDS", "60"))  # for an evaluation of the package's own


def checkout(variable: str) -> Path:
    """The checkout that an environment variable names; skips without it."""
    place = os.environ.get(variable, "")
    if not place:
        pytest.skip(f"examples are in no package: name a checkout in {variable}")
    return Path(place).expanduser()


def own_figure(script: str, folder: Path, seconds: float = SECONDS) -> Any:
    """The figure that a script prints after `@@` as JSON, None without one.

    It works on a copy, which evaluations may write to. Raises TimeoutExpired.
    """
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(folder, Path(place, folder.name))
        command = [sys.executable, "-c", script, str(copy)]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, cwd=copy
        )
    return json.loads(run.stdout.rpartition("@@")[2]) if "@@" in run.stdout else None


def report_of(folder: Path) -> TaskReport | str:
    """The report of `culmen check`, or the reason why there is none."""
    try:
        task = load(folder)
        return asyncio.run(check_task(task, LocalBackend(task, 1), 1, case_limit=1))
    except UserError as error:
        return str(error)


def compare(script: str, folder: Path, seconds: float = SECONDS) -> str:
    """Compare one folder; returns the outcome in a few words."""
    try:
        figure = own_figure(script, folder, seconds)
    except subprocess.TimeoutExpired:
        return f"passed over: not within {seconds:g} s here"
    if figure is None:
        return "passed over: no figure here"
    report = report_of(folder)
    assert isinstance(report, TaskReport), f"{folder}: {figure}, here {report}"
    (seed,) = report.seeds
    if seed.mean is None:  # on purpose: no score beside words that say that it failed
        (named,) = (each.what for each in report.findings if " is refused: " in each.what)
        assert f"it scores {figure:.6g}, but its evaluator reports " in named
        COMPARED["folders: the figure, and the words by which it is refused"] += 1
        return f"refused by its words, {figure}"
    if seed.mean != figure and own_figure(script, folder, seconds) != figure:
        return f"passed over: not the same figure twice ({figure}, here {seed.mean})"
    same("folders: the figure of check", figure, seed.mean, folder.name)
    return f"the same figure, {figure}"


def run(command: list[str], folder: Path) -> str:
    """The output of a command in a folder; fails with its words."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def outcome_of(told: str) -> str:
    """The outcome of a comparison without its figures."""
    return re.split(r", | \(", told)[0]
