"""The gateway's HTTP side: an ASGI application and its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Protocol

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.extensions.agents.gateway.account import AgentAccount, GatewayLimits
from culmen.extensions.agents.gateway.exchange import (
    ANY,
    AgentRequest,
    Exchange,
    ProviderConnections,
    Send,
)
from culmen.extensions.agents.gateway.formats import RequestRefused, WireFormat, parse_route
from culmen.extensions.agents.gateway.wires import FORMATS
from culmen.models.spec import ModelSpec

Receive = Callable[[], Awaitable[JsonObject]]


class GatewayState(Protocol):
    """The part of `Metering` that the application uses."""

    limits: GatewayLimits
    connections: ProviderConnections

    def account_for_token(self, token: str) -> AgentAccount | None: ...

    def run_budget_refusal(self, extra: Usage) -> tuple[str, bool]: ...

    def record_exchange(self, account: AgentAccount, exchange: Exchange) -> None: ...


class GatewayApp:
    """ASGI application for agents' requests; see `parse_route` in `formats.py`."""

    def __init__(self, gateway: GatewayState) -> None:
        self._gateway = gateway

    async def __call__(self, scope: JsonObject, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if scope["type"] != "http":
            return
        request = Request(scope)
        path = request.url.path
        name, action, model = parse_route(path) or (_error_format(path), "", "")
        form = FORMATS[name]
        agent_request = AgentRequest(
            form, action, model, dict(request.headers), request.query_params.multi_items()
        )
        try:
            if path == "/" and request.method in ("GET", "HEAD"):
                await send_json(200, {"culmen": "metering gateway"}, scope, send)
                return
            account = self._requesting_account(agent_request)
            if not action:
                raise RequestRefused(
                    404, f"{request.method} {path[:200]} is not served by this gateway"
                )
            if action == "models":
                await send_json(200, _model_list(account, agent_request), scope, send)
                return
            if request.method != "POST":
                raise RequestRefused(405, f"{path[:200]} needs the method POST")
            await self._serve_request(agent_request, account, receive, send)
        except RequestRefused as refused:
            await send_refusal(refused, form, scope, send)

    def _requesting_account(self, agent_request: AgentRequest) -> AgentAccount:
        """Account of the token in a request.

        Raises `RequestRefused` (401 for an unknown token, 403 for a closed session).
        """
        kind, _, bearer = agent_request.headers.get("authorization", "").partition(" ")
        shown = [bearer.strip() if kind.lower() == "bearer" else ""]
        shown += [agent_request.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key")]
        shown += [value for name, value in agent_request.query if name == "key"]
        agent_request.query = [
            (name, value) for name, value in agent_request.query if name != "key"
        ]
        account = next(
            (a for a in map(self._gateway.account_for_token, shown) if a is not None), None
        )
        if account is None:
            raise RequestRefused(401, "no session of this gateway has this token", kind="token")
        if account.closed:
            raise RequestRefused(403, "this agent's session is closed", kind="closed")
        return account

    async def _serve_request(
        self, agent_request: AgentRequest, account: AgentAccount, receive: Receive, send: Send
    ) -> None:
        gateway, limits = self._gateway, self._gateway.limits
        exchange = Exchange(
            agent_request,
            account,
            gateway.connections,
            limits,
            gateway.run_budget_refusal,
        )
        try:
            if len(account.jobs) >= limits.in_flight:
                raise RequestRefused(
                    429, f"more than {limits.in_flight} requests at the same time", kind="in_flight"
                )
            await self._run_while_open(
                account,
                limits.seconds,
                self._run_until_disconnect(exchange, agent_request, receive, send),
            )
        except RequestRefused as refused:
            account.refused[str(refused.status)] += 1
            exchange.record_outcome(refused.kind, 200 if exchange.has_started else refused.status)
            exchange.facts["refusal"] = refused.message
            if refused.kind == "budget":
                account.mark_budget_spent("run")  # no effect if the agent's own budget refused
            if not exchange.has_started:
                raise
        finally:
            exchange.record_outcome("ok" if exchange.is_complete else "left")
            if (failure := exchange.provider_failure) is not None:
                account.last_failure = failure
            gateway.record_exchange(account, exchange)

    async def _run_while_open(
        self, account: AgentAccount, seconds: float, work: Coroutine[object, object, None]
    ) -> None:
        """Do the work within `seconds` and while the account is open. Raises `RequestRefused`."""
        job = asyncio.ensure_future(work)
        account.jobs.add(job)
        try:
            done, _ = await asyncio.wait({job}, timeout=seconds)
        finally:
            await _cancel_and_wait(job)
            account.jobs.discard(job)
        if not done:
            raise RequestRefused(504, f"no complete reply within {seconds:g} s", kind="deadline")
        if job.cancelled():
            raise RequestRefused(403, "this agent's session is closed", kind="closed")
        try:
            job.result()
        except UserError as error:  # a key that was removed during the run
            raise RequestRefused(502, " ".join(str(error).split()), kind="key") from None

    async def _run_until_disconnect(
        self, exchange: Exchange, agent_request: AgentRequest, receive: Receive, send: Send
    ) -> None:
        """Run the exchange; cancel it if the agent disconnects."""
        agent_request.raw = await _read_request_body(
            agent_request, receive, self._gateway.limits.body
        )
        work = asyncio.ensure_future(exchange.run(send))
        left = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel_and_wait(left)
            await _cancel_and_wait(work)
        if not work.cancelled():
            work.result()


async def _cancel_and_wait(job: asyncio.Future[None]) -> None:
    """Cancel a job and wait until it has ended; its result or error is ignored."""
    job.cancel()
    await asyncio.wait({job})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_request_body(agent_request: AgentRequest, receive: Receive, longest: int) -> bytes:
    if agent_request.headers.get("content-encoding", "identity") != "identity":
        raise RequestRefused(415, "compressed requests are not supported; switch compression off")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "the request was cut off", kind="left")
        body += message.get("body", b"")
        if len(body) > longest:
            raise RequestRefused(413, f"a request may have at most {longest} bytes")
        if not message.get("more_body"):
            return bytes(body)


def _model_list(account: AgentAccount, agent_request: AgentRequest) -> JsonObject:
    """The models that this agent may name, in OpenAI's, Anthropic's or Google's format."""
    names = sorted(
        entry.model if name == ANY and isinstance(entry, ModelSpec) else name
        for name, entry in account.models.items()
        if name != ANY or isinstance(entry, ModelSpec)
    )
    if agent_request.model:
        if agent_request.model.removeprefix("models/") not in names and ANY not in account.models:
            raise RequestRefused(404, f"there is no model '{agent_request.model[:200]}'")
        names = [agent_request.model.removeprefix("models/")]
    if agent_request.form.name == "gemini":
        listed = [
            {
                "name": f"models/{name}",
                "displayName": name,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            }
            for name in names
        ]
        return listed[0] if agent_request.model else {"models": listed}
    both = [
        {
            "id": name,
            "object": "model",
            "created": 1_700_000_000,  # any date will do
            "owned_by": "culmen",
            "type": "model",
            "display_name": name,
            "created_at": "2023-11-14T22:13:20Z",
        }
        for name in names
    ]
    ends = {
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }
    return both[0] if agent_request.model else {"object": "list", "data": both, **ends}


def _error_format(path: str) -> str:
    """Format for the errors of an unknown path."""
    return (
        "gemini"
        if path.startswith(("/v1beta", "/v1alpha"))
        else "messages"
        if "messages" in path
        else "chat"
    )


async def send_refusal(
    refused: RequestRefused, form: WireFormat, scope: JsonObject, send: Send
) -> None:
    """Send a refusal; clients are asked not to retry a final one, such as a spent budget."""
    headers = {"x-should-retry": "false" if refused.is_final else "true"}
    headers |= {"retry-after": "2"} if refused.kind in ("busy", "in_flight") else {}
    await send_json(refused.status, form.error_body(refused), scope, send, headers)


async def send_json(
    status: int,
    body: JsonObject,
    scope: JsonObject,
    send: Send,
    headers: dict[str, str] | None = None,
) -> None:
    """Send a JSON object."""
    from starlette.responses import JSONResponse

    await JSONResponse(body, status, headers)(scope, _receive_disconnect, send)


async def _receive_disconnect() -> JsonObject:
    return {"type": "http.disconnect"}


# concurrent connections; more are closed, so that no agent can use up the run's file descriptors
CONNECTIONS = 256
_BACKLOG = 256  # connections that wait to be accepted


class GatewayServer:
    """Server of an ASGI application until `stop`, without signal handlers or logs."""

    def __init__(self, app: GatewayApp, sockets: list[socket.socket]) -> None:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol

        class Bounded(H11Protocol):
            """One connection, closed at once if there are more than `CONNECTIONS`."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                if len(self.connections) > CONNECTIONS:
                    transport.abort()

        class Server(uvicorn.Server):
            """Server that sets `up` after its start and installs no signal handlers."""

            up = asyncio.Event()

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                self.up.set()

        config = uvicorn.Config(
            app,
            log_config=None,
            log_level=60,
            access_log=False,
            lifespan="off",
            ws="none",
            http=Bounded,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=75,
            server_header=False,
            date_header=False,
        )
        self._server, self._sockets = Server(config), sockets
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when requests are accepted."""
        self._task = asyncio.ensure_future(self._server.serve(self._sockets))
        up = asyncio.ensure_future(self._server.up.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            self._task.result()
            raise RuntimeError("the server ended before it had started")

    async def stop(self) -> None:
        """Refuse new requests, end the connections, close the sockets."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        for listener in self._sockets:
            listener.close()


def listen_on_loopback(port: int) -> socket.socket:
    """A socket listening on 127.0.0.1; the system chooses port 0."""
    listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def listen_on_path(path: Path) -> socket.socket:
    """A Unix socket listening at `path`, for this user alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(old)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
