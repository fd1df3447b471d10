"""Explanation of one evaluation of a run, from its journal.

A search is a function of its settings and of the results fed to it, so a decision is derived again
by replaying the journal up to it: nothing needs to be stored for it, and the replay itself shows
that the decision is the one that was made.

Facts about one decision of the default strategy, for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.candidate import CARRIED, Candidate
from culmen.core.errors import CulmenError, JournalMismatch, UserError
from culmen.core.evaluation import Observation
from culmen.core.event import Event
from culmen.core.json import JsonObject
from culmen.core.ports import Lab, Strategy, with_protocol_defaults
from culmen.core.result import DecisionFacts, Explanation, FinalistFacts
from culmen.report.figures import run_name
from culmen.report.reasons import explanation_lines
from culmen.run.assemble import rebuild_search, strategy_of
from culmen.run.options import RunObjects
from culmen.store import views
from culmen.store.views import EvaluationMark, StrategyNote

if TYPE_CHECKING:
    from culmen.engine.search import Search
    from culmen.evidence.evidence import Evidence
    from culmen.run.explain import DecisionDescriber
    from culmen.store.database import RunMeta
    from culmen.strategies.knowledge_gradient import KnowledgeGradient, WeighedMove
    from culmen.strategies.pedigree import PedigreeSearch
import math

from culmen.core.result import ConsideredAction
from culmen.evidence.evidence import evidence_of
from culmen.evidence.pedigree import ValueModel
from culmen.strategies.front_gradient import FrontGradient
from culmen.strategies.knowledge_gradient import AGAIN, KnowledgeGradient, WeighedMove

FINALISTS = 5  # finalists that an explanation names
MOST_EVENTS = 20_000  # events that a dashboard replays for an explanation


def explain_evaluation(run: Path, wanted: str = "", most_events: int | None = None) -> Explanation:
    """Explanation of an evaluation of a run.

    `wanted` is its number, or names a candidate, whose first evaluation is explained; "": the
    latest evaluation. Decisions more than `most_events` events into the journal are not derived
    again, but explained by the strategy's notes alone. Raises `UserError` if there is no such
    evaluation.
    """
    mark = _find_mark(run, wanted)
    meta = views.run_meta(run)
    (event,) = views.log_events(run, mark.seq - 1, 1)
    seen = event.entry.result
    assert isinstance(seen, Observation), "the table of observations names no other event"
    candidate = views.candidate_detail(run, mark.candidate, observations=0, children=0).candidate
    now = views.run_status(run)
    from culmen.strategies.catalog import names_by_path

    explanation = Explanation(
        run=run_name(run),
        strategy=names_by_path().get(str(meta.strategy.get("path", "")), now.strategy),
        evaluation=mark.number,
        of=now.evaluations,
        seq=mark.seq,
        candidate=mark.candidate,
        nth=mark.nth,
        case=mark.case,
        purpose=mark.phase,
        cause="final" if mark.phase else "strategy",
        status=seen.status.value,
        score=seen.score,
        reason=seen.reason.replace("_", " ") or seen.last_words,
        before=_earlier_statuses(run, mark),
        origin=_origin_facts(run, candidate, mark),
    )
    if mark.phase:
        explanation = _with_finalists(explanation, run, meta, mark)
    else:
        explanation = _with_decision(explanation, run, meta, mark, candidate, most_events)
    lines = tuple(explanation_lines(explanation, meta.task, now))
    return msgspec.structs.replace(
        explanation, lines=lines, table_at=2 + bool(explanation.origin["inherited"])
    )


def explain_for_dashboard(run: Path, wanted: str) -> Explanation:
    """The same, without long replays."""
    return explain_evaluation(run, wanted, MOST_EVENTS)


def _find_mark(run: Path, wanted: str) -> EvaluationMark:
    """The evaluation that a person named."""
    latest = views.evaluation_mark(run)
    if latest is None:
        raise UserError(
            "no evaluation has finished yet",
            where=run,
            fix=f"culmen show {run_name(run)} --log",
        )
    if not wanted:
        return latest
    if wanted.lstrip("#").isdecimal() and 1 <= int(wanted.lstrip("#")) <= latest.number:
        found = views.evaluation_mark(run, int(wanted.lstrip("#")))
        assert found is not None, "a number up to that of the latest evaluation"
        return found
    return _candidate_mark(run, wanted, latest.number)


def _candidate_mark(run: Path, wanted: str, count: int) -> EvaluationMark:
    """The first evaluation of a candidate that a person named."""
    numbers = f"the run has evaluations 1 to {count:,}"
    if wanted in ("best", "seed"):
        id = _named_id(run, wanted)
    else:
        try:
            id = views.find_candidate(run, wanted)
        except UserError as error:
            if not wanted.lstrip("#-").isdecimal():
                raise
            raise UserError(
                f"there is no evaluation {wanted}: {numbers}",
                where=run,
                fix=f"culmen show {run_name(run)} {count} --explain",
            ) from error
    found = views.evaluation_mark(run, candidate=id)
    if found is None:
        raise UserError(
            f"candidate {id} was never evaluated, so there is no decision to explain",
            where=run,
            fix=f"culmen show {run_name(run)} {id}",
        )
    return found


def _named_id(run: Path, name: str) -> str:
    """The id of `best` or `seed`."""
    if name == "best":
        best = views.best_result(run)
        if best is not None:
            return best.id
        raise UserError(
            "nothing has scored yet", where=run, fix=f"culmen show {run_name(run)} --log"
        )
    if initial := views.initial_program(run):
        return initial
    raise UserError(
        "this run began without an initial program",
        where=run,
        fix=f"culmen show {run_name(run)} best",
    )


def _origin_facts(run: Path, candidate: Candidate, mark: EvaluationMark) -> JsonObject:
    """Origin of a candidate, for JSON."""
    origin = candidate.origin
    return {
        "operator": origin.operator,
        "model": origin.model,
        "note": origin.note,
        "parents": list(candidate.parents),
        "inherited": not mark.started,
        "fork_of": str(views.run_meta(run).fork_of or ""),
    }


def _earlier_statuses(run: Path, mark: EvaluationMark) -> tuple[str, ...]:
    """Outcomes of the candidate's evaluations before this one, at most the first hundred."""
    if mark.nth == 1:
        return ()
    seen = islice(views.stream_observations(run, mark.candidate), min(mark.nth - 1, 100))
    return tuple(each.status.value for each in seen)


