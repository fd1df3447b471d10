"""Trust in the scores of a run: levels, noise, integrity signs, the final choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.brief import Proposal
from culmen.core.evaluation import LEVELS, Observation
from culmen.core.event import Custom, Event
from culmen.core.json import JsonObject
from culmen.core.result import NoiseReport
from culmen.store import sql
from culmen.store.codec import encode_value, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.evidence import evidence_of, last_state
from culmen.store.reader import PAGE, Texts, assemble_events

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select


class IntegrityFinding(msgspec.Struct, frozen=True):
    """A sign found with an observation: its name, its evidence, and its place in the text."""

    seq: int
    candidate: str
    sign: str
    evidence: str
    grave: bool
    part: str = ""
    line: int = 0
    score: float | None = None


class Integrity(msgspec.Struct, frozen=True):
    """Trust, noise and signs over all observations of a run.

    `levels` counts scored observations by level of trust. `repeated` is the number of candidates
    scored more than once, `noise` the estimated noise of the evaluator, `unstable` the number of
    candidates whose scores of one case differ. `signs` counts the observations that showed any
    sign, including those beyond the `findings` that were read, and `kinds` the observations that
    showed each sign (empty if a version of culmen that did not count them wrote a part of the run).
    """

    levels: dict[str, int]
    noise: NoiseReport
    repeated: int
    unstable: int
    findings: tuple[IntegrityFinding, ...]
    signs: int = 0
    kinds: dict[str, int] = {}


def run_integrity(run: Path | str, limit: int = 200) -> Integrity:
    """The integrity of a run, with findings of the latest observations that showed signs.

    `findings` covers the `limit` latest such observations, latest first, and the latest `_RARE`
    observations of each kind of sign that is not among these.
    """
    folder = Path(run)
    with open_snapshot(folder) as connection:
        repeated = connection.execute(
            sql.select(sql.func.count()).select_from(sql.tally).where(sql.tally.c.count > 1)
        ).scalar_one()
        signs, kinds = (
            sum(count for _, count in _scope_counts(connection, "sign")),
            dict(_scope_counts(connection, "signed")),
        )
        kinds = (
            {unescape_text(name): n for name, n in kinds.items() if name}
            if kinds.get("") == signs
            else {}
        )
        return Integrity(
            levels=_trust_levels(connection),
            noise=_estimated_noise(connection, folder),
            repeated=repeated,
            unstable=_unstable_count(connection),
            findings=_integrity_findings(connection, folder, limit, kinds) if signs else (),
            signs=signs,
            kinds=kinds,
        )


def _estimated_noise(connection: Connection, folder: Path) -> NoiseReport:
    from culmen.evidence.verdict import noise_report

    with evidence_of(connection, folder) as found:
        return noise_report(found.evidence.account)


def final_choice(run: Path | str) -> JsonObject | None:
    """The engine's final choice as journaled; None before it is made."""
    with open_snapshot(Path(run)) as connection:
        winner = last_state(connection).get("winner")
    return winner if isinstance(winner, dict) else None


def phase_means(run: Path | str, phase: str, candidates: Sequence[str]) -> dict[str, float]:
    """Mean score of each candidate over its evaluations of one phase (`final`)."""
    query = sql.select(sql.observation.c.candidate, sql.func.avg(sql.observation.c.score)).where(
        sql.observation.c.candidate.in_(list(candidates)),
        sql.observation.c.phase == phase,
        sql.observation.c.score.is_not(None),
    )
    with open_snapshot(Path(run)) as connection:
        return {
            unescape_text(row[0]): row[1]
            for row in connection.execute(query.group_by(sql.observation.c.candidate))
        }


