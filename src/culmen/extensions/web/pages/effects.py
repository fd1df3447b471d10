"""Calls: requests to models by role and model, with costs and faults; the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from culmen.core.json import JsonObject
from culmen.core.usage import Usage, total_usage
from culmen.extensions.web.pages.overview import spending_facts
from culmen.extensions.web.runs import Digest, TimelineSpan, thin_points
from culmen.store import views
from culmen.store.views import JournalPiece, RunStatus

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# A run too long to be read for a page: estimates from pieces of its journal, evenly spread over it.

LONG = 400_000
"""Events above which a page reads pieces of a journal."""
_READ, _LEAST, _MOST = 40_000, 400, 2_500  # events read in all; least and most events of a piece


class Flow(NamedTuple):
    """One piece: its begin and end (active seconds), and its load.

    `load` is the mean number of effects in flight by kind.
    """

    begin: float
    end: float
    load: dict[str, float]


class Pieces:
    """Pieces of the events `first` to `last` of a run.

    Each piece has more events than the effects in flight at a time, as estimated from `workers`.
    Effects in flight throughout a piece are not seen.
    """

    def __init__(self, run: Path, first: int, last: int, workers: int) -> None:
        size = max(_LEAST, min(_MOST, 4 * workers))
        self._pieces = [
            piece
            for piece in views.journal_pieces(run, first, last, _READ // size, size)
            if piece.marks
        ]
        self._share = sum(piece.last - piece.first for piece in self._pieces) / max(1, last - first)

    @property
    def events_read(self) -> int:
        """Number of events that were read."""
        return sum(piece.last - piece.first for piece in self._pieces)

    def effect_durations(self) -> dict[str, list[float]]:
        """Durations of effects in seconds, by kind.

        Only effects that began in the first quarter of a piece and ended within it.
        """
        taken: dict[str, list[float]] = {}
        for piece in self._pieces:
            began, until = dict[int, float](), piece.first + (piece.last - piece.first) / 4
            for mark in piece.marks:
                if mark.kind == "started" and mark.seq <= until:
                    began[mark.key] = mark.elapsed
                elif mark.kind == "done" and mark.key in began:
                    taken.setdefault(mark.effect, []).append(mark.elapsed - began.pop(mark.key))
        return taken

    @cached_property
    def flows(self) -> list[Flow]:
        """Effects in flight by piece; pieces in which no time passed are left out."""
        return [
            _piece_flow(piece)
            for piece in self._pieces
            if piece.marks[-1].elapsed > piece.marks[0].elapsed
        ]

    def effects_done(self) -> Counter[str]:
        """Estimated number of effects done, by kind."""
        done = Counter(m.effect for piece in self._pieces for m in piece.marks if m.kind == "done")
        return self._scaled_counts(done)

    def fault_counts(self) -> Counter[str]:
        """Estimated number of faults by kind, including those that a retry resolved."""
        counts = Counter[str]()
        for piece in self._pieces:
            for cost in piece.costs:
                counts.update(cost.faults)
        return self._scaled_counts(counts)

    def cumulative_spending(
        self, evaluations: int, dollars: float, tokens: int
    ) -> list[dict[str, float]]:
        """Cumulative evaluations, dollars and tokens by piece, scaled to end at these totals."""
        usage = [total_usage(cost.usage for cost in piece.costs) for piece in self._pieces]
        evaluated = [
            sum(m.kind == "done" and m.effect == "evaluate" for m in piece.marks)
            for piece in self._pieces
        ]
        columns = {
            "evaluations": _cumulative_portions(evaluated, evaluations),
            "dollars": _cumulative_portions([each.dollars for each in usage], dollars),
            "tokens": _cumulative_portions([each.tokens for each in usage], tokens),
        }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def _scaled_counts(self, counts: Counter[str]) -> Counter[str]:
        return Counter({name: round(count / self._share) for name, count in counts.items()})


def _cumulative_portions(parts: Sequence[float], total: float) -> list[float]:
    """Cumulative sums of the parts, scaled to end at `total`."""
    every, so_far, course = sum(parts) or 1.0, 0.0, list[float]()
    for part in parts:
        so_far += part
        course.append(total * so_far / every)
    return course


def _piece_flow(piece: JournalPiece) -> Flow:
    """Load of a piece.

    An effect that began before the piece or did not end within it counts up to its edge.
    """
    begin, end = piece.marks[0].elapsed, piece.marks[-1].elapsed
    began, busy = dict[int, tuple[str, float]](), Counter[str]()
    for mark in piece.marks:
        if mark.kind == "started":
            began[mark.key] = mark.effect, mark.elapsed
        elif mark.kind in ("done", "torn"):
            effect, start = began.pop(mark.key, (mark.effect, begin))
            busy[effect] += mark.elapsed - start  # pyright: ignore[reportArgumentType]
        else:  # a session ended: no effect is in flight any more
            began = _close_open_effects(began, busy, mark.elapsed)
    _close_open_effects(began, busy, end)
    return Flow(begin, end, {effect: seconds / (end - begin) for effect, seconds in busy.items()})


def _close_open_effects(
    began: dict[int, tuple[str, float]], busy: Counter[str], until: float
) -> dict[int, tuple[str, float]]:
    for effect, start in began.values():
        busy[effect] += until - start  # pyright: ignore[reportArgumentType]
    return {}


_POINTS = 300  # of a curve


def calls_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Calls by effect, role and model; totals; failures by kind; spending over time.

    `retries` are attempts of a call beyond the first; `seconds` are the median and the ninth decile
    of the durations (from start to result in the journal) by kind of effect. `sampled` is 0, or the
    number of events of a long run from which `tried`, `seconds` and `series` were estimated.
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
        **(_spending_course(run) if run.last <= LONG else _sampled_spending_course(run, now)),
        "lost": {
            "calls": now.usage.possibly_lost.calls,
            "dollars": now.usage.possibly_lost.dollars,
        },
        "uncertain": {"tokens": now.usage.uncertain.tokens, "dollars": now.usage.uncertain.dollars},
    }


_SUMMED = ("effects", "calls", "input", "output", "dollars", "unpriced", "cached", "retries")


def _call_row(call: views.CallCosts) -> JsonObject:
    usage = call.usage
    return {
        "effect": call.effect,
        "role": call.role,
        "model": call.model,
        "effects": call.effects,
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
        "sampled": 0,
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


def _sampled_spending_course(run: Digest, now: RunStatus) -> JsonObject:
    """The fields of `_course` for a run that is too long to be read in full."""
    seen, spent = _whole_run_pieces(run, now), now.usage
    series = thin_points(
        seen.cumulative_spending(
            now.evaluations, spent.dollars, spent.input_tokens + spent.output_tokens
        ),
        _POINTS,
    )
    return {
        "tried": _sorted_faults(seen.fault_counts()),
        "seconds": _duration_rows(seen.effect_durations()),
        "series": series,
        "shares": [],
        "sampled": seen.events_read,
        "dearest": [],
    }


def _whole_run_pieces(run: Digest, now: RunStatus) -> Pieces:
    """Pieces of the whole run, cached until `LONG` / 100 events are new."""
    return run.memoise_result(
        "pieces", run.last // (LONG // 100), lambda: Pieces(run.run, 1, run.last, now.workers)
    )


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
_CLOSE = 40_000  # events of a long run that are read in full


def timeline_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Effects between `from` and `to` (default: the whole run), by kind and, if few, singly.

    `lane` puts effects that ran at the same time below one another. `gaps` are the longest times
    without a running evaluation, `busy` is the share of all worker seconds in which one ran.
    `sampled` is 0, or the number of events of a long stretch from which these were estimated; there
    are then neither spans nor gaps.
    """
    run.refresh()
    now = views.run_status(run.run)
    if run.last > LONG:
        return _long_timeline(run, now, params)
    duration = max(
        [now.elapsed_seconds, *(span.end or span.start for span in run.spans[-50:])], default=0.0
    )
    low, high = _parse_number(params.get("from"), 0.0), _parse_number(params.get("to"), duration)
    high = high if high > low else duration
    return _timeline_document(now, run.spans, run.sessions, (low, high, duration))


