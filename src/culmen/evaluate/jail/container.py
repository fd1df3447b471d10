"""A fork-server inside a container of docker or podman.

The strong level for machines without a jail of their own. One container serves all workers of a
run, with a fresh confined child for every evaluation, so no evaluation waits for the start of a
container. culmen's modules go in over standard input; of this machine only the files that the task
names are mounted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import io
import json
import os
import resource
import secrets
import shutil
import socket
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import IO, BinaryIO, ClassVar, Unpack

from culmen.core.json import JsonObject
from culmen.core.task import IMAGE_PREFIX, Limits
from culmen.evaluate.jail.bubblewrap import PACKAGE
from culmen.evaluate.jail.confine import WORK, ChildLimits, ForkRequest
from culmen.evaluate.jail.container_server import CODE_FOLDER, JOBS
from culmen.evaluate.jail.fork_server import ENVIRONMENT, START_SECONDS, ChildExit, Jail, JailFailed
from culmen.evaluate.jail.relay import Relay, RelayBroken

PROGRAMS = ("podman", "docker")
# names in the programs' environment
ENVIRONS = ("PATH", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST")
_BASE_MB = 1024  # memory of the fork-server, its preloaded packages, and shared libraries
_FILES = 1024  # maximum of descriptors of one process
# capabilities of the fork-server; children have none
_RIGHTS = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE", "SYS_PTRACE")
_JAIL = "culmen.evaluate.jail"
_LIGHT_MODULES = ("core/json.py",)  # modules that those of the folders import
_LOCK = "culmen-container-*.lock"
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
from culmen.evaluate.jail.container_server import main
main()
"""


def find_container_program(image: str) -> str:
    """The program that has this image.

    Raises JailFailed, with the command that gets the image, if neither has it.
    """
    if not image:
        raise JailFailed(
            "no image is named: set image in [evaluator] of task.toml, for example image = "
            '"python:3.12-slim"'
        )
    programs = [path for name in PROGRAMS if (path := shutil.which(name))]
    if not programs:
        raise JailFailed("neither podman nor docker is installed")
    errors = []
    for program in programs:
        ran = run_command(program, "image", "inspect", image)
        if ran.returncode == 0:
            return program
        errors.append(f"{os.path.basename(program)}: {ran.stderr.strip().splitlines()[-1:]}")
    raise JailFailed(
        f"the image {image} is not on this machine ({'; '.join(errors)}): "
        f"{os.path.basename(programs[0])} pull {image}"
    )


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
    line = [
        program,
        "run",
        "--rm",
        "--interactive",
        "--name",
        name,
        "--pull",
        "never",
        "--network",
        "none",
    ]
    line += [
        "--read-only",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--log-driver",
        "none",
    ]
    line += ["--tmpfs", f"{folder}:rw,exec,nosuid,nodev,size={files_mb}m,mode={mode}"]
    line += [
        "--hostname",
        "jail",
        "--ulimit",
        f"nofile={files}:{files}",
        "--ulimit",
        f"nproc={processes}:{processes}",
    ]
    line += ["--ulimit", "core=0:0", "--pids-limit", str(processes), "--cpu-period", "100000"]
    line += [
        "--memory",
        f"{memory_mb}m",
        "--memory-swap",
        f"{memory_mb}m",
        "--cpu-quota",
        str(100_000 * cpus),
    ]
    if os.path.basename(program) == "podman":
        line.append("--read-only-tmpfs=false")
    return [*line, *proxy_options(program)]


