"""A tree of processes as the fork-server sees it.

Memory that is shared, copied and new, the processes stopped for a look, and
what weight many have together.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from culmen.jail import kernel, share
from culmen.jail.share import hold_share, restore_share
from culmen.jail.tree import TreeWatch
from tests.evaluate.conftest import wait_until

pytestmark = pytest.mark.skipif(not kernel.LINUX, reason="Linux alone")
MB, PLENTY = 1 << 20, 1 << 40
Start = Callable[..., tuple[int, socket.socket]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Fork a process that runs `body` with one end of a channel.

    Its whole group ends after the test.
    """
    made: list[tuple[int, socket.socket]] = []

    def fork(body: Callable[[socket.socket], None]) -> tuple[int, socket.socket]:
        here, there = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                here.close()
                body(there)
            finally:
                os._exit(0)
        there.close()
        here.settimeout(60)
        made.append((pid, here))
        return pid, here

    yield fork
    for pid, here in made:
        here.close()
        for each in (pid, *TreeWatch(pid).look(PLENTY).processes):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        os.waitpid(pid, 0)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def share_and_copy(channel: socket.socket) -> None:
    """Sixty megabytes in one process, then in two, then written by the second."""
    block = mmap.mmap(-1, 60 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[:] = b"x" * len(block)
    if os.fork():
        signal.pause()
    channel.send(b"2")
    channel.recv(1)
    block[:] = b"y" * len(block)
    channel.send(b"3")
    signal.pause()


def exact_kb(pids: Iterable[int]) -> int:
    """Their memory by the kernel's account, shared parts divided among those that have them."""
    rolls = [Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids]
    return sum(int(line.split()[1]) for lines in rolls for line in lines if line.startswith("Pss:"))


def test_shared_memory_counts_once_and_copies_of_it_are_seen_without_reading_shares(
    start: Start,
) -> None:
    pid, channel = start(share_and_copy)
    assert channel.recv(1) == b"2"
    watch = TreeWatch(pid)
    rough, both = watch.look(PLENTY)
    exact = exact_kb(both)
    limit = exact + 20 * 1024
    assert len(both) == 2 and rough > limit + 20 * 1024
    assert exact <= watch.look(limit).kilobytes <= limit
    channel.send(b"!")
    assert channel.recv(1) == b"3"
    assert watch.look(PLENTY).kilobytes >= exact_kb(both) >= exact + 58 * 1024


def test_processes_are_left_stopped_above_the_limit_alone(start: Start) -> None:
    pid, channel = start(share_and_copy)
    assert channel.recv(1) == b"2"
    watch = TreeWatch(pid)
    both = watch.look(PLENTY).processes
    exact = exact_kb(both)
    assert watch.look(exact + 20 * 1024).kilobytes <= exact + 20 * 1024
    assert wait_until(lambda: "T" not in {state(each) for each in both})
    assert watch.look(exact - 20 * 1024).kilobytes > exact - 20 * 1024
    assert wait_until(lambda: {state(each) for each in both} == {"T"})


def compute_together(channel: socket.socket) -> None:
    """Eight processes that compute, half of them in sessions of their own."""
    for place in range(8):
        if os.fork() == 0:
            if place % 2:
                os.setsid()
            channel.send(b"!")
            while True:
                pass
    signal.pause()


USUAL = os.getpriority(os.PRIO_PROCESS, 0)  # tests may run under nice


def weights(pids: list[int]) -> tuple[float, float]:
    """Weights in units of one usual process: of these processes, and of their groups.

    The groups are those of their sessions (1.0 without groups).
    """
    groups: dict[str, float] = {}
    for pid in pids:
        with suppress(OSError, ValueError):
            name, _, nice = Path(f"/proc/{pid}/autogroup").read_text().split()
            groups[name] = 1.25 ** -int(nice)
    return sum(1.25 ** (USUAL - os.getpriority(os.PRIO_PROCESS, pid)) for pid in pids), sum(
        groups.values()
    ) or 1.0


def test_many_that_compute_weigh_as_one_and_get_their_weight_back(start: Start) -> None:
    pid, channel = start(compute_together)
    while len(channel.recv(8, socket.MSG_PEEK)) < 8:
        pass
    assert wait_until(lambda: state(pid) == "S")  # it has come to its pause
    busy = list(TreeWatch(pid).look(PLENTY).processes)[1:]
    assert len(busy) == 8 and weights(busy)[0] == 8

    def held() -> bool:  # one that is on its way to compute is found by the next look
        assert hold_share(TreeWatch(pid).look(PLENTY).processes, 1)
        return max(weights(busy)) <= 1.1

    assert wait_until(held)
    assert os.getpriority(os.PRIO_PROCESS, pid) == USUAL  # it waits
    assert not hold_share({busy[0]: 1}, 1)
    if os.geteuid() == 0:
        restore_share(busy)
        assert weights(busy)[0] == 8


def test_a_thread_that_is_in_no_group_of_the_kernels_has_no_nice_value_of_one() -> None:
    """The file is empty for a thread that never left the session the machine began with."""
    outside = [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/autogroup")
        if read_text(each) == ""
    ]
    if not outside:
        pytest.skip("every process here is in a group, or the kernel has none")
    threads = [share._Thread(pid, str(pid).encode(), 0, True) for pid in (outside[0], os.getpid())]
    assert set(share._read_groups(threads)) <= {os.getpid()}


def read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return None
