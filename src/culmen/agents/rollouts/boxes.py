"""Rollouts of tasks that need their container: one for the agent, a fresh one for the tests.

The working directory, HOME and the logs are folders of this machine, mounted into both kinds of
container, so what an agent may leave is the same as without one (`trial`): the regular files of the
working directory. Whatever else it changed in its container is gone when the tests begin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from culmen.agents.adapters import Adapter, AgentJob, Plan
from culmen.agents.rollouts.harbor import HarborTask
from culmen.agents.rollouts.images import Image, TaskImage, prepare_image
from culmen.agents.rollouts.tools import NO_SERVER, ServerCommand
from culmen.agents.rollouts.trial import TrialRunner
from culmen.agents.sandbox.confinement import (
    HOME,
    MARK,
    Confinement,
    ConfinementMethod,
    agent_environment,
    port_of,
)
from culmen.agents.sandbox.process import ProgramHost, SandboxProcess
from culmen.core.errors import UserError
from culmen.evaluate.jail import bubblewrap, container

METHOD = ConfinementMethod("uid" if os.geteuid() == 0 else "user", True, "container")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # of an image, never of this machine
_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")  # of tests
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# what podman and docker say of a folder that an image lacks
_MISSING = re.compile(r"could not be found on container|could not find the file", re.IGNORECASE)
_STAND_IN = "CULMEN_VARIABLE_"
_IDLE = "while :; do sleep 1000; done"
_FILES, _PROCESSES = 4096, 1024


@dataclass
class Box:
    """One container; its first process does nothing.

    mounts   (path here, path inside, True if writable)
    user     of its processes, "" for root
    """

    image: Image
    mounts: Sequence[tuple[str, str, bool]]
    workdir: str
    memory_mb: int
    disk_mb: int
    network: bool
    user: str = ""
    name: str = field(default_factory=container.new_name)
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
        self._lock = container.claim_container(self.image.program, self.name)
        words = ("run", "--detach", "--name", self.name, *self._options())
        line = (*words, "--entrypoint", "/bin/sh", self.image.id, "-c", _IDLE)
        ran = container.run_command(self.image.program, *line)
        if ran.returncode:
            self._remove()
            raise UserError(
                f"a container cannot be started: {ran.stderr.strip()[-500:]}",
                where=self.image.program,
                fix="correct that, or declare the tasks plain",
            )

    def _options(self) -> list[str]:
        line = ["--pull", "never", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        line += [] if self.network else ["--network", "none"]
        line += ["--pids-limit", str(_PROCESSES), "--ulimit", f"nofile={_FILES}:{_FILES}"]
        line += ["--ulimit", f"nproc={_PROCESSES}:{_PROCESSES}", "--ulimit", "core=0:0"]
        line += ["--ulimit", f"fsize={self.disk_mb << 20}:{self.disk_mb << 20}"]
        line += ["--memory", f"{self.memory_mb}m", "--memory-swap", f"{self.memory_mb}m"]
        line += container.proxy_options(self.image.program)
        line += ["--workdir", self.workdir, "--user", self.user or "0:0"]
        if not self.user:
            line += [word for right in _RIGHTS for word in ("--cap-add", right)]
        for source, place, writable in self.mounts:
            line += ["--volume", f"{source}:{place}:{'rw' if writable else 'ro'}"]
        return line

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
        """The folder with what was written outside of the mounts; None if it is not known."""
        path = self._run("inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", self.name).strip()
        return Path(path) if path.startswith("/") else None

    def _run(self, *words: str) -> str:
        return container.run_command(self.image.program, *words).stdout

    def end(self) -> None:
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
            await asyncio.shield(asyncio.to_thread(self.end))
            raise

    def _remove(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            container.release_container(self.image.program, self.name, lock)


def stand_ins(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command line made by `Box.command` for the names of `env`."""
    return {f"{_STAND_IN}{number}": value for number, value in enumerate(env.values())}


