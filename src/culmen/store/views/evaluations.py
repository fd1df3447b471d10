"""Evaluations of a run, one by one, and what made them fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from culmen.core.evaluation import Observation
from culmen.store.codec import escape_text, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.reader import END, PAGE, select_events, stream_events
from culmen.store.sql import Connection


class EvaluationMark(NamedTuple):
    """One finished evaluation: its number from 1, its events, and what it evaluated.

    `seq` is the event of its result and `started` that of its start (0 if the result was taken over
    from another run), `key` the number of its effect; it was the `nth` of the candidate. `phase` is
    "" in the search.
    """

    number: int
    seq: int
    started: int
    key: int
    candidate: str
    nth: int
    case: str
    phase: str


def stream_observations(
    run: Path | str,
    candidate: str | None = None,
    phase: Literal["search", "final"] | None = None,
    ok: bool | None = None,
) -> Iterator[Observation]:
    """All observations, or those of one candidate (full id), in journal order; streamed.

    `phase`: only those of the final choice, or only those of the search (None: both). `ok`: only
    those that went well, or only the others.
    """
    wanted, values = ["seq > :last"], {} if candidate is None else {"id": escape_text(candidate)}
    if candidate is not None:
        wanted.append("candidate = :id")
    if phase is not None:
        wanted.append("phase <> ''" if phase == "final" else "phase = ''")
    if ok is not None:
        wanted.append(f"status {'=' if ok else '<>'} 'ok'")
    seqs = f"SELECT seq FROM observation WHERE {' AND '.join(wanted)} ORDER BY seq LIMIT {PAGE}"
    for each in stream_events(run, f"seq IN ({seqs}) ORDER BY seq", **values):
        if isinstance(each.entry.result, Observation):
            yield each.entry.result


def newest_observations(
    run: Path | str, limit: int, scored_below: float | None = None
) -> list[tuple[int, Observation]]:
    """The newest observations and their events' numbers, newest first.

    With `scored_below` only those without a score of at least that.
    """
    below = "" if scored_below is None else "WHERE score IS NULL OR score < :below"
    values = {} if scored_below is None else {"below": scored_below}
    newest = f"SELECT seq FROM observation {below} ORDER BY seq DESC LIMIT :limit"
    query = f"seq IN ({newest}) ORDER BY seq DESC"
    with open_snapshot(run) as connection:
        events = select_events(connection, query, limit=limit, **values)
    found = [(each.seq, each.entry.result) for each in events]
    return [(seq, seen) for seq, seen in found if isinstance(seen, Observation)]


def evaluation_seqs(run: Path | str, after: int = 0, last: int = END) -> list[int]:
    """Events that are observations, after event `after`, up to `last`."""
    query = "SELECT seq FROM observation WHERE seq > :after AND seq <= :last ORDER BY seq"
    with open_snapshot(run) as connection:
        return connection.execute(query, after=after, last=last).scalars()


def evaluation_mark(
    run: Path | str, number: int | None = None, candidate: str = ""
) -> EvaluationMark | None:
    """The finished evaluation with this number.

    Without a number the first one of a candidate, without both the last one; None if there is none.
    """
    if number is not None:
        rest = f"ORDER BY seq LIMIT 1 OFFSET {int(number) - 1}"
    elif candidate:
        rest = "WHERE candidate = :id ORDER BY seq LIMIT 1"
    else:
        rest = "ORDER BY seq DESC LIMIT 1"
    query = f'SELECT seq, candidate, "case", phase FROM observation {rest}'
    values = {"id": escape_text(candidate)} if ":id" in rest else {}
    with open_snapshot(run) as connection:
        row = connection.execute(query, **values).first()
        if row is None:
            return None
        counts = "SELECT count(seq) FROM observation WHERE seq <= :seq"
        nth = f"{counts} AND candidate = :id"
        key = connection.execute("SELECT key FROM event WHERE seq = :seq", seq=row.seq).scalar()
        starts = "SELECT max(seq) FROM event WHERE kind = 'started' AND key = :key AND seq < :seq"
        return EvaluationMark(
            connection.execute(counts, seq=row.seq).scalar(),
            row.seq,
            connection.execute(starts, key=key, seq=row.seq).scalar() or 0,
            key,
            unescape_text(row.candidate),
            connection.execute(nth, seq=row.seq, id=row.candidate).scalar(),
            unescape_text(row.case),
            unescape_text(row.phase),
        )


class FailureCauses(msgspec.Struct, frozen=True):
    """Counts of failures in a run.

    Of `candidates` evaluated in the search, `fruitless` never scored. `kinds` counts the latest
    failures by reason and last line of the feedback, joined by a line feed.
    """

    candidates: int
    fruitless: int
    kinds: dict[str, int] = {}


def failure_causes(run: Path | str) -> FailureCauses:
    """Number of candidates that failed, and the causes, most frequent first."""
    with open_snapshot(run) as connection:
        failed = _status_count(connection, ("ok", "lost"))
        every = connection.execute("SELECT count(candidate) FROM tally").scalar()
        # `failed` counts no evaluations that were lost
        barren = "SELECT count(candidate) FROM tally WHERE failed > 0 AND count = 0"
        fruitless = connection.execute(barren).scalar()
        latest = (
            "SELECT seq FROM observation WHERE status NOT IN ('ok', 'lost') "
            f"ORDER BY seq DESC LIMIT {min(200, failed)}"  # none is looked for beyond the last
        )
        found = select_events(connection, f"seq IN ({latest})")
    results = (event.entry.result for event in found)
    kinds = Counter(
        f"{r.reason or r.status.value}\n{r.last_words}"
        for r in results
        if isinstance(r, Observation)
    )
    return FailureCauses(every, fruitless, dict(kinds.most_common()))


def _status_count(connection: Connection, without: Sequence[str]) -> int:
    """Number of observations with another status than these, as the writer counts them."""
    query = "SELECT sum(value) FROM counter WHERE scope = 'status' AND name NOT IN :without"
    return int(connection.execute(query, without=list(without)).scalar() or 0)
