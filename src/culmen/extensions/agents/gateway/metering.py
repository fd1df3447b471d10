"""The metering gateway that a caller opens: sessions of agents, their usage and limits."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from culmen.core.errors import UserError
from culmen.core.usage import Budget, Usage, total_usage
from culmen.extensions.agents.gateway.account import (
    AgentAccount,
    GatewayLimits,
    MeteredUsage,
    Transcript,
)
from culmen.extensions.agents.gateway.app import (
    GatewayApp,
    GatewayServer,
    listen_on_loopback,
    listen_on_path,
)
from culmen.extensions.agents.gateway.exchange import Exchange, ProviderConnections, checked_models
from culmen.models.spec import Key, ModelSpec, Provider

_KINDS = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}


def _permit_all(_: Usage) -> bool:
    return True


class Metering:
    """The gateway, an asynchronous context manager for one event loop's thread.

    models         the model for each name that an agent requests; "*" stands for every other name.
                   The value is a `culmen.models.spec.ModelSpec`, as
                   `culmen.models.roles.ModelBook(file).model(name)` returns it, or a `Provider`:
                   the agent then chooses among its models. Addresses, keys, prices and rate limits
                   are those of the value.
    folder         folder of the transcripts, one `agent-NAME.jsonl` each; it is created
    port           port of 127.0.0.1; 0: chosen by the system; None: no port
    socket         path of a Unix socket, or None; a jail without a network reaches it by
                   `culmen.extensions.agents.gateway.relay`
    permit         called before each request with the most that may be pending over all agents:
                   this request, requests in flight, and cost that `take` has not returned yet.
                   False refuses the request. It may be set later.
    limits         see `culmen.extensions.agents.gateway.account.GatewayLimits`

    Tools that providers run themselves (web search and the like) are taken out of requests: they
    cost extra, which is not counted, and they reach the network, which a jail forbids.

    Raises on entry `OSError` for a port or path that is not available, and `UserError` for a model
    without an address, key or price.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSpec | Provider],
        folder: str | os.PathLike[str],
        *,
        port: int | None = 0,
        socket: str | os.PathLike[str] | None = None,
        permit: Callable[[Usage], bool] = _permit_all,
        limits: GatewayLimits | None = None,
    ) -> None:
        self._models, self._folder = models, Path(folder)
        self._port, self._path = port, Path(socket) if socket is not None else None
        self.permit, self.limits = permit, limits or GatewayLimits()
        self._accounts: dict[str, AgentAccount] = {}
        self._transcripts: dict[str, Transcript] = {}
        self._server: GatewayServer | None = None
        self.url = ""
        """Base address without a path, `http://127.0.0.1:PORT`; "" without a port."""

    async def __aenter__(self) -> Metering:
        self._models = checked_models(self._models)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.connections = ProviderConnections()
        sockets = []
        if self._port is not None:
            sockets.append(listen_on_loopback(self._port))
            self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        if self._path is not None:
            sockets.append(listen_on_path(self._path))
        self._server = GatewayServer(GatewayApp(self), sockets)
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for account in self._accounts.values():
            account.close()
        if self._server is not None:
            await self._server.stop()
        await self.connections.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def open(
        self,
        agent: str | int,
        *,
        budget: Budget | None = None,
        models: Mapping[str, ModelSpec | Provider] | None = None,
    ) -> str:
        """A token for one agent's session, to be given to the agent in place of a key.

        `budget` limits calls, tokens and dollars of this session; its other fields are not enforced
        here. `models` are open to this agent instead of the gateway's. Raises `UserError` for a
        model without an address, key or price.
        """
        token = f"sk-culmen-{secrets.token_urlsafe(32)}"
        table = self._models if models is None else checked_models(models)
        self._accounts[token] = AgentAccount(str(agent), budget or Budget(), table)
        return token

    def env(self, token: str, kind: str, base_url: str | None = None) -> dict[str, str]:
        """Environment variables that lead an agent to the gateway.

        `kind` is openai | anthropic | gemini. `base_url` is the gateway's address as the agent sees
        it, without a path (default: `url`); inside a jail it is the relay's address.
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
        """Cost of this session so far."""
        return self._accounts[token].spent

    def take(self, token: str) -> Usage:
        """Cost of this session since the last call of this method."""
        return self._accounts[token].take()

    def report(self, token: str) -> MeteredUsage:
        """Usage, refusals and failures of this session."""
        return self._accounts[token].report()

    def close(self, token: str) -> None:
        """Close the session: requests in flight end, and every later one is refused.

        Its usage stays available. The cost of requests in flight is counted as soon as the event
        loop runs: `await settled(token)`.
        """
        self._accounts[token].close()

    async def exhausted(self, token: str) -> str:
        """Wait until a budget no longer holds this session's requests; return the budget's name.

        The name is calls, tokens, dollars, or run (the budget of the whole run); "" if the session
        is closed. Some agents retry for minutes, so a caller should then end the agent.
        """
        account = self._accounts[token]
        await account.ended.wait()
        return account.stopped

    async def settled(self, token: str) -> Usage:
        """Wait until nothing of this session is in flight; return its cost."""
        return await self._accounts[token].settled()

    def account_for_token(self, token: str) -> AgentAccount | None:
        """Account behind a token; None if there is none."""
        return self._accounts.get(token)

    def run_budget_refusal(self, extra: Usage) -> tuple[str, bool]:
        """Reason to refuse a request under the run's budget ("" if it fits), and finality.

        A refusal is final if the request would not fit even if nothing in flight cost anything.
        """
        pending = (
            total_usage(account.pending_usage() for account in self._accounts.values()) + extra
        )
        if self.permit(pending):
            return "", False
        flight = total_usage(account.flight for account in self._accounts.values())
        return "the run's budget does not hold the request", not self.permit(pending - flight)

    def record_exchange(self, account: AgentAccount, exchange: Exchange) -> None:
        """Append an exchange to its agent's transcript."""
        name = re.sub(r"[^\w.-]", "_", account.agent)[:100] or "_"
        if name not in self._transcripts:
            self._transcripts[name] = Transcript(self._folder / f"agent-{name}.jsonl", self.limits)
        facts = {"agent": account.agent, **exchange.facts}
        transcript = self._transcripts[name]
        if not transcript.append_row(
            facts,
            exchange.request,
            exchange.conversation_field,
            exchange.reply,
            self._make_scrubber(),
        ):
            account.unwritten += 1

    def _make_scrubber(self) -> Callable[[str], str]:
        """Function that removes keys and tokens from texts."""
        entries = [
            entry for account in self._accounts.values() for entry in account.models.values()
        ]
        keys = {(e.provider if isinstance(e, ModelSpec) else e).key for e in entries}
        hidden = {
            *self._accounts,
            *(key.reveal() for key in keys if key.is_needed and key.is_available()),
        }
        known = re.compile("|".join(map(re.escape, sorted(hidden, key=len, reverse=True))))
        lookalikes = Key()
        return lambda text: lookalikes.scrub(known.sub("[key]", text))
