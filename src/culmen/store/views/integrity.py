"""How far the scores of a run can be trusted: levels, noise, signs that candidates left, the final choice in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.evaluation import LEVELS, Observation
from culmen.store.codec import unescape
from culmen.store.database import reading
from culmen.store.ranking import pooled_sd
from culmen.store.reader import PAGE, Texts, assemble
from culmen.store.views.run import last_state

if TYPE_CHECKING:
    from sqlalchemy import Connection


class Finding(msgspec.Struct, frozen=True):
    """A sign found with an observation: its machine word, what was seen, and where in the candidate's text."""

    seq: int
    candidate: str
    sign: str
    evidence: str
    grave: bool
    part: str = ""
    line: int = 0
    score: float | None = None


class Integrity(msgspec.Struct, frozen=True):
    """`levels` counts scored observations by level of trust; `repeated` the candidates scored more than once, `sd` the
    pooled deviation of their scores, `unstable` those whose scores of one case differ."""

    levels: dict[str, int]
    sd: float
    repeated: int
    unstable: int
    findings: tuple[Finding, ...]


def integrity(run: Path | str, limit: int = 200) -> Integrity:
    """What is known of a run's integrity, with at most `limit` findings, the latest ones first."""
    from sqlalchemy import func, select

    from culmen.store.schema import tally

    folder = Path(run)
    with reading(folder) as connection:
        repeated = connection.execute(select(func.count()).select_from(tally).where(tally.c.count > 1)).scalar_one()
        return Integrity(
            levels=_levels(connection),
            sd=pooled_sd(connection),
            repeated=repeated,
            unstable=_unstable(connection),
            findings=_findings(connection, folder, limit),
        )


def verdict(run: Path | str) -> dict[str, Any] | None:
    """The engine's final choice as it was journaled, None before it was made."""
    with reading(Path(run)) as connection:
        winner = last_state(connection).get("winner")
    return winner if isinstance(winner, dict) else None


def phase_means(run: Path | str, phase: str) -> dict[str, float]:
    """Mean score of each candidate over its evaluations of one phase (`final`)."""
    from sqlalchemy import func, select

    from culmen.store.schema import observation as seen

    query = select(seen.c.candidate, func.avg(seen.c.score)).where(seen.c.phase == phase, seen.c.score.is_not(None))
    with reading(Path(run)) as connection:
        return {unescape(row[0]): row[1] for row in connection.execute(query.group_by(seen.c.candidate))}


def case_means(run: Path | str, candidates: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean score of each of the candidates on every case it was scored on."""
    from sqlalchemy import func, select

    from culmen.store.schema import observation as seen

    query = select(seen.c.candidate, seen.c.case, func.avg(seen.c.score)).where(seen.c.score.is_not(None))
    query = query.where(seen.c.candidate.in_(list(candidates))).group_by(seen.c.candidate, seen.c.case)
    found: dict[str, dict[str, float]] = {}
    with reading(Path(run)) as connection:
        for candidate, case, mean in connection.execute(query.order_by(func.min(seen.c.seq))):
            found.setdefault(unescape(candidate), {})[unescape(case)] = mean
    return found


def _levels(connection: Connection) -> dict[str, int]:
    counts = Counter[str]()
    for level, count in _counted(connection, "trust"):
        counts[unescape(level) or LEVELS[-1]] += count
    return {level: counts[level] for level in LEVELS if counts[level]}


def _counted(connection: Connection, scope: str) -> Sequence[tuple[str, int]]:
    from sqlalchemy import select

    from culmen.store.schema import counter

    rows = connection.execute(select(counter.c.name, counter.c.value).where(counter.c.scope == scope))
    return [(row[0], row[1]) for row in rows]


def _unstable(connection: Connection) -> int:
    """Candidates with different scores for one case."""
    from sqlalchemy import distinct, func, select

    from culmen.store.schema import observation as seen

    differ = select(seen.c.candidate).where(seen.c.score.is_not(None)).group_by(seen.c.candidate, seen.c.case)
    differ = differ.having(func.max(seen.c.score) > func.min(seen.c.score)).subquery()
    return connection.execute(select(func.count(distinct(differ.c.candidate)))).scalar_one()


def _findings(connection: Connection, folder: Path, limit: int) -> tuple[Finding, ...]:
    from sqlalchemy import select

    from culmen.store.schema import event
    from culmen.store.views.portable import holds

    if not _counted(connection, "sign"):
        return ()
    marked = holds(event.c.result, b'"signs"')
    query = select(event).where(event.c.shape == "observation", marked).order_by(event.c.seq.desc()).limit(limit)
    found: list[Finding] = []
    rows = connection.execute(query).all()
    for start in range(0, len(rows), PAGE):
        for each in assemble(connection, folder, rows[start : start + PAGE], Texts()):
            seen = each.entry.result
            if isinstance(seen, Observation):
                found += [
                    Finding(
                        each.seq,
                        seen.candidate,
                        s.name,
                        s.evidence,
                        s.grave,
                        part=s.part,
                        line=s.line,
                        score=seen.score,
                    )
                    for s in seen.signs
                ]
    return tuple(found)
