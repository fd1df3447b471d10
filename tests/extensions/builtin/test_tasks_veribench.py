"""Python to Lean: inert without Lean.

The three steps with a script in its place, called what it is: a stand-in.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from culmen.tasks import load, write_new
from tests.tasks.folder import modules

STAND_IN = '#!/bin/sh\nif grep -q broken "$1"; then echo "error: broken"; exit 1; fi\n'


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_new(tmp_path / "task", "veribench")
    (tmp_path / "tool" / "bin").mkdir(parents=True)
    lean = tmp_path / "tool" / "bin" / "lean"
    lean.write_text(STAND_IN)
    lean.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lean.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "task"


def scored(folder: Path, lean: str, says: str = "8") -> dict[str, Any]:
    (evaluator,) = modules(folder, "evaluator")
    ask = lambda text, role, **options: SimpleNamespace(text=says)  # noqa: E731
    return evaluator.score({"program.lean": lean}, load(folder).cases[0], ask)


def test_without_lean_it_says_so(tmp_path: Path) -> None:
    write_new(tmp_path / "task", "veribench")
    run = [sys.executable, "evaluator.py"]
    done = subprocess.run(
        run, cwd=tmp_path / "task", env={"PATH": "/none"}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "veribench needs lean on PATH" in done.stderr


@pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap")
def test_three_steps_and_what_is_refused(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"python importing\.py"):
        scored(copied, "def x := 1")
    (tmp_path / "double.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "tests.lean").write_text("-- tests\n")
    subprocess.run(
        [sys.executable, "importing.py", tmp_path / "double.py", tmp_path / "tests.lean"],
        cwd=copied,
        check=True,
    )
    assert json.loads((copied / "cases.jsonl").read_text())["id"] == "double"
    whole = scored(copied, "def double (x : Nat) := 2 * x")
    assert whole["score"] == pytest.approx(2.8 / 3) and whole["metrics"] == {
        "compiles": 1.0,
        "tests": 1.0,
        "judge": 0.8,
    }
    assert scored(copied, "def double := broken")["score"] == 0.0
    for trick in (
        "theorem t : False := by sorry",
        "axiom a : False",
        "example : 1 = 2 := by native_decide",
    ):
        found = scored(copied, trick)
        assert found["score"] == 0.0 and "refused" in found["feedback"]
    (tmp_path / "tests.lean").write_text("broken\n")
    subprocess.run(
        [sys.executable, "importing.py", tmp_path / "double.py", tmp_path / "tests.lean"],
        cwd=copied,
        check=True,
    )
    assert scored(copied, "def double (x : Nat) := 2 * x")["score"] == pytest.approx(1 / 3)
