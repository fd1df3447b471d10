"""An MCP server, a client as an agent, and folders of tasks with tools for tests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.extensions.skills.rollouts.form import RolloutBackend, read_skill_folder
from tests.extensions.skills.rollouts.folders import ANSWER, harbor_task, run, write

# a server as one writes it by hand: two tools on two pages, a notification, an error for what it
# does not know
SERVER = """import json, sys
TOOLS = [
    {"name": "fetch", "description": "Fetch.", "title": "kept", "inputSchema": {"type": "object", "properties":
        {"key": {"type": "string"}, "loud": {"type": "boolean"}}, "required": ["key"]}},
    {"name": "wipe", "description": "Wipe.", "inputSchema": {"type": "object"}},
]
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"}, "instructions": "Be kind."}
    if method == "tools/list":
        return {"tools": TOOLS[1:]} if params.get("cursor") else {"tools": TOOLS[:1], "nextCursor": "2"}
    if method != "tools/call":
        return None
    if params["name"] == "fetch" and set(params["arguments"]) <= {"key", "loud"}:
        return {"content": [{"type": "text", "text": "the answer is " + params["arguments"]["key"]}]}
    return {"content": [{"type": "text", "text": "no such argument"}], "isError": True}
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        news = {"level": "info", "data": "busy"}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": news}))
        found = answer(request["method"], request.get("params", {}))
        body = {"error": {"code": -32601, "message": "unknown"}} if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
"""
# the client: lists the tools, calls those of its first argument in order, writes the last text to
# answer.txt
CLIENT = """import json, os, shlex, subprocess, sys
server = subprocess.Popen(shlex.split(os.environ["CULMEN_TOOLS"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def ask(key, method, **params):
    message = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
    server.stdin.write(json.dumps(message).encode() + b"\\n")
    server.stdin.flush()
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == key:
            return answer.get("result") or answer["error"]
hello = ask("a", "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"})
tools, cursor = [], None
while cursor is not False:
    page = ask("b", "tools/list", **({"cursor": cursor} if cursor else {}))
    tools += page["tools"]
    cursor = page.get("nextCursor", False)
print(json.dumps(tools))
text = ""
for number, (name, given) in enumerate(json.loads(sys.argv[1])):
    result = ask(number, "tools/call", name=name, arguments=given)
    text = result["content"][0]["text"] if "content" in result else result["message"]
    print(name, "->", text)
open("answer.txt", "w").write(text)
"""
CHEAP = 'echo "$(cmp -s /app/answer.txt /tests/expected.txt && echo 1 || echo 0)" > /logs/verifier/reward.txt\n'
FETCH = {
    "description": "Fetches a value.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "Its key."},
            "loud": {"type": "boolean"},
        },
        "required": ["key"],
    },
}
CALLS = [["fetch", {"key": "42"}]]


def tools_task(
    folder: Path,
    parts: Mapping[str, str],
    calls: Sequence[object] = CALLS,
    more: str = "",
    **settings: str,
) -> Task:
    """A folder with tools, an agent that calls them, and one task."""
    agent = settings.pop(
        "agent", f"cmd: {sys.executable} {{folder}}/client.py '{json.dumps(calls)}'"
    )
    files = {
        "task.toml": f'goal = "work"\n[tools]\nagent = {json.dumps(agent)}\n{more}',
        "client.py": CLIENT,
        "server.py": SERVER,
        **{f"tools/{name}": text for name, text in parts.items()},
        **{
            f"tasks/one/{name}": text
            for name, text in harbor_task(**{"test": CHEAP, **settings}).items()
        },
    }
    return read_skill_folder(write(folder, files))


def served(task: Task, *candidates: Mapping[str, str]) -> list[Observation]:
    """One rollout for each candidate, by its changed parts."""
    seed = task.seeds[0]
    made = [Candidate.of({**seed, **parts}) for parts in candidates or ({},)]

    async def play() -> list[Observation]:
        backend = RolloutBackend(task, 2)
        try:
            await backend.start()
            return await asyncio.gather(*(backend.evaluate(one, task.cases[0], 3) for one in made))
        finally:
            await backend.close()

    return run(play())


def table(**tools: object) -> dict[str, str]:
    """The part tools.json."""
    return {"tools.json": json.dumps(tools)}


SERVED = f'server = "{sys.executable} {{folder}}/server.py"\n'
__all__ = ["ANSWER", "CALLS", "FETCH", "SERVED", "served", "table", "tools_task"]
