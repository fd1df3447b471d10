"""Requests to one OpenAI-compatible server: POST of JSON, and the errors of its failures.

One attempt a call; retries and deadlines are the caller's. `httpx2` sends, and is imported with the
first request.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from culmen.core import VERSION
from culmen.core.errors import Unavailable, UserError
from culmen.core.json import JsonObject
from culmen.models.call import BadResponse, Declined, Interrupted, RateLimited, ServerFailed
from culmen.models.spec import Key

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
_CONNECT_SECONDS = 30.0  # until a connection counts as not made
_KEPT = 100  # connections that wait for the next request, 5 s at most
# bytes of one response's body, decompressed or not: a batch of embeddings is the longest honest one
_LONGEST_BODY = 16 * 2**20
_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS  # zlib's code for: recognise either header
_COMPRESSED = ("gzip", "x-gzip", "deflate")
_REDIRECTED, _PERMANENT = (301, 302, 307, 308), (301, 308)  # a POST stays one
_REDIRECTS = 5  # addresses that one request is sent to, at most
_RAW_KEPT = 20_000  # characters of a response that cannot be used
_ACCOUNT = {
    "OpenAI-Organization": "OPENAI_ORG_ID",
    "OpenAI-Project": "OPENAI_PROJECT_ID",
}  # headers, and variables


class Response(NamedTuple):
    """Status, headers with lower-case names, and the body as text.

    `fault` is "too_large" for a body cut at `_LONGEST_BODY`, "encoded" for one that cannot be
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
        fault = "too_large" if len(content) > _LONGEST_BODY else ""
        if encoding in _COMPRESSED and not fault:
            content, fault = _decompressed(content)
        elif encoding != "identity":
            content, fault = b"", "encoded"
        return cls(status, headers, content[:_LONGEST_BODY].decode("utf-8", "replace"), fault)


def _decompressed(content: bytes) -> tuple[bytes, str]:
    """A body without its compression, and the fault of `Response`.

    Unlike the client's own decoders, these stop at a bound and refuse a body that breaks off.
    """
    for window in (_ZLIB_OR_GZIP, -zlib.MAX_WBITS):  # some servers send deflate without a header
        machine = zlib.decompressobj(window)
        try:
            plain = machine.decompress(content, _LONGEST_BODY + 1)
        except zlib.error:
            continue
        if len(plain) > _LONGEST_BODY:
            return plain, "too_large"
        return (plain, "") if machine.eof else (b"", "encoded")
    return b"", "encoded"


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
        self._clients: dict[str, httpx2.AsyncClient] = {}  # by scheme, host and port

    async def post(self, path: str, body: JsonObject) -> str:
        """The text of the response to the JSON `body`, sent to `path` below the address.

        Raises the typed errors of `culmen.models.call`, and `UserError` for a missing or wrong key,
        an invalid address, an unknown model, or a redirect to another host. Exceptions of the
        clients may hold request headers, so they are never chained.
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
        import httpx2

        try:
            response = await self._send_content(path, msgspec.json.encode(body))
        except UnicodeError:
            return Declined("bad_request", "the request holds text that is not valid Unicode")
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            return ServerFailed("no_connection", self._describe_error(error))
        except httpx2.TimeoutException:
            return Interrupted("timeout")
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            return _no_address(self.base_url)
        except httpx2.HTTPError as error:  # in the middle: it may cost as much as a whole reply
            return Interrupted("cut", self._describe_error(error))
        except UserError as error:
            return error.with_traceback(None)
        if self._note_headers is not None:
            self._note_headers(response.headers)
        if not 200 <= response.status < 300:
            name, said = str(body["model"]), response.text
            return status_error(
                response.status, said, response.headers, self.key, name, self._address
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
            logging.getLogger("culmen.models").warning(
                "%s redirects to https, after the key went there unencrypted: set base_url to %s",
                self.base_url,
                address,
            )
        self._address = address

    async def _send_to(self, address: str, content: bytes) -> Response:
        """Send one request, and read of the response's body `_LONGEST_BODY` bytes at most."""
        origin, body = "{0.scheme}://{0.netloc}".format(urlsplit(address)), bytearray()
        if origin not in self._clients:
            self._clients[origin] = self._new_client(_needs_proxy(origin))
        async with self._clients[origin].stream(
            "POST", address, content=content, headers=self._headers
        ) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _LONGEST_BODY:
                    break
        return Response.from_content(response.status_code, response.headers, bytes(body))

    def _new_client(self, by_proxy: bool) -> httpx2.AsyncClient:
        import httpx2

        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT)
        connect = min(_CONNECT_SECONDS, self._timeout)
        try:
            return httpx2.AsyncClient(
                timeout=httpx2.Timeout(self._timeout, connect=connect, pool=None),
                limits=limits,
                transport=None if by_proxy else httpx2.AsyncHTTPTransport(limits=limits),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none is sent back
            )
        except (ImportError, ValueError) as error:
            raise UserError(
                f"the proxy in the environment cannot be used: {self._describe_error(error)}",
                where="HTTP_PROXY, HTTPS_PROXY, ALL_PROXY",
                fix="set http://HOST:PORT, install socksio for a SOCKS proxy, or name the host in "
                "NO_PROXY",
            ) from None

    def _describe_error(self, error: BaseException) -> str:
        """The innermost cause, as the system names it: the client's words say less."""
        while (inner := error.__cause__ or error.__context__) is not None:
            error = inner.exceptions[0] if isinstance(inner, BaseExceptionGroup) else inner
        return self.key.scrub(f"{type(error).__name__}: {error}")[:200]

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
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()


def _needs_proxy(address: str) -> bool:
    """True if the environment names a proxy for this address."""
    parts, proxies = urlsplit(address), getproxies()
    named = parts.scheme in proxies or "all" in proxies
    return named and not proxy_bypass(parts.hostname or "")


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
    status: int,
    content: str,
    headers: Mapping[str, str],
    key: Key,
    model: str,
    address: str = "",
) -> Exception:
    """The error for a status other than 2xx; `content` is the response's body."""
    text = key.scrub(refusal_message(content[:_RAW_KEPT]))[:500]
    if status in (401, 403, 404):
        return _access_error(status, key, model, text, address)
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


_SAID = ("code", "type", "param", "message")  # of an error


def refusal_message(content: str) -> str:
    """The message of a refusal: code and message of the body's `error`, else the body itself."""
    try:
        error = json.loads(content)["error"]
        fields = {"code": error} if isinstance(error, str) else dict(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return content
    return " ".join(str(fields[name]) for name in _SAID if fields.get(name)) or content


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


def _access_error(status: int, key: Key, model: str, text: str, address: str) -> UserError:
    if status == 404 and address and "model" not in text.lower():
        return UserError(
            f"there is no chat API at {address} (status 404)",
            where=" ".join(text.split())[:200],
            fix="check base_url (most end in /v1), and --model",
        )
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
        fix="check that key and its rights"
        if key.is_needed
        else "name it in the models file: key_env, or key_file, of the provider",
    )
