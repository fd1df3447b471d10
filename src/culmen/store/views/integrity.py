"""Trust in the scores of a run: levels, noise, integrity signs, the final choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from culmen.core.brief import Proposal
from culmen.core.evaluation import LEVELS, Observation
from culmen.core.event import Custom
from culmen.core.json import JsonObject
from culmen.core.result import NoiseReport
from culmen.store.codec import encode_value, escape_text, unescape_text
from culmen.store.database import open_snapshot
from culmen.store.evidence import evidence_of, last_state
from culmen.store.reader import PAGE, select_events, stream_events
from culmen.store.schema import OTHERS
from culmen.store.sql import Connection


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
    scored more than once on one case, `unstable` those of them whose scores differ, in the search
    and after it; `noise` is the estimated noise of the evaluator. `signs` counts the observations
    that showed any sign, including those beyond the `findings` that were read, and `kinds` the
    observations that showed each sign (empty if a version of culmen that did not count them wrote a
    part of the run).
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
    with open_snapshot(run) as connection:
        repeated, unstable = _repeated_counts(connection)
        kinds = {unescape_text(name): n for name, n in _scope_counts(connection, "signed")}
        signs = kinds.pop("", 0)
        return Integrity(
            levels=_trust_levels(connection),
            noise=_estimated_noise(connection),
            repeated=repeated,
            unstable=unstable,
            findings=_integrity_findings(connection, limit, kinds) if signs else (),
            signs=signs,
            kinds=kinds,
        )


def _estimated_noise(connection: Connection) -> NoiseReport:
    with evidence_of(connection) as found:
        return found.evidence.ranking.noise_report


def final_choice(run: Path | str) -> JsonObject | None:
    """The engine's final choice as journaled; None before it is made."""
    with open_snapshot(run) as connection:
        winner = last_state(connection).get("winner")
    return winner if isinstance(winner, dict) else None


def phase_means(run: Path | str, phase: str, candidates: Sequence[str]) -> dict[str, float]:
    """Mean score of each candidate over its evaluations of one phase (`final`)."""
    query = (
        "SELECT candidate, avg(score) FROM observation WHERE candidate IN :ids AND phase = :phase "
        "AND score IS NOT NULL GROUP BY candidate"
    )
    with open_snapshot(run) as connection:
        rows = connection.execute(query, ids=list(candidates), phase=phase)
        return {unescape_text(name): mean for name, mean in rows}


