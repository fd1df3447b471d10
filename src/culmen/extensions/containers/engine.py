"""The one place that speaks to podman and docker: images, command lines, containers of ours.

A container ends with its owner. A `Claim` removes it, and what an owner that was killed leaves is
removed by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import glob
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.jail.fork_server import JailFailed

PROGRAMS = ("podman", "docker")
# names in the programs' environment
ENVIRONS = ("PATH", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST")
_LOCK = "culmen-container-*.lock"
_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")  # of root in a `Box`
_FILES, _PROCESSES = 4096, 1024  # descriptors of one process of a `Box`, and its processes
_IDLE = "while :; do sleep 1000; done"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAND_IN = "CULMEN_VARIABLE_"
_TAIL = 1_500  # characters of a failure
# what docker says without a daemon, or without the right to speak to it
_NO_DAEMON = re.compile(
    r"connect to the docker (?:daemon|api)|docker daemon running|docker daemon socket",
    re.IGNORECASE,
)
# what podman and docker say of a folder that an image lacks
_MISSING = re.compile(r"could not be found on container|could not find the file", re.IGNORECASE)


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output; its exit status may be any."""
    return subprocess.run(
        words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def _is_podman(program: str) -> bool:
    return os.path.basename(program) == "podman"


# -- images


class Image(msgspec.Struct, frozen=True):
    """An image on this machine, and the program that has it."""

    program: str
    id: str
    workdir: str
    path: str


@lru_cache(256)
def find_image(name: str) -> Image:
    """The image of this name.

    Raises JailFailed, with the command that gets it, if neither podman nor docker has it.
    """
    if not name:
        raise JailFailed(
            "no image is named: set image in [evaluator] of task.toml, for example image = "
            '"python:3.12-slim"'
        )
    programs = [path for each in PROGRAMS if (path := shutil.which(each))]
    if not programs:
        raise JailFailed("neither podman nor docker is installed")
    errors, silent = list[str](), list[str]()
    for program in programs:
        ran = run_command(program, "image", "inspect", name)
        if ran.returncode == 0:
            return _image_of(program, json.loads(ran.stdout)[0])
        said = ran.stderr.strip().splitlines()[-1:]
        errors.append(f"{os.path.basename(program)}: {said}")
        if _NO_DAEMON.search(ran.stderr):
            silent.append(os.path.basename(program))
    if len(silent) == len(programs):
        raise JailFailed(
            f"{silent[0]} is installed, but its daemon does not answer ({'; '.join(errors)}): "
            f"start it, or get access to it; {silent[0]} info shows if it answers"
        )
    answering = next(each for each in map(os.path.basename, programs) if each not in silent)
    raise JailFailed(
        f"the image {name} is not on this machine ({'; '.join(errors)}): {answering} pull {name}"
    )


def _image_of(program: str, about: JsonObject) -> Image:
    config: JsonObject = about.get("Config") or {}
    variables = dict(each.partition("=")[::2] for each in config.get("Env") or ())
    workdir = str(config.get("WorkingDir") or "")
    return Image(program, str(about["Id"]), workdir, variables.get("PATH", ""))


def build_image(program: str, name: str, context: str) -> Image:
    """Build the Dockerfile of a folder, from images that are here; raise `UserError`."""
    # the build's own network, as for people: it runs what the task's author wrote, no agent
    line = ["build", "--quiet", "--network", "host", "--tag", name]
    line += [
        "--ulimit",
        f"nofile={_FILES}:{_FILES}",
        "--ulimit",
        f"nproc={_PROCESSES}:{_PROCESSES}",
    ]
    line += [*_proxy_options(program), *(["--pull=never"] if _is_podman(program) else [])]
    ran = run_command(program, *line, context)
    if ran.returncode:
        raise UserError(
            f"the image of a task cannot be built: {ran.stderr.strip()[-_TAIL:]}",
            where=f"{context}/Dockerfile",
            fix=f"{os.path.basename(program)} build {context}",
        )
    return find_image(name)


def copy_from_image(image: Image, folder: str, target: Path) -> None:
    """Copy a folder of an image to this machine; without it, make an empty one.

    Raises `UserError` if that fails; then there is no `target`.
    """
    partial = target.with_name(f"{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with Claim(image.program) as claim:
        words = ("create", "--pull", "never", "--name", claim.name, image.id, "true")
        ran = run_command(image.program, *words)
        if not ran.returncode:
            ran = run_command(image.program, "cp", f"{claim.name}:{folder}/.", str(partial))
    if ran.returncode and not _MISSING.search(ran.stderr):
        raise _failure(
            f"the working directory {folder} cannot be copied", image.program, ran.stderr
        )
    partial.rename(target)


def _failure(what: str, program: str, errors: str) -> UserError:
    fix = "correct that, or declare the tasks plain"
    return UserError(f"{what}: {errors.strip()[-_TAIL:]}", where=program, fix=fix)


# -- containers that end with their owner


class Claim:
    """The name of a container, and a lock that is held as long as the container's owner lives."""

    def __init__(self, program: str, name: str = "") -> None:
        self.program, self.name = program, name or new_name()
        lock = open(os.path.join(tempfile.gettempdir(), f"{self.name}.lock"), "wb")  # noqa: SIM115 - it stays open
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(os.path.basename(program).encode())
        lock.flush()
        self._lock: BinaryIO | None = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """End and remove the container, and release the lock; one that stays is an orphan."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        gone = _remove_container(self.program, self.name)
        lock.close()
        if gone:
            with contextlib.suppress(OSError):
                os.unlink(lock.name)


def new_name() -> str:
    """A new name for a container of culmen."""
    return f"culmen-container-{secrets.token_hex(6)}"


def remove_orphaned_containers() -> None:
    """Remove containers whose owner was killed: their lock is free."""
    for path in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), _LOCK)):
        try:
            with open(path, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                name = os.path.basename(path).removesuffix(".lock")
                own = lock.read(20).decode(errors="replace")
                program = shutil.which(own) if own in PROGRAMS else None
                if program is None or _remove_container(program, name):
                    os.unlink(path)
        except OSError:
            continue  # in use, or of another user


def _remove_container(program: str, name: str) -> bool:
    """End and remove a container, if it is still there; False if it may still be there."""
    at_once = ("--time", "0") if _is_podman(program) else ()  # docker does not wait
    ran = run_command(program, "rm", "--force", "--volumes", *at_once, name)
    return ran.returncode == 0 or "no such container" in ran.stderr.lower()


# -- options of a command line


def run_options(
    program: str, *, processes: int, files: int, memory_mb: int, cpus: float = 0.0
) -> list[str]:
    """Options of all containers: no right that is not given back, and these limits.

    The proxies of this machine, and their passwords, stay out. `files` is the maximum of
    descriptors of one process; with `cpus` of 0 all may be used, with `memory_mb` of 0 all memory.
    """
    line = ["--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    line += ["--pids-limit", str(processes), "--ulimit", f"nproc={processes}:{processes}"]
    line += ["--ulimit", f"nofile={files}:{files}", "--ulimit", "core=0:0"]
    if memory_mb:
        line += ["--memory", f"{memory_mb}m", "--memory-swap", f"{memory_mb}m"]
    if cpus:
        line += ["--cpu-period", "100000", "--cpu-quota", str(int(100_000 * cpus))]
    return [*line, *_proxy_options(program)]


def _proxy_options(program: str) -> list[str]:
    return ["--http-proxy=false"] if _is_podman(program) else []


def right_options(rights: Iterable[str]) -> list[str]:
    """Options that give capabilities back."""
    return [word for right in rights for word in ("--cap-add", right)]


def mount_options(source: str, target: str, writable: bool = False) -> list[str]:
    """Options that show a file or folder of this machine in a container."""
    access = "" if writable else ",readonly"
    return ["--mount", f"type=bind,source={source},destination={target}{access}"]


# -- containers in which programs are started


@dataclass
class Box:
    """One container; its first process does nothing.

    mounts   (path here, path inside, True if writable)
    memory_mb, disk_mb   of all; of one file; 0: no limit
    user     of its processes, "" for root
    rights   of root, beside the usual ones
    """

    image: Image
    mounts: Sequence[tuple[str, str, bool]]
    workdir: str
    memory_mb: int
    disk_mb: int
    network: bool
    user: str = ""
    cpus: float = 0.0
    rights: Sequence[str] = ()
    name: str = field(default_factory=new_name)
    claim: Claim | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _is_over: bool = False

    def start(self) -> None:
        """Start it, unless it is to end already; raise `UserError` if the program refuses."""
        remove_orphaned_containers()
        with self._guard:
            if not self._is_over:
                self._start()

    def _start(self) -> None:
        self.claim = Claim(self.image.program, self.name)
        words = ("run", "--detach", "--name", self.name, *self._options())
        line = (*words, "--entrypoint", "/bin/sh", self.image.id, "-c", _IDLE)
        ran = run_command(self.image.program, *line)
        if ran.returncode:
            self.claim.release()
            raise _failure("a container cannot be started", self.image.program, ran.stderr)

    def _options(self) -> list[str]:
        line = run_options(
            self.image.program,
            processes=_PROCESSES,
            files=_FILES,
            memory_mb=self.memory_mb,
            cpus=self.cpus,
        )
        line += [] if self.network else ["--network", "none"]
        if self.disk_mb:
            line += ["--ulimit", f"fsize={self.disk_mb << 20}:{self.disk_mb << 20}"]
        line += ["--workdir", self.workdir, "--user", self.user or "0:0"]
        line += [] if self.user else right_options((*_RIGHTS, *self.rights))
        return [*line, *(word for each in self.mounts for word in mount_options(*each))]

    def command(self, argv: Iterable[str], names: Iterable[str], stdin: bool) -> list[str]:
        """The command line that runs a program in it, with variables of these names.

        Their values come from stand-ins in the environment of the command line (`stand_ins`): none
        is in the list of processes, and none is a variable of podman's own.
        """
        line = [self.image.program, "exec", *(["--interactive"] if stdin else [])]
        script = ""
        for number, name in enumerate(names):
            if not _VARIABLE.fullmatch(name):
                raise UserError(
                    f"'{name}' cannot be a variable in a container",
                    where="env",
                    fix="name it with letters, digits and underscores",
                )
            stand_in = f"{_STAND_IN}{number}"
            line += ["--env", stand_in]
            script += f'export {name}="${stand_in}"; unset {stand_in}; '
        return [*line, self.name, "/bin/sh", "-c", f'{script}exec "$@"', "sh", *argv]

    def copy_in(self, source: str, target: str) -> None:
        """Copy a file or folder of this machine to a path inside; raise `UserError`."""
        ran = run_command(self.image.program, "cp", source, f"{self.name}:{target}")
        if ran.returncode:
            raise _failure(f"'{source}' cannot be copied", self.image.program, ran.stderr)

    def has_program(self, name: str) -> bool:
        """True if the image has a program of this name on its PATH."""
        found = self._run("exec", self.name, "/bin/sh", "-c", 'command -v -- "$0"', name)
        return found.strip() != ""

    @property
    def network_namespace(self) -> str:
        """The path of its network namespace."""
        number = self._run("inspect", "--format", "{{.State.Pid}}", self.name)
        return f"/proc/{number.strip()}/ns/net"

    @property
    def upper_folder(self) -> Path | None:
        """The folder with files written outside of the mounts; None if it is not known."""
        path = self._run("inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", self.name).strip()
        return Path(path) if path.startswith("/") else None

    def _run(self, *words: str) -> str:
        return run_command(self.image.program, *words).stdout

    def delete(self) -> None:
        """End all its processes, and remove it; a second call waits for the first."""
        with self._guard:
            self._is_over = True
            if self.claim is not None:
                self.claim.release()

    @contextlib.asynccontextmanager
    async def ended_on_error(self) -> AsyncIterator[None]:
        """End it if an error or a cancellation leaves the block, even if it is still starting."""
        try:
            yield
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self.delete))
            raise


def stand_ins(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command line made by `Box.command` for the names of `env`."""
    return {f"{_STAND_IN}{number}": value for number, value in enumerate(env.values())}
