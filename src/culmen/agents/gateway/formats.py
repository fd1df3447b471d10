"""What the gateway must know of a wire format, and the four it speaks."""

from __future__ import annotations

import re
from typing import Any, ClassVar, NamedTuple, Protocol

from culmen.core.errors import CulmenError
from culmen.llm.call import Tokens
from culmen.llm.spec import ModelSpec


class RequestRefused(CulmenError):
    """A request that is not passed on: the status and the sentence that the agent gets."""

    def __init__(self, status: int, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind or "request"

    @property
    def final(self) -> bool:
        """Whether asking again is no use."""
        return self.kind in ("budget", "closed", "token", "request")


class WireFormat:
    """One wire format. Requests are JSON objects; nothing in them is trusted.

    `conversation` is the field that holds the turns, `dearer` are fields that change the price in a
    way no price list knows (they are left out), `elsewhere` fields that refer to things kept by the
    provider (such requests are refused, because what they cost cannot be bounded from what is
    sent), `hosted` the beginnings of the names of tools that the provider itself runs.
    """

    name: ClassVar[str]
    conversation: ClassVar[str]
    dearer: ClassVar[tuple[str, ...]] = ("service_tier", "speed")
    elsewhere: ClassVar[tuple[str, ...]] = ()
    hosted: ClassVar[tuple[str, ...]] = ()

    def reader(self) -> ReplyReader:
        """A new reader for one reply."""
        raise NotImplementedError

    def streams(self, body: dict[str, Any], action: str) -> bool:
        """Whether a stream is asked for."""
        return body.get("stream") is True

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        """The body with a limit on the reply (the model's where it had none), and the most tokens
        that may come back.

        Raises `RequestRefused` if the limit is no positive number.
        """
        raise NotImplementedError

    def named(self, body: dict[str, Any], model: str) -> dict[str, Any]:
        """The body with the model's name upstream."""
        return {**body, "model": model}

    def told(self, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The body so that a streamed reply tells its usage, and whether that was added."""
        return body, False

    def path(self, model: str, action: str) -> str:
        """Where the request goes, below the upstream's address."""
        raise NotImplementedError

    def error(self, refused: RequestRefused) -> dict[str, Any]:
        """The body of an error as this format's clients expect it."""
        raise NotImplementedError

    def local(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The body without the tools that the provider itself runs (they cost extra and reach the
        network), and their names."""
        kinds = [str(tool.get("type") or "") for tool in dicts(body.get("tools"))]
        removed = [kind for kind in kinds if kind.startswith(self.hosted or ("\0",))]
        if removed:
            body = with_tools(
                body, [t for t, kind in zip(dicts(body["tools"]), kinds) if kind not in removed]
            )
        if "web_search_options" in body:
            body, removed = (
                _without(body, ("web_search_options",)),
                [*removed, "web_search_options"],
            )
        return body, removed


def with_tools(body: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The body with these tools; without any, servers want no field at all."""
    gone = (
        ()
        if tools
        else ("tools", "tool_choice", "parallel_tool_calls", "toolConfig", "tool_config")
    )
    return _without({**body, "tools": tools}, gone)


def _without(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def positive(value: object, name: str, default: int) -> int:
    """A limit of a request: a whole number above 0, the default for None. Raises RequestRefused for
    anything else.
    """
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
        return value
    raise RequestRefused(400, f"'{name}' must be a whole number above 0")


def openai_error(refused: RequestRefused) -> dict[str, Any]:
    """An error as OpenAI's two protocols send it."""
    quota = "insufficient_quota" if refused.final else "rate_limit_exceeded"
    kind = {401: "invalid_request_error", 403: "permission_error", 429: quota}
    code = {401: "invalid_api_key", 403: "model_not_found", 404: "not_found", 429: quota}
    typed = kind.get(
        refused.status, "server_error" if refused.status >= 500 else "invalid_request_error"
    )
    return {
        "error": {
            "message": refused.message,
            "type": typed,
            "param": None,
            "code": code.get(refused.status),
        },
    }


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


def route(path: str) -> tuple[str, str, str] | None:
    """Format, action (generate, stream, count, models) and the model in the path ("" if it is in
    the body).
    """
    for pattern, form, action in _ROUTES:
        if (match := pattern.fullmatch(path)) is not None:
            return form, action, match.groupdict().get("model") or ""
    return None


# Server-sent events (WHATWG HTML, section 9.2), read piece by piece as they arrive.

LONGEST = 32 * 2**20  # bytes of one event; beyond that the stream is passed on but no longer read

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")


class StreamEvent(NamedTuple):
    """One event: its bytes as they came (the blank line included), its name ("" if it has none) and
    its data.
    """

    raw: bytes
    name: str
    data: str


class EventSplitter:
    """Cuts a stream of bytes into events. `lost` says that an event was too long to be read."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer that are known to hold no end of an event
        self.lost = False

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that are whole after this chunk."""
        if self.lost:
            return []
        self._buffer += chunk
        found: list[StreamEvent] = []
        while (end := _END.search(self._buffer, max(0, self._seen - 3))) is not None:
            raw = bytes(self._buffer[: end.end()])
            del self._buffer[: end.end()]
            self._seen = 0
            found.append(_event(raw))
        self._seen = len(self._buffer)
        if self._seen > LONGEST:
            self.lost = True
            self._buffer.clear()
        return found

    def rest(self) -> list[StreamEvent]:
        """What came after the last blank line, as an event: some servers leave the final one
        out.
        """
        raw = bytes(self._buffer)
        self._buffer.clear()
        return [_event(raw)] if raw.strip() else []


def _event(raw: bytes) -> StreamEvent:
    name, data = "", []
    for line in re.split(r"\r\n|\n|\r", raw.decode("utf-8", "replace").removeprefix("\ufeff")):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return StreamEvent(raw, name, "\n".join(data))


# What the four readers of replies share: the reassembled reply, the tokens, and a distrustful way
# into bodies.

KEPT = 20_000  # characters of one text or one call's arguments that are kept for the transcript


class ClippedText:
    """A text that grows piece by piece. `str` gives the beginning that is kept, `len` the length of
    the whole.
    """

    def __init__(self, text: object = "") -> None:
        self._kept, self._room, self._length = [], KEPT, 0
        self.add(text)

    def add(self, text: object) -> None:
        """Append; whatever is no text is left out."""
        if isinstance(text, str) and text:
            self._length += len(text)
            if self._room > 0:
                self._kept.append(text[: self._room])
                self._room -= len(text)

    def __str__(self) -> str:
        return "".join(self._kept)

    def __len__(self) -> int:
        return self._length


class ReplyRecord:
    """A reply as far as it has come: text, reasoning, tool calls by key, and how it ended."""

    def __init__(self) -> None:
        self.text, self.reasoning, self.finish = ClippedText(), ClippedText(), ""
        self._calls: dict[object, tuple[ClippedText, ClippedText]] = {}

    def call(self, key: object, name: object = "", arguments: object = "") -> None:
        """A tool call, or a further piece of its name and arguments."""
        if key not in self._calls and len(self._calls) < 256:
            self._calls[key] = (ClippedText(), ClippedText())
        if key in self._calls:
            for clip, piece in zip(self._calls[key], (name, arguments)):
                clip.add(piece)

    def plain(self) -> dict[str, Any]:
        """As plain data but for the clips, empty parts left out."""
        calls = [{"name": name, "arguments": arguments} for name, arguments in self._calls.values()]
        whole = {
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": calls,
            "finish": self.finish,
        }
        return {name: value for name, value in whole.items() if value}


class ReplyReader(Protocol):
    """Reads the replies of one format. `tokens` is what is known so far, `complete` whether that is
    the final count.
    """

    heard: ReplyRecord
    complete: bool

    @property
    def tokens(self) -> Tokens | None: ...

    def whole(self, body: dict[str, Any]) -> None:
        """A reply that came in one piece."""
        ...

    def event(self, body: dict[str, Any]) -> None:
        """One event of a stream."""
        ...


def count(body: object, *names: str) -> int | None:
    """A whole number of 0 or more at the end of this path, None if it is not there."""
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, int) and not isinstance(body, bool) and body >= 0 else None


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects of a list, whatever else it holds."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def inner(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under this name, an empty one if there is none."""
    value = body.get(name)
    return value if isinstance(value, dict) else {}
