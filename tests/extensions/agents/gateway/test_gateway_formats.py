"""Replies, usage and errors that pass through in all four formats.

By real SDKs over real sockets.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from culmen.core.usage import Usage
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from tests.extensions.agents.gateway.conftest import (
    COST,
    FORMATS,
    SECRET,
    TURN,
    model,
    request,
    rows,
    running,
)
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

SPENT = Usage(
    calls=1, input_tokens=1000, output_tokens=50, dollars=(200 * 1.0 + 800 * 0.1 + 50 * 2.0) / 1e6
)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", FORMATS)
def test_replies_reach_the_agent_and_are_counted(form: str, stream: bool, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                text, calls = await agent.ask(form, stream=stream)
                assert text == "I will look."
                assert calls == [{"command": "ls -la"}, {"command": "pwd"}]
                spent = await agent.gateway.settled(agent.token)
                assert spent == SPENT == agent.gateway.usage(agent.token)
                assert agent.gateway.take(agent.token) == SPENT
                assert agent.gateway.take(agent.token) == Usage()
            assert server.asked[0].model == "big"
            assert not any(agent.token in key for key in server.keys)
            assert all(SECRET in key for key in server.keys)
        [row] = rows(tmp_path)
        assert (row["outcome"], row["status"], row["format"]) == ("ok", 200, form)
        assert row["reply"]["text"] == "I will look."
        assert [json.loads(call["arguments"]) for call in row["reply"]["calls"]] == calls
        assert [call["name"] for call in row["reply"]["calls"]] == ["bash", "bash"]

    asyncio.run(main())


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_is_passed_on_piece_by_piece(form: str, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["stall"]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                path, body = request(form, stream=True)
                headers = {"x-api-key": agent.token}
                async with agent.http.stream(
                    "POST", agent.url + path, json=body, headers=headers
                ) as response:
                    chunks = response.aiter_bytes()
                    first = await anext(chunks)  # comes while upstream holds the rest back
                    assert first
                    assert not server.ended
                    server.release()
                    assert b"".join([chunk async for chunk in chunks])
                assert await agent.gateway.settled(agent.token) == SPENT

    asyncio.run(main())


@pytest.mark.parametrize("place", ["authorization", "x-api-key", "x-goog-api-key", "key"])
def test_a_token_is_known_wherever_it_stands(place: str, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                for token, status in ((agent.token, 200), ("sk-culmen-guessed", 401)):
                    value = f"Bearer {token}" if place == "authorization" else token
                    given: Any = (
                        {"params": {"key": value}}
                        if place == "key"
                        else {"headers": {place: value}}
                    )
                    path, body = request("gemini")
                    assert (
                        await agent.http.post(agent.url + path, json=body, **given)
                    ).status_code == status
            assert len(server.asked) == 1
            assert all("key" not in path for path in server.paths)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["400", "401", "404", "429_after", "500", "529"])
@pytest.mark.parametrize("form", FORMATS)
def test_errors_of_the_provider_pass_unchanged_and_cost_nothing(
    form: str, fault: str, tmp_path: Path
) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")], [fault, fault]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                path, body = request(form)
                plain = await agent.http.post(server.url + path, json=body)
                passed = await agent.post(form)
                assert passed.status_code == plain.status_code == int(fault[:3])
                told = passed.json()["error"]["message"]
                assert (
                    told == plain.json()["error"]["message"] + "Bearer [key]"
                )  # the server repeats who asked
                assert passed.headers.get("retry-after") == plain.headers.get("retry-after")
                assert await agent.gateway.settled(agent.token) == Usage()
                report = agent.gateway.report(agent.token)
                assert (report.failed, report.refused, report.held) == ({fault[:3]: 1}, {}, Usage())
                assert report.last_failure.startswith(f"HTTP {fault[:3]}")
                assert "SECRET" not in report.last_failure
                assert (await agent.post(form)).status_code == 200
                while agent.gateway.report(agent.token).last_failure:
                    await asyncio.sleep(0.01)  # the exchange ends after its last byte

    asyncio.run(main())


def test_sdks_understand_refusals(tmp_path: Path) -> None:
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")

    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"named": model(server)}, tmp_path) as agent:
                with pytest.raises(openai.PermissionDeniedError, match="may use named"):
                    await agent.ask("chat")
                with pytest.raises(openai.PermissionDeniedError, match="may use named"):
                    await agent.ask("responses")
                with pytest.raises(anthropic.PermissionDeniedError, match="may use named"):
                    await agent.ask("messages")
                refused = (await agent.post("gemini")).json()["error"]
                assert (refused["code"], refused["status"]) == (403, "PERMISSION_DENIED")
                assert [m.id async for m in agent.openai.models.list()] == ["named"]
                assert [m.id async for m in agent.anthropic.models.list()] == ["named"]
                agent.openai.api_key = agent.anthropic.api_key = "sk-culmen-wrong"
                with pytest.raises(openai.AuthenticationError):
                    await agent.ask("chat")
                with pytest.raises(anthropic.AuthenticationError):
                    await agent.ask("messages")
            assert not server.asked

    asyncio.run(main())


def test_counting_tokens_is_free(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                counted = await agent.anthropic.messages.count_tokens(
                    model="x", messages=[{"role": "user", "content": "hi"}]
                )
                assert counted.input_tokens > 0
                path, body = request("gemini")
                path = path.replace("generateContent", "countTokens")
                answer = await agent.http.post(
                    agent.url + path, json=body, params={"key": agent.token}
                )
                assert answer.json()["totalTokens"] > 0
                assert await agent.gateway.settled(agent.token) == Usage()
            assert not server.asked

    asyncio.run(main())


def test_usage_that_the_agent_did_not_ask_for_is_not_shown(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                unasked = await agent.post("chat", stream=True)
                asked = await agent.post(
                    "chat", stream=True, stream_options={"include_usage": True}
                )
                assert '"usage"' not in unasked.text
                assert '"usage"' in asked.text
                assert unasked.text.rstrip().endswith("data: [DONE]")
                spent = await agent.gateway.settled(agent.token)
                assert (spent.calls, spent.input_tokens, spent.unpriced) == (2, 2000, 0)
            assert all(a.body["stream_options"] == {"include_usage": True} for a in server.asked)

    asyncio.run(main())


def test_every_request_has_a_limit_upstream(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server, max_tokens=777)}, tmp_path) as agent:
                for form in ("chat", "responses", "gemini"):
                    assert (await agent.post(form)).status_code == 200
                assert (await agent.post("chat", max_completion_tokens=5)).status_code == 200
                for wrong in (0, -1, "9", 1.5, True):
                    assert (await agent.post("chat", max_tokens=wrong)).status_code == 400
            chat, responses, gemini, own = (asked.body for asked in server.asked)
            assert chat["max_tokens"] == 777
            assert responses["max_output_tokens"] == 777
            assert gemini["generationConfig"]["maxOutputTokens"] == 777
            assert (own["max_completion_tokens"], "max_tokens" in own) == (5, False)

    asyncio.run(main())


def test_what_has_no_known_price_is_taken_out_or_refused(tmp_path: Path) -> None:
    async def main() -> None:
        own = {"type": "function", "name": "bash", "parameters": {}}
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                tools = [own, {"type": "web_search"}]
                assert (
                    await agent.post("responses", tools=tools, service_tier="priority")
                ).status_code == 200
                only = [{"type": "web_search_20250305", "name": "web_search"}]
                assert (
                    await agent.post("messages", tools=only, tool_choice={"type": "auto"})
                ).status_code == 200
                both = [{"functionDeclarations": [{"name": "bash"}], "google_search": {}}]
                assert (await agent.post("gemini", tools=both)).status_code == 200
                for kept in (
                    {"previous_response_id": "r"},
                    {"background": True},
                    {"conversation": "c"},
                ):
                    fields: Any = kept
                    assert (await agent.post("responses", **fields)).status_code == 400
                assert (await agent.post("gemini", cachedContent="c")).status_code == 400
            responses, messages, gemini = (asked.body for asked in server.asked)
            assert (responses["tools"], "service_tier" in responses) == ([own], False)
            assert not {"tools", "tool_choice"} & set(messages)
            assert gemini["tools"] == [{"functionDeclarations": [{"name": "bash"}]}]
        removed = [row.get("removed") for row in rows(tmp_path)][:3]
        assert removed == [["web_search"], ["web_search_20250305"], ["google_search"]]

    asyncio.run(main())


def test_requests_that_are_none(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                url, head = f"{agent.url}/v1/messages", {"x-api-key": agent.token}
                for content in (b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'"text"'):
                    assert (
                        await agent.http.post(url, content=content, headers=head)
                    ).status_code == 400
                packed = await agent.http.post(
                    url, content=b"{}", headers={**head, "content-encoding": "gzip"}
                )
                assert packed.status_code == 415
                assert (await agent.http.get(url, headers=head)).status_code == 405
                assert (
                    await agent.http.post(f"{agent.url}/v1/files", headers=head)
                ).status_code == 404
                assert (await agent.http.post(f"{agent.url}/v1/files")).status_code == 401
                assert (await agent.http.get(agent.url)).status_code == 200
            assert not server.asked

    asyncio.run(main())


def test_agents_may_choose_among_a_provider_s_models_if_their_price_is_known(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        with ModelServer([TURN]) as server:
            provider = Provider("mine", f"{server.url}/v1", "UPSTREAM_KEY", prices="openai")
            dear = ModelSpec(provider, "dear", price=Price(10.0, 20.0, 1.0))
            async with running({"*": provider, "mine": dear}, tmp_path) as agent:
                known = await agent.http.post(
                    f"{agent.url}/v1/chat/completions",
                    json={"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]},
                    headers={"authorization": f"Bearer {agent.token}"},
                )
                assert known.status_code == 200
                listed = await agent.gateway.settled(agent.token)
                assert (listed.unpriced, listed.dollars > 0) == (0, True)
                unknown = await agent.post("chat")
                assert unknown.status_code == 403
                assert "price" in unknown.json()["error"]["message"]
                assert (await agent.post("chat", model="mine")).status_code == 200
                own = agent.gateway.usage(agent.token) - listed
                assert own.dollars == pytest.approx((200 * 10 + 800 * 1 + 50 * 20) / 1e6)
            assert [asked.model for asked in server.asked] == ["gpt-4o-mini", "dear"]

    asyncio.run(main())


def test_writing_to_the_cache_has_its_price(tmp_path: Path) -> None:
    async def main() -> None:
        turn = Turn("hello", tokens=Tokens(1000, 10, 300, 500))
        with ModelServer([turn]) as server:
            price = Price(1.0, 2.0, 0.1, 1.25)
            async with running({"*": model(server, price=price)}, tmp_path) as agent:
                for stream in (False, True):
                    assert (await agent.ask("messages", stream=stream))[0] == "hello"
                spent = await agent.gateway.settled(agent.token)
                once = (200 * 1.0 + 300 * 0.1 + 500 * 1.25 + 10 * 2.0) / 1e6
                assert spent.dollars == pytest.approx(2 * once)
                assert spent.input_tokens == 2000

    asyncio.run(main())


def test_the_gateway_listens_on_a_socket_too(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "s"
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path, socket=path, port=None) as agent:
                assert (agent.gateway.url, path.stat().st_mode & 0o777) == ("", 0o600)
                transport = httpx2.AsyncHTTPTransport(uds=str(path))
                async with httpx2.AsyncClient(
                    transport=transport, base_url="http://gateway"
                ) as client:
                    place, body = request("messages", stream=True)
                    answer = await client.post(place, json=body, headers={"x-api-key": agent.token})
                    assert "message_stop" in answer.text
                assert await agent.gateway.settled(agent.token) == SPENT
        assert not path.exists()
        assert COST.cached == 800

    asyncio.run(main())
