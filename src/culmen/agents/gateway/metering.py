"""`Metering`: what the caller holds."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from culmen.agents.gateway.account import AgentAccount, GatewayLimits, MeteredUsage, Transcript
from culmen.agents.gateway.app import GatewayApp, GatewayServer, on_loopback, on_path
from culmen.agents.gateway.exchange import ProviderConnections, checked
from culmen.core.errors import UserError
from culmen.core.usage import Budget, Usage, total
from culmen.llm.spec import Key, ModelSpec, Provider

_KINDS = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}


def _always(_: Usage) -> bool:
    return True


class Metering:
    """The gateway. Use it as `async with Metering(...) as gateway`, and only from that event loop's
    thread.

    models   which model answers for the name that an agent asks for; "*" stands for every other
    name. The value is a
             `culmen.llm.spec.ModelSpec` (as `culmen.llm.roles.ModelBook(file).model(name)` gives
             it), or a `Provider`:
             then the agent chooses among its models. Addresses, keys, prices and rate limits come
             with them.
    folder   where transcripts go, `agent-NAME.jsonl` each; it is made
    port     of 127.0.0.1; 0: the system chooses; None: none
    socket   path of a Unix socket (a jail without a network reaches it by
    `culmen.agents.gateway.relay`);
             None: none
    permit   asked before each request whether so much may be spent: the most it may cost, with
    everything in flight and
             everything spent that `take` has not told yet, over all agents. It may be set later.
    limits   see `culmen.agents.gateway.account.GatewayLimits`
    hosted_tools   let agents use the tools that providers run themselves (web search and the like).
    They cost extra,
             which is not counted, and they reach the network, which a jail forbids; so they are
             removed by default.

    Raises `UserError` on entry for a port or path that cannot be had, and for a model without
    address, key or price.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec | Provider],
        folder: str | os.PathLike[str],
        *,
        port: int | None = 0,
        socket: str | os.PathLike[str] | None = None,
        permit: Callable[[Usage], bool] = _always,
        limits: GatewayLimits | None = None,
        hosted_tools: bool = False,
    ) -> None:
        self._models, self._folder = models, Path(folder)
        self._port, self._path = port, Path(socket) if socket is not None else None
        self.permit, self.limits, self.hosted_tools = (
            permit,
            limits or GatewayLimits(),
            hosted_tools,
        )
        self._accounts: dict[str, AgentAccount] = {}
        self._transcripts: dict[str, Transcript] = {}
        self._server: Any = None
        self.url = ""
        """Base address without a path, `http://127.0.0.1:PORT`; "" without a port."""

    async def __aenter__(self) -> Metering:

        pass

        self._models = checked(self._models)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.lines = ProviderConnections()
        sockets = []
        if self._port is not None:
            sockets.append(on_loopback(self._port))
            self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        try:
            if self._path is not None:
                sockets.append(on_path(self._path))
        except UserError:
            for listener in sockets:
                listener.close()
            raise
        self._server = GatewayServer(GatewayApp(self), sockets)
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for account in self._accounts.values():
            account.close()
        await self._server.stop()
        await self.lines.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def open(
        self,
        agent: str | int,
        *,
        budget: Budget | None = None,
        models: Mapping[str, ModelSpec | Provider] | None = None,
    ) -> str:
        """A token for one agent's session: give it to the agent in place of a key.

        `budget` limits calls, tokens and dollars of this session (its other fields are the caller's
        affair), `models` are open to this agent instead of the gateway's. Raises `UserError` for a
        model without address, key or price.
        """
        token = f"sk-culmen-{secrets.token_urlsafe(32)}"
        table = self._models if models is None else checked(models)
        self._accounts[token] = AgentAccount(str(agent), budget or Budget(), table)
        return token

    def env(self, token: str, kind: str, base_url: str | None = None) -> dict[str, str]:
        """The environment variables that lead an agent of this kind here: openai | anthropic |
        gemini.

        `base_url` is the address as the agent sees it, without a path (default: `url`): inside a
        jail its relay's.
        """
        base = (base_url or self.url).rstrip("/")
        if not base:
            raise UserError(
                "the gateway has no port",
                fix="give the address of the relay inside the jail as base_url",
            )
        if kind not in _KINDS:
            raise UserError(
                f"unknown kind of agent '{kind}'", fix=f"use one of {', '.join(_KINDS)}"
            )
        key, address, path = _KINDS[kind]
        return {key: token, address: base + path}

    def usage(self, token: str) -> Usage:
        """What this session has cost so far."""
        return self._accounts[token].spent

    def take(self, token: str) -> Usage:
        """What it has cost since the last time this was asked."""
        return self._accounts[token].take()

    def report(self, token: str) -> MeteredUsage:
        """Usage, refusals and failures of this session."""
        return self._accounts[token].report()

    def close(self, token: str) -> None:
        """The stop switch: requests in flight end, every later one is refused. Usage can still be
        asked for.

        What the requests that ended so have cost is counted as soon as the event loop runs: `await
        settled(token)`.
        """
        self._accounts[token].close()

    async def exhausted(self, token: str) -> str:
        """Wait until a budget does not hold this session's requests any more (calls, tokens,
        dollars; run: that of the whole run), or the session is closed (""). Some agents try again
        for minutes: better end them then."""
        account = self._accounts[token]
        await account.ended.wait()
        return account.stopped

    async def settled(self, token: str) -> Usage:
        """Wait until nothing of this session is in flight; what it has cost."""
        return await self._accounts[token].settled()

    def account(self, token: str) -> AgentAccount | None:
        """The account behind a token, None if there is none."""
        return self._accounts.get(token)

    def permitted(self, extra: Usage) -> tuple[str, bool]:
        """Why the run as a whole does not allow this ("" if it does), and whether that is final: it
        would not either if nothing in flight cost anything."""
        pending = total(account.pending() for account in self._accounts.values()) + extra
        if self.permit(pending):
            return "", False
        flight = total(account.flight for account in self._accounts.values())
        return "the run's budget does not hold the request", not self.permit(pending - flight)

    def record(self, account: AgentAccount, exchange: Any) -> None:
        """Append an exchange to its agent's transcript."""
        name = re.sub(r"[^\w.-]", "_", account.agent)[:100] or "_"
        if name not in self._transcripts:
            self._transcripts[name] = Transcript(self._folder / f"agent-{name}.jsonl", self.limits)
        facts = {"agent": account.agent, **exchange.facts}
        transcript = self._transcripts[name]
        if not transcript.write(
            facts, exchange.request, exchange.listed, exchange.reply, self._scrubber()
        ):
            account.unwritten += 1

    def _scrubber(self) -> Callable[[str], str]:
        """Takes keys and tokens out of texts."""
        entries = [
            entry for account in self._accounts.values() for entry in account.models.values()
        ]
        keys = {(e.provider if isinstance(e, ModelSpec) else e).key for e in entries}
        hidden = {*self._accounts, *(key.reveal() for key in keys if key.needed and key.found())}
        known = re.compile("|".join(map(re.escape, sorted(hidden, key=len, reverse=True))))
        lookalikes = Key()
        return lambda text: lookalikes.scrub(known.sub("[key]", text))
