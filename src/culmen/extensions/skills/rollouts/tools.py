"""Candidates that are tools: their server in the agent's sandbox, and the log of their use.

The server (`serving`) runs in the agent's own sandbox, started by the agent's program, with the
candidate and the document of its surface read-only. Nothing of a candidate runs in this process.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.agents.adapters import Pipes, programs
from culmen.extensions.agents.adapters.headless import (
    LineReader,
    StreamTail,
    objects_at,
    parse_json_line,
    text_at,
    value_at,
)
from culmen.extensions.agents.sandbox import safe
from culmen.extensions.skills.rollouts import serving
from culmen.extensions.skills.rollouts.toolset import (
    ServedTool,
    ToolFault,
    check_arguments,
)

SERVER = "/skills/.server"  # no skill has a name that begins with a point
LOG = "tools.jsonl"  # in the agent's folder of logs
_SCRIPT, _DOCUMENT = "serving.py", "surface.json"
_LOG_BYTES, _SHOWN_CALLS = 4 << 20, 12
_FIX = "correct [tools] server, and give it what it needs on its command line"


@dataclass(frozen=True)
class ServerCommand:
    """The original server: its command, what must be visible for it, its folders for PATH."""

    argv: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


NO_SERVER = ServerCommand()


def find_server(command: str) -> ServerCommand:
    """The server of a command line, `NO_SERVER` for ""; raise `UserError`."""
    words = split_command(command)
    if not words:
        return NO_SERVER
    found = programs.find_program(words[0], fix="name an installed program, or its path")
    visible = (*found.visible, *programs.mentioned_paths(words[1:]))
    return ServerCommand((*found.command, *words[1:]), visible, found.path)


def split_command(command: str) -> list[str]:
    """The words of a server's command line; raise `UserError`."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UserError(
            f"this command line cannot be read: {error}",
            where=f"server = {command!r}",
            fix="close each quotation mark of it",
        ) from None


def server_line(python: str) -> tuple[str, ...]:
    """The command with which an agent's program starts the server of a candidate's tools."""
    return (python, "-I", f"{SERVER}/{_SCRIPT}", f"{SERVER}/{_DOCUMENT}")


@dataclass(frozen=True)
class ServedWorld:
    """The place of the tools' server: candidate's folder, working directory, variables.

    With `own_first` a program of the world goes before one of this machine with the same name.
    """

    code: str
    folder: str
    variables: Mapping[str, str]
    own_first: bool


def write_server(
    target: Path,
    tools: Sequence[ServedTool] | None,
    server: ServerCommand,
    world: ServedWorld,
    check: bool = False,
) -> None:
    """Write the server's script and its document (`serving`); `tools` None: the server's own."""
    target.mkdir()
    (target / _SCRIPT).write_bytes(Path(serving.__file__).read_bytes())
    rows = None if tools is None else [_row(tool) for tool in tools]
    document = {
        "tools": rows,
        "server": server.argv,
        "own_first": world.own_first,
        "code": world.code,
        "check": check,
        "folder": world.folder,
        "variables": dict(world.variables),
        "path": [] if world.own_first else server.path,
        "log": "" if check else f"/logs/agent/{LOG}",
    }
    (target / _DOCUMENT).write_text(json.dumps(document), encoding="utf-8")


def _row(tool: ServedTool) -> JsonObject:
    return {
        "name": tool.name,
        "own": tool.own_name,
        "description": tool.description,
        "schema": tool.schema,
        "file": tool.file,
        "arguments": tool.arguments,
    }


# -- the server's own tools


async def list_tools(pipes: Pipes) -> list[JsonObject]:
    """The tools that a started server lists; raise `UserError` if it does not answer."""
    gone, complaints = asyncio.Event(), StreamTail()
    aside = asyncio.ensure_future(complaints.collect_lines(LineReader(pipes.stderr, gone)))
    try:
        async with asyncio.timeout(60.0):  # seconds for its start and its list
            return await _ask_for_tools(pipes)
    except (TimeoutError, ConnectionError) as error:
        gone.set()
        await asyncio.wait({aside}, timeout=5.0)
        why = complaints.text.splitlines()[-1:] or [str(error) or "no answer in time"]
        raise UserError(
            f"the server of the tools does not start in the agent's sandbox: {why[0][:300]}",
            where="[tools] server",
            fix=_FIX,
        ) from None
    finally:
        aside.cancel()


