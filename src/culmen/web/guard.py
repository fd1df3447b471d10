"""Who may talk to the dashboard: browsers of this machine, from its own pages; writing takes the token, too.

A web page elsewhere can make a browser send requests to 127.0.0.1. Such requests carry a foreign `Origin`, or, after
DNS rebinding, a foreign `Host`; both are refused, whatever they ask for.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

LOCAL = ("127.0.0.1", "localhost", "::1")
TOKEN = "x-culmen-token"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every answer. Trusted types: even a mistake in the pages cannot turn a text into markup."""


class Guard:
    """ASGI middleware: refuses what is foreign (421, 403) and writes without the token (401); adds `HEADERS`."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        status, why = self._refusal(scope["method"], headers)
        if status:
            await _refuse(send, status, why)
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_raw(HEADERS)]
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str]:
        host = headers.get("host", "")
        if _name(host) not in LOCAL:
            return 421, "this server answers to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return 403, "a page from elsewhere asked"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "a page from elsewhere asked"
        if method in ("GET", "HEAD"):
            return 0, ""
        if not headers.get("content-type", "").startswith("application/json"):
            return 415, "send JSON"
        if not hmac.compare_digest(headers.get(TOKEN, "").encode(), self._token.encode()):
            return 401, "open the address that culmen ui printed: it carries the token that writing takes"
        return 0, ""


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _refuse(send: Send, status: int, why: str) -> None:
    raw = _raw({**HEADERS, "content-type": "text/plain; charset=utf-8", "content-length": str(len(why))})
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": why.encode()})
