"""Models behind an OpenAI-compatible endpoint, by the `openai` SDK with its own retries off."""

from __future__ import annotations

import email.utils
import time
from typing import TYPE_CHECKING, Any

from culmen.core.errors import Unavailable, UserError
from culmen.llm.call import Call, Declined, Interrupted, RateLimited, Reply, ServerFailed
from culmen.llm.keys import Key
from culmen.llm.wire import body_of, read_reply

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_TOO_LONG = ("context_length_exceeded", "string_above_max_length", "maximum context length", "too many tokens")
_FILTERED = ("content_filter", "content_policy", "content management policy")


class Endpoint:
    """One provider's address and key; makes the SDK's client when it is first needed."""

    def __init__(self, key: Key, base_url: str | None = None, timeout: float = 300.0) -> None:
        self.key, self.base_url, self._timeout = key, base_url, timeout
        self._client: AsyncOpenAI | None = None

    @property
    def client(self) -> AsyncOpenAI:
        """The SDK's client. Raises `UserError` if the key is missing."""
        if self._client is None:
            from openai import AsyncOpenAI

            self._client = AsyncOpenAI(
                api_key=self.key.reveal(), base_url=self.base_url, max_retries=0, timeout=self._timeout
            )
        return self._client

    async def post(self, create: Any, **body: Any) -> str:
        """The text of the response to `create(**body)` (a raw-response method of the client).

        Raises the typed errors of `culmen.llm.call`, and `UserError` for a wrong key or model. The SDK's exceptions
        hold request headers, so they are never chained.
        """
        import openai

        failure: Exception
        try:
            response = await create(**body)
            return response.http_response.text
        except openai.APIStatusError as error:
            failure = translate(error, self.key, str(body.get("model", "")))
        except openai.APITimeoutError:
            failure = Interrupted("timeout")
        except openai.APIConnectionError as error:
            failure = _connection(error, self.key)
        except UnicodeError:
            failure = Declined("bad_request", "the request holds text that is not valid Unicode")
        raise failure from None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()


class OpenAIBackend:
    """Chat completions. `max_tokens_name` is what the server calls the limit, `send_seed` passes `Call.seed` on."""

    def __init__(
        self, endpoint: Endpoint, *, max_tokens_name: str = "max_completion_tokens", send_seed: bool = False
    ) -> None:
        self._endpoint, self._max_tokens_name, self._send_seed = endpoint, max_tokens_name, send_seed

    async def complete(self, call: Call) -> Reply:
        """One attempt; see `culmen.llm.call.Backend`."""
        body = body_of(call, max_tokens_name=self._max_tokens_name, send_seed=self._send_seed)
        create = self._endpoint.client.chat.completions.with_raw_response.create
        return read_reply(await self._endpoint.post(create, **body, extra_body=call.extra or None))

    async def close(self) -> None:
        """Close the endpoint's connections."""
        await self._endpoint.close()


def translate(error: APIStatusError, key: Key, model: str) -> Exception:
    """What a status of 4xx or 5xx means for us."""
    status = error.status_code
    text = key.scrub(f"{error.code or ''} {error.message}")[:500]
    if status in (401, 403, 404):
        return _mistake(status, key, model, text)
    if status == 402 or "insufficient_quota" in text:
        return Unavailable(f"the provider says the account has no credit left: {text[:200]}", where=key.name)
    if status == 429:
        return RateLimited(text, retry_after=retry_after(error.response.headers))
    if status >= 500 or status in (408, 409, 425):
        return ServerFailed("server_error", text)
    if status == 413 or any(mark in text for mark in _TOO_LONG):
        return Declined("too_long", text, raw=text)
    return Declined("refused" if any(mark in text for mark in _FILTERED) else "bad_request", text, raw=text)


def retry_after(headers: Any) -> float | None:
    """Seconds that the server asks to wait (`retry-after-ms`, or `Retry-After` in seconds or as a date), or None."""
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


def _mistake(status: int, key: Key, model: str, text: str) -> UserError:
    if status == 404:
        return UserError(f"the provider knows no model '{model}'", where=text[:200], fix="check --model and base_url")
    what = "rejects the API key" if status == 401 else f"denies access to '{model}'"
    return UserError(f"the provider {what} (status {status})", where=key.name, fix="check that key and its rights")


def _connection(error: Exception, key: Key) -> Exception:
    """Never connected costs nothing; cut in the middle may have cost what a whole reply costs."""
    cause = error.__cause__
    reason = key.scrub(f"{type(cause).__name__}: {cause}")[:200] if cause is not None else "no connection"
    if cause is not None and type(cause).__name__ in ("ConnectError", "ConnectTimeout", "ProxyError", "PoolTimeout"):
        return ServerFailed("no_connection", reason)
    return Interrupted("cut", reason)
