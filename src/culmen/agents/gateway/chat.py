"""OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from culmen.agents.gateway.formats import Format, Refused, openai_error, positive
from culmen.agents.gateway.reading import Heard, dicts, inner
from culmen.llm.backends import read_tokens
from culmen.llm.call import Tokens
from culmen.llm.spec import ModelSpec


class ChatReader:
    """Reads replies; see `culmen.agents.gateway.reading.Reader`. Of several choices the first is kept."""

    def __init__(self) -> None:
        self.heard, self.complete = Heard(), False
        self.tokens: Tokens | None = None

    def whole(self, body: dict[str, Any]) -> None:
        self._read(body, "message")

    def event(self, body: dict[str, Any]) -> None:
        self._read(body, "delta")

    def _read(self, body: dict[str, Any], part: str) -> None:
        if (tokens := read_tokens(body.get("usage"))) is not None:
            self.tokens, self.complete = tokens, True
        for choice in dicts(body.get("choices"))[:1]:
            said = inner(choice, part)
            self.heard.finish = str(choice.get("finish_reason") or self.heard.finish)
            self.heard.text.add(said.get("content"))
            self.heard.reasoning.add(said.get("reasoning_content") or said.get("reasoning"))
            for place, call in enumerate(dicts(said.get("tool_calls"))):
                made = inner(call, "function") or inner(call, "custom")
                key = call.get("index") if isinstance(call.get("index"), int) else place
                self.heard.call(key, made.get("name"), made.get("arguments") or made.get("input"))


class Chat(Format):
    """See https://platform.openai.com/docs/api-reference/chat."""

    name = "chat"
    conversation = "messages"
    hosted = ("web_search",)

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        names = ("max_tokens", "max_completion_tokens")
        given = [positive(body[name], name, 0) for name in names if body.get(name) is not None]
        samples = positive(body.get("n"), "n", 1)
        if given:
            return body, samples * max(given)
        return {**body, model.max_tokens_name: model.max_tokens}, samples * model.max_tokens

    def told(self, body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        options = inner(body, "stream_options")
        if body.get("stream") is not True or options.get("include_usage") is True:
            return body, False
        return {**body, "stream_options": {**options, "include_usage": True}}, True

    def reader(self) -> ChatReader:
        return ChatReader()

    def path(self, model: str, action: str) -> str:
        return "/chat/completions"

    def error(self, refused: Refused) -> dict[str, Any]:
        return openai_error(refused)


def only_usage(body: dict[str, Any]) -> bool:
    """Whether an event is the one that `include_usage` adds: no choices, only the count."""
    return body.get("choices") == [] and isinstance(body.get("usage"), dict)
