"""Containers of podman or docker for programs other than candidates, and a provider of them.

`Box` is one container. `ContainerProvider` is the port `core.ports.SandboxProvider` on this
machine: its sandboxes stay until they are deleted, by this process or by another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import posixpath
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.ports import SandboxRun, SandboxSpec
from culmen.evaluate.jail import container

_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")  # of root inside
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAND_IN = "CULMEN_VARIABLE_"
_IDLE = "while :; do sleep 1000; done"
_FILES, _PROCESSES, _MOST_PROCESSES = 4096, 1024, 8192
_UNUSABLE = 125  # exit status from which a program's failure may be podman's own


class Image(msgspec.Struct, frozen=True):
    """An image on this machine."""

    program: str
    id: str
    workdir: str
    path: str


@lru_cache(256)
def find_image(name: str) -> Image:
    """The image of this name; raise JailFailed if neither podman nor docker has it."""
    program = container.find_container_program(name)
    about: JsonObject = json.loads(container.run_command(program, "image", "inspect", name).stdout)[
        0
    ]
    config: JsonObject = about.get("Config") or {}
    variables = dict(each.partition("=")[::2] for each in config.get("Env") or ())
    return Image(
        program, str(about["Id"]), str(config.get("WorkingDir") or ""), variables.get("PATH", "")
    )


@dataclass
class Box:
    """One container; its first process does nothing. It is a `core.ports.Sandbox`.

    mounts   (path here, path inside, True if writable)
    user     of its processes, "" for root
    stays    True if it outlives this process, until somebody deletes it
    words    further options of `run`
    Limits of 0 are the program's usual ones.
    """

    image: Image
    mounts: Sequence[tuple[str, str, bool]]
    workdir: str
    memory_mb: int
    disk_mb: int
    network: bool
    user: str = ""
    name: str = field(default_factory=container.new_name)
    stays: bool = False
    words: Sequence[str] = ()
    _lock: BinaryIO | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _is_over: bool = False

    def start(self) -> None:
        """Start it, unless it is to end already; raise `UserError` if the program refuses."""
        container.remove_orphaned_containers()
        with self._guard:
            if not self._is_over:
                self._start()

    def _start(self) -> None:
        if not self.stays:
            self._lock = container.claim_container(self.image.program, self.name)
        words = ("run", "--detach", "--name", self.name, *self._options())
        line = (*words, "--entrypoint", "/bin/sh", self.image.id, "-c", _IDLE)
        ran = container.run_command(self.image.program, *line)
        if ran.returncode:
            if not (self.stays and "already in use" in ran.stderr):  # that one is another's
                self._remove()
            raise UserError(
                f"a container cannot be started: {ran.stderr.strip()[-500:]}",
                where=self.image.program,
                fix="correct that" if self.stays else "correct that, or declare the tasks plain",
            )

    def _options(self) -> list[str]:
        line = ["--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        line += [] if self.network else ["--network", "none"]
        processes = _MOST_PROCESSES if self.stays else _PROCESSES
        line += ["--pids-limit", str(processes), "--ulimit", f"nofile={_FILES}:{_FILES}"]
        line += ["--ulimit", f"nproc={processes}:{processes}", "--ulimit", "core=0:0"]
        if self.disk_mb:
            line += ["--ulimit", f"fsize={self.disk_mb << 20}:{self.disk_mb << 20}"]
        if self.memory_mb:
            line += ["--memory", f"{self.memory_mb}m", "--memory-swap", f"{self.memory_mb}m"]
        line += container.proxy_options(self.image.program)
        line += ["--workdir", self.workdir, "--user", self.user or "0:0"]
        if not self.user:
            line += [word for right in _RIGHTS for word in ("--cap-add", right)]
        for source, place, writable in self.mounts:
            line += ["--volume", f"{source}:{place}:{'rw' if writable else 'ro'}"]
        return [*line, *self.words]

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
        return container.run_command(self.image.program, *words).stdout

    def copy_in(self, source: Path, target: str) -> None:
        """Copy a file or folder of this machine to the path `target` inside."""
        folder = target if source.is_dir() else posixpath.dirname(target)
        made = self.run(["mkdir", "-p", "--", folder])
        copied = f"{source}/." if source.is_dir() else str(source)
        ran = container.run_command(self.image.program, "cp", copied, f"{self.name}:{target}")
        if made.status or ran.returncode:
            raise UserError(
                f"'{source}' cannot be copied into a container: "
                f"{(made.errors.decode(errors='replace') + ran.stderr).strip()[-500:]}",
                where=self.name,
                fix="correct that, and try again",
            )

    def run(
        self,
        argv: Sequence[str],
        variables: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        seconds: float = 60.0,
    ) -> SandboxRun:
        """Run a program inside to its end, as `core.ports.Sandbox` has it."""
        given = variables or {}
        line = self.command(argv, given, True)
        try:
            ran = subprocess.run(
                line,
                env={**os.environ, **stand_ins(given)},
                input=stdin,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{argv[0]} in {self.name}") from None
        state = ("inspect", "--format", "{{.State.Running}}", self.name)
        if ran.returncode >= _UNUSABLE and self._run(*state).strip() != "true":
            errors = ran.stderr.decode(errors="replace").strip()
            fix = "make another one: it has ended, or was deleted"
            raise UserError(f"a container does not run: {errors}", where=self.name, fix=fix)
        return SandboxRun(ran.returncode, ran.stdout, ran.stderr)

    def delete(self) -> None:
        """End all its processes, and remove it; a second call waits for the first."""
        with self._guard:
            self._is_over = True
            self._remove()

    @contextlib.asynccontextmanager
    async def ended_on_error(self) -> AsyncIterator[None]:
        """End it if an error or a cancellation leaves the block, even if it is still starting."""
        try:
            yield
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self.delete))
            raise

    def _remove(self) -> None:
        if self.stays and not container.remove_container(self.image.program, self.name):
            fix = f"{os.path.basename(self.image.program)} rm --force {self.name}"
            raise UserError("a container cannot be removed", where=self.name, fix=fix)
        lock, self._lock = self._lock, None
        if lock is not None:
            container.release_container(self.image.program, self.name, lock)


def stand_ins(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command line made by `Box.command` for the names of `env`."""
    return {f"{_STAND_IN}{number}": value for number, value in enumerate(env.values())}


