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
from culmen.core.result import MODELLED, RunResult, Score
from culmen.core.task import Task
from culmen.store.codec import decode_value, escape_text, unescape_text
from culmen.store.columns import OBSERVATIONS, TALLIES, read_columns
from culmen.store.database import RunMeta, open_snapshot, read_meta
from culmen.store.reader import END, blobs_in, translate_decode_errors
from culmen.store.schema import JUDGED
from culmen.store.sidecar import LONG, load_kept, save_kept
from culmen.store.sql import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from culmen.evidence.account import Fact, LoadedTallies
    from culmen.evidence.evidence import Evidence
    from culmen.evidence.pedigree import StepLaw

_KEPT = 8  # runs whose evidence is kept
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
        self._folder, self._run_id, self._bars = folder, meta.id, excludes_confessed(meta)
        self.courses: dict[tuple[int, int], list[object]] = {}  # of `views.course`, by their steps
        self._kept = 0, 0  # evaluations and courses of what was kept
        self.evidence: Evidence = Evidence(meta.task, prior_in(meta))
        self.count = self.last = 0
        self._born: dict[str, tuple[str, ...]] = {}
        self._arrived = 0
        self.lock = threading.RLock()
        self.standings: Standings | None = None
        self._is_long = False
        self._result: tuple[object, RunResult | None] = (None, None)
        self._fresh: tuple[object, dict[str, Score]] = (None, {})

    def result(self) -> RunResult | None:
        """The result of the run by this evidence; kept until the evidence changes."""
        account = self.evidence.account
        state = self.evidence, self.count, account.made, account.bars
        if self._result[0] != state:
            self._result = state, self.evidence.result()
        return self._result[1]

    def fresh_scores(self) -> dict[str, Score]:
        """Scores of the candidates that the final choice measured; kept as `result` is."""
        account = self.evidence.account
        state = self.evidence, self.count, account.made, account.bars
        if self._fresh[0] != state:
            scores = map(self.evidence.verdict.score_of, account.fresh)
            self._fresh = state, {each.id: each for each in scores if each and each.fresh}
        return self._fresh[1]

    def load(self) -> None:
        """Take the evidence of this run that was kept, if there is some that fits."""
        kept = load_kept(self._folder, self._run_id, "evidence")
        if kept is not None:
            names = ("evidence", "courses", "count", "last", "_born", "_arrived")
            self.__dict__ |= dict(zip(names, kept[1]))
            self._kept = self.count, len(self.courses)

    def keep(self) -> None:
        """Keep the evidence of a long run if it has grown by much since it was kept."""
        count, courses = self._kept
        has_grown = self.count >= max(LONG, 1.2 * count) or len(self.courses) > courses
        if self._is_long or self.count < LONG or not has_grown:
            return
        self._kept = self.count, len(self.courses)
        account = self.evidence.account
        measure, account.measure = account.measure, None  # it holds the connection
        state = self.evidence, self.courses, self.count, self.last, self._born, self._arrived
        save_kept(self._folder, self._run_id, "evidence", self.last, state)
        account.measure = measure

    def read(self, connection: Connection, last: int = END) -> None:
        """Enter the new evaluations up to event `last`."""
        for fact, seq in self.new_facts(connection, last):
            self.evidence.observe_fact(fact)
            self.count, self.last = self.count + 1, seq
        self._read_admissions(connection, last)
        self._measure_by(connection)

    def _measure_by(self, connection: Connection) -> None:
        self.evidence.account.measure = lambda names: sizes_of(connection, names)

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
        self.evidence.account.repeated.has_drawn = has_drawn(connection)
        for fact, _ in self._facts_after(connection, END):
            if fact.purpose:  # late evaluations of the search are in the tallies
                self.evidence.observe_fact(fact)
        self._read_admissions(connection, END)
        self._measure_by(connection)
        self.count, self.last = count, last

    def _stored_tallies(self, connection: Connection) -> LoadedTallies:
        from culmen.evidence.account import LoadedTallies

        found, sign = read_columns(connection, TALLIES), self.task.objective.reward(1.0)
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
        found = read_columns(connection, OBSERVATIONS, *names)
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
        return int(found["seq"][later[0]]) - 1 if len(later) else END

    def _has_final_evaluations(self, connection: Connection) -> bool:
        query = "SELECT seq FROM observation WHERE phase <> '' AND seq > :last LIMIT 1"
        return connection.execute(query, last=self.last).first() is not None

    def new_facts(self, connection: Connection, last: int = END) -> Iterator[tuple[Fact, int]]:
        """Evaluations after the last one entered, as pairs of fact and event number."""
        self._read_arrivals(connection, last)
        yield from self._facts_after(connection, last)

    def _facts_after(self, connection: Connection, last: int) -> Iterator[tuple[Fact, int]]:
        """The same without the parents of candidates that have not been read."""
        from culmen.evidence.account import Fact

        objective, judged = self.task.objective, self._judged_parts(connection, last)
        first_drawn = self._first_drawn(connection)
        query = (
            'SELECT seq, candidate, "case", score, status, reason, seconds, phase, trust, culprit, '
            "kind FROM observation WHERE seq > :first AND seq <= :last ORDER BY seq"
        )
        rows = connection.execute(query, first=self.last, last=last).all()
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
                    drew=seq == first_drawn,
                ),
                seq,
            )

    def _first_drawn(self, connection: Connection) -> int:
        """Event of the first new score that drew random numbers; `END` if none did.

        The first one decides: one that drew is enough for scores not to be exact.
        """
        if self.evidence.account.repeated.has_drawn or not has_drawn(connection):
            return END
        query = (
            f"{_JUDGED_EVENTS} WHERE o.seq > :last AND o.score IS NOT NULL AND "
            f"({connection.contains('e.result', ':drew')} OR substr(e.result, 1, 5) = :apart) "
            "ORDER BY e.seq"
        )
        for seq, raw in connection.execute(query, last=self.last, drew=_DREW, apart=b"blob:"):
            if raw[:5] != b"blob:":
                return seq
            sha = bytes.fromhex(raw[5:].decode())
            if _DREW in blobs_in(connection).get([sha])[sha]:
                return seq
        return END

    def _judged_parts(self, connection: Connection, last: int) -> dict[int, JudgedPart]:
        """Stored parts that the rows of observations lack, by event.

        Only for observations judged by more than a score. Raises `JournalDamaged` if the stored
        results cannot be decoded.
        """
        query = f"{_JUDGED_EVENTS} WHERE o.seq > :first AND o.seq <= :last"
        if not self.task.objective.metrics:
            asked = f"SELECT candidate FROM tally WHERE {JUDGED} AND asked > 0"
            query += f" AND (o.phase <> '' OR o.candidate IN ({asked}))"
        found = connection.execute(query, first=self.last, last=last).all()
        rows = [(seq, raw) for seq, raw in found if raw is not None]
        with translate_decode_errors(self._folder):
            kept = {raw: bytes.fromhex(raw[5:].decode()) for _, raw in rows if raw[:5] == b"blob:"}
            blobs = blobs_in(connection).get(kept.values()) if kept else {}
            return {
                seq: decode_value(blobs[kept[raw]] if raw in kept else raw, JudgedPart)
                for seq, raw in rows
            }

    def _read_arrivals(self, connection: Connection, last: int) -> None:
        query = (
            "SELECT id, parents, seq FROM candidate WHERE seq > :first AND seq <= :last "
            "ORDER BY seq, id"
        )
        for name, parents, seq in connection.execute(query, first=self._arrived, last=last).all():
            self._born[unescape_text(name)] = tuple(unescape_text(parents).split())
            self._arrived = seq

    def _read_parents(self, connection: Connection, after: int) -> None:
        """Read the parents of the candidates that were evaluated after this event."""
        query = (
            "SELECT id, parents FROM candidate WHERE id IN "
            "(SELECT candidate FROM observation WHERE seq > :after)"
        )
        for name, parents in connection.execute(query, after=after).all():
            self._born[unescape_text(name)] = tuple(unescape_text(parents).split())

    def _read_admissions(self, connection: Connection, last: int) -> None:
        if not self._bars:
            return
        query = "SELECT body FROM event WHERE kind = 'note' AND topic = :topic AND seq <= :last"
        bodies = connection.execute(query, topic=escape_text(ADMISSION), last=last).scalars()
        with translate_decode_errors(self._folder):
            admissions = [decode_value(raw, JsonObject) for raw in bodies]
        for admission in admissions:
            for candidate in admission.get("candidates", ()):
                self.evidence.bar_candidate(candidate)


