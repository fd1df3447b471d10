"""`ask` in an evaluator's process: questions and replies over its channel.

Several threads ask.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from culmen.jail import wire
from culmen.jail.asking import (
    LIMIT,
    AskFailed,
    ModelAsk,
    ask_argument,
    awaited_result,
    has_ask_parameter,
)


class Other:
    """The other end of the channel."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def question(self) -> dict[str, Any]:
        kind, payload = wire.receive(self.channel, LIMIT)
        assert kind == "M"
        return json.loads(bytes(payload))

    def reply(self, number: int, text: str | None = None, **more: Any) -> None:
        completion = {"choices": [{"message": {"content": text, **more}}]}
        self.send(number, completion)

    def send(self, number: int, reply: dict[str, Any]) -> None:
        wire.send(self.channel, "N", json.dumps({"number": number, "reply": reply}).encode())


@pytest.fixture
def ends() -> Iterator[tuple[ModelAsk, Other]]:
    here, there = socket.socketpair()
    here.settimeout(60)
    there.settimeout(60)
    with here, there:
        yield ModelAsk(here), Other(there)


def test_a_text_is_a_message_and_options_pass_unchanged(ends: tuple[ModelAsk, Other]) -> None:
    ask, other = ends
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, "hello", role="student", temperature=0.5, tools=[{"x": 1}])
        asked = other.question()
        other.reply(asked["number"], "hi")
        answer = waiting.result(60)
    assert (
        asked["messages"] == [{"role": "user", "content": "hello"}] and asked["role"] == "student"
    )
    assert asked["options"] == {"temperature": 0.5, "tools": [{"x": 1}]}
    assert (answer.text, answer.tool_calls, answer.message) == ("hi", [], {"content": "hi"})


def test_a_reply_of_tool_calls_alone_has_no_text(ends: tuple[ModelAsk, Other]) -> None:
    ask, other = ends
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, [{"role": "system", "content": "s"}])
        other.reply(other.question()["number"], None, tool_calls=[{"id": "1"}])
        assert (waiting.result(60).text, waiting.result(60).tool_calls) == ("", [{"id": "1"}])


def test_replies_in_any_order_reach_who_asked(ends: tuple[ModelAsk, Other]) -> None:
    ask, other = ends
    with ThreadPoolExecutor(8) as pool:
        waiting = {text: pool.submit(ask, text) for text in map(str, range(8))}
        asked = [other.question() for _ in waiting]
        for question in reversed(asked):
            other.reply(question["number"], "re: " + question["messages"][0]["content"])
        assert {text: future.result(60).text for text, future in waiting.items()} == {
            text: f"re: {text}" for text in waiting
        }
    assert len({question["number"] for question in asked}) == 8


def test_a_refused_question_raises_there_and_the_next_is_asked_all_the_same(
    ends: tuple[ModelAsk, Other],
) -> None:
    ask, other = ends
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, "long")
        other.send(
            other.question()["number"], {"error": {"kind": "too_long", "message": "9 of 8 tokens"}}
        )
        with pytest.raises(AskFailed, match="too_long: 9 of 8 tokens") as caught:
            waiting.result(60)
        assert caught.value.kind == "too_long"
        again = pool.submit(ask, "short")
        other.reply(other.question()["number"], "yes")
        assert again.result(60).text == "yes"


def test_after_the_evaluation_nothing_is_sent(ends: tuple[ModelAsk, Other]) -> None:
    ask, other = ends
    ask.refuse_questions()
    with pytest.raises(RuntimeError, match="had ended"):
        ask("late")
    other.channel.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.channel.recv(1)


def test_a_coroutine_function_awaits_its_ask_and_others_call_it(
    ends: tuple[ModelAsk, Other],
) -> None:
    ask, other = ends

    async def score(ask: Any) -> str:
        return (await ask("hello")).text

    class Scorer:
        async def __call__(self, ask: Any) -> str:
            return await score(ask)

    for function in (score, Scorer()):
        answering = threading.Thread(target=lambda: other.reply(other.question()["number"], "hi"))
        answering.start()
        assert awaited_result(function(ask_argument(function, ask))) == "hi"
        answering.join()
    assert ask_argument(len, ask) is ask and not asyncio.iscoroutinefunction(ask_argument(len, ask))
    assert awaited_result(3) == 3


def test_who_has_a_parameter_ask() -> None:
    assert has_ask_parameter(lambda output, ask: 0) and not has_ask_parameter(lambda output: 0)
    assert not has_ask_parameter(dict.fromkeys) and not has_ask_parameter(
        int
    )  # no signature can be read
