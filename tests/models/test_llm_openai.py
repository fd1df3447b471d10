"""The OpenAI-compatible backend against a real server that fails in every way."""

from __future__ import annotations

import asyncio
import json
import logging
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.errors import NoAnswer, UserError
from culmen.core.task import Task
from culmen.core.usage import Usage, total_usage
from culmen.models import make_gateway
from culmen.models.backends import OpenAIBackend, read_reply
from culmen.models.call import (
    BadResponse,
    Call,
    ChatMessage,
    Declined,
    RateLimited,
    ServerFailed,
    Tokens,
)
from culmen.models.endpoint import Endpoint
from culmen.models.spec import Key
from tests.models.conftest import SECRET
from tests.servers.loopback import Loopback
from tests.servers.openai_server import OpenAIServer

GOOD = "Because.\n\n```python main.py\nx = 2\n```\n"

MODELS = """
[providers.local]
base_url = "{url}"
key_env = "TEST_KEY"
base = 0.01
cap = 0.1
patience = 20
{provider}
[models.m]
provider = "local"
model = "gpt-5-mini"
{model}
price = {{ input = 1.0, output = 2.0 }}
"""


def models(tmp_path: Path, server: OpenAIServer, provider: str = "", model: str = "") -> str:
    file = tmp_path / "models.toml"
    file.write_text(MODELS.format(url=server.url, provider=provider, model=model))
    return str(file)


def propose(task: Task, file: str, briefs: int = 1, k: int = 1, **brief: Any) -> list[Proposal]:
    async def main() -> list[Proposal]:
        gateway = make_gateway(task, "m", models_file=file)
        try:
            asked = Brief(parent=task.initial_candidates()[0], k=k, **brief)
            return list(
                await asyncio.gather(*(gateway.propose(asked, seed) for seed in range(briefs)))
            )
        finally:
            await gateway.close()

    return asyncio.run(asyncio.wait_for(main(), 100))


def test_request_and_reply(task: Task, tmp_path: Path) -> None:
    with OpenAIServer(GOOD) as server:
        options = (
            "samples = 4\ntemperature = 0.5\nmax_tokens = 99\nsend_seed = true\nextra = {top_k = 7}"
        )
        (made,) = propose(task, models(tmp_path, server, model=options), k=2)
    (body,) = server.requests
    assert (body["model"], body["n"], body["temperature"], body["max_tokens"]) == (
        "gpt-5-mini",
        2,
        0.5,
        99,
    )
    assert (body["seed"], body["top_k"]) == (0, 7)
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert server.keys == {f"Bearer {SECRET}"}
    assert made.model == "local/gpt-5-mini" and made.candidates[0].text == "x = 2\n"
    assert made.usage.input_tokens == server.billed["prompt_tokens"]
    assert made.usage.output_tokens == server.billed["completion_tokens"]
    assert made.usage.dollars == pytest.approx(
        (made.usage.input_tokens + 2 * made.usage.output_tokens) / 1e6
    )


def test_json_mode(task: Task, tmp_path: Path) -> None:
    with OpenAIServer(json.dumps({"parts": {"main.py": "x = 5\n"}})) as server:
        (made,) = propose(task, models(tmp_path, server, model="json = true"))
    assert server.requests[0]["response_format"] == {"type": "json_object"}
    assert "JSON object" in server.requests[0]["messages"][1]["content"]
    assert made.candidates[0].text == "x = 5\n" and made.candidates[0].origin.operator == "json"


