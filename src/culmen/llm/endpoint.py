"""Requests to one OpenAI-compatible server: POST of JSON, and the errors of its failures.

One attempt a call; retries and deadlines are the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import h11
import msgspec

from culmen.core import VERSION
from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.llm.call import Declined, Interrupted, RateLimited, ServerFailed
from culmen.llm.spec import Key

if TYPE_CHECKING:
    import ssl

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
_CONNECT_SECONDS = 30.0
_ACCOUNT = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}  # headers, and variables


class Endpoint:
    """One provider's address and key.

    Connections are made when first needed, and kept.
    """

    def __init__(self, key: Key, base_url: str | None = None, timeout: float = 300.0) -> None:
        self.key, self.base_url, self._timeout = key, (base_url or OPENAI).rstrip("/"), timeout
        self._headers: dict[str, str] = {}
        self._connections: Connections | None = None
        self._client: httpx2.AsyncClient | None = None

    async def post(self, path: str, body: JsonObject) -> str:
        """The text of the response to the JSON `body`, sent to `path` below the address.

        Raises the typed errors of `culmen.llm.call`, and `UserError` for a missing or wrong key, an
        invalid address, or an unknown model. Exceptions of the clients may hold request headers, so
        they are never chained.
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
        if 200 <= response.status < 300:
            return response.text
        return status_error(
            response.status, response.text, response.headers, self.key, str(body["model"])
        )

    async def _send_content(self, path: str, content: bytes) -> Response:
        """Send over our own connections, or by the general client if those do not lead there."""
        if (
            self._client is None
            and self._connections is None
            and Connections.is_plain_address(self.base_url)
        ):
            self._connections = Connections(self.base_url)
        if self._connections is not None:
            response = await self._connections.post(path, self._headers, content, self._timeout)
            if not response.needs_general_client:
                return response
            self._connections.close()
            self._connections = None
        return await self._send_by_httpx(path, content)

    async def _send_by_httpx(self, path: str, content: bytes) -> Response:
        """Send by `httpx2`: proxies, redirects, compression."""
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(
                    self._timeout, connect=min(_CONNECT_SECONDS, self._timeout), pool=None
                ),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT),
                follow_redirects=True,
            )
        try:
            headers = {**self._headers, "Accept-Encoding": "gzip, deflate"}
            response = await self._client.post(
                self.base_url + path, content=content, headers=headers
            )
            return Response(response.status_code, response.headers, response.text)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise NotConnected(f"{type(error).__name__}: {error}") from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            mistake = UserError(
                f"not an address: {error}",
                where=f"base_url {self.base_url}",
                fix="http(s)://HOST/v1",
            )
            raise mistake from None
        except httpx2.HTTPError as error:
            raise Broken(f"{type(error).__name__}: {error}") from None

    def _authorized_headers(self) -> dict[str, str]:
        """The headers of every request. Raises `UserError` for a missing or malformed key."""
        key = self.key.reveal()
        if not (key.isascii() and key.isprintable()):
            raise UserError(
                "the API key contains characters that are not valid in a key",
                where=self.key.source_name,
                fix="copy the key again",
            )
        return _request_headers(key, self.base_url)

    async def close(self) -> None:
        """Close the connections."""
        connections, self._connections = self._connections, None
        client, self._client = self._client, None
        if connections is not None:
            connections.close()
        if client is not None:
            await client.aclose()


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
    text = key.scrub(refusal_message(content))[:500]
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
            date = email.utils.parsedate_tz(value)
            seconds = -1.0 if date is None else email.utils.mktime_tz(date) - time.time()
        if 0 <= seconds < float("inf"):
            return seconds
    return None


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


# POST requests over kept HTTP/1.1 connections: the part of a client that a model call needs, at a
# quarter of its cost.
#
# `h11` reads and writes the protocol, asyncio moves the bytes. There are no redirects, no proxies
# and no compression: `Connections.is_plain_address` is False for an address that needs them, and
# the general client is used.

# an idle connection is not used again after this time: the server may be about to close it
_IDLE_SECONDS = 5.0
_CHUNK = 1 << 16
_NOT_FOLLOWED = range(300, 400)


