"""Pictures of a comparison: best so far (median and quartiles over runs), and performance profiles.

Needs matplotlib, which is imported with this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from culmen.report.analyze_plots import band, paned, save
from culmen.report.analyze_progress import Axis, best_so_far
from culmen.report.compare import Comparison, Row
from culmen.report.compare_read import Entry
from culmen.report.compare_target import Target

_AXES: tuple[Axis, ...] = ("evaluations", "dollars", "seconds")
_SMALL = 7  # points of a legend's letters


def draw(made: Comparison, groups: Mapping[str, Mapping[str, Sequence[Entry]]], out: Path) -> list[Path]:
    """SVG files in `out`: for every task `TASK-best` and `TASK-profile`, and `overall-profile` over tasks.

    `groups` are the runs by task and strategy, as `compare.contenders` tells them.
    """
    drawn: list[Path] = []
    for part in made.tasks:
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in part.task)
        drawn += _best(part.task, groups[part.task], part.target, out / f"{name}-best.svg")
        drawn.append(_profile(f"{part.task}: performance profile", part.rows, out / f"{name}-profile.svg"))
    if made.overall is not None:
        title = f"over {len(made.overall.tasks)} tasks: performance profile"
        drawn.append(_profile(title, made.overall.rows, out / "overall-profile.svg"))
    return drawn


def _best(task: str, groups: Mapping[str, Sequence[Entry]], aim: Target, path: Path) -> list[Path]:
    """One panel for each budget that is known of all strategies; none where nothing scored."""
    tables = {axis: {label: best_so_far(runs, axis) for label, runs in groups.items()} for axis in _AXES}
    known = [axis for axis in _AXES if all(table.rows for table in tables[axis].values())]
    if not known:
        return []
    figure, panels = paned(len(known), f"{task}: best so far, median and quartiles over runs")
    for panel, axis in zip(panels, known):
        for label, table in tables[axis].items():
            band(panel, table.rows, axis, "score", label)
        if aim.score is not None:
            panel.axhline(aim.score, color="0.5", linewidth=0.8, linestyle="--", label=aim.origin)
        panel.set(xlabel=axis, ylabel="score")
    panels[0].legend(fontsize=_SMALL)
    return [save(figure, path)]


def _profile(title: str, rows: Sequence[Row], path: Path) -> Path:
    figure, (panel,) = paned(1, title)
    end = max(1.0, *(level for row in rows for level, _ in row.steps))
    for row in rows:
        stairs = [*row.steps, (end, row.steps[-1][1])]
        panel.step([level for level, _ in stairs], [share for _, share in stairs], where="post", label=row.strategy)
    panel.set(xlabel="level on the common scale", ylabel="share of runs above it", ylim=(-0.02, 1.02))
    panel.legend(fontsize=_SMALL)
    return save(figure, path)
