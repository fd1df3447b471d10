"""How many candidates to ask for at once (TurboEvolve, Section 3.2): adapted per island, or fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from culmen.core.errors import UserError
from culmen.strategies.parts.settings import About, check


class Counter(Protocol):
    """The width of one island as it goes on: `k` candidates now; `record` one iteration's outcome."""

    k: int

    def record(self, updated: bool) -> None: ...


class Width(Protocol):
    """A rule for the width; every island begins a counter of its own."""

    def begin(self) -> Counter: ...


@dataclass(frozen=True)
class Fixed:
    """Always `k` candidates."""

    k: Annotated[int, About("candidates per request", least=1)] = 1

    def __post_init__(self) -> None:
        check(self)

    def begin(self) -> Counter:
        return _Constant(self.k)


@dataclass(frozen=True)
class Adaptive:
    """K in {least, least + step, ..., most}: more after a window without any update of the island's archive, fewer
    after a window in which every iteration updated it.

    The first `warmup` iterations keep `start` and are not counted; then every `window` iterations c of them are
    counted that updated the archive, and K becomes min(most, K + step) if c = 0, max(least, K - step) if c = window,
    and stays otherwise.
    """

    start: Annotated[int, About("candidates per request at first", least=1)] = 5
    least: Annotated[int, About("fewest candidates per request", least=1)] = 1
    most: Annotated[int, About("most candidates per request", least=1)] = 7
    step: Annotated[int, About("change of the width", least=1)] = 2
    window: Annotated[int, About("iterations per window, T in the paper", least=1)] = 3
    warmup: Annotated[int, About("iterations before the first window", least=0)] = 3

    def __post_init__(self) -> None:
        check(self)
        legal = range(self.least, self.most + 1, self.step)
        if self.start not in legal or self.most not in legal:
            raise UserError(
                f"a width of {self.start} cannot move in steps of {self.step} between {self.least} and {self.most}",
                where="width",
                fix="choose start and most from least, least + step, least + 2 step, ...",
            )

    def begin(self) -> Counter:
        return _Windowed(self)


class _Constant:
    def __init__(self, k: int) -> None:
        self.k = k

    def record(self, updated: bool) -> None: ...


class _Windowed:
    def __init__(self, rule: Adaptive) -> None:
        self.k, self._rule = rule.start, rule
        self._seen, self._count = -rule.warmup, 0

    def record(self, updated: bool) -> None:
        self._seen += 1
        if self._seen <= 0:
            return
        self._count += updated  # c, the sum of u over the window
        if self._seen < self._rule.window:
            return
        if self._count == 0:
            self.k = min(self._rule.most, self.k + self._rule.step)
        elif self._count == self._rule.window:
            self.k = max(self._rule.least, self.k - self._rule.step)
        self._seen = self._count = 0
