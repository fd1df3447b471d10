"""Plots of the tables, in the colours of the dashboard (`static/style.css`).

Lines are medians over runs, bands reach from the first to the third quartile. Needs matplotlib,
which is imported only with this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
from matplotlib.ticker import MaxNLocator  # pyright: ignore[reportMissingImports]

from culmen.bench.analyses import Group, Rows, Table, best_so_far
from culmen.bench.compare import Comparison, StrategyFigures, Target
from culmen.bench.records import BUDGETS, Axis, ComparedRun

_WIDE, _HIGH = 5.2, 3.6  # inches of one panel
PALETTE = ("#2f5bd0", "#c2571a", "#178a5f", "#9a3fb5", "#a17808", "#0c84a3", "#c23a68", "#5f6b7a")
_BAND = 5  # number of runs from which on quartiles are shown


def draw_analyses(groups: Sequence[Group], folders: Sequence[Path], out: Path) -> list[Path]:
    """Draw all tables that have rows.

    Best-so-far curves show all strategies of a task together, all other plots one group.
    """
    drawn = [
        path
        for task in dict.fromkeys(group.task for group in groups)
        for path in _draw_best_by_budget(task, groups, out)
    ]
    for group, folder in zip(groups, folders):
        tables = {table.name: table for table in group.tables if table.rows}
        for name, plot in _PLOTS.items():
            if name in tables:
                drawn.append(
                    save_figure(plot(tables[name].rows, group.label), folder / f"{name}.png")
                )
    return drawn


def _draw_best_by_budget(task: str, groups: Sequence[Group], out: Path) -> list[Path]:
    """Best so far of every strategy on one task, one panel for each known budget."""
    alike = [group for group in groups if group.task == task]
    axes = [
        axis
        for axis in ("evaluations", "dollars", "seconds")
        if any(_best_table(group, axis) for group in alike)
    ]
    if not axes:
        return []
    figure, panels = panel_figure(len(axes), f"{task}: best so far")
    for panel, axis in zip(panels, axes):
        for group in alike:
            table = _best_table(group, axis)
            if table is not None:
                plot_band(
                    panel,
                    table.rows,
                    axis,
                    "score",
                    group.label.removeprefix(f"{task} "),
                    steps=True,
                )
        panel.set(xlabel=axis, ylabel="score")
    panels[0].legend(fontsize=7)
    return [save_figure(figure, out / f"{task.replace('/', '-')}-best.png")]


def _best_table(group: Group, axis: str) -> Table | None:
    return next(
        (table for table in group.tables if table.name == f"best_by_{axis}" and table.rows), None
    )


def _coverage_figure(rows: Rows, title: str) -> Figure:
    figure, (left, right) = panel_figure(2, title)
    plot_band(left, rows, "evaluations", "cells")
    plot_band(right, rows, "evaluations", "quality")
    left.set(xlabel="evaluations", ylabel="cells taken")
    right.set(xlabel="evaluations", ylabel="mean reward of their occupants")
    return figure


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


def _width_figure(rows: Rows, title: str) -> Figure:
    figure, (panel,) = panel_figure(1, title)
    plot_band(panel, rows, "evaluations", "k")
    panel.set(xlabel="evaluations", ylabel="K, mean over islands")
    return figure


def _islands_figure(rows: Rows, title: str) -> Figure:
    """One panel per run, one line per island."""
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure, panels = panel_figure(len(runs), title)
    for panel, run in zip(panels, runs):
        for island in sorted({row["island"] for row in rows}):
            steps = [row for row in rows if row["run"] == run and row["island"] == island]
            x, y = [row["evaluations"] for row in steps], [row["k"] for row in steps]
            panel.step(x, y, where="post", label=f"island {island}", alpha=0.8)
        panel.set(xlabel="evaluations", ylabel="K", title=run)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].legend(fontsize=7)
    return figure


def _training_figure(rows: Rows, title: str) -> Figure:
    """Curves of training as in the paper, and further diagnostics, as far as recorded."""
    known = [
        (names, label) for names, label in _CURVES if any(_has_values(rows, name) for name in names)
    ]
    figure, panels = panel_figure(len(known), title)
    for panel, (names, label) in zip(panels, known):
        for name in filter(partial(_has_values, rows), names):
            plot_band(panel, rows, "barrier", name, name.replace("_", " "))
        panel.set(xlabel="barrier", ylabel=label)
        if len(names) > 1:
            panel.legend(fontsize=7)
    return figure


_CURVES = (
    (("reward", "reward_max"), "reward of the decisions"),
    (("entropy",), "entropy, nats per token"),
    (("grad_norm",), "gradient norm before clipping"),
    (("kl",), "KL of an update"),
    (("spread_rewards", "spread_group", "spread_frontier"), "spread in a group"),
    (("failed", "at_worst", "at_best", "different"), "share of the decisions"),
    (("clip_low", "clip_high"), "share of tokens clipped"),
    (("gap_mean", "gap_max"), "gap of log-probabilities"),
    (("alpha",), "alpha"),
    (("tokens_per_second",), "tokens trained on per second"),
)


def _has_values(rows: Rows, name: str) -> bool:
    return any(row.get(name) is not None for row in rows)


_PLOTS = {
    "training": _training_figure,
    "coverage": _coverage_figure,
    "top_m": _top_m_figure,
    "rank_profile": _ranks_figure,
    "rank_groups": _ranks_figure,
    "distance_by_k": _heat_map_figure,
    "width": _width_figure,
    "width_by_island": _islands_figure,
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


def plot_band(
    panel: Any, rows: Rows, x: str, y: str, label: str = "", *, steps: bool = False
) -> None:
    """Plot a line of medians in a band from the first to the third quartile.

    There is no band for fewer than `_BAND` runs. `steps`: each value holds until the next one, as
    in a best-so-far curve.
    """
    known = [row for row in rows if row[y] is not None]
    positions, style = [row[x] for row in known], {"drawstyle": "steps-post"} if steps else {}
    (line,) = panel.plot(positions, [row[y] for row in known], label=label or y, **style)
    if all(row.get("runs", _BAND) < _BAND for row in known):
        return
    low, high = ([row[f"{y}_{q}"] for row in known] for q in ("q1", "q3"))
    how = "post" if steps else None
    panel.fill_between(
        positions, low, high, alpha=0.18, color=line.get_color(), linewidth=0, step=how
    )


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the figure in the format of the path's suffix; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


# Plots of a comparison: best so far (median and quartiles over runs), and performance profiles.

_SMALL = 7  # points of a legend's letters


def draw_comparison(
    comparison: Comparison, groups: Mapping[str, Mapping[str, Sequence[ComparedRun]]], out: Path
) -> list[Path]:
    """Draw SVG files of a comparison into `out`; return their paths.

    `TASK-best` and `TASK-profile` for every task, and `overall-profile` over tasks. `groups` are
    the runs by task and strategy, as from `compare.finished_contenders`.
    """
    axes = BUDGETS if comparison.axis in BUDGETS else (comparison.axis, *BUDGETS)
    drawn: list[Path] = []
    for part in comparison.tasks:
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in part.task)
        drawn += _draw_best_so_far(
            part.task, groups[part.task], part.target, out / f"{name}-best.svg", axes
        )
        drawn.append(
            _draw_profile(
                f"{part.task}: performance profile", part.rows, out / f"{name}-profile.svg"
            )
        )
    if comparison.overall is not None:
        title = f"over {len(comparison.overall.tasks)} tasks: performance profile"
        drawn.append(_draw_profile(title, comparison.overall.rows, out / "overall-profile.svg"))
    return drawn


def _draw_best_so_far(
    task: str,
    groups: Mapping[str, Sequence[ComparedRun]],
    aim: Target,
    path: Path,
    axes: Sequence[Axis],
) -> list[Path]:
    """Best so far on one task, a panel for each axis known for all strategies.

    No file is written if there is no such axis.
    """
    tables = {
        axis: {label: best_so_far(runs, axis) for label, runs in groups.items()} for axis in axes
    }
    known = [axis for axis in axes if all(table.rows for table in tables[axis].values())]
    if not known:
        return []
    few = all(len(runs) < _BAND for runs in groups.values())
    spread = "median of few runs" if few else "median and quartiles over runs"
    figure, panels = panel_figure(len(known), f"{task}: best so far, {spread}")
    for panel, axis in zip(panels, known):
        for label, table in tables[axis].items():
            plot_band(panel, table.rows, axis, "score", label, steps=True)
        if aim.score is not None:
            panel.axhline(aim.score, color="0.5", linewidth=0.8, linestyle="--", label=aim.origin)
        panel.set(xlabel=axis.replace("_", " "), ylabel="score")
    panels[0].legend(fontsize=_SMALL)
    return [save_figure(figure, path)]


def _draw_profile(title: str, rows: Sequence[StrategyFigures], path: Path) -> Path:
    figure, (panel,) = panel_figure(1, title)
    end = max(1.0, *(level for row in rows for level, _ in row.steps))
    for row in rows:
        stairs = [*row.steps, (end, row.steps[-1][1])]
        panel.step(
            [level for level, _ in stairs],
            [share for _, share in stairs],
            where="post",
            label=row.strategy,
        )
    panel.set(
        xlabel="level on the common scale", ylabel="share of runs above it", ylim=(-0.02, 1.02)
    )
    panel.legend(fontsize=_SMALL)
    return save_figure(figure, path)
