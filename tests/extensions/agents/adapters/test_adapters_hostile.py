"""Odd outputs of agents and of providers: recorded ones with strange values in them."""

import copy
import json
import random
from pathlib import Path

import pytest

from culmen.core.foreign import Unreadable
from culmen.extensions.agents import page
from culmen.extensions.agents.adapters import AgentJob, acp, native
from culmen.extensions.agents.gateway import exchange, wires
from culmen.extensions.agents.sandbox import intake

RECORDED = Path(__file__).parents[3] / "fixtures" / "agents" / "recorded"
KINDS = [getattr(native, name) for name in dir(native) if name.endswith("Reading")]
KINDS.remove(native.StreamReading)
READERS = (wires.ChatReader, wires.ResponsesReader, wires.MessagesReader, wires.GeminiReader)
COUNT = 700
DEEP = json.loads("[" * 300 + "]" * 300)
ODD = (
    *(None, True, -1, 0, 1e308, 10**30, 2**63, "", "x" * 40_000, "\ud83d", "\0\x1b[31m\u202e"),
    *("²", [], {}, [[]], {"": {}}, [None], [{"type": None}], {"a": "b"}, DEEP, [1] * 500),
    *("0001-01-01T00:00:00", "9999-12-31T23:59:59-23:59", "1e999", {"type": "text", "text": 5}),
)
CALL = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
EVENTS = [
    {"choices": [{"delta": {"content": "x", "tool_calls": [CALL]}, "index": 0}], "usage": USAGE},
    {"type": "content_block_delta", "index": 0, "delta": {"text": "x", "partial_json": "x"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "input": {}}},
    {"type": "response.completed", "response": {"output": [{"type": "message", "content": []}]}},
    {"candidates": [{"content": {"parts": [{"text": "x", "functionCall": {"name": "f"}}]}}]},
    {"steps": [{"timestamp": "2026-01-01T00:00:00Z", "message": "m", "tool_calls": [CALL]}] * 2},
    {"path": "a.py", "note": "n", "parents": ["a"], "report": None},
    {"sessionUpdate": "tool_call", "toolCallId": "1", "rawInput": {"a": 1}, "usage": {"a": 1}},
    {"seconds": 1.0, "kind": "text", "text": "t"},
]


def places(value):
    """Each box in a value with one of its keys."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from places(value[key])


def outputs():
    lines = [line for file in RECORDED.rglob("*.jsonl") for line in file.open()]
    known = [json.loads(line) for line in lines if line.startswith("{")]
    for seed in range(COUNT):
        rng = random.Random(seed)
        value = copy.deepcopy(rng.choice(known if seed % 2 else EVENTS))
        for _ in range(rng.randint(1, 3)):
            box, key = rng.choice(list(places(value)) or [({}, "")])
            box[key] = copy.deepcopy(rng.choice(ODD))
        yield value, json.dumps(value, ensure_ascii=rng.random() < 0.5)


@pytest.fixture(scope="module")
def texts():
    return list(outputs())


@pytest.mark.parametrize("kind", KINDS)
def test_no_output_stops_a_reader_or_passes_its_bounds(kind, texts):
    for _, text in texts:
        events = []
        reading = kind(AgentJob("/tree", "/home", "go"), events.append)
        reading.read_line(text.encode("utf-8", "replace"))
        reading.on_exit(1)
        assert all(len(event.text) <= 4000 for event in events)
        assert "".join(event.text for event in events).encode() is not None
        json.dumps(reading.claimed, allow_nan=False)


@pytest.mark.parametrize("reader", READERS)
def test_no_reply_of_a_provider_stops_the_gateway(reader, texts):
    for _, text in texts:
        exchange.read_event(text, reader())
        exchange.read_body(text.encode("utf-8", "replace"), reader())


def test_no_output_stops_a_page_the_queue_or_the_protocol(texts):
    for value, text in texts:
        json.dumps(page._trajectory_steps(text))
        page._head_line(text)
        page._transcript_row(text.encode("utf-8", "replace").decode())
        acp._well_formed(acp.parse_json_line(text.encode("utf-8", "replace")))
        acp.claimed_tokens(value)
        try:
            intake.parse_request(text.encode("utf-8", "replace"))
        except intake.IntakeRefused:
            continue


def test_a_line_longer_than_is_read_is_trouble():
    events = []
    native.PlainReading(AgentJob("/tree", "/home", "go"), events.append).read_line(
        b"x" * (17 << 20)
    )
    assert [event.kind for event in events] == ["trouble"] and "TooLong" in events[0].text


def test_a_reply_longer_than_is_read_is_refused():
    with pytest.raises(Unreadable, match="TooLong"):
        exchange.read_event("x" * (65 << 20), wires.ChatReader())
