"""Shares over the tasks of a bench: the share solved, and fast_p; as tables, and over the course of the runs.

    culmen bench polca --tasks kernels --seeds 3 --out runs/kernels
    python bench/bench_shares.py runs/kernels          # writes shares.csv and shares_by_steps.csv there

A task is solved by a run whose reported candidate reaches the task's target, with its certified
value if the task has a verifier. fast_p is KernelBench's (Ouyang et al. 2025): the share of
problems that are right and more than p times as fast as the baseline, by the evaluator's metric
`speed_up`. A task's cases are problems; a task without cases is one. Tasks count alike, and so do
the runs of a task.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from culmen.bench.analyses import Rows
from culmen.bench.shares import METRIC, read_runs, share_curves, share_remarks, share_rows, shares_markdown


def write_csv(path: Path, rows: Rows) -> None:
    """Write rows under their keys."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a bench")
    folder = parser.parse_args().folder
    outcomes = read_runs(folder)
    rows = share_rows(outcomes)
    if not rows:
        raise SystemExit(f"no task of {folder} has a target or reports the metric {METRIC}")
    print(shares_markdown(rows))
    for remark in share_remarks(outcomes, rows):
        print(remark)
    write_csv(folder / "shares.csv", rows)
    write_csv(folder / "shares_by_steps.csv", share_curves(outcomes))


if __name__ == "__main__":
    main()
