"""Evidence of a run from its journal: the same answers as the engine's, for readers.

Facts are read from the tables in the order of their events and entered into a
`culmen.evidence.Evidence` like the engine's own. The evidence of recently read runs is cached, so
that a further read fetches only new events. For runs longer than `MODELLED` evaluations, only the
tallies are read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.admissions import ADMISSION
from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate, key_of
from culmen.core.evaluation import BARRED, LEVELS, Observation
from culmen.core.event import Entry
from culmen.core.json import JsonObject
from culmen.core.result import RunResult, Score, read_result
from culmen.core.task import Task
from culmen.store import packs, sql
from culmen.store.codec import Blobs, decode_value, escape_text, unescape_text
from culmen.store.database import RunMeta, open_snapshot, read_meta
from culmen.store.reader import lookup_in, translate_decode_errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection

    from culmen.evidence.account import Fact, LoadedTallies
    from culmen.evidence.evidence import Evidence
    from culmen.evidence.pedigree import StepLaw

_KEPT = 8  # runs whose evidence is kept
_END = 2**62  # beyond the last event
MODELLED = 50_000
"""Evaluations up to which a run is read one by one; as in `culmen.evidence.account`."""

_GROWTH = 1.02  # factor by which a longer run must grow before its tallies are read again


class JudgedPart(msgspec.Struct):
    """The parts of a stored observation that its row lacks."""

    certified: float | None = None
    strict: bool | None = None
    metrics: dict[str, float] = {}
    artifacts: JsonObject = {}


class RunEvidence:
    """Evidence of one run, read from its journal; used by the thread that holds `lock`."""

    def __init__(self, meta: RunMeta, folder: Path) -> None:
        from culmen.evidence.evidence import Evidence

        self.task: Task = meta.task
        self._folder, self._bars = folder, excludes_confessed(meta)
        self.evidence: Evidence = Evidence(meta.task, prior_in(meta))
        self.count = self.last = 0
        self._born: dict[str, tuple[str, ...]] = {}
        self._arrived = 0
        self.lock = threading.RLock()
        self.standings: Standings | None = None
        self._is_long = False
        self._result: tuple[object, RunResult | None] = (None, None)

    def result(self) -> RunResult | None:
        """The result of the run by this evidence; kept until the evidence changes."""
        account = self.evidence.account
        state = self.evidence, self.count, account.made, account.bars
        if self._result[0] != state:
            self._result = state, self.evidence.result()
        return self._result[1]

    def read(self, connection: Connection, last: int = _END) -> None:
        """Enter the new evaluations up to event `last`."""
        for fact, seq in self.new_facts(connection, last):
            self.evidence.observe_fact(fact)
            self.count, self.last = self.count + 1, seq
        self._read_admissions(connection, last)
        self._measure_by(connection)

    def _measure_by(self, connection: Connection) -> None:
        self.evidence.account.measure = lambda names: sizes_of(connection, self._folder, names)

    def read_tallies(self, connection: Connection, count: int, last: int) -> None:
        """Read the tallies of a run too long to be read one by one, if it has grown enough."""
        from culmen.evidence.evidence import Evidence

        self._measure_by(connection)
        if (
            self._is_long
            and count < _GROWTH * self.count
            and not self._has_final_evaluations(connection)
        ):
            return
        self.evidence, self._is_long = Evidence(self.task), True
        self.evidence.account.load_tallies(self._stored_tallies(connection))
        self.last = self._read_totals(connection)
        self._read_parents(connection, self.last)
        for fact, _ in self._facts_after(connection, _END):
            if fact.purpose:  # late evaluations of the search are in the tallies
                self.evidence.observe_fact(fact)
        self._read_admissions(connection, _END)
        self._measure_by(connection)
        self.count, self.last = count, last

    def _stored_tallies(self, connection: Connection) -> LoadedTallies:
        from culmen.evidence.account import LoadedTallies

        found, sign = packs.PackReader(connection).read_tallies(), self.task.objective.reward(1.0)
        worst = found["low" if self.task.objective.direction == "max" else "high"]
        scores = found["count"], found["failed"], sign * found["mean"], found["spread"]
        refused = found["accepted"] < found["asked"]
        judged = refused, found["barred"] > 0, found["trust"], found["strict"] < found["asked"]
        return LoadedTallies(found["key"], *scores, sign * worst, *judged)

    def _read_totals(self, connection: Connection) -> int:
        """Read the totals of the search that the tallies by candidate do not contain.

        Returns the last event before the first evaluation of the final choice.
        """
        import numpy as np

        account, objective = self.evidence.account, self.task.objective
        names = ("seq", "score", "phase", "culprit")
        found = packs.PackReader(connection).read(packs.OBSERVATIONS, *names)
        searched = ~np.isin(found["phase"], np.flatnonzero(found["phase+"] != ""))
        culprits = np.bincount(found["culprit"][searched], minlength=len(found["culprit+"]))
        account.made = int(searched.sum())
        for culprit, count in zip(found["culprit+"].tolist(), culprits.tolist()):
            if culprit and count:
                account.failed[culprit] = count
        scores = objective.reward(1.0) * found["score"][searched]
        if not np.isnan(scores).all():
            account.top = float(np.nanmax(scores))
        later = np.flatnonzero(~searched)
        return int(found["seq"][later[0]]) - 1 if len(later) else _END

    def _has_final_evaluations(self, connection: Connection) -> bool:
        o = sql.observation.c
        return bool(
            connection.execute(
                sql.select(o.seq).where(o.phase != "", o.seq > self.last).limit(1)
            ).first()
        )

    def new_facts(self, connection: Connection, last: int = _END) -> Iterator[tuple[Fact, int]]:
        """Evaluations after the last one entered, as pairs of fact and event number."""
        self._read_arrivals(connection, last)
        yield from self._facts_after(connection, last)

    def _facts_after(self, connection: Connection, last: int) -> Iterator[tuple[Fact, int]]:
        """The same without the parents of candidates that have not been read."""
        from culmen.evidence.account import Fact

        objective, judged = self.task.objective, self._judged_parts(connection, last)
        o = sql.observation.c
        columns = (o.seq, o.candidate, o.case, o.score, o.status, o.reason, o.seconds, o.phase)
        query = sql.select(*columns, o.trust, o.culprit, o.kind)
        rows = connection.execute(
            query.where(o.seq > self.last, o.seq <= last).order_by(o.seq)
        ).all()
        for seq, name, case, score, status, reason, seconds, phase, trust, culprit, kind in rows:
            id, part = unescape_text(name), judged.get(seq, JudgedPart())
            certified, level = part.certified, unescape_text(trust)
            yield (
                Fact(
                    id,
                    self._born.get(id, ()),
                    unescape_text(case),
                    None if score is None else objective.reward(score),
                    unescape_text(phase),
                    status == "lost",
                    culprit,
                    unescape_text(kind),
                    status == "rejected" and reason.startswith(BARRED),
                    part.strict is not None,
                    part.strict,
                    None if certified is None else objective.reward(certified),
                    level if level in LEVELS else "",
                    str(part.artifacts.get("tolerance", "")),
                    seconds,
                    metrics=part.metrics if objective.metrics and score is not None else {},
                ),
                seq,
            )

    def _judged_parts(self, connection: Connection, last: int) -> dict[int, JudgedPart]:
        """Stored parts that the rows of observations lack, by event.

        Only for observations judged by more than a score. Raises `JournalDamaged` if the stored
        results cannot be decoded.
        """
        e, o = sql.event.c, sql.observation.c
        query = sql.select(e.seq, e.result).join(sql.observation, o.seq == e.seq)
        query = query.where(o.seq > self.last, o.seq <= last)
        if not self.task.objective.metrics:
            t = sql.tally.c
            asked = sql.select(t.candidate).where(sql.judged, t.asked > 0)
            query = query.where(sql.or_(o.phase != "", o.candidate.in_(asked)))
        rows = [(seq, raw) for seq, raw in connection.execute(query).all() if raw is not None]
        with translate_decode_errors(self._folder):
            kept = {raw: bytes.fromhex(raw[5:].decode()) for _, raw in rows if raw[:5] == b"blob:"}
            blobs = blobs_in(connection, self._folder).get(kept.values()) if kept else {}
            return {
                seq: decode_value(blobs[kept[raw]] if raw in kept else raw, JudgedPart)
                for seq, raw in rows
            }

    def _read_arrivals(self, connection: Connection, last: int) -> None:
        born = sql.candidate.c
        query = sql.select(born.id, born.parents, born.seq).where(
            born.seq > self._arrived, born.seq <= last
        )
        for name, parents, seq in connection.execute(query.order_by(born.seq, born.id)).all():
            self._born[unescape_text(name)] = tuple(unescape_text(parents).split())
            self._arrived = seq

    def _read_parents(self, connection: Connection, after: int) -> None:
        """Read the parents of the candidates that were evaluated after this event."""
        o, c = sql.observation.c, sql.candidate.c
        seen = sql.select(o.candidate).where(o.seq > after)
        for name, parents in connection.execute(
            sql.select(c.id, c.parents).where(c.id.in_(seen))
        ).all():
            self._born[unescape_text(name)] = tuple(unescape_text(parents).split())

    def _read_admissions(self, connection: Connection, last: int) -> None:
        if not self._bars:
            return
        e = sql.event.c
        query = sql.select(e.body).where(
            e.kind == "note", e.topic == escape_text(ADMISSION), e.seq <= last
        )
        with translate_decode_errors(self._folder):
            admissions = [
                decode_value(raw, JsonObject) for raw in connection.execute(query).scalars()
            ]
        for admission in admissions:
            for candidate in admission.get("candidates", ()):
                self.evidence.bar_candidate(candidate)


def excludes_confessed(meta: RunMeta) -> bool:
    """True if a candidate that admits to gaming the evaluator cannot be a run's best."""
    return meta.integrity in ("reject", "stop")


