"""Chat servers with a meter, which report what they bill in many ways, or not at all.

A token is `token_bytes` bytes of a prompt or a reply, rounded up.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any

from culmen.models.call import Tokens
from culmen.models.spec import Price
from tests.servers.loopback import Loopback

PRICE = Price(input=1.0, output=4.0)

REPORTS: dict[str, Callable[[Tokens], object]] = {
    "counts": lambda used: {"prompt_tokens": used.input, "completion_tokens": used.output},
    "counts as texts": lambda used: {
        "prompt_tokens": str(used.input),
        "completion_tokens": str(used.output),
    },
    "the total alone": lambda used: {"total_tokens": used.input + used.output},
    "the total as a text": lambda used: {"total_tokens": str(used.input + used.output)},
    "the reply and the total": lambda used: {
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
    },
    "zeros": lambda used: {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "words": lambda used: {"prompt_tokens": "few", "completion_tokens": "many"},
    "nothing": lambda used: None,
}
"""What a server reports of the tokens that it bills, in the field `usage` of its reply."""


class BillingServer(Loopback):
    """`with BillingServer() as server:` serves chat completions at `server.url`.

    report       a name of `REPORTS`
    token_bytes  bytes of a token of its tokenizer
    errors       of ten requests, those that are billed in full and answered with a status of 500
    reply        bytes of a reply, on the average
    counted      the last of this number of replies has counts, in spite of `report` (0: none)

    `calls`, `tokens` and `dollars` are what it has billed.
    """

    def __init__(
        self,
        report: str = "counts",
        *,
        token_bytes: float = 4.0,
        errors: int = 0,
        reply: int = 1200,
        counted: int = 0,
        random_seed: int = 0,
    ) -> None:
        self._report, self._token_bytes, self._errors = REPORTS[report], token_bytes, errors
        self._reply, self._counted, self._rng = reply, counted, Random(random_seed)
        self._lock = threading.Lock()
        self.calls, self.tokens, self.dollars = 0, 0, 0.0
        super().__init__(_Handler)

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body for a request, which is billed."""
        with self._lock:
            length = round(self._reply * (0.5 + self._rng.random()))
            is_error = self._rng.randrange(10) < self._errors
            text = f"```python\nVALUE = {self._rng.random() * 1e6}\n```\n"
        text = text.replace("VALUE", f"# {'a step, ' * (length // 8)}\nVALUE")
        prompt = sum(len(message["content"].encode()) for message in request["messages"])
        written, most = math.ceil(len(text) / self._token_bytes), request["max_tokens"]
        used = Tokens(math.ceil(prompt / self._token_bytes), min(written, most))
        with self._lock:
            self.calls += 1
            is_counted = self._counted > 0 and self.calls % self._counted == 0
            self.tokens += used.input + used.output
            self.dollars += PRICE.cost_of_tokens(used)
        if is_error:
            return 500, {"error": {"message": "out of memory"}}
        shown = text[: math.floor(used.output * self._token_bytes)]
        finish = "length" if written > most else "stop"
        choice = {"message": {"role": "assistant", "content": shown}, "finish_reason": finish}
        report = REPORTS["counts"] if is_counted else self._report
        return 200, {"choices": [choice], "usage": report(used)}


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client; `served` is set by the server."""

    served: BillingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.served.answer(request)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
