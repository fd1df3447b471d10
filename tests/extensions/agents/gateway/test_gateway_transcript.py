"""Transcripts: one row an exchange, bounded, without keys; and no key anywhere else."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from pathlib import Path

import pytest

from culmen.core.usage import Budget
from culmen.extensions.agents.gateway.account import GatewayLimits, Transcript
from culmen.models.spec import Key, Provider
from tests.extensions.agents.gateway.conftest import FORMATS, SECRET, model, rows, running
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer


def test_no_key_in_transcripts_logs_or_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    shown: list[str] = []

    async def main() -> None:
        logging.getLogger().setLevel(logging.DEBUG)
        faults = ["", "401", "429_after", "500", "400", "html", "garbage"]
        with ModelServer(
            [Turn(f"the key is {SECRET[:12]} or sk-other-0123456789")], faults * 4
        ) as server:
            provider = Provider("mine", f"{server.url}/v1", key_file=str(file))
            async with running(
                {"*": model(server, provider=provider)}, tmp_path, Budget(calls=20)
            ) as agent:
                text = f"Authorization: Bearer {agent.token} {SECRET} x-api-key"
                for form in FORMATS:
                    for _ in faults:
                        shown.append((await agent.post(form, text, metadata={"k": SECRET})).text)
                agent.gateway.close(agent.token)
                shown.append((await agent.post("chat")).text)
                shown.append(agent.token)
            assert all(SECRET in key for key in server.keys)

    asyncio.run(main())
    token = shown.pop()
    logged = "\n".join([*(record.getMessage() for record in caplog.records), *capfd.readouterr()])
    written = (tmp_path / "agent-a.jsonl").read_text()
    assert "you sent [key]" in written
    for text in (written, logged, *shown):
        assert SECRET not in text
        assert token not in text
    assert "sk-other" not in written
    assert len(rows(tmp_path)) == 4 * 7


@pytest.mark.parametrize("form", FORMATS)
def test_a_key_that_a_server_repeats_does_not_reach_the_agent(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "UPSTREAM_KEY", "k3y-0123"
    )  # shorter than the pieces of the server's streams

    async def main() -> None:
        with ModelServer([Turn("k3y-0123")] * 2) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                for stream in (False, True):
                    answer = await agent.post(form, stream=stream)
                    assert (
                        answer.status_code == 200
                        and "[key]" in answer.text
                        and "k3y-0123" not in answer.text
                    )

    asyncio.run(main())
    assert "k3y-0123" not in (tmp_path / "agent-a.jsonl").read_text()


def test_a_key_in_a_stream_is_hidden_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", SECRET)
    whole = f"a {SECRET[:9]} {SECRET} sk-up {SECRET}{SECRET[:-1]}".encode()
    for first in range(len(whole)):
        for size in (1, 7, 40):
            filter = Key("UPSTREAM_KEY").stream_filter()
            cuts = [0, first, *range(first + size, len(whole), size), len(whole)]
            passed = [filter.feed(whole[a:b]) for a, b in itertools.pairwise(cuts)]
            read = b"".join([*passed, filter.feed(b"", is_last=True)])
            assert read == whole.replace(SECRET.encode(), b"[key]")
    assert Key().stream_filter().feed(b"none") == b"none"


def test_what_was_written_before_is_only_referred_to(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                said = [{"role": "user", "content": "a long request. " * 60}]
                for word in ("first", "second", "third"):
                    said.append({"role": "user", "content": f"{word} " * 60})
                    await agent.post(
                        "chat",
                        messages=said,
                        tools=[{"type": "function", "function": {"name": "n" * 300}}],
                    )

    asyncio.run(main())
    first, second, third = (row["request"] for row in rows(tmp_path))
    assert [set(m) for m in first["messages"]] == [{"role", "content"}] * 2
    assert second["messages"][:2] == [{"as_in_row": 0}] * 2
    assert third["messages"][:3] == [{"as_in_row": 0}, {"as_in_row": 0}, {"as_in_row": 1}]
    assert third["messages"][3]["content"].startswith("third ")
    assert third["tools"] == {"as_in_row": 0}


def test_texts_rows_and_files_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        limits = GatewayLimits(text=1000, row=8_000, transcript=12_000)
        with ModelServer(lambda asked: Turn("word " * 5000)) as server:
            async with running({"*": model(server)}, tmp_path, limits=limits) as agent:
                await agent.post("chat", text="x" * 50_000)
                await agent.post("chat", text="", many=[f"{i:0400}" for i in range(100)])
                for i in range(60):
                    await agent.post("messages", text=f"{i} " * 2000)
                report = agent.gateway.report(agent.token)
                assert report.unwritten > 0
                assert report.unwritten + len(rows(tmp_path)) == 62

    asyncio.run(main())
    written = rows(tmp_path)
    said, heard = written[0]["request"]["messages"][0]["content"], written[0]["reply"]["text"]
    assert (said[:1001], said[1001:]) == ("x" * 1000 + "…", " [50000 characters in all]")
    assert (len(heard), heard[1000:]) == (1027, "… [25000 characters in all]")
    assert written[1]["omitted"] > 8_000
    assert "request" in written[2]
    assert "request" not in written[-1]
    assert (tmp_path / "agent-a.jsonl").stat().st_size <= 2 * 12_000


def test_a_full_disk_does_not_stop_an_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path) as agent:
                (tmp_path / "agent-a.jsonl").symlink_to("/dev/full")
                for _ in range(3):
                    assert (await agent.post("chat")).status_code == 200
                assert agent.gateway.report(agent.token).unwritten == 3

    asyncio.run(main())
    assert (
        len(
            [
                record
                for record in caplog.records
                if record.name == "culmen.extensions.agents.gateway"
            ]
        )
        == 1
    )


def test_an_interrupted_transcript_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    long = "y" * 500
    first = Transcript(path, GatewayLimits())
    first.append_row({"a": 1}, {"messages": [long]}, "messages", {}, str)
    with path.open("ab") as file:
        file.write(b'{"row": 1, "torn')
    again = Transcript(path, GatewayLimits())
    again.append_row({"a": 2}, {"messages": [long]}, "messages", {}, str)
    lines = path.read_text().splitlines()
    assert [json.loads(lines[i])["row"] for i in (0, 2)] == [0, 2]
    assert json.loads(lines[2])["request"]["messages"] == [long]


def test_names_of_agents_are_no_paths(tmp_path: Path) -> None:
    async def main() -> None:
        with ModelServer([Turn("hello")]) as server:
            async with running({"*": model(server)}, tmp_path / "t") as agent:
                agent.token = agent.gateway.open("../../x y")
                assert (await agent.post("chat")).status_code == 200

    asyncio.run(main())
    assert [path.name for path in (tmp_path / "t").iterdir()] == ["agent-.._.._x_y.jsonl"]
