"""Pieces of the gateway on their own: events cut anywhere, robust readers, and more.

Also paths, addresses, prices.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.gateway.account import AgentAccount
from culmen.extensions.agents.gateway.exchange import (
    credential_headers,
    max_request_cost,
    provider_address,
)
from culmen.extensions.agents.gateway.formats import EventSplitter, RequestRefused, parse_route
from culmen.extensions.agents.gateway.wires import FORMATS
from culmen.models.call import Tokens
from culmen.models.roles import ModelBook
from culmen.models.spec import PROVIDERS, ModelSpec, Price, Provider
from tests.servers.model_openai import Chat, Responses
from tests.servers.model_others import Gemini, Messages
from tests.servers.model_script import Asked, ToolCall, Turn

SLOW = [HealthCheck.too_slow]  # machines may be
STREAM = (
    "event: a\ndata: one\n\n: a comment\r\n\r\ndata: two\r\ndata: zwei €\r\n\r\n"
    "data:three\r\rid: 7\nevent: b\ndata\n\ndata: last"
)


@settings(deadline=None, suppress_health_check=SLOW)
@given(st.lists(st.integers(1, 9), max_size=60))
def test_events_are_the_same_however_the_stream_is_cut(sizes: list[int]) -> None:
    raw, events, at = STREAM.encode(), EventSplitter(), 0
    found = []
    for size in [*sizes, len(raw)]:
        found += events.feed(raw[at : at + size])
        at += size
    found += events.remaining_events()
    read = [(event.name, event.data) for event in found]
    assert read == [
        ("a", "one"),
        ("", ""),
        ("", "two\nzwei €"),
        ("", "three"),
        ("b", ""),
        ("", "last"),
    ]
    assert b"".join(event.raw for event in found) == raw


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
WORDS = """choices delta message content tool_calls function arguments usage prompt_tokens completion_tokens index type
item response output output_tokens input_tokens input_tokens_details prompt_tokens_details summary status content_block
partial_json candidates parts functionCall args usageMetadata promptTokenCount finishReason promptFeedback tools
tool_choice web_search_options generationConfig contents generateContentRequest"""
KEYS = WORDS.split()
bodies = st.recursive(
    st.dictionaries(st.sampled_from(KEYS), values, max_size=6),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYS), inner | st.lists(inner, max_size=3) | values, max_size=6
    ),
    max_leaves=8,
)


KINDS = (
    "response.output_item.done",
    "response.completed",
    "message_start",
    "content_block_start",
    "message_delta",
    "x",
)


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(body=bodies, kind=st.sampled_from([*KINDS, "content_block_delta"]))
def test_nothing_that_comes_surprises_a_reader(body: dict[str, Any], kind: str) -> None:
    for form in FORMATS.values():
        reader = form.new_reader()
        reader.read_stream_event({"type": kind, **body})
        reader.read_full_reply(body)
        json.dumps(reader.record.plain_reply(), default=str)
        tokens = reader.tokens
        assert (
            tokens is None
            or min(tokens.input, tokens.output, tokens.cached, tokens.cache_write) >= 0
        )


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(body=bodies)
def test_no_request_gets_past_the_limits(body: dict[str, Any]) -> None:
    model = ModelSpec(Provider("p"), "m", max_tokens=50, price=Price(1, 1))
    for form in FORMATS.values():
        try:
            limited, output = form.with_output_limit(form.without_hosted_tools(body)[0], model)
        except RequestRefused as refused:
            assert refused.status == 400
            continue
        assert output >= 1
        assert (
            "50" in json.dumps(limited, default=str)
            or limited == form.without_hosted_tools(body)[0]
        )
        form.with_usage_request(limited)
        form.with_model_name(limited, "m")


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Messages(), Gemini()])
@given(
    text=st.text(max_size=60),
    arguments=st.dictionaries(st.text(max_size=4), st.text(max_size=30), max_size=3),
)
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
def test_what_the_scripted_model_says_is_what_the_gateway_reads(
    dialect: Any, text: str, arguments: dict[str, str]
) -> None:
    name = type(dialect).__name__.lower()
    turn = Turn(text, (ToolCall("run", arguments), ToolCall("again", {})), Tokens(90, 7, 40))
    asked = Asked(
        name,
        "m",
        (),
        {"run": {}, "again": {}},
        frozenset(),
        True,
        {"stream_options": {"include_usage": True}},
    )
    whole, piecewise = FORMATS[name].new_reader(), FORMATS[name].new_reader()
    whole.read_full_reply(json.loads(json.dumps(dialect.whole(asked, turn, turn.tokens))))
    events = EventSplitter()
    for event in [
        e for part in dialect.events(asked, turn, turn.tokens) for e in events.feed(part)
    ]:
        if event.data != "[DONE]":
            piecewise.read_stream_event(json.loads(event.data))
    for reader in (whole, piecewise):
        said = json.loads(json.dumps(reader.record.plain_reply(), default=str))
        assert (reader.tokens, reader.complete, said.get("text", "")) == (turn.tokens, True, text)
        calls = [
            (call["name"], json.loads(call.get("arguments") or "{}")) for call in said["calls"]
        ]
        assert calls == [("run", arguments), ("again", {})]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/v1/chat/completions", ("chat", "generate", "")),
        ("/chat/completions", ("chat", "generate", "")),
        ("/v1/responses", ("responses", "generate", "")),
        ("/v1/messages", ("messages", "generate", "")),
        ("/v1/messages/count_tokens", ("messages", "count", "")),
        ("/v1beta/models/g-2.5:generateContent", ("gemini", "generate", "g-2.5")),
        ("/v1/models/tuned/x:streamGenerateContent", ("gemini", "stream", "tuned/x")),
        ("/v1alpha/models/g:countTokens", ("gemini", "count", "g")),
        ("/v1/models", ("chat", "models", "")),
        ("/v1/models/gpt-5", ("chat", "models", "gpt-5")),
        ("/v1beta/models", ("gemini", "models", "")),
        ("/v1/responses/resp_1", None),
        ("/v1/embeddings", None),
        ("/v1beta/models/g:embedContent", ("gemini", "models", "g:embedContent")),
    ],
)
def test_paths(path: str, found: tuple[str, str, str] | None) -> None:
    assert parse_route(path) == found


def test_addresses_of_the_known_providers() -> None:
    def at(provider: str, form: str) -> str:
        return provider_address(PROVIDERS[provider], form)

    assert at("openai", "chat") == at("openai", "responses") == "https://api.openai.com/v1"
    assert at("anthropic", "messages") == at("anthropic", "chat") == "https://api.anthropic.com/v1"
    assert at("gemini", "gemini") == "https://generativelanguage.googleapis.com/v1beta"
    assert at("gemini", "chat") == "https://generativelanguage.googleapis.com/v1beta/openai"
    mine = Provider(
        "mine", "http://box:8000/v1", endpoints={"messages": "http://box:9000/anthropic/v1/"}
    )
    assert provider_address(mine, "messages") == "http://box:9000/anthropic/v1"
    assert provider_address(mine, "gemini") == "http://box:8000/v1beta"


def test_a_models_file_may_name_addresses_and_prices(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[providers.mine]\nbase_url = "http://box/v1"\nendpoints = { messages = "http://box/a/v1" }\n'
        '[models.fast]\nprovider = "mine"\nmodel = "m"\nprice = { input = 1.0, output = 2.0, cache_write = 3.0 }\n'
    )
    fast = ModelBook(file).model("fast")
    assert provider_address(fast.provider, "messages") == "http://box/a/v1"
    assert fast.price_list.dollars_for(Tokens(10, 0, 0, 10)) == pytest.approx(30 / 1e6)


def test_keys_stand_where_their_inventor_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, "k")
    assert credential_headers(PROVIDERS["anthropic"], "messages") == {"x-api-key": "k"}
    assert credential_headers(PROVIDERS["gemini"], "gemini") == {"x-goog-api-key": "k"}
    assert credential_headers(PROVIDERS["gemini"], "chat") == {"authorization": "Bearer k"}
    assert credential_headers(PROVIDERS["openrouter"], "messages") == {
        "x-api-key": "k",
        "authorization": "Bearer k",
    }
    assert credential_headers(PROVIDERS["ollama"], "chat") == {}


def test_the_estimate_is_an_upper_one() -> None:
    model = ModelSpec(Provider("p"), "m", price=Price(1.0, 2.0, 0.1, 1.25))
    bound = max_request_cost(model, 30_000, 500)
    assert bound.input_tokens >= 10_000
    assert bound.dollars == pytest.approx((bound.input_tokens * 1.25 + 500 * 2.0) / 1e6)
    with pytest.raises(RequestRefused, match="price"):
        max_request_cost(ModelSpec(Provider("p"), "m"), 100, 100)


amounts = st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans())


@settings(deadline=None, suppress_health_check=SLOW)
@given(st.lists(amounts, max_size=30), st.integers(0, 400))
def test_an_account_never_spends_more_than_its_budget(
    requests: list[tuple[int, int, bool, bool]], limit: int
) -> None:
    account = AgentAccount("a", Budget(tokens=limit, dollars=limit / 100), {})
    open_: list[tuple[Usage, Usage]] = []
    for asked, used, late, told in requests:
        bound = Usage(calls=1, input_tokens=asked, dollars=asked / 100)
        if account.refusal(bound)[0]:
            continue
        account.reserve(bound)
        part = min(asked, used)
        cost = Usage(calls=1, input_tokens=part, dollars=part / 100, unpriced=0 if told else 1)
        open_.append((bound, cost))
        if not late:
            account.settle(*open_.pop(0))
    for bound, cost in open_:
        account.settle(bound, cost)
    whole = account.spent + account.held
    assert account.flight.tokens == 0
    assert account.flight.dollars == pytest.approx(0)
    assert whole.tokens <= limit
    assert whole.dollars <= limit / 100 + 1e-6
    assert account.take() == account.spent
    assert account.take() == Usage()
