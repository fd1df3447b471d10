"""What the runs shown on the Compare page say about their strategies: the document of `culmen compare`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from culmen.report.analyze_record import Moment
from culmen.report.compare import document
from culmen.report.compare_read import Entry, of
from culmen.store import views
from culmen.web.digest import Digest


def statistics(runs: Sequence[Digest]) -> dict[str, Any] | None:
    """The comparison of the finished runs; None where there are no two of them."""
    read = [run.refresh().memo("entry", run.last, lambda run=run: _entry(run)) for run in runs]
    if sum(entry.state == "finished" for entry in read) < 2:
        return None
    names = {entry.strategy: run.strategy for entry, run in zip(read, runs)}
    return _made(msgspec.json.encode(read), tuple(sorted(names.items())))


def _entry(run: Digest) -> Entry:
    points = [
        Moment(point.evaluations, point.elapsed, run.spent_at(point.seq).dollars, point.mean)
        for point in views.progress(run.run)
    ]
    return of(views.status(run.run), run.meta, points)


@lru_cache(maxsize=16)
def _made(entries: bytes, names: tuple[tuple[str, str], ...]) -> dict[str, Any] | None:
    """Drawing thousands of samples takes a while: not again for the same runs."""
    return document(msgspec.json.decode(entries, type=list[Entry]), dict(names))
