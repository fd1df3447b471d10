"""Rate limits and outages of a provider, shared by all its callers.

An outage pauses the run instead of using up candidates. The clock is injected, so that tests need
not wait.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import msgspec

from culmen.core.errors import NoAnswer, Unavailable, UserError

WINDOW = 60.0  # seconds: providers state limits by the minute
_RECENT = 5  # requests by which a limit is told from refusals at random
_REFUSED_SECONDS = 30.0  # without a success until refusals are an outage


class AsyncClock(Protocol):
    """Monotonic seconds, and an asynchronous sleep."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The monotonic clock of this machine."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Slot(msgspec.Struct):
    """One admitted request: its time in seconds and its number of tokens."""

    time: float
    tokens: int


class RateLimiter:
    """Sliding window of 60 seconds: at most `rpm` requests and `tpm` tokens (None: no limit).

    Requests are admitted in the order of arrival, and as the provider's own headers allow. A
    request larger than `tpm` is admitted when the window is empty.
    """

    def __init__(
        self, rpm: int | None = None, tpm: int | None = None, clock: AsyncClock | None = None
    ) -> None:
        self._rpm, self._tpm, self._clock = rpm, tpm, clock or RealClock()
        self._window: deque[Slot] = deque()
        self._turn = asyncio.Lock()
        self._quota, self._running = Quota(), 0

    def note_headers(self, headers: Mapping[str, str]) -> None:
        """Learn the provider's limits from the headers of a response."""
        self._quota.note_headers(headers, self._clock.now())

    @asynccontextmanager
    async def admitted(self, tokens: int) -> AsyncIterator[Slot]:
        """Make a request of about this number of tokens inside, once it is admitted."""
        slot = await self.acquire(tokens)
        self._running += 1
        try:
            yield slot
        finally:
            self._running -= 1

    async def acquire(self, tokens: int) -> Slot:
        """Wait until a request of about this number of tokens is admitted.

        Correct `slot.tokens` once the true number is known.
        """
        async with self._turn:
            while (wait := self._seconds_to_wait(tokens)) > 0:
                await self._clock.sleep(wait)
            slot = Slot(self._clock.now(), tokens)
            self._window.append(slot)
            return slot

    def _seconds_to_wait(self, tokens: int) -> float:
        now = self._clock.now()
        while self._window and self._window[0].time <= now - WINDOW:
            self._window.popleft()
        if self._window and self._is_full(tokens):
            return max(self._window[0].time + WINDOW - now, 1e-3)
        # not longer than a second, as headers may come meanwhile
        return min(1.0, self._quota.seconds_to_wait(self._running + 1, tokens, now))

    def _is_full(self, tokens: int) -> bool:
        if self._rpm is not None and len(self._window) >= self._rpm:
            return True
        return (
            self._tpm is not None and sum(slot.tokens for slot in self._window) + tokens > self._tpm
        )


def _discard_message(_: str) -> None:
    return None


