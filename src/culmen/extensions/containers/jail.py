"""A fork-server inside a container of docker or podman.

The strong level for machines without a jail of their own. One container serves all workers of a
run, with a fresh confined child for every evaluation, so no evaluation waits for the start of a
container. culmen's modules go in over standard input; of this machine only the files that the task
names are mounted.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import resource
import secrets
import socket
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import IO, ClassVar, Unpack

from culmen.core.json import JsonObject
from culmen.core.task import IMAGE_PREFIX, Limits
from culmen.extensions.containers import engine
from culmen.extensions.containers.engine import ENVIRONS as ENVIRONS
from culmen.extensions.containers.engine import remove_orphaned_containers
from culmen.extensions.containers.relay import Relay, RelayBroken
from culmen.extensions.containers.server import CODE_FOLDER, JOBS
from culmen.jail.bubblewrap import PACKAGE
from culmen.jail.confine import WORK, ChildLimits, ForkRequest
from culmen.jail.fork_server import ENVIRONMENT, START_SECONDS, ChildExit, Jail, JailFailed

_FILES = 1024  # maximum of descriptors of one process
# capabilities of the fork-server; children have none
_RIGHTS = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE", "SYS_PTRACE")
_SOURCES = ("culmen.jail", "culmen.extensions.containers")
_LIGHT_MODULES = ("core/json.py",)  # modules that those of the folders import
_CODE = f"""
import io, os, sys, zipfile
os.umask(0o022)
data = b""
while len(data) < int(sys.argv[1]):
    piece = os.read(0, int(sys.argv[1]) - len(data))
    if not piece: sys.exit(1)
    data += piece
