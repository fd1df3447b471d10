"""A zoo of odd model servers behind one address.

Each kind of reply alone or all in turn, straight or redirected.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import ssl
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

CODE = "Better.\n\n```python\ndef run():\n    return {}\n```\n"
REDIRECTS = (
    "",
    "307 same",
    "301 same",
    "302 other",
    "307 other",
    "308 other",
    "307 port",
    "307 loop",
    "303 same",
)
"""How a request is sent on before its reply: to the same or to another host, by a status."""

_MOST = 64 * 2**20  # bytes of an endless reply, after which the client was too patient
_DEEP = 2_000
_MARKS = (
    b"\r\n",
    b"\r\n\r\n",
    b'"',
    b"{",
    b"]",
    b"\\ud800",
    b"\xff",
    b"null",
    b"NaN",
    b"1e999",
    b"\0",
)
_NUMBERS = tuple(b"%d" % n for n in (-1, 0, 10**9, 10**18, 2**63, 10**30, 10**4_000))
_BOMB = gzip.compress(b" " * _MOST)


def _framed(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


_REASONED = {
    "prompt_tokens": 50,
    "completion_tokens": 500,
    "completion_tokens_details": {"reasoning_tokens": 500},
}


def _chat(message: object, usage: object = None, finish: str = "stop", **more: object) -> bytes:
    usage = {"prompt_tokens": 50, "completion_tokens": 20} if usage is None else usage
    choices = [{"index": 0, "finish_reason": finish, "message": message}]
    return json.dumps({"choices": choices, "usage": usage, **more}).encode()


def _said(text: str, usage: object = None) -> bytes:
    return _chat({"role": "assistant", "content": text}, usage)


def _usage(prompt: object, completion: object) -> Callable[[str, str], bytes]:
    return lambda key, code: _framed(
        _said(code, {"prompt_tokens": prompt, "completion_tokens": completion})
    )


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


def _packed(name: str, pack: Callable[[bytes], bytes]) -> Callable[[str, str], bytes]:
    return lambda key, code: _framed(pack(_said(code)), "200 OK", f"Content-Encoding: {name}")


def _raw(body: bytes | str, status: str = "200 OK", *headers: str) -> Callable[[str, str], bytes]:
    content = body.encode() if isinstance(body, str) else body
    return lambda key, code: _framed(content, status, *headers)


def _bare_deflate(body: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return machine.compress(body) + machine.flush()


def _tools(arguments: object) -> Callable[[str, str], bytes]:
    return lambda key, code: _framed(
        _chat(
            {"content": code, "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
        )
    )


def _with_key(form: str) -> Callable[[str, str], bytes]:
    return lambda key, code: _framed(
        form.replace("KEY", key).replace("ESC", _escaped(key)).encode(), "200 OK"
    )


KINDS: dict[str, Callable[[str, str], bytes]] = {
    "good": lambda key, code: _framed(_said(code)),
    "gzip": _packed("gzip", gzip.compress),
    "deflate": _packed("deflate", zlib.compress),
    "bare deflate": _packed("deflate", _bare_deflate),
    "gzip cut": _packed("gzip", lambda body: gzip.compress(body)[:-9]),
    "gzip of nothing": _packed("gzip", lambda body: b"not packed at all"),
    "gzip bomb": _packed("gzip", lambda body: _BOMB),
    "gzip twice": _packed("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    "brotli": _packed("br", lambda body: b"\x8b\x02\x80xxx\x03"),
    "usage 10^7": _usage(10**7, 10**7),
    "usage 10^18": _usage(10**18, 10**18),
    "usage 10^30": _usage(10**30, 5),
    "usage of 4,000 digits": _usage(int("9" * 4_000), int("9" * 4_000)),
    "usage of 5,000 digits": lambda key, code: _framed(
        _said(code).replace(b": 50", b": " + b"9" * 5_000)
    ),
    "usage zero": _usage(0, 0),
    "usage of a prompt alone": _usage(50, 0),
    "usage negative": _usage(-5, -5),
    "usage of texts": _usage("50", {"a": 1}),
    "usage infinite": _usage(float("inf"), float("nan")),
    "usage a list": lambda key, code: _framed(_said(code, [50, 20])),
    "cached beyond all": lambda key, code: _framed(
        _said(
            code,
            {
                "prompt_tokens": 50,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 10**40},
            },
        )
    ),
    "key in the text": lambda key, code: _framed(_said(code.replace("return", f"'{key}'; return"))),
    "key escaped": lambda key, code: _framed(
        _said(code.replace("return", f"'{key}'; return")).replace(
            key.encode(), _escaped(key).encode()
        )
    ),
    "key escaped twice": lambda key, code: _framed(
        _said(code.replace("return", f"'{_escaped(key)}'; return")),
    ),
    "key with NUL between": lambda key, code: _framed(
        _said(code.replace("return", f"'{key[:9]}\0{key[9:]}'; return"))
    ),
    "key in a tool call": lambda key, code: _framed(
        _chat(
            {
                "content": code,
                "tool_calls": [{key: {"name": key, "arguments": [key, _escaped(key)]}}],
            }
        )
    ),
    "key in an error": _with_key(
        '{"error": {"message": "you sent Bearer KEY and ESC", "code": "KEY"}}'
    ),
    "key in garbage": _with_key('{"choices": [{"KEY ESC'),
    "key in a page": _with_key("<html><body>KEY</body></html>"),
    "key in a status of 400": lambda key, code: _framed(
        f"you sent {key}".encode(), "400 Bad Request"
    ),
    "key in a status of 500": lambda key, code: _framed(f"you sent {key}".encode(), "500 Oops"),
    "key in the headers": lambda key, code: _framed(
        _said(code), f"200 {key}", f"X-You: {key}", f"Set-Cookie: k={key}"
    ),
    "bidi marks": lambda key, code: _framed(
        _said(code.replace("run()", "run(): # \u202e\u2066 }\u2069 \u200f\n   "))
    ),
    "lone surrogates": lambda key, code: _framed(
        _said(code.replace("return", "'\ud800 \udfff'; return"))
    ),
    "null bytes": lambda key, code: _framed(_said(code.replace("return", "'\0\0'; return"))),
    "not UTF-8": lambda key, code: _framed(_said(code).replace(b"Better", b"\xff\xfe\xc3(")),
    "UTF-16": lambda key, code: _framed(_said(code).decode().encode("utf-16")),
    "byte order mark": lambda key, code: _framed(b"\xef\xbb\xbf" + _said(code)),
    "no body": _raw(b""),
    "a list": _raw("[1, 2, 3]"),
    "a number": _raw("7" * 4_000),
    "nested": _raw("[" * 100_000),
    "nested objects": _raw('{"choices":' * _DEEP + "1" + "}" * _DEEP),
    "nested content": lambda key, code: _framed(
        b'{"choices": [{"message": {"content": ' + b"[" * 500 + b"]" * 500 + b"}}]}"
    ),
    "no choices": _raw('{"choices": []}'),
    "choices of nothing": _raw('{"choices": [null, 1, "x", [], {}]}'),
    "many choices": lambda key, code: _framed(
        json.dumps({"choices": [{"message": {"content": f"{i}"}} for i in range(10_000)]}).encode()
    ),
    "content in parts": lambda key, code: _framed(
        _chat({"content": [{"text": code}, {"text": 5}, None, "x"]})
    ),
    "tools with 10^40": _tools(10**40),
    "tools with infinity": _tools([float("inf"), float("nan"), -1e400]),
    "tools nested": lambda key, code: _tools(json.loads("[" * 400 + "]" * 400))(key, code),
    "tools with surrogates": _tools({"\ud800": "\udfff"}),
    "error 10^40": _raw('{"error": {"code": 1' + "0" * 40 + "}}"),
    "error of 429": _raw('{"error": {"code": 429, "message": "slow down"}}'),
    "error a list": _raw('{"error": [1, [2]]}'),
    "refused with pairs": _raw('{"error": [["code", 1], ["message", {}]]}', "400 Bad"),
    "wait until 99999": _raw(b"", "429 Slow", "Retry-After: Mon, 01 Jan 99999 00:00:00 GMT"),
    "wait until month 77": _raw(b"", "429 Slow", "Retry-After: Mon, 77 Foo 0000 99:99:99 +9999"),
    "wait 1e400": _raw(b"", "503 Slow", "Retry-After: 1e400", "Retry-After-MS: nan"),
    "reasoning eats the reply": lambda key, code: _framed(
        _chat({"content": "", "reasoning_content": "Hm. " * 9}, _REASONED, finish="length")
    ),
    "reasoning unseen": lambda key, code: _framed(
        _chat({"content": ""}, _REASONED, finish="length")
    ),
    "thought without an end": lambda key, code: _framed(
        _chat({"content": "<think>Hm. " + "Or else. " * 9}, _REASONED, finish="length")
    ),
    "answer among the reasoning": lambda key, code: _framed(
        _chat({"content": None, "reasoning_content": code})
    ),
    "stream": lambda key, code: _framed(
        b"".join(
            b"data: " + json.dumps({"choices": [{"delta": {"content": each}}]}).encode() + b"\n\n"
            for each in code.split()
        )
        + b"data: [DONE]\n\n"
    ),
    "page": _raw("<!DOCTYPE html><html><body>Sign in</body></html>"),
    "no such path": _raw('{"detail": "Not Found"}', "404 Not Found"),
    "no such model": _raw(
        '{"error": {"message": "The model `odd` does not exist", "code": "model_not_found"}}',
        "404 Not Found",
    ),
    "forbidden": _raw('{"error": {"message": "not in your plan"}}', "403 Forbidden"),
    "unauthorized": _raw('{"error": {"message": "wrong key"}}', "401 Unauthorized"),
    "too many": _raw('{"error": {"message": "quota of 0 requests a minute"}}', "429 Slow"),
    "refusal": lambda key, code: _framed(_chat({"content": None, "refusal": "I cannot do that."})),
    "filter": lambda key, code: _framed(_chat({"content": ""}, finish="content_filter")),
    "tool call alone": lambda key, code: _framed(
        _chat({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]})
    ),
    "error with 200": _raw('{"error": {"message": "no worker is free", "code": "busy"}}'),
    "null": lambda key, code: _framed(_chat({"content": None})),
    "nothing": lambda key, code: _framed(_said("")),
    "another protocol": lambda key, code: b"SSH-2.0-OpenSSH_9.2\r\n",
    "no content": lambda key, code: b"HTTP/1.1 204 No Content\r\n\r\n",
    "status 999": _raw("x", "999 What"),
    "status 304": lambda key, code: b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "redirect to nowhere": _raw("", "307 There"),
    "redirect to an empty host": _raw("", "307 There", "Location: http:///x"),
    "redirect to a bad port": _raw("", "308 There", "Location: //[::1:99999/x"),
    "redirect to a file": _raw("", "301 There", "Location: file:///etc/passwd"),
    "redirect with line breaks": _raw("", "301 There", "Location: /a\tb c\u202e"),
    "redirect with the key": lambda key, code: _framed(
        b"", "307 There", f"Location: http://x.invalid/?k={key}"
    ),
    "protocols switched": lambda key, code: (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n" + b"\0" * 99
    ),
    "HTTP/2": lambda key, code: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": lambda key, code: _said(code),
    "closed": lambda key, code: b"",
    "cut": lambda key, code: _framed(_said(code))[:-20],
    "two lengths": lambda key, code: _framed(_said(code), "200 OK", "Content-Length: 5"),
    "length of 30 digits": lambda key, code: (
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n{"
    ),
    "bad chunk": lambda key, code: (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n"
    ),
    "two replies": lambda key, code: _framed(_said(code)) + _framed(_said("again")),
    "many interim replies": lambda key, code: (
        b"HTTP/1.1 103 Hints\r\n\r\n" * 50_000 + _framed(_said(code))
    ),
    "long header": lambda key, code: b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2**20 + b"\r\n\r\n",
    "many headers": lambda key, code: _framed(
        _said(code), "200 OK", *[f"X-{i}: y" for i in range(20_000)]
    ),
}
ENDLESS = ("endless body", "endless length", "endless headers", "endless white space")
ALL = (*KINDS, *ENDLESS)


class Zoo:
    """`with Zoo(kinds) as zoo:` serves kinds in turn at `zoo.url`, those of `kinds` or all.

    `redirect` is one of `REDIRECTS`; `zoo.asked` counts requests by path, `zoo.stolen` those that
    came to another address with a key, `zoo.bytes` the bytes sent.
    """

    def __init__(
        self, kinds: tuple[str, ...] = ALL, redirect: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.kinds, self.redirect, self._tls = kinds, redirect, tls
        self.asked: Counter[str] = Counter()
        self.stolen: list[bytes] = []
        self.bytes = 0
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(
            self._client, "127.0.0.1", 0, ssl=self._tls, limit=2**22
        )
        thief = await asyncio.start_server(self._thief, "127.0.0.1", 0)
        other = await asyncio.start_server(self._thief, "127.0.0.2", 0)
        self.port, self._thieves_port, self._others_port = (
            each.sockets[0].getsockname()[1] for each in (server, thief, other)
        )
        self._ready.set()
        await self._stop.wait()
        for each in (server, thief, other):
            each.close()
        for task in asyncio.all_tasks(self._loop) - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    async def _thief(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stolen.append(await reader.read(2**16))
        writer.write(_framed(_said(CODE.format(7.0))))
        writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                fields = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in lines[1:])
                }
                await reader.readexactly(int(fields.get("content-length", "0")))
                path = lines[0].split(" ")[1]
                self.asked[path] += 1
                if not await self._answer(
                    path, fields.get("authorization", "").removeprefix("Bearer "), writer
                ):
                    break
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, key: str, writer: asyncio.StreamWriter) -> bool:
        """Send a reply; whether the connection may go on."""
        if self.redirect and not path.startswith("/there"):
            writer.write(
                _framed(b"", f"{self.redirect[:3]} There", f"Location: {self._target(path)}")
            )
            return True
        self._turn += 1
        kind = self.kinds[self._turn % len(self.kinds)]
        if kind not in KINDS:
            async for part in self._endless(kind):
                writer.write(part)
                await writer.drain()
            return False
        reply = KINDS[kind](key, CODE.format(float(self._turn)))
        writer.write(reply)
        self.bytes += len(reply)
        return kind in ("good", "gzip", "usage 10^7", "too many")

    def _target(self, path: str) -> str:
        where = self.redirect.partition(" ")[2]
        if where == "loop":
            return path
        hosts = {"same": "", "other": f"http://127.0.0.2:{self._others_port}"}
        return f"{hosts.get(where, f'http://127.0.0.1:{self._thieves_port}')}/there{path}"

    async def _endless(self, kind: str) -> AsyncIterator[bytes]:
        heads = {
            "endless body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "endless length": b"HTTP/1.1 200 OK\r\nContent-Length: 3000000000\r\n\r\n",
            "endless headers": b"HTTP/1.1 200 OK\r\n",
            "endless white space": b"HTTP/1.1 500 Oops\r\n\r\n",
        }
        parts = {
            "endless body": b"10000\r\n" + b"x" * 2**16 + b"\r\n",
            "endless headers": b"X: y\r\n" * 2**12,
        }
        yield heads[kind]
        for _ in range(3_000_000_000 // 2**16):
            part = parts.get(kind, b" " * 2**16)
            self.bytes += len(part)
            yield part


def random_replies(seed: int = 0) -> Iterator[bytes]:
    """Endless replies of the zoo, some spliced, with bytes changed, doubled or left out.

    Half of them state a true length.
    """
    rng = random.Random(seed)
    names = [name for name in KINDS if not name.startswith(("many", "gzip bomb", "long", "nested"))]
    replies = [KINDS[name]("sk-zoo-0123456789", CODE.format(7.5)) for name in names]
    while True:
        reply = rng.choice(replies)
        if rng.random() < 0.5:
            yield bytes(_changed(reply, rng, replies))
        else:
            head, _, body = reply.partition(b"\r\n\r\n")
            body = _changed(body, rng, [one.partition(b"\r\n\r\n")[2] for one in replies])
            lines = [
                line
                for line in head.split(b"\r\n")
                if not line.lower().startswith(b"content-length")
            ]
            yield b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body


def _changed(whole: bytes, rng: random.Random, others: list[bytes]) -> bytearray:
    reply = bytearray(whole)
    if rng.random() < 0.1:
        other = rng.choice(others)
        reply[rng.randrange(len(reply) + 1) :] = other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 20))):
        if reply:
            _change(reply, rng)
    return reply


def _change(reply: bytearray, rng: random.Random) -> None:
    """Make one random change."""
    place = rng.randrange(len(reply))
    end = min(len(reply), place + rng.randrange(1, 40))
    changes: dict[str, Any] = {
        "byte": bytes([rng.randrange(256)]),
        "out": b"",
        "twice": bytes(reply[place:end]) * 2,
        "number": rng.choice(_NUMBERS),
        "mark": rng.choice(_MARKS),
    }
    name = rng.choice(list(changes))
    reply[place : place + 1 if name == "byte" else end] = changes[name]
