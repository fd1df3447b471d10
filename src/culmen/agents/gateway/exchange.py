"""One request of an agent: checked, reserved, passed on, passed back, settled, recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from culmen.agents.gateway.account import Account, Limits
from culmen.agents.gateway.chat import only_usage
from culmen.agents.gateway.formats import Format, Refused
from culmen.agents.gateway.reading import Reader
from culmen.agents.gateway.sse import Event, Events
from culmen.agents.gateway.upstream import Line, Lines, address, chosen, cost, credentials, most
from culmen.core.usage import Usage
from culmen.llm.spec import ModelSpec

Permit = Callable[[Usage], tuple[str, bool]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_TO_UPSTREAM = ("accept", "content-type", "user-agent", "anthropic-version", "anthropic-beta", "openai-beta")
_TO_AGENT = ("content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")


class Ask(msgspec.Struct):
    """What an agent sent: the format, the action, the model in the path, headers (lower case), query and body."""

    form: Format
    action: str
    model: str
    headers: dict[str, str]
    query: list[tuple[str, str]]
    raw: bytes = b""


class Exchange:
    """Runs once. Whatever ends it, what was reserved is settled and a row for the transcript is ready afterwards."""

    def __init__(self, ask: Ask, account: Account, lines: Lines, limits: Limits, permit: Permit, hosted: bool) -> None:
        self._ask, self._account, self._lines, self._limits = ask, account, lines, limits
        self._permit, self._hosted = permit, hosted
        self._began, self._started, self._billable = time.monotonic(), False, False
        self._reader: Reader = ask.form.reader()
        self._model: ModelSpec | None = None
        self.request: dict[str, Any] = {}
        self.facts: dict[str, Any] = {
            "time": round(time.time(), 3), "format": ask.form.name, "action": ask.action, "asked": ask.model,
        }  # fmt: skip

    @property
    def started(self) -> bool:
        """Whether the agent has got the head of a reply."""
        return self._started

    @property
    def reply(self) -> dict[str, Any]:
        """What the reply said, as far as it came."""
        return self._reader.heard.plain()

    @property
    def complete(self) -> bool:
        """Whether the reply came to its end and told its usage."""
        return self._reader.complete

    @property
    def listed(self) -> str:
        """The field of the request that holds the conversation."""
        return self._ask.form.conversation

    def ended(self, outcome: str, status: int | None = None) -> None:
        """Say how it ended, if nobody has yet; the status is what the agent got."""
        self.facts.setdefault("outcome", outcome)
        if status is not None:
            self.facts.setdefault("status", status)
        self.facts["seconds"] = round(time.monotonic() - self._began, 3)

    async def run(self, send: Send) -> None:
        """Make the exchange. Raises `Refused` for what is to be told to the agent before any reply has begun."""
        ask, account = self._ask, self._account
        body, drop = self._prepared()
        assert self._model is not None
        line = self._lines.to(self._model.provider)
        content = json.dumps(body).encode()
        if ask.action == "count":
            await self._pass_on(line, content, False, send)
            return
        reserved = most(self._model, len(content), self._most_output)
        self._admit(reserved)
        account.reserve(reserved)
        spent = Usage()
        try:
            async with line.lanes:
                slot = await line.limiter.acquire(reserved.tokens)
                try:
                    await self._pass_on(line, content, drop, send)
                finally:
                    if self._billable:
                        spent = cost(self._model, self._reader.tokens, self._reader.complete)
                    slot.tokens = slot.tokens if spent.unpriced else spent.tokens
        finally:
            account.settle(reserved, spent)
            self.facts["usage"] = msgspec.to_builtins(spent)

    def _admit(self, reserved: Usage) -> None:
        """Raises `Refused` if the agent's budget or the run's does not hold the request."""
        for refusal in (self._account.refusal, self._permit):
            why, final = refusal(reserved)
            if why:
                raise Refused(429, why, kind="budget" if final else "busy")

    def _prepared(self) -> tuple[dict[str, Any], bool]:
        """The body as it goes upstream, and whether the usage event was added for us."""
        ask = self._ask
        body = self.request = _object(ask.raw)
        asked = ask.model or str(body.get("model") or "")
        self.facts["asked"] = asked
        self._model = chosen(self._account.models, asked)
        self.facts["model"] = self._model.name
        extra = self._model.extra if ask.form.name == "chat" else {}  # said of chat completions alone
        body = ask.form.named({**body, **extra}, self._model.model)
        if ask.action == "count":
            return body, False
        for name in ask.form.elsewhere:
            if body.get(name):
                raise Refused(400, f"'{name}' is not possible here: send the whole conversation with each request")
        body = {name: value for name, value in body.items() if name not in ask.form.dearer}
        if not self._hosted:
            body, removed = ask.form.local(body)
            if removed:
                self.facts["removed"] = removed
        body, self._most_output = ask.form.limited(body, self._model)
        return ask.form.told(body)

    async def _pass_on(self, line: Line, content: bytes, drop: bool, send: Send) -> None:
        import httpx2

        ask, model = self._ask, self._model
        assert model is not None
        url = address(model.provider, ask.form.name) + ask.form.path(model.model, ask.action)
        headers = {name: ask.headers[name] for name in _TO_UPSTREAM if name in ask.headers}
        headers |= {"accept-encoding": "identity", "content-type": "application/json"}
        headers |= credentials(model.provider, ask.form.name)
        self._billable = ask.action != "count"
        try:
            async with line.client.stream(
                "POST", url, content=content, headers=headers, params=ask.query or None
            ) as response:
                await self._pass_back(response, drop, send)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            self._billable = False
            raise Refused(502, f"the provider cannot be reached ({type(error).__name__})", kind="unreachable") from None
        except httpx2.TimeoutException:
            raise Refused(504, "the provider did not answer in time", kind="timeout") from None
        except httpx2.HTTPError as error:
            raise Refused(502, f"the provider's reply broke off ({type(error).__name__})", kind="cut") from None

    async def _pass_back(self, response: Any, drop: bool, send: Send) -> None:
        headers = {name: value for name, value in response.headers.items() if _shown(name)}
        if response.status_code >= 300:
            self._billable = False
            body = await self._read(response)
            self._account.failed[str(response.status_code)] += 1
            self.facts["error"] = body.decode("utf-8", "replace")
            await self._answer(response.status_code, headers, self._without_key(body), send)
        elif "text/event-stream" in response.headers.get("content-type", ""):
            await self._stream(response, headers, drop, send)
        else:
            body = await self._read(response)
            self._note(body)
            await self._answer(response.status_code, headers, body, send)
        self.ended("ok" if response.status_code < 300 else "error", response.status_code)

    async def _stream(self, response: Any, headers: dict[str, str], drop: bool, send: Send) -> None:
        events = Events()
        await self._start(response.status_code, headers, send)
        async for chunk in response.aiter_bytes():
            found = events.feed(chunk)
            kept = [event.raw for event in found if not (self._hear(event) and drop)]
            out = b"".join(kept) if drop and not events.lost else chunk
            if out:
                await send({"type": "http.response.body", "body": out, "more_body": True})
        rest = events.rest()
        kept = [event.raw for event in rest if not self._hear(event)] if drop else []
        await send({"type": "http.response.body", "body": b"".join(kept), "more_body": False})

    def _hear(self, event: Event) -> bool:
        """Read one event; whether it is the one that only tells the usage."""
        try:
            body = json.loads(event.data)
        except (ValueError, RecursionError):
            return False
        if not isinstance(body, dict):
            return False
        self._reader.event(body)
        return only_usage(body)

    def _note(self, raw: bytes) -> None:
        """Read a reply that came in one piece; Gemini's streams without SSE are lists."""
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            return
        if isinstance(body, dict):
            self._reader.whole(body)
        elif isinstance(body, list):
            for item in body:
                if isinstance(item, dict):
                    self._reader.event(item)

    async def _read(self, response: Any) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._limits.body:
                raise Refused(502, f"the provider's reply is longer than {self._limits.body} bytes", kind="too_long")
        return bytes(body)

    def _without_key(self, body: bytes) -> bytes:
        """An error as it came, but for the key: some providers repeat it."""
        assert self._model is not None
        key = self._model.provider.key
        secret = key.reveal().encode() if key.needed else b""
        return body.replace(secret, b"[key]") if secret else body

    async def _answer(self, status: int, headers: dict[str, str], body: bytes, send: Send) -> None:
        await self._start(status, {**headers, "content-length": str(len(body))}, send)
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _start(self, status: int, headers: dict[str, str], send: Send) -> None:
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self._started = True
        await send({"type": "http.response.start", "status": status, "headers": pairs})


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "the body is no JSON object")
    return body


def _shown(name: str) -> bool:
    return name in _TO_AGENT or "ratelimit" in name or name.startswith(("openai-", "anthropic-"))
