"""Bodies of OpenAI-compatible chat completions, read with distrust: whatever is malformed raises `BadResponse`."""

from __future__ import annotations

import json
from typing import Any

from culmen.llm.call import BadResponse, Call, Choice, Declined, RateLimited, Reply, ServerFailed, Tokens


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
    """Token counts of a body's usage field, None if they are missing or senseless."""
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


def _choice(choice: object) -> Choice | None:
    """One sample, None if it carries nothing at all."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    message, finish = choice["message"], choice.get("finish_reason")
    text = _text(message.get("content"))
    if finish == "content_filter" or isinstance(message.get("refusal"), str):
        return Choice(text or message.get("refusal") or "", "refused")
    if text is None:
        return Choice("", "length") if finish == "length" else None
    return Choice(text, "length" if finish == "length" else "stop")


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
