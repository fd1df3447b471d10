"""A real coding agent with `culmen mcp` among its tools.

Its model is a script on the loopback. Driven only where asked for: `CULMEN_TEST_AGENTS=opencode`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.store import views
from tests.servers.model_script import Asked, ToolCall, Turn
from tests.servers.model_server import ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LAST = "The search is over and I have read its result."
EVALUATOR = "def score(output):\n    return 1 - abs(0.8 - output)\n"
PROGRAM = "def run():\n    return 0.25\n"
TASK = 'goal = "run() returns about 0.8."\n[seed]\nfiles = ["aim.py"]\n'


def bringing_a_problem(asked: Asked) -> Turn:
    """The skill's procedure: write a task, check it, run it, ask until it is over.

    Then read the result.
    """
    if not asked.tools:
        return Turn("A title")

    def call(tool: str, **arguments: object) -> ToolCall:
        return ToolCall(asked.tool(f"culmen_{tool}", f"mcp__culmen__{tool}"), arguments)

    steps = [
        call("new", folder="aim"),
        asked.shell(f"cd aim && rm search.py && printf %s {shlex.quote(EVALUATOR)} > evaluator.py"),
        asked.shell(
            f"cd aim && printf %s {shlex.quote(PROGRAM)} > aim.py && printf %s {shlex.quote(TASK)} > task.toml"
        ),
        call("check", task="aim"),
        call("check", task="/etc"),
        call("run", task="aim", evaluations=30, name="first"),
    ]
    if asked.rounds < len(steps):
        return Turn("", (steps[asked.rounds],))
    states = re.findall(r'"state": "(\w+)"', " ".join(asked.results))
    if not states or states[-1] == "running":
        return Turn("", (call("status", run="first"),))
    return (
        Turn(LAST)
        if '"parts"' in asked.results[-1]
        else Turn("", (call("best", run="first", out="won"),))
    )


def test_opencode_brings_a_problem_to_culmen(tmp_path: Path) -> None:
    if "opencode" not in os.environ.get("CULMEN_TEST_AGENTS", "").split(","):
        pytest.skip("to drive the real program: CULMEN_TEST_AGENTS=opencode")
    program = shutil.which("opencode")
    assert program, "opencode is to be tested and is not installed"
    work = tmp_path / "work"
    work.mkdir()
    with ModelServer(bringing_a_problem) as server:
        settings = {
            "permission": {"*": "allow"},
            "autoupdate": False,
            "model": "mine/big",
            "small_model": "mine/big",
            "enabled_providers": ["mine"],
            "provider": {
                "mine": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{server.url}/v1", "apiKey": "none"},
                    "models": {"big": {"name": "big", "tool_call": True}},
                }
            },
            "mcp": {
                "culmen": {
                    "type": "local",
                    "command": [sys.executable, "-m", "culmen.cli.main", "mcp", str(work)],
                    "enabled": True,
                    "timeout": 60_000,
                }
            },
        }
        (tmp_path / ".config/opencode").mkdir(parents=True)
        (tmp_path / ".config/opencode/opencode.json").write_text(json.dumps(settings))
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("XDG_")
        }
        environment |= {f"OPENCODE_DISABLE_{name}": "1" for name in names} | {
            "HOME": str(tmp_path),
            "PWD": str(work),
        }
        words = [
            program,
            "run",
            "--format",
            "json",
            "--model",
            "mine/big",
            "Find a number near 0.8 with culmen.",
        ]
        done = subprocess.run(
            words,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    assert not server.errors, server.errors
    assert done.returncode == 0 and LAST in done.stdout, done.stderr + done.stdout[-3000:]
    heard = " ".join(result for asked in server.asked for result in asked.results)
    assert "lies outside the folders that are open to you" in heard  # /etc
    assert views.run_status(work / "runs/first").state == "finished"
    assert [file.name for file in (work / "won").iterdir()] == ["aim.py"], heard[-2000:]
