"""The offline demo, three seeds: results of `culmen demo` in a minute on two workers.

The minute includes the start-up.

    python bench/bench_demo.py                            # seeds 0, 1, 2
    python bench/bench_demo.py --seeds 10 --strategy polca
    python bench/bench_demo.py --run map_elites --seconds 50     # another strategy, through `culmen run`

Every run is a process of its own, so the seconds printed are what a person waits. Evaluations end
the demo, so any machine finds the same for a seed; the load average shows whether it had the
machine to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOAL, LIMIT = 2.5, 60.0


def main() -> None:
    """Run the seeds one after another and print a table and its spread."""
    options = _options()
    print(f"{'seed':>4} {'start':>8} {'best':>8} {'seconds':>8} {'evaluations':>11}   load before")
    rows = [measure(options, seed) for seed in range(options.first, options.first + options.seeds)]
    best, seconds = [row["best"] for row in rows], [row["seconds"] for row in rows]
    reached = sum(row["best"] >= GOAL and row["seconds"] <= LIMIT for row in rows)
    print(f"best: {min(best):.4f} .. {max(best):.4f}, median {statistics.median(best):.4f}")
    print(
        f"seconds: {min(seconds):.1f} .. {max(seconds):.1f}; {reached} of {len(rows)} at {GOAL} within {LIMIT:.0f} s"
    )


def measure(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One run in a process of its own."""
    load, begun = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [*_command(options, seed), "--run-dir", str(Path(folder) / "run")]
        run = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - begun
    if run.returncode:
        raise SystemExit(run.stderr.decode() or run.stdout.decode())
    found = json.loads(run.stdout)
    row = {"best": found["best"]["score"], "seconds": seconds, "evaluations": found["evaluations"]}
    start = found.get("seed_score") or float("nan")
    print(
        f"{seed:4} {start:8.4f} {row['best']:8.4f} {seconds:8.1f} {row['evaluations']:11}   {load:.2f}",
        flush=True,
    )
    return row


def _command(options: argparse.Namespace, seed: int) -> list[str]:
    culmen = [sys.executable, "-m", "culmen.cli.main"]
    common = ["--seed", str(seed), "--workers", "2", "--json"]
    if not options.run:
        limit = ["--seconds", str(options.seconds)] if options.seconds else []
        return [*culmen, "demo", "--strategy", options.strategy, *limit, *common]
    from culmen.tasks import example_path

    task, budget = str(example_path("circle_packing")), f"seconds={options.seconds or 55}"
    return [
        *culmen,
        "run",
        task,
        "--strategy",
        options.run,
        "--model",
        "offline",
        "--budget",
        budget,
        *common,
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument(
        "--seconds", type=float, help="the run's budget (default: none for the demo, else 55)"
    )
    parser.add_argument(
        "--strategy", default="pedigree", help="the demo's strategy (default pedigree)"
    )
    parser.add_argument("--run", default="", help="run this strategy instead of the demo")
    return parser.parse_args()


if __name__ == "__main__":
    main()
