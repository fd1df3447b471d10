"""Plots of places with the paper's axes; importing this module needs matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes  # pyright: ignore[reportMissingImports]

from culmen.extensions.bench.plots import PALETTE, draw_table, has_plot, panel_figure, save_figure
from culmen.extensions.bench.reproduce.results import LEADER, Panel, PlaceResult


def method_colours(labels: Iterable[str]) -> dict[str, str]:
    """One colour for each method, the same in every panel and figure.

    `labels` are all of a paper in the order of its records; `POOL: METHOD` is METHOD. Methods of
    several papers have fixed colours.
    """
    names = list(dict.fromkeys(_method_of(label) for label in labels))
    spare = iter([colour for colour in COLOURS if colour not in METHODS.values()])
    return {name: METHODS.get(name) or next(spare, "black") for name in names}


METHODS = {"POLCA": PALETTE[0], "OpenEvolve": PALETTE[1], "GEPA": PALETTE[2], "DSPy": PALETTE[4]}
METHODS |= {"TurboEvolve": PALETTE[3], "CATO": PALETTE[5], "initial program": PALETTE[7]}
"""Colours of methods that more than one place shows."""

COLOURS = (
    *PALETTE,
    *("#7a4b24", "#4f8f00", "#e08fb0", "#00396b", "#b0a000", "#7d6bd6", "#2aa198", "#8b1e1e"),
    *("#f09a3e", "#5d7f4f"),
)
"""Colours of all others, in order."""

TOY = "toy size, scripted models: shows nothing about a method"
"""Words in the picture of a rehearsal."""


def _method_of(label: str) -> str:
    return label.rpartition(": ")[2]


def draw_place(
    shown: PlaceResult, title: str, path: Path, colours: Mapping[str, str], toy: bool = False
) -> list[Path]:
    """Draw the panels of a place, or its analyses, each into a file named after `path`."""
    drawn: list[Path] = []
    panels = [panel for panel in shown.panels if panel.series]
    of_panels = [line.label for panel in panels for line in panel.series]
    colours = {**method_colours([*colours, *of_panels]), **colours}
    if panels:
        wide = textwrap.fill(title, 62 * min(len(panels), 4))
        figure, axes = panel_figure(len(panels), f"{wide}\n{TOY}" if toy else wide)
        for axis, panel in zip(axes, panels):
            _draw_panel(axis, panel, colours)
        drawn.append(save_figure(figure, path))
    for table in shown.tables:
        if has_plot(table):
            name = path if not drawn else path.with_name(f"{path.stem}-{table.name}.png")
            drawn.append(save_figure(draw_table(table, f"{title}\n{TOY}" if toy else title), name))
    return drawn


def _draw_panel(axis: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    axis.set(xlabel=panel.across, ylabel=panel.upward, title=panel.title)
    axis.title.set_fontsize(9)
    (_draw_bars if panel.bars else _draw_lines)(axis, panel, colours)
    for number, (label, level) in enumerate(panel.levels.items()):
        style = {"linestyle": ("--", ":", "-.")[number % 3], "color": "0.35", "linewidth": 1}
        axis.axhline(level, label=label, **style)
    if any(panel.printed.values()):
        axis.plot([], [], label="printed", **PRINTED)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=7)


PRINTED: dict[str, Any] = {
    "marker": "D",
    "color": "black",
    "markerfacecolor": "white",
    "linestyle": "none",
}
"""Marks of the paper's values."""


def _draw_lines(axis: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    for line in panel.series:
        color = colours[_method_of(line.label)]
        shape = {
            "marker": "o" if len(line.x) == 1 else "",
            "markersize": 3,
            "drawstyle": "default" if any(line.error) else "steps-post",
            "linestyle": ":" if line.aside else "-",
        }
        label = line.label + (LEADER if line.aside else "")
        axis.plot(line.x, line.y, label=label, color=color, **shape)
        if not line.aside and any(error is not None for error in line.error):
            errors = [error or 0.0 for error in line.error]
            low = [y - error for y, error in zip(line.y, errors)]
            high = [y + error for y, error in zip(line.y, errors)]
            axis.fill_between(line.x, low, high, color=color, alpha=0.18, linewidth=0)
        for x, y in panel.printed.get(line.label, ()):
            axis.plot([x], [y], **{**PRINTED, "color": color})


def _draw_bars(axis: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    """Bars side by side at each name; one bar for each label if no name is shared."""
    names = list(dict.fromkeys(str(x) for line in panel.series for x in line.x))
    shared = len(names) < sum(len(line.x) for line in panel.series)
    width = 0.8 / (len(panel.series) if shared else 1)
    for number, line in enumerate(panel.series):
        shift = number * width - 0.4 + width / 2 if shared else 0.0
        places = [names.index(str(x)) + shift for x in line.x]
        errors = [error or 0.0 for error in line.error] or None
        style = {"color": colours[_method_of(line.label)], "capsize": 2, "yerr": errors}
        axis.bar(places, line.y, width * 0.92, label=line.label if shared else None, **style)
        for x, y in panel.printed.get(line.label, ()):
            axis.plot([names.index(str(x)) + shift], [y], **PRINTED)
    axis.set_xticks(range(len(names)), names, fontsize=8)