class NotConnected(Exception):
    """No connection: the request was not sent."""


class Broken(Exception):
    """The connection ended before the whole response arrived."""


class Response(NamedTuple):
    """Status, headers with lower-case names, and the body as text."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def needs_general_client(self) -> bool:
        """True if the server redirects, or encodes the body in an unrequested form."""
        return (
            self.status in _NOT_FOLLOWED
            or self.headers.get("content-encoding", "identity") != "identity"
        )


class Connections:
    """Connections to the server of one address.

    They belong to one event loop; close them there.
    """

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._secure, self._host, self._path = (
            parts.scheme == "https",
            parts.hostname or "",
            parts.path,
        )
        self._port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc.rpartition("@")[2].encode(
            "idna" if not parts.netloc.isascii() else "ascii"
        )
        self._context: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []

    @staticmethod
    def is_plain_address(base_url: str) -> bool:
        """True if a plain connection leads to this address: no proxy, no credentials in it."""
        parts = urlsplit(base_url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or "@" in parts.netloc
            or parts.query
        ):
            return False
        proxies = getproxies()
        return not (parts.scheme in proxies or "all" in proxies) or bool(
            proxy_bypass(parts.hostname)
        )

    async def post(
        self, path: str, headers: Mapping[str, str], content: bytes, timeout: float
    ) -> Response:
        """Send one request and read its response.

        Raises `NotConnected`, `Broken` and, after `timeout` seconds without a byte, TimeoutError.
        """
        connection = self._take_idle() or await self._open_connection(timeout)
        try:
            response = await connection.post(
                self._authority, self._path + path, headers, content, timeout
            )
        except BaseException:
            connection.close()
            raise
        if connection.start_next_request():
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> _Connection | None:
        """The latest idle connection that is still open."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _open_connection(self, timeout: float) -> _Connection:
        if self._secure and self._context is None:
            import httpx2

            self._context = (
                httpx2.create_ssl_context()
            )  # the machine's certificates, as that client finds them
        try:
            async with asyncio.timeout(min(timeout, _CONNECT_SECONDS)):
                streams = await asyncio.open_connection(
                    self._host, self._port, ssl=self._context, happy_eyeballs_delay=0.25
                )
        except (OSError, UnicodeError) as error:  # a TimeoutError is one, too
            raise NotConnected(f"{type(error).__name__}: {error}") from None
        return _Connection(*streams)


class _Connection:
    """One connection; for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)
        self._used = time.monotonic()

    async def post(
        self,
        authority: bytes,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout: float,
    ) -> Response:
        """Send the request, and read the response."""
        fields = [("Host", authority), *headers.items(), ("Content-Length", str(len(content)))]
        request = h11.Request(method="POST", target=path, headers=fields)
        http, head, body = self._http, None, bytearray()
        try:
            self._writer.writelines(
                [http.send(request) or b"", http.send(h11.Data(data=content)) or b""]
            )
            http.send(h11.EndOfMessage())
            async with asyncio.timeout(timeout):
                await self._writer.drain()
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    async with asyncio.timeout(timeout):
                        http.receive_data(await self._reader.read(_CHUNK))
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    break
        except TimeoutError:
            raise
        except (OSError, h11.RemoteProtocolError) as error:
            raise Broken(f"{type(error).__name__}: {error}") from None
        if head is None:
            raise Broken("the server closed the connection without a response")
        response_headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers
        }
        return Response(head.status_code, response_headers, body.decode("utf-8", "replace"))

    def start_next_request(self) -> bool:
        """True if the connection can serve another request; prepares it for one."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not done or self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        self._used = time.monotonic()
        return True

    def is_usable(self) -> bool:
        """True if the connection is usable.

        It has not been idle long, and the server neither closed it nor sent unrequested bytes.
        """
        waited = time.monotonic() - self._used
        unasked = getattr(self._reader, "_buffer", b"")  # as a 408 before a server closes it
        return (
            waited < _IDLE_SECONDS
            and not unasked
            and not self._reader.at_eof()
            and not self._writer.is_closing()
        )

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the loop may be closed already
            self._writer.close()