# -- evaluations of the search ---------------------------------------------------------------------


def _with_decision(
    explanation: Explanation,
    run: Path,
    meta: RunMeta,
    mark: EvaluationMark,
    candidate: Candidate,
    most_events: int | None,
) -> Explanation:
    """The explanation of an evaluation of the search."""
    from culmen.strategies.pedigree import PedigreeSearch

    cause = _cause_without_decision(meta, mark, candidate)
    found, why_not = None, ""
    try:
        strategy = strategy_of(meta, RunObjects())
        if isinstance(strategy, PedigreeSearch):
            if most_events is not None and mark.seq > most_events:
                why_not = (
                    f"a run this long is explained by culmen show {run_name(run)} --explain only"
                )
            else:
                found = recompute_decision(run, meta, strategy, mark)
                other = "proposer" if mark.nth == 1 else "engine"
                cause = "decision" if found is not None else cause or other
    except CulmenError as error:
        why_not = error.what if isinstance(error, UserError | JournalMismatch) else str(error)
    notes: tuple[JsonObject, ...] = ()
    if found is None and cause in ("", "strategy"):
        notes = tuple(_notes_on(run, mark, candidate))
    return msgspec.structs.replace(
        explanation,
        cause=cause or "strategy",
        decision=found,
        recomputed=found is not None,
        why_not=why_not,
        notes=notes,
    )


def _cause_without_decision(meta: RunMeta, mark: EvaluationMark, candidate: Candidate) -> str:
    """The cause of an evaluation that needs no decision of the strategy; "" if it may be one."""
    if mark.nth > 1:
        return ""
    if candidate.origin.operator in ("person", CARRIED):
        return candidate.origin.operator
    initial = {each.id for each in meta.task.initial_candidates()}
    return "initial" if candidate.id in initial else ""


