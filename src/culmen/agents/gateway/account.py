"""What one agent may spend, has spent and has in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from culmen.core.usage import Budget, Usage
from culmen.llm.spec import ModelSpec, Provider

_LIMITS = ("calls", "tokens", "dollars")
_SLACK = 1e-9  # dollars are floats: sums must not refuse the last cent by rounding


class Limits(msgspec.Struct, frozen=True):
    """Bounds of the gateway itself.

    seconds      for one exchange, from the request's first byte to the reply's last
    body         bytes of one request, and of one reply that comes in one piece
    in_flight    requests of one agent at the same time
    text         characters of one text in a transcript
    row          bytes of one row of a transcript; a longer one comes without texts
    transcript   bytes of one agent's transcript; after that, rows come without texts, after twice that none
    """

    seconds: float = 1800.0
    body: int = 16 * 2**20
    in_flight: int = 16
    text: int = 8_000
    row: int = 2 * 2**20
    transcript: int = 64 * 2**20


class Metered(msgspec.Struct, frozen=True):
    """What the gateway knows of one agent.

    `usage` is what its replies cost, calls of unknown price among them; `held` what those may have cost at most beyond
    it (counted against the budget); `refused` and `failed` count requests by the status they got, from us and from
    upstream; `stopped` says which budget did not hold a request any more (calls, tokens, dollars; run: that of the
    whole run), "" while all did. `unwritten` exchanges are not in the transcript. `metered` is False for an agent that
    does not use the gateway: its usage is then its own word.
    """

    agent: str
    usage: Usage = Usage()
    held: Usage = Usage()
    refused: dict[str, int] = {}
    failed: dict[str, int] = {}
    stopped: str = ""
    unwritten: int = 0
    metered: bool = True


@dataclass
class Account:
    """One agent's token. All methods are called from the gateway's event loop; none of them waits."""

    agent: str
    budget: Budget
    models: Mapping[str, ModelSpec | Provider]
    spent: Usage = field(default_factory=Usage)
    held: Usage = field(default_factory=Usage)
    flight: Usage = field(default_factory=Usage)
    taken: Usage = field(default_factory=Usage)
    closed: bool = False
    stopped: str = ""
    unwritten: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    jobs: set[asyncio.Future[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def refusal(self, most: Usage) -> tuple[str, bool]:
        """Why a request that costs at most this is not made ("" if it fits the budget), and whether that is final: it
        would not fit either if nothing in flight cost anything."""
        for name in _LIMITS:
            limit = getattr(self.budget, name)
            spent, flight = getattr(self.spent + self.held, name), getattr(self.flight, name)
            need = getattr(most, name)
            if limit is not None and spent + flight + need > limit + _SLACK:
                final = spent + need > limit + _SLACK
                unit = (lambda x: f"{x:.4f}") if name == "dollars" else str
                why = (
                    f"this agent's budget of {limit:g} {name} does not hold the request: {unit(spent)} spent, "
                    f"{unit(flight)} in flight, it may cost {unit(need)}"
                )
                if final:
                    self.stop(name)
                return why, final
        return "", False

    def stop(self, name: str) -> None:
        """Note that a budget is spent."""
        self.stopped = self.stopped or name
        self.ended.set()

    def reserve(self, most: Usage) -> None:
        """Hold back the most a request may cost."""
        self.flight = self.flight + most

    def settle(self, most: Usage, cost: Usage) -> None:
        """Replace a reservation by what it did cost; of an unpriced call the rest stays held."""
        self.flight = self.flight - most
        self.spent = self.spent + cost
        if cost.unpriced:
            rest = most - msgspec.structs.replace(cost, unpriced=0)
            self.held = self.held + Usage(
                input_tokens=max(0, rest.tokens), dollars=max(0.0, rest.dollars), calls=max(0, rest.calls)
            )

    def pending(self) -> Usage:
        """What nobody has been told of yet, at most: in flight, held and spent since the last `take`."""
        return self.spent + self.held + self.flight - self.taken

    def take(self) -> Usage:
        """What was spent since the last time."""
        new = self.spent - self.taken
        self.taken = self.spent
        return new

    async def settled(self) -> Usage:
        """Wait until nothing is in flight; what was spent."""
        while self.jobs:
            await asyncio.wait(set(self.jobs))
            await asyncio.sleep(0)  # the one who waits for a job takes it off the list
        return self.spent

    def report(self) -> Metered:
        """Everything, as a value."""
        counts = dict(self.refused), dict(self.failed)
        return Metered(self.agent, self.spent, self.held, *counts, self.stopped, self.unwritten)

    def close(self) -> None:
        """Refuse everything from now on and end what is in flight."""
        self.closed = True
        self.ended.set()
        for job in self.jobs:
            job.cancel()
