"""Adapters where they live: programs in the sandbox, driven by the host of sessions."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.extensions.agents.messages import Nudge, Wait, Waited
from tests.extensions.agents.adapters.driving import FIXTURES
from tests.extensions.agents.sandbox.conftest import ground as ground  # a fixture
from tests.extensions.agents.sandbox.grounds import Ground

pytestmark = [pytest.mark.jail, pytest.mark.timeout(300)]
Make = Callable[..., Ground]
FAKE_ACP = FIXTURES / "fake_acp.py"


def _acp(mode: str) -> str:
    return f"acp:{sys.executable} {FAKE_ACP} {mode}"


@pytest.fixture
def fake_codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called codex, before all others on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(FIXTURES / "fake_codex.py", folder / "codex")
    (folder / "codex").chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-asked-for")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "codex"


@pytest.mark.parametrize("mode", ["works", "noise"])
def test_an_agent_of_the_protocol_works_in_the_sandbox(ground: Make, mode: str) -> None:
    here = ground()
    opened = here.open("improve it", kind=_acp(mode))
    assert (opened.isolation, opened.metered) == ("jailed", True)
    waited, _ = here.serve()
    facts = json.loads(waited.word)
    assert (
        waited.ended == "finished"
        and facts["cwd"] == "/repo"
        and facts["prompts"] == ["improve it"]
    )
    ended, _ = here.finish()
    assert ended.claimed == {"input_tokens": 120, "output_tokens": 30, "dollars": 0.25}
    assert not here.processes()
    rows = [
        json.loads(row) for row in (here.run_folder / ended.transcript).read_text().splitlines()
    ]
    assert {"session", "text", "tool", "refused"} <= {row["kind"] for row in rows}


@pytest.mark.parametrize(
    ("mode", "word"), [("leaves", "out of memory"), ("refuses", "no such model"), ("orphan", "7")]
)
def test_a_broken_agent_of_the_protocol_has_crashed(ground: Make, mode: str, word: str) -> None:
    here = ground()
    here.open("improve it", kind=_acp(mode))
    waited, _ = here.serve()
    assert waited.ended == "crashed" and word in waited.word, waited
    here.finish()
    assert not here.processes()


def _idle(here: Ground) -> Waited:
    """Wait until it idles.

    The nth wait is asked for with a new number: an answer is kept for ever.
    """
    for nth in range(1, 100):
        waited: Waited = here.now(Wait(0, 0, nth))
        assert not waited.ended, waited
        if waited.idle:
            return waited
    raise AssertionError("it never idles")


def test_an_idle_agent_of_the_protocol_hears_a_nudge_and_goes_on(ground: Make) -> None:
    here = ground()
    here.open("improve it", kind=_acp("waits"), limits={"idle": 1.0})
    _idle(here)
    pids = here.processes()
    assert here.now(Nudge(0, 1, "you have been silent")).delivered
    waited, _ = here.serve(first=200)
    said = json.loads(waited.word)["prompts"]
    # a nudge that comes before the first prompt was given goes with it
    assert said in (["improve it", "you have been silent"], ["improve it\n\nyou have been silent"])
    assert pids and waited.ended == "finished"


def test_an_idle_program_is_nudged_by_resuming_its_session(ground: Make, fake_codex: Path) -> None:
    here = ground()
    opened = here.open("think", kind="codex", limits={"idle": 1.0})
    assert opened.version == "0.0.1"
    for nth in range(1, 50):  # it cannot be resumed before it has said its session's name
        _idle_again(here, nth)
        if here.now(Nudge(0, nth, "you have been silent")).delivered:
            break
    waited, asked = here.serve(first=100)
    assert (waited.ended, waited.word) == ("finished", "you have been silent: 22.0"), waited
    assert [one.path for one in asked] == ["candidates/a00/told.py"]
    ended, committed = here.finish()
    assert ended.claimed == {"input_tokens": 250, "output_tokens": 25}  # the thread's sum, not 350
    assert "candidates/a00/told.py" in committed.changed and not here.processes()


def _idle_again(here: Ground, nth: int) -> None:
    waited: Waited = here.now(Wait(0, 0, nth))
    assert waited.idle or not waited.ended, waited


def test_a_program_that_leaves_others_behind_does_not_hold_up(
    ground: Make, fake_codex: Path
) -> None:
    here = ground()
    here.open("it holds the pipe", kind="codex")
    waited, _ = here.serve()
    assert waited.ended == "crashed"  # it left in the middle of a turn
    here.finish()
    assert not here.processes()


def test_a_program_that_is_not_installed_is_said(ground: Make) -> None:
    here = ground()
    with pytest.raises(AssertionError, match="is not installed"):
        here.open("x", kind="acp:no-such-agent-anywhere")
    with pytest.raises(AssertionError, match="there is no agent"):
        here.open("x", kind="no-such-agent", agent=1)
