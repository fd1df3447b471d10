"""Tools of an agent without a process, run by a small program in the agent's sandbox.

    command (command)              read (path, offset, limit: lines)      list (path)
    write (path, text)             edit (path, old, new: once)            append (path, text)

A call that was answered before a crash has the same answer again. A command that a crash cut off is
not run a second time: it has the fault `interrupted`, since half of it may have been done.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from culmen.core.json import JsonObject
from culmen.extensions.agents.messages import Tool, ToolOutput, to_plain_data
from culmen.extensions.agents.sandbox.confinement import (
    SCRIPTS,
    Confinement,
    agent_environment,
    confined_command,
    prepare_folders,
)
from culmen.extensions.agents.sandbox.intake import printable_text
from culmen.extensions.agents.sandbox.layout import RecordLog
from culmen.extensions.agents.sandbox.process import SandboxProcess, watch_limits
from culmen.extensions.agents.sandbox.settings import WORD_CHARS

SECONDS = 600.0  # longest time of a command, whatever its request
_GRACE = 10.0  # seconds for the process of tools itself, beside the command
_LAST = 16  # calls that may be repeated; earlier ones are in the journal
_LARGEST = 1 << 20  # characters of a file that is written
_ARGUMENTS = {
    "command": ("command",),
    "read": ("path", "offset", "limit"),
    "list": ("path",),
    "write": ("path", "text"),
    "edit": ("path", "old", "new"),
    "append": ("path", "text"),
}


class SandboxTools:
    """The tools of one session; `log` records calls that must not be made twice."""

    def __init__(self, confinement: Confinement, log: Path, going: Callable[[], bool]) -> None:
        self._confinement, self._log, self._going = confinement, RecordLog(log), going
        self._known = {record["nth"]: record for record in self._log.records[-_LAST:]}
        self._running: SandboxProcess | None = None
        self._guard: asyncio.Task[None] | None = None
        self._cause = ""
        self._turn = asyncio.Lock()

    async def answer_call(self, call: Tool) -> ToolOutput:
        """Make one call; calls of one agent run one after another."""
        async with self._turn:
            return await self._answer_call(call)

    async def _answer_call(self, call: Tool) -> ToolOutput:
        known = self._known.get(call.nth, {})
        if "told" in known:
            return msgspec.convert(known["told"], ToolOutput)
        fault = _call_fault(call)
        if fault:
            return fault
        if call.tool == "command":
            if known:
                return self._record_output(
                    call.nth,
                    ToolOutput(
                        "culmen was stopped while this ran; look what it has done", "interrupted"
                    ),
                )
            self._remember_call({"nth": call.nth})
            seconds = min(max(1.0, call.seconds), SECONDS)
            return self._record_output(
                call.nth,
                await self._ask_toolbox("command", {**call.arguments, "seconds": seconds}, seconds),
            )
        if call.tool in ("edit", "append"):
            if "text" not in known:
                output = await self._ask_toolbox(
                    call.tool, call.arguments, call.seconds, uncut=True
                )
                if output.fault:
                    return output
                self._remember_call({"nth": call.nth, "text": output.text})
            text = self._known[call.nth]["text"]
            return await self._ask_toolbox(
                "write", {"path": call.arguments["path"], "text": text}, call.seconds
            )
        return await self._ask_toolbox(call.tool, call.arguments, call.seconds)

    def _remember_call(self, record: JsonObject) -> None:
        self._log.append_record(record)
        self._known[record["nth"]] = record
        while len(self._known) > _LAST:
            del self._known[next(iter(self._known))]
        self._log.records.clear()

    def _record_output(self, nth: int, output: ToolOutput) -> ToolOutput:
        self._remember_call({"nth": nth, "told": to_plain_data(output)})
        return output

    async def _ask_toolbox(
        self, tool: str, arguments: JsonObject, seconds: float, *, uncut: bool = False
    ) -> ToolOutput:
        try:
            running = await self._running_toolbox()
            pipes = running.pipes
            assert pipes.stdin is not None
            pipes.stdin.write(json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n")
            await asyncio.wait_for(pipes.stdin.drain(), _GRACE)
            line = await asyncio.wait_for(pipes.stdout.readuntil(b"\n"), seconds + _GRACE)
            output = msgspec.json.decode(line, type=ToolOutput)
        except (
            OSError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ValueError,
        ) as error:
            await self.end()  # the next call gets a fresh sandbox
            cause, self._cause = self._cause, ""
            what = (
                f"the sandbox was ended: {cause}"
                if cause
                else f"the tools do not answer: {type(error).__name__}"
            )
            return ToolOutput(what, cause or "lost")
        except asyncio.CancelledError:
            await self.end()  # else its answer would be read as the next call's
            raise
        text = output.text if uncut else printable_text(output.text, WORD_CHARS)
        return ToolOutput(text, printable_text(output.fault, 40), output.code)

    async def _running_toolbox(self) -> SandboxProcess:
        if self._running is None or self._running.has_ended:
            await self.end()
            prepare_folders(self._confinement)
            script = [
                sys.executable,
                "-I",
                "-S",
                str(SCRIPTS / "toolbox.py"),
                "1" if self._confinement.method else "0",
            ]
            env = agent_environment(self._confinement, {})
            cwd = None if self._confinement.method else Path(self._confinement.tree)
            self._running = await SandboxProcess.start(
                confined_command(self._confinement, script), env, stdin=True, cwd=cwd
            )
            self._guard = asyncio.create_task(self._enforce_limits(self._running))
        return self._running

    async def _enforce_limits(self, running: SandboxProcess) -> None:
        folders = [self._confinement.layout.work_folder(self._confinement.agent)]
        self._cause = await watch_limits(
            running.pid, folders, self._confinement.settings, self._going, lambda: running.has_ended
        )
        if self._cause:
            await running.end()

    async def end(self) -> None:
        """End the sandbox; the next call starts another."""
        running, self._running = self._running, None
        guard, self._guard = self._guard, None
        if running is not None:
            await running.end()
        if guard is not None:
            guard.cancel()
            await asyncio.gather(guard, return_exceptions=True)

    async def close(self) -> None:
        """End the sandbox and close the log."""
        await self.end()
        self._log.close()


def _call_fault(call: Tool) -> ToolOutput | None:
    """The fault of an invalid call; None for a valid one."""
    names = _ARGUMENTS.get(call.tool)
    if names is None:
        return ToolOutput(
            f"there is no tool {call.tool}; there are {', '.join(_ARGUMENTS)}", "unknown_tool"
        )
    unknown = [name for name in call.arguments if name not in names]
    needed = names[:1] if call.tool in ("read", "list") else names
    lacking = [name for name in needed if name not in call.arguments and call.tool != "list"]
    if unknown or lacking:
        return ToolOutput(f"{call.tool} takes {', '.join(names)}", "bad_arguments")
    for name, value in call.arguments.items():
        if not isinstance(value, int if name in ("offset", "limit") else str):
            return ToolOutput(f"{name} has the wrong type", "bad_arguments")
        if isinstance(value, str) and len(value) > _LARGEST:
            return ToolOutput(f"{name} is longer than {_LARGEST} characters", "too_large")
    return None
