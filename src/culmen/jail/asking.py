"""`ask(...)` in an evaluator's process: questions to models over the evaluation's channel.

Out: M (JSON: a question). In: N (JSON: its number and the reply). Any number may be in flight; see
`conversed` in scorer_pool.py.
"""

from __future__ import annotations

import inspect
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from culmen.core.asking import ROLE
from culmen.core.json import JsonObject
from culmen.jail import wire

LIMIT = 32 << 20  # bytes of a question or a reply


class AskFailed(Exception):
    """The provider refused a question permanently; evaluators may catch this.

    `kind` is bad_request, too_long or refused.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind


class ChatReply(JsonObject):
    """A chat completion as a dict, in OpenAI's shape."""

    @property
    def message(self) -> JsonObject:
        """The assistant's message, for the messages of the next question."""
        return self["choices"][0]["message"]

    @property
    def text(self) -> str:
        """The text of the reply, "" if it consists of tool calls only."""
        return self.message["content"] or ""

    @property
    def tool_calls(self) -> list[JsonObject]:
        """The reply's tool calls."""
        return self.message.get("tool_calls") or []


class ModelAsk:
    """The object that an evaluator gets as `ask`; usable from several threads at once."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._sending = channel, threading.Lock()
        self._news, self._reading = threading.Condition(), False
        self._replies: dict[int, JsonObject] = {}
        self._count, self._over = 0, False

    def __call__(
        self, messages: str | list[JsonObject], role: str = ROLE, **options: object
    ) -> ChatReply:
        """The reply of the model of this role to a text or a list of chat messages.

        `options` are passed to the provider unchanged (tools, tool_choice, temperature, max_tokens,
        response_format, ...). Raises `AskFailed` if the provider refuses the question. An outage
        ends the evaluation, which then counts as lost.
        """
        listed = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        )
        with self._sending:
            if self._over:
                raise RuntimeError("ask() was called after the evaluation had ended")
            self._count += 1
            number = self._count
            question = {"number": number, "role": role, "messages": listed, "options": options}
            wire.send(self._channel, "M", json.dumps(question).encode())
        return self._wait_for_reply(number)

    def _wait_for_reply(self, number: int) -> ChatReply:
        """Wait for a reply; one of the waiting threads reads for all of them."""
        while True:
            with self._news:
                if number in self._replies:
                    break
                if self._reading:
                    self._news.wait()
                    continue
                self._reading = True
            try:
                answer = json.loads(bytes(wire.receive(self._channel, LIMIT)[1]))
            finally:
                with self._news:
                    self._reading = False
                    self._news.notify_all()
            with self._news:
                self._replies[answer["number"]] = answer
                self._news.notify_all()
        reply = self._replies.pop(number)["reply"]
        if "error" in reply:
            raise AskFailed(**reply["error"])
        return ChatReply(reply)

    async def ask_async(self, *args: Any, **options: object) -> ChatReply:
        """The reply of `__call__` as a coroutine: the `ask` of coroutine functions."""
        import asyncio  # the caller has it; other evaluators' processes do without

        return await asyncio.to_thread(self, *args, **options)

    def refuse_questions(self) -> None:
        """Refuse further questions: the evaluation is over, though its threads may live on."""
        with self._sending:
            self._over = True


def has_ask_parameter(function: Callable[..., object]) -> bool:
    """True if a function has a parameter `ask`."""
    try:
        return "ask" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def ask_argument(function: Callable[..., object], ask: ModelAsk) -> Callable[..., object]:
    """The object for a function's parameter `ask`: awaitable for a coroutine function."""
    called = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )
    return ask.ask_async if called else ask


def awaited_result(result: Any) -> Any:
    """The result of a function; the awaited result of a coroutine function."""
    if not inspect.isawaitable(result):
        return result

    import asyncio

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())
