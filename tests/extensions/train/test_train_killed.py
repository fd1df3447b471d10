"""SIGKILL in the middle of a barrier, and in the middle of an update.

The weights afterwards are the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'train' is not installed")

from culmen.store.journal import SqlJournal

TOML = """
name = "peak"
goal = "Return a number near 7."
deterministic = true
[objective]
target = 0.0
[seed]
parts = { "program.py" = "def run():\\n    return 3.0 + 0.5 * 2\\n" }
"""
EVALUATOR = "def score(output):\n    return -((output - 7.0) ** 2)\n"


def session(folder: Path, when: str = "", *policy: str) -> int:
    """One process of the run; its exit code, negative for a signal."""
    command = [
        sys.executable,
        "-m",
        "tests.extensions.train.trained_run",
        str(folder),
        when,
        *policy,
    ]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=1800, check=False, env=os.environ
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def weights(folder: Path) -> dict[str, str]:
    """Digest of every file of every checkpoint, without the time that an update took."""
    files = [
        path
        for path in sorted((folder / "run" / "policy").rglob("*.pt"))
        if ".partial" not in str(path)
    ]
    return {f"{p.parent.name}/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


TIMES = ("seconds", "tokens_per_second")


def barriers(folder: Path):
    with SqlJournal.open(folder / "run") as journal:
        bodies = [
            event.entry.body
            for event in journal.read()
            if event.entry.body.get("note") == "barrier"
        ]
    return [{name: value for name, value in body.items() if name not in TIMES} for body in bodies]


def tasks(folder: Path) -> None:
    """The task twice: for a run that is killed, and for one that is not."""
    for name in ("whole", "killed"):
        task = folder / name / "task"
        task.mkdir(parents=True)
        for file, text in {"task.toml": TOML, "evaluator.py": EVALUATOR}.items():
            (task / file).write_text(text)


@pytest.mark.timeout(1800)
def test_a_run_with_relaxed_barriers_killed_between_its_updates_ends_in_the_same_weights(tmp_path):
    tasks(tmp_path)
    assert session(tmp_path / "whole", "", "stale") == 0
    assert (
        session(tmp_path / "killed", "done evaluate 5", "stale") == -signal.SIGKILL
    )  # two groups side by side
    assert (
        session(tmp_path / "killed", "done train.update 1", "stale") == -signal.SIGKILL
    )  # the second one is stale
    assert session(tmp_path / "killed", "", "stale") == 0
    told = barriers(tmp_path / "whole")
    assert [body["behind"] for body in told[:2]] == [0, int(not told[0]["skip"])]
    assert {body["behind"] for body in told} == {0, 1} and max(
        body.get("ratio_max", 0) for body in told
    ) > 1
    assert barriers(tmp_path / "killed") == told
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


@pytest.mark.timeout(1800)
def test_a_run_killed_in_a_barrier_and_in_an_update_ends_in_the_same_weights(tmp_path):
    tasks(tmp_path)
    with ThreadPoolExecutor(1) as beside:
        whole = beside.submit(session, tmp_path / "whole")
        assert (
            session(tmp_path / "killed", "done evaluate 6") == -signal.SIGKILL
        )  # the second barrier is half done
        assert (
            session(tmp_path / "killed", "started train.update 1") == -signal.SIGKILL
        )  # asked for, not answered
        assert session(tmp_path / "killed") == 0
        assert whole.result() == 0
    told = barriers(tmp_path / "whole")
    assert (
        len(told) >= 4 and sum(not body["skip"] for body in told) >= 2
    )  # there was something to learn
    assert barriers(tmp_path / "killed") == told
    kept = weights(tmp_path / "whole")
    assert (
        weights(tmp_path / "killed") == kept
        and len({d for n, d in kept.items() if "weights" in n}) > 2
    )
