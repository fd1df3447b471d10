"""Cost of effects that a crash cut off.

Each may have cost as much as its requests could. But those of its kind that came to an end show
what they need: so the rest is given back.
"""

from __future__ import annotations

import math
from typing import Literal

from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, WriteRequest
from culmen.core.spread import Spread
from culmen.core.usage import Usage

Money = Literal["tokens", "dollars"]
_MONEY: tuple[Money, ...] = ("tokens", "dollars")


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
        known = self._known.setdefault(group, {name: Spread() for name in _MONEY})
        for name, spread in known.items():
            spread.add(max(0.0, usage.at_most(name)) / usage.calls)
        return self._change_of_likely() if group in self._lost else Usage()

    def _change_of_likely(self) -> Usage:
        total = Usage()
        for group, largest in self._lost.items():
            tokens, dollars = (self._likely(group, name, largest) for name in _MONEY)
            total += Usage(
                calls=largest.calls, uncertain_tokens=math.ceil(tokens), uncertain_dollars=dollars
            )
        change, self._charged = total - self._charged, total
        return change

    def _likely(self, group: str, name: Money, largest: Usage) -> float:
        known, most = self._known.get(group), largest.at_most(name)
        return most if known is None else min(most, known[name].likely_sum(largest.calls))
