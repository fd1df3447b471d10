"""The report of `culmen doctor` on coding agents."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from culmen.extensions.agents.sandbox.smoke import PROMPT, run_smoke_test
from tests.extensions.agents.adapters.driving import FIXTURES
from tests.extensions.agents.adapters.real import MODELS
from tests.extensions.agents.sandbox.grounds import need_confinement
from tests.servers.model_script import Turn
from tests.servers.model_server import ModelServer

pytestmark = pytest.mark.timeout(300)
ASKER = f"cmd: {sys.executable} {FIXTURES / 'fake_asker.py'} {{model}} {{prompt}}"


def _doctor(*words: str, **environment: str) -> tuple[int, Any]:
    line = [sys.executable, "-m", "culmen.cli.main", "doctor", "--json", *words]
    done = subprocess.run(
        line, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_doctor_lists_agents_and_their_sandbox(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "fake_codex.py", tmp_path / "codex")
    (tmp_path / "codex").chmod(0o755)
    code, report = _doctor(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    agents = report["agents"]
    rows = {row["name"]: row for row in agents["known"]}
    assert (
        code == 0
        and agents["sandbox"] in ("jailed", "")
        and bool(agents["why"]) == (not agents["sandbox"])
    )
    assert (rows["codex"]["installed"], rows["codex"]["version"], rows["codex"]["state"]) == (
        True,
        "0.0.1",
        "older",
    )


@pytest.mark.jail
def test_doctor_asks_an_agent_one_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_confinement()
    monkeypatch.setenv("SCRIPTED_KEY", "sk-upstream-only")
    models = tmp_path / "models.toml"
    with ModelServer([Turn("ready")]) as server:
        models.write_text(MODELS.format(url=server.url))
        for agent in (ASKER, "builtin"):
            tried = asyncio.run(run_smoke_test(agent, "scripted-model", str(models)))
            assert (tried.works, tried.word.strip(), tried.usage.calls) == (True, "ready", 1), tried
        assert [PROMPT in asked.text for asked in server.asked] == [True, True]
        code, told = _doctor("--agent", ASKER, "--model", "scripted-model", "--models", str(models))
        assert (code, told["works"], told["isolation"], told["usage"]["calls"]) == (
            0,
            True,
            "jailed",
            1,
        )


@pytest.mark.slow
@pytest.mark.jail
def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    need_confinement()
    for name in ("OPENAI_API_KEY", "CURSOR_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for agent, why in (
        ("acp:no-such-agent", "is not installed"),
        (ASKER, "crashed"),
        ("builtin", "no model is named"),
        (f"cmd: {sys.executable} -c 0", "it returned no message"),
    ):
        code, told = _doctor("--agent", agent)
        assert (code, told["works"]) == (1, False) and why in told["why"], told
    assert _doctor("--agent", "offline")[1]["works"]
    code, told = _doctor("--agent", "nobody")
    assert code == 2 and "there is no agent" in told["error"]["what"]
