"""What came of requests for several candidates: top-m replay, profile by rank, distance against K.

TurboEvolve, Sections 6.1 to 6.3. K is chosen while a run goes on, wider when it stalls: compare nothing across K as if
K were its cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from culmen.report.analyze_record import Ask, Child, Record
from culmen.report.analyze_table import Rows, Table, bins, mean, rank_correlation, share, spread

TIERS = 5
DECILES = 10
EVERY = "all"


class Replay(NamedTuple):
    """Of one run's requests, had only the first m candidates been kept."""

    improve: float | None
    best_gain: float | None
    scored: float | None
    asks: int


def top_m(records: Sequence[Record], k: int | None = None) -> Table:
    """Within-event replay (Section 6.1, Figure 4) of the requests for `k` candidates (None: the widest there are).

    `improve`: the share of requests among whose first m at least one is better than the parent; `best_gain`: the mean
    of the best gain among the first m, over the requests where any of these was scored, `scored` their share. `tier`:
    a fifth of the run's requests by the highest reward shown as inspiration, 1 the lowest, or `all`.
    """
    name, title = "top_m", "had only the first m candidates of a request been kept"
    found, why = _wide(records, k)
    if why:
        return Table(name, title, skipped=why)
    width, runs = found
    tiered = [_tiered(asks) for asks in runs]
    rows: Rows = []
    for tier in (EVERY, *range(1, TIERS + 1)):
        chosen = [tiers[tier] for tiers in tiered if tiers.get(tier)]
        if not chosen:
            continue
        for m in range(1, width + 1):
            replays = [_replay(asks, m) for asks in chosen]
            rows.append({"tier": tier, "m": m, **_told(replays), "runs": len(replays)})
    return Table(name, title, rows, notes=_notes(width, runs))


def rank_profile(records: Sequence[Record], k: int | None = None) -> Table:
    """Validity, gain and cell distance by place in the reply (Section 6.2, Figure 5), of requests for `k` candidates.

    `valid`: the share with a score among those evaluated; `improve`: the share better than the parent among those
    returned; `gain`: mean gain of the valid ones; `distance`: their mean distance from the parent's cell, in cells.
    """
    name, title = "rank_profile", "candidates by their place in the reply"
    found, why = _wide(records, k)
    if why:
        return Table(name, title, skipped=why)
    width, runs = found
    ranks = [(str(rank), range(rank, rank + 1)) for rank in range(1, width + 1)]
    return Table(name, title, _profile("rank", ranks, runs), notes=(*_notes(width, runs), *_novelty(runs)))


def rank_groups(records: Sequence[Record], k: int | None = None) -> Table:
    """The profile by head, middle and tail of the reply: ranks 1-2, 3-5 and 6-7 for K = 7, in proportion otherwise."""
    name, title = "rank_groups", "candidates at the head, in the middle and at the tail of the reply"
    found, why = _wide(records, k)
    if why:
        return Table(name, title, skipped=why)
    width, runs = found
    edge = max(1, round(2 * width / 7))
    parts = (range(1, edge + 1), range(edge + 1, width - edge + 1), range(width - edge + 1, width + 1))
    groups = [(f"{name} {_span(part)}", part) for name, part in zip(("head", "mid", "tail"), parts) if part]
    return Table(name, title, _profile("group", groups, runs), notes=_notes(width, runs))


def distance_by_k(records: Sequence[Record]) -> Table:
    """Chance and size of an improvement by distance of the inspirations and K (Section 6.3, Figure 6).

    `decile`: a tenth of the run's requests by the mean distance between parent and inspirations, 1 the nearest;
    `improve`: the share of requests with any candidate better than the parent; `best_gain`: the mean of the best gain
    of a request, 0 where nothing was better. Computed per cell within a run, then told over the runs that have it.
    """
    name, title = "distance_by_k", "improvement by distance of the inspirations and candidates per request (K)"
    cells: dict[tuple[int, int], list[tuple[float | None, float | None, int]]] = {}
    for record in records:
        asks = [ask for ask in record.asks if ask.distance is not None and ask.parent is not None]
        deciles = bins([ask.distance or 0.0 for ask in asks], DECILES)
        within: dict[tuple[int, int], list[float]] = {}
        for ask, decile in zip(asks, deciles):
            within.setdefault((ask.k, decile), []).append(max(0.0, _best(ask, len(ask.children)) or 0.0))
        for key, gains in within.items():
            cells.setdefault(key, []).append((share([gain > 0 for gain in gains]), mean(gains), len(gains)))
    if not cells:
        return Table(name, title, skipped="no request tells how far its inspirations were from its parent")
    rows: Rows = []
    for (k, decile), seen in sorted(cells.items()):
        improve, gain, counts = zip(*seen)
        row = {"k": k, "decile": decile, **spread("improve", improve), **spread("best_gain", gain)}
        rows.append({**row, "requests": sum(counts), "runs": len(seen)})
    return Table(name, title, rows)