def case_means(run: Path | str, candidates: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean score of each candidate on every case it was scored on."""
    query = (
        'SELECT candidate, "case", avg(score) FROM observation WHERE candidate IN :ids '
        'AND score IS NOT NULL GROUP BY candidate, "case" ORDER BY min(seq)'
    )
    means: dict[str, dict[str, float]] = {}
    with open_snapshot(run) as connection:
        for candidate, case, mean in connection.execute(query, ids=list(candidates)):
            means.setdefault(unescape_text(candidate), {})[unescape_text(case)] = mean
    return means


def case_counts(run: Path | str, candidate: str) -> dict[str, tuple[int, int, float | None]]:
    """Evaluations of a candidate on every case, those without a score, and its mean score."""
    query = (
        'SELECT "case", count(*), count(score), avg(score) FROM observation '
        'WHERE candidate = :id GROUP BY "case" ORDER BY min(seq)'
    )
    with open_snapshot(run) as connection:
        rows = connection.execute(query, id=escape_text(candidate)).all()
    return {unescape_text(case): (n, n - scored, mean) for case, n, scored, mean in rows}


def _trust_levels(connection: Connection) -> dict[str, int]:
    counts = Counter[str]()
    for level, count in _scope_counts(connection, "trust"):
        counts[unescape_text(level) or LEVELS[-1]] += count
    return {level: counts[level] for level in LEVELS if counts[level]}


def _scope_counts(connection: Connection, scope: str) -> Sequence[tuple[str, int]]:
    return connection.execute(
        "SELECT name, value FROM counter WHERE scope = :scope", scope=scope
    ).all()


def _repeated_counts(connection: Connection) -> tuple[int, int]:
    """Numbers of candidates scored again on one case, and of those with another score there.

    Only candidates scored more than once in the search, or again in the final choice, are read.
    """
    winner = last_state(connection).get("winner")
    often = "SELECT candidate FROM tally WHERE count > 1"
    final = (
        set(winner.get("finalists") or ()) | {winner["id"]}
        if isinstance(winner, dict)
        else set[str]()
    )
    known = connection.execute(f"{often} AND candidate IN :ids", ids=sorted(final)).scalars()
    rest = sorted(final.difference(known))
    searched = _counts_among(connection, f"({often})")
    further = _counts_among(connection, ":ids", ids=rest)
    return searched[0] + further[0], searched[1] + further[1]


def _counts_among(connection: Connection, candidates: str, **values: object) -> tuple[int, int]:
    """Both counts for these candidates, a list or a statement."""
    cases = (
        "SELECT candidate, max(score) > min(score) AS differs FROM observation "
        f"WHERE score IS NOT NULL AND candidate IN {candidates} "
        'GROUP BY candidate, "case" HAVING count(*) > 1'
    )
    query = (
        "SELECT count(DISTINCT candidate) AS repeated, "
        "count(DISTINCT CASE WHEN differs THEN candidate END) AS unstable "
        f"FROM ({cases}) AS cases"
    )
    row = connection.execute(query, **values).one()
    return row.repeated, row.unstable


_RARE = 8  # observations read for each kind of sign that the latest ones do not show


def _integrity_findings(
    connection: Connection, limit: int, kinds: Collection[str]
) -> tuple[IntegrityFinding, ...]:
    findings = _latest_signs(connection, b'"signs"', limit)
    for name in sorted(set(kinds) - {finding.sign for finding in findings}):
        rare = _latest_signs(connection, b'"name":' + encode_value(name), _RARE)
        findings += [finding for finding in rare if finding.sign == name]
    return tuple(findings)


def _latest_signs(connection: Connection, marked: bytes, limit: int) -> list[IntegrityFinding]:
    """The signs of the latest observations whose record holds these bytes."""
    query = (
        f"shape = 'observation' AND {connection.contains('result', ':marked')} "
        "ORDER BY seq DESC LIMIT :limit"
    )
    events = select_events(connection, query, marked=marked, limit=limit)
    return [
        IntegrityFinding(
            event.seq, seen.candidate, *msgspec.structs.astuple(sign), score=seen.score
        )
        for event in events
        if isinstance(seen := event.entry.result, Observation)
        for sign in seen.signs
    ]


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


def score_changes(run: Path | str) -> list[ScoreChange]:
    """The 200 widest ranges of scores of the same case and random seed, the widest first."""
    query = (
        'SELECT candidate, "case", min(score), max(score), count(*) FROM observation '
        'WHERE score IS NOT NULL GROUP BY candidate, "case", seed '
        "HAVING max(score) > min(score) ORDER BY max(score) - min(score) DESC LIMIT 200"
    )
    with open_snapshot(run) as connection:
        rows = connection.execute(query).all()
    return [
        ScoreChange(unescape_text(row[0]), unescape_text(row[1]), row[2], row[3], row[4])
        for row in rows
    ]


def stream_prose(run: Path | str) -> Iterator[Prose]:
    """Proposers' hypotheses and agents' texts from their sessions, oldest first."""
    of = f"{OTHERS} AND shape IN ('proposal', 'custom')"
    for event in stream_events(run, f"{of} AND seq > :last ORDER BY seq LIMIT {PAGE}"):
        result = event.entry.result
        if isinstance(result, Proposal) and result.hypothesis:
            first = result.candidates[0].id if result.candidates else ""
            yield Prose(event.seq, first, "hypothesis", result.hypothesis)
        if isinstance(result, Custom):
            for name, text in _find_prose("", result.data):
                yield Prose(event.seq, "", name, text)


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
