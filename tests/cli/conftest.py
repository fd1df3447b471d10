"""A small task, one finished run of it, and the command as a real process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TOML = """\
name = "peak"
goal = "Return the number 7."
deterministic = true

[seed]
files = ["guess.py"]

[evaluator]
file = "evaluator.py"
form = "call"
entry = "run"
packages = []

[objective]
direction = "max"
start = -16.0
bounds = [-1e9, 0.0]

[limits]
seconds = 20
memory_mb = 512
"""
SEED = "def run():\n    return 3.0\n"
EVALUATOR = (
    "def score(output):\n"
    "    return {'score': -(output - 7.0) ** 2, 'metrics': {'off': abs(output - 7.0)}, 'feedback': f'got {output}'}\n"
)


@dataclass
class Done:
    """A finished process."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Place:
    """A working folder with tasks and runs."""

    root: Path

    def culmen(self, *arguments: str, **environment: str) -> Done:
        """Run one command line here, as a process of its own."""
        command = [sys.executable, "-m", "culmen.cli.main", *arguments]
        env = {**os.environ, "COLUMNS": "80", "HOME": str(self.root), **environment}
        done = subprocess.run(
            command, cwd=self.root, env=env, capture_output=True, text=True, timeout=120
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def here(self, *arguments: str) -> Done:
        """The same inside this process: quick, for commands that need no process of their own."""
        from culmen.cli.main import main

        out, err = (
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
        )
        with (
            contextlib.chdir(self.root),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(arguments)
        return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # pyright: ignore

    def task(
        self, name: str, seed: str = SEED, evaluator: str = EVALUATOR, toml: str = TOML
    ) -> Path:
        """Write a task folder."""
        folder = self.root / name
        folder.mkdir()
        (folder / "task.toml").write_text(toml)
        (folder / "guess.py").write_text(seed)
        (folder / "evaluator.py").write_text(evaluator)
        return folder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty working folder."""
    return Place(tmp_path)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A working folder with the task `peak` and its finished run `first`; tests only read it."""
    place = Place(tmp_path_factory.mktemp("cli"))
    place.task("peak")
    made = place.culmen(
        "run",
        "peak",
        "--budget",
        "evaluations=14",
        "--seed",
        "1",
        "--run-dir",
        "runs/first",
        "--json",
    )
    assert made.code == 0, made.err + made.out
    return place
