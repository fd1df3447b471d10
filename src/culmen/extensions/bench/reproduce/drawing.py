"""Plots of places with the paper's axes; importing this module needs matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes  # pyright: ignore[reportMissingImports]
from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
from matplotlib.ticker import MaxNLocator  # pyright: ignore[reportMissingImports]

from culmen.extensions.bench.plots import PALETTE, draw_table, has_plot, panel_figure, save_figure
from culmen.extensions.bench.reproduce.results import LEADER, Panel, PlaceResult, Series


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


def _method_of(label: str) -> str:
    return label.rpartition(": ")[2]


def draw_place(
    shown: PlaceResult, title: str, scale: str, path: Path, colours: Mapping[str, str]
) -> list[Path]:
    """Draw the panels of a place, or its analyses, each into a file named after `path`.

    `scale` stands below the title: the number of runs, and words on a rehearsal.
    """
    drawn: list[Path] = []
    panels = [panel for panel in shown.panels if panel.series]
    of_panels = [line.label for panel in panels for line in panel.series]
    colours = {**method_colours([*colours, *of_panels]), **colours}
    if panels:
        wide = 62 * min(len(panels), 4)
        head = "\n".join(textwrap.fill(line, wide) for line in (title, *scale.splitlines()))
        figure, axes = panel_figure(len(panels), head)
        _heighten(figure, head.count("\n") - 1)
        for axis, panel in zip(axes, panels):
            _draw_panel(axis, panel, colours)
        _draw_legend(figure, axes)
        drawn.append(save_figure(figure, path))
    for table in shown.tables:
        if has_plot(table):
            name = path if not drawn else path.with_name(f"{path.stem}-{table.name}.png")
            drawn.append(save_figure(draw_table(table, f"{title}\n{scale}"), name))
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
    if any(line.aside for line in panel.series):
        axis.plot([], [], label=LEADER.lstrip(", "), color="0.35", linestyle=":")


def _draw_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below them, where it hides no line."""
    handles = {
        label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels())
    }
    if handles:
        across = min(len(handles), 2 * len(axes), 6)
        _heighten(figure, -(-len(handles) // across))
        place = {"loc": "outside lower center", "ncols": across, "fontsize": 7, "frameon": False}
        figure.legend(handles.values(), handles.keys(), **place)


def _heighten(figure: Figure, lines: int) -> None:
    """Make room for these lines of text, at the cost of no panel."""
    wide, high = figure.get_size_inches()
    figure.set_size_inches(wide, high + _LINE_INCHES * max(0, lines))


_LINE_INCHES = 0.2  # height of a line of text
_MOST_WIDTH = 4.5  # points, of a line that others may cover
PRINTED: dict[str, Any] = {
    "marker": "D",
    "color": "black",
    "markerfacecolor": "white",
    "linestyle": "none",
}
"""Marks of the paper's values."""


def _draw_lines(axis: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    for number, line in enumerate(panel.series):
        color = colours[_method_of(line.label)]
        above = sum(_coincide(line, other) for other in panel.series[number + 1 :])
        shape = {
            "linewidth": min(1.5 + above, _MOST_WIDTH),  # a line below others is seen
            "marker": "o" if len(line.x) == 1 else "",
            "markersize": 3,
            "drawstyle": "default" if any(line.error) else "steps-post",
            "linestyle": ":" if line.aside else "-",
        }
        label = None if line.aside else line.label
        axis.plot(line.x, line.y, label=label, color=color, **shape)
        if not line.aside and any(error is not None for error in line.error):
            errors = [error or 0.0 for error in line.error]
            low = [y - error for y, error in zip(line.y, errors)]
            high = [y + error for y, error in zip(line.y, errors)]
            axis.fill_between(line.x, low, high, color=color, alpha=0.18, linewidth=0)
        for x, y in panel.printed.get(line.label, ()):
            axis.plot([x], [y], **{**PRINTED, "color": color})
    for name, words in panel.absent.items():
        axis.plot([], [], " ", label=f"{name}: {panel.across} {words}")
    if all(float(x).is_integer() for line in panel.series for x in line.x):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _coincide(line: Series, other: Series) -> bool:
    """True if two lines of a kind have points in common, so that one may hide the other."""
    common = set(zip(line.x, line.y)) & set(zip(other.x, other.y))
    return line.aside == other.aside and len(common) > 1


def _draw_bars(axis: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    """Bars side by side at each name; one bar for each label if no name is shared."""
    own = [str(x) for line in panel.series for x in line.x]
    names = list(dict.fromkeys([*panel.absent, *own]))
    shared = len(set(own)) < len(own)
    width = 0.8 / (len(panel.series) if shared else 1)
    for number, line in enumerate(panel.series):
        shift = number * width - 0.4 + width / 2 if shared else 0.0
        places = [names.index(str(x)) + shift for x in line.x]
        errors = [error or 0.0 for error in line.error] or None
        style = {"color": colours[_method_of(line.label)], "capsize": 2, "yerr": errors}
        bars = axis.bar(places, line.y, width * 0.92, label=line.label if shared else None, **style)
        if not shared:  # a bar may be too low to be seen
            axis.bar_label(bars, fmt="%.4g", fontsize=7, color="0.2")
        for x, y in panel.printed.get(line.label, ()):
            axis.plot([names.index(str(x)) + shift], [y], **PRINTED)
    for name, words in panel.absent.items():
        axis.text(names.index(name), 0, words, ha="center", va="bottom", fontsize=8, color="0.35")
        for _, y in panel.printed.get(name, ()):
            axis.plot([names.index(name)], [y], **PRINTED)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_xlim(-0.6, len(names) - 0.4)
