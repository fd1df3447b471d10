"""The four wire formats: OpenAI's chat completions and responses, Anthropic's, Google's."""

from __future__ import annotations

import json
from urllib.parse import quote

from culmen.core.json import JsonObject
from culmen.extensions.agents.gateway.formats import (
    ReplyReader,
    RequestRefused,
    WireFormat,
    count_at,
    object_at,
    objects_in,
    positive_limit,
    with_tools,
    without_fields,
)
from culmen.models.backends import read_tokens
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec


class ChatReader(ReplyReader):
    """The first of several choices is kept."""

    def read_full_reply(self, body: JsonObject) -> None:
        self._read_first_choice(body, "message")

    def read_stream_event(self, body: JsonObject) -> None:
        self._read_first_choice(body, "delta")

    def _read_first_choice(self, body: JsonObject, part: str) -> None:
        if (tokens := read_tokens(body.get("usage"))) is not None:
            self.tokens, self.complete = tokens, True
        for choice in objects_in(body.get("choices"))[:1]:
            message = object_at(choice, part)
            self.record.finish = str(choice.get("finish_reason") or self.record.finish)
            self.record.text.append_piece(message.get("content"))
            self.record.reasoning.append_piece(
                message.get("reasoning_content") or message.get("reasoning")
            )
            for position, call in enumerate(objects_in(message.get("tool_calls"))):
                function = object_at(call, "function") or object_at(call, "custom")
                key = call.get("index") if isinstance(call.get("index"), int) else position
                self.record.add_tool_call(
                    key, function.get("name"), function.get("arguments") or function.get("input")
                )


class ChatFormat(WireFormat):
    """See https://platform.openai.com/docs/api-reference/chat."""

    name = "chat"
    conversation, path, new_reader = "messages", "/chat/completions", ChatReader
    hosted = ("web_search",)

    def with_output_limit(self, body: JsonObject, model: ModelSpec) -> tuple[JsonObject, int]:
        names = ("max_tokens", "max_completion_tokens")
        limits = [
            positive_limit(body[name], name, 0) for name in names if body.get(name) is not None
        ]
        samples = positive_limit(body.get("n"), "n", 1)
        if limits:
            return body, samples * max(limits)
        return {**body, model.max_tokens_name: model.max_tokens}, samples * model.max_tokens

    def with_usage_request(self, body: JsonObject) -> tuple[JsonObject, bool]:
        options = object_at(body, "stream_options")
        if body.get("stream") is not True or options.get("include_usage") is True:
            return body, False
        return {**body, "stream_options": {**options, "include_usage": True}}, True


def is_usage_event(body: JsonObject) -> bool:
    """True for the event that `include_usage` adds: no choices, only the token counts."""
    return body.get("choices") == [] and isinstance(body.get("usage"), dict)


# OpenAI's responses.

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesReader(ReplyReader):
    """Each item is read when it is complete."""

    _items = 0

    def read_full_reply(self, body: JsonObject) -> None:
        for item in objects_in(body.get("output")):
            self._read_output_item(item)
        self._read_final_response(body)

    def read_stream_event(self, body: JsonObject) -> None:
        kind = body.get("type")
        if kind == "response.output_item.done":
            self._read_output_item(object_at(body, "item"))
        elif kind in _ENDS:
            self._read_final_response(object_at(body, "response"))

    def _read_final_response(self, response: JsonObject) -> None:
        self.record.finish = str(response.get("status") or "")
        usage = response.get("usage")
        read, written = count_at(usage, "input_tokens"), count_at(usage, "output_tokens")
        if read is not None and written is not None:
            cached, stored = (
                count_at(usage, "input_tokens_details", name) or 0
                for name in ("cached_tokens", "cache_write_tokens")
            )
            self.tokens, self.complete = Tokens(read, written, cached, stored), True

    def _read_output_item(self, item: JsonObject) -> None:
        self._items += 1
        kind = str(item.get("type") or "")
        for part in objects_in(item.get("content")):
            self.record.text.append_piece(part.get("text") if kind == "message" else "")
        for part in objects_in(item.get("summary")):
            self.record.reasoning.append_piece(part.get("text"))
        if kind.endswith("_call"):
            arguments = item.get("arguments") or item.get("input") or str(item.get("action") or "")
            self.record.add_tool_call(self._items, item.get("name") or kind, arguments)


