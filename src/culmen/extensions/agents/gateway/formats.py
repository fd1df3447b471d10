"""The gateway's view of a wire format, and the parts that its four formats share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from culmen.core.errors import CulmenError
from culmen.core.json import JsonObject
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec


class RequestRefused(CulmenError):
    """A request that is not passed on: the status and the message that the agent receives."""

    def __init__(self, status: int, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind or "request"

    @property
    def is_final(self) -> bool:
        """True if a retry cannot succeed."""
        return self.kind in ("budget", "closed", "token", "request")


class WireFormat:
    """One wire format. Requests are JSON objects; their content is not trusted.

    conversation   field that holds the turns
    dearer         fields that change the price in a way that price lists do not state; they are
                   removed
    elsewhere      fields that refer to data kept by the provider; such requests are refused: their
                   cost cannot be bounded from the request
    hosted         prefixes of the names of tools that the provider itself runs
    path           path of a request below the upstream's address
    new_reader     makes a reader for one reply
    """

    name: ClassVar[str]
    conversation: ClassVar[str]
    path: ClassVar[str]
    new_reader: ClassVar[type[ReplyReader]]
    dearer: ClassVar[tuple[str, ...]] = ("service_tier", "speed")
    elsewhere: ClassVar[tuple[str, ...]] = ()
    hosted: ClassVar[tuple[str, ...]] = ()

    def with_output_limit(self, body: JsonObject, model: ModelSpec) -> tuple[JsonObject, int]:
        """The body with a limit on the reply, and the most tokens that the reply may have.

        The limit is the model's if the body has none. Raises `RequestRefused` if the limit is not a
        positive number.
        """
        raise NotImplementedError

    def with_model_name(self, body: JsonObject, model: str) -> JsonObject:
        """The body with the model's name upstream."""
        return {**body, "model": model}

    def with_usage_request(self, body: JsonObject) -> tuple[JsonObject, bool]:
        """The body such that a streamed reply reports usage, and True if that was added."""
        return body, False

    def request_path(self, model: str, action: str) -> str:
        """Path of the request below the upstream's address."""
        return self.path

    def error_body(self, refused: RequestRefused) -> JsonObject:
        """Body of an error as this format's clients expect it; by default OpenAI's form."""
        quota = "insufficient_quota" if refused.is_final else "rate_limit_exceeded"
        kind = {401: "invalid_request_error", 403: "permission_error", 429: quota}
        code = {401: "invalid_api_key", 403: "model_not_found", 404: "not_found", 429: quota}
        other = "server_error" if refused.status >= 500 else "invalid_request_error"
        error = {"message": refused.message, "type": kind.get(refused.status, other)}
        return {"error": error | {"param": None, "code": code.get(refused.status)}}

    def without_hosted_tools(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body without the tools that the provider itself runs, and the names of those tools.

        Such tools cost extra and reach the network.
        """
        kinds = [str(tool.get("type") or "") for tool in objects_in(body.get("tools"))]
        removed = [kind for kind in kinds if kind.startswith(self.hosted or ("\0",))]
        if removed:
            body = with_tools(
                body,
                [t for t, kind in zip(objects_in(body["tools"]), kinds) if kind not in removed],
            )
        if "web_search_options" in body:
            removed = [*removed, "web_search_options"]
        return without_fields(body, ("web_search_options",)), removed


def with_tools(body: JsonObject, tools: list[JsonObject]) -> JsonObject:
    """The body with these tools; without the fields for tools if there are none.

    Servers refuse an empty list.
    """
    gone = (
        ()
        if tools
        else ("tools", "tool_choice", "parallel_tool_calls", "toolConfig", "tool_config")
    )
    return without_fields({**body, "tools": tools}, gone)


def without_fields(body: JsonObject, names: Sequence[str]) -> JsonObject:
    return {name: value for name, value in body.items() if name not in names}


def positive_limit(value: object, name: str, default: int) -> int:
    """A limit in a request: a whole number above 0; `default` for None.

    Raises RequestRefused for any other value.
    """
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
        return value
    raise RequestRefused(400, f"'{name}' must be a whole number above 0")


_ROUTES = (
    (re.compile(r"/(?:v1/)?chat/completions"), "chat", "generate"),
    (re.compile(r"/(?:v1/)?responses"), "responses", "generate"),
    (re.compile(r"/(?:v1/)?messages"), "messages", "generate"),
    (re.compile(r"/(?:v1/)?messages/count_tokens"), "messages", "count"),
    (
        re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):generateContent"),
        "gemini",
        "generate",
    ),
    (
        re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):streamGenerateContent"),
        "gemini",
        "stream",
    ),
    (re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):countTokens"), "gemini", "count"),
    (re.compile(r"/(?:v1/)?models(?:/(?P<model>.+))?"), "chat", "models"),
    (re.compile(r"/v1(?:beta|alpha)/models(?:/(?P<model>.+))?"), "gemini", "models"),
)


def parse_route(path: str) -> tuple[str, str, str] | None:
    """Format, action, and model of a path; None for an unknown path.

    The action is generate, stream, count or models. The model is "" if the body names it.
    """
    for pattern, form, action in _ROUTES:
        if (match := pattern.fullmatch(path)) is not None:
            return form, action, match.groupdict().get("model") or ""
    return None


# Server-sent events (WHATWG HTML, section 9.2), read piece by piece as they arrive.

LONGEST = 32 * 2**20  # bytes of one event; a stream with a longer one is passed on unread

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")


class StreamEvent(NamedTuple):
    """One event of a stream.

    `raw` holds its bytes as received, including the blank line; `name` is "" if it has none.
    """

    raw: bytes
    name: str
    data: str


class EventSplitter:
    """Splitter of a stream of bytes into events.

    `lost` is True after an event that was too long to be read.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer already searched for the end of an event
        self.lost = False

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that are complete after this chunk."""
        if self.lost:
            return []
        self._buffer += chunk
        events: list[StreamEvent] = []
        while (end := _END.search(self._buffer, max(0, self._seen - 3))) is not None:
            raw = bytes(self._buffer[: end.end()])
            del self._buffer[: end.end()]
            self._seen = 0
            events.append(_parse_event(raw))
        self._seen = len(self._buffer)
        if self._seen > LONGEST:
            self.lost = True
            self._buffer.clear()
        return events

    def remaining_events(self) -> list[StreamEvent]:
        """The bytes after the last blank line, as an event; some servers omit the final one."""
        raw = bytes(self._buffer)
        self._buffer.clear()
        return [_parse_event(raw)] if raw.strip() else []


def _parse_event(raw: bytes) -> StreamEvent:
    name, data = "", []
    for line in re.split(r"\r\n|\n|\r", raw.decode("utf-8", "replace").removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return StreamEvent(raw, name, "\n".join(data))


# Shared by the four readers of replies: the reassembled reply, the tokens, and defensive access to
# bodies.

KEPT = 20_000  # characters of one text or one call's arguments that are kept for the transcript


class ClippedText:
    """A text that grows piece by piece and keeps only its beginning.

    `str` returns the kept beginning, at most `KEPT` characters; `len` is the length of the whole.
    """

    def __init__(self) -> None:
        self._kept, self._chars_left, self._length = list[str](), KEPT, 0

    def append_piece(self, text: object) -> None:
        """Append a text; ignore any other type."""
        if isinstance(text, str) and text:
            self._length += len(text)
            if self._chars_left > 0:
                self._kept.append(text[: self._chars_left])
                self._chars_left -= len(text)

    def __str__(self) -> str:
        return "".join(self._kept)

    def __len__(self) -> int:
        return self._length


class ReplyRecord:
    """A reply as far as it was received: text, reasoning, tool calls by key, finish reason."""

    def __init__(self) -> None:
        self.text, self.reasoning, self.finish = ClippedText(), ClippedText(), ""
        self._calls: dict[object, tuple[ClippedText, ClippedText]] = {}

    def add_tool_call(self, key: object, name: object = "", arguments: object = "") -> None:
        """Record a tool call, or a further piece of its name and arguments."""
        key = key if isinstance(key, int | str) else None  # a server may send any JSON
        if key not in self._calls and len(self._calls) < 256:
            self._calls[key] = (ClippedText(), ClippedText())
        if key in self._calls:
            for clip, piece in zip(self._calls[key], (name, arguments)):
                clip.append_piece(piece)

    def plain_reply(self) -> JsonObject:
        """The reply as plain data with `ClippedText` texts; empty parts are left out."""
        calls = [{"name": name, "arguments": arguments} for name, arguments in self._calls.values()]
        parts = {
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": calls,
            "finish": self.finish,
        }
        return {name: value for name, value in parts.items() if value}


class ReplyReader:
    """Reader of replies of one format.

    `tokens` are the tokens known so far; `complete` is True if they are the final count.
    """

    def __init__(self) -> None:
        self.record, self.complete = ReplyRecord(), False
        self.tokens: Tokens | None = None

    def read_full_reply(self, body: JsonObject) -> None:
        """Read a reply that came in one piece; by default it has the form of an event."""
        self.read_stream_event(body)

    def read_stream_event(self, body: JsonObject) -> None:
        """Read one event of a stream."""
        raise NotImplementedError


def count_at(body: object, *names: str) -> int | None:
    """Whole number of 0 or more at the end of a path; None if there is none."""
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, int) and not isinstance(body, bool) and body >= 0 else None


def objects_in(value: object) -> list[JsonObject]:
    """The objects of a list; other items are left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_at(body: JsonObject, name: str) -> JsonObject:
    """The object under a name; an empty one if there is none."""
    value = body.get(name)
    return value if isinstance(value, dict) else {}
