"""Budget, usage and requests in flight of one agent, and the transcript of its requests."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from culmen.core.json import JsonObject
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.gateway.formats import ClippedText
from culmen.models.spec import ModelSpec, Provider

_LIMITS = ("calls", "tokens", "dollars")
_SLACK = 1e-9  # dollars are floats: sums must not refuse the last cent by rounding


class GatewayLimits(msgspec.Struct, frozen=True):
    """Limits of the gateway itself.

    seconds      for one exchange, from the request's first byte to the reply's last
    body         bytes of one request, and of one reply that comes in one piece
    in_flight    concurrent requests of one agent
    text         characters of one text in a transcript
    row          bytes of one row of a transcript; a longer row is written without texts
    transcript   bytes of one agent's transcript; beyond it rows are written without texts, and
                 beyond twice that size rows are dropped
    """

    seconds: float = 1800.0
    body: int = 16 * 2**20
    in_flight: int = 16
    text: int = 8_000
    row: int = 2 * 2**20
    transcript: int = 64 * 2**20


class MeteredUsage(msgspec.Struct, frozen=True):
    """Metered usage of one agent.

    usage       cost of the replies, including calls of unknown price
    held        most that calls of unknown price may cost beyond `usage`; counts against the budget
    refused     requests refused by the gateway, by status
    failed      requests that failed upstream, by status
    stopped     budget that no longer held a request (calls, tokens, dollars; run: the budget of the
                whole run); "" if none
    unwritten   exchanges missing from the transcript
    last_failure  why the last request got no reply from the provider, "" if it got one
    metered     False for an agent that does not use the gateway: `usage` is then its own claim
    """

    agent: str
    usage: Usage = Usage()
    held: Usage = Usage()
    refused: dict[str, int] = {}
    failed: dict[str, int] = {}
    stopped: str = ""
    unwritten: int = 0
    last_failure: str = ""
    metered: bool = True


@dataclass
class AgentAccount:
    """Account of one agent's token.

    All methods are called from the gateway's event loop; only `settled` waits.
    """

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
    last_failure: str = ""
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    jobs: set[asyncio.Future[None]] = field(default_factory=set)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def refusal(self, max_cost: Usage) -> tuple[str, bool]:
        """Reason to refuse a request that costs at most `max_cost` ("" if it fits), and finality.

        A refusal is final if the request would not fit even if nothing in flight cost anything.
        """
        for name in _LIMITS:
            limit = getattr(self.budget, name)
            spent, flight = getattr(self.spent + self.held, name), getattr(self.flight, name)
            needed = getattr(max_cost, name)
            if limit is not None and spent + flight + needed > limit + _SLACK:
                final = spent + needed > limit + _SLACK
                unit = (lambda x: f"{x:.4f}") if name == "dollars" else str
                why = (
                    f"this agent's budget of {limit:g} {name} does not hold the request: "
                    f"{unit(spent)} spent, "
                    f"{unit(flight)} in flight, it may cost {unit(needed)}"
                )
                if final:
                    self.mark_budget_spent(name)
                return why, final
        return "", False

    def mark_budget_spent(self, name: str) -> None:
        """Note that the budget `name` is spent."""
        self.stopped = self.stopped or name
        self.ended.set()

    def reserve(self, max_cost: Usage) -> None:
        """Reserve the most that a request may cost."""
        self.flight = self.flight + max_cost

    def settle(self, max_cost: Usage, cost: Usage) -> None:
        """Replace a reservation by the actual cost; the rest of an unpriced call stays held."""
        self.flight = self.flight - max_cost
        self.spent = self.spent + cost
        if cost.unpriced:
            rest = max_cost - msgspec.structs.replace(cost, unpriced=0)
            self.held = self.held + Usage(
                input_tokens=max(0, rest.tokens),
                dollars=max(0.0, rest.dollars),
                calls=max(0, rest.calls),
            )

    def pending_usage(self) -> Usage:
        """Upper bound on the cost since the last `take`: spent, held and in flight."""
        return self.spent + self.held + self.flight - self.taken

    def take(self) -> Usage:
        """Cost since the last call of this method."""
        new = self.spent - self.taken
        self.taken = self.spent
        return new

    async def settled(self) -> Usage:
        """Wait until nothing is in flight; return the total cost."""
        while self.jobs:
            await asyncio.wait(set(self.jobs))
            await asyncio.sleep(0)  # the task that awaits a job removes it from the set
        return self.spent

    def report(self) -> MeteredUsage:
        """Snapshot of the account."""
        counts = dict(self.refused), dict(self.failed)
        return MeteredUsage(
            self.agent,
            self.spent,
            self.held,
            *counts,
            self.stopped,
            self.unwritten,
            self.last_failure,
        )

    def close(self) -> None:
        """Refuse all further requests and cancel those in flight."""
        self.closed = True
        self.ended.set()
        for job in self.jobs:
            job.cancel()


# One JSON row for each exchange, in one file an agent: bounded, and without keys.


class Transcript:
    """One JSON row for each exchange of an agent, without keys and of bounded size.

    Long values that stand in an earlier row (agents send the whole conversation each time) are
    replaced by {"as_in_row": n}. Texts longer than `limits.text` are cut and their length is given.
    On a full disk rows are missing, and the agent goes on.
    """

    def __init__(self, path: Path, limits: GatewayLimits) -> None:
        self.path, self._limits, self._failed = path, limits, False
        self._seen: dict[bytes, int] = {}
        # rows of an interrupted run; never longer than the limit
        old = path.read_bytes() if path.is_file() else b""
        self._rows, self._bytes = len(old.splitlines()), len(old)
        self._torn = b"\n" if old and not old.endswith(b"\n") else b""

    def append_row(
        self,
        facts: JsonObject,
        request: JsonObject,
        listed: str,
        reply: JsonObject,
        scrub: Callable[[str], str],
    ) -> bool:
        """Append a row; False if it is not written.

        `listed` is the field of `request` whose items are compared with earlier rows one by one.
        """
        facts = self._scrubbed_object(facts, scrub, 0)
        row = {"row": self._rows, **facts}
        if self._bytes < self._limits.transcript:
            short = {
                name: self._value_or_reference(value, name == listed, scrub)
                for name, value in request.items()
            }
            row |= {"request": short, "reply": self._scrubbed_object(reply, scrub, 0)}
        line = json.dumps(row).encode() + b"\n"
        if len(line) > self._limits.row:
            line = json.dumps({"row": self._rows, **facts, "omitted": len(line)}).encode() + b"\n"
        if self._bytes + len(line) > 2 * self._limits.transcript:
            return False
        return self._append_line(self._torn + line)

    def _append_line(self, line: bytes) -> bool:
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            self._seen.clear()  # no row may refer to a missing row
            if not self._failed:
                logging.getLogger("culmen.extensions.agents.gateway").warning(
                    "transcript not written: %s", error
                )
            self._failed = True
            return False
        self._bytes, self._rows, self._torn = self._bytes + len(line), self._rows + 1, b""
        return True

    def _value_or_reference(
        self, value: object, listed: bool, scrub: Callable[[str], str]
    ) -> object:
        if listed and isinstance(value, list):
            return [self._value_or_reference(item, False, scrub) for item in value]
        text = json.dumps(value)
        # characters of JSON from which a repeated value is written as a reference
        if len(text) < 200:
            return self._scrubbed_value(value, scrub, 0)
        mark = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if mark in self._seen:
            return {"as_in_row": self._seen[mark]}
        self._seen[mark] = self._rows
        return self._scrubbed_value(value, scrub, 0)

    def _scrubbed_object(
        self, value: JsonObject, scrub: Callable[[str], str], depth: int
    ) -> JsonObject:
        return {
            scrub(name): self._scrubbed_value(item, scrub, depth + 1)
            for name, item in value.items()
        }

    def _scrubbed_value(self, value: object, scrub: Callable[[str], str], depth: int) -> object:
        if isinstance(value, str | ClippedText):
            text = scrub(str(value))
            limit, length = self._limits.text, max(len(text), len(value))
            return text if length <= limit else f"{text[:limit]}… [{length} characters in all]"
        if depth > 40:  # levels of nested JSON
            return "…"
        if isinstance(value, dict):
            return self._scrubbed_object(value, scrub, depth)
        if isinstance(value, list):
            return [self._scrubbed_value(item, scrub, depth + 1) for item in value]
        return value
