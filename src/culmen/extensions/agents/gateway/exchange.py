"""One request of an agent: checked, reserved, passed on, passed back, settled, recorded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.foreign import Unreadable, boundary
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.extensions.agents.gateway.account import AgentAccount, GatewayLimits
from culmen.extensions.agents.gateway.formats import (
    EventSplitter,
    ReplyReader,
    RequestRefused,
    StreamEvent,
    WireFormat,
    objects_in,
)
from culmen.extensions.agents.gateway.wires import is_usage_event
from culmen.models.call import Tokens
from culmen.models.limits import RateLimiter
from culmen.models.spec import ModelSpec, Provider

if TYPE_CHECKING:
    import httpx2

Permit = Callable[[Usage], tuple[str, bool]]
Send = Callable[[MutableMapping[str, object]], Awaitable[None]]

_TO_UPSTREAM = (
    "accept",
    "content-type",
    "user-agent",
    "anthropic-version",
    "anthropic-beta",
    "openai-beta",
)
_PROVIDER_FAULTS = ("unreachable", "timeout", "cut", "deadline")  # outcomes without a whole reply
_FAILURE = 500  # characters kept of a failure
_TO_AGENT = (
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "x-request-id",
)


class AgentRequest(msgspec.Struct):
    """A request from an agent.

    Format, action, model in the path, headers (names in lower case), query and body.
    """

    form: WireFormat
    action: str
    model: str
    headers: dict[str, str]
    query: list[tuple[str, str]]
    raw: bytes = b""


class Exchange:
    """One exchange of a request for a reply; it runs once.

    At every kind of end the reservation is settled and the row for the transcript is ready.
    """

    def __init__(
        self,
        agent_request: AgentRequest,
        account: AgentAccount,
        connections: ProviderConnections,
        limits: GatewayLimits,
        permit: Permit,
    ) -> None:
        self._agent_request, self._account, self._connections, self._limits = (
            agent_request,
            account,
            connections,
            limits,
        )
        self._permit = permit
        self._began, self._started, self._billable = time.monotonic(), False, False
        self._reader: ReplyReader = agent_request.form.new_reader()
        self._model: ModelSpec | None = None
        self.request: JsonObject = {}
        self.facts: JsonObject = {
            "time": round(time.time(), 3),
            "format": agent_request.form.name,
            "action": agent_request.action,
            "asked": agent_request.model,
        }

    @property
    def has_started(self) -> bool:
        """True if the agent has received the head of a reply."""
        return self._started

    @property
    def reply(self) -> JsonObject:
        """The content of the reply, as far as it was received."""
        return self._reader.record.plain_reply()

    @property
    def is_complete(self) -> bool:
        """True if the reply is complete and reported its usage."""
        return self._reader.complete

    @property
    def conversation_field(self) -> str:
        """The field of the request that holds the conversation."""
        return self._agent_request.form.conversation

    @property
    def provider_failure(self) -> str | None:
        """Cause of a missing reply; "" for a whole reply, None if not the provider's fault.

        Requests that are no conversation say nothing, nor do those that culmen itself refused.
        """
        outcome = self.facts.get("outcome")
        if self._agent_request.action == "count":
            return None
        if outcome == "ok":
            return ""
        if outcome == "error":
            said = self._without_key(str(self.facts.get("error", "")).encode()).decode()
            return f"HTTP {self.facts.get('status')}: {said}"[:_FAILURE]
        if outcome in _PROVIDER_FAULTS:
            return str(self.facts.get("refusal", outcome))[:_FAILURE]
        return None

    def record_outcome(self, outcome: str, status: int | None = None) -> None:
        """Record the outcome and the status that the agent received, unless they are recorded."""
        self.facts.setdefault("outcome", outcome)
        if status is not None:
            self.facts.setdefault("status", status)
        self.facts["seconds"] = round(time.monotonic() - self._began, 3)

    async def run(self, send: Send) -> None:
        """Make the exchange.

        Raises `RequestRefused` for an error that the agent must receive; the reply may have begun.
        """
        agent_request, account = self._agent_request, self._account
        body, drop = self._prepare_body()
        assert self._model is not None
        connection = self._connections.connection_to(self._model.provider)
        content = json.dumps(body).encode()
        if agent_request.action == "count":
            await self._send_upstream(connection, content, False, send)
            return
        reserved = max_request_cost(self._model, len(content), self._most_output)
        self._check_budgets(reserved)
        account.reserve(reserved)
        spent = Usage()
        try:
            async with connection.lanes:
                slot = await connection.limiter.acquire(reserved.tokens)
                try:
                    await self._send_upstream(connection, content, drop, send)
                finally:
                    if self._billable:
                        spent = request_cost(self._model, *self._counted_tokens(len(content)))
                    slot.tokens = slot.tokens if spent.unpriced else spent.tokens
        finally:
            account.settle(reserved, spent)
            self.facts["usage"] = msgspec.to_builtins(spent)

    def _counted_tokens(self, size: int) -> tuple[Tokens | None, bool]:
        """The provider's count for a request of `size` bytes, and True if it is final.

        A count that is impossible is not used: the request then costs the most that it could.
        """
        tokens = self._reader.tokens
        if tokens is None or tokens.are_believable(size, self._most_output):
            return tokens, self._reader.complete
        self.facts["miscounted"] = [tokens.input, tokens.output]
        return None, False

    def _check_budgets(self, reserved: Usage) -> None:
        """Raise `RequestRefused` if the agent's budget or the run's does not hold the request."""
        for refusal in (self._account.refusal, self._permit):
            why, final = refusal(reserved)
            if why:
                raise RequestRefused(429, why, kind="budget" if final else "busy")

    def _prepare_body(self) -> tuple[JsonObject, bool]:
        """The body for the provider, and True if culmen added the request for a usage event."""
        agent_request = self._agent_request
        body = self.request = _json_body(agent_request.raw)
        requested = agent_request.model or str(body.get("model") or "")
        self.facts["asked"] = requested
        self._model = requested_model(self._account.models, requested)
        self.facts["model"] = self._model.name
        # `extra` is defined for chat completions alone
        extra = self._model.extra if agent_request.form.name == "chat" else {}
        body = agent_request.form.with_model_name({**body, **extra}, self._model.model)
        if agent_request.action == "count":
            return body, False
        for name in agent_request.form.elsewhere:
            if body.get(name):
                raise RequestRefused(
                    400,
                    f"'{name}' is not supported: send the whole conversation with each request",
                )
        body = {
            name: value for name, value in body.items() if name not in agent_request.form.dearer
        }
        body, removed = agent_request.form.without_hosted_tools(body)
        if removed:
            self.facts["removed"] = removed
        body, self._most_output = agent_request.form.with_output_limit(body, self._model)
        return agent_request.form.with_usage_request(body)

    async def _send_upstream(
        self, connection: ProviderConnection, content: bytes, drop: bool, send: Send
    ) -> None:
        import httpx2

        agent_request, model = self._agent_request, self._model
        assert model is not None
        url = provider_address(
            model.provider, agent_request.form.name
        ) + agent_request.form.request_path(model.model, agent_request.action)
        headers = {
            name: agent_request.headers[name]
            for name in _TO_UPSTREAM
            if name in agent_request.headers
        }
        headers |= {"accept-encoding": "identity", "content-type": "application/json"}
        headers |= credential_headers(model.provider, agent_request.form.name)
        self._billable = agent_request.action != "count"
        try:
            async with connection.client.stream(
                "POST",
                url,
                content=content,
                headers=headers,
                params=tuple(agent_request.query) or None,
            ) as response:
                await self._return_reply(response, drop, send)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            self._billable = False
            raise RequestRefused(
                502, f"the provider cannot be reached ({type(error).__name__})", kind="unreachable"
            ) from None
        except httpx2.TimeoutException:
            raise RequestRefused(
                504, "the provider did not answer in time", kind="timeout"
            ) from None
        except httpx2.HTTPError as error:
            raise RequestRefused(
                502, f"the provider's reply was cut off ({type(error).__name__})", kind="cut"
            ) from None

    async def _return_reply(self, response: httpx2.Response, drop: bool, send: Send) -> None:
        headers = {
            name: value for name, value in response.headers.items() if _is_returned_header(name)
        }
        if response.status_code >= 300:
            assert self._model is not None
            errs = response.status_code >= 500
            self._billable = errs and self._model.provider.bills_errors
            body = await self._read_reply_body(response)
            self._account.failed[str(response.status_code)] += 1
            self.facts["error"] = body.decode("utf-8", "replace")
            await self._return_body(response.status_code, headers, self._without_key(body), send)
        elif "text/event-stream" in response.headers.get("content-type", ""):
            await self._return_stream(response, headers, drop, send)
        else:
            body = self._without_key(await self._read_reply_body(response))
            self._read_full_reply(body)
            await self._return_body(response.status_code, headers, body, send)
        self.record_outcome("ok" if response.status_code < 300 else "error", response.status_code)

    async def _return_stream(
        self, response: httpx2.Response, headers: dict[str, str], drop: bool, send: Send
    ) -> None:
        assert self._model is not None
        events, hidden = EventSplitter(), self._model.provider.key.stream_filter()
        await self._return_head(response.status_code, headers, send)
        async for read in response.aiter_bytes():
            chunk = hidden.feed(read)
            received = events.feed(chunk)
            kept = [
                event.raw for event in received if not (self._read_stream_event(event) and drop)
            ]
            out = b"".join(kept) if drop and not events.lost else chunk
            if out:
                await send({"type": "http.response.body", "body": out, "more_body": True})
        held = hidden.feed(b"", is_last=True)
        rest = [*events.feed(held), *events.remaining_events()]
        kept = [event.raw for event in rest if not self._read_stream_event(event)]
        out = b"".join(kept) if drop and not events.lost else held
        await send({"type": "http.response.body", "body": out, "more_body": False})

    def _read_stream_event(self, event: StreamEvent) -> bool:
        """Read one event; True if it holds nothing except the usage."""
        try:
            return read_event(event.data, self._reader)
        except Unreadable:
            return False

    def _read_full_reply(self, raw: bytes) -> None:
        """Read a reply that came in one piece."""
        with contextlib.suppress(Unreadable):
            read_body(raw, self._reader)

    async def _read_reply_body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._limits.body:
                raise RequestRefused(
                    502,
                    f"the provider's reply is longer than {self._limits.body} bytes",
                    kind="too_long",
                )
        return bytes(body)

    def _without_key(self, body: bytes) -> bytes:
        """A body without the key, which some providers repeat."""
        assert self._model is not None
        text = body.decode("utf-8", "surrogateescape")
        return self._model.provider.key.hide(text).encode("utf-8", "surrogateescape")

    async def _return_body(
        self, status: int, headers: dict[str, str], body: bytes, send: Send
    ) -> None:
        await self._return_head(status, {**headers, "content-length": str(len(body))}, send)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _return_head(self, status: int, headers: dict[str, str], send: Send) -> None:
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
        ]
        self._started = True
        await send({"type": "http.response.start", "status": status, "headers": pairs})


_MOST_CHARACTERS = 1 << 26  # of an event or a reply of a provider that are read


@boundary(_MOST_CHARACTERS)
def read_event(data: str, reader: ReplyReader) -> bool:
    """Read one event of a stream; True if it holds nothing except the usage."""
    body = json.loads(data)
    if not isinstance(body, dict):
        return False
    reader.read_stream_event(body)
    return is_usage_event(body)


@boundary(_MOST_CHARACTERS)
def read_body(raw: bytes, reader: ReplyReader) -> None:
    """Read a whole reply; Gemini's streams without SSE are lists."""
    body = json.loads(raw)
    if isinstance(body, dict):
        reader.read_full_reply(body)
    for item in objects_in(body):
        reader.read_stream_event(item)


