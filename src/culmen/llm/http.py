"""POST requests over HTTP/1.1 connections that are kept: what a model call needs of a client, at a quarter of its cost.

`h11` reads and writes the protocol, asyncio moves the bytes. There are no redirects, no proxies and no compression:
`Connections.plain` says where they are needed, and a general client serves better.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import h11

if TYPE_CHECKING:
    import ssl

_IDLE_SECONDS = 5.0  # after which a connection that waits is not used again: a server may be about to close it
_CONNECT_SECONDS = 30.0
_CHUNK = 1 << 16
_NOT_FOLLOWED = range(300, 400)


class NotConnected(Exception):
    """Nothing was sent."""


class Broken(Exception):
    """The connection ended before the whole response had come."""


class Response(NamedTuple):
    """Status, headers with small names, and the body as text."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def elsewhere(self) -> bool:
        """Whether the server sends us somewhere else, or in a form that was not asked for."""
        return self.status in _NOT_FOLLOWED or self.headers.get("content-encoding", "identity") != "identity"


class Connections:
    """Connections to the server of one address. Belongs to one event loop; close it there."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._secure, self._host, self._path = parts.scheme == "https", parts.hostname or "", parts.path
        self._port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc.rpartition("@")[2].encode("idna" if not parts.netloc.isascii() else "ascii")
        self._context: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []

    @staticmethod
    def plain(base_url: str) -> bool:
        """Whether a plain connection leads to this address: no proxy, no credentials in it."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            return False
        proxies = getproxies()
        return not (parts.scheme in proxies or "all" in proxies) or bool(proxy_bypass(parts.hostname))

    async def post(self, path: str, headers: Mapping[str, str], content: bytes, timeout: float) -> Response:
        """One request. Raises `NotConnected`, `Broken` and, after `timeout` seconds without a byte, TimeoutError."""
        connection = self._kept() or await self._connect(timeout)
        try:
            response = await connection.post(self._authority, self._path + path, headers, content, timeout)
        except BaseException:
            connection.close()
            raise
        if connection.again():
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Close the connections that wait."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _kept(self) -> _Connection | None:
        """A connection that waits and is still open, the latest first."""
        while self._idle:
            connection = self._idle.pop()
            if connection.fresh():
                return connection
            connection.close()
        return None

    async def _connect(self, timeout: float) -> _Connection:
        if self._secure and self._context is None:
            import httpx2

            self._context = httpx2.create_ssl_context()  # the machine's certificates, as that client finds them
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
        self, authority: bytes, path: str, headers: Mapping[str, str], content: bytes, timeout: float
    ) -> Response:
        """Send the request, and read the response."""
        named = [("Host", authority), *headers.items(), ("Content-Length", str(len(content)))]
        asked = h11.Request(method="POST", target=path, headers=named)
        http, head, body = self._http, None, bytearray()
        try:
            self._writer.writelines([http.send(asked) or b"", http.send(h11.Data(data=content)) or b""])
            http.send(h11.EndOfMessage())
            async with asyncio.timeout(timeout):
                await self._writer.drain()
            while True:
                event: Any = http.next_event()
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
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Response(head.status_code, found, body.decode("utf-8", "replace"))

    def again(self) -> bool:
        """Whether it can serve another request."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not done or self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        self._used = time.monotonic()
        return True

    def fresh(self) -> bool:
        """Whether it has not waited long, and the other side has neither closed it nor said anything unasked."""
        waited = time.monotonic() - self._used
        unasked = getattr(self._reader, "_buffer", b"")  # as a 408 before a server closes it
        return waited < _IDLE_SECONDS and not unasked and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the loop may be closed already
            self._writer.close()