class ContainerProvider:
    """Containers of this machine: a `core.ports.SandboxProvider`.

    Its one setting is `network`, a network of the program, such as `host`.
    """

    def __init__(self) -> None:
        self.place = socket.gethostname()

    def create(self, spec: SandboxSpec) -> Box:
        """A new container of an image that is on this machine."""
        if unknown := set(spec.settings) - {"network"}:
            known = "memory, cpus and network"
            raise UserError(
                f"a container has no setting '{min(unknown)}'", where="--set", fix=f"it has {known}"
            )
        try:
            image = find_image(spec.image)
        except container.JailFailed as error:
            what, _, fix = str(error).rpartition(": ")
            raise UserError(what or fix, where=spec.image, fix=fix if what else "") from None
        words = [word for each in spec.settings.items() for word in (f"--{each[0]}", each[1])]
        words += ["--cpus", f"{spec.cpus:g}"] if spec.cpus else []
        box = _new_stay(image, spec.name, spec.memory_mb, spec.network, words)
        box.start()
        return box

    def find(self, name: str) -> Box:
        """The container of this name; that of the first program where none has it."""
        programs = [path for each in container.PROGRAMS if (path := shutil.which(each))]
        if not programs:
            fix = "install podman, and try again"
            raise UserError("neither podman nor docker is installed", where=self.place, fix=fix)
        has = (p for p in programs if not container.run_command(p, "inspect", name).returncode)
        return _new_stay(Image(next(has, programs[0]), "", "", ""), name)


def _new_stay(
    image: Image, name: str, memory_mb: int = 0, network: bool = True, words: Sequence[str] = ()
) -> Box:
    return Box(image, (), "/", memory_mb, 0, network, name=name, stays=True, words=words)
