"""Model backends: OpenAI-compatible endpoints, the optional `litellm` package, a person.

`litellm` serves all other providers. Response bodies are untrusted: a malformed one raises
`BadResponse`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import UserError, missing_extra
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.models.call import (
    BadResponse,
    Call,
    ChatMessage,
    Completion,
    Declined,
    Interrupted,
    RateLimited,
    Reply,
    ServerFailed,
    Tokens,
)
from culmen.models.endpoint import Endpoint, status_error
from culmen.models.lessons import CHANGES, Lessons
from culmen.models.prompts.formats import finish_kind
from culmen.models.spec import Key

_TOKEN_BYTES = 512  # of the longest token, a run of spaces, and more
_COUNT_DIGITS = 20  # fewer are read of a number of tokens that is written as a text
_MOST_TOKENS = 2**53  # that are counted: all sums of them are numbers of any store
_DEEPEST = 32  # levels of a tool call
_SURROGATE = re.compile("[\ud800-\udfff]")


class OpenAIBackend:
    """Chat completions over HTTP.

    `max_tokens_name` is the server's name for the limit, `send_seed` passes `Call.seed` on.
    `lessons` are shared by the models of a run, each `provider`/model.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_tokens_name: str = "max_completion_tokens",
        send_seed: bool = False,
        provider: str = "",
        lessons: Lessons | None = None,
    ) -> None:
        self._endpoint, self._max_tokens_name, self._send_seed = (
            endpoint,
            max_tokens_name,
            send_seed,
        )
        self._provider, self._lessons = provider, lessons or Lessons()

    async def complete(self, call: Call) -> Reply:
        """One attempt; see `culmen.models.call.ModelBackend`.

        A refusal that names a field of the request is learnt from, and costs nothing: the request
        is sent again at once.
        """
        plain = body_of(call, max_tokens_name=self._max_tokens_name, send_seed=self._send_seed)
        plain, model = {**plain, **call.extra}, f"{self._provider}/{call.model}"
        for left in range(CHANGES, -1, -1):  # a server may ask for one thing and its opposite
            body = self._lessons.changed_body(model, plain)
            try:
                return read_reply(await self._endpoint.post("/chat/completions", body))
            except Declined as refusal:
                is_malformed = refusal.kind == "bad_request" and left > 0
                if not (
                    is_malformed and self._lessons.learn_from_refusal(model, body, refusal.raw)
                ):
                    raise
            except BadResponse as bad:
                if bad.kind == "streamed":
                    self._lessons.forbid_stream(model, body)
                raise
        raise AssertionError("the last refusal is raised")

    async def close(self) -> None:
        """Close the endpoint's connections."""
        await self._endpoint.close()


class LiteLLMBackend:
    """Chat completions through `litellm.acompletion`, its own retries off.

    Keys come from the provider's variables.
    """

    def __init__(self, key: Key, *, base_url: str | None = None, send_seed: bool = False) -> None:
        self._key, self._base_url, self._send_seed = key, base_url, send_seed

    async def complete(self, call: Call) -> Reply:
        """One attempt; see `culmen.models.call.ModelBackend`."""
        litellm = await asyncio.to_thread(_load_litellm)  # takes seconds
        import openai

        options: JsonObject = {
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": True,
            **call.extra,
        }
        if self._base_url:
            options["api_base"] = self._base_url
        if self._key.is_needed:
            options["api_key"] = self._key.reveal()
        body = body_of(call, max_tokens_name="max_tokens", send_seed=self._send_seed)
        failure: Exception
        try:
            response = await litellm.acompletion(**body, **options)
            reply = read_reply(json.dumps(response.model_dump(), default=str))
            return msgspec.structs.replace(reply, dollars=_litellm_dollars(response))
        except openai.APITimeoutError:  # litellm's exceptions are children of the SDK's
            failure = Interrupted("timeout")
        except openai.APIConnectionError as error:
            failure = ServerFailed("no_connection", self._key.scrub(str(error))[:200])
        except openai.APIStatusError as error:
            message = f"{error.code or ''} {error.message}"
            failure = status_error(
                error.status_code, message, error.response.headers, self._key, call.model
            )
        raise failure from None


def _litellm_dollars(response: object) -> float | None:
    """Dollars by litellm's price list, None if it has no price."""
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return float(cost) if isinstance(cost, int | float) and 0 <= cost < float("inf") else None


def _load_litellm() -> Any:
    try:
        import litellm  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise missing_extra("this model", "litellm", "litellm", "--model litellm/…") from None
    litellm.suppress_debug_info = True
    return litellm