class BoxProcess(SandboxProcess):
    """A program in a container, with which the container ends."""

    box: Box

    @classmethod
    async def start_in(
        cls, box: Box, line: list[str], env: Mapping[str, str], stdin: bool = False
    ) -> BoxProcess:
        """Start a command line made by `Box.command` for the names of `env`."""
        variables = {**os.environ, **stand_ins(env), MARK: env[MARK]}
        running = await cls.start(line, variables, stdin=stdin, cwd=Path("/"))
        assert isinstance(running, BoxProcess)
        running.box = box
        upper = await asyncio.to_thread(lambda: box.upper_folder)
        running.folders = (upper,) if upper is not None else ()
        return running

    async def end(self) -> None:
        """End every process of the container, and return when they are gone."""
        await asyncio.to_thread(self.box.end)
        await super().end()


class BoxHost(ProgramHost):
    """Host of an agent's program in a container."""

    def __init__(self, box: Box, *arguments: object) -> None:
        super().__init__(*arguments)  # pyright: ignore[reportArgumentType]
        self._box = box

    async def _launch(self, plan: Plan) -> SandboxProcess:
        confinement, box = self._confinement, self._box
        empty = confinement.layout.run / "empty"
        empty.mkdir(exist_ok=True)
        covers = [
            (str(empty), path, False)
            for path in covered_folders(confinement.hidden, confinement.visible)
        ]
        box.mounts = [*box.mounts, *visible_mounts(confinement.visible), *covers]
        async with box.ended_on_error():
            await asyncio.to_thread(box.start)
            return await self._start_in(box, plan)

    async def _start_in(self, box: Box, plan: Plan) -> SandboxProcess:
        confinement = self._confinement
        argv = await asyncio.to_thread(self._inner_command, plan)
        variables = {"PATH": box.image.path or os.defpath, **self._job.variables}
        env = agent_environment(confinement, {**variables, **plan.environment})
        own = [path for path in plan.path if not _is_system(path)]
        env["PATH"] = ":".join([*own, env["PATH"]])
        line = box.command(argv, env, plan.stdin)
        if port := port_of(self._job.base_url):
            line = await asyncio.to_thread(self._relayed, line, port)
        return await BoxProcess.start_in(box, line, env, plan.stdin)

    def _inner_command(self, plan: Plan) -> list[str]:
        """The plan's command: a program that the image has is the image's own."""
        first, name = plan.argv[0], os.path.basename(plan.argv[0])
        if self._box.has_program(name):
            return [name, *plan.argv[1:]]
        if _is_system(first):
            raise UserError(
                f"the image has no program '{name}'",
                where=self._adapter.name,
                fix="install it in the image, or on this machine in a folder outside of /usr",
            )
        return list(plan.argv)

    def _relayed(self, line: list[str], port: int) -> list[str]:
        """The command line behind a relay in the container's network, to the gateway's socket."""
        if os.geteuid() != 0:
            raise UserError(
                "an agent in a container reaches its model only if culmen runs as root",
                where=self._adapter.name,
                fix='run as root, or declare the tasks plain: environment = "plain"',
            )
        relay = str(bubblewrap.PACKAGE / "agents" / "gateway" / "relay.py")
        enter = ["nsenter", f"--net={self._box.network_namespace}"]
        socket = str(self._confinement.socket)
        return [*enter, sys.executable, "-I", "-S", relay, socket, str(port), "--", *line]

    def _watched_folders(self) -> list[Path]:
        running = self._running
        return [*super()._watched_folders(), *(running.folders if running is not None else ())]


def visible_mounts(paths: Iterable[str]) -> list[tuple[str, str, bool]]:
    """Mounts of folders that a program needs; those of a system are the image's own."""
    return [(path, path, False) for path in paths if not _is_system(path)]


def _is_system(path: str) -> bool:
    return f"{path}/".startswith(tuple(f"{folder}/" for folder in _SYSTEM))


def covered_folders(hidden: Iterable[str], visible: Iterable[str]) -> list[str]:
    """Hidden folders inside visible ones, by their paths there, whatever links lead to either."""
    hidden, found = [os.path.realpath(path) for path in hidden], list[str]()
    for base in visible:
        real = os.path.realpath(base)
        inside = [path for path in hidden if f"{path}/".startswith(f"{real}/")]
        found += [base.rstrip("/") + path[len(real) :] for path in inside if os.path.isdir(path)]
    return found


