"""The orchestrator's side of the fork-server (zygote.py): start, requests, results.

Also the orchestrator's ends of a child's channel and of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Unpack

import msgspec

from culmen.core.errors import TaskError
from culmen.core.json import JsonObject
from culmen.jail import bubblewrap, procfs, wire
from culmen.jail.confine import REMOVE, WORK, ChildLimits, JailPolicy

# a fork-server imports the task's packages, which may be large and on a cold disk
START_SECONDS = 120.0
_CODE = "import sys; sys.path.append({root!r}); from culmen.jail.zygote import main; main()"
SEARCH_PATH = f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"
"""Folders of the programs that candidates may run."""
ENVIRONMENT = {
    "PATH": SEARCH_PATH,
    "LANG": "C.UTF-8",
    "OPENSSL_CONF": "/dev/null",  # Node reads it, and may not be allowed to read its own
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
# package -> the extra of culmen that installs it
EXTRAS = {"torch": "train", "transformers": "train", "sklearn": "pools", "scipy": "tasks"}
# environment variable with the name of the fork-server that a process descends from
MARK = "CULMEN_JAIL"
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = "culmen-self"  # processes may only be in groups that have no other groups below
_CONTROLLERS = ("memory", "pids")


class JailFailed(Exception):
    """The fork-server cannot be started at this level on this machine; the text is the reason."""


class ChildExit(msgspec.Struct, frozen=True):
    """The end of a child.

    `end` is exit | timeout | memory | files | killed | jail_error | zygote_died; `code` as Popen's;
    `cpu` in seconds of processor time.
    """

    end: str
    code: int = 0
    cpu: float = 0.0
    peak_kb: int = 0
    text: str = ""


class Jail:
    """One fork-server at one level.

    Not thread-safe: it belongs to the event loop that started it. Children see the paths `visible`
    and `shut`, those submitted as `blind` only the former. Each has a folder of its own if
    `folders`. Packages are those of its `home`, as messages name it. `environment` is that of all
    processes; change it before the start.
    """

    home = "the environment that culmen runs in"
    inner = ""  # the level in force inside a container
    environment: Mapping[str, str] = ENVIRONMENT

    def __init__(
        self,
        level: str,
        packages: tuple[str, ...] = (),
        visible: tuple[str, ...] = (),
        shut: tuple[str, ...] = (),
        *,
        folders: bool = True,
    ) -> None:
        self.level, self.packages, self.visible, self.shut = (
            level,
            packages,
            (*visible, *shut),
            shut,
        )
        self._open = visible
        self.scratch = os.path.join(tempfile.gettempdir(), f"culmen-jail-{secrets.token_hex(6)}")
        if folders and level != "namespaces":
            os.mkdir(self.scratch, 0o700)
            os.chmod(self.scratch, 0o711)  # children of root have users of their own; not by umask
        self._ends: dict[int, asyncio.Future[ChildExit]] = {}
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._group: Path | None = None

    async def start(self) -> None:
        """Start the fork-server.

        Raises JailFailed if this level is not available, TaskError for a bad package.
        """
        failure = JailFailed("not tried")
        self._group = _delegated_group()
        for proc in (True, False) if self.level == "namespaces" else (True,):
            try:
                return await self._launch_server(proc)
            except JailFailed as error:
                failure = error
                self.drop()
        raise failure

    async def _launch_server(self, proc: bool) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control = ours
        python = [
            sys.executable,
            "-s",
            "-P",
            "-c",
            _CODE.format(root=str(bubblewrap.PACKAGE.parent)),
            str(theirs.fileno()),
        ]
        group = os.open(self._group, os.O_RDONLY | os.O_DIRECTORY) if self._group else -1
        line, policy = python, self._jail_policy(proc, group)
        if self.level == "namespaces":
            line = bubblewrap.bwrap_command(python, self.visible, user=os.geteuid() != 0, proc=proc)
        with theirs, tempfile.TemporaryFile() as complaints:
            try:
                self._process = self._start_process(line, complaints, (theirs.fileno(), group))
            finally:
                if group >= 0:
                    os.close(group)
            theirs.close()
            setup = {"packages": self.packages, "policy": asdict(policy)}
            setup["listable"], setup["readable"] = bubblewrap.paths_around_hidden(
                policy.readable, self.visible
            )
            try:
                await loop.sock_sendall(ours, json.dumps(setup).encode())
                async with asyncio.timeout(START_SECONDS):  # not `wait_for`: Ctrl-C goes first
                    hello = await loop.sock_recv(ours, wire.PACKET_BYTES)
            except (OSError, TimeoutError) as error:
                hello = json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()
            complaints.seek(0)
            self._check_hello(hello, complaints.read(4000).decode(errors="replace").strip())
        loop.add_reader(ours, self._on_exit_message)

    def _start_process(
        self, line: Sequence[str], complaints: IO[bytes], passed: Iterable[int]
    ) -> subprocess.Popen[bytes]:
        """A process with the descriptors `passed` (below 0: none); raises `JailFailed`."""
        try:
            return subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={**self.environment, MARK: os.path.basename(self.scratch)},
                pass_fds=[fd for fd in passed if fd >= 0],
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise JailFailed(str(error)) from None

    def _check_hello(self, hello: bytes, complaint: str) -> None:
        if not hello:
            raise JailFailed(complaint or "the fork-server ended before it was ready")
        answer: JsonObject = json.loads(hello)
        if answer.get("error", "").startswith(("ImportError", "ModuleNotFoundError")):
            extra = next(
                (extra for name, extra in EXTRAS.items() if f"'{name}'" in answer["error"]), ""
            )
            extra = extra if self.home == Jail.home else ""
            plain = (
                f"install it into {self.home} (not with pip install -e), or remove it "
                "from the evaluator's packages"
            )
            raise TaskError(
                f"a package that the task preloads cannot be imported: {answer['error']}",
                fix=f"pip install 'culmen[{extra}]'" if extra else plain,
            )
        if "error" in answer:
            raise JailFailed(" ".join(filter(None, (answer["error"], complaint))))
        if answer["threads"] > 1:
            raise TaskError(
                f"importing {', '.join(self.packages)} starts threads, which a fork cannot copy",
                fix=(
                    "remove the package that does so from the evaluator's packages; candidates "
                    "can still import it"
                ),
            )

    def _jail_policy(self, proc: bool, group: int) -> JailPolicy:
        root = os.geteuid() == 0
        readable = bubblewrap.readable_paths(self.visible)
        unshut = bubblewrap.readable_paths(self._open)
        listed, free = (
            bubblewrap.paths_around_hidden(unshut, self._open, self.shut)
            if self.shut
            else ((), unshut)
        )
        return JailPolicy(
            level=self.level,
            switch="uid" if root else "user" if self.level == "namespaces" else "",
            first_uid=20_000 + (os.getpid() % 200) * 128,
            proc=proc,
            readable=readable,
            shut=self.shut,
            spared=tuple(
                path
                for path in unshut
                if any(path.startswith(f"{folder}/") for folder in self.shut)
            ),
            unshut=free,
            listed=listed,
            search=root and (bool(self.visible) or self._needs_search()),
            scratch=self.scratch if self.level != "namespaces" else "",
            groups=group,
            environment=dict(self.environment),
        )

    def _needs_search(self) -> bool:
        """True if other users cannot read this Python, or come to their work folders.

        Bubblewrap opens the path to a folder, not the folder itself.
        """
        if self.level == "namespaces":
            return not all(map(_is_passable, bubblewrap.python_folders()))
        needed = (*bubblewrap.python_folders(), os.path.dirname(self.scratch))
        return not all(map(_is_reachable, needed))

    def submit(
        self,
        channel: socket.socket,
        log: int,
        line: tuple[int, ...] = (),
        **limits: Unpack[ChildLimits],
    ) -> tuple[int, asyncio.Future[ChildExit]]:
        """Fork a child that owns `channel`, `log` and perhaps a `line`.

        Returns its number and the future of its end.
        """
        self._count += 1
        number = self._count
        work = WORK if self.level == "namespaces" else os.path.join(self.scratch, str(number))
        future: asyncio.Future[ChildExit] = asyncio.get_running_loop().create_future()
        message = json.dumps({"op": "run", "job": {"id": number, "work": work, **limits}}).encode()
        try:
            if self._control is None:
                raise BrokenPipeError
            wire.send_descriptors(self._control, message, [channel.fileno(), log, *line])
            self._ends[number] = future
        except OSError:
            future.set_result(ChildExit("zygote_died"))
        return number, future

    def open_line(self) -> tuple[socket.socket, socket.socket]:
        """The two ends of a connection between two children, to be submitted with one each."""
        return socket.socketpair()

    def kill(self, number: int) -> None:
        """Kill a child at once; its future resolves after its end."""
        if number in self._ends and self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"op": "kill", "id": number}).encode())

    @property
    def is_alive(self) -> bool:
        """True if the fork-server still answers."""
        return self._control is not None

    def _on_exit_message(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(wire.PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            return self.drop()
        message: JsonObject = json.loads(data)
        future = self._ends.pop(message.pop("id"), None)
        if future is not None and not future.done():
            future.set_result(ChildExit(**message))

    def drop(self) -> None:
        """Discard a fork-server that is dead or no longer works."""
        if self._control is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None
        for future in self._ends.values():
            if not future.done():
                future.set_result(ChildExit("zygote_died"))
        self._ends.clear()

    async def close(self) -> None:
        """End the fork-server and all its descendants, and remove their files from disk."""
        self.drop()
        process, self._process = self._process, None
        if process is not None:
            await _reap_or_kill(process)
        if self.level != "namespaces":  # at level namespaces the kernel ends all children
            await asyncio.to_thread(self._end_strays)
        if self._group is not None:
            _remove_groups(self._group)
        if os.path.isdir(self.scratch):
            await asyncio.to_thread(subprocess.run, [*REMOVE, self.scratch], check=False)

    def _end_strays(self) -> None:
        mark = f"{MARK}={os.path.basename(self.scratch)}"
        for _ in range(100):
            strays = procfs.marked_pids(mark)
            if not strays:
                return
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


async def _reap_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Reap a process that was asked to end; kill its session if it does not in five seconds."""
    pause, patience = 0.001, 5.0
    while process.poll() is None and patience > 0:
        await asyncio.sleep(pause)
        patience -= pause
        pause = min(pause * 2, 0.05)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)


