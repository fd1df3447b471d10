"""Calls: what models were asked, by role and model, and what it cost and went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from culmen.store import views
from culmen.web.digest import Digest
from culmen.web.series import thin

_POINTS = 300


def calls(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """Rows by effect, role and model; totals; failures by kind; dollars and tokens as the run went on.

    `retries` are tries of a call beyond the first; `seconds` are the median and the ninth decile of how long one took
    (from its start to its result in the journal), over those of the effect's kind.
    """
    run.refresh()
    rows = [_row(each) for each in views.calls(run.run) if each.effect != "evaluate"]
    now = views.status(run.run)
    steps = [(seq, usage) for seq, usage in run.costs if usage.calls or usage.dollars]
    spent = [{"evaluations": run.evaluations_at(s), "dollars": u.dollars, "tokens": u.tokens} for s, u in steps]
    return {
        "rows": rows,
        "models": now.models,
        "total": {name: sum(row[name] for row in rows) for name in _SUMMED},
        "faults": now.faults,
        "tried": _tried(run),
        "seconds": _seconds(run),
        "series": thin(spent, _POINTS),
        "lost": {
            "calls": now.usage.possibly_lost.calls,
            "dollars": now.usage.possibly_lost.dollars,
        },
    }


_SUMMED = ("effects", "calls", "input", "output", "dollars", "unpriced", "cached", "retries")


def _row(each: views.CallCosts) -> dict[str, Any]:
    usage = each.usage
    return {
        "effect": each.effect,
        "role": each.role,
        "model": each.model,
        "effects": each.effects,
        "calls": usage.calls,
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "dollars": usage.dollars,
        "unpriced": usage.unpriced,
        "cached": usage.cache_hits,
        "retries": max(0, usage.calls + usage.cache_hits - each.effects) if usage.calls else 0,
    }


def _tried(run: Digest) -> dict[str, int]:
    """Everything that went wrong on the way, by kind, also what a retry made good."""
    return dict(sorted(run.faults.items(), key=lambda pair: (-pair[1], pair[0])))


def _seconds(run: Digest) -> list[dict[str, Any]]:
    """How long effects took, by kind."""
    taken: dict[str, list[float]] = {}
    for span in run.spans:
        if span.end is not None and span.outcome == "done":
            taken.setdefault(span.effect, []).append(span.end - span.start)
    return [
        {"effect": effect, "count": len(each), "median": _quantile(each, 0.5), "slow": _quantile(each, 0.9)}
        for effect, each in sorted(taken.items())
    ]


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
