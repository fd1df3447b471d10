"""Certified results of a plain optimiser on the mathematical tasks.

They are the level that a search has to be shown against.

The task's file in bench/baselines runs in two processes with seeds of their own, for 60 seconds of
processor time each (wall time on an idle machine); both results are certified by the task's exact
verifier. Also prints the time that the verifiers of the analytic tasks take on long functions.

    python bench/bench_baselines.py [--seconds 60] [--task NAME ...] [--seed 0] [--out DIR]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from culmen.tasks import example_path, load

TASKS = (
    "first_autocorr_ineq",
    "second_autocorr_ineq",
    "uncertainty_ineq",
    "circle_packing",
    "erdos_min_overlap",
    "heilbronn_triangle",
    "min_max_distance_ratio",
)
BASELINES = Path(__file__).parent / "baselines"
LONG = {"first_autocorr_ineq": 30_000, "second_autocorr_ineq": 30_000, "erdos_min_overlap": 20_000}


def module(task: str, name: str) -> Any:
    """A module of a task's folder, or its baseline; each process imports those of one task only."""
    sys.path[:0] = [str(BASELINES), str(example_path(task))]
    return importlib.import_module(name)


def baseline(task: str, seed: int, seconds: float) -> dict[str, Any]:
    """Run and certify one baseline."""
    output = module(task, task).optimise(seed, seconds)
    return module(task, "verify").certify(output) | {"output": output}


def long_function(task: str, steps: int) -> float:
    """Seconds to certify a random function of this number of steps."""
    draw = random.Random(0)
    heights = [draw.random() for _ in range(steps)]
    if task == "erdos_min_overlap":
        heights = [0.5 + (h - 0.5) / 10 for h in heights]
        heights += [1 - h for h in heights]  # the integral is 1
        heights = heights[: steps // 2] + heights[steps : steps + steps // 2]
    started = time.perf_counter()
    module(task, "verify").certify(heights)
    return time.perf_counter() - started


def compare(tasks: Iterable[str], seed: int, seconds: float, out: Path | None) -> None:
    """Print one line for each task; write the better output to `out`/TASK.json."""
    print(f"{'task':24}{'initial program':>15}{'baseline':>22}{'other seed':>22}  repaired")
    for task in tasks:
        objective = load(example_path(task)).objective
        with get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
            found = pool.starmap(
                baseline, [(task, seed, seconds), (task, seed + 1, seconds)], chunksize=1
            )
        found.sort(key=lambda result: -objective.reward(result["score"]))
        best, other = (result["score"] for result in found)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{task}.json").write_text(json.dumps(found[0]["output"]))
        print(
            f"{task:24}{objective.start:>15.9g}{best:>22.16g}{other:>22.16g}  {found[0]['repaired'] or '-'}",
            flush=True,
        )


def time_verifiers(tasks: Iterable[str]) -> None:
    """One line for each task with long outputs."""
    for task in tasks:
        if task in LONG:
            with get_context("spawn").Pool(1) as pool:
                took = pool.apply(long_function, (task, LONG[task]))
            print(f"{task}: {LONG[task]:,} steps certified in {took:.2f} s")


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="processor time of each of the two processes"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--task", action="append", choices=TASKS, help="only this task (may be repeated)"
    )
    parser.add_argument("--out", type=Path, help="folder for the better outputs, one file a task")
    chosen = parser.parse_args()
    tasks = chosen.task or TASKS
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = (
            "1"  # one core means one core; the processes read these when they import numpy
        )
    print(
        f"two processes, {chosen.seconds:g} s of processor time each, python {sys.version.split()[0]}"
    )
    compare(tasks, chosen.seed, chosen.seconds, chosen.out)
    time_verifiers(tasks)


if __name__ == "__main__":
    main()
