"""Turns of several searches over one budget, given by their rates of success."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Rollout
from culmen.core.ports import Lab, MinimalStrategy, Promise
from culmen.core.spread import sum_floats
from culmen.core.usage import Usage

T = TypeVar("T")
_PRIOR = 0.5  # successes that the prior is worth
_FIT = 2.0  # turns that one request of an arm may take; with others it does not fit the budget
_STEPS = 4  # levels of coroutines that a result passes through until its arm asks for more
_UNLIMITED = 1_000.0  # evaluations that turns are shares of if no budget is limited
_SESSION = 5.0  # turns that one agent may use
SeedLook = tuple[str, tuple[str, ...], int]  # initial program, cases, repeats
_BUDGETS = ("evaluations", "calls", "tokens", "dollars", "seconds")


@dataclass(frozen=True)
class TurnRules:
    """Settings of turns; see `Portfolio`."""

    turn: float
    memory: float
    doubt: float
    trials: float
    patience: int


@dataclass(eq=False)
class Arm:
    """One search; costs are in shares of the budget.

    balance   what is left of its turns
    spent     its cost so far; `cost` is the same, faded
    last      the run's cost when it made the latest ancestor of the leader
    asks      the largest cost of one of its requests, as far as it is known beforehand
    seconds   those of its requests so far
    sessions  for each of its agents at work: when it began, and the seconds charged until then
    held      what was left of its turn when the first of these began
    """

    name: str
    strategy: MinimalStrategy
    role: str
    balance: float = 0.0
    cost: float = 0.0
    spent: float = 0.0
    last: float = 0.0
    asks: float = 0.0
    seconds: float = 0.0
    sessions: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    held: float = 0.0
    parked: Promise[None] | None = None  # until no other arm can draw from a bank
    waiting: list[Promise[None]] = field(default_factory=list[Promise[None]])
    handed: set[str] = field(default_factory=set[str])
    looked: set[str] = field(default_factory=set[str])  # initial programs that it evaluated
    persons: int = 0  # number of a person's candidates that it was handed


class TurnTaking:
    """Decides whose requests are made, and what each arm has gained."""

    def __init__(self, rules: TurnRules, lab: Lab, arms: Sequence[Arm]) -> None:
        self.rules, self.lab, self.arms = rules, lab, arms
        self.running = 0
        self.spent = 0.0
        self.makers: dict[str, tuple[Arm, float]] = {}
        self.leader, self.successes = "", dict.fromkeys(arms, 0.0)
        self.persons: list[Candidate] = []
        self.seeds: dict[SeedLook, tuple[Promise[None], list[Rollout]]] = {}
        left = {name: lab.left(name) for name in _BUDGETS}
        limits = {name: most for name, most in left.items() if 0 < most < math.inf}
        self.budgets = limits or {"evaluations": _UNLIMITED}

    def end_arm(self, arm: Arm) -> None:
        """Note that an arm makes no more requests."""
        arm.balance = -math.inf
        self._release_parked()
        self.give_turn()

    async def wait_for_others(self, arm: Arm) -> None:
        """Wait, after the arm's bank is empty, until those of all other arms are, or they ended."""
        arm.parked, arm.balance = self.lab.promise(), min(arm.balance, 0.0)
        self._release_parked()
        self.give_turn()
        await arm.parked

    def _release_parked(self) -> None:
        going = [arm for arm in self.arms if arm.balance > -math.inf]
        parked = [arm.parked for arm in going if arm.parked is not None]
        if len(parked) == len(going):
            for promise in parked:
                promise.resolve(None)

    async def evaluate_seed(
        self, arm: Arm, key: SeedLook, asked: Coroutine[object, None, Rollout], count: int
    ) -> tuple[Rollout, bool]:
        """The evaluation of an initial program, made for the first arm that asks for it.

        True if it was made for this arm.
        """
        with contextlib.closing(asked):
            if key not in self.seeds:
                self.seeds[key] = self.lab.promise(), []
                promise, found = self.seeds[key]
                found.append((await self.perform(arm, asked, count))[0])
                promise.resolve(None)
                return found[0], True
            promise, found = self.seeds[key]
            await promise
            return found[0], False

    async def perform(
        self, arm: Arm, request: Coroutine[object, None, T], evaluations: int = 0
    ) -> tuple[T, float]:
        """The result of a request of this arm, made once it has a turn, and the seconds it took."""
        with contextlib.closing(request):
            asks = evaluations / self.budgets.get("evaluations", math.inf)
            arm.asks = max(arm.asks, asks)
            if arm.balance <= 0.0 and not arm.sessions:
                promise = self.lab.promise()
                arm.waiting.append(promise)
                self.give_turn()
                await promise
            began = self.lab.elapsed
            self.running += 1
            try:
                result = await request
            finally:
                self.running -= 1
            if not self._has_turn() and any(each.waiting for each in self.arms):
                self.lab.spawn(self._give_turn_later())
            return result, max(0.0, self.lab.elapsed - began)

    def begin_session(self, arm: Arm) -> None:
        """Note that an agent of this arm is at work; it counts as one of the workers."""
        arm.sessions.append((self.lab.elapsed, arm.seconds))
        arm.held += max(0.0, arm.balance)
        arm.balance = min(0.0, arm.balance)
        self.running += 1
        self.give_turn()

    def end_session(self, arm: Arm) -> None:
        """Note that an agent has ended; its time without that of its experiments is charged."""
        began, charged = arm.sessions.pop(0)
        own = self.lab.elapsed - began - (arm.seconds - charged)
        self.charge(arm, Usage(), max(0.0, own))
        self.running -= 1
        if not arm.sessions:
            arm.balance, arm.held = arm.balance + arm.held, 0.0
        self.give_turn()

    def session_limit(self, budget: str) -> float:
        """Most of a budget that one agent may use."""
        return _SESSION * self.rules.turn * self.budgets.get(budget, math.inf)

    async def _give_turn_later(self) -> None:
        """Give the next turn once the arm whose result came has gone on, and may wait itself."""
        for _ in range(_STEPS):
            await self.lab.spawn(_pass_step())
        self.give_turn()

    def _has_turn(self) -> bool:
        return any(arm.balance > 0.0 for arm in self.arms)

    def give_turn(self) -> None:
        """Give the next turn if no arm has one and a worker is free."""
        waiting = [arm for arm in self.arms if arm.waiting]
        if self.running >= self.lab.workers or self._has_turn():
            return
        self.count_successes()
        while waiting and all(arm.balance <= 0.0 for arm in waiting):
            fit = [arm for arm in waiting if arm.asks <= _FIT * self.rules.turn] or waiting
            owed = [arm for arm in fit if self.is_owed_trial(arm)]
            arm = owed[0] if owed else max(fit, key=self.draw_rate)
            arm.balance += self.rules.turn
            self.lab.note("turn", arm=arm.name, successes=self.successes[arm], cost=arm.cost)
        for arm in waiting:
            if arm.balance > 0.0:
                promises, arm.waiting = arm.waiting, []
                for promise in promises:
                    promise.resolve(None)

    def is_owed_trial(self, arm: Arm) -> bool:
        """True if the arm had less of the budget so far than every arm is to have."""
        return arm.spent < self.rules.trials * self.spent / len(self.arms)

    def draw_rate(self, arm: Arm) -> float:
        """A draw of the arm's rate of successes by cost.

        The prior is worth half a success: at the run's usual rate for the first arm's strategy, at
        a part of it for the others.
        """
        tried = sum_floats(each.cost for each in self.arms) + self.rules.turn
        usual = (sum_floats(self.successes.values()) + 1.0) / tried
        # the same strategy with another model is as promising as the first
        usual *= 1.0 if arm.strategy == self.arms[0].strategy else self.rules.doubt
        shape = self.successes[arm] + _PRIOR
        return self.lab.rng.gammavariate(shape, 1.0 / (arm.cost + _PRIOR / usual))

    def charge(self, arm: Arm, usage: Usage, seconds: float) -> None:
        """Charge an arm for a finished request that took `seconds` of all workers."""
        amounts = {
            "evaluations": usage.evaluations,
            "calls": usage.calls,
            "tokens": usage.input_tokens + usage.output_tokens,
            "dollars": usage.dollars,
            "seconds": seconds / self.lab.workers,
        }
        share = max(amounts[name] / most for name, most in self.budgets.items())
        self.spent += share
        arm.seconds += seconds
        for each in self.arms:
            each.cost *= math.exp(-share / self.rules.memory)
        arm.cost += share
        arm.spent += share
        arm.balance -= share

    def enter_candidates(self, arm: Arm, candidates: Iterable[Candidate]) -> None:
        """Enter which arm made these, and when."""
        for candidate in candidates:
            self.makers.setdefault(candidate.id, (arm, self.spent))

    def count_successes(self) -> None:
        """Count what each arm contributed to the leader: its ancestors, and itself.

        A candidate that led by luck is no ancestor of later leaders.
        """
        self.leader = self.lab.evidence.leader() or ""
        self.successes = dict.fromkeys(self.arms, 0.0)
        id, line = self.leader, set[str]()
        while id and id not in line:
            line.add(id)
            if id in self.makers:
                arm, when = self.makers[id]
                self.successes[arm] += math.exp((when - self.spent) / self.rules.memory)
                arm.last = max(arm.last, when)
            id = self._parent_of(id)

    def _parent_of(self, id: str) -> str:
        """The first parent of a candidate; "" for an initial program, and for another run's."""
        try:
            return next(iter(self.lab.find(id).parents), "")
        except KeyError:
            return ""

    def is_stalled(self, arm: Arm) -> bool:
        """True if the arm's last successes are long ago."""
        return self.spent - arm.last > self.rules.patience * self.rules.turn


async def _pass_step() -> None:
    """Let the other coroutines take a step."""
