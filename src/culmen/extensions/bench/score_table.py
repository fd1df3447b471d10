"""Table of the scores of strategies on one task, for benches and comparisons alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from culmen.cli.screen import Screen
from culmen.report.figures import number_text, score_with_margin

if TYPE_CHECKING:
    from culmen.extensions.bench.compare import StrategyFigures, TaskComparison
    from culmen.extensions.bench.stats import Estimate

MEANS = ["mean", "median", "IQM"]
"""Heads of the figures over all runs of a strategy."""


def show_scores(screen: Screen, part: TaskComparison) -> None:
    """Print each strategy's best result with its margin, and figures over its runs.

    The best of several runs is a lucky one: the figures over all of them stand beside it.
    """
    on, nothing = any(row.on for row in part.rows), any(row.nothing for row in part.rows)
    heads = [
        "strategy",
        "runs",
        *(["found nothing"] if nothing else []),
        *(["on"] if on else []),
        "best",
        *MEANS,
    ]
    cells = [
        [
            row.strategy,
            run_count(row),
            *([f"{row.nothing} of {row.runs}"] if nothing else []),
            *([row.on] if on else []),
            number_text(row.best)
            if not row.margin or row.best is None
            else score_with_margin(row.best, row.margin, part.bounds),
            *map(estimate_text, (row.mean, row.median, row.iqm)),
        ]
        for row in part.rows
    ]
    screen.print_table(heads, cells, right=["runs", "found nothing", "on", "best"])


def run_count(row: StrategyFigures) -> str:
    """`3`, or `2 of 3` if a run has no value."""
    return str(row.runs) if row.valued == row.runs else f"{row.valued} of {row.runs}"


def estimate_text(estimate: Estimate) -> str:
    """`0.52 [0.48, 0.57]`: an estimate with its interval."""
    if estimate.low is None or estimate.high is None:
        return short_number(estimate.value)
    low, high = short_number(estimate.low), short_number(estimate.high)
    return f"{short_number(estimate.value)} [{low}, {high}]"


def short_number(value: float | None) -> str:
    """A number in few digits; `-` for none."""
    return "-" if value is None else number_text(float(f"{value:.4g}"))
