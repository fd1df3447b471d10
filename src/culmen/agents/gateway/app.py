"""The gateway as an ASGI application: who asks, for what, and how a refusal looks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from culmen.agents.gateway.exchange import Ask, Exchange, Send
from culmen.agents.gateway.formats import Format, Refused, formats, route
from culmen.agents.gateway.upstream import ANY
from culmen.core.errors import UserError
from culmen.llm.spec import ModelSpec

if TYPE_CHECKING:
    from culmen.agents.gateway.account import Account
    from culmen.agents.gateway.gateway import Metering

Receive = Callable[[], Awaitable[dict[str, Any]]]
CREATED = 1_700_000_000  # models must have a date; it says nothing


class App:
    """Answers HTTP requests; see `culmen.agents.gateway.formats.route` for the paths."""

    def __init__(self, gateway: Metering) -> None:
        self._gateway, self._formats = gateway, formats()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if scope["type"] != "http":
            return
        request = Request(scope)
        path = request.url.path
        name, action, model = route(path) or (_guess(path), "", "")
        form = self._formats[name]
        ask = Ask(form, action, model, dict(request.headers), request.query_params.multi_items())
        try:
            if path == "/" and request.method in ("GET", "HEAD"):
                await reply(200, {"culmen": "metering gateway"}, scope, send)
                return
            account = self._account(ask)
            if not action:
                raise Refused(404, f"{request.method} {path[:200]} is not served by this gateway")
            if action == "models":
                await reply(200, _listed(account, ask), scope, send)
                return
            if request.method != "POST":
                raise Refused(405, f"{path[:200]} wants POST")
            await self._exchange(ask, account, receive, send)
        except Refused as refused:
            await refuse(refused, form, scope, send)

    def _account(self, ask: Ask) -> Account:
        """Whose token was sent. Raises `Refused` (401, or 403 if it is closed)."""
        kind, _, bearer = ask.headers.get("authorization", "").partition(" ")
        shown = [bearer.strip() if kind.lower() == "bearer" else ""]
        shown += [ask.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key")]
        shown += [value for name, value in ask.query if name == "key"]
        ask.query = [(name, value) for name, value in ask.query if name != "key"]
        account = next((a for a in map(self._gateway.account, shown) if a is not None), None)
        if account is None:
            raise Refused(401, "no session of this gateway has this token", kind="token")
        if account.closed:
            raise Refused(403, "this agent's session is closed", kind="closed")
        return account

    async def _exchange(self, ask: Ask, account: Account, receive: Receive, send: Send) -> None:
        gateway, limits = self._gateway, self._gateway.limits
        exchange = Exchange(ask, account, gateway.lines, limits, gateway.permitted, gateway.hosted_tools)
        try:
            if len(account.jobs) >= limits.in_flight:
                raise Refused(429, f"more than {limits.in_flight} requests at the same time", kind="in_flight")
            await self._within(account, limits.seconds, self._job(exchange, ask, receive, send))
        except Refused as refused:
            account.refused[str(refused.status)] += 1
            exchange.ended(refused.kind, 200 if exchange.started else refused.status)
            exchange.facts["refusal"] = refused.message
            if refused.kind == "budget":
                account.stop("run")  # if it was not the agent's own
            if not exchange.started:
                raise
        finally:
            exchange.ended("ok" if exchange.complete else "left")
            gateway.record(account, exchange)

    async def _within(self, account: Account, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, for so long at most and only while the account is open. Raises `Refused`."""
        job = asyncio.ensure_future(work)
        account.jobs.add(job)
        try:
            done, _ = await asyncio.wait({job}, timeout=seconds)
        finally:
            await _end(job)
            account.jobs.discard(job)
        if not done:
            raise Refused(504, f"no whole reply in {seconds:g} s", kind="deadline")
        if job.cancelled():
            raise Refused(403, "this agent's session is closed", kind="closed")
        try:
            job.result()
        except UserError as error:  # a key that went away while the run goes on
            raise Refused(502, " ".join(str(error).split()), kind="key") from None

    async def _job(self, exchange: Exchange, ask: Ask, receive: Receive, send: Send) -> None:
        """The exchange, given up when the agent leaves."""
        ask.raw = await _body(ask, receive, self._gateway.limits.body)
        work = asyncio.ensure_future(exchange.run(send))
        left = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(left)
            await _end(work)
        if not work.cancelled():
            work.result()


async def _end(job: asyncio.Future[None]) -> None:
    """Cancel a job and wait until it has ended, however it does."""
    job.cancel()
    await asyncio.wait({job})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(ask: Ask, receive: Receive, longest: int) -> bytes:
    if ask.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "compressed requests are not read here; switch the compression off")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request broke off", kind="left")
        body += message.get("body", b"")
        if len(body) > longest:
            raise Refused(413, f"a request may have {longest} bytes at most")
        if not message.get("more_body"):
            return bytes(body)


def _listed(account: Account, ask: Ask) -> dict[str, Any]:
    """The models that this agent may name, as OpenAI, Anthropic and Google list them."""
    names = sorted(
        entry.model if name == ANY and isinstance(entry, ModelSpec) else name
        for name, entry in account.models.items()
        if name != ANY or isinstance(entry, ModelSpec)
    )
    if ask.model:
        if ask.model.removeprefix("models/") not in names and ANY not in account.models:
            raise Refused(404, f"no model '{ask.model[:200]}'")
        names = [ask.model.removeprefix("models/")]
    if ask.form.name == "gemini":
        listed = [{"name": f"models/{name}", "displayName": name,
                   "supportedGenerationMethods": ["generateContent", "countTokens"]} for name in names]  # fmt: skip
        return listed[0] if ask.model else {"models": listed}
    both = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "culmen", "type": "model",
         "display_name": name, "created_at": "2023-11-14T22:13:20Z"}
        for name in names
    ]  # fmt: skip
    ends = {"has_more": False, "first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return both[0] if ask.model else {"object": "list", "data": both, **ends}


def _guess(path: str) -> str:
    """The format whose errors a client of an unknown path may understand."""
    return "gemini" if path.startswith(("/v1beta", "/v1alpha")) else "messages" if "messages" in path else "chat"


async def refuse(refused: Refused, form: Format, scope: dict[str, Any], send: Send) -> None:
    """Send a refusal. A budget that is spent will not come back, so clients are told not to try again."""
    headers = {"x-should-retry": "false" if refused.final else "true"}
    headers |= {"retry-after": "2"} if refused.kind in ("busy", "in_flight") else {}
    await reply(refused.status, form.error(refused), scope, send, headers)


async def reply(
    status: int, body: dict[str, Any], scope: dict[str, Any], send: Send, headers: dict[str, str] | None = None
) -> None:
    """Send a JSON object."""
    from starlette.responses import JSONResponse

    await JSONResponse(body, status, headers)(scope, _nothing, send)


async def _nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}
