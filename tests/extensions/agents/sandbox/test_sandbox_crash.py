"""The process that runs a search with agents is killed.

No agent survives, nothing finished is lost or repeated.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from culmen.core.event import Custom
from culmen.core.usage import Budget
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.sandbox.confinement import MARK, session_mark
from culmen.jail import procfs
from culmen.run.study import Study
from culmen.store.journal import SqlJournal
from tests.extensions.agents.sandbox.grounds import need_confinement

pytestmark = [pytest.mark.jail, pytest.mark.slow, pytest.mark.timeout(900)]

TASK = """
name = "line"
goal = "Return a number as close to 3 as possible."
deterministic = true
[seed]
files = ["main.py"]
[evaluator]
file = "evaluator.py"
"""
AGENT = """
import json, subprocess, sys
tag, done = open(".agent").read().strip(), 0
for turn in range(100):
    names = []
    for k in range(3):
        names.append(f"candidates/{tag}/x{turn}-{k}.py")
        open(names[-1], "w").write(f"def run():\\n    return {int(tag[1:])} + {turn} / 10 + {k} / 1000\\n")
    out = subprocess.run([sys.executable, "run_experiments.py", *names], capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 3
    if any(row["status"] == "refused" for row in rows):
        break
    open("reflections.md", "a").write(f"{tag} turn {turn}\\n")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
RESUME = "import sys; from culmen.run.study import Study; print(Study.resume(sys.argv[1]).run())"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A run of several agents that never stop by themselves."""
    need_confinement()
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.toml").write_text(TASK)
    (task / "main.py").write_text("def run():\n    return 0.0\n")
    (task / "evaluator.py").write_text("def score(output):\n    return -abs(float(output) - 3.0)\n")
    strategy = Cato(
        agents=8, agent=f"cmd: {sys.executable} -c {shlex.quote(AGENT)}", experiments=9, idle=None
    )
    return Study.create(
        task, strategy, budget=Budget(evaluations=100), workers=2, run_dir=tmp_path / "run"
    )


def living(run: Path) -> list[int]:
    """Processes of any agent of a run."""
    return [
        pid
        for agent in range(8)
        for pid in procfs.marked_pids(f"{MARK}={session_mark(run, agent)}\0")
    ]


def until(
    true: Callable[[], bool], process: subprocess.Popen[bytes] | None = None, seconds: float = 300.0
) -> bool:
    """Wait for a condition; give up when the process ends, or when far too much time has passed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        if process is not None and process.poll() is not None:
            return true()
        time.sleep(0.005)
    raise AssertionError("waited in vain")


def finished(run: Path) -> dict[int, str]:
    """key -> mark of every finished effect; a key that stands twice is a repeated effect."""
    found: dict[int, str] = {}
    journal = SqlJournal.open(run)
    for event in journal.read():
        if event.entry.kind == "done":
            assert event.entry.key not in found
            found[event.entry.key] = event.entry.mark
    journal.close()
    return found


def asked(run: Path) -> Iterator[str]:
    """Tickets that were handed over, in order."""
    journal = SqlJournal.open(run)
    for event in journal.read():
        if event.entry.kind == "done" and event.entry.effect == "session.wait":
            assert isinstance(event.entry.result, Custom)
            yield from (one["ticket"] for one in event.entry.result.data.get("experiments", ()))
    journal.close()


def rows(run: Path) -> list[dict[str, object]]:
    """The history as agents read it; a line that is being written is left out."""
    try:
        lines = (run / "view" / "past_experiments.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_sessions_killed_again_and_again(study: Study) -> None:
    run = study.path
    before, have = dict[int, str](), 0
    for kill in range(4):
        process = subprocess.Popen([sys.executable, "-c", RESUME, str(run)], stdout=subprocess.PIPE)
        have = max(have, len(rows(run)))
        if not until(lambda: len(rows(run)) >= have + 2 + 3 * kill, process):  # noqa: B023 (called at once)
            break  # it was over before we came to kill it
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert until(lambda: not living(run))
        if kill == 1:  # what agents read is made anew from the journal
            shutil.rmtree(run / "view" / "programs")
            (run / "view" / "past_experiments.jsonl").write_text('{"torn')
        after = finished(run)
        assert before.items() <= after.items()
        before = after
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(run)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and "finished" in done.stdout, done.stderr
    assert not living(run)
    assert before.items() <= finished(run).items()
    tickets = list(asked(run))
    assert len(tickets) == len(set(tickets)) > 10
    history = [str(row["ticket"]) for row in rows(run)]
    assert len(history) == len(set(history)) and set(tickets) <= set(history)
    programs = {path.name for path in (run / "view" / "programs").iterdir()}
    assert programs == {str(row["candidate"]) for row in rows(run) if row["status"] != "refused"}
    git = ["git", "--git-dir", str(run / "control" / "repo.git"), "log", "--format=%s", "trunk"]
    subjects = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(subjects) == 9 and all(
        line.startswith(f"Agent a{7 - n:02d}") for n, line in enumerate(subjects[:-1])
    )
    git[3:] = ["ls-tree", "-r", "--name-only", "trunk"]
    files = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "candidates/a00/x0-0.py" in files  # of an agent that was killed
    assert not any(path.startswith("conflicts") for path in files)
