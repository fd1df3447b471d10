"""Meter of agents' model calls: the metering gateway, started at the first metered agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.usage import Budget, Usage, total_usage
from culmen.extensions.agents.sandbox.layout import agent_tag

if TYPE_CHECKING:
    from culmen.extensions.agents.gateway.metering import Metering
    from culmen.models.spec import ModelSpec, Provider

_BY_WIRE = {"messages": "anthropic", "responses": "openai", "chat": "openai", "gemini": "gemini"}
NOTHING = Usage()


class SessionMeter:
    """The gateway of one run.

    `models` is a `--model` text or mapping (None or offline: no models) and a models file. `permit`
    returns True if the run as a whole may spend this much more.
    """

    def __init__(
        self,
        folder: Path,
        models: tuple[str | Mapping[str, object] | None, str | None],
        permit: Callable[[Usage], bool],
    ) -> None:
        self._folder, self._models, self._permit = folder, models, permit
        self._gateway: Metering | None = None
        self._socket_folder = ""
        self._tokens: dict[int, str] = {}
        self._alarms: dict[int, asyncio.Task[None]] = {}
        self._earlier: dict[int, Usage] = {}

    @property
    def socket(self) -> Path | None:
        """The gateway's socket for sandboxes; None before the gateway is started."""
        return Path(self._socket_folder) / "gateway" if self._socket_folder else None

    async def open_account(
        self,
        agent: int,
        model: str,
        wires: tuple[str, ...],
        limits: Mapping[str, float],
        on_exhausted: Callable[[], None],
    ) -> tuple[str, str]:
        """A token for this agent, and the name of the model to request ("" for its own default).

        `on_exhausted` is called when a budget is spent. The token is "" if no model is configured.
        Raises UserError for a model without an address, key or price.
        """
        answering, name = self._answering_model(model, wires)
        if answering is None:
            return "", model
        if self._gateway is None:
            self._gateway = await self._start_gateway()
        paid = {key: limits[key] for key in ("calls", "tokens", "dollars") if key in limits}
        budget = msgspec.convert(paid, Budget, strict=False)
        self._tokens[agent] = self._gateway.open(
            agent_tag(agent), budget=budget, models={"*": answering}
        )
        self._alarms[agent] = asyncio.create_task(
            self._report_exhaustion(self._tokens[agent], on_exhausted)
        )
        return self._tokens[agent], name

    def usage(self, agent: int) -> Usage:
        """Cost of this agent, including earlier processes of the run."""
        if agent not in self._earlier:
            self._earlier[agent] = (
                NOTHING if agent in self._tokens else transcript_usage(self._transcript_file(agent))
            )
        live = (
            self._running_gateway.usage(self._tokens[agent]) if agent in self._tokens else NOTHING
        )
        return self._earlier[agent] + live

    def load_earlier_usage(self, agent: int) -> None:
        """Read the cost of this agent in earlier processes; called before its session is opened."""
        self._earlier[agent] = transcript_usage(self._transcript_file(agent))

    def mark_reported(self, agent: int) -> None:
        """Note that the usage so far was reported, so that it no longer counts as pending."""
        if agent in self._tokens:
            self._running_gateway.take(self._tokens[agent])

    def refusing_limit(self, agent: int) -> str:
        """Limit that refused the agent's last request.

        The agent's limits are calls | tokens | dollars, the run's is budget; "" if none did.
        """
        if agent not in self._tokens:
            return ""
        limit = self._running_gateway.report(self._tokens[agent]).stopped
        return "budget" if limit == "run" else limit

    def last_failure(self, agent: int) -> str:
        """Cause of a missing reply to the agent's last request; "" if it got one."""
        if agent not in self._tokens:
            return ""
        return self._running_gateway.report(self._tokens[agent]).last_failure

    async def close_account(self, agent: int) -> None:
        """Refuse further calls of this agent; return when all its calls are counted."""
        if agent in self._tokens:
            self._running_gateway.close(self._tokens[agent])
            await self._running_gateway.settled(self._tokens[agent])

    async def close(self) -> None:
        """Stop the gateway."""
        for alarm in self._alarms.values():
            alarm.cancel()
        await asyncio.gather(*self._alarms.values(), return_exceptions=True)
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.__aexit__(None, None, None)
        if self._socket_folder:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = ""

    @property
    def _running_gateway(self) -> Metering:
        assert self._gateway is not None  # accounts are opened after its start
        return self._gateway

    async def _start_gateway(self) -> Metering:
        from culmen.extensions.agents.gateway.metering import Metering

        # paths of sockets must be short
        self._socket_folder = tempfile.mkdtemp(prefix="culmen-gateway-")
        gateway = Metering({}, self._folder, port=None, socket=self.socket, permit=self._permit)
        started = await gateway.__aenter__()
        # its folder is closed to other users: only sandboxes with the socket mounted reach it
        os.chmod(f"{self._socket_folder}/gateway", 0o666)
        return started

    async def _report_exhaustion(self, token: str, on_exhausted: Callable[[], None]) -> None:
        await self._running_gateway.exhausted(token)
        on_exhausted()

    def _answering_model(
        self, model: str, wires: tuple[str, ...]
    ) -> tuple[ModelSpec | Provider | None, str]:
        """The model or provider that answers an agent, and the name to request.

        It is the agent's own model, else the run's, else the provider for which the program is
        made.
        """
        from culmen.models.roles import ModelBook
        from culmen.models.spec import PROVIDERS, ModelSpec

        text, file = self._models
        if model:
            choice = ModelBook(file).model(model)
            return choice, choice.model
        if text and text != "offline":
            choice = ModelBook(file).parse_roles(text).pick_model("agent", 0)
            return (choice, choice.model) if isinstance(choice, ModelSpec) else (None, "")
        if len(wires) == 1:
            provider = PROVIDERS[_BY_WIRE[wires[0]]]
            if provider.key.is_needed and not provider.key.is_available():
                raise UserError(
                    "no model is named, and the key for the program's own provider is missing",
                    where=provider.name,
                    fix="--model MODEL, or set the provider's key",
                )
            return provider, ""
        return None, ""

    def _transcript_file(self, agent: int) -> Path:
        return self._folder / f"agent-{agent_tag(agent)}.jsonl"


def transcript_usage(file: Path) -> Usage:
    """Usage in a transcript of the gateway; torn lines are skipped."""
    usages: list[Usage] = []
    try:
        with file.open("rb") as rows:
            for row in rows:
                try:
                    usages.append(msgspec.json.decode(row, type=_Row).usage)
                except msgspec.DecodeError:
                    continue
    except FileNotFoundError:
        return NOTHING
    return total_usage(usages)


class _Row(msgspec.Struct, frozen=True):
    usage: Usage = NOTHING