def proxy_options(program: str) -> list[str]:
    """Options that keep the proxies of this machine, and their passwords, out of a container."""
    return ["--http-proxy=false"] if os.path.basename(program) == "podman" else []


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
        self._sources = (_JAIL, *sources)
        self.image, self._limits, self._workers, self._optional = image, limits, workers, optional
        self.home = f"the image {image}"
        self.inner = ""
        self.name = new_name()
        self._program = ""
        self._relay: Relay | None = None
        self._hello: asyncio.Future[bytes] | None = None
        self._lines: dict[int, int] = {}
        self._lock: BinaryIO | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the container.

        Raises JailFailed if none can be started, TaskError for a bad package.
        """
        self._program = await asyncio.to_thread(self._prepare_container)
        code = _zipped_code(self._server_setup(), self._sources)
        line = [*self._jail_command(), self.image, "-I", "-B", "-c", _CODE, str(len(code))]
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

    def _prepare_container(self) -> str:
        remove_orphaned_containers()
        program = find_container_program(self.image)
        self._lock = claim_container(program, self.name)
        return program

    def _jail_command(self) -> list[str]:
        limits, both = self._limits, 2 * self._workers  # evaluate(path) takes two children
        line = container_command(
            self._program,
            self.name,
            WORK,
            "0711",
            memory_mb=_BASE_MB + both * limits.memory_mb + both * limits.files_mb,
            processes=64 + both * (limits.processes + 16),
            files_mb=32 + both * limits.files_mb,
            cpus=self._workers,
        )
        line += ["--user", "0:0", "--workdir", "/", "--entrypoint", "python3"]
        for right in (*_RIGHTS, *(["DAC_READ_SEARCH"] if self.visible else [])):
            line += ["--cap-add", right]
        for path in self.visible:
            line += ["--mount", f"type=bind,source={path},destination={path},readonly"]
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
        lock, self._lock = self._lock, None
        if lock is not None:
            await asyncio.to_thread(release_container, self._program, self.name, lock)


class EvaluatorContainer:
    """An evaluator that is an image: `docker:IMAGE` and the arguments of its entry point."""

    _limits: ClassVar[dict[str, int]] = {
        "memory_mb": 4096,
        "processes": 256,
        "files_mb": 1024,
        "cpus": 2,
    }

    def __init__(self, words: list[str]) -> None:
        self._image, self._words = words[0].removeprefix(IMAGE_PREFIX), words[1:]
        self._program, self._name = "", ""
        self._lock: BinaryIO | None = None

    def new_container_command(self) -> list[str]:
        """The command that starts a new container, after removing the last one; raise OSError."""
        if self._lock is not None:
            release_container(self._program, self._name, self._lock)
        remove_orphaned_containers()
        try:
            self._program = find_container_program(self._image)
        except JailFailed as error:
            raise OSError(str(error)) from None
        self._name = new_name()
        self._lock = claim_container(self._program, self._name)
        line = container_command(self._program, self._name, "/tmp", "1777", **self._limits)
        return [*line, "--user", "65534:65534", self._image, *self._words]


def new_name() -> str:
    """A new name for a container of culmen."""
    return f"culmen-container-{secrets.token_hex(6)}"


def claim_container(program: str, name: str) -> BinaryIO:
    """Take a lock that is held as long as the container's owner lives; it names the program."""
    lock = open(os.path.join(tempfile.gettempdir(), f"{name}.lock"), "wb")  # noqa: SIM115 - it stays open
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(os.path.basename(program).encode())
    lock.flush()
    return lock


def release_container(program: str, name: str, lock: BinaryIO) -> None:
    """End and remove a container, and release its lock; one that stays is an orphan."""
    gone = remove_container(program, name)
    lock.close()
    if gone:
        with contextlib.suppress(OSError):
            os.unlink(lock.name)


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


def caller_environment() -> dict[str, str]:
    """The variables of this process that podman and docker need."""
    return {name: os.environ[name] for name in ENVIRONS if name in os.environ}


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output; its exit status may be any."""
    return subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def remove_container(program: str, name: str) -> bool:
    """End and remove a container, if it is still there; False if it may still be there."""
    # docker does not wait
    at_once = ("--time", "0") if os.path.basename(program) == "podman" else ()
    ran = run_command(program, "rm", "--force", "--volumes", *at_once, name)
    return ran.returncode == 0 or "no such container" in ran.stderr.lower()


def remove_orphaned_containers() -> None:
    """Remove containers whose owner was killed: their lock is free."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), _LOCK)):
        try:
            with open(path, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                name = os.path.basename(path).removesuffix(".lock")
                own = lock.read(20).decode(errors="replace")
                program = shutil.which(own) if own in PROGRAMS else None
                if program is None or remove_container(program, name):
                    os.unlink(path)
        except OSError:
            continue  # in use, or of another user
