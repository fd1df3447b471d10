"""Record the output of agents: `record.py codex opencode acp:codex mini`.

They are found on PATH and driven in a temporary folder, without a sandbox, by a scripted model on
the loopback. A program has one folder of recordings, NAME-VERSION: what it printed when it worked,
and when its model failed, its session's log, and what it was billed. Long texts are cut, since
they are the program's own words, and folders of this machine are renamed. What a program sends over
the Agent Client Protocol is read as `replay_acp.py` plays it, answer by answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from culmen.extensions.agents.adapters import AgentJob, Plan, programs
from culmen.extensions.agents.adapters.catalog import adapter_by_name
from tests.extensions.agents.adapters.driving import Signs, started
from tests.servers.model_script import Asked, ToolCall, Turn
from tests.servers.model_server import ModelServer

RECORDED = Path(__file__).parents[3] / "fixtures" / "agents" / "recorded"
COMMANDS = (
    ("echo one > a.txt && cat a.txt", 0),
    ("echo two; exit 3", 3),
    ("sleep 12; echo late; exit 2", 2),  # longer than Codex waits for a command
)
LAST = "I have finished."
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
LOGS = {
    "claude": ".claude/projects/*/*.jsonl",
    "codex": ".codex/sessions/**/rollout-*.jsonl",
    "opencode": ".local/share/opencode/opencode*.db",
}
PATIENCE = {"MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2"}  # mini's own, else it tries for minutes
_KEPT = 400  # characters of one text
_SECONDS = 600


def working(asked: Asked) -> Turn:
    """One command a turn, the output of one that goes on, and a last word."""
    if SUBMIT in "".join(item.text for item in asked.items) and asked.rounds == len(COMMANDS):
        return Turn(LAST, (asked.shell(f"echo {SUBMIT}"),))  # mini-swe-agent ends by a command
    if not asked.tools or asked.rounds > len(COMMANDS) + 1:
        return Turn(LAST)
    if asked.rounds < len(COMMANDS):
        return Turn("step", (asked.shell(COMMANDS[asked.rounds][0]),))
    going = re.findall(r"session ID (\d+)", " ".join(asked.results))
    if going and asked.tool("write_stdin") and "late" not in asked.results[-1]:
        given: dict[str, Any] = {"session_id": int(going[-1]), "chars": "", "yield_time_ms": 9000}
        return Turn("waits", (ToolCall("write_stdin", given),))
    return Turn(LAST)


def record(kind: str, place: Path) -> Path:
    """Record a program into a new folder below `place`; its older ones are removed."""
    version = programs.program_version(programs.find_program(adapter_by_name(kind).program))
    name = kind.replace(":", ".")
    for old in place.glob(f"{name}-*"):
        shutil.rmtree(old)
    folder = place / f"{name}-{version}"
    folder.mkdir(parents=True)
    said: dict[str, Any] = {}
    for name, faults in {"worked": (), "failed": ("400",) * 40}.items():
        with tempfile.TemporaryDirectory() as own, ModelServer(working, faults) as server:
            code, printed = _drive(kind, Path(own), server.url)
            cut = _cut_lines(printed, own)
            (folder / f"{name}.jsonl").write_text(cut, encoding="utf-8")
            said[name] = {"code": code, "calls": len(server.asked), **server.billed}
            if name == "worked" and kind in LOGS:
                (log,) = Path(own, "home").glob(LOGS[kind])
                _write_log(log, folder, own)
            if name == "worked" and kind == "opencode":
                (folder / "export.json").write_text(_export(printed, own), encoding="utf-8")
    (folder / "said.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return folder


def _drive(kind: str, own: Path, url: str) -> tuple[int, str]:
    """Exit code and output of a program at work."""
    for name in ("tree", "home"):
        (own / name).mkdir()
    tree, home = str(own / "tree"), str(own / "home")
    job = AgentJob(tree, home, "improve it", "scripted", url, "scripted-key")
    plan = adapter_by_name(kind).plan(job)
    for name, text in plan.files.items():
        (own / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (own / "home" / name).write_text(text, encoding="utf-8")
    environment = {
        "PATH": os.pathsep.join([*plan.path, os.environ["PATH"]]),
        "HOME": job.home,
        "LANG": "C.UTF-8",
        **plan.environment,
        **PATIENCE,
    }
    if kind.startswith("acp:"):
        return asyncio.run(_talk(kind, plan, job, environment))
    run = subprocess.run(
        plan.argv,
        input=job.prompt if plan.stdin else "",
        stdout=subprocess.PIPE,
        env=environment,
        cwd=job.tree,
        timeout=_SECONDS,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout


def _export(printed: str, own: str) -> str:
    """OpenCode's export of the session of this output."""
    session = json.loads(printed.splitlines()[0])["sessionID"]
    run = subprocess.run(
        ["opencode", "export", session],
        env={"PATH": os.environ["PATH"], "HOME": f"{own}/home"},
        stdout=subprocess.PIPE,
        timeout=_SECONDS,
        text=True,
        check=True,
    )
    return json.dumps(_cut(json.loads(run.stdout), own), indent=1) + "\n"


