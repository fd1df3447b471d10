"""Runs whose candidates are in a container, killed, resumed and forked.

They are what they would have been.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from culmen.core.evaluation import Observation
from culmen.store import views
from culmen.store.journal import SqlJournal
from tests.evaluate.conftest import wait_until
from tests.extensions.containers.test_container_jail import TASK, culmen, orphans

pytestmark = [pytest.mark.container, pytest.mark.timeout(300)]
WORDS = ("--isolation", "container", "--workers", "1", "--quiet")
SLOW = "import time\ndef score(output):\n    time.sleep(0.15)\n    return -abs(output - 30.0)\n"


@pytest.fixture
def task(tmp_path: Path, podman: str) -> Path:
    """One whose evaluations take a while, so that a kill comes between them."""
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "task.toml").write_text(f"deterministic = true\n{TASK.format(image=podman)}")
    (folder / "program.py").write_text("def run():\n    x = 1.0\n    return x * 2.0\n")
    (folder / "evaluator.py").write_text(SLOW)
    return folder


def results(run: Path) -> list[tuple[str, str, Any]]:
    """The finished effects of a run, in its order; no two runs measure the same seconds."""
    with SqlJournal.open(run, write=False) as journal:
        done = [event.entry for event in journal.read(whole=True) if event.entry.kind == "done"]
    return [
        (each.mark, each.effect, each.result.score if isinstance(each.result, Observation) else "")
        for each in done
    ]


def container_of(pid: int) -> str:
    """The container in which a run's candidates are, by the lock that its owner holds."""
    held = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    return next(
        Path(file).stem for file in held if re.search(r"/culmen-container-\w+\.lock$", file)
    )


def killed(task: Path, run: Path) -> None:
    """Begin a run and kill it.

    After some evaluations end its container, then the run and all that it has started.
    """
    line = [
        sys.executable,
        "-m",
        "culmen.cli.main",
        "run",
        str(task),
        "--run-dir",
        str(run),
        *WORDS,
    ]
    process = subprocess.Popen(
        [*line, "--budget", "evaluations=8"], cwd=task.parent, start_new_session=True
    )

    def evaluated(number: int) -> bool:
        assert process.poll() is None, "the run is over"
        return (run / "journal.db").exists() and views.run_status(run).evaluations >= number

    try:
        assert wait_until(lambda: evaluated(2), 60.0)
        subprocess.run(
            ["podman", "kill", container_of(process.pid)], check=True, capture_output=True
        )
        assert wait_until(lambda: evaluated(4), 60.0)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_forked_as_if_nothing_had_been(
    task: Path, tmp_path: Path
) -> None:
    whole, broken, fork = tmp_path / "whole", tmp_path / "broken", tmp_path / "fork"
    ran = culmen(
        "run",
        str(task),
        "--run-dir",
        str(whole),
        *WORDS,
        "--budget",
        "evaluations=8",
        folder=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    killed(task, broken)
    assert (
        views.run_status(broken).state == "interrupted"
        and 4 <= views.run_status(broken).evaluations < 8
    )
    resumed = culmen("resume", str(broken), "--isolation", "container", "--quiet", folder=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert results(broken) == results(whole)
    assert culmen("runs", "replay", str(broken), folder=tmp_path).returncode == 0

    forked = culmen("runs", "fork", str(broken), "--run-dir", str(fork), *WORDS, folder=tmp_path)
    assert forked.returncode == 0, forked.stderr
    assert results(fork) == results(whole) and views.run_meta(fork).isolation == "container"
    assert wait_until(lambda: orphans() == [], 60.0)
