"""POST requests over kept HTTP/1.1 connections, and the bounds of what is read from them.

The part of a client that a model call needs, at a quarter of its cost: `h11` reads and writes the
protocol, asyncio moves the bytes. There are no proxies: `Connections.is_plain_address` is False for
an address that needs one, and the general client is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import h11

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 30.0
# bytes of one response's body, decompressed or not: a batch of embeddings is the longest honest one
LONGEST_BODY = 16 * 2**20
# an idle connection is not used again after this time: the server may be about to close it
_IDLE_SECONDS = 5.0
_CHUNK = 1 << 16
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib's code for: recognise either header
_COMPRESSED = ("gzip", "x-gzip", "deflate")


class NotConnected(Exception):
    """No connection: the request was not sent."""


class Broken(Exception):
    """The connection ended before the whole response arrived."""


class Response(NamedTuple):
    """Status, headers with lower-case names, and the body as text.

    `fault` is "too_large" for a body cut at `LONGEST_BODY`, "encoded" for one that cannot be
    decoded, else "".
    """

    status: int
    headers: Mapping[str, str]
    text: str
    fault: str = ""

    @classmethod
    def from_content(cls, status: int, headers: Mapping[str, str], content: bytes) -> Response:
        """The response with this body, which a server may compress without being asked."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        fault = "too_large" if len(content) > LONGEST_BODY else ""
        if encoding in _COMPRESSED and not fault:
            content, fault = _decompressed(content)
        elif encoding != "identity":
            content, fault = b"", "encoded"
        return cls(status, headers, content[:LONGEST_BODY].decode("utf-8", "replace"), fault)


def _decompressed(content: bytes) -> tuple[bytes, str]:
    """A body without its compression, and the fault of `Response`."""
    for window in (_ZLIB_OR_GZIP, -zlib.MAX_WBITS):  # some servers send deflate without a header
        machine = zlib.decompressobj(window)
        try:
            plain = machine.decompress(content, LONGEST_BODY + 1)
        except zlib.error:
            continue
        if len(plain) > LONGEST_BODY:
            return plain, "too_large"
        return (plain, "") if machine.eof else (b"", "encoded")
    return b"", "encoded"


class Connections:
    """Connections to the server of one address.

    They belong to one event loop; close them there.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._authority = parts.netloc.rpartition("@")[2].encode(
            "idna" if not parts.netloc.isascii() else "ascii"
        )
        self._context: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []

    @staticmethod
    def is_plain_address(address: str) -> bool:
        """True if a plain connection leads to this address: no proxy, no credentials in it."""
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            return False
        proxies = getproxies()
        return not (parts.scheme in proxies or "all" in proxies) or bool(
            proxy_bypass(parts.hostname)
        )

    async def post(
        self, target: str, headers: Mapping[str, str], content: bytes, timeout: float
    ) -> Response:
        """Send one request for a path and query, and read its response.

        Raises `NotConnected`, `Broken` and, after `timeout` seconds without a byte, TimeoutError.
        """
        connection = self._take_idle() or await self._open_connection(timeout)
        try:
            response = await connection.post(self._authority, target, headers, content, timeout)
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
            async with asyncio.timeout(min(timeout, CONNECT_SECONDS)):
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
        target: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout: float,
    ) -> Response:
        """Send the request, and read the response, of its body `LONGEST_BODY` bytes at most."""
        fields = [("Host", authority), *headers.items(), ("Content-Length", str(len(content)))]
        request = h11.Request(method="POST", target=target, headers=fields)
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
                    if len(body) > LONGEST_BODY:
                        break
                elif not isinstance(event, h11.InformationalResponse):
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
        return Response.from_content(head.status_code, response_headers, bytes(body))

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
