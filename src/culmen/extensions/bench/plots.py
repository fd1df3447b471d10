"""Plots of analyses that no page of the dashboard has; needs matplotlib.

Lines are medians over runs, bands reach from the first to the third quartile. matplotlib is
imported only with this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
from matplotlib.ticker import MaxNLocator  # pyright: ignore[reportMissingImports]

from culmen.extensions.bench.analyses import Group, Rows, Table

_WIDE, _HIGH = 5.2, 3.6  # inches of one panel
PALETTE = ("#2f5bd0", "#c2571a", "#178a5f", "#9a3fb5", "#a17808", "#0c84a3", "#c23a68", "#5f6b7a")
_BAND = 3  # number of runs from which on quartiles are shown


def draw_analyses(groups: Sequence[Group], folders: Sequence[Path]) -> list[Path]:
    """Draw the tables of replies that have rows, each group into its folder."""
    drawn: list[Path] = []
    for group, folder in zip(groups, folders):
        tables = {table.name: table for table in group.tables if table.rows}
        for name, plot in _PLOTS.items():
            if name in tables:
                drawn.append(
                    save_figure(plot(tables[name].rows, group.label), folder / f"{name}.png")
                )
    return drawn


def has_plot(table: Table) -> bool:
    """True if there is a plot of this analysis, and it has rows."""
    return table.name in _PLOTS and bool(table.rows)


def draw_table(table: Table, title: str) -> Figure:
    """The plot of an analysis of replies."""
    return _PLOTS[table.name](table.rows, title)


def _top_m_figure(rows: Rows, title: str) -> Figure:
    figure, panels = panel_figure(2, title)
    for tier in dict.fromkeys(row["tier"] for row in rows):
        chosen = [row for row in rows if row["tier"] == tier]
        for panel, name in zip(panels, ("improve", "best_gain")):
            plot_band(panel, chosen, "m", name, f"tier {tier}" if tier != "all" else "all")
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set(xlabel="m", ylabel="share with an improvement")
    panels[1].set(xlabel="m", ylabel="best gain among the first m")
    panels[0].legend(fontsize=7)
    return figure


def _ranks_figure(rows: Rows, title: str) -> Figure:
    key = next(iter(rows[0]))
    names = [
        name
        for name in ("valid", "improve", "gain", "distance")
        if any(row[name] is not None for row in rows)
    ]
    figure, panels = panel_figure(len(names), title)
    for panel, name in zip(panels, names):
        known = [row for row in rows if row[name] is not None]
        below, above = (
            [abs(row[f"{name}_{q}"] - row[name]) for row in known] for q in ("q1", "q3")
        )
        heights = [row[name] for row in known]
        style = {"capsize": 3, "color": PALETTE[0], "alpha": 0.7}
        panel.bar([str(row[key]) for row in known], heights, yerr=[below, above], **style)
        panel.set(xlabel=key, ylabel=name)
    return figure


def _heat_map_figure(rows: Rows, title: str) -> Figure:
    figure, panels = panel_figure(2, title)
    widths = sorted({row["k"] for row in rows})
    for panel, name, label in zip(panels, ("improve", "best_gain"), ("P(improve)", "E[best gain]")):
        grid = [[float("nan")] * 10 for _ in widths]
        for row in rows:
            grid[widths.index(row["k"])][row["decile"] - 1] = row[name]
        image = panel.imshow(grid, aspect="auto", origin="lower", cmap="viridis")
        panel.set(xlabel="distance decile", yticks=range(len(widths)), title=label)
        panel.set_xticks(range(10), [str(decile) for decile in range(1, 11)])
        panel.set_yticks(range(len(widths)), [f"K={width}" for width in widths])
        figure.colorbar(image, ax=panel)
    return figure


_PLOTS = {
    "top_m": _top_m_figure,
    "rank_profile": _ranks_figure,
    "rank_groups": _ranks_figure,
    "distance_by_k": _heat_map_figure,
}


def panel_figure(count: int, title: str) -> tuple[Figure, list[Any]]:
    """A figure with `count` panels, at most four in a row."""
    columns = min(count, 4)
    lines = -(-count // columns)
    figure = Figure(figsize=(_WIDE * columns, _HIGH * lines), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes: Iterable[Any] = figure.subplots(lines, columns, squeeze=False).flat
    panels = list(axes)
    for panel in panels:
        panel.set_prop_cycle(color=PALETTE)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.9", linewidth=0.7)
        panel.set_axisbelow(True)
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, panels[:count]


def plot_band(panel: Any, rows: Rows, x: str, y: str, label: str) -> None:
    """Plot a line of medians in a band from the first to the third quartile.

    There is no band for fewer than `_BAND` runs.
    """
    known = [row for row in rows if row[y] is not None]
    positions = [row[x] for row in known]
    (line,) = panel.plot(positions, [row[y] for row in known], label=label)
    if all(row.get("runs", _BAND) < _BAND for row in known):
        return
    low, high = ([row[f"{y}_{q}"] for row in known] for q in ("q1", "q3"))
    panel.fill_between(positions, low, high, alpha=0.18, color=line.get_color(), linewidth=0)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the figure in the format of the path's suffix; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