def case_means(run: Path | str, candidates: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean score of each candidate on every case it was scored on."""
    query = sql.select(
        sql.observation.c.candidate, sql.observation.c.case, sql.func.avg(sql.observation.c.score)
    ).where(sql.observation.c.score.is_not(None))
    query = query.where(sql.observation.c.candidate.in_(list(candidates))).group_by(
        sql.observation.c.candidate, sql.observation.c.case
    )
    means: dict[str, dict[str, float]] = {}
    with open_snapshot(Path(run)) as connection:
        for candidate, case, mean in connection.execute(
            query.order_by(sql.func.min(sql.observation.c.seq))
        ):
            means.setdefault(unescape_text(candidate), {})[unescape_text(case)] = mean
    return means


def _trust_levels(connection: Connection) -> dict[str, int]:
    counts = Counter[str]()
    for level, count in _scope_counts(connection, "trust"):
        counts[unescape_text(level) or LEVELS[-1]] += count
    return {level: counts[level] for level in LEVELS if counts[level]}


def _scope_counts(connection: Connection, scope: str) -> Sequence[tuple[str, int]]:
    rows = connection.execute(
        sql.select(sql.counter.c.name, sql.counter.c.value).where(sql.counter.c.scope == scope)
    )
    return [(row[0], row[1]) for row in rows]


def _unstable_count(connection: Connection) -> int:
    """Number of candidates with different scores for one case.

    Only candidates scored more than once in the search, or again in the final choice, can differ.
    """
    t, winner = sql.tally.c, last_state(connection).get("winner")
    often = sql.select(t.candidate).where(t.count > 1)
    final = (
        set(winner.get("finalists") or ()) | {winner["id"]}
        if isinstance(winner, dict)
        else set[str]()
    )
    known = connection.execute(often.where(t.candidate.in_(sorted(final)))).scalars().all()
    return _differing_count(connection, often) + _differing_count(
        connection, sorted(final.difference(known))
    )


def _differing_count(connection: Connection, candidates: Iterable[str] | Select[str]) -> int:
    seen = sql.observation.c
    differ = sql.select(seen.candidate).where(
        seen.score.is_not(None), seen.candidate.in_(candidates)
    )
    differ = differ.group_by(seen.candidate, seen.case)
    differ = differ.having(sql.func.max(seen.score) > sql.func.min(seen.score)).subquery()
    return connection.execute(
        sql.select(sql.func.count(sql.distinct(differ.c.candidate)))
    ).scalar_one()


_RARE = 8  # observations read for each kind of sign that the latest ones do not show


def _integrity_findings(
    connection: Connection, folder: Path, limit: int, kinds: Collection[str]
) -> tuple[IntegrityFinding, ...]:
    findings = _latest_signs(connection, folder, b'"signs"', limit)
    for name in sorted(set(kinds) - {finding.sign for finding in findings}):
        rare = _latest_signs(connection, folder, b'"name":' + encode_value(name), _RARE)
        findings += [finding for finding in rare if finding.sign == name]
    return tuple(findings)


def _latest_signs(
    connection: Connection, folder: Path, marked: bytes, limit: int
) -> list[IntegrityFinding]:
    """The signs of the latest observations whose record holds these bytes."""
    query = (
        sql.select(sql.event)
        .where(sql.event.c.shape == "observation", sql.holds(sql.event.c.result, marked))
        .order_by(sql.event.c.seq.desc())
        .limit(limit)
    )
    rows = connection.execute(query).all()
    findings: list[IntegrityFinding] = []
    for start in range(0, len(rows), PAGE):
        for event in assemble_events(connection, folder, rows[start : start + PAGE], Texts()):
            observation = event.entry.result
            if isinstance(observation, Observation):
                for sign in observation.signs:
                    about = (sign.name, sign.evidence, sign.grave, sign.part, sign.line)
                    findings.append(
                        IntegrityFinding(
                            event.seq, observation.candidate, *about, score=observation.score
                        )
                    )
    return findings


# Integrity evidence besides the observations: scores that changed, and texts of proposers and
# agents.

# keys of sessions' results that hold prose
_WORDS = ("reflections", "notes", "word", "reports", "note")


class Prose(msgspec.Struct, frozen=True):
    """A text written by a proposer or an agent.

    `seq` is its event, `candidate` the candidate it is about ("": none in particular), `source` its
    kind.
    """

    seq: int
    candidate: str
    source: str
    text: str


class ScoreChange(msgspec.Struct, frozen=True):
    """A candidate with different scores for one case and one random seed."""

    candidate: str
    case: str
    low: float
    high: float
    count: int


def score_changes(run: Path | str, limit: int = 200) -> list[ScoreChange]:
    """Scores that differ for the same case and random seed, the widest range first."""
    low, high, count = (
        sql.func.min(sql.observation.c.score),
        sql.func.max(sql.observation.c.score),
        sql.func.count(),
    )
    query = sql.select(sql.observation.c.candidate, sql.observation.c.case, low, high, count).where(
        sql.observation.c.score.is_not(None)
    )
    query = query.group_by(
        sql.observation.c.candidate, sql.observation.c.case, sql.observation.c.seed
    ).having(high > low)
    with open_snapshot(Path(run)) as connection:
        rows = connection.execute(query.order_by((high - low).desc()).limit(limit)).all()
    return [
        ScoreChange(unescape_text(row[0]), unescape_text(row[1]), row[2], row[3], row[4])
        for row in rows
    ]


def stream_prose(run: Path | str) -> Iterator[Prose]:
    """Proposers' hypotheses and agents' texts from their sessions, oldest first."""
    folder, last = Path(run), 0
    wanted = (sql.others, sql.event.c.shape.in_(("proposal", "custom")))
    query = sql.select(sql.event).where(*wanted).order_by(sql.event.c.seq).limit(PAGE)
    while True:
        with open_snapshot(folder, tables=False) as connection:
            events = assemble_events(
                connection,
                folder,
                connection.execute(query.where(sql.event.c.seq > last)).all(),
                Texts(),
            )
        if not events:
            return
        for event in events:
            yield from _event_prose(event)
        last = events[-1].seq


def _event_prose(event: Event) -> Iterator[Prose]:
    result = event.entry.result
    if isinstance(result, Proposal) and result.hypothesis:
        first = result.candidates[0].id if result.candidates else ""
        yield Prose(event.seq, first, "hypothesis", result.hypothesis)
    if isinstance(result, Custom):
        yield from (Prose(event.seq, "", name, text) for name, text in _find_prose("", result.data))


def _find_prose(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Texts under the keys that hold prose, at any depth."""
    if isinstance(value, str) and name in _WORDS and value.strip():
        yield name, value
    elif isinstance(value, list):
        for item in value:
            yield from _find_prose(name, item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find_prose(str(key), item)
