"""Costs of a journal of a million observations.

They are those of appending, size, resuming, views, export, vacuum, archive.

    python bench/bench_growth.py [--observations 1000000] [--cases 100] [--dir FOLDER] [--keep]
    python bench/bench_growth.py --cases 1 --strategy map_elites

A real search (map_elites, --cases to a candidate, --workers evaluations at once) on a world that
answers at once: the strategy, the engine and the journal are measured. With --cases 1 there
is a proposal to every observation. Take no more than sixty workers: each begins with a proposal,
and sixty in a row before the first evaluation end a search. Times are CPU seconds (user and system)
unless wall is given; memory is the growth of the resident set, or the peak of a process. --keep
leaves the run in FOLDER/large; where one is there, it is measured and not made again.

    python bench/bench_growth.py --resume FOLDER/large --cases 1 --source OLD/src --rounds 3

resumes that run alone, with this version and with the one in OLD/src in turn, each time in a
process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as a session does

import msgspec

import culmen
from bench_engine import PROGRAM, Instant
from culmen.core.evaluation import Case
from culmen.core.event import Entry, Event, at_least
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine.driver import Driver, replay_journal
from culmen.engine.loop import EVERY, CheckpointBarrier
from culmen.engine.search import Search
from culmen.extensions.baselines.map_elites import MapElites
from culmen.run.assemble import restore_checkpoint
from culmen.store import views
from culmen.store.archive import archive_run, stored_bytes, vacuum_store
from culmen.store.database import RunMeta
from culmen.store.journal import SqlJournal
from culmen.store.reader import JournalObservations
from culmen.store.sidecar import CheckpointFile
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.pedigree import PedigreeSearch

STRATEGIES = {
    "map_elites": MapElites(features=("complexity",)),
    "best_of_n": BestOfN(),
    "pedigree": PedigreeSearch(),
}
EXPORT = """
import resource, sys
from culmen.store.export import export_run
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
export_run(sys.argv[2], "csv", "/dev/null"); before = peak()
print(export_run(sys.argv[1], sys.argv[3], "/dev/null"), round(peak() - before, 1))
"""


class Timed:
    """A journal that notes what each append cost, in wall seconds and rows."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal, self.appends = journal, list[tuple[float, int]]()

    def append(self, entries: Sequence[Entry]) -> list[Event]:
        began = time.perf_counter()
        events = self._journal.append(entries)
        self.appends.append((time.perf_counter() - began, len(entries)))
        return events

    def __getattr__(self, name: str) -> object:
        return getattr(self._journal, name)


def task(cases: int) -> Task:
    """A task with this number of cases."""
    chosen = tuple(Case(f"case-{place}", place) for place in range(cases))
    return Task("growth", seeds=({"main.py": PROGRAM + "\n# 0.0"},), cases=chosen)


def search(folder: Path, options: argparse.Namespace, observations: int) -> Search:
    """The same search each time."""
    strategy = STRATEGIES[options.strategy]
    if not isinstance(strategy, PedigreeSearch):
        strategy = replace(strategy, batch=options.cases)
    budget, known = Budget(evaluations=observations), JournalObservations(folder)
    barrier = CheckpointBarrier(options.checkpoints, options.workers)
    return Search(
        strategy,
        task(options.cases),
        budget,
        1,
        options.workers,
        observations=known,
        barrier=barrier,
    )


class TimedFile(CheckpointFile):
    """The file of checkpoints, with the number written and their size."""

    count = size = 0

    def write(self, seq: int, state: bytes) -> None:
        super().write(seq, state)
        self.count, self.size = self.count + 1, len(state)


def grow(folder: Path, options: argparse.Namespace, observations: int) -> None:
    """Make the run, and print what appending cost as it grew."""
    meta = RunMeta(folder.name, task(options.cases), budget=Budget(evaluations=observations))
    meta = msgspec.structs.replace(meta, checkpoints=options.checkpoints)
    journal, began = Timed(SqlJournal.create(folder, meta)), time.process_time()
    made, file = search(folder, options, observations), TimedFile(folder, meta.id)
    driver = Driver(made, Instant(), journal, workers=options.workers, checkpoints=file)  # pyright: ignore[reportArgumentType]
    assert asyncio.run(driver.run()) == "finished"
    assert made.reason == "evaluations", f"ended by {made.reason}: take fewer workers"
    cpu = time.process_time() - began
    journal._journal.close()
    print(
        f"made in {cpu:.0f} s: {1000 * cpu / observations:.3f} ms an observation; {stored_bytes(folder) / 1e6:.0f} MB"
    )
    print(f"  {file.count} checkpoints, the last of {file.size / 1e6:.1f} MB")
    tenth = len(journal.appends) // 10
    for part in (0, 4, 9):
        chosen = journal.appends[part * tenth : (part + 1) * tenth]
        rows, wall = sum(n for _, n in chosen), [seconds for seconds, _ in chosen]
        median, worst = statistics.median(wall) * 1e3, statistics.quantiles(wall, n=100)[98] * 1e3
        print(
            f"  tenth {part + 1:2d}: {1e6 * sum(wall) / rows:6.1f} us a row (wall), append median {median:.2f} ms,"
            f" p99 {worst:.1f} ms"
        )