@pytest.mark.parametrize(
    ("fault", "counted", "unpriced"),
    [
        ("429", "rate_limited", 0),
        ("429_after", "rate_limited", 0),
        ("500", "server_error", 0),
        ("cut", "cut", 1),
        ("html", "html", 1),
        ("garbage", "not_json", 1),
        ("no_choices", "no_choices", 0),
        ("no_content", "no_content", 0),
        ("length", "truncated", 0),
    ],
)
def test_each_fault_is_overcome_and_counted(
    fault: str, counted: str, unpriced: int, task: Task, tmp_path: Path
) -> None:
    with OpenAIServer(GOOD, [fault], retry_after=0.01) as server:
        (made,) = propose(task, models(tmp_path, server))
    assert len(made.candidates) == 1 and made.fault == ""
    assert made.faults == {counted: 1}
    assert made.usage.unpriced == unpriced
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "kind"), [("refusal", "refused"), ("empty", "empty"), ("400", "bad_request")]
)
def test_faults_that_are_not_asked_again(fault: str, kind: str, task: Task, tmp_path: Path) -> None:
    with OpenAIServer(GOOD, [fault]) as server:
        (made,) = propose(task, models(tmp_path, server))
    assert (made.fault, made.candidates, len(server.requests)) == (kind, (), 1)


def test_hanging_requests_end(task: Task, tmp_path: Path) -> None:
    with OpenAIServer(GOOD, ["hang"] * 2) as server:
        (made,) = propose(task, models(tmp_path, server, "timeout = 0.3"))
        assert made.faults == {"timeout": 2} and made.candidates and made.usage.unpriced == 2
        server.fail(*["hang"] * 9)
        (made,) = propose(task, models(tmp_path, server, "timeout = 0.3\nretries = 1"))
        assert made.fault == "timeout"


@pytest.mark.parametrize(
    ("fault", "says"), [("401", "TEST_KEY"), ("404", "there is no chat API at http")]
)
def test_mistakes_of_the_user_end_at_once_and_show_no_key(
    fault: str, says: str, task: Task, tmp_path: Path
) -> None:
    with OpenAIServer(GOOD, [fault]) as server:
        with pytest.raises(UserError, match=says) as caught:
            propose(task, models(tmp_path, server))
    assert len(server.requests) == 1
    assert_no_key(caught.value)


def test_a_provider_that_wants_a_key_none_is_named_for_says_where_to_name_it(
    task: Task, tmp_path: Path
) -> None:
    with OpenAIServer(GOOD, ["401"]) as server:
        file = Path(models(tmp_path, server))
        file.write_text(file.read_text().replace('key_env = "TEST_KEY"\n', ""))
        with pytest.raises(UserError) as caught:
            propose(task, str(file))
    assert caught.value.where == "no key" and "key_env" in caught.value.fix


def assert_no_key(error: BaseException) -> None:
    import traceback

    shown = "".join(
        traceback.TracebackException.from_exception(error, capture_locals=True).format()
    )
    assert SECRET not in shown
    link: BaseException | None = error
    while link is not None:
        assert SECRET not in repr(link) + repr(vars(link))
        link = link.__cause__ or link.__context__


def test_no_server_at_an_address_of_ones_own_ends_at_once(task: Task, tmp_path: Path) -> None:
    with OpenAIServer(GOOD) as server:
        file = models(tmp_path, server, "")
    with pytest.raises(NoAnswer, match=f"nothing answers at {server.url}") as caught:
        propose(task, file, briefs=3)
    assert_no_key(caught.value)


FAULTS = {
    "429": 0.03,
    "429_after": 0.03,
    "500": 0.03,
    "hang": 0.01,
    "cut": 0.03,
    "html": 0.03,
    "garbage": 0.03,
    "no_choices": 0.03,
    "no_content": 0.03,
    "length": 0.03,
    "refusal": 0.01,
    "empty": 0.01,
}