def _json_body(raw: bytes) -> JsonObject:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    return body


def _is_returned_header(name: str) -> bool:
    return name in _TO_AGENT or "ratelimit" in name or name.startswith(("openai-", "anthropic-"))


# Targets of requests: addresses, keys and prices of the configured models, and the connections to
# them.

ANY = "*"  # the entry for every model name without an entry of its own
_PRICE = "price = { input = ..., output = ... } (dollars per million tokens)"


def requested_model(models: Mapping[str, ModelSpec | Provider], requested: str) -> ModelSpec:
    """The model for the name that an agent requests.

    Raises `RequestRefused`: 403 if there is none, 400 if the request names no model.
    """
    entry = models.get(requested, models.get(ANY))
    if entry is None:
        raise RequestRefused(
            403,
            f"the model '{requested[:200]}' is not open to this agent; it may use "
            f"{', '.join(sorted(models))}",
        )
    if isinstance(entry, ModelSpec):
        return entry
    if not requested:
        raise RequestRefused(400, "the request does not name a model")
    return ModelSpec(entry, requested)


def checked_models(models: Mapping[str, ModelSpec | Provider]) -> dict[str, ModelSpec | Provider]:
    """A copy of the models, each with an address, key and price.

    Raises `UserError` that names the missing part.
    """
    for name, entry in models.items():
        provider = entry.provider if isinstance(entry, ModelSpec) else entry
        if provider.name == "litellm" or (
            isinstance(entry, ModelSpec) and entry.backend is not None
        ):
            raise UserError(
                f"the model '{name}' has no address to which agents' requests can be sent",
                where=f"provider '{provider.name}'",
                fix="name a model of a provider with an address, or define one in a models file",
            )
        if not provider.key.is_available():
            provider.key.reveal()  # raises, with a fix
        if isinstance(entry, ModelSpec) and entry.price_list.dollars_for(Tokens()) is None:
            raise UserError(
                f"the price of the model '{entry.name}' is not known, so a budget in dollars "
                "cannot limit it",
                where="agents' models",
                fix=(
                    f"put {_PRICE} under its [models.NAME] in a models file; a price of 0 is "
                    f"allowed{entry.price_list.advice}"
                ),
            )
    return dict(models)


