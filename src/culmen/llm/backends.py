"""Model backends: OpenAI-compatible endpoints by the `openai` SDK, all others by the optional `litellm` package.

Both packages are imported when the first call is made, and their own retries are off. Bodies are read with distrust:
whatever is malformed raises `BadResponse`.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.core.errors import Unavailable, UserError
from culmen.llm.call import (
    BadResponse,
    Call,
    Completion,
    Declined,
    Interrupted,
    RateLimited,
    Reply,
    ServerFailed,
    Tokens,
)
from culmen.llm.spec import Key

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
        """One attempt; see `culmen.llm.call.ModelBackend`."""
        body = body_of(call, max_tokens_name=self._max_tokens_name, send_seed=self._send_seed)
        create = self._endpoint.client.chat.completions.with_raw_response.create
        return read_reply(await self._endpoint.post(create, **body, extra_body=call.extra or None))

    async def close(self) -> None:
        """Close the endpoint's connections."""
        await self._endpoint.close()


class LiteLLMBackend:
    """Chat completions through `litellm.acompletion`, its own retries off. Keys come from the provider's variables."""

    def __init__(self, key: Key, *, base_url: str | None = None, send_seed: bool = False) -> None:
        self._key, self._base_url, self._send_seed = key, base_url, send_seed

    async def complete(self, call: Call) -> Reply:
        """One attempt; see `culmen.llm.call.ModelBackend`."""
        litellm = await asyncio.to_thread(_load)  # takes seconds
        import openai

        options: dict[str, Any] = {"num_retries": 0, "max_retries": 0, "drop_params": True, **call.extra}
        if self._base_url:
            options["api_base"] = self._base_url
        if self._key.needed:
            options["api_key"] = self._key.reveal()
        body = body_of(call, max_tokens_name="max_tokens", send_seed=self._send_seed)
        failure: Exception
        try:
            response = await litellm.acompletion(**body, **options)
            reply = read_reply(json.dumps(response.model_dump(), default=str))
            return msgspec.structs.replace(reply, dollars=_cost(response))
        except openai.APITimeoutError:  # litellm's exceptions are children of the SDK's
            failure = Interrupted("timeout")
        except openai.APIConnectionError as error:
            failure = ServerFailed("no_connection", self._key.scrub(str(error))[:200])
        except openai.APIStatusError as error:
            failure = translate(error, self._key, call.model)
        raise failure from None


def translate(error: APIStatusError, key: Key, model: str) -> Exception:
    """The error for a status of 4xx or 5xx."""
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


def _cost(response: Any) -> float | None:
    """Dollars by litellm's price list, None if it has no price."""
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return float(cost) if isinstance(cost, int | float) and 0 <= cost < float("inf") else None


def _load() -> Any:
    try:
        import litellm  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "this model needs the litellm package", where="--model litellm/…", fix="pip install 'culmen[litellm]'"
        ) from None
    litellm.suppress_debug_info = True
    return litellm


def body_of(call: Call, *, max_tokens_name: str, send_seed: bool) -> dict[str, Any]:
    """The request's body."""
    body: dict[str, Any] = {
        "model": call.model,
        "messages": [{"role": m.role, "content": m.content} for m in call.messages],
        max_tokens_name: call.max_tokens,
    }
    if call.samples > 1:
        body["n"] = call.samples
    if call.temperature is not None:
        body["temperature"] = call.temperature
    if call.json:
        body["response_format"] = {"type": "json_object"}
    if send_seed:
        body["seed"] = call.seed % 2**31
    return body


def read_body(text: str) -> dict[str, Any]:
    """The JSON object in a response of status 200. Raises `BadResponse` (html, not_json) otherwise."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        start = text.lstrip()[:200].lower()
        kind = "html" if start.startswith(("<!doctype", "<html", "<head", "<body")) else "not_json"
        raise BadResponse(kind, raw=text) from None
    if not isinstance(body, dict):
        raise BadResponse("not_json", raw=text)
    return body


def read_reply(text: str) -> Reply:
    """The reply in a chat completion's body.

    Raises `BadResponse` (html, not_json, no_choices, no_content) and, for errors sent with status 200, what they mean.
    """
    body = read_body(text)
    if body.get("error"):
        raise _error_in(body["error"], text)
    tokens = read_tokens(body.get("usage"))
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadResponse("no_choices", raw=text, tokens=tokens)
    read = [choice for choice in map(_choice, choices) if choice is not None]
    if not read:
        raise BadResponse("no_content", raw=text, tokens=tokens)
    return Reply(tuple(read), tokens)


def read_tokens(usage: object) -> Tokens | None:
    """Token counts of a body's usage field, None if they are missing or invalid."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0  # the latter is DeepSeek's
    written = details.get("cache_write_tokens") or 0
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens", 0), cached, written)
    if not all(isinstance(c, int) and not isinstance(c, bool) and c >= 0 for c in counts):
        return None
    return Tokens(*counts)  # pyright: ignore[reportArgumentType]


def _choice(choice: object) -> Completion | None:
    """One sample, None if it is empty."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    message, finish = choice["message"], choice.get("finish_reason")
    text = _text(message.get("content"))
    if finish == "content_filter" or isinstance(message.get("refusal"), str):
        return Completion(text or message.get("refusal") or "", "refused")
    if text is None:
        return Completion("", "length") if finish == "length" else None
    return Completion(text, "length" if finish == "length" else "stop")


def _text(content: object) -> str | None:
    """Content as text; some servers send it as a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def _error_in(error: object, raw: str) -> Exception:
    code = error.get("code") if isinstance(error, dict) else None
    message = str(error.get("message", "")) if isinstance(error, dict) else str(error)
    if code == 429:
        return RateLimited(message)
    if isinstance(code, int) and code >= 500:
        return ServerFailed("server_error", message, raw=raw)
    if isinstance(code, int) and code in (400, 413, 422):
        return Declined("bad_request", message, raw=raw)
    return BadResponse("error_body", message, raw=raw)