def resume(folder: Path, options: argparse.Namespace) -> None:
    """Replay from the journal, as a session begins; to be called in a fresh process."""
    journal = SqlJournal.open(folder)
    before, began, wall = peak(), os.times(), time.perf_counter()
    options.checkpoints = journal.meta.checkpoints
    again = search(folder, options, journal.meta.budget.evaluations or 0)
    after = (
        0 if options.whole else restore_checkpoint(again, CheckpointFile(folder, journal.meta.id))
    )
    gc.disable()  # as the driver does
    replayed = replay_journal(again, journal.retrace(after), at_least)
    gc.enable()
    times, wall = os.times(), time.perf_counter() - wall
    seconds = times.user + times.system - began.user - began.system
    ended = "" if again.is_done else " (unfinished)"
    print(
        f"resume{ended} after event {after:,}: {replayed.effects} effects in {seconds:.1f} s ({wall:.1f} wall),"
        f" {replayed.effects / seconds:,.0f}/s, {1e6 * seconds / max(1, replayed.effects):.1f} us each;"
        f" peak {peak():.0f} MB ({before:.0f} before) [{Path(culmen.__file__).parents[1]}]",
        flush=True,
    )


def peak() -> float:
    """The most memory this process had, in MB.

    `ru_maxrss` would count the process that started it, too.
    """
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def resumes(folder: Path, options: argparse.Namespace) -> None:
    """`resume` in processes of their own, with this version and another one in turn."""
    same = [
        "--cases",
        str(options.cases),
        "--workers",
        str(options.workers),
        "--strategy",
        options.strategy,
    ]
    same += ["--whole"] if options.whole else []
    for _ in range(options.rounds):
        for source in filter(None, (options.source, str(Path(culmen.__file__).parents[1]))):
            words = [sys.executable, __file__, "--once", "--resume", str(folder), *same]
            subprocess.run(words, check=True, env={**os.environ, "PYTHONPATH": source})


def looking(folder: Path) -> None:
    """Times of views."""
    events = views.run_status(folder).events
    some = views.candidate_rows(folder, "new", limit=1)[0].id
    asked: dict[str, Callable[[], object]] = {
        "status": lambda: views.run_status(folder),
        "candidates, best 50": lambda: views.candidate_rows(folder, limit=50),
        "table, page in the middle": lambda: views.candidate_page(
            folder, views.CandidateQuery(sort="mean", offset=5000)
        ),
        "candidate": lambda: views.candidate_detail(folder, some),
        "lineage": lambda: views.lineage_steps(folder, some),
        "log, 100 in the middle": lambda: views.log_events(folder, events // 2),
        "progress": lambda: views.progress_points(folder),
        "calls": lambda: views.call_costs(folder),
    }
    for name, ask in asked.items():
        ask()
        walls: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            ask()
            walls.append(time.perf_counter() - began)
        print(f"  {name:28s} {statistics.median(walls) * 1e3:8.1f} ms wall")


def keeping(folder: Path, small: Path) -> None:
    """Export in a process of its own, vacuum, archive."""
    for form in ("csv", "jsonl"):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", EXPORT, folder, small, form],
            check=True,
            capture_output=True,
            text=True,
        )
        count, grown = done.stdout.split()
        print(
            f"export {form}: {count} lines, {time.perf_counter() - began:.0f} s wall, memory + {grown} MB"
        )
    began = time.perf_counter()
    before, after = vacuum_store(folder)
    print(
        f"vacuum: {before / 1e6:.0f} -> {after / 1e6:.0f} MB, {time.perf_counter() - began:.0f} s wall"
    )
    began = time.perf_counter()
    made = archive_run(folder)
    print(
        f"archive: {made.before / 1e6:.0f} -> {made.after / 1e6:.0f} MB, {time.perf_counter() - began:.0f} s wall"
    )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--cases", type=int, default=100, help="evaluations of one candidate")
    parser.add_argument(
        "--dir", default=None, help="where to write (default: the temporary folder)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the run in DIR/large, or measure the one there"
    )
    parser.add_argument("--workers", type=int, default=32, help="evaluations at once")
    parser.add_argument("--strategy", default="map_elites", choices=STRATEGIES)
    parser.add_argument("--resume", type=Path, help="measure nothing but the resume of this run")
    parser.add_argument(
        "--source", help="a folder with another version's culmen, resumed in turn with this one"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each version resumes")
    parser.add_argument(
        "--checkpoints",
        type=int,
        default=EVERY,
        help="completions after which one is due, at least",
    )
    parser.add_argument(
        "--whole", action="store_true", help="resume from the first event, not from the checkpoint"
    )
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resume:
        return (resume if options.once else resumes)(options.resume, options)
    print(
        f"{os.cpu_count()} cores, load {', '.join(f'{each:.1f}' for each in os.getloadavg())}",
        flush=True,
    )
    with tempfile.TemporaryDirectory(dir=options.dir) as home:
        small, folder = Path(home) / "small", Path(options.dir if options.keep else home) / "large"
        grow(small, options, 2000)
        print(flush=True)
        if not folder.exists():
            grow(folder, options, options.observations)
        resumes(folder, options)
        options.whole = True
        resumes(folder, options)
        looking(folder)
        sys.stdout.flush()
        if not options.keep:
            keeping(folder, small)


if __name__ == "__main__":
    main()
