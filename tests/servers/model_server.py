"""A scripted model on the loopback that speaks all four wire formats.

It drives real agents without a provider.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from culmen.models.call import Tokens
from tests.servers.loopback import Loopback
from tests.servers.model_openai import Chat, Responses
from tests.servers.model_others import Gemini, Messages
from tests.servers.model_script import Asked, Script, Turn, counted, play

FAULTS = (
    "400",
    "401",
    "404",
    "429",
    "429_after",  # with Retry-After
    "500",
    "529",  # overloaded
    "hang",  # nothing is sent until `release` or the end
    "stall",  # the first half is sent, the rest after `release`
    "cut",  # the connection breaks in the middle
    "garbage",  # broken JSON, in a stream in the middle of it
    "html",  # an error page with status 200
    "no_usage",  # the reply does not tell what it cost
    "error_event",  # a stream ends with an error in the format's own words
)

_PATHS = (
    (re.compile(r"/v1/chat/completions"), "chat", ""),
    (re.compile(r"/v1/responses"), "responses", ""),
    (re.compile(r"/v1/messages"), "messages", ""),
    (re.compile(r"/v1/messages/count_tokens"), "messages", "count"),
    (re.compile(r"/v1beta/models/([^:]+):generateContent"), "gemini", ""),
    (re.compile(r"/v1beta/models/([^:]+):streamGenerateContent"), "gemini", "stream"),
    (re.compile(r"/v1beta/models/([^:]+):countTokens"), "gemini", "count"),
)
_DIALECTS = {"chat": Chat(), "responses": Responses(), "messages": Messages(), "gemini": Gemini()}


class ModelServer(Loopback):
    """`with ModelServer(script) as server:` serves at `server.url`.

    The formats are chat, responses, messages and Gemini.

    script   turns that are given out by how often the model has spoken in a conversation, or a function of the
             request (`tests.servers.model_script.Asked`): it sees the conversation, what tools gave and which there
             are; `asked.shell(command)` and `asked.write(path, text)` make calls of the agent's own tools
    faults   names of `FAULTS` ("" for none), used up request by request; `fail` adds more
    models   what the lists of models name

    `asked` are the requests in their order, `paths` counts all requests by method and path, `keys`
    are the credentials seen, `headers` those of the last request, `billed` the tokens of all
    replies made, reported or not, `errors` what the script raised, `ended` counts how replies ended
    (ok, a fault's name, or left: the client had gone). A reply is counted in `ended` after its last
    byte was sent: wait for it.
    """

    def __init__(
        self, script: Script, faults: Iterable[str] = (), *, models: Iterable[str] = ("scripted",)
    ) -> None:
        self._script, self._queue, self.models = script, list(faults), list(models)
        self._check(self._queue)
        self._lock, self._gate, self._over = threading.Lock(), threading.Event(), False
        self.asked: list[Asked] = []
        self.paths: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.headers: dict[str, str] = {}
        self.billed: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.errors: list[str] = []
        super().__init__(_Handler)

    def fail(self, *names: str) -> None:
        """Let the next requests fail like this."""
        self._check(names)
        with self._lock:
            self._queue.extend(names)

    def release(self) -> None:
        """Let what hangs or stalls go on; later ones do not wait."""
        self._gate.set()

    def ending(self) -> None:
        """Release everything that waits."""
        self._over = True
        self._gate.set()

    def wait(self) -> bool:
        """Block a request's thread until `release` or the end; whether it may go on."""
        self._gate.wait()
        return not self._over

    def take(self, asked: Asked) -> str:
        """Note a request; the fault it is to meet."""
        with self._lock:
            self.asked.append(asked)
            return self._queue.pop(0) if self._queue else ""

    def arrived(self, what: str, keys: Iterable[str], headers: dict[str, str]) -> None:
        """Note who came."""
        with self._lock:
            self.paths[what] += 1
            self.keys.update(key for key in keys if key)
            self.headers = headers

    def turn(self, asked: Asked) -> Turn:
        """The turn of the script, one request at a time."""
        with self._lock:
            try:
                return play(self._script, asked)
            except Exception as error:
                self.errors.append(repr(error))
                raise

    def bill(self, tokens: Tokens) -> None:
        """Note what a reply cost."""
        with self._lock:
            self.billed.update(input=tokens.input, output=tokens.output, cached=tokens.cached)

    def settle(self, outcome: str) -> None:
        """Note how a reply ended."""
        with self._lock:
            self.ended[outcome] += 1

    def _check(self, names: Iterable[str]) -> None:
        if unknown := set(names) - {*FAULTS, ""}:
            raise ValueError(f"unknown faults {sorted(unknown)}; known are {FAULTS}")


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client; `served` is set by the server."""

    served: ModelServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self._arrive()
        if not path.endswith("/models"):
            self._send(404, {"error": {"message": f"no {path}"}})
        elif path.startswith("/v1beta"):
            self._send(200, {"models": [{"name": f"models/{name}"} for name in self.served.models]})
        else:
            listed = [
                {"id": name, "object": "model", "created": 0, "owned_by": "script"}
                for name in self.served.models
            ]
            self._send(200, {"object": "list", "data": listed})

    def do_POST(self) -> None:
        path = self._arrive()
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for pattern, name, kind in _PATHS:
            if (match := pattern.fullmatch(path)) is not None:
                model = match[1] if match.groups() else ""
                self._model(name, kind, model, json.loads(raw))
                return
        self._send(404, {"error": {"message": f"no {path}"}})

    def _arrive(self) -> str:
        parts = urlsplit(self.path)
        names = ("Authorization", "x-api-key", "x-goog-api-key")
        keys = [self.headers.get(name, "") for name in names]
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.served.arrived(f"{self.command} {parts.path}", keys, headers)
        return parts.path

    def _model(self, name: str, kind: str, model: str, body: dict[str, Any]) -> None:
        dialect = _DIALECTS[name]
        asked = dialect.asked(body, model, kind == "stream")
        if kind == "count":
            tokens = len(json.dumps(body)) // 4 + 1
            self._send(
                200, {"input_tokens": tokens} if name == "messages" else {"totalTokens": tokens}
            )
            return
        fault = self.served.take(asked)
        if fault[:1].isdigit():
            self._refuse(dialect, fault)
        elif fault == "hang" and not self.served.wait():
            self.close_connection = True
            self.served.settle("hang")
        elif fault == "html" or (fault == "garbage" and not asked.stream):
            self._send(
                200,
                b"<html><body>Bad gateway</body></html>" if fault == "html" else b'{"choices": [{',
            )
            self.served.settle(fault)
        else:
            self._reply(dialect, asked, fault)

    def _reply(self, dialect: Any, asked: Asked, fault: str) -> None:
        turn = self.served.turn(asked)
        cost = counted(turn, asked)
        self.served.bill(cost)
        tokens = None if fault == "no_usage" else cost
        if asked.stream:
            parts = list(dialect.events(asked, turn, tokens))
            half = len(parts) // 2
            if fault in ("garbage", "error_event"):
                parts[half:] = [
                    b'data: {"choices": [{\n\n'
                    if fault == "garbage"
                    else dialect.broken("overloaded")
                ]
        else:
            content = json.dumps(dialect.whole(asked, turn, tokens)).encode()
            parts, half = [content[: len(content) // 2], content[len(content) // 2 :]], 1
        try:
            self._parts(asked.stream, parts, half, fault)
        except OSError:
            self.close_connection, fault = True, "left"
        self.served.settle(fault or "ok")

    def _parts(self, stream: bool, parts: list[bytes], half: int, fault: str) -> None:
        """Send a reply: all of its parts, or the first half and a cut connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        length = (
            ("Transfer-Encoding", "chunked")
            if stream
            else ("Content-Length", str(sum(map(len, parts))))
        )
        self.send_header(*length)
        self.end_headers()
        self._write(parts[:half], stream)
        if fault == "cut" or (fault == "stall" and not self.served.wait()):
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self._write(parts[half:], stream)
            self._write([b""] if stream else [], stream)

    def _write(self, parts: list[bytes], stream: bool) -> None:
        for part in parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if stream else part)
            self.wfile.flush()

    def _refuse(self, dialect: Any, fault: str) -> None:
        status = int(fault[:3])
        shown = self.headers.get("Authorization", "") or self.headers.get("x-api-key", "")
        shown = shown or self.headers.get("x-goog-api-key", "")
        headers = {"Retry-After": "1"} if fault == "429_after" else {}
        self._send(status, dialect.error(status, f"error {status}; you sent {shown}"), headers)
        self.served.settle(fault)

    def _send(
        self, status: int, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if content[:1] == b"<" else "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
