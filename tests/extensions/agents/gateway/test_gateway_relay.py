"""The relay, in a jail that has no network but its own loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.extensions.agents.gateway import relay
from tests.extensions.agents.gateway.conftest import COST, TURN, model, request, running
from tests.servers.model_server import ModelServer

RELAY = relay.__file__
POST = (
    "import sys, urllib.request as r\n"
    "q = r.Request(sys.argv[1], sys.argv[3].encode(), {'x-api-key': sys.argv[2]})\n"
    "sys.stdout.write(r.urlopen(q).read().decode())\n"
)


def _jailed() -> list[str]:
    """The start of a command line that runs without a network."""
    bwrap = shutil.which("bwrap")
    command = [
        bwrap or "bwrap",
        "--unshare-net",
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--",
    ]
    if bwrap is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        if os.environ.get("CULMEN_REQUIRE_JAIL"):
            pytest.fail("bubblewrap with a network of its own is needed here")
        pytest.skip("needs bubblewrap")
    return command


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _run(*command: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), error.decode()


@pytest.mark.jail
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_agent_without_a_network_reaches_the_gateway(stream: bool, tmp_path: Path) -> None:
    async def main() -> None:
        jail = _jailed()
        path = tmp_path / "s"
        place, body = request("messages", stream=stream)
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path, socket=path) as agent:
                post = (sys.executable, "-c", POST)
                sent = (agent.token, json.dumps(body))
                relayed = (sys.executable, "-I", RELAY, str(path), "4000", "--")
                code, out, error = await _run(
                    *jail, *relayed, *post, f"http://127.0.0.1:4000{place}", *sent
                )
                assert code == 0, error
                assert "I will look." in out
                assert (await agent.gateway.settled(agent.token)).input_tokens == COST.input
                direct = f"{agent.gateway.url}{place}"
                code, _, error = await _run(*jail, *relayed, *post, direct, *sent)
                assert code == 1
                assert "refused" in error  # the host's own loopback is another one

    asyncio.run(main())


def test_many_connections_and_large_bodies(tmp_path: Path) -> None:
    async def main() -> None:
        path, port = tmp_path / "s", _free_port()
        with ModelServer([TURN]) as server:
            async with running({"*": model(server)}, tmp_path, socket=path) as agent:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "culmen.extensions.agents.gateway.relay",
                    str(path),
                    str(port),
                    "--",
                    "cat",
                    stdin=asyncio.subprocess.PIPE,
                )
                await _listening(port)
                agent.url = f"http://127.0.0.1:{port}"
                answers = await asyncio.gather(
                    *(agent.post("chat", text="x" * 400_000) for _ in range(12))
                )
                assert {answer.status_code for answer in answers} == {200}
                assert {len(asked.text) for asked in server.asked} == {400_000}
                assert process.stdin is not None
                process.stdin.close()
                assert await process.wait() == 0
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(main())


async def _listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], 137),
        (["no-such-program"], 127),
    ],
)
def test_it_ends_as_its_command_does(command: list[str], status: int, tmp_path: Path) -> None:
    port = str(_free_port())
    done = subprocess.run(
        [sys.executable, "-I", RELAY, str(tmp_path / "s"), port, "--", *command],
        capture_output=True,
    )
    assert done.returncode == status


def test_it_says_what_is_wrong(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-I", RELAY, "s", port, "--", "true"], capture_output=True, text=True
        )
        assert (done.returncode, "cannot listen" in done.stderr) == (125, True)
    done = subprocess.run(
        [sys.executable, "-I", RELAY, "s", "x", "--", "true"], capture_output=True, text=True
    )
    assert (done.returncode, "usage" in done.stderr) == (2, True)


def test_without_a_gateway_connections_end(tmp_path: Path) -> None:
    code = "import sys, socket\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\nprint(len(s.recv(9)))\n"
    port = str(_free_port())
    command = [
        sys.executable,
        "-I",
        RELAY,
        str(tmp_path / "none"),
        port,
        "--",
        sys.executable,
        "-c",
        code,
        port,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, lambda n, _: sys.exit(40 + n))\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    command = [
        sys.executable,
        "-I",
        RELAY,
        str(tmp_path / "s"),
        str(_free_port()),
        "--",
        sys.executable,
        "-c",
        code,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == 40 + number


def test_its_command_does_not_outlive_it(tmp_path: Path) -> None:
    code = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"
    command = [
        sys.executable,
        "-I",
        RELAY,
        str(tmp_path / "s"),
        str(_free_port()),
        "--",
        sys.executable,
        "-c",
        code,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        process.kill()
        process.wait(60)
        assert (
            process.stdout.read() == ""
        )  # comes to an end only when the last holder of the pipe is gone
