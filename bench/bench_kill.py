"""Kills real runs at random instants and checks that nothing finished is lost.

Nothing is repeated, either, and the best is never wrong.

    python bench/bench_kill.py [--kills 100]

Each run is a real process with the real journal, jail and offline proposer; it is killed with
SIGKILL, resumed, killed again ..., over all strategies in turn. After every kill the journal is
read and compared with its earlier contents.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from culmen.core.evaluation import Observation
from culmen.core.event import at_least
from culmen.core.usage import Budget
from culmen.engine.driver import replay_journal
from culmen.engine.search import Search
from culmen.run.study import Study
from culmen.store.journal import SqlJournal
from culmen.strategies import catalog

TASK_TOML = """
name = "line"
goal = "Return a number as close to 3 as possible."
deterministic = {deterministic}
[seed]
files = ["main.py"]
[evaluator]
file = "evaluator.py"
"""
SEED = "A = 0.5\nB = 1.0\n\n\ndef run():\n    return A + B\n"
EVALUATOR = """
import random


def score(output, seed):
    return -abs(float(output) - 3.0) + {noise} * random.Random(seed).gauss(0, 1)
"""
RESUME = "import sys; from culmen.run.study import Study; print(Study.resume(sys.argv[1]).run())"
PER_RUN = 8  # then it may finish, so that all strategies have their turn
STRATEGIES = (
    "polca",
    "map_elites",
    "best_of_n",
    "sequential",
    "beam",
    "turboevolve",
    "openevolve",
    "gepa",
    "puct",
)


def task_folder(folder: Path, noisy: bool) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.toml").write_text(TASK_TOML.format(deterministic=str(not noisy).lower()))
    (folder / "main.py").write_text(SEED)
    (folder / "evaluator.py").write_text(EVALUATOR.format(noise=0.3 if noisy else 0.0))
    return folder


def finished(run: Path) -> dict[int, str]:
    """key -> mark of every finished effect; a key that appears twice is a repeated effect."""
    journal = SqlJournal.open(run, write=False)
    result: dict[int, str] = {}
    for event in journal.read():
        if event.entry.kind == "done":
            assert event.entry.key not in result, f"effect {event.entry.key} finished twice"
            result[event.entry.key] = event.entry.mark
    journal.close()
    return result


def check_best(run: Path) -> None:
    """The state derived from the journal agrees with the observations in it, one by one."""
    journal = SqlJournal.open(run, write=False)
    meta = journal.meta
    proposer = None
    from culmen.models.offline.proposer import OfflineProposer

    proposer = OfflineProposer()
    search = Search(
        catalog.revive_object(meta.strategy["path"], meta.strategy["config"]),
        meta.task,
        meta.budget,
        meta.seed,
        meta.workers,
        proposer,
        at_least,
    )
    replay_journal(search, journal.read(), at_least)
    totals: dict[str, list[float]] = {}
    for event in journal.read():
        seen = event.entry.result
        if (
            event.entry.kind == "done"
            and isinstance(seen, Observation)
            and seen.ok
            and not event.entry.body.get("phase")
        ):
            totals.setdefault(seen.candidate, []).append(seen.score)
    for tally in search.evidence.account.tallies():
        scores = totals.get(tally.id, [])
        assert tally.count == len(scores)
        assert not scores or abs(tally.mean - sum(scores) / len(scores)) < 1e-9
    journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    kills = parser.parse_args().kills
    rng, killed, runs, lost = random.Random(1), 0, 0, 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        while killed < kills:
            name = STRATEGIES[runs % len(STRATEGIES)]
            noisy = runs % 2 == 0
            tasks = task_folder(folder / f"task-{runs}", noisy)
            study = Study.create(
                tasks,
                name,
                budget=Budget(evaluations=80),
                random_seed=runs,
                workers=2,
                run_dir=folder / f"run-{runs}",
            )
            runs += 1
            before: dict[int, str] = {}
            here = 0
            while True:
                process = subprocess.Popen(
                    [sys.executable, "-c", RESUME, str(study.path)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                try:
                    _, errors = process.communicate(
                        timeout=rng.uniform(1.0, 3.5) if killed < kills and here < PER_RUN else None
                    )
                    assert process.returncode == 0, errors.decode()[-2000:]
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    killed, here = killed + 1, here + 1
                after = finished(study.path)
                lost += sum(1 for key, mark in before.items() if after.get(key) != mark)
                check_best(study.path)
                before = after
                if process.returncode == 0:
                    break
            kind = "noisy" if noisy else "exact"
            print(
                f"run {runs:>3} {name:<11} {kind:<6} {killed:>4} kills  {len(before)} effects",
                flush=True,
            )
    seconds = time.perf_counter() - began
    print(f"{killed} kills over {runs} runs in {seconds:.0f} s")
    print(f"{lost} finished effects lost; none repeated and every total right (asserted)")


if __name__ == "__main__":
    main()
