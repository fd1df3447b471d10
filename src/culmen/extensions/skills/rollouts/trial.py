"""One rollout: the agent's world, then the tests' world without the agent's code.

The agent works in a copy of the environment, with the candidate mounted read-only; it sees neither
the tests nor the reward. When all its processes are gone, the regular files that it left in the
working directory are copied into a second sandbox, where the task's tests run: links that leave the
directory, devices and pipes are dropped, and HOME, temporary files and variables are fresh.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from culmen.core.foreign import Unreadable
from culmen.core.inside import files_inside, path_inside
from culmen.core.json import JsonObject
from culmen.core.usage import Usage
from culmen.extensions.agents.adapters import Adapter, AgentJob
from culmen.extensions.agents.adapters.headless import LineReader, StreamTail, wait_for_exit
from culmen.extensions.agents.adapters.programs import InstalledProgram
from culmen.extensions.agents.sandbox import safe, worktree
from culmen.extensions.agents.sandbox.confinement import (
    HOME,
    PORT,
    Confinement,
    ConfinementMethod,
    agent_environment,
    confined_command,
    prepare_folders,
)
from culmen.extensions.agents.sandbox.layout import Layout
from culmen.extensions.agents.sandbox.process import ProgramHost, SandboxProcess, watch_limits
from culmen.extensions.agents.sandbox.settings import SandboxSettings
from culmen.extensions.compat.harbor_task import parse_rewards
from culmen.extensions.skills.rollouts import skill as skills
from culmen.extensions.skills.rollouts import tools
from culmen.extensions.skills.rollouts import trajectory as atif
from culmen.extensions.skills.rollouts.harbor import HarborTask
from culmen.extensions.skills.rollouts.skill import Skill
from culmen.extensions.skills.rollouts.tools import ServerCommand
from culmen.extensions.skills.rollouts.toolset import read_tools

SEED_VARIABLE, SKILL_VARIABLE = "CULMEN_SEED", "CULMEN_SKILL"
_NAMED_REWARDS, _ONE_REWARD = "reward.json", "reward.txt"
_KEPT = 4_000  # characters kept of the tests' output
_VERIFIER = 5_000  # added to a slot's number: the tests' user is not the agent's
# the tests' Python imports nothing from the working directory by accident, their git obeys no
# settings of a repository there
_SAFE = {
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": "/dev/null",
}


@dataclass(frozen=True)
class Access:
    """An agent's way to its model.

    `token` and `socket` are those of the gateway ("" and None: no model). `exhausted` returns when
    a budget is spent.
    """

    model: str = ""
    token: str = ""
    socket: Path | None = None
    exhausted: Callable[[], Awaitable[str]] | None = None


class RolloutTrial(msgspec.Struct, frozen=True):
    """The result of a rollout.

    rewards     by name, as the tests wrote them; empty if they wrote none that can be read
    ended       how the agent ended: finished, crashed, seconds, calls, tokens, dollars, memory, ...
    fault       "" | tests_timeout | no_reward | bad_reward | too_much_left | unreadable
    uses        rows of the tools' log (`tools.read_log`); None without tools
    code        exit code of tests/test.sh; None if it did not end by itself
    path        PATH of the tests
    """

    rewards: dict[str, float]
    ended: str
    why: str
    fault: str
    tests: str
    trajectory: JsonObject
    seconds: float
    uses: list[JsonObject] | None = None
    code: int | None = None
    path: str = ""


class TestsEnd(NamedTuple):
    """The end of a task's tests; the fields are those of `RolloutTrial`."""

    fault: str
    rewards: dict[str, float]
    printed: str = ""
    code: int | None = None
    path: str = ""