class Health:
    """Shared state of one provider.

    After `threshold` failures in a row, over all callers, the provider is down: all callers wait,
    one at a time tries again, after pauses that double from `first_pause` to `longest_pause`
    seconds. A success ends the outage. After `patience` seconds without a success every caller gets
    `Unavailable`, or `NoAnswer` if there never was one (`has_served`): the run stops and can be
    resumed. `tell` is called with one sentence at each change.

    A request refused as one too many (429) waits by itself. If most of the last requests were
    refused, all callers wait as the provider asks; refusals alone are an outage only after
    `_REFUSED_SECONDS`.
    """

    def __init__(
        self,
        name: str = "the provider",
        *,
        threshold: int = 4,
        first_pause: float = 1.0,
        longest_pause: float = 60.0,
        patience: float = 1800.0,
        clock: AsyncClock | None = None,
        tell: Callable[[str], None] = _discard_message,
        has_served: bool = False,
    ) -> None:
        self.has_served = has_served
        self._name, self._threshold, self._patience = name, threshold, patience
        self._first, self._longest = first_pause, longest_pause
        self._clock, self._tell = clock or RealClock(), tell
        self._failures, self._faults, self._since, self._reopen, self._reason = 0, 0, 0.0, 0.0, ""
        self._down = self._probing = False
        self._held_until = 0.0
        self._refused: deque[bool] = deque(maxlen=_RECENT)  # of the last requests
        self._pause = first_pause
        self._changed: asyncio.Event | None = None

    @property
    def is_down(self) -> bool:
        """True if callers are held back because of an outage."""
        return self._down

    @asynccontextmanager
    async def attempt_turn(self) -> AsyncIterator[None]:
        """Wait until an attempt makes sense, then make it inside.

        Report its result by `report_success` or `report_failure`.
        """
        await self._wait_until_ready()
        probe = self._down
        self._probing = self._probing or probe
        try:
            yield
        finally:
            if probe:
                self._probing = False
                self._wake_waiting()

    def report_success(self) -> None:
        """Report that an attempt was served, whatever the quality of the reply."""
        self.has_served = True
        if self._down:
            self._tell(f"{self._name} answers again")
        self._failures, self._faults, self._down = 0, 0, False
        self._pause, self._reopen = self._first, 0.0
        self._refused.append(False)
        self._wake_waiting()

    def report_failure(self, reason: str) -> None:
        """Report that an attempt was not served."""
        self._faults += 1
        self._refused.append(False)
        self._count_failure(reason)

    def report_refusal(self, reason: str, wait: float) -> None:
        """Report an attempt refused by a rate limit; the provider asks for `wait` seconds."""
        self._refused.append(True)
        if sum(self._refused) > _RECENT // 2:
            self._held_until = max(self._held_until, self._clock.now() + wait)
            self._refused.clear()
        self._count_failure(reason)

    def _count_failure(self, reason: str) -> None:
        now = self._clock.now()
        self._since = now if self._failures == 0 else self._since
        self._failures, self._reason = self._failures + 1, reason
        if self._failures < self._threshold:
            return
        if not self._faults and now - self._since < _REFUSED_SECONDS:
            return
        if not self._down:
            self._tell(f"{self._name} does not answer ({reason}): pausing")
        self._down = True
        self._reopen = max(self._reopen, now + self._pause)
        self._pause = min(self._longest, self._pause * 2)

    async def _wait_until_ready(self) -> None:
        while True:
            now = self._clock.now()
            if self._down and now - self._since > self._patience:
                raise self._unavailable_error()
            if (ready := max(self._reopen, self._held_until)) > now:
                await self._clock.sleep(ready - now)
            elif self._down and self._probing:
                self._changed = self._changed or asyncio.Event()
                await self._changed.wait()
            else:
                return

    def _wake_waiting(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _unavailable_error(self) -> UserError:
        kind = Unavailable if self.has_served else NoAnswer
        return kind(
            f"{self._name} has not answered for {self._patience:.0f} s ({self._reason})",
            where=self._name,
            fix="wait until the provider is back",
        )


KINDS, _FIELDS = ("requests", "tokens"), ("limit", "remaining", "reset")
_NAMES = ("x-ratelimit-{field}-{kind}", "anthropic-ratelimit-{kind}-{field}")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_WAIT = 60.0  # seconds for which headers are believed


class Allowance(NamedTuple):
    """Of `limit` requests or tokens, `remaining` at `time`; `refill` comes back each second."""

    limit: float
    remaining: float
    refill: float
    time: float

    def seconds_until(self, needed: float, now: float) -> float:
        """Seconds until this many are there, at most `LONGEST_WAIT` after the headers came."""
        missing = min(needed, self.limit) - self.remaining
        if missing <= 0:
            return 0.0
        wait = min(LONGEST_WAIT, missing / self.refill if self.refill > 0 else LONGEST_WAIT)
        return max(0.0, self.time + wait - now)


class Quota:
    """A provider's latest allowances of requests and of tokens."""

    def __init__(self) -> None:
        self._told: dict[str, Allowance] = {}

    def note_headers(self, headers: Mapping[str, str], now: float) -> None:
        """Take over what a response's headers (names in lower case) say; others are ignored."""
        self._told.update(read_allowances(headers, now))

    def seconds_to_wait(self, requests: int, tokens: int, now: float) -> float:
        """Seconds until a request of this many tokens fits; `requests` are under way with it.

        Those of them that the provider has counted already count twice, so that none is forgotten.
        Their tokens do not count: they are known too badly.
        """
        needed = {"requests": requests, "tokens": tokens}
        return max(
            (each.seconds_until(needed[kind], now) for kind, each in self._told.items()),
            default=0.0,
        )


def read_allowances(headers: Mapping[str, str], now: float) -> Iterator[tuple[str, Allowance]]:
    """The allowances in a response's headers, by kind; malformed ones are left out."""
    for kind in KINDS:
        for name in _NAMES:
            fields = (headers.get(name.format(field=f, kind=kind), "") for f in _FIELDS)
            limit, remaining, reset = fields
            try:
                most, left, seconds = float(limit), float(remaining), seconds_until_reset(reset)
            except ValueError:
                continue
            if not (0 <= left <= most < math.inf and 0 <= seconds < math.inf):
                continue
            yield kind, Allowance(most, left, (most - left) / max(seconds, 1e-3), now)


def seconds_until_reset(text: str) -> float:
    """The seconds in a duration (6m0s, 120ms), number or RFC 3339 date; raise ValueError."""
    parts = _PART.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if "T" in text:
        date = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return max(0.0, date.timestamp() - time.time())
    return float(text)