_JUDGED_EVENTS = "SELECT e.seq, e.result FROM event e JOIN observation o ON o.seq = e.seq"
_DREW = b'"drew":['  # in an observation that drew; inside a text the quotes are escaped


def has_drawn(connection: Connection) -> bool:
    """True if a score of the run, in search or final choice, drew random numbers."""
    return (
        connection.execute("SELECT name FROM counter WHERE scope = 'drew' LIMIT 1").first()
        is not None
    )


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


def sizes_of(connection: Connection, names: list[str]) -> list[int]:
    """Lengths of candidates in characters, by id; 0 for unknown ones.

    Raises `JournalDamaged` if their texts cannot be decoded.
    """
    wanted = [escape_text(name) for name in names]
    query = "SELECT id, parts FROM candidate WHERE id IN :ids"
    rows = connection.execute(query, ids=wanted).all()
    with translate_decode_errors(connection.folder):
        texts = blobs_in(connection).get([row.parts for row in rows])
        sizes = {
            row.id: sum(map(len, decode_value(texts[row.parts], dict[str, str]).values()))
            for row in rows
        }
    return [sizes.get(name, 0) for name in wanted]


_lock = threading.Lock()
_kept: OrderedDict[str, RunEvidence] = OrderedDict()
_before: OrderedDict[str, RunResult | None] = OrderedDict()


