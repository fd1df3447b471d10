"""The candidates of a bench's finished runs that other rules would report, evaluated afresh.

    culmen compare --suite polca --strategies polca,gepa --seeds 30 --budget evaluations=300 --out runs/picks
    python bench/bench_picks.py runs/picks [--times 1]        # writes picks.csv there; goes on where it was cut off

POLCA, Section 5.4 and Figure 3d: the empirical mean against five logistic regressors on embeddings,
whose highest, mean or lowest prediction ranks, for shares of the run's observations. Section D.2:
of a run of GEPA the candidate that is on most cases of its frontier, and one drawn by its number of
cases there. The value model of the default strategy is a further rule.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from culmen.extensions.bench.analyses import Rows
from culmen.extensions.bench.picks import Pick, evaluate_picks, pick_rows
from culmen.extensions.bench.records import find_runs
from culmen.store import views


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of a bench")
    parser.add_argument(
        "--times", type=int, default=1, help="evaluations of each pick on each case"
    )
    given = parser.parse_args()
    picks: list[Pick] = []
    for run in find_runs(given.folder):
        now, about = views.run_status(run), views.run_meta(run)
        if now.state == "finished":
            parts = {"model": about.model, "workers": about.workers or None}
            picks += evaluate_picks(run, run.parent.name, now.seed, given.times, **parts)
    rows = pick_rows(picks)
    print(picks_markdown(rows))
    with (given.folder / "picks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def picks_markdown(rows: Rows) -> str:
    """The table for a page of documentation."""
    heads = [
        "task",
        "strategy",
        "observations",
        "rule",
        "runs",
        "score of its pick",
        "less that of the empirical mean",
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [
            row["task"],
            f"`{row['strategy']}`",
            f"{row['share']:.0%}",
            row["rule"],
            str(row["runs"]),
        ]
        cells += [
            plus_minus(row["mean"], row["se"]),
            plus_minus(row["difference"], row["difference_se"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plus_minus(value: float | None, error: float | None) -> str:
    """A mean with its standard error, to four digits."""
    return "-" if value is None else f"{value:.4g}" + ("" if error is None else f" ± {error:.2g}")


if __name__ == "__main__":
    main()
