"""Children without Linux: a process for each evaluation, with the limits of POSIX.

Weak: a child runs as the user. Its time and memory are watched from here, and its whole process
group is killed; a process that leaves the group survives. On macOS `sandbox-exec` also closes
network, other processes and files.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import NoReturn, Unpack

from culmen.jail import procfs, runner
from culmen.jail.bubblewrap import HIDDEN, PACKAGE
from culmen.jail.confine import (
    REMOVE,
    ChildLimits,
    ForkRequest,
    JailPolicy,
    arrange_descriptors,
    set_limits,
    set_surroundings,
)
from culmen.jail.fork_server import ENVIRONMENT, ChildExit, Jail, JailFailed

LEVELS = ("seatbelt", "portable")
_CODE = "import sys; sys.path.append({root!r}); from culmen.jail.portable import main; main()"
# seconds between checks of a child's end, and of its memory
_PAUSE_SECONDS, _MEMORY_CHECK_SECONDS = 0.02, 0.5
_UNIT = 1 if sys.platform != "darwin" else 1024  # bytes on macOS, kilobytes elsewhere
# The language is that of sandbox-exec(1); later rules win.
_PROFILE = (
    "(version 1)(deny default)\n"
    "(allow process-fork)(allow process-exec)(allow sysctl-read)(allow mach-lookup)(allow signal "
    "(target same-sandbox))\n"
    '(allow file-read*)(deny file-read* (subpath "/Users") (subpath "/private/tmp") '
    '(subpath "/private/var/folders"))\n'
    "(allow file-read-metadata)\n"
    "{readable}\n"
    "(deny file-read* (subpath {hidden}))\n"
    "(allow file-read* file-write* (subpath {work}))\n"
    '(allow file-write* (literal "/dev/null") (literal "/dev/tty"))\n'
)
Begin = Callable[[ForkRequest, int, int, int], int]


class PortableJail(Jail):
    """Starts each child as an interpreter, or by `begin(job, channel, log, line)`.

    `begin` returns the child's process number. There is no fork-server: forking an interpreter that
    has loaded a system's own libraries is not safe on every system.
    """

    def __init__(
        self,
        level: str = "portable",
        packages: tuple[str, ...] = (),
        visible: tuple[str, ...] = (),
        shut: tuple[str, ...] = (),
        begin: Begin | None = None,
    ) -> None:
        super().__init__(level, packages, visible, shut, folders=begin is None)
        self.scratch = os.path.realpath(self.scratch)
        self._begin: Begin = begin or self._start_interpreter
        self._children: dict[int, int] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._started = False

    async def start(self) -> None:
        if self.level == "seatbelt" and shutil.which("sandbox-exec") is None:
            raise JailFailed("sandbox-exec exists only on macOS")
        missing = next(
            (name for name in self.packages if find_spec(name.partition(".")[0]) is None), ""
        )
        self._check_hello(
            json.dumps(
                {"error": f"ImportError: No module named '{missing}'"}
                if missing
                else {"threads": 1}
            ).encode(),
            "",
        )
        self._started = True

    @property
    def is_alive(self) -> bool:
        return self._started

    def submit(
        self,
        channel: socket.socket,
        log: int,
        line: tuple[int, ...] = (),
        **limits: Unpack[ChildLimits],
    ) -> tuple[int, asyncio.Future[ChildExit]]:
        self._count += 1
        number = self._count
        job = ForkRequest(id=number, work=os.path.join(self.scratch, str(number)), **limits)
        future: asyncio.Future[ChildExit] = asyncio.get_running_loop().create_future()
        try:
            pid = self._begin(job, channel.fileno(), log, line[0] if line else -1)
        except OSError as error:
            future.set_result(ChildExit("jail_error", text=str(error)))
            return number, future
        self._ends[number], self._children[number] = future, pid
        watch = asyncio.create_task(self._watch_child(pid, job, future))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return number, future

    def kill(self, number: int) -> None:
        if number in self._children:
            _kill_group(self._children[number])

    def drop(self) -> None:
        self._started = False
        for pid in self._children.values():
            _kill_group(pid)

    async def close(self) -> None:
        self.drop()
        if self._watches:
            await asyncio.wait(set(self._watches))
        await super().close()

    def _start_interpreter(self, job: ForkRequest, channel: int, log: int, line: int) -> int:
        os.mkdir(job.work, 0o700)
        words = [
            sys.executable,
            "-s",
            "-P",
            "-c",
            _CODE.format(root=str(PACKAGE.parent)),
            json.dumps(asdict(job)),
        ]
        words += [str(fd) for fd in (channel, log, line)]
        if self.level == "seatbelt":
            words = ["sandbox-exec", "-p", sandbox_profile(job.work, self.visible), *words]
        kept = [fd for fd in (channel, log, line) if fd >= 0]
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**self.environment, "HOME": job.work, "TMPDIR": job.work},
            pass_fds=kept,
            start_new_session=True,
            cwd="/",
        )
        process.returncode = 0  # `_watch_child` waits for it
        return process.pid

    async def _watch_child(
        self, pid: int, job: ForkRequest, future: asyncio.Future[ChildExit]
    ) -> None:
        """Wait until the child has ended, by itself or at its time or memory limit."""
        end, begun, looked = "exit", time.monotonic(), time.monotonic()
        while (ended := os.wait4(pid, os.WNOHANG))[0] == 0:
            now = time.monotonic()
            if now - begun >= job.seconds:
                end = "timeout"
                _kill_group(pid)
            elif now - looked >= _MEMORY_CHECK_SECONDS:
                used = await asyncio.to_thread(procfs.group_kb, pid)
                looked = time.monotonic()
                if used > job.memory_mb * 1024:
                    end = "memory"
                    _kill_group(pid)
            await asyncio.sleep(_PAUSE_SECONDS if now - begun > 1 else _PAUSE_SECONDS / 10)
        _kill_group(pid)  # processes left in its group
        self._children.pop(job.id, None)
        self._ends.pop(job.id, None)
        code = os.waitstatus_to_exitcode(ended[1])
        usage = ended[2]
        if not future.done():
            word = end if code == -signal.SIGKILL else "exit"
            future.set_result(
                ChildExit(word, code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss // _UNIT)
            )
        if os.path.isdir(job.work):
            await asyncio.to_thread(subprocess.run, [*REMOVE, job.work], check=False)


def sandbox_profile(work: str, visible: tuple[str, ...]) -> str:
    """The sandbox-exec profile of a child.

    It may read the system and Python and write to its work folder; no network.
    """
    from culmen.jail.bubblewrap import python_folders

    readable = "\n".join(
        f"(allow file-read* (subpath {_quoted_path(path)}))"
        for path in (*python_folders(), *visible)
    )
    return _PROFILE.format(
        readable=readable, hidden=_quoted_path(HIDDEN), work=_quoted_path(os.path.realpath(work))
    )


def _quoted_path(path: str) -> str:
    return '"' + os.path.realpath(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def main() -> NoReturn:
    """Entry point of a child.

    argv = the job as JSON, and the descriptors of channel, log and line.
    """
    job = ForkRequest(**json.loads(sys.argv[1]))
    arrange_descriptors(*(int(word) for word in sys.argv[2:5]))
    sys.argv = sys.argv[:1]
    policy = JailPolicy("portable", baseline=procfs.data_bytes(), environment=ENVIRONMENT)
    set_limits(policy, job)
    set_surroundings(policy, job)
    runner.serve_request(job.work)
