"""Number of candidates per request (TurboEvolve, 3.2), and repeated requests (3.1).

A request is repeated if its reply holds too few candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.ports import Lab
from culmen.strategies.settings import About, check


class WidthCounter(Protocol):
    """Current width of one island: `k` candidates per request.

    `record` takes the outcome of an iteration: True if it took a cell of the island's archive, and
    True if it replaced a cell's occupant.
    """

    k: int

    def record_iteration(self, took: bool, replaced: bool) -> None: ...


class Width(Protocol):
    """A rule for the width; every island begins a counter of its own."""

    def begin_counter(self) -> WidthCounter: ...


@dataclass(frozen=True)
class Fixed:
    """Always `k` candidates."""

    k: Annotated[int, About("candidates per request", least=1)] = 1

    def __post_init__(self) -> None:
        check(self)

    def begin_counter(self) -> WidthCounter:
        return _Constant(self.k)


@dataclass(frozen=True)
class Adaptive:
    """K in {least, least + step, ..., most}, adapted to updates of the island's archive.

    K grows after a window without any update and falls after a window in which every iteration
    updated the archive. The first `warmup` iterations keep `start` and are not counted; then c is
    the number of iterations in each window of `window` that updated the archive, and K becomes
    min(most, K + step) if c = 0, max(least, K - step) if c = window, and stays otherwise.
    "Replacement" in the paper is taken widely, as any cell taken; strictly with `new_cells` false.
    """

    start: Annotated[int, About("candidates per request at first", least=1)] = 5
    least: Annotated[int, About("fewest candidates per request", least=1)] = 1
    most: Annotated[int, About("most candidates per request", least=1)] = 7
    step: Annotated[int, About("change of the width", least=1)] = 2
    window: Annotated[int, About("iterations per window, T in the paper", least=1)] = 3
    warmup: Annotated[int, About("iterations before the first window", least=0)] = 3
    new_cells: Annotated[
        bool, About("empty cells that are taken count as updates; false: replaced occupants alone")
    ] = True

    def __post_init__(self) -> None:
        check(self)
        legal = range(self.least, self.most + 1, self.step)
        if self.start not in legal or self.most not in legal:
            raise UserError(
                f"a width of {self.start} cannot move in steps of {self.step} between "
                f"{self.least} and {self.most}",
                where="width",
                fix="choose start and most from least, least + step, least + 2 step, ...",
            )

    def begin_counter(self) -> WidthCounter:
        return _Windowed(self)


class _Constant:
    def __init__(self, k: int) -> None:
        self.k = k

    def record_iteration(self, took: bool, replaced: bool) -> None: ...


class _Windowed:
    def __init__(self, rule: Adaptive) -> None:
        self.k, self._rule = rule.start, rule
        self._seen, self._count = -rule.warmup, 0

    def record_iteration(self, took: bool, replaced: bool) -> None:
        self._seen += 1
        if self._seen <= 0:
            return
        self._count += took if self._rule.new_cells else replaced  # c, the sum of u over the window
        if self._seen < self._rule.window:
            return
        if self._count == 0:
            self.k = min(self._rule.most, self.k + self._rule.step)
        elif self._count == self._rule.window:
            self.k = max(self._rule.least, self.k - self._rule.step)
        self._seen = self._count = 0


@dataclass(frozen=True)
class Requery:
    """Repeated requests if a reply holds too few candidates; the first K are taken.

    Replies with fewer candidates are accepted, but below `minimum` (or below K, if K is smaller)
    the same request is repeated, up to `times`, and its candidates are added.
    """

    minimum: Annotated[int, About("candidates below which a round asks again", least=0)] = 2
    times: Annotated[int, About("repeated requests in a round at most", least=0)] = 1

    def __post_init__(self) -> None:
        check(self)

    async def propose_with_retries(
        self, lab: Lab, brief: Brief
    ) -> tuple[list[Candidate], list[str]]:
        """The candidates, each content once, and the faults of requests."""
        candidates: dict[str, Candidate] = {}
        faults: list[str] = []
        for _ in range(1 + self.times):
            answer = await lab.propose(msgspec.structs.replace(brief, k=brief.k - len(candidates)))
            faults += [answer.fault] if answer.fault else []
            for candidate in answer.candidates:
                candidates.setdefault(candidate.id, candidate)
            if len(candidates) >= min(self.minimum, brief.k):
                break
        return list(candidates.values())[: brief.k], faults
