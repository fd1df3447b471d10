"""Replies a second from a server that refuses some requests.

They are held against the same server that refuses none.

    python bench/bench_refusals.py [--seconds 20] [--callers 8]

A real HTTP server on the loopback takes 0.5 s for a reply. `random`: a request in ten is refused as
too many (429, half of them with Retry-After: 1), one in twenty as a fault of the server (500),
whatever the load, as overloaded providers do. `window`: within each ten seconds half as many
requests are served as the callers could make; the others get 429 with the seconds to wait. `told`:
as many, but the allowance fills up steadily and is given in the headers of every reply, as OpenAI
does. The ideal of a limit is the limit.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.servers.openai_server import OpenAIServer

from culmen.models.call import Call, ChatMessage
from culmen.models.caller import Providers
from culmen.models.spec import ModelSpec, Price, PriceList, Provider

LATENCY = 0.5
RANDOM = {"429": 0.05, "429_after": 0.05, "500": 0.05}
WINDOW = 10.0  # seconds of a limit's window
PRICES = PriceList("m", table=Price(1.0, 1.0))


class WindowServer(OpenAIServer):
    """A server that serves `limit` requests in each window and refuses the others."""

    def __init__(self, limit: int) -> None:
        super().__init__(_answer_late)
        self.limit, self._counting = limit, threading.Lock()
        self._window, self._served = 0.0, 0

    def take(self, body, key):
        """Serve or refuse a request by its window."""
        with self._counting:
            now = time.monotonic()
            if now >= self._window + WINDOW:
                self._window, self._served = now, 0
            self._served += 1
            if self._served > self.limit:
                self.retry_after = round(self._window + WINDOW - now + 0.001, 3)
                self.fail("429_after")
            return super().take(body, key)


class BucketServer(OpenAIServer):
    """A server whose allowance of `limit` requests fills up within a window, and is reported."""

    def __init__(self, limit: int) -> None:
        super().__init__(_answer_late)
        self.limit, self._counting = limit, threading.Lock()
        self._left, self._time = float(limit), time.monotonic()

    def take(self, body, key):
        """Serve or refuse a request by the allowance left."""
        with self._counting:
            now, rate = time.monotonic(), self.limit / WINDOW
            self._left = min(self.limit, self._left + (now - self._time) * rate)
            self._time = now
            if self._left < 1:
                self.retry_after = math.ceil((1 - self._left) / rate)  # servers tell whole seconds
                self.fail("429_after")
            else:
                self._left -= 1
            self.headers = {
                "x-ratelimit-limit-requests": str(self.limit),
                "x-ratelimit-remaining-requests": str(math.floor(self._left)),
                "x-ratelimit-reset-requests": f"{1000 * (self.limit - self._left) / rate:.0f}ms",
            }
            return super().take(body, key)


def _answer_late(_body):
    time.sleep(LATENCY)
    return "hello"


async def _count_replies(server, seconds, callers):
    """Replies within these seconds, by callers that each ask again at once."""
    provider = Provider("local", base_url=server.url, key_env="KEY", concurrency=callers)
    providers = Providers(tell=lambda _: None)
    caller = providers.caller_for(ModelSpec(provider, "m"))
    count, until = 0, time.monotonic() + seconds

    async def ask(number):
        nonlocal count
        while time.monotonic() < until:
            call = Call("m", (ChatMessage("user", f"hello {number}"),), max_tokens=100)
            outcome = await caller.call(call, PRICES)
            count += not outcome.fault and time.monotonic() < until

    await asyncio.gather(*map(ask, range(callers)))
    await providers.close()
    return count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--callers", type=int, default=8)
    given = parser.parse_args()
    os.environ["KEY"] = "none"
    limit = round(given.callers / LATENCY / 2 * WINDOW)  # half of what the callers could use
    servers = {
        "none": lambda: OpenAIServer(_answer_late),
        "random": lambda: OpenAIServer(_answer_late, RANDOM),
        "window": lambda: WindowServer(limit),
        "told": lambda: BucketServer(limit),
    }
    print(f"{'refusals':<10} {'replies/s':>9} {'of ideal':>9} {'refused a reply':>16}")
    ideal = 0.0
    for name, make in servers.items():
        with make() as server:
            replies = asyncio.run(_count_replies(server, given.seconds, given.callers))
            refused = sum(n for fault, n in server.outcomes.items() if fault != "ok")
        rate = replies / given.seconds
        ideal = ideal or rate
        full = limit / given.seconds if name == "told" else 0.0  # the bucket is full at the start
        best = ideal if name in ("none", "random") else limit / WINDOW + full
        print(f"{name:<10} {rate:>9.2f} {rate / best:>9.2f} {refused / max(1, replies):>16.2f}")


if __name__ == "__main__":
    main()
