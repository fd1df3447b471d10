"""A scripted model in OpenAI's two formats: chat completions and responses."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from culmen.models.call import Tokens
from tests.servers.model_script import Asked, Item, ToolCall, Turn, as_text, flat, pieces


class Chat:
    """https://platform.openai.com/docs/api-reference/chat"""

    def asked(self, body: dict[str, Any], model: str, stream: bool) -> Asked:
        items = [item for message in body.get("messages", []) for item in _chat_items(message)]
        functions = [tool.get("function", {}) for tool in body.get("tools") or []]
        tools = {f.get("name", ""): f.get("parameters") or {} for f in functions}
        return Asked(
            "chat",
            body.get("model", ""),
            tuple(items),
            tools,
            frozenset(),
            body.get("stream") is True,
            body,
        )

    def whole(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = [_chat_call(call) for call in turn.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}
        usage = {"usage": _chat_usage(tokens)} if tokens else {}
        return {**_chat_head(asked, "chat.completion"), "choices": [choice], **usage}

    def events(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> Iterator[bytes]:
        head = _chat_head(asked, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return _data({**head, "choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(turn.text):
            yield chunk({"content": piece})
        for index, call in enumerate(turn.calls):
            made = _chat_call(call)
            function = made["function"]
            yield chunk(
                {
                    "tool_calls": [
                        {**made, "index": index, "function": {**function, "arguments": ""}}
                    ]
                }
            )
            for piece in pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, _finish(turn))
        if tokens and (asked.body.get("stream_options") or {}).get("include_usage"):
            yield _data({**head, "choices": [], "usage": _chat_usage(tokens)})
        yield b"data: [DONE]\n\n"

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _error(status, message)

    def broken(self, message: str) -> bytes:
        return _data(_error(500, message))


class Responses:
    """https://platform.openai.com/docs/api-reference/responses-streaming"""

    def asked(self, body: dict[str, Any], model: str, stream: bool) -> Asked:
        given = body.get("input", "")
        listed = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = [Item("system", body["instructions"])] if body.get("instructions") else []
        items += [item for entry in listed if (item := _response_item(entry)) is not None]
        offered = body.get("tools") or []
        tools = {
            tool.get("name", tool.get("type", "")): tool.get("parameters") or {} for tool in offered
        }
        for space in _spaces(body):
            inner = {
                f"{space['name']}__{tool['name']}": tool.get("parameters") or {}
                for tool in space["tools"]
            }
            tools |= inner
        free = frozenset(tool.get("name", "") for tool in offered if tool.get("type") == "custom")
        return Asked(
            "responses",
            body.get("model", ""),
            tuple(items),
            tools,
            free,
            body.get("stream") is True,
            body,
        )

    def whole(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> dict[str, Any]:
        return _response(asked, "completed", _output(asked, turn), tokens)

    def events(self, asked: Asked, turn: Turn, tokens: Tokens | None) -> Iterator[bytes]:
        number = 0

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal number
            number += 1
            return _named({"type": kind, "sequence_number": number - 1, **fields})

        output = _output(asked, turn)
        started = _response(asked, "in_progress", [], None)
        yield event("response.created", response=started)
        yield event("response.in_progress", response=started)
        for index, item in enumerate(output):
            at = {"item_id": item["id"], "output_index": index}
            bare = {"content": []} if item["type"] == "message" else {}
            bare |= {name: "" for name in ("arguments", "input") if name in item}
            yield event(
                "response.output_item.added",
                output_index=index,
                item={**item, "status": "in_progress", **bare},
            )
            for kind, fields in _inside(item):
                yield event(f"response.{kind}", **at, **fields)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event(
            "response.completed",
            response={
                **started,
                **_response(asked, "completed", output, tokens),
                "id": started["id"],
            },
        )

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _error(status, message)

    def broken(self, message: str) -> bytes:
        error = {"code": "server_error", "message": message}
        return _named(
            {
                "type": "response.failed",
                "sequence_number": 9999,
                "response": {
                    "id": _id("resp_"),
                    "object": "response",
                    "status": "failed",
                    "error": error,
                    "output": [],
                    "usage": None,
                },
            }
        )


def _role(message: dict[str, Any]) -> str:
    role = str(message.get("role") or "")
    return "system" if role == "developer" else role


def _chat_items(message: dict[str, Any]) -> Iterator[Item]:
    role = _role(message)
    if message.get("content") is not None or not message.get("tool_calls"):
        yield Item(role, flat(message.get("content")))
    for call in message.get("tool_calls") or []:
        made = call.get("function", {})
        yield Item(role, "", made.get("name", ""), _loads(made.get("arguments")))


def _response_item(entry: dict[str, Any]) -> Item | None:
    kind = str(entry.get("type") or "message")
    if kind == "message":
        return Item(_role(entry), flat(entry.get("content")))
    if kind.endswith("_call_output"):
        return Item("tool", flat(entry.get("output")))
    if kind.endswith("_call"):
        arguments = _loads(entry.get("arguments", entry.get("input")))
        return Item("assistant", "", entry.get("name", kind), arguments)
    return Item("assistant") if kind == "reasoning" else None


def _output(asked: Asked, turn: Turn) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if turn.text or not turn.calls:
        content = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
        output.append(
            {
                "id": _id("msg_"),
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for call in turn.calls:
        free = call.name in asked.free
        kind, field = ("custom_tool_call", "input") if free else ("function_call", "arguments")
        made = {
            "id": _id("ctc_" if free else "fc_"),
            "type": kind,
            "status": "completed",
            "call_id": _id("call_"),
        }
        space = next(
            (each for each in _spaces(asked.body) if call.name.startswith(f"{each['name']}__")),
            None,
        )
        named = {"name": call.name}
        if space is not None:
            named = {
                "namespace": space["name"],
                "name": call.name.removeprefix(f"{space['name']}__"),
            }
        output.append({**made, **named, field: as_text(call.arguments)})
    return output


def _spaces(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Tools that hold others, as Codex offers those of an MCP server."""
    return [tool for tool in body.get("tools") or () if tool.get("type") == "namespace"]


def _inside(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events between an item's `added` and `done`."""
    if item["type"] != "message":
        free = item["type"] == "custom_tool_call"
        field, kind = (
            ("input", "custom_tool_call_input")
            if free
            else ("arguments", "function_call_arguments")
        )
        for piece in pieces(item[field]):
            yield f"{kind}.delta", {"delta": piece}
        yield f"{kind}.done", {field: item[field], **({} if free else {"name": item["name"]})}
        return
    part = item["content"][0]
    yield "content_part.added", {"content_index": 0, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield "output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
    yield "output_text.done", {"content_index": 0, "text": part["text"], "logprobs": []}
    yield "content_part.done", {"content_index": 0, "part": part}


def _response(
    asked: Asked, status: str, output: list[dict[str, Any]], tokens: Tokens | None
) -> dict[str, Any]:
    usage = None
    if tokens is not None:
        usage = {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens.input + tokens.output,
        }
    kept = {
        name: asked.body.get(name)
        for name in ("instructions", "max_output_tokens", "temperature", "top_p")
    }
    return {
        "id": _id("resp_"),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": asked.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": usage,
        **kept,
    }


def _chat_head(asked: Asked, kind: str) -> dict[str, Any]:
    return {"id": _id("chatcmpl-"), "object": kind, "created": 1_700_000_000, "model": asked.model}


def _chat_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": _id("call_"),
        "type": "function",
        "function": {"name": call.name, "arguments": as_text(call.arguments)},
    }


def _chat_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }


def _finish(turn: Turn) -> str:
    return "tool_calls" if turn.calls else "stop"


def _error(status: int, message: str) -> dict[str, Any]:
    kind = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}.get(status)
    typed = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": typed, "param": None, "code": kind}}


def _loads(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _named(body: dict[str, Any]) -> bytes:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def _id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]
