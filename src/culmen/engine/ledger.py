"""Hard budgets: reserved when an effect is admitted, settled when it completes.

Everything is counted in journal order, so a replay admits and refuses exactly the same effects.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Literal

import msgspec

from culmen.core.brief import BY_BYTES, Proposal, Text
from culmen.core.evaluation import Observation
from culmen.core.event import (
    Custom,
    Effect,
    EvaluateRequest,
    ProposeRequest,
    ReplyLimit,
    Request,
    Result,
    Vectors,
    WriteRequest,
)
from culmen.core.spread import Spread, sum_floats
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage, total_usage

_LIMITS = ("evaluations", "calls", "tokens", "dollars")

# factor of the reserve if candidates fail at times, and its largest share then
_FLAKY, _MOST = 3, 0.3
# shares of the evaluations, and evaluations: see `final_share`
_CHOICE, _WHOLE, _FEW = 0.04, 0.2, 16
# members of a front that are confirmed, and evaluations of each on a noisy task, at least
MEMBERS, TWICE = 8, 2
# share of calls, tokens and dollars kept if evaluations cost them and no share is named, at least
_MONEY = 0.1
_SECONDS = 0.1  # share of the seconds kept for the final choice if no share is named
LARGEST_SHARE = 0.4  # of any budget that is kept to tell a gain if no share is named
_THRICE = 3  # evaluations of each member that are planned without a data set
RIVALS = 4  # candidates at most that such a winner is compared with
PUSHES = 12  # further evaluations of a leader whose output is pushed, at most
LEAST_PUSHES = 6  # of which a comparison with one other output takes these
_PUSHED_FROM = 100  # evaluations of a budget that reserves pushes, at least
CHECKS = 3  # further evaluations of a winner whose score may depend on a tolerance of the evaluator

# Replies to requests that the budget does not hold otherwise: their tokens as a multiple of the
# longest so far, at least, and those tried while there was none.
_REPLY_ROOM, _SHORTEST_REPLY, _FIRST_REPLIES = 1.5, 256, (4096, 1024)

# If bytes were taken for tokens: bytes that a token has in a reply that is to be cut off, the
# number of such requests, and bytes that a token may have in the last replies.
_CUT_BYTES, _CUTS, _FEWER = 16, 2, (2, 4)

_SLACK = 1e-9  # dollars are floats; sums of reservations must not refuse the last cent by rounding


class Ledger:
    """Spent and reserved usage, against one budget.

    `final_evaluations` are kept back from the search until `open_reserve`.
    """

    def __init__(self, budget: Budget, final_evaluations: int, workers: int = 1) -> None:
        self.budget, self._workers = budget, workers
        self.spent = Usage()
        self.possibly_lost = Usage()
        self._losses = Losses()
        self.elapsed = 0.0
        self._reserved: dict[int, Usage] = {}
        self._held = Usage()
        self._reserve = final_evaluations
        self._limits = tuple(name for name in _LIMITS if getattr(budget, name) is not None)
        self.dearest = NOTHING  # highest cost of one evaluation so far, if evaluators ask models
        self.longest_replies: dict[str, float] = {}  # mean tokens of a request's replies, by role
        # requests whose reply was cut off, by role, if bytes of replies were taken for tokens
        self._cut: dict[str, int] = {}
        self._share = _MONEY if budget.final is None else budget.final
        self._paid, self._asked = NOTHING, 0  # cost of the evaluations that ask models, and number
        self._begun: dict[int, float] = {}  # seconds at which evaluations in flight were admitted
        # from there to their end: sum, recent ones, and number
        self._seconds, self._recent, self._timed = 0.0, 0.0, 0

    def set_reserve(self, evaluations: int) -> None:
        """Keep this number of evaluations back from now on.

        More are kept only as far as they are neither spent nor in flight.
        """
        room = math.inf if self.budget.evaluations is None else float(self.budget.evaluations)
        room -= (self.spent + self._held).evaluations
        self._reserve = min(evaluations, max(self._reserve, int(min(room, evaluations))))

    def learn_cost(self, cost: Usage) -> None:
        """Take the cost of one evaluation.

        It bounds the cost of the next ones and of those of the final choice.
        """
        old = self.dearest
        self._paid, self._asked = self._paid + cost, self._asked + 1
        self.dearest = Usage(
            calls=max(old.calls, cost.calls),
            input_tokens=max(old.input_tokens, int(cost.at_most("tokens"))),
            dollars=max(old.dollars, cost.at_most("dollars")),
        )

    def _learn_duration(self, seconds: float) -> None:
        self._seconds, self._timed = self._seconds + seconds, self._timed + 1
        self._recent += (seconds - self._recent) * max(0.1, 1 / self._timed)

    @property
    def seconds_each(self) -> float:
        """Seconds that one more evaluation takes, with all workers busy; 0 while unknown.

        Good candidates are often slow, so the recent ones count if they took longer; never more
        than the run took for each of its own, since some waited for a worker.
        """
        made = self.spent.evaluations
        if not (self._timed and made):
            return 0.0
        usual = max(self._seconds / self._timed, self._recent) / self._workers
        return min(usual, self.elapsed / made)

    @property
    def planned_seconds(self) -> float:
        """Seconds that the evaluations of the reserve take; 0 if a share is named.

        Two more a worker: workers begin anew, and at the end they wait for one another.
        """
        many = 0 if self.budget.final is not None else self._reserve + 2 * self._workers
        return many * self.seconds_each

    @property
    def kept_seconds(self) -> float:
        """Seconds kept for the final choice: a share, or the time that its evaluations take."""
        limit, share = self.budget.seconds or 0.0, final_seconds(self.budget)
        return min(max(share * limit, self.planned_seconds), max(share, LARGEST_SHARE) * limit)

    @property
    def expected_evaluations(self) -> float:
        """Evaluations of the whole run if it goes on like this until its first budget ends.

        Infinity without a limit.
        """
        limits = [(self.spent.at_most(name), getattr(self.budget, name)) for name in _LIMITS[1:]]
        limits.append((self.elapsed, self.budget.seconds))
        spent = max((used / limit for used, limit in limits if limit), default=0.0)
        whole = self.budget.evaluations
        most = math.inf if whole is None else float(whole)
        return min(most, self.spent.evaluations / spent) if spent else most

    def learn_reply_size(self, role: str, tokens: float) -> None:
        """Take the mean number of tokens of a request's replies; the longest by role is kept."""
        self.longest_replies[role] = max(tokens, self.longest_replies.get(role, 0.0))

    def note_unreported(self, role: str, is_cut: bool) -> None:
        """Note a request of a role without a report, or with a total alone (`short_replies`)."""
        self._cut[role] = self._cut.get(role, 0) + is_cut

    def wants_cut_reply(self, role: str) -> bool:
        """True if replies of a role that are cut off would tell more than is known of its cost."""
        return role in self._cut and self._cut[role] < _CUTS

    @property
    def has_spent_half(self) -> bool:
        """True if half of the tokens or dollars is spent."""
        limits = [(self.spent.at_most(name), self._search_limit(name)) for name in _LIMITS[2:]]
        return any(limit is not None and spent >= limit / 2 for spent, limit in limits)

    def short_replies(self, role: str, least: int = _SHORTEST_REPLY) -> tuple[int, ...]:
        """Most tokens of a role's reply if the budget holds no longer one, the largest first.

        What its longest reply so far suggests, at least `least`; a usual size before the first.
        If bytes were taken for tokens, a few come first that will be cut off, which shows how many
        bytes a token has (see `models.caller.Unreported`), and fewer tokens may do in the end.
        """
        longest = self.longest_replies.get(role)
        if longest is None:
            return _FIRST_REPLIES
        usual = max(least, math.ceil(_REPLY_ROOM * longest))
        if role not in self._cut:
            return (usual,)
        cut = (math.ceil(longest / _CUT_BYTES),) if self.wants_cut_reply(role) else ()
        return (*cut, usual, *(max(least, usual // size) for size in _FEWER))

    def open_reserve(self) -> None:
        """Release the reserve of the final choice, and the reservations of abandoned effects.

        The final choice only evaluates: if evaluations cost no money, no other budget limits it,
        even one that is exceeded.
        """
        self._reserve, self._share = 0, 0.0
        self._limits = ("evaluations",) if self.dearest == NOTHING else _LIMITS
        self._reserved.clear()
        self._begun.clear()
        self._held = Usage()

    def refusing_budget(self, estimate: Usage) -> str:
        """Name of the budget that an effect of at most this cost would exceed now, "" if it fits.

        An effect without a cost always fits, so that work can be wrapped up after a budget is
        exceeded.
        """
        return self._first_exceeded(self.spent, self._held, estimate) if estimate != NOTHING else ""

    def exhausted_budget(self, estimate: Usage) -> str:
        """Name of the budget exceeded by the effect even if all effects in flight cost nothing."""
        return self._first_exceeded(self.spent, estimate) if estimate != NOTHING else ""

    def exceeded_budget(self, *usages: Usage) -> str:
        """Name of the budget that all these would exceed together, on top of the spent usage.

        "" if they fit.
        """
        return self._first_exceeded(self.spent, *usages)

    def reserve(self, key: int, estimate: Usage) -> None:
        """Reserve the largest cost of this effect."""
        self._reserved[key] = estimate
        if estimate.evaluations:
            self._begun[key] = self.elapsed
        if estimate != NOTHING:
            self._held = self._held + estimate

    def settle(self, key: int, actual: Usage) -> None:
        """Replace a reservation by the actual cost."""
        estimate, begun = self._reserved.pop(key, None), self._begun.pop(key, None)
        if begun is not None and actual.evaluations:
            self._learn_duration(self.elapsed - begun)
        if estimate is not None and estimate != NOTHING:
            self._held = self._held - estimate
        if actual != NOTHING:
            self.spent = self.spent + actual

    def charge_loss(self, usage: Usage, group: str = "") -> None:
        """Charge the largest cost of an effect that was in flight at a crash.

        With a `group` (`losses.loss_group`) only what is likely, as far as that is known.
        """
        self.possibly_lost = self.possibly_lost + usage
        largest = msgspec.structs.replace(usage, evaluations=0)
        self.spent += self._losses.add_loss(group, largest) if group else largest

    def learn_effect_cost(self, group: str, usage: Usage) -> None:
        """Take the cost of a finished effect; lost ones of its group are charged by it."""
        if (change := self._losses.take_cost(group, usage)) != NOTHING:
            self.spent += change

    def budget_left(self, name: str) -> float:
        """The remainder of one budget, reservations counted as spent.

        Infinity without a limit.
        """
        if name == "seconds":
            limit = self.budget.seconds
            return math.inf if limit is None else max(0.0, limit - self.kept_seconds - self.elapsed)
        limit = self._search_limit(name)
        return (
            math.inf if limit is None else max(0.0, limit - (self.spent + self._held).at_most(name))
        )

    @property
    def progress(self) -> float:
        """Share of the tightest budget spent, 0..1; 0 without a budget."""
        shares = [
            self.spent.at_most(name) / limit
            for name in _LIMITS
            if (limit := self._search_limit(name))
        ]
        if self.budget.seconds:
            shares.append(self.elapsed / self.budget.seconds)
        return min(1.0, max(shares, default=0.0))

    def _search_limit(self, name: str) -> float | None:
        limit = getattr(self.budget, name)
        if limit is None:
            return None
        if name == "evaluations":
            return limit - self._reserve
        return limit - self._kept_money(name, limit) if self.dearest.at_most(name) else limit

    def _kept_money(self, name: str, limit: float) -> float:
        """Calls, tokens or dollars kept for the final choice, whose evaluations cost them."""
        kept = self._share * limit
        if self.budget.final is not None or not self._share:
            return kept
        wanted = self._reserve * self._paid.at_most(name) / max(1, self._asked)
        left = limit - (self.spent + self._held).at_most(name)
        return max(kept, min(wanted, LARGEST_SHARE * limit, left))

    @property
    def affordable_evaluations(self) -> float:
        """Number of evaluations at the highest cost so far that fit beside the reservations.

        Infinity without a limit.
        """
        costs = {name: self.dearest.at_most(name) for name in _LIMITS[1:]}
        rooms = [
            math.floor(self.budget_left(name) / cost + _SLACK)
            for name, cost in costs.items()
            if cost and math.isfinite(self.budget_left(name))
        ]
        return min([self.budget_left("evaluations"), *rooms])

    def _first_exceeded(self, *usages: Usage) -> str:
        for name in self._limits:
            limit = self._search_limit(name)
            if (
                limit is not None
                and sum_floats(usage.at_most(name) for usage in usages) > limit + _SLACK
            ):
                return name
        return ""


def final_share(budget: Budget, task: Task, exact: bool = False, flaky: bool = False) -> int:
    """Evaluations kept for the final choice: the share `budget.final`, or as the task needs.

    Without a named share, a twenty-fifth chooses among the finalists and confirms the winner beside
    the initial program, at least `_FEW` evaluations or a tenth; three times as many (at most 30 %)
    if candidates fail at times (`flaky`), to estimate how often. With a data set both of these are
    evaluated on all held-out cases if that fits into a fifth of the budget, else on a sample from a
    tenth of it. A task that is evaluated once needs little to choose by, so the whole fits sooner,
    and at most one evaluation on each case, for three finalists (without cases and verifier: two)
    and the initial program, `CHECKS` if the winner's score may depend on a tolerance, and
    `LEAST_PUSHES` to push its output. So does one without cases whose repeats never differed
    (`exact`), unless it is declared otherwise. With several objectives every member of the front is
    confirmed: up to a fifth of the evaluations.
    Budgets under ten evaluations keep none, or one if the task has a verifier.
    """
    everything = budget.evaluations
    if everything is None or everything < 10:
        return int(bool(task.evaluator.verifier) and (everything or 0) > 1)
    if budget.final is not None:
        share = math.ceil(everything * budget.final)
    else:
        share = max(math.ceil(everything * _CHOICE), min(_FEW, math.ceil(everything / 10)))
        if flaky:
            share = min(_FLAKY * share, math.ceil(everything * _MOST))
        if task.objective.metrics:
            wanted = (MEMBERS + 1) * max(_THRICE, held_out_case_count(task))
            share = max(share, min(wanted, math.ceil(everything * _WHOLE)))
        elif task.cases:
            everything_once = share + 2 * held_out_case_count(task)
            share = (
                everything_once
                if everything_once <= everything * _WHOLE
                else math.ceil(everything / 10)
            )
    measured = exact and task.deterministic is None and not task.cases and budget.final is None
    if task.objective.metrics:
        return (
            min(share, (MEMBERS + 1) * held_out_case_count(task))
            if task.is_evaluated_once or measured
            else share
        )
    if not (task.is_evaluated_once or measured):
        return share
    checks = 1 + CHECKS if may_rest_on_tolerance(task) else 0
    everything_once = 2 * held_out_case_count(task) + math.ceil(everything * _CHOICE) + checks
    if task.cases and budget.final is None and everything_once <= everything * _WHOLE:
        share = max(share, everything_once)
    finalists = 3 if task.cases or task.evaluator.verifier else 2  # a verifier may refuse the first
    is_pushed = everything >= _PUSHED_FROM and may_be_pushed(task) and budget.final is None
    pushes = LEAST_PUSHES if is_pushed else 0
    return min(share, (finalists + 1) * held_out_case_count(task) + checks) + pushes


def final_seconds(budget: Budget) -> float:
    """Share of the seconds kept for the final choice."""
    return _SECONDS if budget.final is None else budget.final


def may_rest_on_tolerance(task: Task) -> bool:
    """True if a score may depend on the evaluator's tolerance.

    The evaluator is Python with a tolerance in it, and has no exact verifier.
    """
    evaluator = task.evaluator
    return evaluator.is_python and evaluator.tolerances and not evaluator.verifier


def may_be_pushed(task: Task) -> bool:
    """True if the output of candidates may be numbers that code in their text can change.

    The output is judged by a score, and has no exact verifier.
    """
    evaluator, parts = task.evaluator, task.seeds[0] if task.seeds else {}
    by_score = evaluator.is_python or evaluator.form == "function"
    texts = [name for name in parts if "." in name and not name.endswith((".py", ".json"))]
    scored = not evaluator.verifier and not evaluator.metric and not task.objective.metrics
    return by_score and scored and task.surface.language == "python" and not texts


def held_out_case_count(task: Task) -> int:
    """Evaluations of a finalist on each held-out case (test, else val, else train) once."""
    return max(
        1,
        len(
            next((cases for split in ("test", "val", "train") if (cases := task.split(split))), ())
        ),
    )


Estimate = Callable[[Request], Usage]
"""The largest cost of performing a request."""

NOTHING, _EVALUATION = Usage(), Usage(evaluations=1)


def usage_of(result: Result | None) -> Usage:
    """Actual cost of an effect, from its result."""
    if isinstance(result, Observation):
        return _EVALUATION if result.usage == NOTHING else result.usage + _EVALUATION
    if isinstance(result, Proposal | Text | Vectors | Custom):
        return result.usage
    return NOTHING


# The one owner of the largest cost of model calls in flight, while a run is live.
#
# The ledger admits effects in journal order, by an estimate, so that a replay admits the same.
# A call may cost more in the end: a token may be as short as a byte, replies break off and are
# requested again. So no attempt is made before the largest cost of all attempts of its effect
# fits into the budget beside everything else in flight, and it is released only when the ledger has
# settled the effect.

PERFORMING: ContextVar[int] = ContextVar("performing", default=0)
"""Key of the effect that the present task performs."""


class Reservations:
    """Possible cost of effects in flight beyond the ledger's estimates. For one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._needs: dict[int, Usage] = {}
        self._line: dict[int, None] = {}  # of those that wait, in their order
        self._stuck = set[int]()  # those of `grow`
        self._changed = asyncio.Event()

    async def open_reservation(self, key: int, need: Usage) -> str:
        """Wait until this effect may cost `need`, and reserve it.

        Returns the name of the budget if it never may, else "". First come, first served. A waiting
        effect holds nothing, so the others come to an end.
        """
        self._line[key] = None
        try:
            while True:
                name = self._exceeded_budget(key, need) if next(iter(self._line)) == key else None
                if name == "":
                    break
                if name and not self._needs:
                    return name
                self._changed.clear()
                await self._changed.wait()
            self._needs[key] = need
        finally:
            del self._line[key]
            self._changed.set()
        return ""

    async def grow_reservation(self, key: int, need: Usage) -> str:
        """Wait until this effect, which may hold a reservation already, may cost `need` in all.

        Reserve that; returns the name of the budget if it never may, else "". If all holders wait
        for more, the last of them is refused: it ends, and the others go on.
        """
        self._stuck.add(key)
        try:
            while name := self._exceeded_budget(key, need):
                if self._needs.keys() <= self._stuck:
                    return name
                self._changed.clear()
                await self._changed.wait()
            self._needs[key] = need
        finally:
            self._stuck.discard(key)
        return ""

    def try_grow_reservation(self, key: int, need: Usage) -> bool:
        """True if an effect may cost `need` in all, past and future attempts included.

        `need` is then reserved, unless the effect is over and no one would release it.
        """
        if self._exceeded_budget(key, need):
            return False
        if key in self._needs:
            self._needs[key] = need
        return True

    def permit_current_effect(self, need: Usage) -> bool:
        """`enlarge` for the effect that the calling task performs."""
        return self.try_grow_reservation(PERFORMING.get(), need)

    def has_room_for(self, extra: Usage) -> bool:
        """True if there is room for a cost outside any effect; nothing is reserved for it."""
        return not self._exceeded_budget(0, extra) and not self._ledger.refusing_budget(extra)

    def release(self, key: int) -> Usage | None:
        """Release the reservation of a settled or abandoned effect; returns it, None if none."""
        need = self._needs.pop(key, None)
        if need is not None:
            self._changed.set()
        return need

    def _exceeded_budget(self, key: int, need: Usage) -> str:
        others = [usage for each, usage in self._needs.items() if each != key]
        return self._ledger.exceeded_budget(*others, need)


# The queue of effects that wait for room in the budget.


class BudgetQueue:
    """Effects in the order of issue, until the ledger has room for them.

    `waiting`: effects by key, in the order of issue. `closing`: name of the budget that ended
    admission, "" while it goes on.
    """

    def __init__(self, ledger: Ledger, estimate: Estimate) -> None:
        self.waiting: dict[int, Effect] = {}
        self.closing = ""
        self._ledger = ledger
        self._estimate = estimate
        self._fresh: list[int] = []  # of the waiting ones, the keys not yet tried
        self._refused: set[Usage] = set()  # estimates of the others
        self._shortened: dict[int, str | None] = {}  # roles of shorter requests under way, by key

    def add(self, effect: Effect) -> None:
        """Let an effect wait."""
        self.waiting[effect.key] = effect
        self._fresh.append(effect.key)

    def drop(self, key: int) -> None:
        """Forget an effect, if it waits."""
        self._shortened.pop(key, None)
        if self.waiting.pop(key, None) is not None:
            self._fresh = [each for each in self._fresh if each != key]

    def clear(self) -> None:
        """Forget all effects; admission goes on."""
        self.closing = ""
        self.waiting.clear()
        self._fresh.clear()
        self._refused.clear()
        self._shortened.clear()

    def admit(self, is_held_back: Callable[[Request], bool]) -> list[Effect]:
        """The effects that may start now, reserved in the ledger.

        Those that are held back stay where they are. Effects of equal cost are refused together.
        """
        admitted: list[Effect] = []
        if self.closing:
            return admitted
        ledger, fresh = self._ledger, self._fresh
        still = all(
            ledger.refusing_budget(cost) and not ledger.exhausted_budget(cost)
            for cost in self._refused
        )
        keys, refused = (fresh, self._refused) if still else (list(self.waiting), set[Usage]())
        self._fresh, self._refused = [], refused
        for key in keys:
            effect = self.waiting[key]
            if is_held_back(effect.request):
                self._fresh.append(key)
                continue
            effect, estimate = self._shortened_effect(effect)
            if ledger.refusing_budget(estimate):
                self.closing = ledger.exhausted_budget(estimate)
                if self.closing:  # start nothing whose result could no longer be evaluated
                    return admitted
                refused.add(estimate)
                continue
            del self.waiting[key]
            ledger.reserve(key, estimate)
            if getattr(effect.request, "limit", None) is not None:
                self._shortened[key] = _asked_role(effect.request)
            admitted.append(effect)
        return admitted

    def budget_without_room(self, need: Usage | Request) -> str:
        """Name of the budget without room for this besides the waiting effects, "" if it fits.

        A request to a model fits if a shorter one does.
        """
        waiting = total_usage(self._cost(effect.request) for effect in self.waiting.values())
        if isinstance(need, Usage):
            return self._ledger.refusing_budget(waiting + need)
        name = self._ledger.refusing_budget(waiting + self._cost(need))
        shorter = self.shorter_requests(need) if name else ()
        costs = (waiting + self._cost(request) for request in shorter)
        return name if all(self._ledger.refusing_budget(cost) for cost in costs) else ""

    def shorter_requests(self, request: Request) -> Iterator[Request]:
        """A request to a model with fewer and shorter replies, ever cheaper.

        Replies are limited to what the role's longest one so far suggests.
        """
        role = _asked_role(request)
        if role is None:
            return
        samples = request.brief.k if isinstance(request, ProposeRequest) else 1
        cost = self._cost(request)
        for tokens in self._ledger.short_replies(role):
            for share in (samples >> step for step in range(samples.bit_length())):
                limit = ReplyLimit(share, tokens)
                shorter = msgspec.structs.replace(request, limit=limit)
                if (less := self._cost(shorter)) != cost:
                    cost = less
                    yield shorter

    def learn_reply_size(self, key: int, request: Request, result: Result | None) -> None:
        """Note the tokens of a finished request's replies, their bytes if none were reported."""
        self._shortened.pop(key, None)
        role = _asked_role(request)
        if role is None or not isinstance(result, Proposal | Text) or not result.usage.calls:
            return
        size = len(result.reply.encode("utf-8", "replace"))
        if tokens := result.usage.output_tokens or size:
            self._ledger.learn_reply_size(role, tokens / result.usage.calls)
        if size and (not result.usage.output_tokens or BY_BYTES in result.faults):
            self._ledger.note_unreported(role, "truncated" in result.faults)

    def _cost(self, request: Request) -> Usage:
        """The estimate by which an effect is admitted.

        An evaluation that asks models counts at the highest cost so far.
        """
        estimate, dearest = self._estimate(request), self._ledger.dearest
        if dearest is NOTHING or not isinstance(request, EvaluateRequest):
            return estimate
        return estimate + dearest

    def _shortened_effect(self, effect: Effect) -> tuple[Effect, Usage]:
        """The effect and its estimate; with a shorter request if the budget never holds it."""
        estimate = self._cost(effect.request)
        if self._should_cut(effect.request) or self._ledger.exhausted_budget(estimate):
            for request in self.shorter_requests(effect.request):
                cost = self._cost(request)
                if not self._ledger.exhausted_budget(cost):
                    return msgspec.structs.replace(effect, request=request), cost
        return effect, estimate

    def _should_cut(self, request: Request) -> bool:
        """True if it is time for a reply that is cut off: later prompts have grown longer."""
        role, ledger = _asked_role(request), self._ledger
        if role is None or role in self._shortened.values():
            return False
        return ledger.wants_cut_reply(role) and ledger.has_spent_half


def _asked_role(request: Request) -> str | None:
    """Role of the model that a request goes to; None for other requests."""
    if isinstance(request, ProposeRequest):
        return request.brief.role
    return request.role if isinstance(request, WriteRequest) else None


# Cost of effects that a crash cut off.

Money = Literal["tokens", "dollars"]
_LOST: tuple[Money, ...] = ("tokens", "dollars")


def loss_group(effect: Effect) -> str:
    """Effects of one group cost about the same: those of a kind, and of a role.

    "" for others, whose costs tell nothing of one another.
    """
    request = effect.request
    if isinstance(request, ProposeRequest):
        return f"{effect.kind} {request.brief.role}"
    if isinstance(request, WriteRequest):
        return f"{effect.kind} {request.role}"
    return effect.kind if isinstance(request, EvaluateRequest) else ""


class Losses:
    """Likely cost of lost effects, by group; pure, so that a replay counts the same.

    A call that was lost counts as a call. Its tokens and dollars are the most that it could cost,
    or what is likely by the calls of its group that came to an end, if that is less.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[Money, Spread]] = {}
        self._lost: dict[str, Usage] = {}
        self._charged = Usage()

    def add_loss(self, group: str, largest: Usage) -> Usage:
        """Count a lost effect of at most this cost; the change of the likely cost of all."""
        self._lost[group] = self._lost.get(group, Usage()) + largest
        return self._change_of_likely()

    def take_cost(self, group: str, usage: Usage) -> Usage:
        """Take the cost of an effect that came to an end; the change of the likely cost of all."""
        if not (group and usage.calls):
            return Usage()
        known = self._known.setdefault(group, {name: Spread() for name in _LOST})
        for name, spread in known.items():
            spread.add(max(0.0, usage.at_most(name)) / usage.calls)
        return self._change_of_likely() if group in self._lost else Usage()

    def _change_of_likely(self) -> Usage:
        total = Usage()
        for group, largest in self._lost.items():
            tokens, dollars = (self._likely(group, name, largest) for name in _LOST)
            total += Usage(
                calls=largest.calls, uncertain_tokens=math.ceil(tokens), uncertain_dollars=dollars
            )
        change, self._charged = total - self._charged, total
        return change

    def _likely(self, group: str, name: Money, largest: Usage) -> float:
        known, most = self._known.get(group), largest.at_most(name)
        return most if known is None else min(most, known[name].likely_sum(largest.calls))
