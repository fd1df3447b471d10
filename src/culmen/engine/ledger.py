"""Hard budgets: reserved when an effect is admitted, settled when it completes.

Everything is counted in journal order, so a replay admits and refuses exactly the same effects.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar

import msgspec

from culmen.core.brief import Proposal, Text
from culmen.core.evaluation import Observation
from culmen.core.event import Custom, Request, Result, Vectors
from culmen.core.task import Task
from culmen.core.usage import Budget, Usage

_LIMITS = ("evaluations", "calls", "tokens", "dollars")

# factor of the reserve if candidates fail at times, and its largest share then
_FLAKY, _MOST = 3, 0.3
# shares of the evaluations, and evaluations: see `final_share`
_CHOICE, _WHOLE, _FEW = 0.04, 0.2, 16
# members of a front that are confirmed, and evaluations of each on a noisy task, at least
MEMBERS, TWICE = 8, 2
# share of calls, tokens and dollars kept if evaluations cost them and no share is named
_MONEY = 0.1
_SECONDS = 0.1  # share of the seconds kept for the final choice if no share is named
_THRICE = 3  # evaluations of each member that are planned without a data set
RIVALS = 4  # candidates at most that such a winner is compared with
CHECKS = 3  # further evaluations of a winner whose score may depend on a tolerance of the evaluator

_SLACK = 1e-9  # dollars are floats; sums of reservations must not refuse the last cent by rounding


class Ledger:
    """Spent and reserved usage, against one budget.

    `final_evaluations` are kept back from the search until `open_reserve`.
    """

    def __init__(self, budget: Budget, final_evaluations: int) -> None:
        self.budget = budget
        self.spent = Usage()
        self.possibly_lost = Usage()
        self.elapsed = 0.0
        self._reserved: dict[int, Usage] = {}
        self._held = Usage()
        self._reserve = final_evaluations
        self._limits = tuple(name for name in _LIMITS if getattr(budget, name) is not None)
        self.dearest = NOTHING  # highest cost of one evaluation so far, if evaluators ask models
        self.longest_replies: dict[str, float] = {}  # mean tokens of a request's replies, by role
        self._share = _MONEY if budget.final is None else budget.final

    def set_reserve(self, evaluations: int) -> None:
        """Keep this number of evaluations back from now on; spent ones cannot be recovered."""
        self._reserve = evaluations

    def learn_cost(self, cost: Usage) -> None:
        """Take the cost of one evaluation.

        It bounds the cost of the next ones and of those of the final choice.
        """
        old = self.dearest
        self.dearest = Usage(
            calls=max(old.calls, cost.calls),
            input_tokens=max(old.input_tokens, int(cost.at_most("tokens"))),
            dollars=max(old.dollars, cost.at_most("dollars")),
        )

    def learn_reply_size(self, role: str, tokens: float) -> None:
        """Take the mean number of tokens of a request's replies; the longest by role is kept."""
        self.longest_replies[role] = max(tokens, self.longest_replies.get(role, 0.0))

    def open_reserve(self) -> None:
        """Release the reserve of the final choice, and the reservations of abandoned effects.

        The final choice only evaluates: if evaluations cost no money, no other budget limits it,
        even one that is exceeded.
        """
        self._reserve, self._share = 0, 0.0
        self._limits = ("evaluations",) if self.dearest == NOTHING else _LIMITS
        self._reserved.clear()
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
        if estimate != NOTHING:
            self._held = self._held + estimate

    def settle(self, key: int, actual: Usage) -> None:
        """Replace a reservation by the actual cost."""
        estimate = self._reserved.pop(key, None)
        if estimate is not None and estimate != NOTHING:
            self._held = self._held - estimate
        if actual != NOTHING:
            self.spent = self.spent + actual

    def charge_loss(self, usage: Usage) -> None:
        """Charge the largest cost of an effect that was in flight at a crash."""
        self.possibly_lost = self.possibly_lost + usage
        self.spent = self.spent + msgspec.structs.replace(usage, evaluations=0)

    def budget_left(self, name: str) -> float:
        """The remainder of one budget, reservations counted as spent.

        Infinity without a limit.
        """
        if name == "seconds":
            limit = self.budget.seconds
            return (
                math.inf
                if limit is None
                else max(0.0, limit * (1 - final_seconds(self.budget)) - self.elapsed)
            )
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
        return limit * (1 - self._share) if self.dearest.at_most(name) else limit

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
                and sum([usage.at_most(name) for usage in usages]) > limit + _SLACK
            ):
                return name
        return ""


def final_share(budget: Budget, task: Task, exact: bool = False, flaky: bool = False) -> int:
    """Evaluations kept for the final choice: the share `budget.final`, or as the task needs.

    Without a named share, a twenty-fifth chooses among the finalists and confirms the winner beside
    the initial program, at least `_FEW` evaluations or a tenth; three times as many (at most 30 %)
    if candidates fail at times (`flaky`), to estimate how often. With a data set both of these are
    evaluated on all held-out cases if that fits into a fifth of the budget, else on a sample from a
    tenth of it. A deterministic task needs little to choose by, so the whole fits sooner, and at
    most one evaluation on each case, for three finalists (without cases and verifier: two) and the
    initial program, and `CHECKS` if the winner's score may depend on a tolerance; so does one
    without cases whose repeats never differed (`exact`), unless it is declared otherwise. With
    several objectives every member of the front is confirmed: up to a fifth of the evaluations.
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
            if task.deterministic or measured
            else share
        )
    if not (task.deterministic or measured):
        return share
    checks = 1 + CHECKS if may_rest_on_tolerance(task) else 0
    everything_once = 2 * held_out_case_count(task) + math.ceil(everything * _CHOICE) + checks
    if task.cases and budget.final is None and everything_once <= everything * _WHOLE:
        share = max(share, everything_once)
    finalists = 3 if task.cases or task.evaluator.verifier else 2  # a verifier may refuse the first
    return min(share, (finalists + 1) * held_out_case_count(task) + checks)


def final_seconds(budget: Budget) -> float:
    """Share of the seconds kept for the final choice."""
    return _SECONDS if budget.final is None else budget.final


def may_rest_on_tolerance(task: Task) -> bool:
    """True if a score may depend on the evaluator's tolerance.

    The evaluator is Python with a tolerance in it, and has no exact verifier.
    """
    evaluator = task.evaluator
    return evaluator.is_python and evaluator.tolerances and not evaluator.verifier


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
