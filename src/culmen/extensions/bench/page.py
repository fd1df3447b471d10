"""Compare: several runs, and the median of runs that differ only in their random seed."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import quantiles

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.bench.compare import comparison_document
from culmen.extensions.bench.fresh_scores import fresh_score_bytes
from culmen.extensions.bench.records import (
    AXES,
    ComparedRun,
    Moment,
    RunReader,
    compared_run,
    differences,
)
from culmen.extensions.web.pages.overview import progress_series, reference_levels
from culmen.extensions.web.runs import Digest, fields_of, thin_points
from culmen.report.sentences import state_label
from culmen.store import views

_POINTS = 160  # of a curve on the page
_BAND = 5  # number of runs from which on quartiles of a group are shown
_AXES = ("evaluations", "seconds", "dollars")  # known for every run without reading its journal


def compare_page(runs: Sequence[Digest], params: Mapping[str, str]) -> JsonObject:
    """Best so far of runs with one score against budgets and the axis `x`, and of groups.

    Groups (same task, strategy, settings and models) have medians and quartiles. `statistics` is
    the document of `culmen compare` over the finished runs; None for fewer than two.
    """
    axis = next((axis_rows for axis_rows in AXES if axis_rows == params.get("x")), _AXES[0])
    rows = [_run_row(run.refresh(), axis) for run in runs]
    groups: dict[str, list[JsonObject]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    shorts = _strategy_labels(groups)
    is_one = len({row["task"] for row in rows}) == 1
    labels = {
        key: shorts[key] if is_one else f"{members[0]['task']} · {shorts[key]}"
        for key, members in groups.items()
    }
    for row in rows:
        row["group"] = labels[row["group"]]
    return {
        "axis": axis,
        "runs": rows,
        "groups": [
            _group_row(labels[key], members, axis) | {"short": shorts[key]}
            for key, members in groups.items()
        ],
        "tasks": sorted({row["task"] for row in rows}),
        "directions": sorted({row["direction"] for row in rows}),
        **_statistics_fields(runs),
    }


def _run_row(run: Digest, axis: str) -> JsonObject:
    now, about = views.run_status(run.run), run.meta
    front = 0 if now.best is None else len(now.best.front)
    best = None if front else now.best
    config = about.strategy.get("config") or {}
    return {
        **fields_of(run, "name", "strategy"),
        **fields_of(now, "models", "seed", "state", "direction", "evaluations"),
        "task": about.task.label,
        "config": config,
        "group": json.dumps(
            [about.task.label, now.strategy, config, now.models], sort_keys=True, default=str
        ),
        "label": state_label(now.state, now.reason),
        "front": front,
        "score": best.value if best else None,
        "se": best.se if best else None,
        "confirmed": bool(now.best and now.best.confirmed),
        "verified": bool(now.best and now.best.verified),
        "dollars": now.usage.dollars,
        "seconds": now.elapsed_seconds,
        "points": [] if front else _run_points(run, axis),
        "lines": reference_levels(about.task.objective, run),
    }


def _run_points(run: Digest, axis: str) -> list[JsonObject]:
    """The best so far of a run.

    Steps and proposals are included only on request: counting them reads the whole journal.
    """
    points = thin_points(progress_series(run, views.ROUGH), _POINTS)
    if axis in _AXES or not points:
        return points
    reader = run.kept_part("steps", RunReader, lambda: RunReader(run.meta)).read_new_events(run.run)
    counts = [getattr(moment, axis) for moment in reader.moments]
    return [point | {axis: counts[min(point["evaluations"], len(counts)) - 1]} for point in points]


def _strategy_labels(groups: Mapping[str, Sequence[JsonObject]]) -> dict[str, str]:
    """Strategy names as labels of groups, without their tasks.

    If several groups of a task share a name, also the settings and models that differ.
    """
    firsts = {key: each[0] for key, each in groups.items()}
    facts = [{**row["config"], "model": row["models"]} for row in firsts.values()]
    kinds = [(row["task"], row["strategy"]) for row in firsts.values()]
    found = differences(facts, kinds, _short_text)
    return {
        key: row["strategy"] + (f" ({difference})" if difference else "")
        for (key, row), difference in zip(firsts.items(), found)
    }


def _short_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:18]}...{text[-19:]}"


def _group_row(label: str, rows: Sequence[JsonObject], axis: str) -> JsonObject:
    return {
        "label": label,
        "runs": [row["name"] for row in rows],
        "scored": sum(bool(row["points"]) for row in rows),
        "bands": {each: _quartile_bands(rows, each) for each in {*_AXES, axis}},
    }


def _quartile_bands(
    rows: Sequence[JsonObject], axis: str
) -> list[tuple[float, float, float, float]]:
    """x, median and quartiles over the runs at equal shares of the smallest spending of a run.

    They end where the first run ended: beyond its budget nothing is known of it. There are no
    points before every run has a value, and none for a single run. For fewer than `_BAND` runs,
    quartiles would only repeat the runs themselves: they equal the median.
    """
    curves = [
        [(point[axis], point["score"]) for point in row["points"]] for row in rows if row["points"]
    ]
    end = min((curve[-1][0] for curve in curves), default=0)
    if not end or len(curves) < 2:
        return []
    bands: list[tuple[float, float, float, float]] = []
    for step in range(1, _POINTS + 1):
        x = end * step / _POINTS
        values = [
            curve[at - 1][1]
            for curve in curves
            if (at := bisect_right(curve, x, key=lambda p: p[0]))
        ]
        if len(values) == len(curves):
            low, middle, high = quantiles(values, n=4, method="inclusive")
            bands.append(
                (x, middle, low, high) if len(curves) >= _BAND else (x, middle, middle, middle)
            )
    return bands


# Statistics of the strategies on the Compare page: the document of `culmen compare`.


def _statistics_fields(runs: Sequence[Digest]) -> JsonObject:
    """The `statistics`, or the missing package in `statistics_missing`."""
    try:
        return {"statistics": strategy_statistics(runs), "statistics_missing": None}
    except UserError as error:
        return {"statistics": None, "statistics_missing": f"{error.what}: {error.fix}"}


def strategy_statistics(runs: Sequence[Digest]) -> JsonObject | None:
    """The comparison of the finished runs; None for fewer than two."""
    read = [
        run.refresh().memoise_result(
            "entry", run.last + fresh_score_bytes(run.run), lambda run=run: _compared_entry(run)
        )
        for run in runs
    ]
    if sum(entry.state == "finished" for entry in read) < 2:
        return None
    names = {entry.strategy: run.strategy for entry, run in zip(read, runs)}
    return _cached_comparison(msgspec.json.encode(read), tuple(sorted(names.items())))


def _compared_entry(run: Digest) -> ComparedRun:
    points = [
        Moment(point.evaluations, point.elapsed, run.spent_at(point.seq).dollars, point.mean)
        for point in views.progress_points(run.run, views.ROUGH)
    ]
    return compared_run(views.run_status(run.run), run.meta, points)


@lru_cache(maxsize=16)
def _cached_comparison(entries: bytes, names: tuple[tuple[str, str], ...]) -> JsonObject | None:
    """The comparison, cached: drawing thousands of samples is slow."""
    return comparison_document(msgspec.json.decode(entries, type=list[ComparedRun]), dict(names))