def test_a_third_of_400_calls_failing(
    task: Task, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """0 crashes, 0 hangs, all spend counted, no key anywhere."""
    caplog.set_level(logging.DEBUG)
    with OpenAIServer(lambda body: GOOD, FAULTS, seed=3, retry_after=0.02) as server:
        file = models(tmp_path, server, "timeout = 3.0\ndeadline = 40\nconcurrency = 16")
        made = propose(task, file, briefs=400)
    usage: Usage = total_usage(proposal.usage for proposal in made)
    sent, failed = server.outcomes, {"429", "429_after", "500"}
    assert sum(sent.values()) >= 400 and sum(n for name, n in sent.items() if name != "ok") >= 100
    assert usage.calls == sum(n for name, n in sent.items() if name not in failed)
    assert usage.unpriced == sum(sent[name] for name in ("cut", "hang", "html", "garbage"))
    lost = Usage(input_tokens=server.billed["prompt_tokens"]).input_tokens - usage.input_tokens
    assert lost == sent["cut"] * (server.billed["prompt_tokens"] // billed_replies(server))
    assert sum(1 for proposal in made if proposal.candidates) >= 380
    assert all(bool(p.candidates) != bool(p.fault) for p in made)
    assert SECRET not in msgspec.json.encode(made).decode()
    assert SECRET not in caplog.text


def billed_replies(server: OpenAIServer) -> int:
    """The number of replies sent with a usage.

    All prompts of the test above have the same length.
    """
    return sum(
        n
        for name, n in server.outcomes.items()
        if name not in {"429", "429_after", "500", "hang", "html", "garbage"}
    )


def test_concurrency_is_the_providers_not_the_machines(task: Task, tmp_path: Path) -> None:
    import threading

    gate = threading.Barrier(12, timeout=30)

    def together(body: dict[str, Any]) -> str:
        gate.wait()  # passes only if 12 requests are in flight at once
        return GOOD

    with OpenAIServer(together) as server:
        made = propose(task, models(tmp_path, server, "concurrency = 12"), briefs=12)
    assert all(p.candidates for p in made)


def test_malformed_bodies() -> None:
    for text, kind in [
        ("", "not_json"),
        ("[]", "not_json"),
        ("[" * 100_000, "not_json"),
        ("  <!DOCTYPE html>", "html"),
        ("{}", "no_choices"),
        ('{"choices": {}}', "no_choices"),
        ('{"choices": [null, 3, {"message": null}]}', "no_content"),
        ('{"choices": [{"message": {"content": null}}]}', "no_content"),
        ('{"error": "x"}', "error_body"),
    ]:
        with pytest.raises(BadResponse) as caught:
            read_reply(text)
        assert (caught.value.kind, caught.value.raw) == (kind, text)
    with pytest.raises(RateLimited):
        read_reply('{"error": {"code": 429, "message": "slow"}}')
    with pytest.raises(ServerFailed):
        read_reply('{"error": {"code": 502, "message": "slow"}}')


def test_odd_but_usable_bodies() -> None:
    parts = read_reply(
        '{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}, 3]}}]}'
    )
    assert parts.choices[0].text == "ab" and parts.tokens is None
    cut = read_reply(
        '{"choices": [{"finish_reason": "length", "message": {"content": null}}], "usage": {"prompt_tokens": 1}}'
    )
    assert (cut.choices[0].text, cut.choices[0].finish) == ("", "length")
    assert cut.tokens is not None and cut.tokens.input == 1
    for usage in (
        "3",
        '{"prompt_tokens": -1}',
        '{"prompt_tokens": true}',
        '{"prompt_tokens": "7"}',
    ):
        assert (
            read_reply(
                f'{{"choices": [{{"message": {{"content": "a"}}}}], "usage": {usage}}}'
            ).tokens
            is None
        )


@pytest.mark.parametrize(
    ("usage", "tokens", "total"),
    [
        ({"prompt_tokens": "7", "completion_tokens": "3"}, Tokens(7, 3), None),
        ({"prompt_tokens": 7, "total_tokens": "10"}, Tokens(7, 3), None),
        ({"completion_tokens": 3, "total_tokens": 10}, Tokens(7, 3), None),
        ({"completion_tokens": 30, "total_tokens": 10}, None, 10),
        ({"total_tokens": 10}, None, 10),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": "10"}, None, 10),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None, None),
        ({"prompt_tokens": "7", "completion_tokens": "-3"}, None, None),
        ({"prompt_tokens": "7", "completion_tokens": "\u0663"}, None, None),  # no ASCII digit
        ({"prompt_tokens": "7", "completion_tokens": "9" * 30}, None, None),
        ({"total_tokens": True}, None, None),
        ({"total_tokens": [10]}, None, None),
    ],
)
def test_usage_as_texts_and_totals(
    usage: dict[str, object], tokens: Tokens | None, total: int | None
) -> None:
    message = {"role": "assistant", "content": "a text", "reasoning_content": "so and so"}
    choice = {"message": message, "finish_reason": "length"}  # words that are not the model's
    reply = read_reply(json.dumps({"choices": [choice], "usage": usage}))
    assert (reply.tokens, reply.total) == (tokens, total)
    assert reply.size == len("a text" + "so and so")


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        *((word, "length") for word in ("MAX_TOKENS", "max_output_tokens", "error", "abort")),
        *((word, "stop") for word in ("STOP", "end_turn", "eos_token", "", None)),
        *((word, "filtered") for word in ("SAFETY", "SPII", "guardrail_intervened")),
        ("refusal", "refused"),
    ],
)
def test_the_end_of_a_reply_in_any_providers_words(word: str | None, finish: str) -> None:
    choice = {"finish_reason": word, "message": {"content": "a text"}}
    assert read_reply(json.dumps({"choices": [choice]})).choices[0].finish == finish


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    assert not Key(file=str(file)).is_available()
    file.write_text(f" {SECRET}\n")
    key = Key(file=str(file))
    assert (
        key.reveal() == SECRET and key.is_available() and SECRET not in repr(key) + str(vars(key))
    )
    assert key.scrub(f"bad key {SECRET}!") == "bad key [key]!"
    assert SECRET[:12] not in key.scrub(f"bad key {SECRET[:14]}***")
    assert Key("TEST_KEY").reveal() == SECRET
    monkeypatch.setenv("EMPTY", " ")
    with pytest.raises(UserError, match="EMPTY"):
        Key("EMPTY").reveal()
    assert Key().reveal() == "none" and Key().is_available()


