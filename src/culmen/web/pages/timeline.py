"""Timeline: what ran side by side, and where nothing ran, in active seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from culmen.store import views
from culmen.web.digest import Digest, Span

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


def _closed(span: Span, whole: float) -> Span:
    return span if span.end is not None else span._replace(end=whole, outcome="running")


def _inside(span: Span, low: float, high: float) -> float:
    return max(0.0, min(span.end or 0.0, high) - max(span.start, low))


def _load(spans: Sequence[Span], kinds: Sequence[str], low: float, high: float) -> dict[str, Any]:
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


def _lanes(spans: Sequence[Span], kinds: Sequence[str]) -> list[dict[str, Any]]:
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


def _gaps(spans: Sequence[Span], low: float, high: float) -> dict[str, Any]:
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


def _outcomes(spans: Sequence[Span]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.outcome or "running"] = counts.get(span.outcome or "running", 0) + 1
    return counts
