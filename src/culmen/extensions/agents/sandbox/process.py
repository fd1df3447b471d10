"""A running sandbox: its pipes, its limits, and the end of all its processes together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from culmen.core.errors import UserError
from culmen.extensions.agents.adapters import (
    Adapter,
    AgentJob,
    Parting,
    Pipes,
    Plan,
    ProgramDialogue,
    ProgramEvent,
)
from culmen.extensions.agents.sandbox import safe
from culmen.extensions.agents.sandbox.confinement import (
    MARK,
    Confinement,
    agent_environment,
    confined_command,
    port_of,
    prepare_folders,
)
from culmen.extensions.agents.sandbox.intake import printable_text
from culmen.extensions.agents.sandbox.settings import WORD_CHARS, SandboxSettings
from culmen.jail import procfs

LINE = 8 << 20  # bytes in the buffer of a pipe's reader


class SandboxProcess:
    """A sandbox started by `start`; the kernel ends all of it when this process dies.

    `folders` are those outside of the session's own that count as its disk space.
    """

    folders: tuple[Path, ...] = ()

    def __init__(self, process: asyncio.subprocess.Process, init: int, mark: str) -> None:
        self._process, self._init, self._mark = process, init, mark
        self._pidfd, self._ending = -1, asyncio.Lock()
        if init:
            with contextlib.suppress(OSError):
                self._pidfd = os.pidfd_open(init)

    @classmethod
    async def start(
        cls,
        line: list[str],
        env: Mapping[str, str],
        *,
        stdin: bool = False,
        cwd: Path | None = None,
    ) -> SandboxProcess:
        """Start a command line made by `confined_command`.

        `cwd` is the folder for a command that is not confined. Raises OSError. If the caller is
        cancelled, the started process is ended first: it has no other owner yet, and asyncio itself
        would wait for ever for a process whose children keep its pipes open.
        """
        starting = asyncio.ensure_future(cls._launch(line, env, stdin, cwd))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await (await starting).end()
            raise

    @classmethod
    async def _launch(
        cls, line: list[str], env: Mapping[str, str], stdin: bool, cwd: Path | None
    ) -> SandboxProcess:
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
        init = await asyncio.to_thread(_read_first_pid, reader) if jailed else 0
        return cls(process, init, env[MARK])

    @property
    def pid(self) -> int:
        """Id of the outermost process."""
        return self._process.pid

    @property
    def pipes(self) -> Pipes:
        """The pipes for an adapter."""
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        return Pipes(process.stdout, process.stderr, process.wait, process.stdin)

    @property
    def has_ended(self) -> bool:
        """True if the started process has ended."""
        return self._process.returncode is not None

    async def end(self) -> None:
        """End every process of the sandbox, and return when they are gone.

        A second call does nothing.
        """
        async with self._ending:
            if self._pidfd >= 0:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            if not self.has_ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            if self._pidfd >= 0:
                await asyncio.to_thread(_wait_for_process_end, self._pidfd)
                os.close(self._pidfd)
                self._pidfd = -1
            await asyncio.to_thread(end_strays, self._mark)
            if self._process.stdin is not None:
                self._process.stdin.close()


def end_strays(mark: str) -> None:
    """End the rest of a session: of a driver that was killed, or of an unconfined one."""
    for _ in range(200):
        strays = procfs.marked_pids(f"{MARK}={mark}\0")
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _read_first_pid(reader: int) -> int:
    """Pid of the sandbox's first process, as bubblewrap reports it; 0 if it could not start."""
    with os.fdopen(reader, "rb") as file:
        data = file.read(4096)
    try:
        return int(json.loads(data)["child-pid"])
    except (ValueError, KeyError):
        return 0


def _wait_for_process_end(pidfd: int) -> None:
    import select

    poll = select.poll()
    # readable when the process has ended; the first process of a sandbox ends last
    poll.register(pidfd, select.POLLIN)
    poll.poll(10_000)  # milliseconds


# Limits that no system call enforces for a whole session: memory and processes of a tree, space of
# a few folders.

