"""Requests and tokens per minute, shared by everyone who talks to one provider."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from culmen.llm.clock import Clock, RealClock

WINDOW = 60.0


@dataclass
class Slot:
    """One admitted request: when, and how many tokens it counts for."""

    time: float
    tokens: int


class RateLimiter:
    """Sliding window: at no moment more than `rpm` requests or `tpm` tokens in the 60 seconds before (None: no limit).

    Requests are admitted in the order they came. A request larger than `tpm` is admitted when the window is empty.
    """

    def __init__(self, rpm: int | None = None, tpm: int | None = None, clock: Clock | None = None) -> None:
        self._rpm, self._tpm, self._clock = rpm, tpm, clock or RealClock()
        self._window: deque[Slot] = deque()
        self._turn = asyncio.Lock()

    async def acquire(self, tokens: int) -> Slot:
        """Wait for room for a request of about so many tokens; correct `slot.tokens` once the true number is known."""
        async with self._turn:
            while (wait := self._wait(tokens)) > 0:
                await self._clock.sleep(wait)
            slot = Slot(self._clock.now(), tokens)
            self._window.append(slot)
            return slot

    def _wait(self, tokens: int) -> float:
        now = self._clock.now()
        while self._window and self._window[0].time <= now - WINDOW:
            self._window.popleft()
        if not self._window or not self._full(tokens):
            return 0.0
        return max(self._window[0].time + WINDOW - now, 1e-3)

    def _full(self, tokens: int) -> bool:
        if self._rpm is not None and len(self._window) >= self._rpm:
            return True
        return self._tpm is not None and sum(slot.tokens for slot in self._window) + tokens > self._tpm