@contextmanager
def evidence_of(connection: Connection) -> Iterator[RunEvidence]:
    """The evidence of a run as journaled now; locked while the context is open."""
    with shared_evidence(connection) as found:
        count = observation_count(connection)
        if count > MODELLED and not found.task.objective.metrics:  # a front needs models of its own
            last = connection.execute("SELECT max(seq) FROM observation").scalar()
            found.read_tallies(connection, count, last or 0)
        else:
            found.read(connection)
        found.evidence.account.further = observation_count(connection, "further", "evaluations")
        found.keep()
        yield found


@contextmanager
def shared_evidence(connection: Connection) -> Iterator[RunEvidence]:
    """The evidence of a run as far as views have read it; locked while the context is open."""
    meta = read_meta(connection)
    name = f"{connection.folder.absolute()} {meta.created}"
    count = observation_count(connection)
    last = connection.execute("SELECT max(seq) FROM observation").scalar()
    with _lock:
        found = _kept.pop(name, None)
        if found is None or found.count > count or found.last > (last or 0):
            # the evidence is of another run, or of one that was rewritten
            found = RunEvidence(meta, connection.folder)
            if count >= LONG:
                found.load()
        _kept[name] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    with found.lock:
        yield found


def observation_count(connection: Connection, scope: str = "status", name: str = "%") -> int:
    """Number of observations as the writer counts them, or the sum of other counters."""
    query = "SELECT sum(value) FROM counter WHERE scope = :scope AND name LIKE :name"
    return int(connection.execute(query, scope=scope, name=name).scalar() or 0)


def result_before(connection: Connection, seq: int) -> RunResult | None:
    """The result by the evidence before event `seq`, of candidates without a grave sign."""
    meta = read_meta(connection)
    grave = f"SELECT candidate FROM tally WHERE {JUDGED} AND grave IS NOT NULL"
    signed = sorted(map(unescape_text, connection.execute(grave).scalars()))
    name = f"{connection.folder.absolute()} {meta.created} {seq} {len(signed)}"
    with _lock:
        if name in _before:
            return _before[name]
    run = RunEvidence(meta, connection.folder)
    run.read(connection, seq - 1)
    for each in signed:
        run.evidence.bar_candidate(each)
    with _lock:
        _before[name] = run.evidence.result()
        while len(_before) > _KEPT:
            _before.popitem(last=False)
        return _before[name]


@contextmanager
def evidence_before(run: Path, seq: int) -> Iterator[Evidence]:
    """The evidence of a run before event `seq`, read anew; valid while the context is open."""
    with open_snapshot(run) as connection:
        found = RunEvidence(read_meta(connection), run)
        found.read(connection, seq - 1)
        yield found.evidence


def last_state(connection: Connection) -> JsonObject:
    """The body of the newest state event; {} without one."""
    newest = (
        "SELECT body FROM event WHERE kind = 'state' AND topic IS NOT NULL "
        "ORDER BY seq DESC LIMIT 1"
    )
    raw = connection.execute(newest).scalar()
    return {} if raw is None else decode_value(raw, JsonObject)


def result_of(connection: Connection) -> RunResult | None:
    """The result of a run: as the engine reported it, or by the journal so far."""
    winner = last_state(connection).get("winner")
    if isinstance(winner, dict):
        return msgspec.convert(winner, RunResult)
    with evidence_of(connection) as run:
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

    def number_of(self, candidate: str) -> int | None:
        """The number of a candidate, by id; None if it was never evaluated."""
        return self._account.numbers.get(key_of(candidate))

    def ids_of(self, numbers: Iterable[int]) -> list[str]:
        """Ids of candidates by their numbers."""
        return [self._account.id_at(number) for number in numbers]

    def score_of(self, candidate: str) -> Score | None:
        """The score that the search expects of a candidate, by id; None without one."""
        from culmen.evidence.verdict import expected_score

        place = self._account.numbers.get(key_of(candidate), END)
        if place >= len(self._counts) or not self._counts[place]:
            return None
        mean, sd = float(self.beliefs.worth[place]), float(self.beliefs.worth_sd[place])
        return expected_score(self._ranking, candidate, int(self._counts[place]), mean, sd)


class Scores:
    """Scores of a run's candidates at one moment, as every list shows them.

    A candidate that the final choice measured has its fresh score, any other one the search's
    expected score. Evaluations of the final choice never enter the latter.
    """

    def __init__(self, connection: Connection, ordered: bool = False) -> None:
        self.direction = read_meta(connection).task.objective.direction
        result = result_of(connection)
        self.winner = "" if result is None else result.id
        self._fresh: dict[str, Score] = {}
        with evidence_of(connection) as run:
            if run.standings is None or run.standings.beliefs is not run.evidence.ranking.beliefs:
                run.standings = Standings(run)
            self._standings = run.standings
            if ordered:
                self._standings.ranked_numbers  # noqa: B018  (computed while the evidence is locked)
            self._fresh |= run.fresh_scores()
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
        self._known: dict[str, Candidate] = {each.id: each for each in task.starting_candidates()}
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
