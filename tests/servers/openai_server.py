"""A real HTTP server on the loopback that speaks OpenAI's protocol and fails on demand."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.loopback import Loopback

Answer = Callable[[dict[str, Any]], str]

FAULTS = (
    "429",  # too many requests
    "429_after",  # the same, with Retry-After
    "500",
    "hang",  # nothing is sent until the server is closed
    "cut",  # the connection breaks in the middle of the body
    "length",  # the reply breaks off with finish_reason length
    "html",  # an error page with status 200
    "no_choices",  # choices: null
    "no_content",  # content: null
    "garbage",  # broken JSON with status 200
    "refusal",
    "empty",  # content: ""
    "400",
    "401",
    "404",
)

SCRIPTED = """
[providers.local]
base_url = "{url}"
[models.scripted]
provider = "local"
price = {{ input = 1.0, output = 4.0 }}
"""  # a models.toml with one priced model of such a server


class OpenAIServer(Loopback):
    """`with OpenAIServer(answer) as server:` serves at `server.url`.

    The endpoints are /v1/chat/completions and /v1/embeddings.

    answer   the reply's text, or a function from the request's body to it
    faults   what goes wrong: an iterable of names of `FAULTS` ("" for none) used up request by request, or a mapping
             name -> probability drawn with `seed`; `server.fail(...)` adds more while it runs
    retry_after   the wait that "429_after" demands, seconds

    `headers` are sent with every response. `requests` are the bodies received, `outcomes` counts
    answers by fault name ("ok" for none), `billed` sums tokens of replies that state their usage,
    `keys` the Authorization headers seen.
    """

    def __init__(
        self,
        answer: str | Answer = "hello",
        faults: Iterable[str] | Mapping[str, float] = (),
        *,
        seed: int = 0,
        retry_after: float = 1.0,
        width: int = 8,
    ) -> None:
        self._answer = answer if callable(answer) else lambda _: answer
        self._rates = dict(faults) if isinstance(faults, Mapping) else {}
        self._queue = [] if isinstance(faults, Mapping) else list(faults)
        unknown = {*self._rates, *self._queue} - {*FAULTS, ""}
        if unknown:
            raise ValueError(f"unknown faults {sorted(unknown)}; known are {FAULTS}")
        self._rng, self._lock, self._ended = (
            random.Random(seed),
            threading.Lock(),
            threading.Event(),
        )
        self.retry_after, self.width = retry_after, width
        self.headers: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        self.billed: Counter[str] = Counter()
        super().__init__(_Handler)

    @property
    def url(self) -> str:
        """The base URL, ending in /v1."""
        return f"{super().url}/v1"

    def fail(self, *names: str) -> None:
        """Let the next requests fail like this."""
        with self._lock:
            self._queue.extend(names)

    def ending(self) -> None:
        """Release everything that waits."""
        self._ended.set()

    def wait_for_end(self) -> None:
        """Block a request's thread until the server is closed."""
        self._ended.wait()

    def take(self, body: dict[str, Any], key: str) -> str:
        """Note a request and draw its fault."""
        with self._lock:
            self.requests.append(body)
            self.keys.add(key)
            fault = self._queue.pop(0) if self._queue else self._draw()
            self.outcomes[fault or "ok"] += 1
            return fault

    def chat(self, body: dict[str, Any], fault: str) -> dict[str, Any]:
        """The body of a chat completion."""
        choices = [self._choice(body, index, fault) for index in range(int(body.get("n", 1)))]
        usage = {
            "prompt_tokens": sum(len(m["content"]) for m in body["messages"]) // 4 + 1,
            "completion_tokens": sum(len(c["message"]["content"] or "") // 4 + 1 for c in choices),
        }
        self._bill(usage)
        return {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": body.get("model", ""),
            "choices": None if fault == "no_choices" else choices,
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }

    def embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of an embeddings reply: `width` numbers drawn from the text's digest."""
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        usage = {"prompt_tokens": sum(len(text) // 4 + 1 for text in texts)}
        self._bill(usage)
        data = [
            {"object": "embedding", "index": i, "embedding": self._vector(t)}
            for i, t in enumerate(texts)
        ]
        return {
            "object": "list",
            "model": body.get("model", ""),
            "data": data[::-1],
            "usage": usage,
        }

    def _choice(self, body: dict[str, Any], index: int, fault: str) -> dict[str, Any]:
        text: str | None = self._answer(body)
        message: dict[str, Any] = {"role": "assistant"}
        if fault == "length":
            text = text[: len(text) // 2]
        elif fault == "refusal":
            text, message["refusal"] = None, "I cannot help with that."
        elif fault in ("no_content", "empty"):
            text = None if fault == "no_content" else ""
        finish = "length" if fault == "length" else "stop"
        return {"index": index, "finish_reason": finish, "message": {**message, "content": text}}

    def _draw(self) -> str:
        names = list(self._rates)
        return self._rng.choices(
            [*names, ""], [*self._rates.values(), max(0.0, 1 - sum(self._rates.values()))]
        )[0]

    def _bill(self, usage: Mapping[str, int]) -> None:
        with self._lock:
            self.billed.update(usage)

    def _vector(self, text: str) -> list[float]:
        raw = hashlib.shake_256(text.encode("utf-8", "replace")).digest(4 * self.width)
        return [value / 2**31 - 1 for value in struct.unpack(f"<{self.width}I", raw)]


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client; `served` is set by the server."""

    served: OpenAIServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else the body of a reply waits 40 ms until the client has confirmed its head
    )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        fault = self.served.take(body, self.headers.get("Authorization", ""))
        if fault == "hang":
            self.served.wait_for_end()
            self.close_connection = True
        elif fault[:1].isdigit():
            self._refuse(fault)
        elif fault in ("html", "garbage"):
            html = fault == "html"
            self._send(
                200,
                b"<html><body>Bad gateway</body></html>" if html else b'{"choices": [{',
                html=html,
            )
        else:
            chat = self.path.endswith("/chat/completions")
            self._send(
                200,
                json.dumps(
                    self.served.chat(body, fault) if chat else self.served.embeddings(body)
                ).encode(),
                fault,
            )

    def _refuse(self, fault: str) -> None:
        headers = dict(self.served.headers)
        if fault == "429_after":
            headers["Retry-After"] = f"{self.served.retry_after:g}"
        message = f"error {fault[:3]}; you sent {self.headers.get('Authorization', '')}"
        self._send(
            int(fault[:3]), json.dumps({"error": {"message": message}}).encode(), headers=headers
        )

    def _send(
        self,
        status: int,
        body: bytes,
        fault: str = "",
        *,
        html: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if html else "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (self.served.headers if headers is None else headers).items():
            self.send_header(name, value)
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