def _notes_on(run: Path, mark: EvaluationMark, candidate: Candidate) -> Iterator[JsonObject]:
    """The strategy's notes that name this candidate, and the last one before on its parent."""
    parents = set(candidate.parents)
    before: StrategyNote | None = None
    naming: list[StrategyNote] = []
    for note in views.strategy_notes(run):
        if note.kind == "noise":
            continue
        if _names_any(note.body, {candidate.id}):
            naming.append(note)
        elif note.seq < mark.seq and parents and _names_any(note.body, parents):
            before = note
    for note in (*([before] if before else []), *naming[:3]):
        yield {"seq": note.seq, **note.body}


def _names_any(value: object, ids: set[str]) -> bool:
    """True if one of these ids occurs in a note."""
    if isinstance(value, str):
        return value in ids
    if isinstance(value, dict):
        return any(_names_any(key, ids) or _names_any(each, ids) for key, each in value.items())
    return isinstance(value, list) and any(_names_any(each, ids) for each in value)


@dataclass(frozen=True)
class WatchedSearch:
    """The default strategy, with a watcher of its decisions."""

    settings: PedigreeSearch
    watch: Callable[[KnowledgeGradient, WeighedMove], None]

    @property
    def prior(self) -> object:
        """Step law of an earlier run, which the evidence begins with."""
        return self.settings.prior

    @property
    def version(self) -> int:
        """Version of the strategy that is watched."""
        return with_protocol_defaults(Strategy, self.settings).version

    async def search(self, lab: Lab) -> None:
        """Run until the budget ends it."""
        await self.settings.search_watched(lab, self.watch)


class DecisionFinder:
    """Finds the decision that led to one evaluation, while a search is replayed.

    `search` is that search, set before it starts.
    """

    def __init__(self, mark: EvaluationMark) -> None:
        self._mark = mark
        self.search: Search | None = None
        self._describer: DecisionDescriber | None = None
        self._open: list[tuple[WeighedMove, DecisionFacts]] = []
        self._again: DecisionFacts | None = None

    def watch(self, choice: KnowledgeGradient, decision: WeighedMove) -> None:
        """Describe a decision; keep it if it may be the one."""
        from culmen.run.explain import DecisionDescriber

        assert self.search is not None, "set before the search starts"
        self._describer = self._describer or DecisionDescriber(self.search.lab)
        facts = self._describer.describe(choice, decision)
        self._open = [pair for pair in self._open if self._may_be_it(pair[0])]
        if not decision.move.again:
            self._open.append((decision, facts))
        elif decision.move.again == self._mark.candidate and self._is_next(self.search.issued):
            self._again = facts

    def _is_next(self, issued: int) -> bool:
        """True if the effect that will be asked for next is the evaluation."""
        return issued + 1 == self._mark.key

    def _may_be_it(self, decision: WeighedMove) -> bool:
        return not decision.made or self._mark.candidate in decision.made

    def found(self) -> DecisionFacts | None:
        """The decision; None if another part of the engine asked for the evaluation."""
        if self._again is not None or self._mark.nth > 1:
            return self._again
        return next(
            (facts for each, facts in self._open if self._mark.candidate in each.made), None
        )


def recompute_decision(
    run: Path, meta: RunMeta, strategy: PedigreeSearch, mark: EvaluationMark
) -> DecisionFacts | None:
    """The decision that led to an evaluation, by a replay of the journal up to it.

    None if it was no decision of the strategy. Raises `JournalMismatch` if the replay asks for
    other effects, or notes other gains, than the journal has.
    """
    from culmen.engine.driver import replay_journal
    from culmen.store.journal import SqlJournal

    finder = DecisionFinder(mark)
    watched = WatchedSearch(strategy, finder.watch)
    noted = {event.entry.key: event.entry.body for event in views.note_events(run, "pedigree")}
    with SqlJournal.open(run) as journal:
        search, estimate = rebuild_search(meta, RunObjects(strategy=watched))
        finder.search = search
        try:
            replay_journal(
                search, _checked_events(search, journal.retrace(), noted, mark.seq), estimate
            )
        finally:
            search.close()
    return finder.found()


