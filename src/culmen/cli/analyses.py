"""The page of `culmen analyze`: of every table what fits on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from culmen.cli.screen import Screen
from culmen.observe.figures import count, number

if TYPE_CHECKING:
    from culmen.report.analyze import Group
    from culmen.report.analyze_table import Rows, Table

_COUNTS = ("runs", "barrier", "times", "requests", "candidates", "evaluations", "m", "k", "decile", "rank")
_PAGE = 5  # rows of a series
_LONG = ("width_by_island", "rank_profile")  # in the files only
_CHOSEN = {  # columns, of tables that have more than fit
    "training": ("barrier", "alpha", "reward", "failed", "entropy", "grad_norm", "kl", "gap_max", "skipped", "alarmed"),
}


def show(screen: Screen, groups: Sequence[Group]) -> None:
    """Print all groups."""
    if any(len(group.runs) > 1 for group in groups):
        screen.line("Median over runs (first to third quartile).", style="dim")
    for group in groups:
        scores = f", scores {group.trust}" if group.trust else ""
        screen.rule(f"{group.label}, {count(len(group.runs), 'run')}{scores}")
        for table in group.tables:
            if table.skipped:
                screen.line(f"{table.title}: skipped, {table.skipped}", style="dim")
            elif table.name not in _LONG:
                _table(screen, table, several=len(group.runs) > 1)


def _table(screen: Screen, table: Table, several: bool) -> None:
    screen.line()
    screen.heading(table.title)
    for note in table.notes:
        screen.line(note, style="dim")
    rows = _few(table)
    known = [name for name in rows[0] if not name.endswith(("_q1", "_q3"))]
    columns = [name for name in _CHOSEN.get(table.name, known) if name in known]
    cells = [[_cell(row, name, several) for name in columns] for row in rows]
    headings = [name.replace("_", " ") for name in columns]
    screen.table(headings, cells, right=" ".join(columns))


def _few(table: Table) -> Rows:
    """All rows of a short table; of tiers only all together, of a series some at equal steps, the last included."""
    rows = [row for row in table.rows if row.get("tier", "all") == "all"]
    if "k" in rows[0] and "decile" in rows[0]:
        return _by_k(rows)
    step = -(-len(rows) // _PAGE)
    return rows if len(rows) <= 2 * _PAGE else rows[::-1][::step][::-1]


def _by_k(rows: Rows) -> Rows:
    """Near, middle and far of every K: the table by deciles is for the files."""
    from culmen.report.analyze_table import mean

    thirds = {"near (1-3)": range(1, 4), "middle (4-7)": range(4, 8), "far (8-10)": range(8, 11)}
    told: Rows = []
    for k in sorted({row["k"] for row in rows}):
        for name, deciles in thirds.items():
            chosen = [row for row in rows if row["k"] == k and row["decile"] in deciles]
            if chosen:
                means = {column: mean(row[column] for row in chosen) for column in ("improve", "best_gain")}
                told.append({"k": k, "deciles": name, **means, "requests": sum(row["requests"] for row in chosen)})
    return told


def _cell(row: dict[str, Any], name: str, several: bool) -> str:
    value = row[name]
    if value is None or isinstance(value, str):
        return value or "-"
    if name in _COUNTS:
        return f"{value:,}"
    low, high = row.get(f"{name}_q1"), row.get(f"{name}_q3")
    if not several or low is None or high is None:
        return number(float(f"{value:.5g}"))
    return f"{_brief(value)} ({_brief(low)} to {_brief(high)})"


def _brief(value: float) -> str:
    return number(float(f"{value:.4g}"))