_LOOK, _LOOK_AT_DISK = 0.5, 10.0  # seconds between measurements


async def watch_limits(
    pid: int,
    folders: Iterable[Path],
    settings: SandboxSettings,
    going: Callable[[], bool],
    over: Callable[[], bool],
) -> str:
    """Return when a limit is broken: memory | processes | disk.

    Returns "stopped" when the run no longer goes on, and "" when the process has ended by itself.
    """
    folders, next_disk = tuple(folders), time.monotonic()
    while not over():
        if not going():
            return "stopped"
        limit_kb = settings.memory_mb << 10
        if await asyncio.to_thread(procfs.descendants_kb, pid, limit_kb) > limit_kb:
            return "memory"
        if await asyncio.to_thread(count_descendants, pid, settings.processes) > settings.processes:
            return "processes"
        if time.monotonic() >= next_disk:
            if await asyncio.to_thread(disk_bytes, folders) > settings.disk_mb << 20:
                return "disk"
            next_disk = time.monotonic() + _LOOK_AT_DISK
        await asyncio.sleep(_LOOK)
    return ""


def count_descendants(pid: int, limit: int) -> int:
    """Number of descendants of `pid`; counting stops just above `limit`."""
    count, queue = 0, [pid]
    while queue and count <= limit:
        children = procfs.child_pids(queue.pop())
        count += len(children)
        queue += children
    return count


def disk_bytes(folders: Iterable[Path]) -> float:
    """Bytes on disk below these folders; infinity if there are too many files to count.

    Links are not followed.
    """
    total, entries = 0, 0
    for folder in folders:
        queue = [str(folder)]
        while queue:
            try:
                with os.scandir(queue.pop()) as directory:
                    for entry in directory:
                        entries += 1
                        if entry.is_dir(follow_symlinks=False):
                            queue.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
                        # files after which the disk limit counts as broken, whatever their size
                        if entries > 500_000:
                            return float("inf")
            except OSError:  # removed in the meantime, or not readable
                continue
    return total


# The program behind a session: started in its sandbox, read, nudged, ended.


