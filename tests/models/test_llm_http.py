"""Requests of model calls, against servers that send exactly these bytes."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from culmen.core.errors import UserError
from culmen.models.call import CallFailed
from culmen.models.endpoint import Endpoint
from culmen.models.spec import Key

OK = b'{"choices": []}'


def reply(status: str = "200 OK", headers: str = "", body: bytes = OK) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Scripted:
    """A server that answers each request with the next item of its script.

    None closes the connection, a tuple gives its parts with a pause between.
    """

    def __init__(self, *says: Any) -> None:
        self.says, self.requests, self.connections = list(says), [], 0

    async def __aenter__(self) -> Scripted:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                said = self.says.pop(0)
                for part in said if isinstance(said, tuple) else (said,):
                    if part is None:
                        return
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def talk(
    *says: Any,
    then: Callable[[Endpoint, Scripted], Awaitable[Any]] | None = None,
    timeout: float = 5.0,
) -> Any:
    async def main() -> Any:
        async with Scripted(*says) as server:
            endpoint = Endpoint(Key(), server.url, timeout)
            try:
                if then is not None:
                    return await then(endpoint, server)
                return await endpoint.post("/x", {"model": "m"}), server
            finally:
                await endpoint.close()

    return asyncio.run(asyncio.wait_for(main(), 30))


BODIES = {
    "length": reply(),
    "in pieces": (reply()[:20], reply()[20:60], reply()[60:]),
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (OK[:5], OK[5:], b"")),
    "until the end": (b"HTTP/1.0 200 OK\r\n\r\n" + OK, None),
    "after an interim response": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + reply(),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_way_to_send_a_body(name: str) -> None:
    text, server = talk(BODIES[name])
    assert text == OK.decode()
    assert server.requests[0].startswith(b"POST /v1/x HTTP/1.1\r\n") and server.requests[
        0
    ].endswith(b'{"model":"m"}')
    assert b"authorization: bearer none" in server.requests[0].lower()


def test_connections_are_kept_and_shared_out() -> None:
    async def then(endpoint: Endpoint, server: Scripted) -> None:
        for _ in range(3):
            await endpoint.post("/x", {"model": "m"})
        assert server.connections == 1
        await asyncio.gather(*(endpoint.post("/x", {"model": "m"}) for _ in range(4)))
        assert server.connections == 4 and len(server.requests) == 7

    talk(*[reply()] * 7, then=then)


def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def then(endpoint: Endpoint, server: Scripted) -> None:
        for _ in range(3):
            assert await endpoint.post("/x", {"model": "m"}) == OK.decode()
            await asyncio.sleep(0.05)
        assert server.connections == 3

    talk((reply(), None), (reply(headers="Connection: close\r\n"), None), reply(), then=then)
    talk(
        (reply(), None), (reply(), reply("408 Request Timeout")), reply(), then=then
    )  # said unasked


def test_the_connection_of_a_cancelled_request_is_not_used_again() -> None:
    async def then(endpoint: Endpoint, server: Scripted) -> None:
        asked = asyncio.create_task(endpoint.post("/x", {"model": "m"}))
        while not server.requests:
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await endpoint.post("/x", {"model": "m"}) == OK.decode() and server.connections == 2

    talk(reply()[:-3], reply(), then=then)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (None, "cut"),
        ((reply()[:-3], None), "cut"),
        ((b"HTTP/1.1 200 OK\r\nContent-Le", None), "cut"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "cut"),
        (b"", "timeout"),
        (reply()[:-3], "timeout"),
    ],
)
def test_responses_that_break_off(said: Any, kind: str) -> None:
    with pytest.raises(CallFailed) as caught:
        talk(said, timeout=0.3)
    assert caught.value.kind == kind


def test_a_redirect_at_the_host_is_followed_and_a_compressed_body_is_read() -> None:
    text, server = talk(reply("307 There", "Location: /v2/x\r\n", b""), reply())
    assert text == OK.decode() and server.requests[-1].startswith(b"POST /v2/x")
    text, server = talk(reply(headers="Content-Encoding: gzip\r\n", body=gzip.compress(OK)))
    assert text == OK.decode() and len(server.requests) == 1


def test_a_permanent_redirect_is_remembered() -> None:
    async def then(endpoint: Endpoint, server: Scripted) -> None:
        for _ in range(3):
            await endpoint.post("/x", {"model": "m"})
        assert [request.split(b" ")[1] for request in server.requests] == [
            b"/v1/x",
            b"/v9/x",
            b"/v9/x",
            b"/v9/x",
        ]

    talk(reply("308 Moved", "Location: /v9/x\r\n", b""), reply(), reply(), reply(), then=then)


def test_nothing_listens_there() -> None:
    async def main() -> None:
        async with Scripted() as server:
            pass
        endpoint = Endpoint(Key(), server.url, 2.0)
        with pytest.raises(CallFailed) as caught:
            await endpoint.post("/x", {"model": "m"})
        assert caught.value.kind == "no_connection" and not caught.value.billed
        assert "ConnectionRefusedError" in str(caught.value)  # the system's words, not the client's

    asyncio.run(main())


def test_addresses_and_keys_that_are_none(tmp_path: Any) -> None:
    async def post(key: Key, url: str) -> None:
        await Endpoint(key, url, 2.0).post("/x", {"model": "m"})

    for url in ("ftp://host/v1", "localhost:80/v1"):
        with pytest.raises(UserError, match="not an address"):
            asyncio.run(post(Key(), url))
    (tmp_path / "key").write_text("schlüssel")
    with pytest.raises(UserError, match="characters that are not valid in a key"):
        asyncio.run(post(Key(file=str(tmp_path / "key")), "http://127.0.0.1:9"))


def test_a_proxy_is_not_used_for_hosts_of_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "all_proxy", "socks5://127.0.0.1:1"
    )  # what that would need is not even imported
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert talk(reply())[0] == OK.decode()


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks4://127.0.0.1:1")
    with pytest.raises(UserError, match="the proxy in the environment cannot be used"):
        talk(reply())


def test_cookies_are_not_sent_back() -> None:
    async def then(endpoint: Endpoint, server: Scripted) -> None:
        for _ in range(2):
            await endpoint.post("/x", {"model": "m"})
        assert b"cookie" not in server.requests[-1].lower()

    talk(reply(headers="Set-Cookie: a=b; Path=/\r\n"), reply(), then=then)


def test_a_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Scripted(reply()) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
            endpoint = Endpoint(Key(), "http://nowhere.invalid/v1", 5.0)
            assert await endpoint.post("/x", {"model": "m"}) == OK.decode()
            await endpoint.close()
            assert proxy.requests[0].startswith(b"POST http://nowhere.invalid/v1/x HTTP/1.1")

    asyncio.run(main())
