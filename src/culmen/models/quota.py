"""A provider's limits, as the headers of its responses tell them.

OpenAI and those who follow it send `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, the
reset as a duration such as 6m0s or 120ms; Anthropic sends
`anthropic-ratelimit-{requests,tokens}-{limit,remaining,reset}`, the reset as a date. Allowances
fill up steadily, and the reset is when they are full again.
"""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

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