def prior_in(meta: RunMeta) -> StepLaw | None:
    """The step law in the configuration of a run's strategy, from an earlier run."""
    from culmen.evidence.pedigree import StepLaw

    prior = (meta.strategy.get("config") or {}).get("prior")
    fields = prior.get("fields", prior) if isinstance(prior, dict) else None
    if not fields:
        return None
    names = ("noise", "step", "drift", "sign")
    return StepLaw(*(fields.get(name, 0) for name in names))


def sizes_of(connection: Connection, folder: Path, names: list[str]) -> list[int]:
    """Lengths of candidates in characters, by id; 0 for unknown ones.

    Raises `JournalDamaged` if their texts cannot be decoded.
    """
    c = sql.candidate.c
    wanted = [escape_text(name) for name in names]
    rows = connection.execute(sql.select(c.id, c.parts).where(c.id.in_(wanted))).all()
    with translate_decode_errors(folder):
        texts = blobs_in(connection, folder).get([row.parts for row in rows])
        sizes = {
            row.id: sum(map(len, decode_value(texts[row.parts], dict[str, str]).values()))
            for row in rows
        }
    return [sizes.get(name, 0) for name in wanted]


def blobs_in(connection: Connection, folder: Path) -> Blobs:
    """The blobs of a run, read through this connection."""
    return Blobs(folder / "blobs", lookup_in(connection))


