"""The dashboard's server: pages and their documents over HTTP on 127.0.0.1."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from culmen.core import extensions
from culmen.core.errors import CulmenError, UserError
from culmen.core.json import JsonObject
from culmen.core.result import Explanation
from culmen.extensions.web import labels
from culmen.extensions.web.pages import page_makers
from culmen.extensions.web.runs import RunCatalog, change_signature
from culmen.report import reasons
from culmen.report.sentences import state_label
from culmen.store import inbox, sidecar, views
from culmen.store.archive import archive_run, delete_run

STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_COMPARED = 200  # runs on one page of the comparison
_SOUGHT = 2  # characters of a searched text at least
_BODY = 2_000_000  # bytes of a message
_FLOOD = 8 * _BODY  # bytes after which reading a request is given up


class Dashboard:
    """The application over a run or a folder of runs.

    `token` authorises writing; `names` maps the path of a strategy's class to its display name.
    `explain` returns the explanation of an evaluation, by run and number or candidate.
    """

    def __init__(
        self,
        path: Path,
        token: str | None = None,
        names: Mapping[str, str] | None = None,
        explain: Callable[[Path, str], Explanation] | None = None,
    ) -> None:
        self.runs, self.token = RunCatalog(path, names), token or secrets.token_urlsafe(24)
        self._explain = explain
        self._explanations: dict[tuple[str, str, str, float], JsonObject] = {}
        self._streams: dict[str, ChangeStream] = {}
        routes = [
            Route("/", self._serve_file),
            Route("/static/{path:path}", self._serve_file),
            Route("/api/runs", self._serve_runs),
            Route("/api/stream", self._serve_stream),
            Route("/api/compare", self._serve_comparison),
            Route("/api/runs/{run}/stream", self._serve_stream),
            Route("/api/runs/{run}/search", self._serve_search),
            Route("/api/runs/{run}/{page}", self._serve_page),
            Route("/api/token", self._serve_token_check, methods=["POST"]),
            Route("/api/runs/{run}/{what}", self._serve_action, methods=["POST"]),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, token=self.token)],
            exception_handlers={CulmenError: _error_response},  # pyright: ignore[reportArgumentType]
        )

    async def _serve_file(self, request: Request) -> Response:
        name = request.path_params.get("path", "index.html")
        path = (STATIC / name).resolve()
        if STATIC.resolve() not in path.parents or path.suffix not in _TYPES or not path.is_file():
            return _json_response({"error": {"what": "there is no such file"}}, 404)
        return FileResponse(path, media_type=_TYPES[path.suffix])

    async def _serve_runs(self, request: Request) -> Response:
        def make() -> JsonObject:
            lines = [
                msgspec.to_builtins(line)
                | {"name": name, "label": state_label(line.state, line.reason)}
                # newest runs of a list, which have a curve
                | {"curve": self.runs.progress_curve(line) if n < 200 else []}
                | _read_labels(Path(line.path))
                for n, (name, line) in enumerate(self.runs.list_lines())
            ]
            return {"runs": lines, "single": self.runs.single, "folder": self.runs.display_location}

        return await self._answer_json(make)

    async def _serve_page(self, request: Request) -> Response:
        name, page = request.path_params["run"], request.path_params["page"]
        if page == "explain" and self._explain is not None:
            wanted = request.query_params.get("evaluation", "")
            return await self._answer_json(
                lambda: self._explanation(self.runs.find_path(name), wanted)
            )
        make = page_makers().get(page)
        if make is None:
            return _json_response({"error": {"what": f"there is no page '{page}'"}}, 404)
        params = dict(request.query_params)
        return await self._answer_json(lambda: make(self.runs.digest(name), params))

    async def _serve_search(self, request: Request) -> Response:
        name, text = request.path_params["run"], request.query_params.get("text", "").strip()
        if len(text) < _SOUGHT:
            raise UserError(
                "the text is too short", where=text, fix=f"{_SOUGHT} characters or more"
            )
        return await self._answer_json(
            lambda: views.search_candidates(self.runs.find_path(name), text)
        )

    def _explanation(self, run: Path, wanted: str) -> JsonObject:
        """The explanation of an evaluation, cached while the state of the run is the same.

        A decision is derived from a replay, so it takes a second or more.
        """
        assert self._explain is not None, "asked for with a function to explain only"
        key = str(run), wanted, views.run_status(run).state, views.run_meta(run).created
        if key not in self._explanations or not wanted:
            explained = self._explain(run, wanted)
            rows = [reasons.action_row(each) for each in getattr(explained.decision, "options", ())]
            finalists = [
                {"id": each.id, "believed": reasons.believed_text(each)}
                for each in explained.finalists
            ]
            note = "" if explained.decision is None else reasons.options_note(explained.decision)
            document = msgspec.to_builtins(explained)
            more = {"rows": rows, "note": note, "believed": finalists}
            self._explanations[key] = document | more
            while len(self._explanations) > 64:  # explanations kept
                del self._explanations[next(iter(self._explanations))]
        return self._explanations[key]

    async def _serve_comparison(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        params = dict(request.query_params)
        compare_page = extensions.find_part("comparison_pages", "compare")
        if compare_page is None:
            return _json_response({"error": {"what": "no installed package compares runs"}}, 404)

        def make() -> JsonObject:
            lines = dict(self.runs.list_lines())
            readable = sorted(name for name, line in lines.items() if line.task)
            chosen = [name for name in readable if name in names or not names]
            first = min(_first_run(params.get("from")), max(0, len(chosen) - 1))
            first -= first % _COMPARED
            shown = [self.runs.digest(name) for name in chosen[first : first + _COMPARED]]
            unread = [
                {"name": name, "why": line.why} for name, line in sorted(lines.items()) if line.why
            ]
            return {
                **compare_page(shown, params),
                "names": readable,
                "unread": unread,
                "chosen": len(chosen),
                "first": first,
                "step": _COMPARED,
            }

        return await self._answer_json(make)

    async def _serve_stream(self, request: Request) -> Response:
        name = request.path_params.get("run", "")
        if name:
            await run_in_threadpool(self.runs.find_path, name)
        changes = self._streams.get(name)
        if changes is None:
            changes = self._streams[name] = self._change_stream(name)
        return StreamingResponse(changes.stream_events(), media_type="text/event-stream")

    def _change_stream(self, name: str) -> ChangeStream:
        if name:
            path = self.runs.find_path(name)
            return ChangeStream(
                lambda: (change_signature(path), _waiting_prompts(path)),
                lambda: {"seq": views.last_seq(path)},
            )
        paths = self.runs.paths
        return ChangeStream(
            lambda: [(n, change_signature(path)) for n, path in paths().items()],
            lambda: {"runs": len(paths())},
        )

    async def _serve_token_check(self, request: Request) -> Response:
        return _json_response({"writing": True})

    async def _serve_action(self, request: Request) -> Response:
        name, what = request.path_params["run"], request.path_params["what"]
        message = await _read_message(request)
        return await self._answer_json(
            lambda: perform_action(self.runs.find_path(name), what, message)
        )

    async def _answer_json(self, make: Callable[[], object]) -> Response:
        return _json_response(await run_in_threadpool(make))


def _first_run(text: str | None) -> int:
    """The index of the first run of a page; 0 for anything but a whole number."""
    return int(text) if text and text.isdigit() and len(text) < 9 else 0


def _waiting_prompts(run: Path) -> list[str]:
    """Numbers of the prompts that wait for a person; prompts are not events."""
    return [question.number for question in sidecar.waiting_questions(run)]


async def _read_message(request: Request) -> object:
    """The JSON of a request's body, which is never stored beyond the limit.

    A little more is read and dropped, so that the sender gets an answer; a larger body is not read
    to its end.
    """
    raw, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _FLOOD:
            break
        raw += chunk if size <= _BODY else b""
    if size > _BODY:
        raise UserError("the message is too large", fix=f"at most {_BODY:,} bytes")
    try:
        return json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        raise UserError("the message is not JSON, or nested too deeply") from None


def _json_response(document: object, status: int = 200) -> Response:
    return Response(encode_document(document), status, media_type="application/json")


def encode_document(document: object) -> bytes:
    """A document as JSON; NaN and infinities become null, lone surrogates stay as escapes."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(_finite_numbers(msgspec.to_builtins(document))).encode()


