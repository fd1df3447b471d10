"""The client of the Agent Client Protocol, against a good agent and a bad one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from culmen.extensions.agents.adapters import AgentJob, Parting, acp
from culmen.extensions.agents.adapters.catalog import adapter_by_name
from tests.extensions.agents.adapters.driving import Signs, job, python, started


def _run(mode: str, work: AgentJob, signs: Signs) -> Parting:
    async def go() -> Parting:
        async with started(*python("fake_acp.py", mode), cwd=work.tree) as pipes:
            return await adapter_by_name("acp:anything").open_dialogue(pipes, work, signs).run()

    return asyncio.run(go())


@pytest.mark.parametrize("mode", ["works", "noise", "auth"])
def test_a_turn_is_driven_to_its_end(tmp_path: Path, mode: str) -> None:
    signs, work = Signs(), job(tmp_path)
    parting = _run(mode, work, signs)
    assert (parting.ended, parting.session) == ("finished", "s-1"), parting
    facts = json.loads(parting.word)
    assert facts == {
        "mode": "bypassPermissions",
        "key": "api-key" if mode == "auth" else None,
        "opened": "session/new",
        "prompts": ["improve it"],
        "allowed": "allow_always-1",
        "refused": "cancelled",
        "unknown": -32601,
        "cwd": work.tree,
    }
    assert parting.claimed == {"input_tokens": 120, "output_tokens": 30, "dollars": 0.25}
    assert signs.of("text")[0] == "I shall edit."
    assert 'Edit pack.py {"path":"pack.py"}' in signs.of("tool")
    assert signs.of("session") == ["s-1"] and signs.of("refused") == ["Edit pack.py"]


def test_a_session_is_loaded_again(tmp_path: Path) -> None:
    signs = Signs()
    parting = _run("loads", job(tmp_path, "go on", resume="s-1"), signs)
    facts = json.loads(parting.word)
    assert facts["opened"] == "session/load" and facts["prompts"] == ["go on"]
    assert "what was said before" not in signs.of("text")


@pytest.mark.parametrize("mode", ["waits", "sulks"])
def test_an_agent_hears_a_nudge_in_the_same_session(tmp_path: Path, mode: str) -> None:
    async def go() -> tuple[Parting, bool]:
        busy = asyncio.Event()
        work = job(tmp_path)

        def hear(sign: object) -> None:
            if getattr(sign, "kind", "") == "tool":
                busy.set()

        async with started(*python("fake_acp.py", mode), cwd=work.tree) as pipes:
            talk = adapter_by_name("acp:anything").open_dialogue(pipes, work, hear)
            running = asyncio.ensure_future(talk.run())
            await busy.wait()
            heard = await talk.interrupt_with("you have been silent")
            parting = await running
            assert await talk.interrupt_with("too late") is False
            return parting, heard

    parting, heard = asyncio.run(go())
    assert heard and parting.ended == "finished"
    assert json.loads(parting.word)["prompts"] == ["improve it", "you have been silent"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "ended", "words"),
    [
        ("leaves", "crashed", ("exit code 7", "out of memory")),
        ("orphan", "crashed", ("exit code 7",)),
        ("refuses", "crashed", ("no such model",)),
        ("deaf", "crashed", ("does not read",)),
        ("limit", "calls", ("max_turn_requests",)),
    ],
)
def test_a_broken_agent_ends_the_talk(
    tmp_path: Path, mode: str, ended: str, words: tuple[str, ...]
) -> None:
    parting = _run(mode, job(tmp_path), Signs())
    assert parting.ended == ended
    assert all(word in parting.why for word in words), parting.why


def test_a_mute_agent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp, "OPEN_SECONDS", 0.5)
    parting = _run("mute", job(tmp_path), Signs())
    assert parting.ended == "crashed" and "no session" in parting.why


def test_a_program_that_is_no_agent_ends_the_talk(tmp_path: Path) -> None:
    async def go() -> Parting:
        work = job(tmp_path)
        async with started("/bin/sh", "-c", "echo usage: >&2; exit 2") as pipes:
            return await adapter_by_name("acp:anything").open_dialogue(pipes, work, Signs()).run()

    parting = asyncio.run(go())
    assert parting.ended == "crashed" and "usage:" in parting.why and parting.code == 2


@pytest.mark.parametrize(
    ("usage", "claimed"),
    [
        # cached input and thoughts apart, as the protocol has it, with a total and without
        (
            {
                "totalTokens": 2100,
                "inputTokens": 1200,
                "cachedReadTokens": 800,
                "outputTokens": 100,
            },
            (2000, 100),
        ),
        ({"inputTokens": 600, "cachedWriteTokens": 1400, "outputTokens": 30}, (2000, 30)),
        ({"inputTokens": 5, "outputTokens": 30, "thoughtTokens": 70}, (5, 100)),
        # parts of input and output already
        (
            {"totalTokens": 2100, "inputTokens": 2000, "cachedReadTokens": 800, "outputTokens": 100}
            | {"thoughtTokens": 60},
            (2000, 100),
        ),
        ({"input_tokens": 7, "output_tokens": 3}, (7, 3)),
        (None, (0, 0)),
    ],
)
def test_claimed_tokens_have_what_was_cached_and_thought(
    usage: object, claimed: tuple[float, float]
) -> None:
    assert tuple(acp.claimed_tokens(usage).values()) == claimed
