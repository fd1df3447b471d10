"""Budgets that are never exceeded, and sessions that end.

Sessions are closed, left, hanging, cut, without a count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from culmen.core.errors import UserError
from culmen.core.usage import Budget, Usage
from culmen.extensions.agents.gateway.account import GatewayLimits
from culmen.extensions.agents.gateway.app import CONNECTIONS
from culmen.extensions.agents.gateway.metering import Metering
from culmen.models.call import Tokens
from culmen.models.spec import ModelSpec, Price, Provider
from tests.extensions.agents.gateway.conftest import (
    FORMATS,
    Agent,
    model,
    request,
    rows,
    running,
    until,
)
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

TURN = Turn("hello", tokens=Tokens(200, 100))
ROOM = 256 + 16_384  # tokens that a short request without a limit of its own reserves


@pytest.mark.parametrize(
    "budget",
    [
        Budget(calls=5),
        Budget(tokens=3 * ROOM),
        Budget(dollars=0.1),
        Budget(calls=7, tokens=40_000, dollars=1.0),
    ],
    ids=["calls", "tokens", "dollars", "all"],
)
def test_twenty_at_once_never_exceed_a_budget(budget: Budget, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["", *["hang"] * 20]) as server:
            async with running(
                {"*": model(server)}, tmp_path, budget, limits=GatewayLimits(in_flight=20)
            ) as agent:
                await agent.post("chat")
                jobs = [asyncio.ensure_future(agent.post(FORMATS[i % 4])) for i in range(20)]
                refused = agent.gateway.account_for_token(agent.token).refused  # pyright: ignore[reportOptionalMemberAccess]
                await until(lambda: len(server.asked) - 1 + refused["429"] == 20)
                server.release()
                answers = await asyncio.gather(*jobs)
                statuses = {answer.status_code for answer in answers}
                assert statuses <= {200, 429}
                assert 429 in statuses
                messages = [
                    json.dumps(answer.json()) for answer in answers if answer.status_code == 429
                ]
                assert all("this agent's budget of" in text for text in messages)
                spent = await agent.gateway.settled(agent.token)
                assert spent.calls == 1 + sum(answer.status_code == 200 for answer in answers)
                assert spent.calls <= (budget.calls or 1000)
                assert spent.tokens <= (budget.tokens or 10**9)
                assert spent.dollars <= (budget.dollars or 10**9)
            assert server.billed["input"] + server.billed["output"] == spent.tokens

    asyncio.run(main())


def test_a_refusal_that_is_final_says_so_to_every_client(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")

    async def main() -> None:
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path, Budget(calls=1)) as agent:
                waiting = asyncio.ensure_future(agent.gateway.exhausted(agent.token))
                await agent.ask("chat")
                assert not waiting.done()
                patient = openai.AsyncOpenAI(
                    api_key=agent.token, base_url=f"{agent.url}/v1", max_retries=8
                )
                async with patient:
                    with pytest.raises(
                        openai.RateLimitError, match="budget of 1 calls"
                    ):  # without a second try
                        await patient.chat.completions.create(
                            model="x", messages=[{"role": "user", "content": "hi"}]
                        )
                with pytest.raises(openai.RateLimitError):
                    await agent.ask("responses")
                answer = await agent.post("gemini")
                assert "PerDay" in answer.json()["error"]["details"][0]["violations"][0]["quotaId"]
                assert (await agent.post("messages")).json()["error"]["type"] == "rate_limit_error"
                assert await waiting == "calls"
                report = agent.gateway.report(agent.token)
                assert (report.stopped, report.refused) == ("calls", {"429": 4})
            assert len(server.asked) == 1

    asyncio.run(main())


def test_a_refusal_for_what_is_in_flight_is_not_final(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["hang"]) as server:
            async with running({"*": model(server)}, tmp_path, Budget(tokens=ROOM + 1000)) as agent:
                first = asyncio.ensure_future(agent.post("chat"))
                await until(lambda: server.asked)
                second = await agent.post("chat")
                assert (second.status_code, second.headers["x-should-retry"]) == (429, "true")
                assert agent.gateway.report(agent.token).stopped == ""
                server.release()
                assert (await first).status_code == 200
                await agent.gateway.settled(agent.token)
                assert (await agent.post("chat")).status_code == 200

    asyncio.run(main())


def test_the_run_s_own_ledger_has_a_word(tmp_path: Path) -> None:
    async def main() -> None:
        asked: list[Usage] = []

        def permit(extra: Usage) -> bool:
            asked.append(extra)
            return extra.calls <= 3

        with ModelServer([TURN]) as server:
            async with Metering({"*": model(server)}, tmp_path, permit=permit) as gateway:
                one, two = (Agent(gateway, gateway.open(name)) for name in "ab")
                for agent in (one, one, two):
                    assert (await agent.post("chat")).status_code == 200
                    await gateway.settled(agent.token)
                refused = await two.post("chat")
                assert (refused.status_code, gateway.report(two.token).stopped) == (429, "run")
                assert "the run's budget" in refused.json()["error"]["message"]
                gateway.take(one.token)  # what the run has been told is its own affair
                assert (await two.post("chat")).status_code == 200
                assert [extra.calls for extra in asked if extra.calls] == [1, 2, 3, 4, 4, 2]
                for agent in (one, two):
                    await agent.close()

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["hang", "stall"])
def test_the_stop_switch(fault: str, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], [fault] * 2) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                other = agent.gateway.open("b")
                jobs = [
                    asyncio.ensure_future(agent.post(form, stream=True))
                    for form in ("chat", "messages")
                ]
                await until(lambda: len(server.asked) == 2)
                agent.gateway.close(agent.token)
                for answer in await asyncio.gather(*jobs, return_exceptions=True):
                    refused = isinstance(answer, httpx2.Response) and answer.status_code == 403
                    assert refused or isinstance(answer, httpx2.RemoteProtocolError), answer
                spent = await agent.gateway.settled(agent.token)
                assert (spent.calls, spent.unpriced) == (2, 2)
                later = await agent.post("gemini")
                assert (later.status_code, later.headers["x-should-retry"]) == (403, "false")
                assert await agent.gateway.exhausted(agent.token) == ""
                agent.token = other
                assert (await agent.post("chat")).status_code == 200
            assert [row["outcome"] for row in rows(tmp_path)] == ["closed", "closed"]

    asyncio.run(main())


def test_an_agent_that_is_killed_ends_its_requests(tmp_path: Path) -> None:
    code = (
        "import sys, urllib.request as r\n"
        "q = r.Request(sys.argv[1] + '/v1/messages', sys.argv[3].encode(), {'x-api-key': sys.argv[2]})\n"
        "a = r.urlopen(q)\nprint(a.readline(), flush=True)\na.read()\n"
    )

    async def main() -> None:
        with ModelServer([TURN], ["stall"]) as server:
            async with running({"*": model(server)}, tmp_path, Budget(dollars=1.0)) as agent:
                body = json.dumps(request("messages", stream=True)[1])
                command = (sys.executable, "-c", code, agent.url, agent.token, body)
                killed = await asyncio.create_subprocess_exec(
                    *command, stdout=asyncio.subprocess.PIPE
                )
                assert killed.stdout is not None
                assert b"message_start" in await killed.stdout.readline()
                killed.send_signal(signal.SIGKILL)
                await killed.wait()
                spent = await agent.gateway.settled(agent.token)
                assert (spent.calls, spent.unpriced) == (1, 1)
                assert spent.input_tokens == 200  # was told at the start
                held = agent.gateway.report(agent.token).held
                assert held.dollars > 0  # what it may have cost beyond stays reserved
                assert (await agent.post("messages")).status_code == 200
            assert [row["outcome"] for row in rows(tmp_path)] == ["left", "ok"]

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["hang", "stall"])
def test_a_provider_that_hangs_meets_the_deadline(fault: str, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], [fault]) as server:
            async with running(
                {"*": model(server)}, tmp_path, limits=GatewayLimits(seconds=0.5)
            ) as agent:
                try:
                    answer = await agent.post("messages", stream=True)
                except httpx2.RemoteProtocolError:
                    assert fault == "stall"  # the reply had begun: all that is left is to cut it
                else:
                    assert answer.status_code == 504
                    assert "no complete reply within 0.5 s" in answer.json()["error"]["message"]
                spent = await agent.gateway.settled(agent.token)
                assert (spent.calls, spent.unpriced) == (
                    1,
                    1,
                ) or not server.asked  # too slow even to ask
            assert [row["outcome"] for row in rows(tmp_path)] == ["deadline"]

    asyncio.run(main())


def test_a_provider_that_is_silent_for_too_long(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["hang"]) as server:
            provider = Provider("mine", f"{server.url}/v1", "UPSTREAM_KEY", timeout=0.3)
            async with running({"*": model(server, provider=provider)}, tmp_path) as agent:
                answer = await agent.post("chat")
                assert (answer.status_code, answer.headers["x-should-retry"]) == (504, "true")
                assert (await agent.gateway.settled(agent.token)).unpriced == 1

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", ["cut", "garbage", "no_usage", "error_event", "html"])
def test_what_cannot_be_counted_is_held_and_said(form: str, fault: str, tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], [fault]) as server:
            async with running({"*": model(server)}, tmp_path, Budget(dollars=1.0)) as agent:
                try:
                    answer = await agent.post(form, stream=True)
                except httpx2.RemoteProtocolError:
                    assert fault == "cut"
                else:
                    assert fault != "cut"
                    assert answer.status_code == 200
                spent = await agent.gateway.settled(agent.token)
                held = agent.gateway.report(agent.token).held
                assert (spent.calls, spent.unpriced) == (1, 1)
                assert held.dollars + spent.dollars >= 1.0 * 200 / 1e6 + 2.0 * 100 / 1e6

    asyncio.run(main())


def test_held_costs_count_against_the_budget(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["no_usage"] * 9) as server:
            async with running({"*": model(server)}, tmp_path, Budget(tokens=3 * ROOM)) as agent:
                statuses = [(await agent.post("chat")).status_code for _ in range(5)]
                assert statuses == [200, 200, 200, 429, 429]
            assert len(server.asked) == 3

    asyncio.run(main())


def test_a_provider_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        provider = Provider("gone", "http://127.0.0.1:9/v1", "UPSTREAM_KEY")
        async with running({"*": ModelSpec(provider, "big", price=Price(1, 2))}, tmp_path) as agent:
            answer = await agent.post("messages")
            assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
            assert await agent.gateway.settled(agent.token) == Usage()

    asyncio.run(main())


def test_too_much_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["hang"] * 2) as server:
            limits = GatewayLimits(in_flight=2, body=1000)
            async with running({"*": model(server)}, tmp_path, limits=limits) as agent:
                jobs = [asyncio.ensure_future(agent.post("chat")) for _ in range(2)]
                await until(lambda: len(server.asked) == 2)
                refused = await agent.post("chat")
                assert (refused.status_code, refused.headers["x-should-retry"]) == (429, "true")
                server.release()
                assert [job.status_code for job in await asyncio.gather(*jobs)] == [200, 200]
                await agent.gateway.settled(agent.token)
                assert (await agent.post("chat", text="x" * 2000)).status_code == 413

    asyncio.run(main())


def test_a_flood_of_connections_is_cut(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                port = int(agent.url.rpartition(":")[2])
                flood = [
                    await asyncio.open_connection("127.0.0.1", port)
                    for _ in range(CONNECTIONS + 50)
                ]
                cut: list[object] = []

                async def watch(reader: asyncio.StreamReader) -> None:
                    with contextlib.suppress(ConnectionError):
                        await reader.read()
                    cut.append(reader)

                watching = [asyncio.ensure_future(watch(reader)) for reader, _ in flood]
                await until(lambda: len(cut) >= 50)
                for _, writer in flood:
                    writer.close()
                await asyncio.gather(*watching)
                answers: list[int] = []
                while 200 not in answers:  # until the gateway has noticed that they are gone
                    with contextlib.suppress(httpx2.TransportError):
                        answers.append((await agent.post("chat")).status_code)
                assert answers == [200]

    asyncio.run(main())


def test_leaving_ends_what_is_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([TURN], ["hang"]) as server:
            async with Metering({"*": model(server)}, tmp_path) as gateway:
                agent = Agent(gateway, gateway.open(1))
                job = asyncio.ensure_future(agent.post("chat"))
                await until(lambda: server.asked)
            answer = (await asyncio.gather(job, return_exceptions=True))[0]
            refused = isinstance(answer, httpx2.Response) and answer.status_code == 403
            assert refused or isinstance(answer, httpx2.TransportError), answer
            assert gateway.usage(agent.token).unpriced == 1
            await agent.close()

    asyncio.run(main())


def test_mistakes_are_told_before_an_agent_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Provider("mine", "http://127.0.0.1:9/v1", "UPSTREAM_KEY")

    async def enter(models: dict[str, ModelSpec | Provider], **settings: object) -> None:
        async with Metering(models, tmp_path, **settings):  # pyright: ignore[reportArgumentType]
            pass

    with pytest.raises(UserError, match="price"):
        asyncio.run(enter({"*": ModelSpec(provider, "nobody-knows-it")}))
    with pytest.raises(UserError, match="no address"):
        asyncio.run(enter({"*": ModelSpec(Provider("litellm"), "x", price=Price(1, 2))}))
    good: dict[str, ModelSpec | Provider] = {"*": ModelSpec(provider, "x", price=Price(0, 0))}
    with pytest.raises(OSError):
        asyncio.run(enter(good, port=None, socket=tmp_path / "no" / "s"))

    async def twice() -> None:
        async with Metering(good, tmp_path, socket=tmp_path / "s") as gateway:
            port = int(gateway.url.rpartition(":")[2])
            with pytest.raises(OSError):
                await enter(good, port=port)
            with pytest.raises(UserError, match="unknown kind"):
                gateway.env(gateway.open(1), "emacs")
        assert not (tmp_path / "s").exists()

    asyncio.run(twice())
    monkeypatch.delenv("UPSTREAM_KEY")
    with pytest.raises(UserError, match="no API key"):
        asyncio.run(enter(good))


def test_the_environment_of_each_kind(tmp_path: Path) -> None:
    async def main() -> None:
        provider = Provider("mine", "http://127.0.0.1:9/v1")
        async with Metering(
            {"*": ModelSpec(provider, "x", price=Price(0, 0))}, tmp_path, port=None
        ) as gateway:
            token = gateway.open(1)
            inside = "http://127.0.0.1:4000"
            assert gateway.env(token, "openai", inside) == {
                "OPENAI_API_KEY": token,
                "OPENAI_BASE_URL": f"{inside}/v1",
            }
            assert gateway.env(token, "anthropic", inside) == {
                "ANTHROPIC_API_KEY": token,
                "ANTHROPIC_BASE_URL": inside,
            }
            assert gateway.env(token, "gemini", inside + "/")["GOOGLE_GEMINI_BASE_URL"] == inside
            with pytest.raises(UserError, match="relay"):
                gateway.env(token, "openai")

    asyncio.run(main())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_count_that_is_impossible_costs_what_the_request_could_have_cost(
    form: str, stream: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello", tokens=Tokens(10**30, 10**7))]) as server:
            async with running({"*": model(server)}, tmp_path, Budget(tokens=3 * ROOM)) as agent:
                assert (await agent.post(form, stream=stream)).status_code == 200
                await agent.gateway.settled(agent.token)
                report = agent.gateway.report(agent.token)
                assert (report.usage.tokens, report.usage.unpriced) == (0, 1)
                assert 0 < report.held.tokens <= ROOM
                assert (await agent.post(form, stream=stream)).status_code == 200
        assert rows(tmp_path)[0]["miscounted"]

    asyncio.run(main())