async def _ask_for_tools(pipes: Pipes) -> list[JsonObject]:
    about = {"name": "culmen", "version": "1"}
    hello = {"protocolVersion": serving.VERSIONS[-1], "capabilities": {}, "clientInfo": about}
    lines = aiter(LineReader(pipes.stdout, asyncio.Event()))

    async def ask(key: int, method: str, params: JsonObject) -> object:
        _write(pipes, {"jsonrpc": "2.0", "id": key, "method": method, "params": params})
        async for line in lines:
            answer = parse_json_line(line)
            if answer is not None and answer.get("id") == key and "method" not in answer:
                if "error" in answer:
                    raise ConnectionError(text_at(answer, "error", "message"))
                return answer.get("result")
        raise ConnectionError("it ended")

    await ask(1, "initialize", hello)
    _write(pipes, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    found: list[JsonObject] = []
    key, cursor = 2, ""
    while key == 2 or cursor:
        page = await ask(key, "tools/list", {"cursor": cursor} if cursor else {})
        found += objects_at(page, "tools")
        key, cursor = key + 1, text_at(page, "nextCursor")
    return found


def _write(pipes: Pipes, message: JsonObject) -> None:
    assert pipes.stdin is not None
    pipes.stdin.write(json.dumps(message).encode() + b"\n")


def check_server(tools: Sequence[ServedTool], listed: Sequence[JsonObject]) -> None:
    """Raise `UserError` for a tool that the original server lacks, or whose arguments differ."""
    schemas = {text_at(each, "name"): value_at(each, "inputSchema") for each in listed}
    for tool in tools:
        if tool.file:
            continue
        if tool.own_name not in schemas:
            raise UserError(
                f"the server has no tool '{tool.own_name}': it has {', '.join(schemas) or 'none'}",
                where="[tools] server",
                fix="name the tools in tools.json as the server does",
            )
        own = schemas[tool.own_name]
        properties, required = value_at(own, "properties"), value_at(own, "required")
        known = {
            str(name): name in (required if isinstance(required, list) else ())
            for name in (properties if isinstance(properties, dict) else ())
        }
        try:
            if tool.schema is not None:
                check_arguments(tool, known)
        except ToolFault as fault:
            raise UserError(
                str(fault), where="inputSchema", fix="describe the server's arguments"
            ) from None


# -- the use of the tools, as the agent's side tells it


def read_log(folder: Path) -> list[JsonObject]:
    """Rows of the server's log: `listed`, `call` or `result`; the agent could change them."""
    try:
        data = safe.read_regular_file(folder, LOG, _LOG_BYTES)
    except (safe.IntakeRefused, OSError):
        return []
    return [row for line in data.splitlines() if (row := parse_json_line(line)) is not None]


def count_uses(log: Sequence[JsonObject]) -> int:
    """The calls that reached the server."""
    return sum(isinstance(row.get("call"), str) for row in log)


def uses_text(log: Sequence[JsonObject]) -> str:
    """The last calls in words, for the proposer."""
    if not any("listed" in row for row in log):
        return "The agent did not ask for the list of the tools."
    lines = [_use_line(row) for row in log if "listed" not in row]
    return "\n".join(["Calls of the tools:", *(lines[-_SHOWN_CALLS:] or ["none"])])


def _use_line(row: JsonObject) -> str:
    if "call" in row:
        return f"{text_at(row, 'call')[:80]} {text_at(row, 'arguments')[:300]}"
    return f"  {'failed: ' if row.get('failed') else ''}{text_at(row, 'text')[:300]}"
