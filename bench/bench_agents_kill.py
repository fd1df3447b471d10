"""Kills runs of coding agents at random instants.

No agent process survives, nothing finished is lost or repeated.

    python bench/bench_agents_kill.py [--kills 20]

Each run is a real process with the real journal, repository, queue and sandbox, and with agents
that are scripts: they ask for experiments, write notes, and leave daemons behind. It is killed with
SIGKILL, resumed, killed again ..., until it is over. After every kill the processes of the machine,
the journal and the repository are looked at.
"""

from __future__ import annotations

import argparse
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_kill import RESUME, finished, task_folder
from culmen.core.event import Custom
from culmen.core.usage import Budget
from culmen.extensions.agents.cato import Cato
from culmen.extensions.agents.sandbox.confinement import MARK, session_mark
from culmen.jail import procfs
from culmen.run.study import Study
from culmen.store.journal import SqlJournal

AGENTS = 6
AGENT = """
import json, subprocess, sys
tag = open(".agent").read().strip()
for turn in range(100):
    names = [f"candidates/{tag}/x{turn}-{k}.py" for k in range(3)]
    for k, name in enumerate(names):
        open(name, "w").write(f"def run():\\n    return {int(tag[1:])} + {turn} / 10 + {k} / 1000\\n")
    out = subprocess.run([sys.executable, "run_experiments.py", *names], capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    if len(rows) != 3 or any(row["status"] == "refused" for row in rows):
        break
    open("reflections.md", "a").write(f"{tag} turn {turn}\\n")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""


def survivors(run: Path) -> int:
    """Processes of agents that are left after a moment."""
    end = time.monotonic() + 10
    while True:
        left = sum(
            len(procfs.marked_pids(f"{MARK}={session_mark(run, agent)}\0"))
            for agent in range(AGENTS)
        )
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.01)


def tickets(run: Path) -> list[str]:
    """Of all experiments that were handed over."""
    journal = SqlJournal.open(run)
    found = [
        one["ticket"]
        for event in journal.read()
        if event.entry.kind == "done" and isinstance(event.entry.result, Custom)
        for one in event.entry.result.data.get("experiments", ())
    ]
    journal.close()
    return found


def git(run: Path, *words: str) -> list[str]:
    command = ["git", "--git-dir", str(run / "control" / "repo.git"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def attempt(folder: Path, seed: int, kills: int, rng: random.Random) -> tuple[int, int, int, int]:
    """One run: kills, finished effects lost, agent processes that survived, experiments.

    The experiments are those handed over.
    """
    strategy = Cato(
        agents=AGENTS,
        agent=f"cmd: {sys.executable} -c {shlex.quote(AGENT)}",
        experiments=12,
        idle=None,
    )
    study = Study.create(
        task_folder(folder / f"task-{seed}", False),
        strategy,
        budget=Budget(evaluations=100),
        workers=2,
        run_dir=folder / f"run-{seed}",
    )
    run, before, killed, lost, left = study.path, dict[int, str](), 0, 0, 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", RESUME, str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            _, errors = process.communicate(
                timeout=rng.uniform(0.8, 4.0) if killed < kills else None
            )
            assert process.returncode == 0, errors.decode()[-2000:]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
        left += survivors(run)
        after = finished(run)
        lost += sum(after.get(key) != name for key, name in before.items())
        before = after
        asked = tickets(run)
        assert len(asked) == len(set(asked)), "an experiment was handed over twice"
        if process.returncode == 0:
            break
    subjects = git(run, "log", "--format=%s", "trunk")
    assert len(subjects) == 1 + len(git(run, "for-each-ref", "refs/agents")), subjects
    return killed, lost, left, len(asked)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    kills, rng = parser.parse_args().kills, random.Random(1)
    total, lost, left, runs = 0, 0, 0, 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        while total < kills:
            killed, gone, alive, asked = attempt(Path(folder), runs, min(7, kills - total), rng)
            total, lost, left, runs = total + killed, lost + gone, left + alive, runs + 1
            print(f"run {runs}: {killed} kills, {asked} experiments", flush=True)
    print(f"{total} kills over {runs} runs in {time.perf_counter() - began:.0f} s")
    print(
        f"{lost} finished effects lost, {left} agent processes left; no experiment handed over twice (asserted)"
    )


if __name__ == "__main__":
    main()