def max_request_cost(model: ModelSpec, size: int, output: int) -> Usage:
    """The most that a request of `size` bytes with a reply of `output` tokens may cost.

    It counts one input token for three bytes, written to the cache or not, whichever costs more.
    Raises `RequestRefused` (403) without a known price.
    """
    # rounded up, so that few different prices need to be computed
    tokens = -(-(size // 3 + 16) // 256) * 256
    usage = model.price_list.largest_usage(Tokens(tokens, output))
    if usage.unpriced:
        raise RequestRefused(
            403,
            f"the price of the model '{model.name}' is not known; put {_PRICE} into the models "
            f"file{model.price_list.advice}",
        )
    return usage


def request_cost(model: ModelSpec, tokens: Tokens | None, complete: bool) -> Usage:
    """Cost of an answered request; an incomplete reply makes it an unpriced call."""
    usage = model.price_list.usage_for(tokens)
    return usage if complete else msgspec.structs.replace(usage, unpriced=1)


def provider_address(provider: Provider, form: str) -> str:
    """Address at which a provider serves a wire format, without a slash at the end."""
    if form in provider.endpoints:
        return provider.endpoints[form].rstrip("/")
    base = (provider.effective_base_url or "https://api.openai.com/v1").rstrip("/")
    if form != "gemini":
        return base
    if base.endswith("/openai"):
        # Google: the OpenAI-compatible address is below the native one
        return base.removesuffix("/openai")
    return f"{base}beta" if base.endswith("/v1") else base


def credential_headers(provider: Provider, form: str) -> dict[str, str]:
    """Headers that carry the provider's key, by wire format.

    For a format of another maker the key is also sent as a bearer token.
    """
    if not provider.key.is_needed:
        return {}
    key = provider.key.reveal()
    own = {"messages": ("x-api-key", "anthropic"), "gemini": ("x-goog-api-key", "gemini")}.get(form)
    headers = {own[0]: key} if own else {}
    if own is None or provider.name != own[1]:
        headers["authorization"] = f"Bearer {key}"
    return headers


class ProviderConnection:
    """HTTP client for one provider, with the limits that all agents share."""

    def __init__(self, provider: Provider) -> None:
        import httpx2

        self.lanes = asyncio.Semaphore(provider.concurrency)
        self.limiter = RateLimiter(provider.rpm, provider.tpm)
        self.client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(provider.timeout, connect=30.0, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16),
            follow_redirects=False,
        )


class ProviderConnections:
    """Connections to providers, each made when first needed."""

    def __init__(self) -> None:
        self._connections: dict[str, ProviderConnection] = {}

    def connection_to(self, provider: Provider) -> ProviderConnection:
        """The connection to this provider."""
        key = f"{provider.name} {provider.effective_base_url}"
        if key not in self._connections:
            self._connections[key] = ProviderConnection(provider)
        return self._connections[key]

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            await connection.client.aclose()
