"""Workers that are launched elsewhere: over SSH, with a real server of OpenSSH, and what may go wrong there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from culmen.cluster.launch import PASSWORD
from tests.cluster import ssh_server
from tests.cluster.launching import WORKER_PASSWORD, LaunchQueue, launch_queue, processes, runs, wait_until

pytestmark = pytest.mark.slow
CULMEN = str(Path(sys.executable).with_name("culmen"))


@pytest.fixture
def queue(
    postgres_server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[LaunchQueue]:
    monkeypatch.setenv(PASSWORD, WORKER_PASSWORD)
    with launch_queue(postgres_server, capsys) as made:
        yield made


@pytest.fixture(scope="module")
def hosts() -> Iterator[ssh_server.SshServer]:
    if why := ssh_server.missing():
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch, ssh_server.ssh_server() as running:
        patch.setenv("PATH", running.path)
        yield running


def test_workers_over_ssh_evaluate_and_end(queue: LaunchQueue, hosts: ssh_server.SshServer, tmp_path: Path):
    """Two on one host: seen in the queue, no secret in a list of processes or a file, and gone after a stop."""
    workers = queue.launch("--on", "ssh:good", "--count", "2")
    assert [(each["name"], each["state"]) for each in workers] == [("good-1", "joined"), ("good-2", "joined")]
    assert queue.worker("good-2") == {
        "name": "good-2", "trusted": False, "revoked": False, "place": "ssh:good", "processes": 1, "slots": 2,
    }  # fmt: skip
    assert queue.scores(tmp_path / "task", 6) == [-float(n) for n in range(6)]
    folders = [hosts.home / ".cache/culmen/workers" / each["label"] for each in workers]
    running = [int((folder / "process").read_text().split()[0]) for folder in folders]
    environment = Path(f"/proc/{running[0]}/environ").read_bytes().split(b"\0")
    token = next(each.partition(b"=")[2] for each in environment if each.startswith(b"CULMEN_WORKER_TOKEN="))
    for secret in (token.decode(), WORKER_PASSWORD):
        assert secret and processes(secret) == []
        assert not any(secret in file.read_text() for file in hosts.home.rglob("*") if file.is_file())
    assert queue.stop("good-1") == ["stopped"] and queue.stop("good-1") == []
    assert queue.worker("good-1")["revoked"] and not folders[0].exists() and not runs(running[0])
    assert queue.stop() == ["stopped"] and queue.stop() == [] and not folders[1].exists()
    assert not any(runs(number) for number in running)


@pytest.mark.parametrize(
    ("host", "words", "fix"),
    [
        ("silent", "ssh failed: Connection", "make this work: ssh -o BatchMode=yes silent true"),
        ("closed", "Connection refused", "make this work: ssh -o BatchMode=yes closed true"),
        ("stranger", "Permission denied", "ssh-copy-id stranger"),
        ("unknown", "Host key verification failed", "look at its key: ssh unknown"),
        ("bare", "there is no program 'culmen'", "--program"),
    ],
)
def test_a_host_that_fails_is_named_with_the_remedy(
    queue: LaunchQueue, hosts: ssh_server.SshServer, host: str, words: str, fix: str
):
    """Others are started, nothing is tried twice there, and nothing is left to be stopped."""
    failed = queue.launch("--on", f"ssh:{host}", "--count", "3", code=1)
    assert [each["state"] for each in failed] == ["failed"]
    assert words in failed[0]["words"] and fix in failed[0]["fix"]
    assert queue.worker(f"{host}-1")["place"] is None and queue.worker(f"{host}-1")["revoked"]
    assert queue.stop() == []


def test_a_worker_that_dies_at_once_is_named_with_its_last_words(
    queue: LaunchQueue, hosts: ssh_server.SshServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(PASSWORD, "wrong")
    (dead,) = queue.launch("--on", "ssh:bare", "--program", CULMEN, code=1)
    assert dead["state"] == "failed" and "password" in dead["words"], dead
    assert list((hosts.home / ".cache/culmen/workers").iterdir()) == [] and queue.stop() == []
    monkeypatch.setenv(PASSWORD, WORKER_PASSWORD)
    again = queue.launch("--on", "ssh:good", "--on", "ssh:silent", code=1)
    assert [(each["name"], each["state"]) for each in again] == [("good-1", "joined"), ("silent-1", "failed")]
    assert queue.launch("--on", "ssh:good")[0]["name"] == "good-2"


def test_a_launch_that_is_interrupted_leaves_what_can_be_stopped(queue: LaunchQueue, hosts: ssh_server.SshServer):
    """By Ctrl-C, which names what may run, and by a signal that nothing can answer."""
    for number, way in enumerate((signal.SIGINT, signal.SIGKILL)):
        words = [
            CULMEN,
            "queue",
            "launch",
            queue.url,
            "--on",
            "ssh:good",
            "--on",
            "ssh:silent",
            "--name",
            f"half{number}",
        ]
        hosts.wait_for_answers(60)
        launching = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        wait_until(lambda name=f"half{number}-2": name in queue.names())
        launching.send_signal(way)
        if way == signal.SIGKILL:
            launching.wait()
            for process in processes("silent"):
                os.kill(process, signal.SIGTERM)
        _, errors = launching.communicate(timeout=60)
        hosts.wait_for_answers(1)
        assert launching.returncode == (130 if way == signal.SIGINT else -way)
        if way == signal.SIGINT:
            assert "half0-1 half0-2" in errors and "culmen queue stop" in errors
        assert queue.stop(f"half{number}-1", f"half{number}-2", code=1) == ["stopped", "failed"]
        assert not any((hosts.home / ".cache/culmen/workers").iterdir())


def test_a_worker_whose_host_is_gone_ends_by_itself(
    queue: LaunchQueue, hosts: ssh_server.SshServer, monkeypatch: pytest.MonkeyPatch
):
    """A stop that does not reach the host revokes the token; the next one finds nothing left."""
    label = queue.launch("--on", "ssh:good")[0]["label"]
    process = int((hosts.home / ".cache/culmen/workers" / label / "process").read_text().split()[0])
    with monkeypatch.context() as patch:
        patch.setenv("PATH", hosts.offline)
        assert queue.stop(code=1) == ["failed"]
        assert queue.worker("good-1")["revoked"] and queue.worker("good-1")["place"] == "ssh:good"
        wait_until(lambda: not runs(process))
    assert queue.stop() == ["stopped"] and queue.stop() == []
    label = queue.launch("--on", "ssh:good")[0]["label"]  # the same name, a new worker
    process = int((hosts.home / ".cache/culmen/workers" / label / "process").read_text().split()[0])
    os.kill(process, signal.SIGKILL)
    assert queue.stop() == ["stopped"]


def test_mistakes_are_named(queue: LaunchQueue, hosts: ssh_server.SshServer):
    def error(*words: str) -> str:
        return str(queue.call(*words, code=2)["error"])

    queue.call("token", "byhand")
    assert "was not launched from here" in error("stop", "byhand")
    assert "no worker 'nobody'" in error("stop", "nobody")
    for place in ("good", "ssh:", "nothing:x", "ssh:-oProxyCommand=x"):
        assert "--on" in error("launch", "--on", place)
    assert "has no setting 'cpu'" in error("launch", "--on", "ssh:good", "--set", "cpu=1")
    assert "cannot be a name" in error("launch", "--on", "ssh:good", "--name", "../x")
    assert "write NAME=VALUE" in error("launch", "--on", "ssh:good", "--set", "cpu")
    assert "0 workers" in error("launch", "--on", "ssh:good", "--count", "0")
    assert queue.stop() == []
