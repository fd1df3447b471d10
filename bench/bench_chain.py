"""Cost of a journal's hash chain: an append with and without it, and its check.

    python bench/bench_chain.py [--observations 200000] [--source OLD/src --rounds 5]

CPU seconds (user and system). --source names another version's `src`, whose appends are timed in
turn with this one's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_store import write
from culmen.store import views

APPENDS, FRESH = 3000, 0.05  # evaluations of a round; share of those with a new candidate


def append_cost() -> float:
    """CPU microseconds an evaluation, appended one by one."""
    with tempfile.TemporaryDirectory() as home:
        cpu, _, _ = write(Path(home) / "run", APPENDS, 1, FRESH)
    return 1e6 * cpu / APPENDS


def compare(source: str, rounds: int) -> None:
    """Appends of another version and of this one, in turn, each in a process of its own."""
    found: dict[str, list[float]] = {source: [], str(Path(views.__file__).parents[3]): []}
    for _ in range(rounds):
        for version, costs in found.items():
            words = [sys.executable, __file__, "--once"]
            where = {**os.environ, "PYTHONPATH": version}
            costs.append(
                float(
                    subprocess.run(
                        words, check=True, capture_output=True, text=True, env=where
                    ).stdout
                )
            )
    for version, costs in found.items():
        print(
            f"append: {statistics.median(costs):6.1f} us an evaluation, {min(costs):.1f} at least [{version}]"
        )
    before, after = found.values()
    ratios = sorted(new / old for old, new in zip(before, after, strict=True))
    print(
        f"  ratio of the pairs: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}"
    )


def timed(what: str, ask: Callable[[], object]) -> None:
    """Print the CPU and wall seconds of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    ask()
    print(
        f"  {what:44s} {time.process_time() - cpu:7.3f} s CPU, {time.perf_counter() - wall:7.3f} s wall",
        flush=True,
    )


def checks(observations: int) -> None:
    """The check of a long run, and what asks for none."""
    from culmen.store.journal import SqlJournal

    with tempfile.TemporaryDirectory() as home:
        run = Path(home) / "run"
        write(run, observations, 64, FRESH)
        print(f"{observations:,} observations, {views.last_seq(run):,} events:", flush=True)
        timed("check", lambda: SqlJournal.open(run).check())
        timed("open to resume, which checks", lambda: SqlJournal.open(run, write=True).close())
        timed("status", lambda: views.run_status(run))
        timed("status again", lambda: views.run_status(run))


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--observations", type=int, default=200_000)
    parser.add_argument("--source", help="a folder with another version's culmen")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(append_cost())
        return
    print(
        f"{os.cpu_count()} cores, load {', '.join(f'{each:.1f}' for each in os.getloadavg())}",
        flush=True,
    )
    if options.source:
        compare(options.source, options.rounds)
    checks(options.observations)


if __name__ == "__main__":
    main()
