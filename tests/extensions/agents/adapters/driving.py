"""Starting a plan without a sandbox, and listening to it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from culmen.extensions.agents.adapters import AgentJob, Parting, Pipes, ProgramEvent
from culmen.extensions.agents.adapters.catalog import adapter_by_name

FIXTURES = Path(__file__).parents[3] / "fixtures" / "agents"
STREAMS = FIXTURES / "streams"


def job(tmp_path: Path, prompt: str = "improve it", **fields: object) -> AgentJob:
    """A job in a folder of its own."""
    tree, home = tmp_path / "tree", tmp_path / "home"
    tree.mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    return AgentJob(str(tree), str(home), prompt, **fields)  # type: ignore[arg-type]


class Signs(list[ProgramEvent]):
    """The events that were heard."""

    def __call__(self, sign: ProgramEvent) -> None:
        self.append(sign)

    def of(self, kind: str) -> list[str]:
        """The texts of one kind."""
        return [sign.text for sign in self if sign.kind == kind]


@asynccontextmanager
async def started(*argv: str, cwd: str = ".", stdin: bool = True) -> AsyncIterator[Pipes]:
    """A program in a process group of its own, which is ended at last."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        start_new_session=True,
    )
    ended = asyncio.get_running_loop().run_in_executor(None, process.wait)
    try:
        out, err = await _reader(process.stdout), await _reader(process.stderr)
        yield Pipes(out, err, lambda: ended, await _writer(process.stdin) if stdin else None)
    finally:
        end(process)
        await ended


def end(process: subprocess.Popen[bytes]) -> None:
    """The whole group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def replayed(kind: str, file: Path, code: int, work: AgentJob, signs: Signs) -> Parting:
    """The adapter's result for a program that prints a file."""
    return read_script(kind, f"cat {shlex.quote(str(file))}; exit {code}", work, signs)


def read_script(kind: str, script: str, work: AgentJob, signs: Signs) -> Parting:
    """The adapter's result for a program that is a shell script."""

    async def go() -> Parting:
        async with started("/bin/sh", "-c", script, stdin=False) as pipes:
            return await adapter_by_name(kind).open_dialogue(pipes, work, signs).run()

    return asyncio.run(go())


def python(script: str, *arguments: str) -> tuple[str, ...]:
    """A fixture program's command line."""
    return (sys.executable, str(FIXTURES / script), *arguments)


async def _reader(pipe: object) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader


async def _writer(pipe: object) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), pipe
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
