"""All analyses of runs, grouped by task, strategy, settings and model."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from culmen.core.evaluation import weakest_trust
from culmen.extensions.bench.analyses import (
    Group,
    Rows,
    Table,
    best_so_far,
    coverage_table,
    distance_by_k,
    rank_groups,
    rank_profile,
    top_m,
    training_events,
    training_table,
    width_by_island,
    width_table,
)
from culmen.extensions.bench.records import AXES, RunRecord, distinct_labels, read_run

Analysis = Callable[[Sequence[RunRecord]], Table]


def all_analyses(k: int | None = None) -> tuple[Analysis, ...]:
    """All analyses.

    `k` is the width for the top-m replay and the profile by rank (None: the widest).
    """
    return (
        *(partial(best_so_far, axis=axis) for axis in AXES),
        coverage_table,
        partial(top_m, k=k),
        partial(rank_profile, k=k),
        partial(rank_groups, k=k),
        distance_by_k,
        width_table,
        width_by_island,
    )


def analyze_runs(
    runs: Sequence[Path | str], names: Mapping[str, str] | None = None, k: int | None = None
) -> list[Group]:
    """The analyses of these runs by group, in the order of the runs.

    `names` maps the path of a strategy's class to its display name. Raises `UserError` if there is
    no run at a path.
    """
    grouped: dict[str, list[RunRecord]] = {}
    for record in map(read_run, runs):
        grouped.setdefault(_group_key(record), []).append(record)
    labels = _group_labels([records[0] for records in grouped.values()], names or {})
    return [
        Group(
            label=label,
            task=records[0].task,
            direction=records[0].direction,
            runs=tuple(record.run for record in records),
            tables=(
                *(analysis(records) for analysis in all_analyses(k)),
                *_training_tables(records),
            ),
            trust=weakest_trust(record.trust for record in records if record.trust),
            unfinished=tuple(
                f"{record.run} ({record.state})" for record in records if record.state != "finished"
            ),
        )
        for label, records in zip(labels, grouped.values())
    ]


def _training_tables(records: Sequence[RunRecord]) -> tuple[Table, ...]:
    """Tables of barriers; empty if no run has any."""
    runs = [record.barriers for record in records]
    return (training_table(runs), training_events(runs)) if any(runs) else ()


def _group_key(record: RunRecord) -> str:
    return json.dumps(
        [record.task, record.direction, record.strategy, record.config, record.model],
        sort_keys=True,
    )


def _strategy_label(record: RunRecord, names: Mapping[str, str]) -> str:
    return names.get(record.strategy) or record.strategy.rpartition(":")[2] or "unknown"


def _group_labels(firsts: Sequence[RunRecord], names: Mapping[str, str]) -> list[str]:
    """Task and strategy of each group.

    If these do not distinguish groups, also the model and settings that differ.
    """
    return distinct_labels(
        firsts, [f"{record.task} {_strategy_label(record, names)}" for record in firsts]
    )


# Tables as CSV files and plots as PNG files.

NO_PLOTS = "no plots were drawn: they need matplotlib (pip install 'culmen[plots]')"


def write_analyses(groups: Sequence[Group], out: Path) -> tuple[list[Path], str]:
    """Write every table that has rows and, with matplotlib installed, plots of replies.

    One folder per group. Returns the files, and the reason if there are no plots ("" otherwise).
    """
    out.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for group, folder in zip(groups, group_folders(groups, out)):
        for table in group.tables:
            if table.rows:
                files.append(_write_csv(folder / f"{table.name}.csv", table.rows))
    if importlib.util.find_spec("matplotlib") is None:
        return files, NO_PLOTS
    from culmen.extensions.bench.plots import draw_analyses

    return files + draw_analyses(groups, group_folders(groups, out)), ""


def group_folders(groups: Sequence[Group], out: Path) -> list[Path]:
    """A folder for each group, named after it, and numbered if names are equal."""
    named: list[str] = []
    for group in groups:
        name = "-".join(
            "".join(c if c.isalnum() or c in "_." else " " for c in group.label).split()
        )[:80]
        same = sum(other == name or other.startswith(f"{name}~") for other in named)
        named.append(f"{name}~{same + 1}" if same else name)
    return [out / name for name in named]


def _write_csv(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