class TrialRunner:
    """Runs rollouts in numbered slots below a private folder.

    `server` is the one whose tools a candidate describes, `packages` a virtual environment that
    agents and tests use first.
    """

    _python, _own_programs_first = sys.executable, False
    _script: tuple[str, ...] = (
        "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh",
        "/tests/test.sh",
    )

    def __init__(
        self,
        folder: Path,
        method: ConfinementMethod,
        adapter: Adapter,
        hidden: tuple[str, ...],
        server: ServerCommand = tools.NO_SERVER,
        packages: InstalledProgram | None = None,
    ) -> None:
        self._layout, self._method, self._server = Layout(folder), method, server
        self._adapter, self._hidden, self._packages = adapter, hidden, packages
        self._layout.create_folders()

    async def run(
        self, task: HarborTask, skill: Skill, slot: int, seed: int, access: Access
    ) -> RolloutTrial:
        """One rollout. Raises `UserError` for an agent that cannot be started."""
        started, began = time.time(), time.monotonic()
        try:
            await asyncio.to_thread(self._prepare_agent, task, skill, slot)
            ended, why = await self._run_agent(task, skill, slot, seed, access)
            rows = atif.read_rows(self._layout.transcript_file(slot))
            about = {"name": self._adapter.name, "version": "unknown"}
            about |= {"model_name": access.model} if access.model else {}
            trajectory = self._left_trajectory(slot) or atif.build_trajectory(
                about, task.instruction, rows, started, Usage()
            )
            uses = tools.read_log(self._agent_logs(slot)) if skill.is_tools else None
            tests = await self._run_tests(task, slot, trajectory)
        finally:
            await asyncio.to_thread(self._remove_worlds, slot)
        seconds = time.monotonic() - began
        return RolloutTrial(
            tests.rewards,
            ended,
            why,
            tests.fault,
            tests.printed,
            trajectory,
            seconds,
            uses,
            tests.code,
            tests.path,
        )

    async def check_tools(self, task: HarborTask, skill: Skill) -> None:
        """Start the tools' server in the agent's world; raise `UserError` if it does not fit."""
        listed = await self.list_tools(task, skill)
        if self._server.argv:
            tools.check_server(read_tools(skill.parts), listed)

    async def list_tools(self, task: HarborTask, skill: Skill) -> list[JsonObject]:
        """The tools of the original server, else those of the candidate; raise `UserError`."""
        try:
            await asyncio.to_thread(self._prepare_agent, task, skill, 0, check=True)
            confinement = self._agent_confinement(task, skill, 0)
            line = tools.server_line(self._python)
            running = await self._start_program(task, confinement, line, task.variables)
            try:
                return await tools.list_tools(running.pipes)
            finally:
                await running.end()
        finally:
            await asyncio.to_thread(self._remove_worlds, 0)

    def _confinement(self, task: HarborTask, number: int, network: bool) -> Confinement:
        memory_mb = task.memory_mb or machine_memory_mb()
        settings = SandboxSettings(memory_mb=memory_mb, disk_mb=task.storage_mb)
        venv = self._packages
        folder = () if venv is None else (os.path.dirname(venv.file),)
        return Confinement(
            self._layout,
            number,
            settings,
            self._method.name,
            self._method.proc,
            hidden=self._hidden,
            network=network,
            place=task.workdir,
            view=False,
            path=folder,
            visible=() if venv is None else venv.visible,
        )

    def _remove_worlds(self, slot: int) -> None:
        for number in (slot, slot + _VERIFIER):
            shutil.rmtree(self._layout.work_folder(number), ignore_errors=True)
        self._layout.transcript_file(slot).unlink(missing_ok=True)

    # -- the agent's world

    def _skill_folder(self, slot: int) -> Path:
        return self._layout.work_folder(slot) / "skill"

    def _agent_logs(self, slot: int) -> Path:
        return self._layout.work_folder(slot) / "logs"

    def _server_folder(self, slot: int) -> Path:
        return self._layout.work_folder(slot) / "server"

    def _write_server(
        self, task: HarborTask, skill: Skill, slot: int, tree: str, check: bool
    ) -> None:
        """Write what serves the tools; to check them, the original server's own are listed."""
        shown = None if check and self._server.argv else read_tools(skill.parts)
        variables = {**task.variables, SKILL_VARIABLE: skill.place}
        world = tools.ServedWorld(skill.place, tree, variables, self._own_programs_first)
        tools.write_server(self._server_folder(slot), shown, self._server, world, check)

    def _prepare_agent(
        self, task: HarborTask, skill: Skill, slot: int, *, check: bool = False
    ) -> None:
        self._remove_worlds(slot)
        confinement = self._confinement(task, slot, task.network)
        prepare_folders(confinement)
        home = self._layout.home_folder(slot)
        self._fill_tree(task, self._layout.tree_folder(slot))
        self._skill_folder(slot).mkdir()
        for name, text in skill.parts.items():
            file = self._skill_folder(slot) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            if text.startswith("#!"):
                file.chmod(0o755)
        for inside, below in skills.places(skill, self._adapter.name):
            mount_point = home / below
            mount_point.parent.mkdir(parents=True, exist_ok=True)
            is_file = (self._skill_folder(slot) / inside).is_file()
            mount_point.touch() if is_file else mount_point.mkdir()
        self._agent_logs(slot).mkdir()
        if skill.is_tools:
            self._write_server(task, skill, slot, confinement.tree, check)
        worktree.set_tree_owner(self._layout.work_folder(slot), confinement.owner)

    def _fill_tree(self, task: HarborTask, tree: Path) -> None:
        """Put the environment's files into the working directory."""
        for source, place in task.copies:
            _copy_in(Path(task.folder) / "environment" / source, tree / place)
        tree.mkdir(exist_ok=True)

    def _agent_confinement(self, task: HarborTask, skill: Skill, slot: int) -> Confinement:
        """The agent's confinement, with the candidate read-only."""
        folder = self._skill_folder(slot)
        shown = [(str(folder), skill.place, False)]
        shown.append((str(self._agent_logs(slot)), "/logs/agent", True))
        for inside, below in skills.places(skill, self._adapter.name):
            shown.append((str(folder / inside), f"{HOME}/{below}", False))
        if skill.is_tools:
            shown.append((str(self._server_folder(slot)), tools.SERVER, False))
        plain = self._confinement(task, slot, task.network)
        visible = (*plain.visible, *self._server.visible)
        return replace(plain, shown=tuple(shown), visible=visible)

    def _new_host(
        self,
        task: HarborTask,
        confinement: Confinement,
        job: AgentJob,
        transcript: Path,
        on_end: Callable[[], None],
    ) -> ProgramHost:
        """The host of the agent's program."""
        return ProgramHost(confinement, self._adapter, job, transcript, on_end, lambda: True)

    async def _run_agent(
        self, task: HarborTask, skill: Skill, slot: int, seed: int, access: Access
    ) -> tuple[str, str]:
        """The end of the agent's program, with its reason."""
        place = skill.place
        confinement = replace(self._agent_confinement(task, skill, slot), socket=access.socket)
        job = AgentJob(
            confinement.tree,
            confinement.home,
            skills.prompt_for(skill, self._adapter.name, task.instruction),
            access.model,
            f"http://127.0.0.1:{PORT}" if access.token else "",
            access.token,
            skill=place,
            variables={**task.variables, SEED_VARIABLE: str(seed), SKILL_VARIABLE: place},
            tools=tools.server_line(self._python) if skill.is_tools else (),
        )
        over = asyncio.Event()
        transcript = self._layout.transcript_file(slot)
        host = self._new_host(task, confinement, job, transcript, over.set)
        try:
            await host.start()
            cause = await _wait_for_end(over, task.agent_seconds, access)
            if host.failure is not None:
                raise host.failure
            if cause and not host.has_ended:
                await host.end(cause)
        finally:
            await host.end("stopped")
        parting = host.parting
        assert parting is not None
        return (host.cause, "") if host.cause else (parting.ended, parting.why)

    def _left_trajectory(self, slot: int) -> JsonObject | None:
        try:
            data = safe.read_regular_file(self._agent_logs(slot), atif.FILE, atif.LONGEST)
        except (safe.IntakeRefused, OSError):
            return None
        try:
            return atif.parse_trajectory(data)
        except Unreadable:
            return None

    # -- the tests' world

    async def _run_tests(self, task: HarborTask, slot: int, trajectory: JsonObject) -> TestsEnd:
        """Run the tests on the files that the agent left."""
        number = slot + _VERIFIER
        confinement = self._confinement(task, number, task.verifier_network)
        prepare_folders(confinement)
        left, tree = self._layout.tree_folder(slot), self._layout.tree_folder(number)
        try:
            copied = await asyncio.to_thread(copy_left_files, left, tree, task.storage_mb << 20)
        except PermissionError:  # not as root: a folder that the agent has closed
            return TestsEnd("unreadable", {})
        if not copied:
            return TestsEnd("too_much_left", {})
        work = self._layout.work_folder(number)
        logs, rewards = work / "logs", work / "rewards"
        for folder in (logs, rewards):
            folder.mkdir()
        (logs / atif.FILE).write_text(json.dumps(trajectory), encoding="utf-8")
        await asyncio.to_thread(worktree.set_tree_owner, work, confinement.owner)
        confinement = replace(
            confinement,
            shown=(
                (f"{task.folder}/tests", "/tests", False),
                (str(logs), "/logs/agent", False),
                (str(rewards), "/logs/verifier", True),
            ),
        )
        variables = {**task.variables, **_SAFE, **task.verifier_variables}
        running = await self._start_program(
            task, confinement, self._script, variables, is_agent=False
        )
        code, printed = await _finish_script(running, confinement, task.verifier_seconds)
        path = agent_environment(confinement, variables)["PATH"]
        if code is None:
            return TestsEnd("tests_timeout", {}, printed, code, path)
        found = read_rewards(rewards, task.names_reward_json)
        return TestsEnd(*found, printed, code, path)

    async def _start_program(
        self,
        task: HarborTask,
        confinement: Confinement,
        argv: tuple[str, ...],
        variables: Mapping[str, str],
        *,
        is_agent: bool = True,
    ) -> SandboxProcess:
        """Start a program: in the agent's world one that reads its standard input, or the tests."""
        line = confined_command(confinement, argv)
        return await SandboxProcess.start(
            line, agent_environment(confinement, variables), stdin=is_agent
        )