_lock = threading.Lock()
_kept: OrderedDict[str, RunEvidence] = OrderedDict()
_before: OrderedDict[str, RunResult | None] = OrderedDict()


@contextmanager
def evidence_of(connection: Connection, folder: Path) -> Iterator[RunEvidence]:
    """The evidence of a run as journaled now; locked while the context is open."""
    meta = read_meta(connection)
    name = f"{folder.absolute()} {meta.created}"
    o = sql.observation.c
    count = observation_count(connection)
    last = connection.execute(sql.select(sql.func.max(o.seq))).scalar()
    with _lock:
        found = _kept.pop(name, None)
        if found is None or found.count > count or found.last > (last or 0):
            found = RunEvidence(
                meta, folder
            )  # the evidence is of another run, or of one that was rewritten
        _kept[name] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    with found.lock:
        if count > MODELLED and not meta.task.objective.metrics:  # a front needs models of its own
            found.read_tallies(connection, count, last or 0)
        else:
            found.read(connection)
        yield found


def observation_count(connection: Connection) -> int:
    """Number of observations, as the writer counts them."""
    c = sql.counter.c
    query = sql.select(sql.func.sum(c.value)).where(c.scope == "status")
    return int(connection.execute(query).scalar() or 0)


def result_before(connection: Connection, folder: Path, seq: int) -> RunResult | None:
    """The result by the evidence before event `seq`, of candidates without a grave sign."""
    meta = read_meta(connection)
    grave = sql.select(sql.tally.c.candidate).where(sql.judged, sql.tally.c.grave.is_not(None))
    signed = sorted(map(unescape_text, connection.execute(grave).scalars()))
    name = f"{folder.absolute()} {meta.created} {seq} {len(signed)}"
    with _lock:
        if name in _before:
            return _before[name]
    run = RunEvidence(meta, folder)
    run.read(connection, seq - 1)
    for each in signed:
        run.evidence.bar_candidate(each)
    with _lock:
        _before[name] = run.evidence.result()
        while len(_before) > _KEPT:
            _before.popitem(last=False)
        return _before[name]