def _finite_numbers(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite_numbers(each) for key, each in value.items()}
    return [_finite_numbers(each) for each in value] if isinstance(value, list) else value


def _error_response(request: Request, error: CulmenError) -> Response:
    document = {"what": str(error), "where": "", "next": ""}
    if isinstance(error, UserError):
        document = {"what": error.what, "where": error.where, "next": error.fix}
    return _json_response({"error": document}, 404 if "there is no" in document["what"] else 400)


def bind_port(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1; port 0 selects any free port.

    Raises `UserError` if the port cannot be used.
    """
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise UserError(
            f"port {port} cannot be used: {error.strerror}",
            where="--port",
            fix="another port, or 0 for any",
        ) from None
    return listening


def serve_dashboard(
    dashboard: Dashboard, listening: socket.socket, ready: Callable[[], None]
) -> None:
    """Serve until interrupted; `ready` is called once requests are answered."""
    import uvicorn

    from culmen.store import schema

    assert schema.FORMAT  # load the database library before the first request

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            ready()

    config = uvicorn.Config(
        dashboard.app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it anew once it has ended
        Server(config).run(sockets=[listening])


# Server-sent events: a run's files are checked a few times a second, once for all listeners.

INTERVAL = 0.4  # seconds between two checks


class ChangeStream:
    """Watcher that sends changes to its listeners.

    It runs while there are listeners: `read_state` returns a value that changes with the watched
    object, `read_data` the data to send after a change. Both are called on a thread, so that a slow
    disk does not block the server.
    """

    def __init__(
        self, read_state: Callable[[], object], read_data: Callable[[], JsonObject]
    ) -> None:
        self._read_state, self._read_data = read_state, read_data
        self._listeners: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None

    async def stream_events(self) -> AsyncIterator[str]:
        """Events for one listener: the state now, then each change."""
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        queue.put_nowait(await self._format_event())
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch_changes())
        try:
            while True:
                try:
                    # seconds of silence after which a comment shows that the connection is alive
                    yield await asyncio.wait_for(queue.get(), 15.0)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._listeners.discard(queue)

    async def _watch_changes(self) -> None:
        seen = await asyncio.to_thread(self._read_state)
        while self._listeners:
            await asyncio.sleep(INTERVAL)
            now = await asyncio.to_thread(self._read_state)
            if now == seen:
                continue
            seen = now
            event = await self._format_event()
            for queue in self._listeners:
                if queue.full():  # a slow listener needs only the newest
                    queue.get_nowait()
                queue.put_nowait(event)

    async def _format_event(self) -> str:
        return f"data: {json.dumps(await asyncio.to_thread(self._read_data))}\n\n"


# Actions from the dashboard: the messages of `culmen runs stop` and `culmen runs tell`, labels,
# archiving, deletion.


def perform_action(run: Path, what: str, message: object) -> JsonObject:
    """Perform an action on a run and return its result; raises `UserError`.

    stop: `{"pause": bool}` · hint: `{"text": "..."}` · candidate: `{"parts": {name: text}}`: these
    return the message's id, and `taken`: True if a process runs the search. answer (to a prompt
    that waits for a person): `{"prompt": "0001", "text": "..."}`. labels: `{"tags": [...],
    "remark": "..."}`. archive, delete: `{}`.
    """
    if not isinstance(message, Mapping):
        raise UserError("the message is not a JSON object")
    if what == "labels":
        return _write_labels(run, message.get("tags"), message.get("remark"))
    if what == "answer":
        sidecar.answer_question(run, str(message.get("prompt", "")), str(message.get("text", "")))
        return {"taken": True}
    if what == "archive":
        return {"file": archive_run(run, remove=True).file}
    if what == "delete":
        delete_run(run)
        return {"deleted": str(run)}
    if what == "stop":
        sent = inbox.send_stop(run, pause=message.get("pause") is True)
    elif what == "hint":
        sent = inbox.send_hint(run, str(message.get("text", "")))
    elif what == "candidate":
        sent = inbox.send_candidate(run, _checked_parts(message.get("parts")))
    else:
        raise UserError(
            f"there is no action '{what}'",
            fix="stop, hint, candidate, answer, labels, archive or delete",
        )
    return {"id": sent.message.id, "taken": sent.live}


def _write_labels(run: Path, tags: object, remark: object) -> JsonObject:
    if (
        not isinstance(tags, list)
        or not all(isinstance(tag, str) for tag in tags)
        or not isinstance(remark, str)
    ):
        raise UserError("tags are a list of texts, the remark is a text")
    labels.replace_labels(run, tags, remark)
    return _read_labels(run)


def _read_labels(run: Path) -> JsonObject:
    found = labels.read_labels(run)
    return {"tags": found.tags, "remark": found.remark}


def _checked_parts(parts: object) -> dict[str, str]:
    if not isinstance(parts, Mapping) or not all(isinstance(text, str) for text in parts.values()):
        raise UserError("the candidate is not an object of texts")
    return {str(name): text for name, text in parts.items()}


# Access control: only browsers of this machine, from the dashboard's own pages; writing also needs
# the token.
#
# A web page elsewhere can make a browser send requests to 127.0.0.1. Such requests carry a foreign
# `Origin`, or, after DNS rebinding, a foreign `Host`; both are refused, for all paths.

LOCAL = ("127.0.0.1", "localhost", "::1")
TOKEN = "x-culmen-token"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every answer.

Trusted types: even a mistake in the pages cannot turn a text into markup.
"""