def body_of(call: Call, *, max_tokens_name: str, send_seed: bool) -> JsonObject:
    """The request's body."""
    body: JsonObject = {
        "model": call.model,
        "messages": [
            {"role": m.role, "content": _message_content(m), **m.more} for m in call.messages
        ],
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


def _message_content(message: ChatMessage) -> str | list[JsonObject]:
    """The text alone, or a list of parts if pictures follow it."""
    if not message.pictures:
        return message.content
    shown = [{"type": "image_url", "image_url": {"url": picture}} for picture in message.pictures]
    return [{"type": "text", "text": message.content}, *shown]


def read_body(text: str) -> JsonObject:
    """The JSON object in a response of status 200.

    Raises `BadResponse` (html, streamed, not_json) if there is none.
    """
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        start = text.lstrip("\ufeff \t\r\n")[:200].lower()
        kind = next((kind for kind, marks in _STARTS.items() if start.startswith(marks)), "")
        raise BadResponse(kind or "not_json", raw=text) from None
    if not isinstance(body, dict):
        raise BadResponse("not_json", raw=text)
    return body


_STARTS = {
    "html": ("<!doctype", "<html", "<head", "<body", "<title", "<!--"),
    "streamed": ("data:", "event:", "id:", "retry:", ": ", ":\n"),
}  # of a body that is no JSON, by the fault


@boundary()
def read_reply(text: str) -> Reply:
    """The reply in a chat completion's body.

    Raises `BadResponse` (html, streamed, not_json, no_choices, no_content) and, for errors sent
    with status 200, the typed error that they mean.
    """
    body = read_body(text)
    if body.get("error"):
        raise _error_in(body["error"], text)
    tokens, total = read_tokens(body.get("usage")), read_total(body.get("usage"))
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadResponse("no_choices", raw=text, tokens=tokens)
    written = 0 if tokens is None else tokens.output
    read = [each for each in (_read_choice(c, written) for c in choices) if each is not None]
    if not read:
        raise BadResponse("no_content", raw=text, tokens=tokens)
    said = sum(len(choice.text.encode("utf-8", "replace")) for choice in read)
    if tokens is not None and said and tokens.input == 0:
        tokens = None
    if tokens is not None and tokens.output * _TOKEN_BYTES < said:  # as zero for a text
        tokens = None
    if total is not None and (tokens is not None or total * _TOKEN_BYTES <= said):
        total = None
    return Reply(tuple(read), tokens, total=total, size=_shown_bytes(choices))


# texts of a choice that the server writes, not the model
_FRAMING = {"role", "finish_reason", "native_finish_reason", "id", "type", "object"}


def _shown_bytes(value: object) -> int:
    """UTF-8 bytes that the model wrote in a body's choices, reasoning and calls included.

    Bytes that are not its own would make the tokens of a reply that was cut off look longer.
    """
    size, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace"))
        elif isinstance(each, dict | list):
            if isinstance(each, dict):
                each = [each[name] for name in each if name not in _FRAMING]
            left += each
    return size


def read_tokens(usage: object) -> Tokens | None:
    """Token counts of a body's usage field, None if they are missing or invalid.

    Some servers write numbers as texts. The prompt or the reply alone and the total give the other.
    """
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    # the latter is DeepSeek's
    cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    stored = details.get("cache_write_tokens") or 0
    prompt, reply = usage.get("prompt_tokens"), usage.get("completion_tokens")
    total = read_total(usage)
    if total is not None and prompt is None and (known := _token_count(reply)) is not None:
        prompt = total - known
    elif reply is None:
        known = _token_count(prompt)
        reply = 0 if total is None or known is None else total - known
    counts = [_token_count(each) for each in (prompt, reply, cached, stored)]
    if any(count is None for count in counts):
        return None
    return Tokens(*(count for count in counts if count is not None))


def read_total(usage: object) -> int | None:
    """Tokens of prompt and reply together in a body's usage field; None if that is missing."""
    return _token_count(usage.get("total_tokens")) if isinstance(usage, dict) else None


def _token_count(value: object) -> int | None:
    """A number of tokens, also one written as a text; None for anything else."""
    if isinstance(value, str) and len(value) < _COUNT_DIGITS and re.fullmatch("[0-9]+", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return min(value, _MOST_TOKENS)


def _read_choice(choice: object, written: int) -> Completion | None:
    """One sample of a reply of `written` tokens (0: unknown), None if it is empty."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return None
    message, word = choice["message"], str(choice.get("finish_reason") or "")
    text, finish = _content_text(message.get("content")), finish_kind(word)
    if finish == "refused":
        return Completion(text or "", "refused" if "refus" in word.lower() else "filtered")
    if isinstance(message.get("refusal"), str):
        return Completion(text or message.get("refusal") or "", "refused")
    tools = message.get("tool_calls")
    if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
        if not all(map(_is_storable, tools)):
            return None
        return Completion(text or "", "tools", tuple(tools))
    is_cut = finish == "length"
    if text is None or not _without_thoughts(text):
        thought = any(message.get(name) for name in _REASONING) or (text or "").strip()
        if is_cut and (thought or written):
            return Completion(text or "", "reasoning_cut")
        if thought:
            return Completion(text or "", "reasoning_only")
        if text is None and not is_cut:
            return None
    return Completion(text or "", "length" if is_cut else "stop")


def _without_thoughts(text: str) -> str:
    return _THOUGHT.sub("", text, count=1).strip()


_THOUGHT = re.compile(r"\A\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking")


def _is_storable(value: object, depth: int = 0) -> bool:
    """True for data that every store and every JSON accepts; the numbers of servers may not be."""
    if isinstance(value, dict):
        return depth < _DEEPEST and all(
            _is_storable(item, depth + 1) for pair in value.items() for item in pair
        )
    if isinstance(value, list):
        return depth < _DEEPEST and all(_is_storable(item, depth + 1) for item in value)
    if isinstance(value, str):
        return "\0" not in value and not _SURROGATE.search(value)
    return not isinstance(value, int | float) or abs(value) < 2**63


def _content_text(content: object) -> str | None:
    """Content as text; some servers send it as a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if texts else None
    return content if isinstance(content, str) else None


def _error_in(error: object, raw: str) -> Exception:
    code = error.get("code") if isinstance(error, dict) else None
    message = str(error.get("message", "") if isinstance(error, dict) else error)[:2_000]
    if code == 429:
        return RateLimited(message)
    if isinstance(code, int) and code >= 500:
        return ServerFailed("server_error", message, raw=raw)
    if isinstance(code, int) and 400 <= code < 500:
        return Declined("bad_request", message, raw=raw)
    return BadResponse("error_body", message, raw=raw)


# `--model ask`: a person answers the prompts, in $EDITOR on the terminal, in the dashboard, or by
# files in RUN/ask.
#
# A reply is journaled as any model's, so a resumed or replayed run asks for none of them again. A
# prompt without an answer when a run was cut off is not asked anew: its answer, which may be
# there by now, is waited for.

ASKED = "ask"
_LOOK = 0.3  # seconds between two looks for an answer
_LINE = "==== Write the answer below this line; leave it empty to answer nothing. ===="


class Person:
    """A model whose replies a person writes, one prompt after the other.

    On a terminal the prompt opens in $VISUAL or $EDITOR; elsewhere it lies in `folder` as
    N.prompt.md until N.reply.md is there, complete (write it under another name first), by hand or
    from the dashboard (store/sidecar.py); a prompt with a read reply is renamed to N.answered.md.
    """

    name = ASKED

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("culmen-ask")
        self._turn = asyncio.Lock()

    async def complete(self, call: Call) -> Reply:
        """One reply, free of tokens and dollars."""
        async with self._turn:
            self._folder.mkdir(parents=True, exist_ok=True)
            prompt = self._find_unread_prompt(call.prompt) or self._write_prompt(call.prompt)
            reply, answered = (
                prompt.with_name(prompt.name.replace("prompt", kind))
                for kind in ("reply", "answered")
            )
            if (editor := _editor_command()) and not reply.is_file():
                await self._edit_reply(editor, call.prompt, reply)
            elif not reply.is_file():
                notice = (
                    f"the prompt is in {prompt}: answer it in culmen ui, or write the answer to "
                    f"{reply}"
                )
                print(notice, file=sys.stderr)  # noqa: T201
            while not reply.is_file():
                await asyncio.sleep(_LOOK)
            answer = reply.read_text(encoding="utf-8", errors="replace").strip()
            prompt.replace(answered)
            return Reply((Completion(answer),), Tokens(), 0.0)

    def _find_unread_prompt(self, text: str) -> Path | None:
        """A prompt of this text with an unread answer."""
        for prompt in sorted(self._folder.glob("[0-9]*.prompt.md")):
            if prompt.read_text(encoding="utf-8", errors="replace") == text:
                return prompt
        return None

    def _write_prompt(self, text: str) -> Path:
        number = 1 + max(
            (int(path.name.partition(".")[0]) for path in self._folder.glob("[0-9]*.md")), default=0
        )
        prompt = self._folder / f"{number:04d}.prompt.md"
        prompt.write_text(text, encoding="utf-8")
        return prompt

    async def close(self) -> None:
        """No-op: there are no connections."""

    async def _edit_reply(self, editor: list[str], prompt: str, reply: Path) -> None:
        """Get the answer from an editor that has the terminal while it runs."""
        draft = reply.with_suffix(".draft")
        draft.write_text(f"{prompt}\n\n{_LINE}\n", encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*editor, str(draft))
        except OSError as error:
            fix = "set EDITOR to an editor that is installed"
            raise UserError(
                f"the editor cannot be started: {error.strerror}", where=editor[0], fix=fix
            ) from None
        if code := await process.wait():
            raise UserError(
                f"the editor ended with status {code}",
                where=editor[0],
                fix="end the editor with status 0; the next start asks again",
            )
        answer = draft.read_text(encoding="utf-8", errors="replace").rpartition(_LINE)[2].strip()
        draft.write_text(answer, encoding="utf-8")
        draft.replace(reply)


def _editor_command() -> list[str]:
    """The editor's command, empty without a terminal or a configured editor."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return []
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