@contextmanager
def evidence_before(folder: Path, seq: int) -> Iterator[Evidence]:
    """The evidence of a run before event `seq`, read anew; valid while the context is open."""
    with open_snapshot(folder) as connection:
        run = RunEvidence(read_meta(connection), folder)
        run.read(connection, seq - 1)
        yield run.evidence


def last_state(connection: Connection) -> JsonObject:
    """The body of the newest state event; {} without one."""
    states = sql.select(sql.event.c.body).where(
        sql.event.c.kind == "state", sql.event.c.topic.is_not(None)
    )
    raw = connection.execute(states.order_by(sql.event.c.seq.desc()).limit(1)).scalar()
    return {} if raw is None else decode_value(raw, JsonObject)


def result_of(connection: Connection, folder: Path) -> RunResult | None:
    """The result of a run: as the engine reported it, or by the journal so far."""
    winner = last_state(connection).get("winner")
    if isinstance(winner, dict):
        objective = read_meta(connection).task.objective  # older results lack these two
        more = {"direction": objective.direction, "bounds": list(objective.bounds)}
        return read_result({**winner, **more})
    with evidence_of(connection, folder) as run:
        return run.result()


class Standings:
    """Expected scores of all candidates at one moment, and their order; immutable."""

    def __init__(self, run: RunEvidence) -> None:
        ranking, account = run.evidence.ranking, run.evidence.account
        self._size, self._account, self.beliefs = len(account), account, ranking.beliefs
        self._counts = account.rows["count"].copy()
        self._ranking = ranking
        self._order: NDArray[np.int64] | None = None

    @property
    def ranked_numbers(self) -> NDArray[np.int64]:
        """Numbers of the candidates that may be the best, best first, at this moment."""
        if self._order is None:
            self._order = self._ranking.best_numbers(self._size)
        return self._order

    @property
    def keys(self) -> NDArray[np.uint64]:
        """Keys of all candidates (`core.candidate.key_of`) by their numbers."""
        return self._account.rows["key"]

    def number_of(self, candidate: str) -> int | None:
        """The number of a candidate, by id; None if it was never evaluated."""
        return self._account.numbers.get(key_of(candidate))

    def ids_of(self, numbers: Iterable[int]) -> list[str]:
        """Ids of candidates by their numbers."""
        return [self._account.id_at(number) for number in numbers]

    def score_of(self, candidate: str) -> Score | None:
        """The score that the search expects of a candidate, by id; None without one."""
        from culmen.evidence.verdict import expected_score

        place = self._account.numbers.get(key_of(candidate), _END)
        if place >= len(self._counts) or not self._counts[place]:
            return None
        mean, sd = float(self.beliefs.worth[place]), float(self.beliefs.worth_sd[place])
        return expected_score(self._account, candidate, int(self._counts[place]), mean, sd)