class ResponsesFormat(WireFormat):
    """See https://platform.openai.com/docs/api-reference/responses."""

    name = "responses"
    conversation, path, new_reader = "input", "/responses", ResponsesReader
    elsewhere = ("previous_response_id", "conversation", "prompt", "background")
    hosted = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp")

    def with_output_limit(self, body: JsonObject, model: ModelSpec) -> tuple[JsonObject, int]:
        limit = positive_limit(body.get("max_output_tokens"), "max_output_tokens", model.max_tokens)
        return {**body, "max_output_tokens": limit}, limit


# Anthropic's messages.

_COUNTED = ("input", "output", "cache_read_input", "cache_creation_input")
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class MessagesReader(ReplyReader):
    """Counts of a later event replace those of an earlier one."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def read_full_reply(self, body: JsonObject) -> None:
        self.record.finish = str(body.get("stop_reason") or "")
        for position, block in enumerate(objects_in(body.get("content"))):
            self._read_block(position, block)
        self._update_counts(body.get("usage"))
        self.complete = self.tokens is not None

    def read_stream_event(self, body: JsonObject) -> None:
        kind, position = body.get("type"), body.get("index")
        if kind == "message_start":
            self._update_counts(object_at(body, "message").get("usage"))
        elif kind == "content_block_start":
            self._read_block(position, object_at(body, "content_block"))
        elif kind == "content_block_delta":
            self._read_delta(position, object_at(body, "delta"))
        elif kind == "message_delta":
            self.record.finish = str(
                object_at(body, "delta").get("stop_reason") or self.record.finish
            )
            self._update_counts(body.get("usage"))
            self.complete = (
                count_at(body, "usage", "output_tokens") is not None and self.tokens is not None
            )

    def _read_block(self, position: object, block: JsonObject) -> None:
        self.record.text.append_piece(block.get("text"))
        self.record.reasoning.append_piece(block.get("thinking"))
        if str(block.get("type") or "").endswith("tool_use"):
            arguments = block.get("input")
            self.record.add_tool_call(
                position, block.get("name"), json.dumps(arguments) if arguments else ""
            )

    def _read_delta(self, position: object, delta: JsonObject) -> None:
        self.record.text.append_piece(delta.get("text"))
        self.record.reasoning.append_piece(delta.get("thinking"))
        if "partial_json" in delta:
            self.record.add_tool_call(position, "", delta["partial_json"])

    def _update_counts(self, usage: object) -> None:
        """The counts so far; cache reads and writes are counted separately in the protocol."""
        counts = {name: count_at(usage, f"{name}_tokens") for name in _COUNTED}
        self._counts |= {name: value for name, value in counts.items() if value is not None}
        if "input" in self._counts:
            given, written, cached, stored = (self._counts.get(name, 0) for name in _COUNTED)
            self.tokens = Tokens(given + cached + stored, written, cached, stored)


class MessagesFormat(WireFormat):
    """See https://docs.anthropic.com/en/api/messages."""

    name = conversation = "messages"
    new_reader = MessagesReader
    dearer = ("service_tier", "speed", "inference_geo")
    elsewhere = ("container", "mcp_servers")
    hosted = ("web_search", "web_fetch", "code_execution")

    def with_output_limit(self, body: JsonObject, model: ModelSpec) -> tuple[JsonObject, int]:
        limit = positive_limit(body.get("max_tokens"), "max_tokens", model.max_tokens)
        return {**body, "max_tokens": limit}, limit

    def request_path(self, model: str, action: str) -> str:
        return "/messages/count_tokens" if action == "count" else "/messages"

    def error_body(self, refused: RequestRefused) -> JsonObject:
        kind = _KINDS.get(
            refused.status, "api_error" if refused.status >= 500 else "invalid_request_error"
        )
        return {"type": "error", "error": {"type": kind, "message": refused.message}}