def _timeline_document(
    now: RunStatus,
    every: Sequence[TimelineSpan],
    sessions: Sequence[float],
    shown: tuple[float, float, float],
) -> JsonObject:
    low, high, duration = shown
    spans = [
        _closed_span(span, duration)
        for span in every
        if span.start <= high and (span.end or duration) >= low
    ]
    kinds = list(dict.fromkeys(span.effect for span in spans))
    evaluations = [span for span in spans if span.effect == "evaluate"]
    worked = sum(_seconds_inside(span, low, high) for span in evaluations)
    possible = now.workers * (high - low)
    return {
        **_stretch_fields(now, sessions, shown),
        "kinds": kinds,
        "load": _binned_load(spans, kinds, low, high),
        "spans": _spans_in_lanes(spans, kinds) if len(spans) <= _DRAWN else [],
        "count": len(spans),
        "drawn": _DRAWN,
        "busy": worked / possible if possible > 0 else None,
        "gaps": _idle_gaps(evaluations, low, high),
        "outcomes": _outcome_counts(every),
        "sampled": 0,
    }


def _stretch_fields(
    now: RunStatus, sessions: Sequence[float], shown: tuple[float, float, float]
) -> JsonObject:
    """The seconds shown, the seconds of the whole run, and its sessions."""
    low, high, duration = shown
    return {
        "from": low,
        "to": high,
        "whole": duration,
        "workers": now.workers,
        "sessions": sessions,
    }


