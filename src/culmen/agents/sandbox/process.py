"""A sandbox that runs: its pipes, and the end of every process in it as one thing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from culmen.agents.adapters.base import Pipes
from culmen.agents.sandbox.sandbox import MARK
from culmen.evaluate.jail import procfs

LINE = 8 << 20  # bytes that a pipe's reader holds
_PATIENCE = 10.0


class Running:
    """Started by `start`. The kernel ends all of it when this process dies."""

    def __init__(self, process: asyncio.subprocess.Process, init: int, mark: str) -> None:
        self._process, self._init, self._mark = process, init, mark
        self._pidfd, self._ending = -1, asyncio.Lock()
        if init:
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(init)

    @classmethod
    async def start(
        cls, line: list[str], env: Mapping[str, str], *, stdin: bool = False, cwd: Path | None = None
    ) -> Running:
        """Start a command line made by `sandbox.command`; `cwd` is for one that is not confined. Raises OSError."""
        jailed = cwd is None
        reader, writer = os.pipe() if jailed else (-1, -1)
        try:
            process = await asyncio.create_subprocess_exec(
                *([line[0], "--info-fd", str(writer), *line[1:]] if jailed else line),
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(env),
                cwd=cwd or "/",
                pass_fds=(writer,) if jailed else (),
                start_new_session=True,
                limit=LINE,
            )
        finally:
            if jailed:
                os.close(writer)
        init = await asyncio.to_thread(_init, reader) if jailed else 0
        return cls(process, init, env[MARK])

    @property
    def pid(self) -> int:
        """The outermost process."""
        return self._process.pid

    @property
    def pipes(self) -> Pipes:
        """For an adapter."""
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        return Pipes(process.stdout, process.stderr, process.wait, process.stdin)

    @property
    def over(self) -> bool:
        """Whether the process that was started is gone."""
        return self._process.returncode is not None

    async def end(self) -> None:
        """End every process of it, and return when they are gone. A second call does nothing."""
        async with self._ending:
            if self._pidfd >= 0:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if not self.over:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            if self._pidfd >= 0:
                await asyncio.to_thread(_gone, self._pidfd)
                os.close(self._pidfd)
                self._pidfd = -1
            await asyncio.to_thread(end_strays, self._mark)
            if self._process.stdin is not None:
                self._process.stdin.close()


def end_strays(mark: str) -> None:
    """End what is left of a session: of a driver that was killed, or of one that is not confined."""
    for _ in range(200):
        strays = procfs.marked(f"{MARK}={mark}\0")
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _init(reader: int) -> int:
    """The process that all others of the sandbox descend from, as bubblewrap tells it; 0 if it could not start."""
    with os.fdopen(reader, "rb") as file:
        data = file.read(4096)
    try:
        return int(json.loads(data)["child-pid"])
    except (ValueError, KeyError):
        return 0


def _gone(pidfd: int) -> None:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)  # readable when the process has ended, which the first one does last
    poll.poll(_PATIENCE * 1000)
