"""The fork-server's loop with real children: the report of each end; nothing outlives it."""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from culmen.jail import kernel, procfs
from culmen.jail.confine import ForkRequest, JailPolicy
from culmen.jail.zygote import Zygote
from tests.evaluate.conftest import wait_until

pytestmark = pytest.mark.skipif(not kernel.LINUX, reason="Linux alone")
Body = Callable[[ForkRequest, socket.socket], None]


class Server:
    """A fork-server in a process of its own, whose children run `body`."""

    def __init__(self, scratch: Path, body: Body) -> None:
        self.scratch = scratch
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(60)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()  # as one that a jail starts, and its children: time is divided by sessions
                self.control.close()
                kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
                Zygote(theirs, JailPolicy("limits", scratch=str(scratch)), _child_of(body)).serve()
            finally:
                os._exit(0)
        theirs.close()

    def start(self, number: int = 1, seconds: float = 60.0, memory_mb: int = 4096) -> socket.socket:
        """Fork a child; the result is this end of its channel."""
        job = {
            "id": number,
            "slot": 0,
            "seed": 1,
            "seconds": seconds,
            "memory_mb": memory_mb,
            "processes": 9,
            "files_mb": 1,
            "work": str(self.scratch / str(number)),
        }
        here, there = socket.socketpair()
        here.settimeout(60)
        with there, open(os.devnull, "w") as log:
            message = json.dumps({"op": "run", "job": job}).encode()
            socket.send_fds(self.control, [message], [there.fileno(), log.fileno()])
        return here

    def kill(self, number: int) -> None:
        self.control.send(json.dumps({"op": "kill", "id": number}).encode())

    def report(self) -> dict[str, Any]:
        return json.loads(self.control.recv(1 << 16))

    def end(self) -> None:
        self.control.close()
        os.waitpid(self.pid, 0)


def _child_of(body: Body) -> Callable[..., NoReturn]:
    def child(_policy: JailPolicy, job: ForkRequest, channel: int, *_others: int) -> NoReturn:
        os.setsid()
        body(job, socket.socket(fileno=channel))
        os._exit(0)

    return child


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Body], Server]]:
    """Make a server; it has ended after the test, or is ended."""
    made: list[Server] = []

    def make(body: Body) -> Server:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        made.append(Server(scratch, body))
        return made[-1]

    yield make
    for server in made:
        if server.control.fileno() >= 0:
            server.end()


def wait_for_ever(_job: ForkRequest, channel: socket.socket) -> None:
    channel.send(str(os.getpid()).encode())
    while True:
        signal.pause()


def gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_a_child_that_ends_by_itself_is_reported_with_its_code_and_its_folder_goes(serve) -> None:
    def body(job: ForkRequest, channel: socket.socket) -> None:
        channel.send(oct(os.stat(job.work).st_mode & 0o777).encode())
        sum(range(3_000_000))
        os._exit(3)

    server = serve(body)
    with server.start(7) as channel:
        assert channel.recv(10) == b"0o700"
        said = server.report()
    assert (said["id"], said["end"], said["code"]) == (7, "exit", 3)
    assert said["cpu"] > 0 and said["peak_kb"] > 1000
    assert wait_until(lambda: not (server.scratch / "7").exists())


@pytest.mark.parametrize("end", ["timeout", "killed"])
def test_a_child_that_does_not_end_is_ended(serve, end: str) -> None:
    server = serve(wait_for_ever)
    with server.start(1, seconds=0.05 if end == "timeout" else 60.0) as channel:
        pid = int(channel.recv(10) or 0)
        if end == "killed":
            server.kill(1)
        said = server.report()
    assert (said["end"], said["code"]) == (end, -signal.SIGKILL) and gone(pid)


def test_one_is_killed_and_its_neighbour_goes_on(serve) -> None:
    server = serve(wait_for_ever)
    with server.start(1) as first, server.start(2) as second:
        one, other = int(first.recv(10)), int(second.recv(10))
        server.kill(1)
        assert server.report()["id"] == 1 and gone(one) and not gone(other)
        server.kill(3)  # nobody
        server.kill(2)
        assert server.report()["id"] == 2


def test_a_child_above_its_memory_is_ended_for_that(serve) -> None:
    def body(job: ForkRequest, channel: socket.socket) -> None:
        if job.id == 1:
            hoard = bytearray(os.urandom(1 << 20)) * 400
            channel.send(str(len(hoard)).encode())
        wait_for_ever(job, channel)

    # a child begins with the memory of this process, which is that of all tests before
    (own,) = (
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if "VmRSS" in line
    )
    limit = own // 1024 + 150
    server = serve(body)
    with server.start(1, memory_mb=limit), server.start(2, memory_mb=limit):
        said = server.report()
        assert (said["id"], said["end"], said["code"]) == (1, "memory", -signal.SIGKILL)


def take_together(job: ForkRequest, _channel: socket.socket, taken: mmap.mmap) -> None:
    """Sixty children that take memory at once and note how much, a megabyte at a time.

    They give none back.
    """
    place = 0
    while place < 59 and os.fork():
        place += 1
    count, block = 0, mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    while count < 1 << 30:
        block[count : count + (1 << 20)] = b"x" * (1 << 20)
        count += 1 << 20
        struct.pack_into("Q", taken, 8 * place, count)
    time.sleep(600)


def test_sixty_children_together_take_hardly_more_than_the_limit(serve) -> None:
    taken, limit = mmap.mmap(-1, 8 * 60), 1024
    server = serve(lambda job, channel: take_together(job, channel, taken))
    with server.start(1, memory_mb=limit):
        assert server.report()["end"] == "memory"
    total = sum(struct.unpack("60Q", taken[:])) >> 20
    assert 0 < total <= 1.2 * limit, f"{total} MB"  # 1.1 where nothing else runs


def leave_a_daemon(job: ForkRequest, channel: socket.socket) -> None:
    """Number 9 ends at once, before the server's next look at its children."""
    left, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            channel.send(str(os.getpid()).encode())
            os.write(tell, b"!")
            time.sleep(600)
        os._exit(0)
    os.read(left, 1)
    if job.id != 9:
        channel.recv(1)


def test_what_a_child_leaves_behind_ends_with_it(serve) -> None:
    server = serve(leave_a_daemon)
    with server.start(9) as channel:
        daemon = int(channel.recv(10))
        assert server.report()["end"] == "exit"
    assert gone(daemon)


def test_everything_ends_when_the_orchestrator_goes(serve) -> None:
    server = serve(
        lambda job, channel: (leave_a_daemon if job.id == 1 else wait_for_ever)(job, channel)
    )
    with server.start(1) as first, server.start(2) as second:
        pids = [int(first.recv(10)), int(second.recv(10)), *procfs.child_pids(server.pid)]
        assert len(pids) >= 4
        server.end()
        assert all(gone(pid) for pid in pids)
    assert wait_until(lambda: not server.scratch.exists())


def test_a_folder_that_cannot_be_made_is_a_failure_of_the_jail(serve) -> None:
    server = serve(wait_for_ever)
    (server.scratch / "1").write_text("in the way")
    server.start(1).close()
    said = server.report()
    assert (said["id"], said["end"]) == (1, "jail_error") and "exists" in said["text"]
