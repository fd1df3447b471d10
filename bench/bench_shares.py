"""Shares over the tasks of a bench: the share solved, and fast_p.

They are given as tables, and over the course of the runs.

    culmen compare --suite polca --tasks kernels --seeds 3 --out runs/kernels
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
from collections.abc import Sequence
from pathlib import Path

from culmen.extensions.bench.analyses import Rows
from culmen.extensions.bench.records import find_runs
from culmen.extensions.bench.shares import (
    METRIC,
    SuiteRun,
    is_solved,
    share_curves,
    share_rows,
    speed_ups,
)
from culmen.store import views


def read_runs(folder: Path) -> list[SuiteRun]:
    """The runs that `culmen compare` has made below its folder, TASK/STRATEGY/seed-N each."""
    runs: list[SuiteRun] = []
    for run in find_runs(folder):
        best, about, now = views.best_result(run), views.run_meta(run), views.run_status(run)
        reported = is_solved(about.task.objective, best), speed_ups(run, best)
        task, strategy = run.parent.parent.name, run.parent.name
        runs.append(SuiteRun(task, strategy, str(run), now.state, *reported))
    return runs


def share_remarks(outcomes: Sequence[SuiteRun], rows: Rows) -> list[str]:
    """Sentences on the tasks that do not count, with the reasons."""
    if not rows:
        return []
    done = [run for run in outcomes if run.state == "finished"]
    strategies = {run.strategy for run in outcomes}
    partial = {
        task
        for task in dict.fromkeys(run.task for run in outcomes)
        if {run.strategy for run in done if run.task == task} != strategies
    }
    complete = {task for task in dict.fromkeys(run.task for run in done) if task not in partial}
    aimless = {run.task for run in done if run.solved is None}
    untimed = complete - {run.task for run in done if run.speed_ups is not None}
    measures = {row["measure"] for row in rows}
    lines = [
        ("Not every strategy has a finished run, so left out of all shares", partial),
        (
            "No target stated, so left out of solved",
            complete & aimless if "solved" in measures else (),
        ),
        (
            f"No metric {METRIC} reported, so left out of fast_p",
            untimed if "fast_1" in measures else (),
        ),
    ]
    return [f"{reason}: {', '.join(sorted(tasks))}." for reason, tasks in lines if tasks]


def wide_table(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """The table with one row per strategy: headings, and rows."""
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row["strategy"], {})[row["measure"]] = _percent_text(row)
    tasks = {row["measure"]: row["tasks"] for row in rows}
    heads = ["strategy", *(f"{measure} (of {tasks[measure]})" for measure in measures)]
    return heads, [
        [strategy, *(texts[measure] for measure in measures)] for strategy, texts in cells.items()
    ]


def _percent_text(row: dict[str, float]) -> str:
    interval = "" if row["low"] is None else f" [{row['low']:.0%}, {row['high']:.0%}]"
    return f"{row['share']:.0%}{interval}"


def shares_markdown(rows: Rows) -> str:
    """The same for a page of documentation."""
    heads, cells = wide_table(rows)
    lines = [heads, ["---"] * len(heads), *([f"`{name}`", *rest] for name, *rest in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_csv(path: Path, rows: Rows) -> None:
    """Write rows under their keys."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