class ProgramHost:
    """Host of one adapter's program.

    `on_end` is called when the program has ended; `going` returns True while the run goes on.
    """

    def __init__(
        self,
        confinement: Confinement,
        adapter: Adapter,
        job: AgentJob,
        transcript: Path,
        on_end: Callable[[], None],
        going: Callable[[], bool],
    ) -> None:
        self._confinement, self._adapter, self._job, self._file = (
            confinement,
            adapter,
            job,
            transcript,
        )
        self._on_end, self._going = on_end, going
        self._running: SandboxProcess | None = None
        self._dialogue: ProgramDialogue | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._began = self.life = time.monotonic()
        self._claims: dict[str, float] = {}
        self._again = False
        self.parting: Parting | None = None
        self.cause = ""
        self.failure: BaseException | None = None

    async def start(self) -> None:
        """Start the program.

        Raises UserError if it is not installed, OSError if it cannot be started.
        """
        plan = self._adapter.plan(self._job)
        visible = tuple(dict.fromkeys((*self._confinement.visible, *plan.visible)))
        confinement = self._confinement = replace(
            self._confinement, visible=visible, network=plan.network
        )
        prepare_folders(confinement)
        for path, text in plan.files.items():
            home = confinement.layout.home_folder(confinement.agent)
            await asyncio.to_thread(
                safe.write_regular_file, home, path, text.encode(), confinement.owner
            )
        self._running = running = await self._launch(plan)
        self._dialogue = self._adapter.open_dialogue(running.pipes, self._job, self._on_event)
        self.parting, self.life = None, time.monotonic()
        self._tasks = [
            asyncio.create_task(self._run_dialogue(running)),
            asyncio.create_task(self._enforce_limits(running)),
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    async def _launch(self, plan: Plan) -> SandboxProcess:
        """Start the plan's command in the confinement."""
        confinement = self._confinement
        line = confined_command(confinement, plan.argv, port_of(self._job.base_url))
        variables = {**self._job.variables, **plan.environment}
        env = agent_environment(confinement, variables, plan.path)
        cwd = None if confinement.method else Path(confinement.tree)
        return await SandboxProcess.start(line, env, stdin=plan.stdin, cwd=cwd)

    def _watched_folders(self) -> list[Path]:
        """The folders that count as the session's disk space."""
        return [self._confinement.layout.work_folder(self._confinement.agent)]

    @property
    def seconds(self) -> float:
        """Seconds since the first start."""
        return time.monotonic() - self._began

    @property
    def has_ended(self) -> bool:
        """True if the program has ended, by itself or not."""
        return self.parting is not None and not self._again

    @property
    def claimed_usage(self) -> dict[str, float]:
        """Usage by the program's own count, over all its processes."""
        last = self.parting.claimed if self.parting else {}
        return {
            name: self._claims.get(name, 0.0) + last.get(name, 0.0)
            for name in {**self._claims, **last}
        }

    async def nudge(self, text: str) -> bool:
        """Send a message in the same session, by a restart if the program has no other way.

        Return False if that is not possible.
        """
        if self.has_ended or self._dialogue is None:
            return False
        self.life = time.monotonic()
        if self._adapter.nudges and await self._dialogue.interrupt_with(text):
            return True
        if not self._adapter.resumes or not self._dialogue.session:
            return False
        self._again = True
        try:
            await self._stop_process()
            self._claims = self.claimed_usage
            self._job = replace(
                self._job, resume=self._dialogue.session, prompt=text, claimed=self._claims
            )
            await self.start()
        except (UserError, OSError) as error:
            self.parting = Parting("crashed", why=str(error))
        finally:
            self._again = False
        if self.has_ended:
            self._on_end()
        return not self.has_ended

    async def end(self, cause: str = "") -> None:
        """End every process; `cause` is the reason if the program has not ended by itself."""
        if not self.has_ended:
            self.cause = self.cause or cause
        await self._stop_process()
        self._on_end()

    async def _stop_process(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.end()
        tasks, self._tasks = (
            [task for task in self._tasks if task is not asyncio.current_task()],
            [],
        )
        if tasks:
            # seconds for an adapter to finish reading after its program has ended
            await asyncio.wait(tasks[:1], timeout=2.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.parting is None:
            self.parting = Parting("crashed", why=self.cause)

    async def _run_dialogue(self, running: SandboxProcess) -> None:
        assert self._dialogue is not None
        parting = await self._dialogue.run()
        if self._running is running:  # the program has ended by itself
            await asyncio.shield(running.end())
        self.parting = self.parting or parting
        self._write_event(ProgramEvent("life", f"ended: {parting.ended} {parting.why}"), force=True)
        self._on_end()

    async def _enforce_limits(self, running: SandboxProcess) -> None:
        folders = await asyncio.to_thread(self._watched_folders)
        cause = await watch_limits(
            running.pid,
            folders,
            self._confinement.settings,
            self._going,
            lambda: self.has_ended or running.has_ended,
        )
        if cause:
            self.cause = cause
            await self.end(cause)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Keep the error of a task: a bug in culmen must not look like a silent agent."""
        if not task.cancelled() and task.exception() is not None:
            self.failure = self.failure or task.exception()
            self._on_end()

    def _on_event(self, sign: ProgramEvent) -> None:
        if sign.kind != "trouble":
            self.life = time.monotonic()
        self._write_event(sign)

    def _write_event(self, sign: ProgramEvent, force: bool = False) -> None:
        if sign.kind == "life" and not force:
            return
        row = {
            "seconds": round(self.seconds, 3),
            "kind": sign.kind,
            "text": printable_text(sign.text, WORD_CHARS),
        }
        # a full disk costs a line of the transcript, not the session
        with contextlib.suppress(OSError):
            # bytes of a transcript; later events are not written
            if not self._file.exists() or self._file.stat().st_size < (16 << 20):
                with self._file.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