async def _talk(
    kind: str, plan: Plan, job: AgentJob, environment: dict[str, str]
) -> tuple[int, str]:
    """Exit code, 0 for a program that waits for more, and the output of a session."""
    clean = ("/usr/bin/env", "-i", *(f"{name}={value}" for name, value in environment.items()))
    async with started(*clean, *plan.argv, cwd=job.tree) as pipes, asyncio.timeout(_SECONDS):
        heard = HeardReader(pipes.stdout)
        heard_pipes = replace(pipes, stdout=heard)
        parting = await adapter_by_name(kind).open_dialogue(heard_pipes, job, Signs()).run()
    return parting.code or 0, heard.whole_lines()


class HeardReader(asyncio.StreamReader):
    """Keeps the chunks that the dialogue reads: a copy beside it could miss the last answer."""

    def __init__(self, source: asyncio.StreamReader) -> None:
        super().__init__()
        self._source, self._kept = source, b""

    async def read(self, n: int = -1) -> bytes:
        chunk = await self._source.read(n)
        self._kept += chunk
        return chunk

    def whole_lines(self) -> str:
        """The text up to its last complete line."""
        return self._kept[: self._kept.rfind(b"\n") + 1].decode()


def _write_log(log: Path, folder: Path, own: str) -> None:
    if log.suffix == ".jsonl":
        text = _cut_lines(log.read_text(encoding="utf-8"), own)
        (folder / "log.jsonl").write_text(text, encoding="utf-8")
        return
    lines = []
    with closing(sqlite3.connect(log)) as database:
        for table in ("session", "message", "part"):
            columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
            lines.append(f"create table {table} ({', '.join(columns)})")
            rows = database.execute(f"select * from {table}").fetchall()
            lines += [json.dumps([table, *(_cut_cell(cell, own) for cell in row)]) for row in rows]
    (folder / "log.tables").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cut_cell(cell: Any, own: str) -> Any:
    if not isinstance(cell, str):
        return cell
    return _cut_lines(cell, own).rstrip("\n") if cell[:1] in "{[" else _cut(cell, own)


def _cut_lines(text: str, own: str) -> str:
    """Lines of JSON without the middle of long texts; other lines as they are."""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.dumps(_cut(json.loads(line), own)))
        except ValueError:
            lines.append(_cut(line, own))
    return "".join(f"{line}\n" for line in lines)


def _cut(value: Any, own: str) -> Any:
    if isinstance(value, dict):
        return {key: _cut(inner, own) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner, own) for inner in value]
    if not isinstance(value, str):
        return value
    value = value.replace(own, "/recorded").replace(own[1:], "recorded")
    value = re.sub(r"/tmp/[\w./-]+", "/recorded/other", value)
    return value if len(value) <= _KEPT else f"{value[:40]} ... {value[-40:]}"


if __name__ == "__main__":
    for named in sys.argv[1:]:
        print(record(named, RECORDED))
