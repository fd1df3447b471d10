"""Plots of places with the paper's axes; importing this module needs matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib.axes import Axes  # pyright: ignore[reportMissingImports]

from culmen.extensions.bench.plots import PALETTE, draw_table, has_plot, panel_figure, save_figure
from culmen.extensions.bench.reproduce.results import Panel, PlaceResult


def draw_place(shown: PlaceResult, title: str, path: Path) -> list[Path]:
    """Draw the panels of a place, or its analyses, each into a file named after `path`."""
    drawn: list[Path] = []
    panels = [panel for panel in shown.panels if panel.series]
    if panels:
        figure, axes = panel_figure(len(panels), textwrap.fill(title, 62 * min(len(panels), 4)))
        for axis, panel in zip(axes, panels):
            _draw_panel(axis, panel)
        drawn.append(save_figure(figure, path))
    for table in shown.tables:
        if has_plot(table):
            name = path if not drawn else path.with_name(f"{path.stem}-{table.name}.png")
            drawn.append(save_figure(draw_table(table, title), name))
    return drawn


def _draw_panel(axis: Axes, panel: Panel) -> None:
    axis.set(xlabel=panel.across, ylabel=panel.upward, title=panel.title)
    axis.title.set_fontsize(9)
    (_draw_bars if panel.bars else _draw_lines)(axis, panel)
    for number, (label, level) in enumerate(panel.levels.items()):
        style = {"linestyle": ("--", ":")[number % 2], "color": "0.35", "linewidth": 1}
        axis.axhline(level, label=label, **style)
    if axis.get_legend_handles_labels()[1] and (len(panel.series) > 1 or panel.levels):
        axis.legend(fontsize=7)


def _draw_lines(axis: Axes, panel: Panel) -> None:
    for number, line in enumerate(panel.series):
        color = PALETTE[number % len(PALETTE)]
        mark = "o" if len(line.x) == 1 else ""
        style = "default" if any(line.error) else "steps-post"
        shape = {"marker": mark, "markersize": 3, "drawstyle": style}
        axis.plot(line.x, line.y, label=line.label, color=color, **shape)
        if any(error is not None for error in line.error):
            errors = [error or 0.0 for error in line.error]
            low = [y - error for y, error in zip(line.y, errors)]
            high = [y + error for y, error in zip(line.y, errors)]
            axis.fill_between(line.x, low, high, color=color, alpha=0.18, linewidth=0)


def _draw_bars(axis: Axes, panel: Panel) -> None:
    """Bars side by side at each name; one bar for each label if no name is shared."""
    names = list(dict.fromkeys(str(x) for line in panel.series for x in line.x))
    shared = len(names) < sum(len(line.x) for line in panel.series)
    width = 0.8 / (len(panel.series) if shared else 1)
    for number, line in enumerate(panel.series):
        shift = number * width - 0.4 + width / 2 if shared else 0.0
        places = [names.index(str(x)) + shift for x in line.x]
        errors = [error or 0.0 for error in line.error] or None
        style = {"color": PALETTE[number % len(PALETTE)], "capsize": 2, "yerr": errors}
        axis.bar(places, line.y, width * 0.92, label=line.label if shared else None, **style)
    axis.set_xticks(range(len(names)), names, fontsize=8)
