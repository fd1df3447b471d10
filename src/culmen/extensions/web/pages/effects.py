"""Calls: requests to models by role and model, with costs and faults; the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.extensions.web.pages.overview import spending_facts
from culmen.extensions.web.runs import Digest, TimelineSpan, fields_of, thin_points
from culmen.store import views

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_POINTS = 300  # of a curve


def calls_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Calls by effect, role and model; totals; failures by kind; spending over time.

    `retries` are attempts of a call beyond the first; `seconds` are the median and the ninth decile
    of the durations (from start to result in the journal) by kind of effect.
    """
    run.refresh()
    rows = [_call_row(each) for each in views.call_costs(run.run) if each.effect != "evaluate"]
    now = views.run_status(run.run)
    return {
        "spending": spending_facts(now),
        "rows": rows,
        "models": now.models,
        "total": {name: sum(row[name] for row in rows) for name in _SUMMED},
        "faults": now.faults,
        **_spending_course(run),
        "lost": fields_of(now.usage.possibly_lost, "calls", "dollars"),
        "uncertain": fields_of(now.usage.uncertain, "tokens", "dollars"),
    }


_SUMMED = ("effects", "calls", "input", "output", "dollars", "unpriced", "cached", "retries")


def _call_row(call: views.CallCosts) -> JsonObject:
    usage = call.usage
    return {
        **fields_of(call, "effect", "role", "model", "effects"),
        "calls": usage.calls,
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "dollars": usage.dollars,
        "unpriced": usage.unpriced,
        "cached": usage.cache_hits,
        "retries": max(0, usage.calls + usage.cache_hits - call.effects) if usage.calls else 0,
    }


def _spending_course(run: Digest) -> JsonObject:
    """Spending over time, faults, and durations of effects."""
    steps = [(seq, usage) for seq, usage in run.costs if usage.calls or usage.dollars]
    spent = [
        {"evaluations": run.evaluations_at(s), "dollars": u.dollars, "tokens": u.tokens}
        for s, u in steps
    ]
    taken: dict[str, list[float]] = {}
    for span in run.spans:
        if span.end is not None and span.outcome == "done":
            taken.setdefault(span.effect, []).append(span.end - span.start)
    return {
        "tried": _sorted_faults(run.faults),
        "seconds": _duration_rows(taken),
        "series": thin_points(spent, _POINTS),
        "shares": _spending_by_model(run),
        "dearest": _dearest_effects(run),
    }


def _spending_by_model(run: Digest) -> list[JsonObject]:
    """Spending over time by role and model, the most expensive first.

    Empty if there is only one pair.
    """
    every = [
        (name, course)
        for name, course in run.shares.items()
        if course[-1][1].calls or course[-1][1].dollars
    ]
    if len(every) < 2:
        return []
    every.sort(key=lambda pair: (-pair[1][-1][1].dollars, -pair[1][-1][1].tokens))
    series: list[JsonObject] = []
    for (role, model), course in every[:6]:  # roles and models with a curve of their own
        points = [
            (run.evaluations_at(seq), spent.dollars, spent.tokens)
            for seq, spent in thin_points(course, _POINTS)
        ]
        series.append({"role": role, "model": model, "points": points})
    return series


def _dearest_effects(run: Digest) -> list[JsonObject]:
    """The most expensive effects, by dollars, or by tokens without prices."""
    before, each = Usage(), list[tuple[float, int, int]]()
    for seq, spent in run.costs:
        tokens, paid = spent.tokens - before.tokens, spent.dollars - before.dollars
        each.append((paid, tokens, seq))
        before = spent
    rows: list[JsonObject] = []
    for paid, tokens, seq in sorted(each, reverse=True)[:10]:  # calls named one by one
        for event in views.effect_results(run.run, "", after=seq - 1, limit=1):
            candidates = [row.id for row in getattr(event.entry.result, "candidates", ())]
            about = {
                "role": event.entry.body.get("role", ""),
                "effect": event.entry.effect,
                "candidates": candidates[:3],
            }
            rows.append(
                about
                | {"seq": seq, "elapsed": event.entry.elapsed, "dollars": paid, "tokens": tokens}
            )
    return [row for row in rows if row["tokens"] or row["dollars"]]


def _sorted_faults(faults: Mapping[str, int]) -> dict[str, int]:
    """Faults by kind, including those that a retry resolved, the most frequent first."""
    return dict(sorted(faults.items(), key=lambda pair: (-pair[1], pair[0])))


def _duration_rows(taken: Mapping[str, list[float]]) -> list[JsonObject]:
    """Durations of effects by kind."""
    return [
        {
            "effect": effect,
            "count": len(each),
            "median": _nearest_quantile(each, 0.5),
            "slow": _nearest_quantile(each, 0.9),
        }
        for effect, each in sorted(taken.items())
    ]