def _checked_events(
    search: Search, events: Iterator[Event], noted: dict[int, JsonObject], last: int
) -> Iterator[Event]:
    """Events up to `last`; the strategy's notes on decisions must be those of the replay."""
    for event in events:
        if event.seq > last:
            return
        key = event.entry.key
        if event.entry.kind == "note" and key in noted:
            own = next((entry.body for entry in search.outbox if entry.key == key), None)
            if own is None or msgspec.json.decode(msgspec.json.encode(own)) != noted[key]:
                raise JournalMismatch(
                    f"the journal's decision {noted[key]} is {own} when derived again",
                    where="note of event " + str(event.seq),
                    fix="culmen runs replay RUN",
                )
        yield event


# -- evaluations of the final choice ---------------------------------------------------------------


def _with_finalists(
    explanation: Explanation, run: Path, meta: RunMeta, mark: EvaluationMark
) -> Explanation:
    """The explanation of an evaluation of the final choice: finalists by the knowledge before."""
    from culmen.store.evidence import evidence_before

    if meta.task.objective.metrics:  # every member of the front is evaluated again
        return explanation
    with evidence_before(run, mark.started or mark.seq) as evidence:
        finalists = tuple(_finalist_facts(evidence, meta, mark))
    return msgspec.structs.replace(explanation, finalists=finalists)


def _finalist_facts(
    evidence: Evidence, meta: RunMeta, mark: EvaluationMark
) -> Iterator[FinalistFacts]:
    """The first finalists by worth, the initial program and the one evaluated among them.

    For a confirmation they stand as the choice left them.
    """
    from culmen.evidence.account import CHOICE
    from culmen.evidence.ranking import Race
    from culmen.evidence.verdict import clip_to_bounds

    shown = mark.candidate
    initial = {each.id for each in meta.task.initial_candidates()}
    best_initial = evidence.ranking.best_initial()
    names = evidence.ranking.best_ids(60)
    names += [each for each in (best_initial, shown) if each and each not in names]
    race = Race(evidence.ranking, names, with_fresh=mark.phase == CHOICE)
    standings = list(race.standings().values())
    for place, each in enumerate(standings):
        if place < FINALISTS or each.id in (shown, best_initial):
            yield FinalistFacts(
                each.id,
                meta.task.objective.score(clip_to_bounds(meta.task, each.worth)),
                each.sd,
                each.looks,
                each.failed,
                each.id in initial,
            )


_BUDGETS = ("evaluations", "calls", "tokens", "dollars", "seconds")


