"""One search as a state machine without I/O: completions in, effects to start out.

Its state is a function of (code, configuration, seed, fed entries). Live runs, resumed runs and
simulations differ only in their driver: see `driver.py` and `testing/virtual.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from culmen.core.admissions import ADMISSION
from culmen.core.answers import settle_answer
from culmen.core.brief import BANK_EMPTY, Brief, HumanInput, Proposal, Text, refused_budget
from culmen.core.candidate import Candidate
from culmen.core.errors import JournalMismatch
from culmen.core.evaluation import CHANCE_LOOKS, Case, Observation, Status
from culmen.core.event import (
    WAIT,
    CustomRequest,
    Effect,
    Entry,
    EvaluateRequest,
    ProposeRequest,
    Request,
    Result,
    WriteRequest,
    at_least,
    request_mark,
)
from culmen.core.json import JsonObject
from culmen.core.ports import (
    MinimalProposer,
    MinimalStrategy,
    ObservationStore,
    Strategy,
    with_protocol_defaults,
)
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage
from culmen.engine.finale import (
    UNBUDGETED,
    Finale,
    FrontFinale,
    StopScore,
    evaluations_after_stop,
)
from culmen.engine.lab import DirectProposer, EngineLab, SearchPort, TurnCounter
from culmen.engine.ledger import (
    CHECKS,
    LARGEST_SHARE,
    NOTHING,
    RIVALS,
    BudgetQueue,
    Estimate,
    Ledger,
    Reservations,
    loss_group,
    may_rest_on_tolerance,
    usage_of,
)
from culmen.engine.loop import CheckpointBarrier, Future, Loop, SaveState, SearchState
from culmen.engine.loop import Fiber as Coroutine
from culmen.engine.record import EvaluationCache, MemoryStore, PromptHistory
from culmen.engine.reserve import LeaderControl, ReservePlanner
from culmen.evidence.evidence import SEARCH, Evidence, FailureAttribution
from culmen.evidence.verdict import value_of

if TYPE_CHECKING:
    from culmen.evidence.pedigree import StepLaw

VERSION = 1
"""Raised when the engine decides otherwise: admission, lab, evidence or final choice."""

CHANGES: dict[int, str] = {}
"""What is decided otherwise since a version, in a sentence for people."""

_FUTILE_EFFECTS = 1000  # free effects in a row after which no budget would end the run
# proposals in a row that brought nothing to evaluate: only money would end the run
_FUTILE_PROPOSALS = 60
_FUTILE_WRITES = 1000  # the same for prose


_STORED = (
    *("evidence", "ledger", "turn_counter", "issued", "outbox"),
    *("_attribution", "_history", "_stop_score", "_trial", "_barrier"),
    *("_abandoned", "_empty_roles", "_planner", "_control", "_notes", "_has_admitted"),
    *("_free_in_row", "_proposals_in_row", "_writes_in_row"),
)
"""Members of a search that a checkpoint stores; the others are empty then, or follow from these."""


class Search:
    """Strategy, lab, ledger and final choice of one run.

    `phase` says what the fed entries do:

    search  The strategy's coroutines run; their requests are effects that start as the budget has
            room (`BudgetQueue`). With `trial`, those that cost money wait until an initial program
            has scored (`Trial`). Each observation updates the evidence; then the engine may ask for
            evaluations of its own, to confirm a score of at least `stop_at` (`StopScore`) or to
            attribute a failure (`FailureAttribution`).
    final   The search has ended for `reason`: its coroutines are closed, and effects in flight are
            abandoned. The evaluations kept back choose among the best candidates (`Finale`).
    done    Nothing starts any more.

    With `integrity` = stop, the first candidate that is rejected for its integrity ends the search.
    `observations` returns past evaluations; without it they are all kept in memory. `outbox`
    collects notes to journal. `watch` is called with each finished effect, replayed ones included;
    `save` with the state at each checkpoint that `barrier` allows (None: there are none).
    """

    def __init__(
        self,
        strategy: MinimalStrategy,
        task: Task,
        budget: Budget,
        seed: int,
        workers: int = 1,
        proposer: MinimalProposer | None = None,
        estimate: Estimate = at_least,
        integrity: str = "warn",
        stop_at: float | None = None,
        observations: ObservationStore | None = None,
        trial: bool = True,
        barrier: CheckpointBarrier | None = None,
    ) -> None:
        self.task, self.budget, self.phase, self.reason = task, budget, "search", ""
        self._strategy = strategy
        self._trial = Trial(task, trial)
        self._stops_at_gaming = integrity == "stop"
        self._checks_tolerance = integrity != "warn" and may_rest_on_tolerance(task)
        self._bars_admitted, self._has_admitted = integrity in ("reject", "stop"), False
        self.evidence = Evidence(task, prior_of(strategy))
        self._planner = ReservePlanner(budget, task, self.evidence)
        self._control = LeaderControl(self.evidence)
        self.ledger = Ledger(budget, self._planner.plan.evaluations, max(1, workers))
        # for the live driver; a replay reserves nothing
        self.reservations = Reservations(self.ledger)
        self._attribution = FailureAttribution(self.evidence, budget.evaluations)
        self._cases = {case.id: case for case in task.cases}
        account = self.evidence.account
        self._history = PromptHistory(task, account)
        self._stop_score = None if stop_at is None else StopScore(task, stop_at, self.evidence)
        self.in_flight: dict[int, Effect] = {}
        self.watch: Callable[[Effect], None] | None = None
        self.save: SaveState | None = None
        self._barrier = barrier or CheckpointBarrier()
        self.outbox: list[Entry] = []
        self._estimate = estimate
        self.budget_queue = BudgetQueue(self.ledger, estimate)
        self._futures: dict[int, Future[Any]] = {}
        self.observations = observations or MemoryStore()
        self._cache = EvaluationCache(task, self.observations, self._futures)
        self._admitted: list[Effect] = []
        self._abandoned: set[int] = set()
        self._empty_roles: set[str] = set()  # whose banks have no program left
        self.issued = self._notes = 0
        self._free_in_row = self._proposals_in_row = self._writes_in_row = 0
        self._loop = Loop()
        self.turn_counter = TurnCounter()
        self.lab = self._make_lab(proposer or DirectProposer(), seed, workers)
        self._finale: Finale | None = None
        self._root: Coroutine[str | None] = self._loop.spawn(strategy.search(self.lab))

    def _make_lab(self, proposer: MinimalProposer, seed: int, workers: int) -> EngineLab:
        port = SearchPort(
            self._issue_request,
            self._cache.remembered_future,
            self._cache.recall_candidate,
            self._journal_note,
            self._budget_without_room,
            self._complete_brief,
            self.turn_counter,
            self._hold_at_barrier,
        )
        evidence, loop = self.evidence, self._loop
        return EngineLab(self.task, proposer, self.ledger, loop, seed, workers, port, evidence)

    @property
    def is_done(self) -> bool:
        """True if the search is over."""
        return self.phase == "done"

    @property
    def result_so_far(self) -> RunResult | None:
        """The result of the run so far."""
        return self.evidence.result()

    def leader_standing(self) -> tuple[str, float, int] | None:
        """Id, score and number of evaluations of the search's leader; None without a score."""
        leader = self.evidence.leader() if self.phase == "search" else None
        value = None if leader is None else value_of(self.evidence.verdict, leader)
        return None if leader is None or value is None else (leader, *value)

    @property
    def purpose(self) -> str:
        """Purpose of the evaluations requested now.

        Of the search, of the final choice, or made after it.
        """
        return SEARCH if self._finale is None else self._finale.purpose

    @property
    def deadline(self) -> float:
        """Active seconds at which this phase must end: infinity without a limit.

        The search leaves the final choice its reserve, and the time that the slowest
        candidate took, so that a slow winner can be confirmed; then never more than half.
        """
        limit = self.budget.seconds
        if limit is None or self.phase == "final":
            return float("inf") if limit is None else limit
        wanted = self.ledger.planned_seconds + 1.25 * self.evidence.account.slowest
        return limit - max(self.ledger.kept_seconds, min(wanted, 0.5 * limit))

    @property
    def anchors(self) -> dict[str, object]:
        """Objects that a stored state refers to by name, since a resume makes them anew."""
        return {"lab": self.lab, "task": self.task, "strategy": self._strategy}

    @property
    def deciding_parts(self) -> tuple[object, ...]:
        """The strategy, strategies that it runs, and the proposer."""
        strategy = with_protocol_defaults(Strategy, self._strategy)
        return (self._strategy, *strategy.parts, self.lab.proposer)

    def restore(self, saved: SearchState) -> None:
        """Go on from a checkpoint; to be called before the start, with the same settings."""
        for name in _STORED:
            setattr(self, name, saved.search[name])
        self.reservations = Reservations(self.ledger)
        self.budget_queue = BudgetQueue(self.ledger, self._estimate)
        self._cache.restore_keys(saved.remembered)
        self.lab.restore_members(saved.lab, saved.strategy)

    def start(self) -> list[Effect]:
        """Drive the strategy to its first effects."""
        return self._run_until_waiting()

    def feed(self, entry: Entry) -> list[Effect]:
        """Deliver an entry, and return the effects to start now.

        done  an effect is finished; torn: one was lost, but may have cost something
        tell  a person's input; stop: the phase ends
        """
        if entry.elapsed > self.ledger.elapsed:
            self.ledger.elapsed = entry.elapsed
        if entry.kind == "done":
            self.turn_counter.note_delivery()
            self._barrier.completions += 1
            self._complete_effect(entry)
        elif entry.kind == "torn":
            usage, group = Usage(**entry.body.get("usage", {})), entry.body.get("group", "")
            self.ledger.charge_loss(usage, str(group))
        elif entry.kind == "tell":
            self._deliver_input(entry)
        elif entry.kind == "stop":
            self._end_phase(str(entry.body.get("reason", "stopped")))
        return self._run_until_waiting()

    def close(self) -> None:
        """End all coroutines."""
        self._loop.close()

    def _issue_request(self, request: Request, brief: bytes = b"") -> Future[Any]:
        """Let a request wait for room in the budget; return the future of its result."""
        self.issued += 1
        self.lab.reset_idle_count()
        if self._checks_tolerance and isinstance(request, EvaluateRequest):
            request = self._with_tolerance_checks(request)
        if isinstance(request, EvaluateRequest):
            # on the request, not the result: many lanes may propose before one is evaluated
            self._proposals_in_row = self._writes_in_row = 0
        effect = Effect(self.issued, request_mark(request, brief), request)
        future = self._futures[effect.key] = Future()
        self.budget_queue.add(effect)
        self._cache.record_request(effect)
        self._trial.count_request(request)
        return future

    def _with_tolerance_checks(self, request: EvaluateRequest) -> EvaluateRequest:
        """The request; an evaluation that may make a new leader also tests its tolerance."""
        best = self.evidence.account.top
        if request.checks or best is None or self._finale is not None:
            return request
        rivals = map(self.lab.find, self.evidence.tolerance_rivals(RIVALS))
        return msgspec.structs.replace(
            request, checks=CHECKS, above=self.task.objective.score(best), rivals=tuple(rivals)
        )

    def _journal_note(
        self, kind: str, fields: JsonObject, candidates: tuple[Candidate, ...]
    ) -> None:
        self._notes += 1
        result = Proposal(candidates=candidates) if candidates else None
        effect = "candidates" if candidates else ""
        body = {"note": kind, **fields}
        self.outbox.append(Entry("note", self._notes, effect=effect, body=body, result=result))
        if kind == ADMISSION and self._bars_admitted:  # it admits to gaming the evaluator
            for candidate in fields.get("candidates", ()):
                self.evidence.bar_candidate(candidate)
                self._has_admitted = self._stops_at_gaming

    def _budget_without_room(self, need: Usage | Request) -> str:
        return self.budget_queue.budget_without_room(need)

    def _deliver_input(self, entry: Entry) -> None:
        """Deliver a person's input; it is ignored once the final choice has begun."""
        if self.phase != "search":
            return
        for candidate in entry.result.candidates if isinstance(entry.result, Proposal) else ():
            self._loop.spawn(self.lab.take_input(HumanInput(candidate=candidate)))
        if entry.body.get("tell") == "hint":
            self._loop.spawn(self.lab.take_input(HumanInput(str(entry.body.get("text", "")))))

    def _complete_effect(self, entry: Entry) -> None:
        """Charge a finished effect, learn from its result, and hand it to whoever awaits it."""
        self.reservations.release(entry.key)
        usage = usage_of(entry.result)
        if entry.key in self._abandoned:  # ended while the search was being stopped: only paid for
            self._abandoned.discard(entry.key)
            self.ledger.settle(entry.key, usage)
            return
        effect = self.in_flight.pop(entry.key, None)
        if effect is None or effect.mark != entry.mark:
            raise _journal_mismatch(entry, effect)
        request, result, must_stop = effect.request, entry.result, False
        self.ledger.settle(entry.key, usage)
        self.ledger.learn_effect_cost(loss_group(effect), usage)
        self.budget_queue.learn_reply_size(entry.key, request, result)
        self._count_without_progress(request, usage)
        self.budget_queue.closing = self.budget_queue.closing or _result_refused_budget(result)
        if isinstance(request, EvaluateRequest) and isinstance(result, Observation):
            self._count_evaluation(effect.mark, request.candidate, result)
            must_stop = self._stops_at_gaming and result.bars_candidate
        if isinstance(request, ProposeRequest) and isinstance(result, Proposal):
            is_empty = result.fault == BANK_EMPTY
            self._empty_roles |= {request.brief.role} if is_empty else set()
            self._history.add_answer(request.brief, result)
        if self.watch is not None:
            self.watch(effect)
        self._futures.pop(entry.key).resolve(result)
        if must_stop and self.phase == "search":
            self._end_phase("integrity")
        elif must_stop:  # a finalist: the others are still looked at
            self.reason = "integrity"

    def settle_answer(self, candidate: Candidate, observation: Observation) -> Observation:
        """The observation before it is journaled: a failure if its answer reports one."""
        lowest = self.evidence.account.lowest_mean if observation.refusal else None
        return settle_answer(candidate, observation, self.task.objective, lowest)

    def _count_evaluation(self, mark: str, candidate: Candidate, observation: Observation) -> None:
        """Enter an observation everywhere, and ask for the evaluations that it gives reason for."""
        if self._finale is None:
            self.evidence.observe(candidate, observation)
            self._plan_reserve()
            self._history.add_observation(candidate, observation)
        else:
            self._finale.count_evaluation(candidate, observation)
        if observation.asked:
            self.ledger.learn_cost(usage_of(observation))
        for asked in observation.asked:
            # without a report the cost is known with the prompt alone: no reply is longer
            tokens = asked.usage.output_tokens or asked.usage.uncertain_tokens
            if asked.usage.calls and tokens:
                self.ledger.learn_reply_size(asked.role, tokens / asked.usage.calls)
        self._cache.record_delivery(mark, candidate, observation)
        self._trial.count_evaluation(candidate, observation)
        self._request_own_evaluations(candidate, observation)

    def _plan_reserve(self) -> None:
        """Adapt the reserve of the final choice to the noise and the gain so far."""
        made = self.ledger.spent.evaluations
        plan = self._planner.update(made, self.ledger.expected_evaluations)
        self.ledger.set_reserve(plan.evaluations)

    def _request_own_evaluations(self, candidate: Candidate, observation: Observation) -> None:
        """Ask for evaluations that confirm the stop score, or attribute a failure."""
        if self.phase != "search":
            return
        stop_score = self._stop_score
        if stop_score is not None and stop_score.is_claimed(candidate):
            self._loop.spawn(stop_score.check_candidate(self.lab, candidate))
        if not self._trial.passed:
            return
        pair = self._control.next_pair()
        if pair and not self._budget_without_room(Usage(evaluations=len(pair))):
            for name in self.lab.rng.sample(pair, len(pair)):
                self.lab.request_evaluation(self._cache.recall_candidate(name), None)
        for look in self._attribution.looks_after(candidate, observation):
            if not self._budget_without_room(Usage(evaluations=1)):
                self.lab.request_evaluation(
                    self._cache.recall_candidate(look.candidate), self._cases.get(look.case)
                )

    def _count_without_progress(self, request: Request, usage: Usage) -> None:
        """Count effects in a row that no budget limits, or that bring nothing to evaluate."""
        self._free_in_row = self._free_in_row + 1 if usage == NOTHING else 0
        if isinstance(request, ProposeRequest):
            self._proposals_in_row += 1
        elif isinstance(request, WriteRequest):
            self._writes_in_row += 1

    def _run_until_waiting(self) -> list[Effect]:
        """Run until all coroutines wait, and admit effects as far as the budget has room."""
        while not self.is_done:
            self._loop.drain()
            if self._root.error is not None:
                raise self._root.error
            if self._has_admitted and self.phase == "search":
                self._end_phase("integrity")
            self._admit_effects()
            if self._open_barrier() or self._try_initial_program():
                continue
            if not self._settle_phase():
                break
        admitted, self._admitted = self._admitted, []
        return admitted

    def _complete_brief(self, brief: Brief) -> Brief:
        return self._history.complete_brief(brief)

    def _hold_at_barrier(self, state: object) -> Future[None] | None:
        """The future that a lane at the barrier waits for; None if no checkpoint is due."""
        lane = self._loop.running
        if lane is None or self.phase != "search":
            return None
        if not self._barrier.is_due:
            self._barrier.pass_lane(lane)
            return None
        return self._barrier.hold_lane(lane, state)

    def _open_barrier(self) -> bool:
        """Let the lanes at the barrier go on: after a checkpoint, or once their patience is over.

        True if something has to be done now: lanes go on, or a timer is asked for.
        """
        barrier = self._barrier
        if not barrier.lanes or self.phase != "search":
            return False
        under_way = self.in_flight.keys() - {barrier.timer}
        if under_way and not barrier.is_over:
            if barrier.timer:
                return False
            wait = CustomRequest(
                WAIT, {"seconds": barrier.patience_at(self.ledger.elapsed)}, barrier.completions
            )
            barrier.timer = self.issued + 1
            self._issue_request(wait).when_done(lambda _: barrier.end_wait())
            return True
        self._drop_effect(barrier.timer)
        others = self._loop.tasks - barrier.lanes.keys() - {self._root}
        shared = barrier.shared_state()
        busy = under_way or self.budget_queue.waiting or self.budget_queue.closing or others
        lanes = barrier.open(self.ledger.elapsed)
        if not busy and shared is not None and self.save is not None:
            self.save(self._state_at_rest(shared))
        for lane in [lane for lane in self._loop.tasks if lane in lanes]:
            lanes[lane].resolve(None)
        return True

    def _state_at_rest(self, strategy: object) -> SearchState:
        members = {name: getattr(self, name) for name in _STORED}
        lab = self.lab.stored_members()
        return SearchState(members, lab, self._cache.keys, strategy)

    def _drop_effect(self, key: int) -> None:
        """Abandon an effect without a cost."""
        if self.in_flight.pop(key, None) is not None:
            self._abandoned.add(key)
            self.ledger.settle(key, NOTHING)
        self.budget_queue.drop(key)
        self._futures.pop(key, None)

    def _try_initial_program(self) -> bool:
        """Ask for the evaluation of an initial program if the strategy's requests wait for one."""
        if self._trial.passed or self.phase != "search":
            return False
        look = self._trial.next_trial_look(not self._is_busy)
        if look is not None:
            self.lab.request_evaluation(look.candidate, look.case)
        return look is not None

    def _admit_effects(self) -> None:
        """Admit effects as far as the budget has room."""
        for effect in self.budget_queue.admit(self._is_held_back):
            self.in_flight[effect.key] = effect
            self._admitted.append(effect)

    def _is_held_back(self, request: Request) -> bool:
        """True for requests that wait for the trial, and those that find a bank empty again."""
        if self._trial.holds_back(request):
            return True
        if not isinstance(request, ProposeRequest) or request.brief.hypothesis:
            return False
        return request.brief.role in self._empty_roles

    def _settle_phase(self) -> bool:
        """Move to the next phase when this one can go no further; True if it moved."""
        if self.phase == "search" and self._stop_score is not None and self._stop_score.reached:
            self._end_phase("target")
        elif self.phase == "search" and self._trial.fault:
            self._end_phase(self._trial.fault)
        elif self._is_futile:
            self._end_phase("nothing_new")
        elif self._root.done and not self._is_busy:
            self._end_phase(str(self._root.result() or "strategy_done"))
        elif self.budget_queue.waiting and not self._is_busy:
            without_room = BANK_EMPTY if self._empty_roles else "budget"
            self._end_phase(self.budget_queue.closing or without_room)
        elif not self.budget_queue.waiting and not self.in_flight:
            self._end_phase("strategy_waits_for_nothing")
        else:
            return False
        return True

    @property
    def _is_futile(self) -> bool:
        """True if the requests in a row without progress show that no budget would end the run."""
        many = self._free_in_row > _FUTILE_EFFECTS or self._proposals_in_row > _FUTILE_PROPOSALS
        return many or self._writes_in_row > _FUTILE_WRITES

    @property
    def _is_busy(self) -> bool:
        """True if any effect besides a timer is in flight."""
        return any(effect.kind != WAIT for effect in self.in_flight.values())

    def _end_phase(self, reason: str) -> None:
        """Leave the current phase for the next one; effects in flight are abandoned."""
        self._abandoned.update(self.in_flight)
        self._free_in_row = self._proposals_in_row = self._writes_in_row = 0
        self.in_flight.clear()
        self.budget_queue.clear()
        self._admitted.clear()
        self._futures.clear()
        self._barrier.clear()
        self._loop.close()
        if self.phase == "search":
            self._begin_final_choice(reason)
        elif self.phase == "final":
            self.phase = "done"

    def _begin_final_choice(self, reason: str) -> None:
        """Enter the phase `final` with the evaluations that were kept back for it."""
        few = self.turn_counter.few_turns_note(
            self.budget.evaluations, self.ledger.spent.evaluations
        )
        is_search = self.budget.final is None  # else the run may be made to measure
        if few is not None and is_search and reason in ("evaluations", "budget"):
            self._journal_note("few_turns", few, ())
        self.phase, self.reason = "final", reason
        plan = self._planner.plan
        if plan.evaluations > plan.least:
            kept = {"evaluations": plan.evaluations, "of": round(plan.of)}
            self._journal_note("reserve", {**kept, "gain": plan.gain, "noise": plan.noise}, ())
        self.ledger.open_reserve()
        kind = FrontFinale if self.task.objective.metrics else Finale
        kept = self._evaluations_to_confirm(reason)
        to_tell = plan.evaluations - plan.least
        self._finale = kind(self.task, self.evidence, kept, to_tell, self.budget.seconds)
        self._root = self._loop.spawn(self._finale.run(self.lab))

    def _evaluations_to_confirm(self, reason: str) -> int:
        """Evaluations of the final choice: what is left and of use, and fits into its time."""
        kept, limit = self.ledger.affordable_evaluations, self.budget.seconds
        if math.isinf(kept):
            most = LARGEST_SHARE / (1 - LARGEST_SHARE) * self.ledger.spent.evaluations
            kept = max(UNBUDGETED, min(self._planner.plan.evaluations, most))
        elif self.budget.evaluations is not None and reason not in ("evaluations", "budget"):
            kept = min(kept, self._planner.most_at_end(self.budget.evaluations))
        if reason == "user":
            kept = min(kept, evaluations_after_stop(self.task))
        each = self.ledger.seconds_each
        if limit is not None and each:
            kept = min(kept, max(2, math.floor((limit - self.ledger.elapsed) / each)))
        return int(kept)


