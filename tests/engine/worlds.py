"""Worlds for engine tests: a tiny landscape, and scores in a given order.

On the landscape, a candidate's text is its true reward.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from culmen.core.brief import Brief, Proposal, Text
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.task import Task
from culmen.core.usage import Usage
from culmen.engine.driver import Driver
from culmen.engine.search import Search

TASK = Task("hill", seeds=({"x": "0.0"},))
EXACT = Task("hill", seeds=({"x": "0.0"},), deterministic=True)


@dataclass
class Hill:
    """Noisy rewards around the number in the text; proposals are random steps from the parent."""

    sigma: float = 0.2
    step: float = 0.1
    fail: float = 0.0
    calls: int = 0

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        self.calls += 1
        request = effect.request
        if isinstance(request, EvaluateRequest):
            return rng.expovariate(1.0), self.observe(request, rng)
        if isinstance(request, ProposeRequest):
            return 0.5, self.propose(request.brief, rng)
        return 0.1, Text("advice", usage=Usage(calls=1))

    def observe(self, request: EvaluateRequest, rng: Random) -> Observation:
        if rng.random() < self.fail:
            return Observation(request.candidate.id, Status.ERROR, seed=request.seed)
        score = float(request.candidate.text) + (rng.gauss(0, self.sigma) if self.sigma else 0.0)
        return Observation(
            request.candidate.id, Status.OK, score, seed=request.seed, trust="verified"
        )

    def propose(self, brief: Brief, rng: Random) -> Proposal:
        assert brief.parent is not None
        children = [
            Candidate.of(
                {"x": repr(float(brief.parent.text) + rng.gauss(0, self.step))}, (brief.parent.id,)
            )
        ]
        return Proposal(
            tuple(children), usage=Usage(calls=1, input_tokens=100, output_tokens=10, dollars=0.01)
        )


Turns = Mapping[str, Sequence[float | str | None]]


@dataclass
class Script:
    """Scores by text, in their order, the last one for ever.

    None: the evaluation fails; "cheats": it is rejected for its integrity. `checks` counts, by
    text, the looks for tolerances that the final choice permitted.
    """

    turns: Turns
    made: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        request = effect.request
        assert isinstance(request, EvaluateRequest)
        text, case = request.candidate.text, request.case.id if request.case else ""
        told = self.turns[text][min(self.made[text], len(self.turns[text]) - 1)]
        checks = request.checks if request.above is None else 0
        self.made[text], self.checks[text] = self.made[text] + 1, self.checks[text] + checks
        status = {None: Status.ERROR, "cheats": Status.REJECTED}.get(told, Status.OK)  # type: ignore[arg-type]
        score, reason = (None, "integrity_admits") if isinstance(told, str) else (told, "")
        usage = Usage(evaluations=checks)
        return 1.0, Observation(
            request.candidate.id, status, score, case, reason, seed=request.seed, usage=usage
        )


@dataclass(frozen=True)
class Looks:
    """Evaluates these texts so often each, on training cases, and ends."""

    texts: tuple[str, ...]
    times: int = 4

    async def search(self, lab) -> None:
        for text in self.texts:
            await lab.evaluate(Candidate.of({"x": text}), lab.minibatch(self.times))


@dataclass(frozen=True)
class Does:
    """A strategy that is one function."""

    does: Callable[[Any], Awaitable[Any]]

    async def search(self, lab) -> Any:
        return await self.does(lab)


@dataclass(frozen=True)
class Climb:
    """`lanes` climbers that never wait for one another, sharing the best."""

    lanes: int = 4
    batch: int = 2

    async def search(self, lab) -> None:
        best = (None, lab.seeds[0])

        async def lane(number: int) -> None:
            nonlocal best
            while True:
                proposal = await lab.propose(Brief(best[1]))
                rollout = await lab.evaluate(proposal.candidates[0], lab.minibatch(self.batch))
                lab.note("lane", number=number)
                if rollout.reward is not None and (best[0] is None or rollout.reward > best[0]):
                    best = (rollout.reward, rollout.candidate)

        await lab.gather(*(lane(i) for i in range(self.lanes)))


@dataclass
class Instant:
    """The hill, without taking time; `gate` runs before each effect."""

    hill: Hill = field(default_factory=Hill)
    gate: object = None

    async def perform(self, effect: Effect):
        await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate(effect)
        return self.hill.perform(effect, Random(f"{effect.mark}/{effect.key}"))[1]


def driver(journal, world, budget, strategy=None, **options):
    search = Search(
        strategy or Climb(),
        TASK,
        budget,
        1,
        options.get("workers", 1),
        trial=options.pop("trial", True),
    )
    return Driver(search, world, journal, **options)


def split(**sizes: int) -> tuple[Case, ...]:
    """As many cases of each split as `sizes` gives for it."""
    return tuple(
        Case(f"{name}{n}", n, split=name) for name, size in sizes.items() for n in range(size)
    )


def named(*texts: str) -> tuple[str, ...]:
    """Ids of the candidates with these texts."""
    return tuple(Candidate.of({"x": text}).id for text in texts)