def _is_passable(path: str) -> bool:
    return bool(os.stat(path).st_mode & 0o001)


def _is_reachable(path: str) -> bool:
    """True if any user may pass every folder on the path to `path`."""
    while path != "/":
        if not _is_passable(path):
            return False
        path = os.path.dirname(path)
    return True


# -- frames and logs of a child, on the event loop
# -------------------------------------------------------------------

_CHUNK = 1 << 18
_BREATH_SECONDS = 0.01  # a candidate that floods its log costs at most one chunk per interval


async def read_frame(channel: socket.socket, limit: int) -> tuple[str, bytes]:
    """Read one frame from a non-blocking socket.

    Raises EOFError if the other side has gone, TooLarge above `limit` bytes.
    """
    kind, length = wire.parse_header(await _read_exactly(channel, wire.HEADER_SIZE), limit)
    return kind, await _read_exactly(channel, length)


async def write_frame(
    channel: socket.socket, kind: str, payload: bytes, following: bytes = b""
) -> None:
    """Write one frame, and those `following`, to a non-blocking socket.

    Raises EOFError if the other side has gone.
    """
    data = wire.frame_bytes(kind, payload) + following
    try:
        await asyncio.get_running_loop().sock_sendall(channel, data)
    except OSError as error:
        raise EOFError from error