def prior_of(strategy: object) -> StepLaw | None:
    """Step law that a strategy's settings bring from an earlier run; None without one."""
    prior = getattr(strategy, "prior", None)
    if prior is None:
        return None
    from culmen.evidence.pedigree import StepLaw

    return StepLaw(prior.noise, prior.step, prior.drift, prior.sign)


def _result_refused_budget(result: Result | None) -> str:
    """The budget without room for an effect's questions to models, "" for any other result."""
    if isinstance(result, Observation):
        return refused_budget(result.reason) if result.status is Status.LOST else ""
    return refused_budget(result.fault) if isinstance(result, Proposal | Text) else ""


def _journal_mismatch(entry: Entry, effect: Effect | None) -> JournalMismatch:
    asked = f"{effect.kind} with mark {effect.mark}" if effect else "nothing under that key"
    return JournalMismatch(
        f"the journal holds effect {entry.key} ({entry.effect}, mark {entry.mark}), but the "
        f"strategy asked for {asked}",
        where=(
            "the strategy, its settings, the task or culmen's version differ from when the run was "
            "made"
        ),
        fix="culmen runs fork RUN  (a new run that reuses every finished result by content)",
    )


# The trial of a search: an initial program scores before anything that costs money starts.

# failed evaluations, at least, before initial programs are given up: `CHANCE_LOOKS` where
# each may be chance, fewer if all would be the same
LOOKS = 3
# evaluations that fail alike, from the first one on, of a task without an initial program
ALIKE = 10
# reasons of a search's end; `report.sentences` has the words
INITIAL_FAILS, ALWAYS_FAILS = "initial_fails", "always_fails"


