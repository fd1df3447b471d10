"""A candidate's way up: its scored ancestors, the gain of each, and what else the run tried."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from culmen.core.candidate import Origin
from culmen.core.result import Z
from culmen.store import packs, sql
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.evidence import MODELLED, evidence_of
from culmen.store.views.candidates import resolve_id

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from culmen.evidence.evidence import Evidence


class Ancestor(NamedTuple):
    """One scored candidate on the way to another.

    `reward` is its posterior mean by all evidence that the whole way has, with standard deviation
    `sd` (0: exact, None: the noise is not known). Its first score was made at event `seq`, after
    `elapsed` active seconds and as evaluation number `evaluations` of the run.
    """

    id: str
    parents: tuple[str, ...]
    operator: str
    model: str
    reward: float
    sd: float | None
    seq: int
    elapsed: float
    evaluations: int

    @property
    def margin(self) -> float | None:
        """Half the width of the 95 % interval of the reward (None: not known)."""
        return None if self.sd is None else Z * self.sd

    def gain_over(self, other: Ancestor) -> tuple[float, float | None]:
        """Gain in reward over another, and half the width of its 95 % interval (None: unknown).

        The two estimates count as independent, so the interval is rather too wide: a child's
        estimate follows its parent's.
        """
        known = None if self.sd is None or other.sd is None else Z * math.hypot(self.sd, other.sd)
        return self.reward - other.reward, known


class TriedCandidate(NamedTuple):
    """A candidate that scored, with its posterior mean reward and the note of its origin."""

    id: str
    operator: str
    model: str
    note: str
    reward: float
    sd: float | None

    @property
    def margin(self) -> float | None:
        """Half the width of the 95 % interval of the reward (None: not known)."""
        return None if self.sd is None else Z * self.sd


def ascent_to(run: Path | str, candidate: str) -> list[Ancestor]:
    """The scored ancestors of a candidate, the first one first, and the candidate itself.

    Of several parents the one with the highest estimate is followed. Ancestors without a score are
    left out; empty if the candidate itself has none.
    """
    folder = Path(run)
    with open_snapshot(folder) as connection:
        name = resolve_id(connection, folder, candidate)
        with evidence_of(connection, folder) as found:
            rows = _chain_rows(connection, found.evidence, name)
            estimates = _estimate_rewards(found.evidence, [row.id for row in rows])
        firsts = _first_scores(connection, list(estimates))
        counts = _evaluation_counts(connection, [seq for seq, _ in firsts.values()])
    return [
        Ancestor(*row, *estimates[row.id], *firsts[row.id], counts[firsts[row.id][0]])
        for row in rows
        if row.id in firsts
    ]


class _ChainRow(NamedTuple):
    id: str
    parents: tuple[str, ...]
    operator: str
    model: str


def _chain_rows(connection: Connection, evidence: Evidence, name: str) -> list[_ChainRow]:
    """The candidate and its ancestors by best parents, the first one first; cycles are cut."""
    c = sql.candidate.c
    rows: list[_ChainRow] = []
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        query = sql.select(c.operator, c.model, c.parents).where(c.id == escape_text(name))
        row = connection.execute(query).first()
        if row is None:
            break
        parents = tuple(unescape_text(row.parents).split())
        rows.append(_ChainRow(name, parents, unescape_text(row.operator), unescape_text(row.model)))
        name = _best_parent(evidence, parents)
    return rows[::-1]


def _best_parent(evidence: Evidence, parents: tuple[str, ...]) -> str:
    """The parent with the highest estimate, the first of equal ones; "" without one."""
    if len(parents) < 2:
        return parents[0] if parents else ""
    worths = evidence.ranking.worths_of(list(parents)).tolist()
    return parents[worths.index(max(worths))]


def _estimate_rewards(
    evidence: Evidence, names: list[str]
) -> dict[str, tuple[float, float | None]]:
    """Posterior mean reward and deviation of those that scored, all by evidence of one kind.

    The final choice's evaluations count, too, unless they were made on cases of their own.
    """
    from culmen.evidence.ranking import Race
    from culmen.evidence.verdict import clip_to_bounds

    ranking = evidence.ranking
    scored = [name for name in names if ranking.belief_of(name) is not None]
    if evidence.verdict.split in ("test", "val"):
        found = {name: ranking.belief_of(name) for name in scored}
        pairs = {name: (each.mean, each.sd) for name, each in found.items() if each is not None}
    else:
        standings = Race(ranking, scored).standings()
        pairs = {name: (each.worth, each.sd) for name, each in standings.items()}
    return {
        name: (clip_to_bounds(evidence.task, mean), _known_deviation(evidence, sd))
        for name, (mean, sd) in pairs.items()
    }


def _known_deviation(evidence: Evidence, sd: float) -> float | None:
    account = evidence.account
    if account.is_exact and not account.is_flaky and not account.task.cases:
        return 0.0
    return None if account.is_exact is None else sd or None


def _first_scores(connection: Connection, names: list[str]) -> dict[str, tuple[int, float]]:
    """Event and active seconds of each candidate's first score."""
    o, e = sql.observation.c, sql.event.c
    firsts: dict[str, tuple[int, float]] = {}
    for name in names:
        query = (
            sql.select(o.seq, e.elapsed)
            .join(sql.event, e.seq == o.seq)
            .where(o.candidate == escape_text(name), o.score.is_not(None))
            .order_by(o.seq)
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is not None:
            firsts[name] = row.seq, row.elapsed
    return firsts


def _evaluation_counts(connection: Connection, seqs: list[int]) -> dict[int, int]:
    """Number of evaluations up to each of these events."""
    made = packs.PackReader(connection).read(packs.OBSERVATIONS, "seq")["seq"]
    return dict(zip(seqs, made.searchsorted(seqs, "right").tolist()))


def tried_candidates(run: Path | str) -> list[TriedCandidate]:
    """Every candidate that scored, except initial programs, in order of appearance.

    Empty for a run with more than `MODELLED` of them.
    """
    from culmen.evidence.verdict import clip_to_bounds

    folder, c, t = Path(run), sql.candidate.c, sql.tally.c
    query = sql.select(c.id, c.operator, c.model, c.origin).join(sql.tally, t.candidate == c.id)
    query = query.where(t.count > 0, c.operator != "seed")
    some = query.with_only_columns(c.id).limit(MODELLED + 1).subquery()
    with open_snapshot(folder) as connection:
        found = connection.execute(sql.select(sql.func.count()).select_from(some)).scalar_one()
        if found > MODELLED:
            return []
        rows = connection.execute(query.order_by(c.seq, c.id)).all()
        with evidence_of(connection, folder) as found:
            beliefs, account = found.evidence.ranking.beliefs, found.evidence.account
            tried: list[TriedCandidate] = []
            for row in rows:
                tally = account.tally(name := unescape_text(row.id))
                if tally is None or not tally.count:
                    continue
                mean, sd = (float(each[tally.order]) for each in (beliefs.worth, beliefs.worth_sd))
                origin = unescape_text(row.operator), unescape_text(row.model)
                note = decode_value(row.origin, Origin).note
                known = _known_deviation(found.evidence, sd)
                shown = clip_to_bounds(found.task, mean)
                tried.append(TriedCandidate(name, *origin, note, shown, known))
    return tried
