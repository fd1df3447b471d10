"""What the gateway must know of a wire format, and the four it speaks."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from culmen.agents.gateway.reading import Reader, dicts
from culmen.core.errors import CulmenError
from culmen.llm.spec import ModelSpec


class Refused(CulmenError):
    """A request that is not passed on: the status and the sentence that the agent gets."""

    def __init__(self, status: int, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind or "request"

    @property
    def final(self) -> bool:
        """Whether asking again is no use."""
        return self.kind in ("budget", "closed", "token", "request")


class Format:
    """One wire format. Requests are JSON objects; nothing in them is trusted.

    `conversation` is the field that holds the turns, `dearer` are fields that change the price in a way no price list
    knows (they are left out), `elsewhere` fields that refer to things kept by the provider (such requests are refused,
    because what they cost cannot be bounded from what is sent), `hosted` the beginnings of the names of tools that the
    provider itself runs.
    """

    name: ClassVar[str]
    conversation: ClassVar[str]
    dearer: ClassVar[tuple[str, ...]] = ("service_tier", "speed")
    elsewhere: ClassVar[tuple[str, ...]] = ()
    hosted: ClassVar[tuple[str, ...]] = ()

    def reader(self) -> Reader:
        """A new reader for one reply."""
        raise NotImplementedError

    def streams(self, body: dict[str, Any], action: str) -> bool:
        """Whether a stream is asked for."""
        return body.get("stream") is True

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        """The body with a limit on the reply (the model's where it had none), and the most tokens that may come back.

        Raises `Refused` if the limit is no positive number.
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

    def error(self, refused: Refused) -> dict[str, Any]:
        """The body of an error as this format's clients expect it."""
        raise NotImplementedError

    def local(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The body without the tools that the provider itself runs (they cost extra and reach the network), and their
        names."""
        kinds = [str(tool.get("type") or "") for tool in dicts(body.get("tools"))]
        removed = [kind for kind in kinds if kind.startswith(self.hosted or ("\0",))]
        if removed:
            body = with_tools(body, [t for t, kind in zip(dicts(body["tools"]), kinds) if kind not in removed])
        if "web_search_options" in body:
            body, removed = _without(body, ("web_search_options",)), [*removed, "web_search_options"]
        return body, removed


def with_tools(body: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The body with these tools; without any, servers want no field at all."""
    gone = () if tools else ("tools", "tool_choice", "parallel_tool_calls", "toolConfig", "tool_config")
    return _without({**body, "tools": tools}, gone)


def _without(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def positive(value: object, name: str, default: int) -> int:
    """A limit of a request: a whole number above 0, or the default for None. Raises `Refused` for anything else."""
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
        return value
    raise Refused(400, f"'{name}' must be a whole number above 0")


def openai_error(refused: Refused) -> dict[str, Any]:
    """An error as OpenAI's two protocols send it."""
    quota = "insufficient_quota" if refused.final else "rate_limit_exceeded"
    kind = {401: "invalid_request_error", 403: "permission_error", 429: quota}
    code = {401: "invalid_api_key", 403: "model_not_found", 404: "not_found", 429: quota}
    typed = kind.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
    return {
        "error": {"message": refused.message, "type": typed, "param": None, "code": code.get(refused.status)},
    }


_ROUTES = (
    (re.compile(r"/(?:v1/)?chat/completions"), "chat", "generate"),
    (re.compile(r"/(?:v1/)?responses"), "responses", "generate"),
    (re.compile(r"/(?:v1/)?messages"), "messages", "generate"),
    (re.compile(r"/(?:v1/)?messages/count_tokens"), "messages", "count"),
    (re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):generateContent"), "gemini", "generate"),
    (re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):streamGenerateContent"), "gemini", "stream"),
    (re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^:]+):countTokens"), "gemini", "count"),
    (re.compile(r"/(?:v1/)?models(?:/(?P<model>.+))?"), "chat", "models"),
    (re.compile(r"/v1(?:beta|alpha)/models(?:/(?P<model>.+))?"), "gemini", "models"),
)


def route(path: str) -> tuple[str, str, str] | None:
    """Format, action (generate, stream, count, models) and the model in the path ("" if it is in the body)."""
    for pattern, form, action in _ROUTES:
        if (match := pattern.fullmatch(path)) is not None:
            return form, action, match.groupdict().get("model") or ""
    return None


def formats() -> dict[str, Format]:
    """The formats by name."""
    from culmen.agents.gateway.chat import Chat
    from culmen.agents.gateway.gemini import Gemini
    from culmen.agents.gateway.messages import Messages
    from culmen.agents.gateway.responses import Responses

    return {form.name: form for form in (Chat(), Responses(), Messages(), Gemini())}