# Google's generateContent.

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# mark of a quota that does not return soon; without it Google's own client retries for minutes
_SPENT = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"subject": "culmen", "description": "budget", "quotaId": "BudgetPerDay"}],
}
_ACTIONS = {
    "generate": "generateContent",
    "stream": "streamGenerateContent",
    "count": "countTokens",
}
_HOSTED = (
    "googleSearch",
    "googleSearchRetrieval",
    "googleMaps",
    "urlContext",
    "codeExecution",
    "fileSearch",
)


class GeminiReader(ReplyReader):
    """Every event has the form of a whole reply; the last count holds.

    Thoughts count as output, and text read by the provider's tools counts as input.
    """

    _calls = 0

    def read_stream_event(self, body: JsonObject) -> None:
        for candidate in objects_in(body.get("candidates"))[:1]:
            self.record.finish = str(candidate.get("finishReason") or self.record.finish)
            for part in objects_in(object_at(candidate, "content").get("parts")):
                self._read_part(part)
        blocked = object_at(body, "promptFeedback").get("blockReason")
        self.record.finish = str(blocked or self.record.finish)
        usage = body.get("usageMetadata")
        if (read := count_at(usage, "promptTokenCount")) is not None:
            read += count_at(usage, "toolUsePromptTokenCount") or 0
            written = (count_at(usage, "candidatesTokenCount") or 0) + (
                count_at(usage, "thoughtsTokenCount") or 0
            )
            self.tokens = Tokens(read, written, count_at(usage, "cachedContentTokenCount") or 0)
        self.complete = bool(self.record.finish) and self.tokens is not None

    def _read_part(self, part: JsonObject) -> None:
        (self.record.reasoning if part.get("thought") is True else self.record.text).append_piece(
            part.get("text")
        )
        if (call := object_at(part, "functionCall")) or "functionCall" in part:
            self._calls += 1
            self.record.add_tool_call(
                self._calls, call.get("name"), json.dumps(call.get("args") or {})
            )


class GeminiFormat(WireFormat):
    """See https://ai.google.dev/api/generate-content."""

    name = "gemini"
    conversation, new_reader = "contents", GeminiReader
    dearer = ("serviceTier", "service_tier")
    elsewhere = ("cachedContent", "cached_content")

    def with_output_limit(self, body: JsonObject, model: ModelSpec) -> tuple[JsonObject, int]:
        if "generation_config" in body and "generationConfig" in body:
            raise RequestRefused(400, "the body has 'generationConfig' twice")
        at = "generation_config" if "generation_config" in body else "generationConfig"
        config = object_at(body, at)
        name = "max_output_tokens" if "max_output_tokens" in config else "maxOutputTokens"
        limit = positive_limit(config.get(name), name, model.max_tokens)
        several = config.get("candidateCount", config.get("candidate_count"))
        return {**body, at: {**config, name: limit}}, limit * positive_limit(
            several, "candidateCount", 1
        )

    def with_model_name(self, body: JsonObject, model: str) -> JsonObject:
        name = {"model": f"models/{model}"}
        if "generateContentRequest" in body:
            body = {
                **body,
                "generateContentRequest": {**object_at(body, "generateContentRequest"), **name},
            }
        return {**body, **name} if "model" in body else body

    def request_path(self, model: str, action: str) -> str:
        return f"/models/{quote(model, safe='/')}:{_ACTIONS[action]}"

    def error_body(self, refused: RequestRefused) -> JsonObject:
        word = _STATUS.get(refused.status, "INTERNAL")
        details = [_SPENT] if refused.status == 429 and refused.is_final else []
        error = {"code": refused.status, "message": refused.message, "status": word}
        return {"error": error | {"details": details}}

    def without_hosted_tools(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        tools = objects_in(body.get("tools"))
        removed = [name for tool in tools for name in tool if _camel_case(name) in _HOSTED]
        kept = [without_fields(tool, removed) for tool in tools]
        return with_tools(body, list(filter(None, kept))) if removed else body, removed


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


FORMATS: dict[str, WireFormat] = {
    form.name: form for form in (ChatFormat(), ResponsesFormat(), MessagesFormat(), GeminiFormat())
}
