"""Analyses over runs: best so far against budgets, coverage of the grid, request width."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import correlation, fmean, quantiles

import msgspec
from msgspec.structs import replace

from culmen.core.json import JsonObject
from culmen.extensions.bench.records import (
    Axis,
    Barrier,
    CandidateRequest,
    Filled,
    ReplyCandidate,
    RunRecord,
    share_of,
)
from culmen.report.displays import is_fall, worsening_text

Series = list[tuple[float, float]]

STEPS = 40  # points of a curve over the course of runs


def best_so_far(records: Sequence[RunRecord], axis: Axis, steps: int = STEPS) -> Table:
    """Score of the best candidate against spending (Section 5.2, Figure 2).

    Rows are equal shares of the largest spending among the runs; scores are in the task's own
    direction. Failed evaluations count; the best is the candidate that `culmen status` would have
    shown at that moment. A run that ended earlier keeps its last value, a run without a value yet
    is left out: `runs` is the number of runs in a row.
    """
    title = f"best so far against {axis.replace('_', ' ')}"
    missing = _no_axis(records, axis)
    if missing:
        return Table(f"best_by_{axis}", title, skipped=missing)
    series = [_best_series(record, axis) for record in records]
    rows: Rows = []
    for x in _axis_marks(
        [each[-1][0] for each in series if each], steps, integers=axis not in ("dollars", "seconds")
    ):
        seen = [_value_at(each, x) for each in series]
        rows.append(
            {
                axis: x,
                **quartile_columns("score", seen),
                "runs": sum(value is not None for value in seen),
            }
        )
    falls = any(
        is_fall(record.direction, before[1], after[1])
        for record, each in zip(records, series)
        for before, after in pairwise(each)
    )
    notes = (f"Scores are noisy: {worsening_text(records[0].direction)}.",) if falls else ()
    return Table(f"best_by_{axis}", title, rows, notes=notes)


def coverage_table(records: Sequence[RunRecord], snapshots: int = 10) -> Table:
    """Cells taken and mean reward of their occupants against evaluations (Section 6).

    Rows are equal shares of the evaluations. Cells are summed over islands, since each has a grid
    of its own; quality is the mean over all cells.
    """
    name, title = "coverage", "cells taken and their mean reward against evaluations"
    having = [record for record in records if record.filled]
    if not having:
        return Table(name, title, skipped="this strategy does not keep a grid of cells")
    rows: Rows = []
    for mark in _axis_marks([record.evaluations for record in having], snapshots, integers=True):
        states = [_island_states(record.filled, mark) for record in having]
        known = [state for state in states if state]
        cells = [float(sum(each.cells for each in state)) for state in known]
        row = {
            "evaluations": mark,
            **quartile_columns("cells", cells),
            **quartile_columns("quality", map(_mean_quality, known)),
        }
        rows.append({**row, "runs": len(known)})
    return Table(name, title, rows)


def width_table(records: Sequence[RunRecord], steps: int = STEPS) -> Table:
    """Candidates per request (K) against evaluations.

    The mean over a run's islands, with median and quartiles over runs.
    """
    name, title = "width", "candidates per request (K) against evaluations"
    having = [record for record in records if _adapts_width(record)]
    if not having:
        return Table(name, title, skipped=_NO_WIDTH)
    rows: Rows = []
    for mark in _axis_marks([record.evaluations for record in having], steps, integers=True):
        means = [mean_of_known(_widths_in_force(record, mark).values()) for record in having]
        known = sum(value is not None for value in means)
        rows.append({"evaluations": mark, **quartile_columns("k", means), "runs": known})
    return Table(name, title, rows)


def width_by_island(records: Sequence[RunRecord]) -> Table:
    """Candidates per request (K) for every request of every island."""
    name, title = "width_by_island", "candidates per request (K), island by island"
    rows: Rows = [
        {
            "run": record.run,
            "island": ask.island,
            "turn": ask.turn,
            "evaluations": ask.evaluations,
            "k": ask.k,
        }
        for record in records
        if _adapts_width(record)
        for ask in sorted(record.asks, key=lambda ask: (ask.island, ask.turn))
    ]
    return Table(name, title, rows, skipped="" if rows else _NO_WIDTH)


_NO_WIDTH = "this strategy does not record how many candidates it requests at once"


def _no_axis(records: Sequence[RunRecord], axis: Axis) -> str:
    if not any(record.moments and record.moments[-1].best is not None for record in records):
        return "nothing has scored yet"
    if axis == "dollars":
        unpriced = sum(record.unpriced for record in records)
        if unpriced:
            return f"the price of {unpriced} calls is unknown, so dollars are not known"
        if not any(record.moments and record.moments[-1].dollars for record in records):
            return "nothing was paid for: the model is offline or free"
    if axis.startswith("proposal") and not any(
        record.moments and record.moments[-1].proposals for record in records
    ):
        return "no candidate was requested"
    return ""


def _best_series(record: RunRecord, axis: Axis) -> Series:
    """Pairs of spending along the axis and the best score at that point."""
    return [
        (getattr(moment, axis), moment.best) for moment in record.moments if moment.best is not None
    ]


def _axis_marks(ends: Sequence[float], count: int, integers: bool) -> list[float]:
    """`count` equal shares of the largest end.

    With `integers`, they are positive whole numbers without repeats.
    """
    end = max(ends, default=0)
    marks = [end * step / count for step in range(1, count + 1)]
    return sorted({max(1, round(mark)) for mark in marks}) if integers else marks


def _value_at(series: Series, x: float) -> float | None:
    """The last value at or before x; None before the first."""
    count = bisect_right(series, x, key=lambda pair: pair[0])
    return series[count - 1][1] if count else None


def _island_states(filled: Sequence[Filled], mark: float) -> list[Filled]:
    """The last state of every island at or before the mark."""
    last: dict[int, Filled] = {each.island: each for each in filled if each.evaluations <= mark}
    return list(last.values())


def _mean_quality(state: Sequence[Filled]) -> float | None:
    known = [(each.cells, each.quality) for each in state if each.quality is not None]
    cells = sum(count for count, _ in known)
    return sum(count * quality for count, quality in known) / cells if cells else None


def _adapts_width(record: RunRecord) -> bool:
    return any(ask.next_k is not None for ask in record.asks)


def _widths_in_force(record: RunRecord, mark: float) -> dict[int, float]:
    """K in force on every island after `mark` evaluations."""
    return {
        ask.island: float(ask.next_k or ask.k) for ask in record.asks if ask.evaluations <= mark
    }


# Tables and the statistics in them: everything is computed within a run first, then summarised over
# runs.

Rows = list[JsonObject]


class Table(msgspec.Struct, frozen=True):
    """One analysis: its `rows`, or none and the reason in `skipped`; `notes` are remarks."""

    name: str
    title: str
    rows: Rows = []
    skipped: str = ""
    notes: tuple[str, ...] = ()


def quartile_columns(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """Median and quartiles of the known values, by linear interpolation; None without any."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return {name: None, f"{name}_q1": None, f"{name}_q3": None}
    low, middle, high = quantiles(known, n=4, method="inclusive") if len(known) > 1 else known * 3
    return {name: middle, f"{name}_q1": low, f"{name}_q3": high}


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def share_true(flags: Sequence[bool]) -> float | None:
    """Share of true flags; None for no flags."""
    return sum(flags) / len(flags) if flags else None


