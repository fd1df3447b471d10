"""The verb `tools`: the tools of an MCP server as a first candidate."""

from __future__ import annotations

import asyncio
import json
import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import VerbTable
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.skills.rollouts.toolset import FILES, schema_fault


def tools(
    screen: Screen,
    server: Annotated[
        str,
        typer.Argument(
            metavar="SERVER", help="Command of an MCP server on standard input and output."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the candidate.")] = Path(
        "tools"
    ),
) -> Answer:
    """Write the tools of an MCP server into DIR/tools.json, for a search of better descriptions.

    The server runs in the sandbox of agents, without a network.
    """
    if there := next((name for name in FILES if (out / name).exists()), ""):
        raise UserError("the candidate has tools already", where=str(out / there), fix="--out DIR")
    found = asyncio.run(_list_server_tools(absolute_words(server)))
    table = {str(tool["name"]): _table_of(tool) for tool in found}
    if not table:
        raise UserError("the server lists no tools", where=server, fix="name one that does")
    out.mkdir(parents=True, exist_ok=True)
    file = out / FILES[0]
    file.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    words = f"{len(table)} tools in {file}: {', '.join(table)}"
    return Answer({"file": str(file), "tools": list(table)}, lambda screen: screen.out.print(words))


def absolute_words(command: str) -> str:
    """A command line whose relative paths, which only this folder has, are absolute."""
    from culmen.extensions.skills.rollouts.tools import split_command

    words = split_command(command)
    return shlex.join(str(Path(word).resolve()) if Path(word).exists() else word for word in words)


def _table_of(tool: JsonObject) -> JsonObject:
    """The table of a tool; without a description its name, which is what agents see of it."""
    schema = tool.get("inputSchema")
    description = str(tool.get("description") or "").strip() or str(tool["name"]).replace("_", " ")
    is_kept = isinstance(schema, dict) and not schema_fault(schema)
    return {"description": description, **({"inputSchema": schema} if is_kept else {})}


async def _list_server_tools(server: str) -> list[JsonObject]:
    from culmen.extensions.agents.adapters.catalog import adapter_by_name
    from culmen.extensions.agents.sandbox.confinement import choose_method
    from culmen.extensions.agents.sandbox.settings import SandboxSettings
    from culmen.extensions.skills.rollouts.harbor import HarborTask
    from culmen.extensions.skills.rollouts.skill import Skill
    from culmen.extensions.skills.rollouts.tools import find_server
    from culmen.extensions.skills.rollouts.trial import TrialRunner

    command = find_server(server)
    if not command.argv:
        raise UserError(
            "no server is named", where="culmen skill tools", fix="culmen skill tools COMMAND"
        )
    method = await asyncio.to_thread(choose_method, SandboxSettings())
    with tempfile.TemporaryDirectory(prefix="culmen-tools-") as folder:
        runner = TrialRunner(Path(folder), method, adapter_by_name("cmd: true"), (), command)
        skill = Skill("tools", {}, is_skill=False, is_tools=True)
        return await runner.list_tools(HarborTask("tools", folder, ""), skill)


VERBS = VerbTable("Skills", groups={"skill": ("", {"tools": tools})})
