"""What a bench has shown: per task and strategy the best of n, median and spread, and what it took."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from culmen.bench.plain import Level
from culmen.bench.suite import Outcome, Suite
from culmen.report.analyze_table import Rows, mean, spread

COUNTS = ("requests", "calls", "proposals", "evaluations")  # means over runs, in tables for people


def summary(outcomes: Sequence[Outcome]) -> Rows:
    """One row per task and strategy, in the order of the outcomes.

    `best` of `runs`, median and quartiles of the reported scores; `certified` the best value that a verifier vouches
    for, and `certified_median` over the `certified_runs` that have one; `per_request` how many candidates a request
    brought, over all runs; the rest are means over the runs.
    """
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for each in outcomes:
        groups.setdefault((each.task, each.strategy), []).append(each)
    return [_row(task, strategy, runs) for (task, strategy), runs in groups.items()]


def _row(task: str, strategy: str, runs: Sequence[Outcome]) -> dict[str, Any]:
    direction = runs[0].direction
    scores = [each.score for each in runs if each.score is not None]
    certified = [each.certified for each in runs if each.certified is not None]
    figures = spread("score", scores)
    means = {
        name: mean(getattr(each, name) for each in runs)
        for name in ("evaluations", "requests", "proposals", "calls", "tokens", "dollars", "seconds")
    }
    return {
        "task": task,
        "direction": direction,
        "strategy": strategy,
        "runs": len(runs),
        "best": _best(scores, direction),
        "median": figures["score"],
        "q1": figures["score_q1"],
        "q3": figures["score_q3"],
        "certified": _best(certified, direction),
        "certified_median": spread("value", certified)["value"],
        "certified_runs": len(certified),
        **means,
        "per_request": _per_request(runs),
        "unpriced": sum(each.unpriced for each in runs),
    }


def _per_request(runs: Sequence[Outcome]) -> float | None:
    known = [(each.delivered, each.requests) for each in runs if each.delivered is not None and each.requests]
    return sum(delivered for delivered, _ in known) / sum(requests for _, requests in known) if known else None


def _best(values: Sequence[float], direction: str) -> float | None:
    return (max if direction == "max" else min)(values, default=None)


def write(suite: Suite, outcomes: Sequence[Outcome], levels: Sequence[Level], out: Path) -> list[Path]:
    """`cells.csv`, `summary.csv`, `summary.md` and `bench.json` in the bench's folder."""
    out.mkdir(parents=True, exist_ok=True)
    rows = summary(outcomes)
    each: Rows = [msgspec.to_builtins(outcome) for outcome in outcomes]
    files = [_csv(out / "cells.csv", each), _csv(out / "summary.csv", rows)]
    plain = {"suite": msgspec.to_builtins(suite), "summary": rows, "cells": each}
    plain["plain"] = [msgspec.to_builtins(level) for level in levels]
    for name, text in (("summary.md", markdown(rows, levels)), ("bench.json", json.dumps(plain, indent=2) + "\n")):
        (out / name).write_text(text, encoding="utf-8")
        files.append(out / name)
    return files


def markdown(rows: Rows, levels: Sequence[Level] = ()) -> str:
    """The table for a page of documentation; claimed and certified values stand in columns of their own."""
    plain = {level.task: level for level in levels}
    heads = ["task", "strategy", "best", "median", "quartiles", "certified best", *COUNTS, "candidates per request"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        arrow = "↑" if row["direction"] == "max" else "↓"
        values = [
            f"{row['task']} {arrow}",
            f"`{row['strategy']}`",
            f"{score(row['best'])} (of {row['runs']})",
            score(row["median"]),
            f"{score(row['q1'])} to {score(row['q3'])}",
            f"{score(row['certified'])} ({row['certified_runs']} of {row['runs']})" if row["certified_runs"] else "-",
            *(whole(row[name]) for name in COUNTS),
            whole(row["per_request"]),
        ]
        known = plain.pop(row["task"], None)  # before the first strategy of its task
        if known is not None:
            lines.append(_plain(values[0], known, len(heads)))
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def _plain(task: str, level: Level, width: int) -> str:
    """The row of a plain optimiser, which has a certified value and nothing else."""
    name = f"plain optimiser, two processes of {level.seconds:g} s"
    cells = [task, name, *"---", f"{score(level.value)} (best of 2)"]
    return f"| {' | '.join([*cells, *'-' * (width - len(cells))])} |"


def score(value: float | None) -> str:
    """Eight significant digits."""
    return "-" if value is None else f"{value:.8g}"


def whole(value: float | None) -> str:
    """A mean of counts, to one decimal where it is no whole number."""
    return "-" if value is None else f"{value:,.1f}".removesuffix(".0")


def _csv(path: Path, rows: Rows) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    return path
