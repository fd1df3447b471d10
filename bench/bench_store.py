"""Figures of the journal: time per evaluation, file size, replay speed, times of views.

Time per evaluation is CPU and wall time.

Usage: python bench/bench_store.py [--large] [--dir FOLDER]. An evaluation is a new candidate of 3
kB (a note), its `started` row and its `done` row. --large adds 1,000,000 observations (minutes, 2
GB).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, Origin
from culmen.core.evaluation import Observation, Status
from culmen.core.event import Entry
from culmen.core.task import Task
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.runs import Digest
from culmen.store import views
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal

TEXT = "".join(f"def f{i}(x):\n    return x * {i}\n" for i in range(100))


def entries(evaluations: int, fresh: float, seed: int = 1) -> Iterator[list[Entry]]:
    """The entries of one evaluation after the other.

    A share `fresh` of them is of a new candidate.
    """
    chance, pool = random.Random(seed), list[Candidate]()
    for key in range(evaluations):
        made: list[Entry] = []
        if not pool or chance.random() < fresh:
            parent = (chance.choice(pool).id,) if pool else ()
            pool.append(
                Candidate.of({"main.py": f"{TEXT}x = {key}\n"}, parent, Origin("rewrite", "model"))
            )
            note = {"note": "candidates"}
            made.append(
                Entry("note", key, effect="candidates", body=note, result=Proposal((pool[-1],)))
            )
        place = chance.randrange(len(pool)) if fresh < 1 else len(pool) - 1
        score = (place % 997) / 997 + chance.gauss(0, 0.1)
        metrics = {"speed": 1.5, "size": 2.0}
        seen = Observation(
            pool[place].id,
            Status.OK,
            score,
            metrics=metrics,
            feedback="ok " * 30,
            seed=key,
            trust="verified",
        )
        mark = f"{key:016x}"
        made.append(Entry("started", key, mark, "evaluate", elapsed=key / 10))
        made.append(Entry("done", key, mark, "evaluate", result=seen, elapsed=key / 10))
        yield made


def write(
    folder: Path, evaluations: int, batch: int, fresh: float = 1.0
) -> tuple[float, float, list[float]]:
    """Write a run; CPU seconds, wall seconds, and the wall time of each append.

    Making the entries is not counted.
    """
    journal = SqlJournal.create(folder, RunMeta(folder.name, Task("bench")))
    source, cpu, walls = entries(evaluations, fresh), 0.0, list[float]()
    while group := [entry for _, made in zip(range(batch), source) for entry in made]:
        began, wall = time.process_time(), time.perf_counter()
        journal.append(group)
        cpu += time.process_time() - began
        walls.append(time.perf_counter() - wall)
    journal.close()
    return cpu, sum(walls), walls


def writing(home: Path) -> None:
    """CPU, wall time and size by batch."""
    print("batch  CPU ms/eval  wall ms/eval  evals/s  rows/s  append ms median / p99  bytes/eval")
    for batch, evaluations in ((1, 500), (2, 1000), (8, 4000), (32, 8000)):
        folder = home / f"write-{batch}"
        cpu, wall, walls = write(folder, evaluations, batch)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        p99 = statistics.quantiles(walls, n=100)[98]
        print(
            f"{batch:5d}  {cpu / evaluations * 1e3:11.3f}  {wall / evaluations * 1e3:12.3f}  {evaluations / wall:7.0f}"
            f"  {5 * evaluations / wall:6.0f}  {statistics.median(walls) * 1e3:10.2f} / {p99 * 1e3:6.2f}"
            f"  {size / evaluations:14.0f}"
        )
    for evaluations in (200, 1000, 10_000):
        cpu, _, _ = write(home / f"flat-{evaluations}", evaluations, 8)
        print(
            f"batches of 8, {evaluations:6d} evaluations: {cpu / evaluations * 1e3:.3f} CPU ms each"
        )


def reading(home: Path, observations: int) -> None:
    """Replay speed and view times on a run of this number of observations.

    One candidate in five of them is new.
    """
    folder = home / f"views-{observations}"
    write(folder, observations, 64, fresh=0.2)
    began = time.process_time()
    events = sum(1 for _ in SqlJournal.open(folder).read())
    seconds = time.process_time() - began
    print(
        f"\n{observations} observations, {views.run_status(folder).candidates} candidates, {events} events;",
        end=" ",
    )
    print(f"replay reads {events / seconds:,.0f} events/s, {observations / seconds:,.0f} effects/s")
    some = views.candidate_rows(folder, "new", limit=1)[0].id
    asked: dict[str, Callable[[], object]] = {
        "status": lambda: views.run_status(folder),
        "best": lambda: views.best_result(folder),
        "candidates best, first 50": lambda: views.candidate_rows(folder),
        "candidates new, first 50": lambda: views.candidate_rows(folder, "new"),
        "candidate": lambda: views.candidate_detail(folder, some),
        "lineage": lambda: views.lineage_steps(folder, some),
        "log, 100 from the middle": lambda: views.log_events(folder, events // 2),
        "log, 100 states": lambda: views.log_events(folder, kinds=["state"]),
        "calls": lambda: views.call_costs(folder),
        "progress": lambda: views.progress_points(folder),
        "overview": lambda: page_makers()["overview"](Digest(folder), {}),
        "table": lambda: page_makers()["candidates"](Digest(folder), {}),
        "table by mean": lambda: page_makers()["candidates"](Digest(folder), {"sort": "mean"}),
    }
    for name, ask in asked.items():
        walls: list[float] = []
        cpu = time.process_time()
        ask()
        first = time.process_time() - cpu
        cpu = time.process_time()
        for _ in range(5):
            began = time.perf_counter()
            ask()
            walls.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / 5
        wall = statistics.median(walls) * 1e3
        print(f"  {name:28s} {wall:8.1f} ms, {cpu * 1e3:7.1f} ms CPU, {first * 1e3:7.1f} at first")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 1,000,000 observations")
    parser.add_argument(
        "--dir", default=None, help="where to write (default: the temporary folder)"
    )
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(dir=options.dir))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}")
    try:
        writing(home)
        for observations in (20_000, 200_000, *((1_000_000,) if options.large else ())):
            reading(home, observations)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
