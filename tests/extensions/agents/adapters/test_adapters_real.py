"""Real agent programs, from the opening of a session to its commit.

They are in the jail, their calls metered and answered by a scripted model on the loopback.
`CULMEN_TEST_AGENTS=codex,opencode` names those that are driven; others are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.extensions.agents.adapters import programs
from culmen.extensions.agents.adapters.catalog import KNOWN, NATIVE, TESTED
from culmen.extensions.agents.adapters.catalog import adapter_by_name as adapter
from culmen.extensions.agents.cato import Cato
from tests.extensions.agents.adapters.real import LAST, LEARNED, SECRET, need, ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KINDS = [kind for kind in (*NATIVE, *(f"acp:{name}" for name in KNOWN)) if adapter(kind).metered]
CLAIMS_ALL = ("claude", "codex", "opencode", "gemini", "acp:codex", "acp:gemini")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", SECRET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_agent_works_from_start_to_end(tmp_path: Path, kind: str) -> None:
    need(kind)
    with ran(tmp_path, Cato(agent=kind, agents=1, idle=300.0)) as run:
        (agent,) = run.agents
        assert (agent["ended"], agent["word"]) == ("finished", LAST), agent
        assert run.study.best is not None and run.study.best.score == pytest.approx(0.95)
        assert agent["experiments"] == 1 and agent["gained"]
        assert "0.75" in run.git("show", "trunk:candidates/a00/better.py")
        assert f"a00: {LEARNED}" in run.git("show", "trunk:reflections.md")
        assert (
            agent["calls"] == len(run.server.asked) >= 5
        )  # by the gateway's count and the model's own
        assert {key.removeprefix("Bearer ") for key in run.server.keys} == {SECRET}
        seen = "".join(result for asked in run.server.asked for result in asked.results)
        assert "You are agent `a00`" in seen and "CULMEN_AGENT=" in seen and SECRET not in seen
        if kind in CLAIMS_ALL:
            assert agent["claimed"]["input_tokens"] == run.server.billed["input"]
            assert agent["claimed"]["output_tokens"] == run.server.billed["output"]


def test_the_next_real_agent_reads_what_the_first_one_learned(tmp_path: Path) -> None:
    need("codex")
    with ran(tmp_path, Cato(agent="codex", agents=2, idle=300.0)) as run:
        assert [agent["ended"] for agent in run.agents] == ["finished", "finished"]
        second = run.server.asked[-1]
        assert any(f"a00: {LEARNED}" in result for result in second.results)
        reflections = run.git("show", "trunk:reflections.md")
        assert f"a00: {LEARNED}" in reflections and f"a01: {LEARNED}" in reflections
        assert run.git("rev-list", "--count", "trunk").strip() == "3"


def test_a_real_agent_whose_model_hangs_is_nudged_by_resuming_its_session(tmp_path: Path) -> None:
    need("codex")
    with ran(
        tmp_path, Cato(agent="codex", agents=1, idle=30.0, nudges=20), faults=("", "hang")
    ) as run:
        (agent,) = run.agents
        assert (agent["ended"], agent["word"]) == ("finished", LAST), agent
        assert run.study.best is not None and run.study.best.score == pytest.approx(0.95)
        first, last = run.server.asked[0], run.server.asked[-1]
        assert last.text.startswith(first.text) and len(last.text) > len(
            first.text
        )  # one conversation, and the nudge


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode", "gemini"])
def test_the_installed_version_is_the_one_that_was_tried(kind: str) -> None:
    need(kind)
    assert programs.program_version(programs.find_program(kind)) in TESTED[kind].versions
