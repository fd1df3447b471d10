"""Anthropic's messages."""

from __future__ import annotations

import json
from typing import Any

from culmen.agents.gateway.formats import Format, Refused, positive
from culmen.agents.gateway.reading import Heard, count, dicts, inner
from culmen.llm.call import Tokens
from culmen.llm.spec import ModelSpec

_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class MessagesReader:
    """A `culmen.agents.gateway.reading.Reader`. Counts of a later event replace those of an earlier one."""

    def __init__(self) -> None:
        self.heard, self.complete = Heard(), False
        self._counts: dict[str, int] = {}

    @property
    def tokens(self) -> Tokens | None:
        """What is known so far; the parts read from and written to the cache are told apart from the rest."""
        if "input_tokens" not in self._counts:
            return None
        read, written = (self._counts.get(f"cache_{part}_input_tokens", 0) for part in ("read", "creation"))
        whole = self._counts["input_tokens"] + read + written
        return Tokens(whole, self._counts.get("output_tokens", 0), read, written)

    def whole(self, body: dict[str, Any]) -> None:
        self.heard.finish = str(body.get("stop_reason") or "")
        for place, block in enumerate(dicts(body.get("content"))):
            self._block(place, block)
        self._count(body.get("usage"))
        self.complete = self.tokens is not None

    def event(self, body: dict[str, Any]) -> None:
        kind, place = body.get("type"), body.get("index")
        if kind == "message_start":
            self._count(inner(body, "message").get("usage"))
        elif kind == "content_block_start":
            self._block(place, inner(body, "content_block"))
        elif kind == "content_block_delta":
            self._delta(place, inner(body, "delta"))
        elif kind == "message_delta":
            self.heard.finish = str(inner(body, "delta").get("stop_reason") or self.heard.finish)
            self._count(body.get("usage"))
            self.complete = count(body, "usage", "output_tokens") is not None and self.tokens is not None

    def _block(self, place: object, block: dict[str, Any]) -> None:
        self.heard.text.add(block.get("text"))
        self.heard.reasoning.add(block.get("thinking"))
        if str(block.get("type") or "").endswith("tool_use"):
            arguments = block.get("input")
            self.heard.call(place, block.get("name"), json.dumps(arguments) if arguments else "")

    def _delta(self, place: object, delta: dict[str, Any]) -> None:
        self.heard.text.add(delta.get("text"))
        self.heard.reasoning.add(delta.get("thinking"))
        if "partial_json" in delta:
            self.heard.call(place, "", delta["partial_json"])

    def _count(self, usage: object) -> None:
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        found = {name: count(usage, name) for name in names}
        self._counts.update({name: value for name, value in found.items() if value is not None})


class Messages(Format):
    """See https://docs.anthropic.com/en/api/messages."""

    name = "messages"
    conversation = "messages"
    dearer = ("service_tier", "speed", "inference_geo")
    elsewhere = ("container", "mcp_servers")
    hosted = ("web_search", "web_fetch", "code_execution")

    def limited(self, body: dict[str, Any], model: ModelSpec) -> tuple[dict[str, Any], int]:
        most = positive(body.get("max_tokens"), "max_tokens", model.max_tokens)
        return {**body, "max_tokens": most}, most

    def reader(self) -> MessagesReader:
        return MessagesReader()

    def path(self, model: str, action: str) -> str:
        return "/messages/count_tokens" if action == "count" else "/messages"

    def error(self, refused: Refused) -> dict[str, Any]:
        kind = _KINDS.get(refused.status, "api_error" if refused.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": refused.message}}
