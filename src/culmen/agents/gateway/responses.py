"""OpenAI's responses."""

from __future__ import annotations

from typing import Any

from culmen.agents.gateway.formats import Format, Refused, openai_error, positive
from culmen.agents.gateway.reading import Heard, count, dicts, inner
from culmen.llm.call import Tokens
from culmen.llm.spec import ModelSpec

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesReader:
    """Reads replies; see `culmen.agents.gateway.reading.Reader`. Items are taken whole, when each is done."""

    def __init__(self) -> None:
        self.heard, self.complete = Heard(), False
        self.tokens: Tokens | None = None
        self._items = 0

    def whole(self, body: dict[str, Any]) -> None:
        for item in dicts(body.get("output")):
            self._item(item)
        self._end(body)

    def event(self, body: dict[str, Any]) -> None:
        kind = body.get("type")
        if kind == "response.output_item.done":
            self._item(inner(body, "item"))
        elif kind in _ENDS:
            self._end(inner(body, "response"))

    def _end(self, response: dict[str, Any]) -> None:
        self.heard.finish = str(response.get("status") or "")
        usage = response.get("usage")
        read, written = count(usage, "input_tokens"), count(usage, "output_tokens")
        if read is not None and written is not None:
            cached, stored = (
                count(usage, "input_tokens_details", name) or 0 for name in ("cached_tokens", "cache_write_tokens")
            )
            self.tokens, self.complete = Tokens(read, written, cached, stored), True

    def _item(self, item: dict[str, Any]) -> None:
        self._items += 1
        kind = str(item.get("type") or "")
        for part in dicts(item.get("content")):
            self.heard.text.add(part.get("text") if kind == "message" else "")
        for part in dicts(item.get("summary")):
            self.heard.reasoning.add(part.get("text"))
        if kind.endswith("_call"):
            arguments = item.get("arguments") or item.get("input") or str(item.get("action") or "")
            self.heard.call(self._items, item.get("name") or kind, arguments)


class Responses(Format):
    """See https://platform.openai.com/docs/api-reference/responses."""

    name = "responses"
    conversation = "input"
    elsewhere = ("previous_response_id", "conversation", "prompt", "background")
    hosted = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp")

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        most = positive(body.get("max_output_tokens"), "max_output_tokens", model.max_tokens)
        return {**body, "max_output_tokens": most}, most

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def path(self, model: str, action: str) -> str:
        return "/responses"

    def error(self, refused: Refused) -> dict[str, Any]:
        return openai_error(refused)