class TrialLook(NamedTuple):
    """An evaluation that the engine asks for itself."""

    candidate: Candidate
    case: Case | None


class Trial:
    """Counts evaluations until the first score.

    `passed`: nothing is held back any more; `fault`: the reason to end.
    """

    def __init__(self, task: Task, wanted: bool = True) -> None:
        self._initial = {candidate.id: candidate for candidate in task.starting_candidates()}
        self._cases = task.split("train") or (None,)
        self._once, self._looks = task.is_evaluated_once, LOOKS
        if self._once:
            self._looks = min(LOOKS, len(self._cases))
        self._left = dict(self._initial)  # not evaluated yet
        self._failed = self._under_way = 0
        self._kinds: list[str] = []
        self.passed, self.fault = not wanted, ""

    def holds_back(self, request: Request) -> bool:
        """True if a request must wait until an initial program has scored.

        Requests to models and agents, and all custom effects except timers, wait.
        """
        if self.passed or not self._initial:
            return False
        if isinstance(request, CustomRequest):
            return request.kind != WAIT
        return isinstance(request, ProposeRequest | WriteRequest)

    def count_request(self, request: Request) -> None:
        """Count a request for an effect."""
        if (
            not self.passed
            and isinstance(request, EvaluateRequest)
            and request.candidate.id in self._initial
        ):
            self._left.pop(request.candidate.id, None)
            self._under_way += 1

    def count_evaluation(self, candidate: Candidate, observation: Observation) -> None:
        """Count a finished evaluation."""
        if self.passed:
            return
        if observation.ok:
            self.passed = True
        elif candidate.id in self._initial:
            self._failed, self._under_way = self._failed + 1, self._under_way - 1
            if observation.may_be_chance and not self._once:
                self._looks = CHANCE_LOOKS
        elif not self._initial:
            self._kinds.append(observation.failure_kind)
            if len(self._kinds) >= ALIKE:
                self.passed, self.fault = True, ALWAYS_FAILS if len(set(self._kinds)) == 1 else ""

    def next_trial_look(self, idle: bool) -> TrialLook | None:
        """The next evaluation to ask for.

        None while the strategy's own are under way, or if there is none (see `fault`). `idle`: the
        strategy waits for nothing else.
        """
        if self.passed or self._under_way or not self._initial or not (idle or self._failed):
            return None
        if not self._left and self._failed >= self._looks:
            self.passed, self.fault = True, INITIAL_FAILS
            return None
        candidate = next(iter(self._left.values()), next(iter(self._initial.values())))
        return TrialLook(candidate, self._cases[self._failed % len(self._cases)])
