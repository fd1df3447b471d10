"""A candidate's way up: its scored ancestors and their gains; the family tree of all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from culmen.core.candidate import CARRIED, INITIAL, Origin, key_of
from culmen.core.result import Z
from culmen.store.codec import decode_value, escape_text, island_in_origin, unescape_text
from culmen.store.columns import OBSERVATIONS, read_columns
from culmen.store.database import open_snapshot
from culmen.store.evidence import MODELLED, Scores, evidence_of
from culmen.store.sql import Connection, Row
from culmen.store.views.candidates import resolve_id

if TYPE_CHECKING:
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
    island: int | None
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
    with open_snapshot(run) as connection:
        name = resolve_id(connection, candidate)
        with evidence_of(connection) as found:
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
    island: int | None


def _chain_rows(connection: Connection, evidence: Evidence, name: str) -> list[_ChainRow]:
    """The candidate and its ancestors by best parents, the first one first; cycles are cut."""
    query = "SELECT operator, model, parents, origin FROM candidate WHERE id = :id"
    rows: list[_ChainRow] = []
    seen: set[str] = set()
    while name and name not in seen:
        seen.add(name)
        row = connection.execute(query, id=escape_text(name)).first()
        if row is None:
            break
        parents = tuple(unescape_text(row.parents).split())
        made = unescape_text(row.operator), unescape_text(row.model), island_in_origin(row.origin)
        rows.append(_ChainRow(name, parents, *made))
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
    if account.is_settled and not account.is_flaky and not account.task.cases:
        return 0.0 if account.is_exact else None
    return None if account.is_exact is None else sd or None


def _first_scores(connection: Connection, names: list[str]) -> dict[str, tuple[int, float]]:
    """Event and active seconds of each candidate's first score."""
    firsts: dict[str, tuple[int, float]] = {}
    query = (
        "SELECT o.seq, e.elapsed FROM observation o JOIN event e ON e.seq = o.seq "
        "WHERE o.candidate = :id AND o.score IS NOT NULL ORDER BY o.seq LIMIT 1"
    )
    for name in names:
        row = connection.execute(query, id=escape_text(name)).first()
        if row is not None:
            firsts[name] = row.seq, row.elapsed
    return firsts


def _evaluation_counts(connection: Connection, seqs: list[int]) -> dict[int, int]:
    """Number of evaluations up to each of these events."""
    made = read_columns(connection, OBSERVATIONS, "seq")["seq"]
    return dict(zip(seqs, made.searchsorted(seqs, "right").tolist()))


def tried_candidates(run: Path | str) -> list[TriedCandidate]:
    """Every candidate of this search that scored, in order of appearance.

    Empty for a run with more than `MODELLED` of them.
    """
    from culmen.evidence.verdict import clip_to_bounds

    scored = (
        "FROM candidate c JOIN tally t ON t.candidate = c.id "
        f"WHERE t.count > 0 AND c.operator NOT IN ('{INITIAL}', '{CARRIED}')"
    )
    with open_snapshot(run) as connection:
        some = f"SELECT c.id {scored} LIMIT {MODELLED + 1}"
        if connection.execute(f"SELECT count(*) FROM ({some}) AS found").scalar() > MODELLED:
            return []
        query = f"SELECT c.id, c.operator, c.model, c.origin {scored} ORDER BY c.seq, c.id"
        rows = connection.execute(query).all()
        with evidence_of(connection) as found:
            beliefs, account = found.evidence.ranking.beliefs, found.evidence.account
            counts, unit = account.rows["count"].tolist(), _known_deviation(found.evidence, 1.0)
            worths, spreads = beliefs.worth.tolist(), beliefs.worth_sd.tolist()
            tried: list[TriedCandidate] = []
            for row in rows:
                number = account.numbers.get(key_of(name := unescape_text(row.id)))
                if number is None or not counts[number]:
                    continue
                origin = unescape_text(row.operator), unescape_text(row.model)
                note = decode_value(row.origin, Origin).note if b'"note"' in row.origin else ""
                known = (spreads[number] or None) if unit else unit  # 0 or None: the same for all
                shown = clip_to_bounds(found.task, worths[number])
                tried.append(TriedCandidate(name, *origin, note, shown, known))
    return tried


# The family tree: every candidate with its first parent.


class FamilyNode(NamedTuple):
    """A candidate in the family tree: its first parent ("" for a root), and its score so far.

    `others` are its further parents: of a merge, or programs that the model was shown.
    """

    id: str
    seq: int
    parent: str
    operator: str
    count: int
    mean: float | None
    failed: int
    model: str = ""
    island: int | None = None
    others: tuple[str, ...] = ()


def family_tree(run: Path | str) -> list[FamilyNode]:
    """Every candidate with its first parent, in order of appearance."""
    query = (
        "SELECT c.id, c.seq, c.parents, c.operator, c.model, c.origin, t.failed FROM candidate c "
        "LEFT JOIN tally t ON t.candidate = c.id ORDER BY c.seq, c.id"
    )
    with open_snapshot(run) as connection:
        rows = connection.execute(query).all()
        scores = Scores(connection)
    return [_family_node(row, scores) for row in rows]


def _family_node(row: Row, scores: Scores) -> FamilyNode:
    name, (parent, *others) = unescape_text(row.id), unescape_text(row.parents).split(" ")
    score = scores.score_of(name)
    count, mean = (0, None) if score is None else (score.count, score.score)
    island = decode_value(row.origin, _OriginIsland).island
    about = (row.failed or 0, unescape_text(row.model), island, tuple(others))
    return FamilyNode(name, row.seq, parent, unescape_text(row.operator), count, mean, *about)


class _OriginIsland(msgspec.Struct):
    """The part of a stored origin that is needed here."""

    island: int | None = None