def _nearest_quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# Timeline: parallel effects, and gaps without any, in active seconds.

_BINS = 160  # intervals of time in which effects are counted
_DRAWN = 1200  # spans drawn one by one; with more, only their number at a time is shown
_SHORT = 0.05  # seconds; shorter gaps do not count


def timeline_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Effects between `from` and `to` (default: the whole run), by kind and, if few, singly.

    `lane` puts effects that ran at the same time below one another. `gaps` are the longest times
    without a running evaluation, `busy` is the share of all worker seconds in which one ran.
    """
    run.refresh()
    now = views.run_status(run.run)
    duration = max(
        [now.elapsed_seconds, *(span.end or span.start for span in run.spans[-50:])], default=0.0
    )
    low, high = _parse_number(params.get("from"), 0.0), _parse_number(params.get("to"), duration)
    high = high if high > low else duration
    spans = [
        _closed_span(span, duration)
        for span in run.spans
        if span.start <= high and (span.end or duration) >= low
    ]
    kinds = list(dict.fromkeys(span.effect for span in spans))
    evaluations = [span for span in spans if span.effect == "evaluate"]
    worked = sum(_seconds_inside(span, low, high) for span in evaluations)
    possible = now.workers * (high - low)
    return {
        "from": low,
        "to": high,
        "whole": duration,
        "workers": now.workers,
        "sessions": run.sessions,
        "kinds": kinds,
        "load": _binned_load(spans, kinds, low, high),
        "spans": _spans_in_lanes(spans, kinds) if len(spans) <= _DRAWN else [],
        "count": len(spans),
        "drawn": _DRAWN,
        "busy": worked / possible if possible > 0 else None,
        "gaps": _idle_gaps(evaluations, low, high),
        "outcomes": Counter(span.outcome or "running" for span in run.spans),
    }


def _parse_number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default


def _closed_span(span: TimelineSpan, duration: float) -> TimelineSpan:
    return span if span.end is not None else span._replace(end=duration, outcome="running")


def _seconds_inside(span: TimelineSpan, low: float, high: float) -> float:
    return max(0.0, min(span.end or 0.0, high) - max(span.start, low))


def _binned_load(
    spans: Sequence[TimelineSpan], kinds: Sequence[str], low: float, high: float
) -> JsonObject:
    """Mean number of effects in flight in each bin, by kind."""
    import numpy as np

    edges = np.linspace(low, high, _BINS + 1)
    series: dict[str, list[float]] = {}
    for kind in kinds:
        starts = np.sort([max(span.start, low) for span in spans if span.effect == kind])
        ends = np.sort([min(span.end or high, high) for span in spans if span.effect == kind])
        area = _area_before(starts, edges) - _area_before(ends, edges)
        series[kind] = [
            round(float(value), 4) for value in np.diff(area) / max((high - low) / _BINS, 1e-12)
        ]
    return {"edges": [round(float(edge), 4) for edge in edges], "kinds": series}


def _area_before(points: Floats, edges: Floats) -> Floats:
    """For every edge, the sum of (edge - point) over the sorted points before it."""
    import numpy as np

    sums = np.concatenate([[0.0], np.cumsum(points)])
    count = np.searchsorted(points, edges, side="right")
    return count * edges - sums[count]


def _spans_in_lanes(spans: Sequence[TimelineSpan], kinds: Sequence[str]) -> list[JsonObject]:
    """Each effect with the first free lane of its kind."""
    rows: list[JsonObject] = []
    for kind in kinds:
        free: list[int] = []
        ending: list[tuple[float, int]] = []
        lanes = 0
        for span in sorted(
            (span for span in spans if span.effect == kind), key=lambda span: (span.start, span.key)
        ):
            while ending and ending[0][0] <= span.start:
                heappush(free, heappop(ending)[1])
            if not free:
                heappush(free, lanes)
                lanes += 1
            lane = heappop(free)
            heappush(ending, (span.end or span.start, lane))
            rows.append(
                {
                    "key": span.key,
                    "effect": kind,
                    "lane": lane,
                    "from": span.start,
                    "to": span.end,
                    "how": span.outcome,
                }
            )
    return rows


def _idle_gaps(spans: Sequence[TimelineSpan], low: float, high: float) -> JsonObject:
    """Times without any of these spans: their number, total seconds, and the longest."""
    gaps: list[tuple[float, float]] = []
    until = low
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > until + _SHORT:
            gaps.append((until, span.start))
        until = max(until, span.end or high)
    if high > until + _SHORT:
        gaps.append((until, high))
    longest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:8]
    return {
        "count": len(gaps),
        "seconds": sum(end - start for start, end in gaps),
        "longest": [{"from": start, "to": end} for start, end in longest],
    }
