"""Calls: what models were asked, by role and model, and what it cost and went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from culmen.store import views
from culmen.web.runs import Digest, TimelineSpan, thin

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
        "uncertain": {"tokens": now.usage.uncertain.tokens, "dollars": now.usage.uncertain.dollars},
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


# Timeline: what ran side by side, and where nothing ran, in active seconds.

_BINS = 160
_DRAWN = 1200  # spans drawn one by one; beyond, only how many ran at once is told
_GAPS = 8
_SHORT = 0.05  # seconds: what counts as no gap


def timeline(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """Between `from` and `to` (default: the whole run): how many effects of each kind ran, and each of them if few.

    `lane` puts effects that ran at the same time below one another. `gaps` are the longest times without a running
    evaluation, `busy` is the share of all worker seconds in which one ran.
    """
    run.refresh()
    now = views.status(run.run)
    whole = max([now.elapsed_seconds, *(span.end or span.start for span in run.spans[-50:])], default=0.0)
    low, high = _number(params.get("from"), 0.0), _number(params.get("to"), whole)
    high = high if high > low else whole
    spans = [_closed(span, whole) for span in run.spans if span.start <= high and (span.end or whole) >= low]
    kinds = list(dict.fromkeys(span.effect for span in spans))
    evaluations = [span for span in spans if span.effect == "evaluate"]
    worked = sum(_inside(span, low, high) for span in evaluations)
    possible = now.workers * (high - low)
    return {
        "from": low,
        "to": high,
        "whole": whole,
        "workers": now.workers,
        "sessions": run.sessions,
        "kinds": kinds,
        "load": _load(spans, kinds, low, high),
        "spans": _lanes(spans, kinds) if len(spans) <= _DRAWN else [],
        "count": len(spans),
        "drawn": _DRAWN,
        "busy": worked / possible if possible > 0 else None,
        "gaps": _gaps(evaluations, low, high),
        "outcomes": _outcomes(run.spans),
    }


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default


def _closed(span: TimelineSpan, whole: float) -> TimelineSpan:
    return span if span.end is not None else span._replace(end=whole, outcome="running")


def _inside(span: TimelineSpan, low: float, high: float) -> float:
    return max(0.0, min(span.end or 0.0, high) - max(span.start, low))


def _load(spans: Sequence[TimelineSpan], kinds: Sequence[str], low: float, high: float) -> dict[str, Any]:
    """Mean number of effects in flight in each of the bins, kind by kind."""
    import numpy as np

    edges = np.linspace(low, high, _BINS + 1)
    series: dict[str, list[float]] = {}
    for kind in kinds:
        starts = np.sort([max(span.start, low) for span in spans if span.effect == kind])
        ends = np.sort([min(span.end or high, high) for span in spans if span.effect == kind])
        area = _before(starts, edges) - _before(ends, edges)
        series[kind] = [round(float(value), 4) for value in np.diff(area) / max((high - low) / _BINS, 1e-12)]
    return {"edges": [round(float(edge), 4) for edge in edges], "kinds": series}


def _before(points: Any, edges: Any) -> Any:
    """For every edge the sum of (edge - point) over the sorted points before it."""
    import numpy as np

    sums = np.concatenate([[0.0], np.cumsum(points)])
    count = np.searchsorted(points, edges, side="right")
    return count * edges - sums[count]


def _lanes(spans: Sequence[TimelineSpan], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Each effect with the first lane of its kind that is free."""
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        free: list[int] = []
        ending: list[tuple[float, int]] = []
        lanes = 0
        for span in sorted((span for span in spans if span.effect == kind), key=lambda span: (span.start, span.key)):
            while ending and ending[0][0] <= span.start:
                heappush(free, heappop(ending)[1])
            if not free:
                heappush(free, lanes)
                lanes += 1
            lane = heappop(free)
            heappush(ending, (span.end or span.start, lane))
            rows.append(
                {"key": span.key, "effect": kind, "lane": lane, "from": span.start, "to": span.end, "how": span.outcome}
            )
    return rows


def _gaps(spans: Sequence[TimelineSpan], low: float, high: float) -> dict[str, Any]:
    """Times without any of these running: how many, how long together, and the longest."""
    found: list[tuple[float, float]] = []
    until = low
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > until + _SHORT:
            found.append((until, span.start))
        until = max(until, span.end or high)
    if high > until + _SHORT:
        found.append((until, high))
    longest = sorted(found, key=lambda gap: gap[0] - gap[1])[:_GAPS]
    return {
        "count": len(found),
        "seconds": sum(end - start for start, end in found),
        "longest": [{"from": start, "to": end} for start, end in longest],
    }


def _outcomes(spans: Sequence[TimelineSpan]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.outcome or "running"] = counts.get(span.outcome or "running", 0) + 1
    return counts