async def _wait_for_end(over: asyncio.Event, seconds: float, access: Access) -> str:
    """Wait until the program has ended; the limit that it reached, "" if none."""
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(over.wait())]
    if access.exhausted is not None:
        waiting.append(asyncio.ensure_future(access.exhausted()))
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if over.is_set():
            return ""
        spent = waiting[1].result() if len(waiting) > 1 and waiting[1].done() else ""
        return str(spent or "seconds")
    finally:
        for each in waiting:
            each.cancel()


async def _finish_script(
    running: SandboxProcess, confinement: Confinement, seconds: float
) -> tuple[int | None, str]:
    """Wait until a script ends; its exit code, None out of time, and the end of its output."""
    gone, tail = asyncio.Event(), StreamTail(_KEPT)
    pipes = running.pipes
    ending = asyncio.ensure_future(wait_for_exit(pipes.wait(), gone))
    watching = asyncio.ensure_future(
        watch_limits(
            running.pid,
            [confinement.layout.work_folder(confinement.agent), *running.folders],
            confinement.settings,
            lambda: True,
            lambda: running.has_ended,
        )
    )
    reading = asyncio.gather(
        *(tail.collect_lines(LineReader(stream, gone)) for stream in (pipes.stdout, pipes.stderr))
    )
    try:
        limit = asyncio.ensure_future(_broken_limit(watching))
        await asyncio.wait({ending, limit}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        code = ending.result() if ending.done() else None
        limit.cancel()
    finally:
        await running.end()
        watching.cancel()
        await asyncio.gather(reading, ending, watching, return_exceptions=True)
    return code, tail.text


async def _broken_limit(watching: asyncio.Future[str]) -> None:
    """Return when a limit is broken, never if the process ends by itself."""
    if not await watching:
        await asyncio.Event().wait()


def _copy_in(source: Path, target: Path) -> None:
    """Copy a file or folder of the environment; the Dockerfile itself is not part of it."""
    if path_inside(source.parent, source.name).is_dir():
        files_inside(source)
        names = shutil.ignore_patterns("Dockerfile", ".dockerignore")
        shutil.copytree(source, target, ignore=names, dirs_exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def copy_left_files(source: Path, target: Path, limit: int) -> bool:
    """Copy the folders, regular files and inner links of a folder; False if it is too large.

    Nothing is followed out of `source`; sockets, pipes, devices and links that lead out of the
    folder are left out, and no file stays privileged.
    """
    target.mkdir()
    count, size, links = 0, 0, list[Path]()
    queue = [(source, target)]
    while queue:
        here, there = queue.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                count += 1
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    (there / entry.name).mkdir()
                    queue.append((Path(entry.path), there / entry.name))
                elif stat.S_ISREG(mode):
                    size += entry.stat(follow_symlinks=False).st_size
                    if size > limit:
                        return False
                    shutil.copyfile(entry.path, there / entry.name, follow_symlinks=False)
                    os.chmod(there / entry.name, 0o644 | (mode & 0o111))
                elif stat.S_ISLNK(mode) and not os.path.isabs(to := os.readlink(entry.path)):
                    os.symlink(to, there / entry.name)
                    links.append(there / entry.name)
                if count > 50_000:  # files that an agent may leave
                    return False
    root = os.path.realpath(target)
    for link in links:
        if not Path(os.path.realpath(link)).is_relative_to(root):
            link.unlink()
    return True


def read_rewards(folder: Path, expects_named: bool) -> tuple[str, dict[str, float]]:
    """Fault and rewards of a folder /logs/verifier (`compat.harbor_task.parse_rewards`)."""
    found: dict[str, bytes] = {}
    try:
        for name in (_NAMED_REWARDS, _ONE_REWARD):
            if os.path.lexists(folder / name):
                found[name] = safe.read_regular_file(folder, name, 64 * 1024)  # bytes of a reward
        if not found:
            return "no_reward", {}
        rewards = parse_rewards(found.get(_NAMED_REWARDS), found.get(_ONE_REWARD), expects_named)
    except (safe.IntakeRefused, OSError, ValueError):
        return "bad_reward", {}
    return "", rewards


def machine_memory_mb() -> int:
    """Memory of this machine in MB, which bounds a task without a limit."""
    return (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) >> 20
