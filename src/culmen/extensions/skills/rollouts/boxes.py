"""Rollouts of tasks that need their container: one for the agent, a fresh one for the tests.

The working directory, HOME and the logs are folders of this machine, mounted into both kinds of
container, so what an agent may leave is the same as without one (`trial`): the regular files of the
working directory. Whatever else it changed in its container is gone when the tests begin.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from culmen.core.errors import UserError
from culmen.extensions.agents.adapters import Adapter, AgentJob, Plan
from culmen.extensions.agents.sandbox.confinement import (
    HOME,
    MARK,
    Confinement,
    ConfinementMethod,
    agent_environment,
    port_of,
)
from culmen.extensions.agents.sandbox.process import ProgramHost, SandboxProcess
from culmen.extensions.containers.engine import Box, Image, copy_from_image, stand_ins
from culmen.extensions.skills.rollouts.harbor import HarborTask
from culmen.extensions.skills.rollouts.images import TaskImage, prepare_image
from culmen.extensions.skills.rollouts.tools import NO_SERVER, ServerCommand
from culmen.extensions.skills.rollouts.trial import TrialRunner
from culmen.jail import bubblewrap

METHOD = ConfinementMethod("uid" if os.geteuid() == 0 else "user", True, "container")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # of an image, never of this machine


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
        await asyncio.to_thread(self.box.delete)
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
        relay = str(bubblewrap.PACKAGE / "extensions" / "agents" / "gateway" / "relay.py")
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


def _user_of(confinement: Confinement) -> str:
    """The agent's user and group, "" for the one that runs culmen."""
    return "" if confinement.owner is None else f"{confinement.owner}:{confinement.owner}"


class BoxTrialRunner(TrialRunner):
    """Runs rollouts of tasks that have an image."""

    _python, _own_programs_first = "python3", True
    _script = ("/bin/sh", "-c", "exec $(command -v bash || echo /bin/sh) /tests/test.sh")

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
            copy_from_image(image, task.workdir, source)

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
        box = self._new_box(task, confinement, _user_of(confinement))
        return BoxHost(box, confinement, self._adapter, job, transcript, on_end, lambda: True)

    def _new_box(self, task: HarborTask, confinement: Confinement, user: str) -> Box:
        layout, number = confinement.layout, confinement.agent
        home = (str(layout.home_folder(number)), HOME, True)
        tree = (str(layout.tree_folder(number)), task.workdir, True)
        image = self._images[task.name]
        mounts = [tree, home, *confinement.shown]
        limits = (task.memory_mb or 0, task.storage_mb)
        network, cpus = confinement.network, task.cpus or 0.0
        return Box(image, mounts, task.workdir, *limits, network, user, cpus)

    async def _start_program(
        self,
        task: HarborTask,
        confinement: Confinement,
        argv: tuple[str, ...],
        variables: Mapping[str, str],
        *,
        is_agent: bool = True,
    ) -> SandboxProcess:
        box = self._new_box(task, confinement, _user_of(confinement) if is_agent else "")
        box.mounts = [*box.mounts, *visible_mounts(confinement.visible)]
        env = {**variables, "HOME": HOME, MARK: confinement.mark}
        async with box.ended_on_error():
            await asyncio.to_thread(box.start)
            line = box.command(argv, env, is_agent)
            return await BoxProcess.start_in(box, line, env, stdin=is_agent)
