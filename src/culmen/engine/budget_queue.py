"""The queue of a search's effects that wait for room in the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from culmen.core.event import (
    Effect,
    EvaluateRequest,
    ProposeRequest,
    ReplyLimit,
    Request,
    WriteRequest,
)
from culmen.core.usage import Usage, total_usage
from culmen.engine.ledger import NOTHING, Estimate, Ledger

# Replies to requests that the budget does not hold otherwise: their tokens as a multiple of the
# longest so far, at least, and those tried while there was none.
_REPLY_ROOM, _SHORTEST_REPLY, _FIRST_REPLIES = 1.5, 256, (4096, 1024)


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

    def add(self, effect: Effect) -> None:
        """Let an effect wait."""
        self.waiting[effect.key] = effect
        self._fresh.append(effect.key)

    def drop(self, key: int) -> None:
        """Forget an effect, if it waits."""
        if self.waiting.pop(key, None) is not None:
            self._fresh = [each for each in self._fresh if each != key]

    def clear(self) -> None:
        """Forget all effects; admission goes on."""
        self.closing = ""
        self.waiting.clear()
        self._fresh.clear()
        self._refused.clear()

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
        longest = self._ledger.longest_replies.get(role)
        sizes = _FIRST_REPLIES
        if longest is not None:
            sizes = (max(_SHORTEST_REPLY, math.ceil(_REPLY_ROOM * longest)),)
        samples = request.brief.k if isinstance(request, ProposeRequest) else 1
        cost = self._cost(request)
        for tokens in sizes:
            for share in (samples >> step for step in range(samples.bit_length())):
                limit = ReplyLimit(share, tokens)
                shorter = msgspec.structs.replace(request, limit=limit)
                if (less := self._cost(shorter)) != cost:
                    cost = less
                    yield shorter

    def learn_reply_size(self, request: Request, usage: Usage) -> None:
        """Note the tokens of a finished request's replies."""
        role = _asked_role(request)
        if role is not None and usage.calls and usage.output_tokens:
            self._ledger.learn_reply_size(role, usage.output_tokens / usage.calls)

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
        if self._ledger.exhausted_budget(estimate):
            for request in self.shorter_requests(effect.request):
                cost = self._cost(request)
                if not self._ledger.exhausted_budget(cost):
                    return msgspec.structs.replace(effect, request=request), cost
        return effect, estimate


def _asked_role(request: Request) -> str | None:
    """Role of the model that a request goes to; None for other requests."""
    if isinstance(request, ProposeRequest):
        return request.brief.role
    return request.role if isinstance(request, WriteRequest) else None
