"""The page of `culmen compare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culmen.cli.screen import Screen
from culmen.observe.figures import count, dollars, number

if TYPE_CHECKING:
    from culmen.report.compare import Comparison, Overall, Pair, Part, Row
    from culmen.report.compare_stats import Estimate

_SOME = (0, 1, 2, 4, 9)  # best of 1, 2, 3, 5, 10


def show(screen: Screen, made: Comparison, done: bool, files: Sequence[str] = ()) -> None:
    """Print it: task by task, then over tasks, then in sentences."""
    screen.line(f"Figures with {made.confidence:.0%} bootstrap intervals over runs.", style="dim")
    for part in made.tasks:
        _task(screen, part)
        _shared(screen, part.rows, made.thresholds)
        _pairs(screen, part.pairs)
    if made.overall is not None:
        _overall(screen, made.overall, made.thresholds)
    for file in files:
        screen.line(f"Drew {file}")
    for remark in made.remarks:
        screen.note(remark)
    if not done:
        screen.note("Cut off: the same command goes on.")


def _task(screen: Screen, part: Part) -> None:
    scale, aim = part.scale, part.target
    way = "maximise" if part.direction == "max" else "minimise"
    screen.rule(f"{part.task}, {way}, {part.basis}")
    heads = ["strategy", "runs", "best", "mean", "median", "IQM"]
    cells = [
        [row.strategy, _runs(row), number(row.best), *map(_estimate, (row.mean, row.median, row.iqm))]
        for row in part.rows
    ]
    screen.table(heads, cells, right="runs best")
    if aim.score is not None:
        screen.line(f"To {number(aim.score)}, {aim.origin}:")
        heads = ["strategy", "reached", "evaluations", "per success", "dollars", "per success "]
        screen.table(heads, [_reach(row) for row in part.rows], right=" ".join(heads[1:]))
    screen.line(
        f"Common scale: 0 is {number(scale.start)} ({scale.start_from}), 1 is {number(scale.reference)} "
        f"({scale.reference_from})."
    )


def _overall(screen: Screen, overall: Overall, thresholds: Sequence[float]) -> None:
    screen.rule(f"over {count(len(overall.tasks), 'task')} on the common scale: {', '.join(overall.tasks)}")
    heads = ["strategy", "runs", "best", "mean", "median", "IQM"]
    cells = [
        [row.strategy, _runs(row), _short(row.best), *map(_estimate, (row.mean, row.median, row.iqm))]
        for row in overall.rows
    ]
    screen.table(heads, cells, right="runs best")
    _shared(screen, overall.rows, thresholds)
    _pairs(screen, overall.pairs)


def _shared(screen: Screen, rows: Sequence[Row], thresholds: Sequence[float]) -> None:
    """Best of n, and profiles."""
    most = max(len(row.best_of) for row in rows)
    marks = sorted({place for place in (*_SOME, most - 1) if place < most})
    screen.line("On the common scale: IQM, and expected best of n runs:")
    heads = ["strategy", "IQM", *(f"best of {place + 1}" for place in marks)]
    cells = [
        [
            row.strategy,
            _estimate(row.normalised),
            *(_short(row.best_of[place]) if place < len(row.best_of) else "-" for place in marks),
        ]
        for row in rows
    ]
    screen.table(heads, cells)
    screen.line("Share of runs at or above a level of it:")
    heads = ["strategy", *(f"{mark:g}" for mark in thresholds)]
    screen.table(
        heads, [[row.strategy, *(f"{share:.0%}" for share in row.profile)] for row in rows], " ".join(heads[1:])
    )


def _pairs(screen: Screen, pairs: Sequence[Pair]) -> None:
    """Sentences: who is better where the data can tell, then where they cannot."""
    for pair in sorted(pairs, key=lambda pair: not pair.apart):
        screen.line(pair.sentence, style="bold" if pair.apart else "")


def _runs(row: Row) -> str:
    return str(row.runs) if row.valued == row.runs else f"{row.valued} of {row.runs}"


def _reach(row: Row) -> list[str]:
    reach = row.reach
    assert reach is not None
    counts = [_short(value) for value in (reach.evaluations, reach.expected_evaluations)]
    money = ["-" if value is None else dollars(value) for value in (reach.dollars, reach.expected_dollars)]
    return [row.strategy, f"{reach.reached} of {row.runs}", *counts, *money]


def _estimate(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return _short(found.value)
    return f"{_short(found.value)} [{_short(found.low)}, {_short(found.high)}]"


def _short(value: float | None) -> str:
    return "-" if value is None else number(float(f"{value:.4g}"))