class BoxTrialRunner(TrialRunner):
    """Runs rollouts of tasks that have an image."""

    _python, _own_programs_first = "python3", True

    def __init__(
        self,
        folder: Path,
        adapter: Adapter,
        hidden: tuple[str, ...],
        server: ServerCommand = NO_SERVER,
    ) -> None:
        super().__init__(folder, METHOD, adapter, hidden, server)
        self._folder = folder / "images"
        self._images: dict[str, Image] = {}

    def prepare_task(self, task: HarborTask) -> None:
        """Build or find a task's image, and copy its working directory; raise `UserError`."""
        assert task.image is not None
        self._images[task.name] = image = prepare_image(task.image)
        source = self._start_tree(task.image)
        if not source.exists():
            copy_out(image, task.workdir, source)

    def _start_tree(self, image: TaskImage) -> Path:
        return self._folder / f"{image.name}:{image.workdir}".replace("/", "_")

    def _fill_tree(self, task: HarborTask, tree: Path) -> None:
        assert task.image is not None
        shutil.copytree(self._start_tree(task.image), tree, symlinks=True)

    def _new_host(
        self,
        task: HarborTask,
        confinement: Confinement,
        job: AgentJob,
        transcript: Path,
        on_end: Callable[[], None],
    ) -> ProgramHost:
        owner = "" if confinement.owner is None else f"{confinement.owner}:{confinement.owner}"
        box = self._new_box(task, confinement, owner)
        going = lambda: True  # noqa: E731
        return BoxHost(box, confinement, self._adapter, job, transcript, on_end, going)

    def _new_box(self, task: HarborTask, confinement: Confinement, user: str) -> Box:
        layout, number = confinement.layout, confinement.agent
        home = (str(layout.home_folder(number)), HOME, True)
        tree = (str(layout.tree_folder(number)), task.workdir, True)
        image = self._images[task.name]
        mounts = [tree, home, *confinement.shown]
        limits = (task.memory_mb, task.storage_mb)
        return Box(image, mounts, task.workdir, *limits, task.network, user)

    async def _start_program(
        self,
        task: HarborTask,
        confinement: Confinement,
        argv: tuple[str, ...],
        variables: Mapping[str, str],
    ) -> SandboxProcess:
        owner = "" if confinement.owner is None else f"{confinement.owner}:{confinement.owner}"
        box = self._new_box(task, confinement, owner)
        box.mounts = [*box.mounts, *visible_mounts(confinement.visible)]
        env = {**variables, "HOME": HOME, MARK: confinement.mark}
        async with box.ended_on_error():
            await asyncio.to_thread(box.start)
            return await BoxProcess.start_in(box, box.command(argv, env, True), env, stdin=True)

    async def _start_script(
        self, task: HarborTask, confinement: Confinement, variables: Mapping[str, str]
    ) -> SandboxProcess:
        box = self._new_box(task, confinement, "")
        shell = "exec $(command -v bash || echo /bin/sh) /tests/test.sh"
        env = {**variables, "HOME": HOME, MARK: confinement.mark}
        async with box.ended_on_error():
            await asyncio.to_thread(box.start)
            line = box.command(["/bin/sh", "-c", shell], env, False)
            return await BoxProcess.start_in(box, line, env)


def copy_out(image: Image, workdir: str, target: Path) -> None:
    """Copy a folder of an image to this machine; without it, make an empty one.

    Raises `UserError` if that fails; then there is no `target`.
    """
    name = container.new_name()
    lock = container.claim_container(image.program, name)
    partial = target.with_name(f"{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        words = ("create", "--pull", "never", "--name", name, image.id, "true")
        ran = container.run_command(image.program, *words)
        if not ran.returncode:
            ran = container.run_command(image.program, "cp", f"{name}:{workdir}/.", str(partial))
    finally:
        container.release_container(image.program, name, lock)
    if ran.returncode and not _MISSING.search(ran.stderr):
        raise UserError(
            f"the working directory {workdir} cannot be copied: {ran.stderr.strip()[-500:]}",
            where=image.program,
            fix="correct that, or declare the tasks plain",
        )
    partial.rename(target)