def _long_timeline(run: Digest, now: RunStatus, params: Mapping[str, str]) -> JsonObject:
    """The timeline of a long run: a short stretch in full, a longer one by pieces."""
    duration = now.elapsed_seconds
    low, high = _parse_number(params.get("from"), 0.0), _parse_number(params.get("to"), duration)
    high = high if high > low else duration
    sessions = list(
        dict.fromkeys(
            e.entry.elapsed for e in views.log_events(run.run, kinds=("state",), limit=1000)
        )
    )
    first, last = (
        views.seq_at(run.run, low) + 1,
        views.seq_at(run.run, high) if high < duration else run.last,
    )
    if last - first < _CLOSE:
        before = max(
            0, first - 8 * max(8, now.workers)
        )  # for effects that began earlier and still run
        return _timeline_document(
            now, run.spans_between(before, last), sessions, (low, high, duration)
        )
    part = (first, last) != (1, run.last)
    seen = Pieces(run.run, first, last, now.workers) if part else _whole_run_pieces(run, now)
    return {
        **_stretch_fields(now, sessions, (low, high, duration)),
        **_sampled_load(seen, now.workers, low, high),
        "spans": [],
        "drawn": _DRAWN,
        "gaps": {"count": 0, "seconds": 0.0, "longest": []},
        "sampled": seen.events_read,
    }


def _sampled_load(seen: Pieces, workers: int, low: float, high: float) -> JsonObject:
    """Effects in flight over time, interpolated between pieces."""
    import numpy as np

    edges = np.linspace(low, high, _BINS + 1)
    kinds = list(dict.fromkeys(kind for flow in seen.flows for kind in flow.load))
    middles = [(flow.begin + flow.end) / 2 for flow in seen.flows]
    load = {kind: [flow.load.get(kind, 0.0) for flow in seen.flows] for kind in kinds}
    at = (edges[1:] + edges[:-1]) / 2
    series = {
        kind: [round(float(y), 4) for y in np.interp(at, middles, values)]
        for kind, values in load.items()
    }
    running, ended = load.get("evaluate", []), seen.effects_done()
    return {
        "kinds": kinds,
        "load": {"edges": [round(float(edge), 4) for edge in edges], "kinds": series},
        "count": sum(ended.values()),
        "busy": sum(running) / len(running) / workers if running and workers else None,
        "outcomes": {"done": sum(ended.values())},
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


def _outcome_counts(spans: Sequence[TimelineSpan]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for span in spans:
        counts[span.outcome or "running"] = counts.get(span.outcome or "running", 0) + 1
    return counts