def test_retry_after_forms() -> None:
    import email.utils
    import time

    from culmen.models.endpoint import retry_after

    assert retry_after({"retry-after": "12"}) == 12.0
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < (retry_after({"retry-after": later}) or 0) <= 100
    for nonsense in ("soon", "-3", "nan", "inf", "Wed, 99 Foo"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_a_candidate_with_broken_unicode_is_no_crash(tmp_path: Path) -> None:
    odd = Task(name="t", seeds=({"p.py": "x = '\ud800'\n"},))
    with OpenAIServer("```python\nx = 1\n```") as server:
        (made,) = propose(odd, models(tmp_path, server))
    assert isinstance(odd.initial_candidates()[0], Candidate)
    assert made.candidates or made.fault


class Contrary(BaseHTTPRequestHandler):
    """A server that asks for one thing and its opposite in turn."""

    served: ContraryServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.served.asked += 1
        value = "true" if self.served.asked % 2 else "false"
        body = json.dumps({"error": {"message": f"thinking must be set to {value}"}}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


class ContraryServer(Loopback):
    """The server of `Contrary`, with the number of its requests."""

    def __init__(self) -> None:
        self.asked = 0
        super().__init__(Contrary)


def test_a_server_that_contradicts_itself_is_asked_a_few_times() -> None:
    async def ask(url: str) -> None:
        backend = OpenAIBackend(Endpoint(Key(), url, 5.0))
        with pytest.raises(Declined):
            await backend.complete(Call("m", (ChatMessage("user", "hi"),)))
        await backend.close()

    with ContraryServer() as server:
        asyncio.run(ask(f"{server.url}/v1"))
        assert 2 < server.asked < 20
