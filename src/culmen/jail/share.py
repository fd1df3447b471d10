"""Processor time: a candidate of many processes or threads gets one share of it.

The kernel divides processor time among threads, or first among sessions where it groups these by
themselves (sched(7), "The autogroup feature"). A candidate that starts sixty would get sixty
shares. Their weight is lowered (the nice value raised) until together they have the candidate's.
Idle time is theirs all the same.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable
from typing import NamedTuple

_STEP = 1.25  # one nice value less is this much more weight
_LOWEST = 19
_USUAL = os.getpriority(os.PRIO_PROCESS, 0)  # of this process as it was started, and of candidates
_WATCHER = max(-20, _USUAL - 10)
_SLACK = 1.1


class _Thread(NamedTuple):
    """A thread; one that is busy runs or waits for a processor."""

    number: int
    session: bytes
    nice: int
    is_busy: bool


def hold_share(processes: dict[int, int], shares: float) -> bool:
    """Hold processes, given with their numbers of threads, to the weight of `shares` threads.

    True if more than that wanted to run.
    """
    if sum(processes.values()) <= shares:
        return False
    busy = [each for pid in processes for each in _threads(pid) if each.is_busy]
    more = _steps_above((each.nice - _USUAL for each in busy), shares)
    for thread in busy if more else ():
        with contextlib.suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, thread.number, min(_LOWEST, thread.nice + more))
    groups = _read_groups(busy)
    above = _steps_above(groups.values(), 1.0) if len(groups) > 1 else 0
    for number, value in groups.items() if above else ():
        _write_group(number, min(_LOWEST, value + above))
    return more + above > 0


def raise_priority() -> None:
    """Let this process run before candidates, whom it watches; root alone may do so."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _WATCHER)
        _write_group(os.getpid(), _WATCHER)


def usual_priority() -> None:
    """Give a child of such a process the usual priority; it makes a session of its own."""
    if os.getpriority(os.PRIO_PROCESS, 0) == _WATCHER:
        os.setpriority(os.PRIO_PROCESS, 0, _USUAL)


def restore_share(processes: Iterable[int]) -> None:
    """Give processes their weight back, so that they end soon once killed; root alone may do so."""
    threads = [each for pid in processes for each in _threads(pid)]
    for thread in threads:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.number, _USUAL)
    for number, value in _read_groups(threads).items():
        if value:
            _write_group(number, 0)


def _steps_above(values: Iterable[int], shares: float) -> int:
    """Steps by which all nice values must rise for a total weight of at most `shares`."""
    weight = sum(_STEP**-value for value in values) / shares
    return math.ceil(math.log(weight, _STEP)) if weight > _SLACK else 0


def _threads(pid: int) -> list[_Thread]:
    found: list[_Thread] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{name}/stat", "rb", 0) as file:
                fields = file.read().rpartition(b")")[2].split()
            found.append(_Thread(int(name), fields[3], int(fields[16]), fields[0] == b"R"))
    return found


def _read_groups(threads: list[_Thread]) -> dict[int, int]:
    """The nice values of the groups of these threads' sessions, by one thread of each.

    None where the kernel has no such groups: the file is missing there, or empty.
    """
    values: dict[int, int] = {}
    for number in {each.session: each.number for each in threads}.values():
        with contextlib.suppress(OSError), open(f"/proc/{number}/autogroup", "rb", 0) as file:
            text = file.read()
            if b"nice" in text:
                values[number] = int(text.split()[-1])
    return values


def _write_group(number: int, value: int) -> None:
    """Set the nice value of a thread's group.

    The kernel takes ten changes a second from an ordinary user; the next look tries again.
    """
    with contextlib.suppress(OSError), open(f"/proc/{number}/autogroup", "wb", 0) as file:
        file.write(str(value).encode())