zipfile.ZipFile(io.BytesIO(data)).extractall({CODE_FOLDER!r})
sys.path.insert(0, {CODE_FOLDER!r})
from culmen.extensions.containers.server import main
main()
"""


def container_command(
    program: str,
    name: str,
    folder: str,
    mode: str,
    *,
    memory_mb: int,
    processes: int,
    files_mb: int,
    cpus: int,
) -> list[str]:
    """The start of a command line that runs an image without network and rights.

    Only `folder`, which lies in memory, is writable; the image and its command follow.
    """
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _FILES if hard_limit == resource.RLIM_INFINITY else min(_FILES, hard_limit)
    line = [program, "run", "--rm", "--interactive", "--name", name, "--network", "none"]
    line += ["--read-only", "--log-driver", "none", "--hostname", "jail"]
    line += ["--tmpfs", f"{folder}:rw,exec,nosuid,nodev,size={files_mb}m,mode={mode}"]
    if os.path.basename(program) == "podman":
        line.append("--read-only-tmpfs=false")
    limits = {"processes": processes, "memory_mb": memory_mb, "cpus": cpus}
    return [*line, *engine.run_options(program, files=files, **limits)]


class ContainerJail(Jail):
    """A fork-server in a container of `image`, for `workers` children at once within `limits`.

    `levels` are the confinements to try inside, strongest first; `inner` is the one that works.
    """

    levels = ("restricted", "limits")

    def __init__(
        self,
        image: str,
        limits: Limits,
        workers: int,
        packages: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        visible: tuple[str, ...] = (),
        shut: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
    ) -> None:
        super().__init__("container", packages, visible, shut, folders=False)
        self._sources = (*_SOURCES, *sources)
        self.image, self._limits, self._workers, self._optional = image, limits, workers, optional
        self.home = f"the image {image}"
        self.inner = ""
        self.name = engine.new_name()
        self._claim: engine.Claim | None = None
        self._relay: Relay | None = None
        self._hello: asyncio.Future[bytes] | None = None
        self._lines: dict[int, int] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the container.

        Raises JailFailed if none can be started, TaskError for a bad package.
        """
        program = await asyncio.to_thread(self._claim_container)
        code = _zipped_code(self._server_setup(), self._sources)
        line = [*self._jail_command(program), self.image, "-I", "-B", "-c", _CODE, str(len(code))]
        self._hello = asyncio.get_running_loop().create_future()
        with tempfile.TemporaryFile() as complaints:
            self._process = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                cwd="/",
            )
            assert self._process.stdin is not None and self._process.stdout is not None
            await asyncio.to_thread(_write_to_pipe, self._process.stdin, code)
            source, sink = (
                os.dup(pipe.fileno()) for pipe in (self._process.stdout, self._process.stdin)
            )
            self._process.stdin.close()
            self._process.stdout.close()
            self._relay = Relay(source, sink, self._on_container_message)
            self._reading = asyncio.create_task(self._run_relay(self._relay))
            try:
                async with asyncio.timeout(START_SECONDS):
                    hello = await self._hello
            except TimeoutError:
                hello = b""
            complaints.seek(0)
            complaint = complaints.read(4000).decode(errors="replace").strip()
        self._check_hello(hello, complaint)
        self.inner = str(json.loads(hello).get("inner", ""))

    def _claim_container(self) -> str:
        remove_orphaned_containers()
        program = engine.find_image(self.image).program
        self._claim = engine.Claim(program, self.name)
        return program

    def _jail_command(self, program: str) -> list[str]:
        limits, both = self._limits, 2 * self._workers  # evaluate(path) takes two children
        line = container_command(
            program,
            self.name,
            WORK,
            "0711",
            # memory of the fork-server, its preloaded packages, and shared libraries
            memory_mb=1024 + both * limits.memory_mb + both * limits.files_mb,
            processes=64 + both * (limits.processes + 16),
            files_mb=32 + both * limits.files_mb,
            cpus=self._workers,
        )
        line += ["--user", "0:0", "--workdir", "/", "--entrypoint", "python3"]
        seeing = ["DAC_READ_SEARCH"] if self.visible else []
        line += engine.right_options((*_RIGHTS, *seeing))
        for path in self.visible:
            line += engine.mount_options(path, path)
        return line

    def _server_setup(self) -> JsonObject:
        return {
            "levels": self.levels,
            "packages": list(self.packages),
            "optional": list(self._optional),
            "visible": list(self._open),
            "shut": list(self.shut),
            "first_uid": 20_000 + (os.getpid() % 200) * 128,
            "environment": ENVIRONMENT,
        }

    async def _run_relay(self, relay: Relay) -> None:
        try:
            await relay.run()
        except (RelayBroken, ValueError, TypeError, KeyError):
            pass  # no further message of such a container is trusted
        finally:
            self.drop()

    def _on_container_message(self, number: int, payload: bytes) -> None:
        assert self._hello is not None
        if not self._hello.done():
            return self._hello.set_result(payload)
        message: JsonObject = json.loads(payload)
        future = self._ends.pop(number, None)
        if message.pop("id") == number and future is not None and not future.done():
            future.set_result(ChildExit(**message))

    @property
    def is_alive(self) -> bool:
        return self._relay is not None

    def submit(
        self,
        channel: socket.socket,
        log: int,
        line: tuple[int, ...] = (),
        **limits: Unpack[ChildLimits],
    ) -> tuple[int, asyncio.Future[ChildExit]]:
        self._count += 1
        number = self._count
        future: asyncio.Future[ChildExit] = asyncio.get_running_loop().create_future()
        if self._relay is None:
            future.set_result(ChildExit("zygote_died"))
            return number, future
        joined = self._lines.pop(os.fstat(line[0]).st_ino, 0) if line else 0
        self._ends[number] = future
        self._relay.open_stream(2 * number, os.dup(channel.fileno()))
        self._relay.open_stream(2 * number + 1, os.dup(log), reads=False)
        job = ForkRequest(id=number, work=f"{JOBS}/{number}", **limits)
        self._send_to_server(number, {"op": "run", "job": asdict(job), "line": joined})
        return number, future

    def open_line(self) -> tuple[socket.socket, socket.socket]:
        ends = socket.socketpair()
        number = secrets.randbits(48) + 1
        for end in ends:  # stand-ins: the line itself is inside
            self._lines[os.fstat(end.fileno()).st_ino] = number
        return ends

    def kill(self, number: int) -> None:
        if number in self._ends:
            self._send_to_server(number, {"op": "kill", "id": number})

    def _send_to_server(self, number: int, message: JsonObject) -> None:
        if self._relay is not None:
            self._relay.send(number, json.dumps(message).encode())

    def drop(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()  # the container's first process sees the end of its input, and exits
        if self._hello is not None and not self._hello.done():
            self._hello.set_result(b"")
        super().drop()

    async def close(self) -> None:
        await super().close()
        if self._reading is not None:
            self._reading.cancel()
        if self._claim is not None:
            await asyncio.to_thread(self._claim.release)


class EvaluatorContainer:
    """An evaluator that is an image: `docker:IMAGE` and the arguments of its entry point."""

    _limits: ClassVar[dict[str, int]] = dict(memory_mb=4096, processes=256, files_mb=1024, cpus=2)

    def __init__(self, words: list[str]) -> None:
        self._image, self._words = words[0].removeprefix(IMAGE_PREFIX), words[1:]
        self._claim: engine.Claim | None = None

    def new_container_command(self) -> list[str]:
        """The command that starts a new container, after removing the last one; raise OSError."""
        if self._claim is not None:
            self._claim.release()
        remove_orphaned_containers()
        try:
            program = engine.find_image(self._image).program
        except JailFailed as error:
            raise OSError(str(error)) from None
        self._claim = engine.Claim(program)
        line = container_command(program, self._claim.name, "/tmp", "1777", **self._limits)
        return [*line, "--user", "65534:65534", self._image, *self._words]


def _zipped_code(setup: JsonObject, packages: Iterable[str]) -> bytes:
    """The code that runs inside, as a zip file: the set-up, and modules of these packages.

    `culmen` and the packages between are empty.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("setup.json", json.dumps(setup))
        for empty in ("culmen", "culmen/core", "culmen/evaluate"):
            archive.writestr(f"{empty}/__init__.py", "")
        for name in _LIGHT_MODULES:
            archive.write(PACKAGE / name, f"culmen/{name}")
        for package in packages:
            root = _package_folder(package)
            for path in _module_paths(root):
                inside = package.replace(".", "/")
                archive.write(path, f"{inside}/{path.relative_to(root)}")
    return content.getvalue()


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations, package
    return Path(next(iter(spec.submodule_search_locations)))


def _module_paths(root: Path) -> Iterable[Path]:
    return (path for path in sorted(root.rglob("*.py")) if "attacks" not in path.parts)


def _write_to_pipe(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError):  # the program ended at once; its error output has the reason
        pipe.write(data)
        pipe.flush()
