"""A scripted model in Anthropic's messages and in Google's generateContent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from culmen.models.call import Tokens
from tests.servers.model_script import Asked, Item, Turn, as_text, flat, pieces


class Messages:
    """https://docs.anthropic.com/en/api/messages-streaming"""

    def asked(self, body: dict[str, Any], model: str, stream: bool) -> Asked:
        items = [Item("system", flat(body["system"]))] if body.get("system") else []
        items += [item for message in body.get("messages", []) for item in _message_items(message)]
        tools = {
            tool.get("name", ""): tool.get("input_schema") or {} for tool in body.get("tools") or []
        }
        return Asked(
            "messages",
            body.get("model", ""),
            tuple(items),
            tools,
            frozenset(),
            body.get("stream") is True,
            body,
        )

    def whole(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> dict[str, Any]:
        usage = {"usage": _messages_usage(tokens)} if tokens else {}
        ending = {"stop_reason": _stop(turn), "stop_sequence": None}
        return {**_message(asked), "content": _blocks(turn), **ending, **usage}

    def events(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> Iterator[bytes]:
        usage = {**_messages_usage(tokens), "output_tokens": 1} if tokens else None
        start = {**_message(asked), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _named("message_start", message={**start, **({"usage": usage} if usage else {})})
        yield _named("ping")
        for index, block in enumerate(_blocks(turn)):
            tool = block["type"] == "tool_use"
            empty = {**block, "input": {}} if tool else {**block, "text": ""}
            yield _named("content_block_start", index=index, content_block=empty)
            kind, name = ("input_json_delta", "partial_json") if tool else ("text_delta", "text")
            for piece in (
                ["", *pieces(json.dumps(block["input"]))] if tool else pieces(block["text"])
            ):
                yield _named("content_block_delta", index=index, delta={"type": kind, name: piece})
            yield _named("content_block_stop", index=index)
        ending = {"stop_reason": _stop(turn), "stop_sequence": None}
        spent = {"usage": {"output_tokens": tokens.output}} if tokens else {}
        yield _named("message_delta", delta=ending, **spent)
        yield _named("message_stop")

    def error(self, status: int, message: str) -> dict[str, Any]:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            404: "not_found_error",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {
            "type": "error",
            "error": {"type": kinds.get(status, "api_error"), "message": message},
        }

    def broken(self, message: str) -> bytes:
        return _named("error", error={"type": "overloaded_error", "message": message})


class Gemini:
    """https://ai.google.dev/api/generate-content"""

    def asked(self, body: dict[str, Any], model: str, stream: bool) -> Asked:
        system = body.get("systemInstruction") or body.get("system_instruction") or {}
        items = [Item("system", flat(system.get("parts")))] if system else []
        items += [item for content in body.get("contents", []) for item in _content_items(content)]
        declared = [
            function
            for tool in body.get("tools") or []
            for function in tool.get("functionDeclarations")
            or tool.get("function_declarations")
            or []
        ]
        tools = {
            f.get("name", ""): f.get("parametersJsonSchema") or f.get("parameters") or {}
            for f in declared
        }
        return Asked("gemini", model, tuple(items), tools, frozenset(), stream, body)

    def whole(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text or not turn.calls else []
        parts += [_function_call(call.name, call.arguments) for call in turn.calls]
        return self._reply(asked, parts, "STOP", tokens)

    def events(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> Iterator[bytes]:
        known = Tokens(tokens.input, 0, tokens.cached) if tokens else None
        for piece in pieces(turn.text):
            yield _data(self._reply(asked, [{"text": piece}], None, known))
        for call in turn.calls:
            yield _data(
                self._reply(asked, [_function_call(call.name, call.arguments)], None, known)
            )
        yield _data(self._reply(asked, [{"text": ""}], "STOP", tokens))

    def error(self, status: int, message: str) -> dict[str, Any]:
        names = {
            400: "INVALID_ARGUMENT",
            401: "UNAUTHENTICATED",
            404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED",
        }
        return {
            "error": {
                "code": status,
                "message": message,
                "status": names.get(status, "UNAVAILABLE"),
            }
        }

    def broken(self, message: str) -> bytes:
        return _data(self.error(503, message))

    def _reply(
        self, asked: Asked, parts: list[dict[str, Any]], finish: str | None, tokens: Tokens | None
    ) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        usage = {"usageMetadata": _gemini_usage(tokens)} if tokens else {}
        return {
            "candidates": [candidate],
            **usage,
            "modelVersion": asked.model,
            "responseId": uuid.uuid4().hex[:16],
        }


def _message_items(message: dict[str, Any]) -> Iterator[Item]:
    role, content = message.get("role", ""), message.get("content")
    if isinstance(content, str):
        yield Item(role, content)
        return
    for block in content or []:
        kind = block.get("type")
        if kind == "text":
            yield Item(role, block.get("text", ""))
        elif kind == "tool_use":
            yield Item(role, "", block.get("name", ""), block.get("input"))
        elif kind == "tool_result":
            yield Item("tool", flat(block.get("content")))


def _content_items(content: dict[str, Any]) -> Iterator[Item]:
    role = "assistant" if content.get("role") == "model" else "user"
    for part in content.get("parts") or []:
        if "functionCall" in part:
            call = part["functionCall"]
            yield Item(role, "", call.get("name", ""), call.get("args"))
        elif "functionResponse" in part:
            yield Item("tool", flat(part["functionResponse"].get("response")))
        elif "text" in part and not part.get("thought"):
            yield Item(role, part["text"])


def _blocks(turn: Turn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": turn.text}] if turn.text or not turn.calls else []
    )
    for call in turn.calls:
        made = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": call.name}
        blocks.append({**made, "input": _object(call.arguments)})
    return blocks


def _message(asked: Asked) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
    }


def _messages_usage(tokens: Tokens) -> dict[str, int]:
    return {
        "input_tokens": tokens.input - tokens.cached - tokens.cache_write,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
    }


def _gemini_usage(tokens: Tokens) -> dict[str, int]:
    usage = {"promptTokenCount": tokens.input, "totalTokenCount": tokens.input + tokens.output}
    if tokens.output:
        usage["candidatesTokenCount"] = tokens.output
    return {**usage, "cachedContentTokenCount": tokens.cached} if tokens.cached else usage


def _function_call(name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    return {"functionCall": {"id": uuid.uuid4().hex[:12], "name": name, "args": _object(arguments)}}


def _object(arguments: dict[str, Any] | str) -> dict[str, Any]:
    return arguments if isinstance(arguments, dict) else {"input": as_text(arguments)}


def _stop(turn: Turn) -> str:
    return "tool_use" if turn.calls else "end_turn"


def _named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\r\n\r\n".encode()