def quantile_bins(values: Sequence[float], count: int) -> list[int]:
    """The quantile bin of every value, 1 (lowest) to `count`, by the share of values below.

    Equal values share a bin, so that bins may be empty if values are tied.
    """
    ranked = sorted(values)
    return [
        1 + min(count - 1, bisect_left(ranked, value) * count // len(ranked)) for value in values
    ]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties by mean rank.

    None for fewer than three pairs, or if either side is constant.
    """
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return correlation(_mean_ranks(one), _mean_ranks(other))


def _mean_ranks(values: Sequence[float]) -> list[float]:
    ranked = sorted(values)
    return [(bisect_left(ranked, value) + 1 + bisect_right(ranked, value)) / 2 for value in values]


# Results of requests for several candidates: top-m replay, profile by rank, distance against K.

TIERS = 5  # groups of requests by the rank of their inspirations
EVERY = "all"


def top_m(records: Sequence[RunRecord], k: int | None = None) -> Table:
    """Within-event replay (Section 6.1, Figure 4) of requests for `k` candidates.

    `k` None means the widest requests. `improve`: the share of requests with a candidate better
    than the parent among their first m; `best_gain`: the mean of the best gain among the first m,
    over the requests in which any of these was scored, `scored` the share of such requests. `tier`:
    a fifth of the run's requests by the highest reward shown as inspiration, 1 the lowest, or
    `all`.
    """
    title = "results if only the first m candidates of a request had been kept"
    width, runs, table = _requests_of_width(records, k, Table("top_m", title))
    tiered = [_requests_by_tier(asks) for asks in runs]
    rows: Rows = []
    for tier in (EVERY, *range(1, TIERS + 1)):
        chosen = [tiers[tier] for tiers in tiered if tiers.get(tier)]
        if not chosen:
            continue
        for m in range(1, width + 1):
            row: JsonObject = {"tier": tier, "m": m}
            replays = [_replay_first_m(asks, m) for asks in chosen]
            for name in replays[0]:
                row |= quartile_columns(name, (each[name] for each in replays))
            rows.append(row | {"requests": sum(map(len, chosen)), "runs": len(chosen)})
    return replace(table, rows=rows)


def rank_profile(records: Sequence[RunRecord], k: int | None = None) -> Table:
    """Profile by place in the reply (Section 6.2, Figure 5), of requests for `k` candidates.

    `valid`: the share with a score among the evaluated candidates; `improve`: the share better than
    the parent among the returned ones; `gain`: mean gain of the valid ones; `distance`: their mean
    distance from the parent's cell, in cells.
    """
    width, runs, table = _requests_of_width(
        records, k, Table("rank_profile", "candidates by their place in the reply")
    )
    ranks = [(str(rank), range(rank, rank + 1)) for rank in range(1, width + 1)]
    notes = (*table.notes, *_novelty_notes(runs))
    return replace(table, rows=_profile_rows("rank", ranks, runs), notes=notes)


def rank_groups(records: Sequence[RunRecord], k: int | None = None) -> Table:
    """The profile by head, middle and tail of the reply.

    For K = 7 these are ranks 1-2, 3-5 and 6-7; for other K they are in proportion.
    """
    title = "candidates at the head, in the middle and at the tail of the reply"
    width, runs, table = _requests_of_width(records, k, Table("rank_groups", title))
    edge = max(1, round(2 * width / 7))
    parts = (
        range(1, edge + 1),
        range(edge + 1, width - edge + 1),
        range(width - edge + 1, width + 1),
    )
    groups = [
        (f"{name} {_rank_span(part)}", part)
        for name, part in zip(("head", "mid", "tail"), parts if width else ())
        if part
    ]
    return replace(table, rows=_profile_rows("group", groups, runs))


def distance_by_k(records: Sequence[RunRecord]) -> Table:
    """Improvement by distance of the inspirations and by K (Section 6.3, Figure 6).

    `decile`: a tenth of the run's requests by the mean distance between parent and inspirations, 1
    the nearest; `improve`: the share of requests with any candidate better than the parent;
    `best_gain`: the mean of the best gain of a request, 0 for a request without an improvement.
    Computed per (k, decile) within a run, then summarised over the runs that have such requests.
    """
    name, title = (
        "distance_by_k",
        "improvement by distance of the inspirations and candidates per request (K)",
    )
    cells: dict[tuple[int, int], list[tuple[float | None, float | None, int]]] = {}
    for record in records:
        asks = [ask for ask in record.asks if ask.distance is not None and ask.parent is not None]
        deciles = quantile_bins([ask.distance or 0.0 for ask in asks], 10)
        within: dict[tuple[int, int], list[float]] = {}
        for ask, decile in zip(asks, deciles):
            within.setdefault((ask.k, decile), []).append(
                max(0.0, _best_gain(ask, len(ask.children)) or 0.0)
            )
        for key, gains in within.items():
            cells.setdefault(key, []).append(
                (share_true([gain > 0 for gain in gains]), mean_of_known(gains), len(gains))
            )
    if not cells:
        return Table(
            name,
            title,
            skipped="no request records the distance of its inspirations from its parent",
        )
    rows: Rows = []
    for (k, decile), seen in sorted(cells.items()):
        improve, gain, counts = zip(*seen)
        row = {
            "k": k,
            "decile": decile,
            **quartile_columns("improve", improve),
            **quartile_columns("best_gain", gain),
        }
        rows.append({**row, "requests": sum(counts), "runs": len(seen)})
    return Table(name, title, rows)


def _requests_of_width(
    records: Sequence[RunRecord], k: int | None, table: Table
) -> tuple[int, list[list[CandidateRequest]], Table]:
    """The width analysed and, by run, the requests of that width with a scored parent.

    The table counts them; without any, the width is 0 and the table says why.
    """
    usable = [[ask for ask in record.asks if ask.parent is not None] for record in records]
    width = k or max((ask.k for asks in usable for ask in asks), default=0)
    requests = [chosen for asks in usable if (chosen := [ask for ask in asks if ask.k == width])]
    why = ""
    if not any(record.asks for record in records):
        why = "the journal does not record the results of requests for candidates"
    elif width < 2 and k is None:
        why = "every request asked for one candidate; this needs several in one reply"
    elif not requests:
        why = f"no request asked for {width} candidates with a parent that had a score"
    if why:
        return 0, [], replace(table, skipped=why)
    short = sum(len(ask.children) < width for asks in requests for ask in asks)
    count = sum(map(len, requests))
    note = f"requests for K = {width} candidates: {count} in {len(requests)} runs"
    note += f"; {short} of them returned fewer" if short else ""
    return width, requests, replace(table, notes=(note,))


def _requests_by_tier(asks: Sequence[CandidateRequest]) -> dict[int | str, list[CandidateRequest]]:
    """All requests, and those with inspirations by tier."""
    shown = [ask for ask in asks if ask.inspiration is not None]
    tiers: dict[int | str, list[CandidateRequest]] = {EVERY: list(asks)}
    for ask, tier in zip(shown, quantile_bins([ask.inspiration or 0.0 for ask in shown], TIERS)):
        tiers.setdefault(tier, []).append(ask)
    return tiers


def _replay_first_m(asks: Sequence[CandidateRequest], m: int) -> dict[str, float | None]:
    """Results of one run's requests if only the first m candidates had been kept."""
    best = [_best_gain(ask, m) for ask in asks]
    return {
        "improve": share_true([gain is not None and gain > 0 for gain in best]),
        "best_gain": mean_of_known(best),
        "scored": share_true([gain is not None for gain in best]),
    }


def _best_gain(ask: CandidateRequest, m: int) -> float | None:
    """The highest gain among the first m of the reply; None if none has a gain."""
    gains = [
        gain for child in ask.children if child.rank <= m and (gain := ask.gain(child)) is not None
    ]
    return max(gains, default=None)


def _profile_rows(
    key: str, groups: Iterable[tuple[str, range]], runs: Sequence[Sequence[CandidateRequest]]
) -> Rows:
    rows: Rows = []
    for name, ranks in groups:
        statistics = [
            _candidate_statistics(pairs)
            for asks in runs
            if (pairs := [(a, child) for a in asks for child in a.children if child.rank in ranks])
        ]
        row: JsonObject = {key: name}
        for column in ("valid", "improve", "gain", "distance"):
            row |= quartile_columns(column, (each[column] for each in statistics))
        rows.append(
            {
                **row,
                "candidates": sum(int(each["count"] or 0) for each in statistics),
                "runs": len(statistics),
            }
        )
    return rows


def _candidate_statistics(
    pairs: Sequence[tuple[CandidateRequest, ReplyCandidate]],
) -> dict[str, float | None]:
    """Statistics of one run's candidates at some ranks."""
    unevaluated = ("known", "unseen", "lost")
    valid = [child.status == "ok" for _, child in pairs if child.status not in unevaluated]
    gains = [ask.gain(child) for ask, child in pairs]
    return {
        "valid": share_true(valid),
        "improve": share_true([gain is not None and gain > 0 for gain in gains]),
        "gain": mean_of_known(gains),
        "distance": mean_of_known(_cell_distance(ask, child) for ask, child in pairs),
        "count": len(pairs),
    }


def _cell_distance(ask: CandidateRequest, child: ReplyCandidate) -> float | None:
    """Euclidean distance between the cells of parent and child, in cells."""
    return None if ask.cell is None or child.cell is None else math.dist(ask.cell, child.cell)


def _novelty_notes(runs: Sequence[Sequence[CandidateRequest]]) -> tuple[str, ...]:
    """Rank correlation of distance and gain over valid candidates (Figure 5, last panel)."""
    correlations: list[float | None] = []
    for asks in runs:
        pairs = [
            (far, gain)
            for ask in asks
            for child in ask.children
            if (far := _cell_distance(ask, child)) is not None
            and (gain := ask.gain(child)) is not None
        ]
        correlations.append(
            rank_correlation([far for far, _ in pairs], [gain for _, gain in pairs])
        )
    figures = quartile_columns("r", correlations)
    if figures["r"] is None:
        return ()
    return (
        f"rank correlation of distance and gain: {figures['r']:.2f} ({figures['r_q1']:.2f} to "
        f"{figures['r_q3']:.2f})",
    )


def _rank_span(ranks: range) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"


def training_table(runs: Sequence[Sequence[Barrier]]) -> Table:
    """Diagnostics by barrier: median and quartiles over the `runs` that reached it."""
    having = [barriers for barriers in runs if barriers]
    measures = list(
        dict.fromkeys(key for barriers in having for each in barriers for key in each.measures)
    )
    rows: Rows = []
    for number in range(max(map(len, having))):
        reached = [barriers[number] for barriers in having if len(barriers) > number]
        row: JsonObject = {"barrier": number + 1, "runs": len(reached)}
        row |= quartile_columns("evaluations", [each.evaluations for each in reached])
        row["skipped"] = share_of(sum(bool(each.skip) for each in reached), reached)
        row["alarmed"] = share_of(sum(bool(each.alarms) for each in reached), reached)
        for measure in measures:
            row |= quartile_columns(measure, [each.measures.get(measure) for each in reached])
        rows.append(row)
    return Table("training", "training of the advisor against barriers", rows)


def training_events(runs: Sequence[Sequence[Barrier]]) -> Table:
    """Counts of skipped updates, alarms and failed decisions, by reason."""
    name, title = "training_events", "skipped updates, alarms and failed decisions of the training"
    counts = Counter[tuple[str, str]]()
    for each in (each for barriers in runs for each in barriers):
        counts.update({("skip", each.skip): 1} if each.skip else {})
        counts.update(("alarm", alarm) for alarm in each.alarms)
        counts.update({("failure", kind): times for kind, times in each.failures.items()})
    total = sum(map(len, runs))
    rows: Rows = [
        {"what": what, "reason": reason, "times": times, "per_barrier": times / total}
        for (what, reason), times in sorted(
            counts.items(), key=lambda pair: (pair[0][0], -pair[1], pair[0][1])
        )
    ]
    return Table(
        name, title, rows, skipped="" if rows else "every barrier took a step, and nothing failed"
    )


class Group(msgspec.Struct, frozen=True):
    """Runs of one task by one strategy with equal settings and model, differing in seeds.

    `trust` is the level of the weakest score in them (`core.evaluation`), `unfinished` names those
    that have not finished, each with its state.
    """

    label: str
    task: str
    direction: str
    runs: tuple[str, ...]
    tables: tuple[Table, ...]
    trust: str = ""
    unfinished: tuple[str, ...] = ()