def _wide(records: Sequence[Record], k: int | None) -> tuple[tuple[int, list[list[Ask]]], str]:
    """The width looked at and, run by run, the requests of that width with a scored parent; or why there are none."""
    usable = [[ask for ask in record.asks if ask.parent is not None] for record in records]
    width = k or max((ask.k for asks in usable for ask in asks), default=0)
    found = [chosen for asks in usable if (chosen := [ask for ask in asks if ask.k == width])]
    if not any(record.asks for record in records):
        return (0, []), "the journal holds no requests for candidates that tell what came of them"
    if width < 2 and k is None:
        return (0, []), "every request asked for one candidate; this needs several in one reply"
    if not found:
        return (0, []), f"no request asked for {width} candidates with a parent that had a score"
    return (width, found), ""


def _notes(width: int, runs: Sequence[Sequence[Ask]]) -> tuple[str, ...]:
    asks = [ask for each in runs for ask in each]
    short = sum(len(ask.children) < width for ask in asks)
    note = f"requests for K = {width} candidates: {len(asks)} in {len(runs)} runs"
    return (note + (f"; {short} of them brought fewer" if short else ""),)


def _tiered(asks: Sequence[Ask]) -> dict[Any, list[Ask]]:
    """All requests, and those with inspirations by tier."""
    shown = [ask for ask in asks if ask.inspiration is not None]
    tiers: dict[Any, list[Ask]] = {EVERY: list(asks)}
    for ask, tier in zip(shown, bins([ask.inspiration or 0.0 for ask in shown], TIERS)):
        tiers.setdefault(tier, []).append(ask)
    return tiers


def _replay(asks: Sequence[Ask], m: int) -> Replay:
    best = [_best(ask, m) for ask in asks]
    improved = share([gain is not None and gain > 0 for gain in best])
    return Replay(improved, mean(best), share([gain is not None for gain in best]), len(asks))


def _told(replays: Sequence[Replay]) -> dict[str, Any]:
    return {
        **spread("improve", (replay.improve for replay in replays)),
        **spread("best_gain", (replay.best_gain for replay in replays)),
        **spread("scored", (replay.scored for replay in replays)),
        "requests": sum(replay.asks for replay in replays),
    }


def _best(ask: Ask, m: int) -> float | None:
    """The highest gain among the first m of the reply; None if none of them has one."""
    gains = [gain for child in ask.children if child.rank <= m and (gain := ask.gain(child)) is not None]
    return max(gains, default=None)


def _profile(key: str, groups: Iterable[tuple[str, range]], runs: Sequence[Sequence[Ask]]) -> Rows:
    rows: Rows = []
    for name, ranks in groups:
        told = [_features(pairs) for asks in runs if (pairs := list(_pairs(asks, ranks)))]
        row: dict[str, Any] = {key: name}
        for column in ("valid", "improve", "gain", "distance"):
            row |= spread(column, (each[column] for each in told))
        rows.append({**row, "candidates": sum(int(each["count"] or 0) for each in told), "runs": len(told)})
    return rows


def _pairs(asks: Iterable[Ask], ranks: range) -> Iterator[tuple[Ask, Child]]:
    return ((ask, child) for ask in asks for child in ask.children if child.rank in ranks)


def _features(pairs: Sequence[tuple[Ask, Child]]) -> dict[str, float | None]:
    """Figures of one run's candidates at some ranks."""
    counted = Counter("ok" if child.status == "ok" else "other" for _, child in pairs if _evaluated(child))
    gains = [ask.gain(child) for ask, child in pairs]
    return {
        "valid": counted["ok"] / counted.total() if counted else None,
        "improve": share([gain is not None and gain > 0 for gain in gains]),
        "gain": mean(gains),
        "distance": mean(_distance(ask, child) for ask, child in pairs),
        "count": len(pairs),
    }


def _evaluated(child: Child) -> bool:
    return child.status not in ("known", "unseen", "lost")


def _distance(ask: Ask, child: Child) -> float | None:
    """How many cells apart parent and child are, along the straight line."""
    return None if ask.cell is None or child.cell is None else math.dist(ask.cell, child.cell)


def _novelty(runs: Sequence[Sequence[Ask]]) -> tuple[str, ...]:
    """How far a candidate's distance goes with its gain, over the valid ones (Figure 5, last panel)."""
    told: list[float | None] = []
    for asks in runs:
        pairs = [
            (far, gain)
            for ask in asks
            for child in ask.children
            if (far := _distance(ask, child)) is not None and (gain := ask.gain(child)) is not None
        ]
        told.append(rank_correlation([far for far, _ in pairs], [gain for _, gain in pairs]))
    figures = spread("r", told)
    if figures["r"] is None:
        return ()
    return (
        f"rank correlation of distance and gain: {figures['r']:.2f} ({figures['r_q1']:.2f} to {figures['r_q3']:.2f})",
    )


def _span(ranks: range) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
