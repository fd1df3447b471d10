"""The one owner of what model calls in flight may cost, while a run is live.

The ledger admits effects in journal order, by an estimate, so that a replay admits the same. But what a call costs in
the end may be more: a token may be as short as a byte, replies break off and are asked for again. So no attempt is made
before what all attempts of its effect may have cost fits into the budget beside everything else in flight, and it is
released only when the ledger has settled the effect.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from culmen.core.usage import Usage
from culmen.engine.ledger import Ledger

PERFORMING: ContextVar[int] = ContextVar("performing", default=0)
"""Key of the effect that the present task performs."""


class Reservations:
    """What may be spent beyond what the ledger knows. For one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._needs: dict[int, Usage] = {}
        self._line: dict[int, None] = {}  # of those that wait, in their order
        self._stuck = set[int]()  # those of `grow`
        self._changed = asyncio.Event()

    async def open(self, key: int, need: Usage) -> str:
        """Wait until this effect may cost so much, and reserve it; name of the budget if it never may, else "".

        Those who came first go first. Whoever waits holds nothing, so those who do not wait come to an end.
        """
        self._line[key] = None
        try:
            while True:
                name = self._refusal(key, need) if next(iter(self._line)) == key else None
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

    async def grow(self, key: int, need: Usage) -> str:
        """Wait until this effect, which may hold something already, may cost so much in all, and reserve it; name of
        the budget if it never may, else "".

        Where all that hold something wait for more, the last of them is refused: it ends, and the others go on.
        """
        self._stuck.add(key)
        try:
            while name := self._refusal(key, need):
                if self._needs.keys() <= self._stuck:
                    return name
                self._changed.clear()
                await self._changed.wait()
            self._needs[key] = need
        finally:
            self._stuck.discard(key)
        return ""

    def enlarge(self, key: int, need: Usage) -> bool:
        """Whether an effect may cost so much in all, attempts made and to be made; then that is reserved."""
        if self._refusal(key, need):
            return False
        self._needs[key] = need
        return True

    def permit(self, need: Usage) -> bool:
        """`enlarge` for the effect that the calling task performs."""
        return self.enlarge(PERFORMING.get(), need)

    def fits(self, extra: Usage) -> bool:
        """Whether there is room for something that is no effect of its own; nothing is reserved for it."""
        return not self._refusal(0, extra) and not self._ledger.refusal(extra)

    def release(self, key: int) -> Usage | None:
        """The ledger has settled this effect, or it was abandoned: what was reserved for it, None if nothing was."""
        need = self._needs.pop(key, None)
        if need is not None:
            self._changed.set()
        return need

    def _refusal(self, key: int, need: Usage) -> str:
        others = [usage for each, usage in self._needs.items() if each != key]
        return self._ledger.over(*others, need)