async def _read_exactly(channel: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        try:
            piece = await loop.sock_recv(channel, min(size - len(data), _CHUNK))
        except OSError as error:
            raise EOFError from error
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


class OutputLog:
    """The read end of a candidate's stdout and stderr.

    Keeps the first `limit` bytes; drains the rest slowly.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.kept, self.dropped = limit, bytearray(), 0
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._read, self._drain_chunk)

    def close_write_end(self) -> None:
        """Close this side's copy of the write end."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def _drain_chunk(self) -> None:
        try:
            piece = os.read(self._read, _CHUNK)
        except BlockingIOError:
            return
        remaining = self.limit - len(self.kept)
        self.kept += piece[:remaining]
        self.dropped += max(0, len(piece) - remaining)
        if not piece or self.dropped:
            self._loop.remove_reader(self._read)
        if piece and self.dropped:
            self._timer = self._loop.call_later(_BREATH_SECONDS, self._resume_reading)

    def _resume_reading(self) -> None:
        self._loop.add_reader(self._read, self._drain_chunk)

    def take_new_text(self) -> str:
        """The text written since the last cut; reading continues."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drain_chunk()
        text = self._kept_text() if self.kept else ""
        cut, self.dropped = self.dropped, 0
        self.kept.clear()
        if cut:
            self._loop.add_reader(self._read, self._drain_chunk)
        return text

    def close(self) -> str:
        """Stop reading; return the text kept, with a note if some was dropped.

        Further calls return the same text.
        """
        if self._read < 0:
            return self._kept_text()
        if self._timer is not None:
            self._timer.cancel()
        if not self.dropped:
            self._drain_chunk()
        self._loop.remove_reader(self._read)
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._read)
        self._read = -1
        self.close_write_end()
        return self._kept_text()

    def _kept_text(self) -> str:
        return wire.storable_text(self.kept.decode("utf-8", "replace")) + (
            "\n[cut: the log was longer]" if self.dropped else ""
        )


def _delegated_group() -> Path | None:
    """A new group below which a fork-server may make others; None if this is not to be had.

    This process and its children are moved into a group beside it. Where others share its group,
    the group is not ours.
    """
    try:
        own = next(
            line[3:].strip()
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::/")
        )
        base = _GROUPS / own.lstrip("/")
        base = base.parent if base.name == _OWN_GROUP else base
        if not set(_CONTROLLERS) <= set((base / "cgroup.controllers").read_text().split()):
            return None
        members = set(map(int, (base / "cgroup.procs").read_text().split()))
        if members - set(procfs.tree_pids(os.getpid())):
            return None
        (base / _OWN_GROUP).mkdir(exist_ok=True)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                (base / _OWN_GROUP / "cgroup.procs").write_text(str(pid))
        group = base / f"culmen-{secrets.token_hex(6)}"
        group.mkdir()
        for folder in (base, group):
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in _CONTROLLERS))
        return group
    except (OSError, StopIteration, ValueError):
        return None


def _remove_groups(group: Path) -> None:
    """Remove a fork-server's groups, as far as they are empty."""
    for folder in (*group.glob("*/"), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