class Scores:
    """Scores of a run's candidates at one moment, as every list shows them.

    A candidate that the final choice measured has its fresh score, any other one the search's
    expected score. Evaluations of the final choice never enter the latter.
    """

    def __init__(self, connection: Connection, folder: Path, ordered: bool = False) -> None:
        self.direction = read_meta(connection).task.objective.direction
        result = result_of(connection, folder)
        self.winner = "" if result is None else result.id
        self._fresh: dict[str, Score] = {}
        with evidence_of(connection, folder) as run:
            if run.standings is None or run.standings.beliefs is not run.evidence.ranking.beliefs:
                run.standings = Standings(run)
            self._standings = run.standings
            if ordered:
                self._standings.ranked_numbers  # noqa: B018  (computed while the evidence is locked)
        for each in () if result is None else (result.initial, result.challenger):
            if each is not None and each.fresh:
                self._fresh[each.id] = each
        if result is not None and (result.confirmed or result.failures):
            self._fresh[result.id] = Score(
                result.id,
                result.score,
                result.count,
                result.se,
                result.margin,
                result.failures,
                fresh=True,
            )

    @property
    def ranked_count(self) -> int:
        """Number of candidates that may be the best."""
        return len(self._ranked) + len(self._leading)

    def ranked_ids(self, start: int, end: int) -> list[str]:
        """Ids of the candidates that may be the best from one rank up to another, best first."""
        before = len(self._leading)
        numbers = self._ranked[max(0, start - before) : max(0, end - before)]
        return [*self._leading[start:end], *self._standings.ids_of(numbers.tolist())]

    def ranks(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Keys of all evaluated candidates and their ranks; `ranked_count`: no rank."""
        import numpy as np

        keys = self._standings.keys
        ranks = np.full(len(keys), self.ranked_count)
        ranks[self._ranked] = np.arange(len(self._leading), self.ranked_count)
        leading = np.array([key_of(name) for name in self._leading], np.uint64)
        return np.append(keys, leading), np.append(ranks, np.arange(len(leading)))

    @cached_property
    def _leading(self) -> list[str]:
        """The reported candidate if the search never evaluated it."""
        unknown = self.winner and self._standings.number_of(self.winner) is None
        return [self.winner] if unknown else []

    @cached_property
    def _ranked(self) -> NDArray[np.int64]:
        """Numbers of the candidates that may be the best; the reported one comes first."""
        import numpy as np

        order = self._standings.ranked_numbers
        winner = self._standings.number_of(self.winner) if self.winner else None
        if winner is None or (len(order) and order[0] == winner):
            return order
        return np.concatenate([[winner], order[order != winner]])

    def score_of(self, candidate: str) -> Score | None:
        """The score of a candidate, by id; None if it has none."""
        return self._fresh.get(candidate) or self._standings.score_of(candidate)


class FollowedLeader:
    """The leader of a run by its evidence, updated as events arrive."""

    # evaluations after each of which the leader is computed, and later parts
    _FIRST, _PART = 40, 20

    def __init__(self, meta: RunMeta) -> None:
        from culmen.evidence.evidence import Evidence

        task = meta.task
        self._objective, self._bars = task.objective, excludes_confessed(meta)
        self._evidence = Evidence(task, prior_in(meta))
        self._known: dict[str, Candidate] = {each.id: each for each in task.initial_candidates()}
        self._next = 0
        self._leader: tuple[float, str] | None = None

    def enter_entry(self, entry: Entry) -> None:
        """Enter one entry of the journal."""
        if isinstance(entry.result, Proposal):
            for candidate in entry.result.candidates:
                self._known.setdefault(candidate.id, candidate)
        elif isinstance(entry.result, Observation):
            seen = entry.result
            candidate = self._known.get(seen.candidate) or Candidate(seen.candidate, {}, "")
            self._evidence.observe(candidate, seen, str(entry.body.get("phase", "")))
            self._update_leader(seen)
        elif self._bars and entry.kind == "note" and entry.body.get("note") == ADMISSION:
            for name in entry.body.get("candidates", ()):
                self._evidence.bar_candidate(name)
            self._next = 0

    @property
    def best(self) -> tuple[float, str] | None:
        """(score, id) of the leader; None while no candidate has scored."""
        return self._leader

    def _update_leader(self, seen: Observation) -> None:
        evaluations = self._evidence.account.made
        reward = None if seen.score is None else self._objective.reward(seen.score)
        record = reward is not None and (
            self._leader is None or reward > self._objective.reward(self._leader[0])
        )
        if evaluations < self._next and not record:
            return
        self._next = evaluations + (
            1 if evaluations < self._FIRST else max(1, evaluations // self._PART)
        )
        leader = self._evidence.leader()
        score = None if leader is None else self._evidence.verdict.score_of(leader)
        if leader is not None and score is not None:
            self._leader = score.score, leader