class Guard:
    """ASGI middleware that refuses foreign requests and unauthorised writing; adds `HEADERS`.

    Status 421 for a foreign host, 403 for a foreign origin, 401 for writing without the token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        status, why = self._check_request(scope["method"], headers)
        if status:
            await _send_refusal(send, status, why)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_raw_headers(HEADERS)]
            await send(message)

        await self._app(scope, receive, send_guarded)

    def _check_request(self, method: str, headers: dict[str, str]) -> tuple[int, str]:
        host = headers.get("host", "")
        if _host_name(host) not in LOCAL:
            return 421, "this server answers to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return 403, "the request comes from a page of another site"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "the request comes from a page of another site"
        if method in ("GET", "HEAD"):
            return 0, ""
        if not headers.get("content-type", "").startswith("application/json"):
            return 415, "send JSON"
        if not hmac.compare_digest(headers.get(TOKEN, "").encode(), self._token.encode()):
            return (
                401,
                "open the address that culmen ui printed: it contains the token required for "
                "writing",
            )
        return 0, ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _raw_headers(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _send_refusal(send: Send, status: int, why: str) -> None:
    raw = _raw_headers(
        {**HEADERS, "content-type": "text/plain; charset=utf-8", "content-length": str(len(why))}
    )
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": why.encode()})
