"""Requests to one OpenAI-compatible server: POST of JSON, and the errors of its failures.

One attempt a call; retries and deadlines are the caller's.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import msgspec

from culmen.core import VERSION
from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.llm.call import BadResponse, Declined, Interrupted, RateLimited, ServerFailed
from culmen.llm.connections import (
    CONNECT_SECONDS,
    LONGEST_BODY,
    Broken,
    Connections,
    NotConnected,
    Response,
)
from culmen.llm.spec import Key

if TYPE_CHECKING:
    import httpx2

OPENAI = "https://api.openai.com/v1"
_MAYBE_SERVED = (504, 524)  # a gateway stopped waiting; the provider may bill what it made
_TOO_LONG = (
    "context_length_exceeded",
    "string_above_max_length",
    "maximum context length",
    "too many tokens",
)
_FILTERED = ("content_filter", "content_policy", "content management policy")
_KEPT = 100  # connections that wait for the next request
_REDIRECTED, _PERMANENT = (301, 302, 307, 308), (301, 308)  # a POST stays one
_REDIRECTS = 5  # addresses that one request is sent to, at most
_RAW_KEPT = 20_000  # characters of a response that cannot be used
_ACCOUNT = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}  # headers, and variables


class Endpoint:
    """One provider's address and key.

    Connections are made when first needed, and kept. `note_headers` gets the headers of each
    response.
    """

    def __init__(
        self,
        key: Key,
        base_url: str | None = None,
        timeout: float = 300.0,
        *,
        note_headers: Callable[[Mapping[str, str]], None] | None = None,
    ) -> None:
        self.key, self.base_url, self._timeout = key, (base_url or OPENAI).rstrip("/"), timeout
        self._note_headers = note_headers
        self._address = self.base_url  # where permanent redirects have led to
        self._headers: dict[str, str] = {}
        # by scheme, host and port; None if only the general client leads there
        self._connections: dict[str, Connections | None] = {}
        self._client: httpx2.AsyncClient | None = None

    async def post(self, path: str, body: JsonObject) -> str:
        """The text of the response to the JSON `body`, sent to `path` below the address.

        Raises the typed errors of `culmen.llm.call`, and `UserError` for a missing or wrong key, an
        invalid address, an unknown model, or a redirect to another host. Exceptions of the clients
        may hold request headers, so they are never chained.
        """
        self._headers = self._headers or self._authorized_headers()
        response = await self._try_post(path, body)
        if isinstance(response, Exception):
            raise response
        return response

    async def _try_post(self, path: str, body: JsonObject) -> str | Exception:
        """The response's text, or the error.

        It is raised elsewhere, so that its traceback does not show the response.
        """
        try:
            response = await self._send_content(path, msgspec.json.encode(body))
        except UnicodeError:
            return Declined("bad_request", "the request holds text that is not valid Unicode")
        except NotConnected as error:
            return ServerFailed("no_connection", self.key.scrub(str(error))[:200])
        except Broken as error:  # in the middle: it may have cost as much as a whole reply
            return Interrupted("cut", self.key.scrub(str(error))[:200])
        except TimeoutError:
            return Interrupted("timeout")
        except UserError as error:
            return error.with_traceback(None)
        if self._note_headers is not None:
            self._note_headers(response.headers)
        if not 200 <= response.status < 300:
            return status_error(
                response.status, response.text, response.headers, self.key, str(body["model"])
            )
        if response.fault:
            return BadResponse(response.fault, raw=response.text[:_RAW_KEPT])
        return response.text

    async def _send_content(self, path: str, content: bytes) -> Response:
        """Send, and follow redirects. Raises `UserError` for one that is not to be followed."""
        address = self._address + path
        for _ in range(_REDIRECTS):
            response = await self._send_to(address, content)
            if response.status not in _REDIRECTED:
                return response
            target = redirect_target(address, response.headers.get("location", ""), self.key)
            if response.status in _PERMANENT and target.endswith(path):
                self._note_move(address, target, target.removesuffix(path))
            address = target
        raise UserError(
            f"the provider redirects requests more than {_REDIRECTS - 1} times",
            where=f"base_url {self.base_url}",
            fix="check base_url",
        )

    def _note_move(self, old: str, new: str, address: str) -> None:
        if old.startswith("http:") and new.startswith("https:") and address != self._address:
            logging.getLogger("culmen.llm").warning(
                "%s redirects to https, after the key went there unencrypted: set base_url to %s",
                self.base_url,
                address,
            )
        self._address = address

    async def _send_to(self, address: str, content: bytes) -> Response:
        """Send over our own connections, or by the general client if those do not lead there."""
        parts = urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._connections:
            is_plain = Connections.is_plain_address(address)
            self._connections[origin] = Connections(origin) if is_plain else None
        connections = self._connections[origin]
        if connections is None:
            return await self._send_by_httpx(address, content)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        return await connections.post(target or "/", self._headers, content, self._timeout)

    async def _send_by_httpx(self, address: str, content: bytes) -> Response:
        """Send by `httpx2`, which knows proxies."""
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(
                    self._timeout, connect=min(CONNECT_SECONDS, self._timeout), pool=None
                ),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT),
                follow_redirects=False,
            )
        body = bytearray()
        try:
            async with self._client.stream(
                "POST", address, content=content, headers=self._headers
            ) as response:
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > LONGEST_BODY:
                        break
            return Response.from_content(response.status_code, response.headers, bytes(body))
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise NotConnected(f"{type(error).__name__}: {error}") from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            raise _no_address(self.base_url) from None
        except httpx2.HTTPError as error:
            raise Broken(f"{type(error).__name__}: {error}") from None

    def _authorized_headers(self) -> dict[str, str]:
        """The headers of every request.

        Raises `UserError` for a missing or malformed key, and for an invalid address.
        """
        if not _is_address(self.base_url):
            raise _no_address(self.base_url)
        key = self.key.reveal()
        headers = _request_headers(key, self.base_url)
        sources = {name: f"the environment variable {source}" for name, source in _ACCOUNT.items()}
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                what = "the API key" if name == "Authorization" else sources.get(name, name)
                raise UserError(
                    f"{what} contains characters that are not valid in a key",
                    where=self.key.source_name,
                    fix="copy the key again",
                )
        return headers

    async def close(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, {}
        client, self._client = self._client, None
        for kept in connections.values():
            if kept is not None:
                kept.close()
        if client is not None:
            await client.aclose()


def _is_address(address: str) -> bool:
    """True for an address of HTTP whose parts can be sent."""
    try:
        parts = urlsplit(address)
        is_sound = parts.port != 0 and bool(parts.hostname and parts.hostname.encode("idna"))
    except ValueError:  # a port or a host that is none
        return False
    visible = all("!" <= char <= "~" for char in parts.path + parts.query)
    return is_sound and visible and parts.scheme in ("http", "https")


def _no_address(base_url: str) -> UserError:
    return UserError("not an address", where=f"base_url {base_url}", fix="http(s)://HOST/v1")


def redirect_target(address: str, location: str, key: Key) -> str:
    """The address that a redirect of a request to `address` leads to.

    A request carries the key, the prompt and the program. So it stays at the host and the port, or
    goes from http to https at the same host; raises `UserError` for anything else.
    """
    old, target = urlsplit(address), ""
    if location:
        with contextlib.suppress(ValueError):
            target = urljoin(address, location).partition("#")[0]
    if _is_address(target):
        new = urlsplit(target)
        is_open = new.netloc == old.netloc or "@" not in new.netloc
        is_same = (new.scheme, new.port) == (old.scheme, old.port)
        is_upgrade = (old.scheme, new.scheme) == ("http", "https")
        if is_open and new.hostname == old.hostname and (is_same or is_upgrade):
            return target
    shown = key.scrub(target or location or "nowhere")[:200]
    raise UserError(
        f"the provider redirects requests to {shown}: they carry the key, prompts and programs, so "
        "only https at the same host is followed",
        where=f"base_url {address}",
        fix="set base_url to the address that serves the model, if you trust it",
    )


def _request_headers(key: str, base_url: str) -> dict[str, str]:
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"culmen/{VERSION}",
    }
    if base_url == OPENAI:
        headers |= {
            name: os.environ[source] for name, source in _ACCOUNT.items() if os.environ.get(source)
        }
    return headers


def status_error(
    status: int, content: str, headers: Mapping[str, str], key: Key, model: str
) -> Exception:
    """The error for a status other than 2xx; `content` is the response's body."""
    text = key.scrub(refusal_message(content[:_RAW_KEPT]))[:500]
    if status in (401, 403, 404):
        return _access_error(status, key, model, text)
    if status == 402 or "insufficient_quota" in text:
        return Unavailable(
            f"the provider reports that the account has no credit left: {text[:200]}",
            where=key.source_name,
        )
    if status == 429:
        return RateLimited(text, retry_after=retry_after(headers))
    if status in _MAYBE_SERVED:
        return Interrupted("gateway_timeout", text)
    if status >= 500 or status in (408, 409, 425):
        return ServerFailed("server_error", text)
    if status == 413 or any(mark in text for mark in _TOO_LONG):
        return Declined("too_long", text, raw=text)
    return Declined(
        "refused" if any(mark in text for mark in _FILTERED) else "bad_request", text, raw=text
    )


def refusal_message(content: str) -> str:
    """The message of a refusal: code and message of the body's `error`, else the body itself."""
    try:
        error = json.loads(content)["error"]
        fields = {"code": error} if isinstance(error, str) else dict(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return content
    return (
        " ".join(str(fields[name]) for name in ("code", "type", "message") if fields.get(name))
        or content
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, or None.

    From `retry-after-ms`, or `Retry-After` in seconds or as a date.
    """
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _seconds_until(value)
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _seconds_until(date: str) -> float:
    """Seconds until a date in a header, negative if it is none."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError, OSError):
        return -1.0


def _access_error(status: int, key: Key, model: str, text: str) -> UserError:
    if status == 404:
        return UserError(
            f"the provider does not have the model '{model}'",
            where=text[:200],
            fix="check --model and base_url",
        )
    what = "rejects the API key" if status == 401 else f"denies access to '{model}'"
    return UserError(
        f"the provider {what} (status {status})",
        where=key.source_name,
        fix="check that key and its rights",
    )
