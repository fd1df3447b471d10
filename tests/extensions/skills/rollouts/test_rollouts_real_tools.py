"""Real agent programs find the served tools by their own configuration.

They call them through the proxy and in the candidate's code, with a scripted model on the
loopback. `CULMEN_TEST_AGENTS=codex,opencode` names those that are driven.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import culmen
from culmen.core.usage import Budget
from culmen.store import views
from tests.extensions.agents.adapters.real import MODELS, need
from tests.extensions.skills.rollouts.mcp_worlds import ANSWER, FETCH, SERVED, table, tools_task
from tests.servers.model_script import Asked, ToolCall, Turn
from tests.servers.model_server import ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CODE = '''import os

def shout(text: str) -> str:
    """Say it loudly, with the working directory."""
    return text.upper() + " in " + os.getcwd()
'''
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
RENAMED = FETCH | {"name": "look_up", "inputSchema": SCHEMA, "arguments": {"word": "key"}}


def diligent(asked: Asked) -> Turn:
    """Calls both tools by the names that it is shown, then writes the first one's answer."""
    if not asked.tools:
        return Turn("A title")
    offered = [
        *asked.tools,
        *(f"mcp__tools__{name}" for name in ("look_up", "shout") if "ToolSearch" in asked.tools),
    ]
    names = {
        end: next((full for full in offered if full.endswith(end)), "")
        for end in ("look_up", "shout")
    }
    if not all(names.values()):
        return Turn(f"The tools are missing: {sorted(asked.tools)}")
    called = " ".join(item.name for item in asked.items if item.role == "assistant")
    if (
        "ToolSearch" in asked.tools and "ToolSearch" not in called
    ):  # Claude Code shows names until it is asked
        wanted = {"query": "select:" + ",".join(names.values()), "max_results": 5}
        return Turn("First.", (ToolCall("ToolSearch", wanted),))
    if "look_up" not in called:
        return Turn("One.", (ToolCall(names["look_up"], {"word": "42"}),))
    if "shout" not in called:
        return Turn("Two.", (ToolCall(names["shout"], {"text": "done"}),))
    if not any(item.text == "Three." for item in asked.items):
        seen = " ".join(asked.results)
        text = ANSWER if ANSWER in seen and "DONE in /app" in seen else seen
        return Turn("Three.", (asked.write("/app/answer.txt", text),))
    return Turn("It is written.")


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode", "gemini", "acp:opencode"])
def test_a_real_agent_uses_the_served_tools(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(kind)
    monkeypatch.setenv("SCRIPTED_KEY", "sk-upstream-only")
    parts = {**table(fetch=RENAMED), "own.py": CODE}
    folder = tmp_path / "task"
    tools_task(folder, parts, more=f'{SERVED}names = "free"\n', agent=kind)
    with ModelServer(diligent) as server:
        models = tmp_path / "models.toml"
        models.write_text(MODELS.format(url=server.url))
        study = culmen.Study.create(
            folder,
            strategy="best_of_n",
            model={"default": "offline", "agent": "scripted-model"},
            models_file=str(models),
            budget=Budget(evaluations=1, calls=200),
            workers=1,
            run_dir=tmp_path / "run",
        )
        study.run(progress=False)
        (seen,) = views.stream_observations(study.path)
        offered = json.dumps([asked.body for asked in server.asked])
    assert seen.score == 1.0, seen.feedback
    assert seen.metrics["served_calls"] == 2.0
    assert "Fetches a value." in offered and "Say it loudly" in offered and "wipe" not in offered