class DecisionDescriber:
    """Describes the decisions of one search, each at the moment it is made.

    Of the actions compared, the first six by gain per share are described.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab, self._number = lab, 0

    def describe(self, choice: KnowledgeGradient, decision: WeighedMove) -> DecisionFacts:
        """Facts about this decision; to be called before anything is observed after it."""
        self._number += 1
        model, move, ids = choice.model, decision.move, choice.model.ids
        pair = model.index.get(move.again or move.parent, -1), 0 if move.again else move.k
        weighed = self._weighed_pairs(decision)
        rates = {each: rate for each, (_, rate) in weighed.items()}
        ordered = sorted(rates, key=lambda each: -rates[each])
        other_kind = [each for each in ordered if bool(each[1]) != bool(pair[1])]
        shown = [*ordered[:6], *other_kind[:1], *([pair] if pair in rates else [])]
        shown = sorted(dict.fromkeys(shown), key=lambda each: -rates[each])
        actions = {
            each: self._action(choice, decision, each, *weighed.get(each, (0.0, 0.0)), each == pair)
            for each in dict.fromkeys([*shown, pair])
        }
        leader = ids[decision.best] if decision.best >= 0 else ""
        score, sd = self._expected(model, decision.best, 0)
        records, evidence = choice.stall.records, evidence_of(self._lab)
        report = evidence.ranking.noise_report
        is_front = isinstance(choice, FrontGradient)
        return DecisionFacts(
            number=self._number,
            evaluations=model.evaluations,
            elapsed=self._lab.elapsed,
            reason=decision.reason,
            leader="" if is_front else leader,
            leader_score=None if is_front else score,
            leader_sd=None if is_front else sd,
            front=len(choice.front.front_rows()) if is_front else 0,
            exact=model.is_exact,
            noise=0.0 if model.is_exact else report.sd,
            repeats=report.repeats,
            repeating=sum(map(int, choice.flying.repeats.values())),
            expecting=sum(map(int, choice.flying.children.values())),
            wait=0 if is_front else max(0, model.evaluations - records.at),
            wait_chance=1.0 if is_front else records.wait_chance(model.evaluations),
            left={name: left for name in _BUDGETS if math.isfinite(left := self._lab.left(name))},
            considered=len(weighed),
            options=tuple(actions[each] for each in shown),
            chosen=actions[pair],
            one_draw=evidence.account.is_on_one_draw,
        )

    def _weighed_pairs(self, decision: WeighedMove) -> dict[tuple[int, int], tuple[float, float]]:
        """(gain, rate) of each pair of candidate and k; of requests, each parent's best k."""
        weighed: dict[tuple[int, int], tuple[float, float]] = {}
        if decision.repeats is not None:
            share = decision.repeats.share
            for row, gain in zip(decision.repeats.rows, decision.repeats.gains):
                weighed[row, 0] = gain, AGAIN * gain / share
        if decision.requests is not None:
            requests = decision.requests
            for place, row in enumerate(requests.rows):
                rates = [
                    float(gains[place]) / share
                    for gains, share in zip(requests.gains, requests.shares)
                ]
                k = rates.index(max(rates)) + 1
                weighed[row, k] = float(requests.gains[k - 1][place]), rates[k - 1]
        return weighed

    def _action(
        self,
        choice: KnowledgeGradient,
        decision: WeighedMove,
        pair: tuple[int, int],
        gain: float,
        rate: float,
        chosen: bool,
    ) -> ConsideredAction:
        (row, k), costs, model = pair, choice.costs, choice.model
        amounts = costs.request_amounts(k) if k else costs.evaluation_amounts()
        share = costs.request_share(k) if k else costs.evaluation_share()
        is_front = isinstance(choice, FrontGradient)
        expected, sd = (None, None) if is_front else self._expected(model, row, k)
        return ConsideredAction(
            of=model.ids[row] if row >= 0 else "",
            k=k,
            expected=expected,
            sd=sd,
            gain=gain if is_front else self._gain_in_scores(model, decision.best, gain),
            weight=1.0 if k else AGAIN,
            cost={name: amount for name, amount in amounts.items() if amount},
            share=share,
            budget=costs.tightest_budget(amounts),
            rate=rate if is_front else self._gain_in_scores(model, decision.best, rate),
            chosen=chosen,
        )

    def _expected(self, model: ValueModel, row: int, k: int) -> tuple[float | None, float | None]:
        """Expected score of a candidate (k = 0) or of one child, and its standard deviation."""
        if row < 0 or not model.scored_counts[row]:
            return None, None
        if not k:
            value = model.value_of(model.ids[row])
            mean, sd = value.mean, value.sd
        else:
            step = model.noise_step_variances[1]
            mean, sd = model.reward_of_scaled(
                float(model.mean[row] + model.drift[row]),
                math.sqrt(float(model.variance[row]) + step),
            )
        return self._lab.task.objective.score(mean), 0.0 if model.is_noiseless and not k else sd

    def _gain_in_scores(self, model: ValueModel, best: int, gain: float) -> float:
        """A gain on the model's scale in units of the score, at the leader's value."""
        if best < 0:
            return gain
        return model.reward_of_scaled(float(model.scaled_worths()[best]), gain)[1]
