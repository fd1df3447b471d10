"""Adapters that read events: what real programs printed, and what hostile ones might."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.extensions.agents.adapters import AgentJob, Parting, ProgramEvent, headless
from culmen.extensions.agents.adapters.catalog import NATIVE, adapter_by_name
from culmen.extensions.agents.adapters.headless import StreamReading
from culmen.extensions.agents.adapters.native import (
    ClaudeReading,
    CodexReading,
    CursorReading,
    GeminiReading,
    MiniReading,
    OpenCodeReading,
    PlainReading,
)
from tests.extensions.agents.adapters.driving import STREAMS, Signs, job, read_script, started

SHELL = "echo changed >> candidates/a.py && cat candidates/a.py"
READINGS = (
    ClaudeReading,
    CodexReading,
    OpenCodeReading,
    GeminiReading,
    CursorReading,
    MiniReading,
    PlainReading,
)


def _recorded(name: str, code: int) -> str:
    (file,) = STREAMS.glob(f"{name}.*")
    return f"cat {shlex.quote(str(file))}; exit {code}"


@pytest.mark.parametrize(
    ("name", "claimed"),
    [
        (
            "claude-2.1.329",
            {"input_tokens": 37554, "output_tokens": 31, "dollars": 0.150836},
        ),
        ("codex-0.169.0", {"input_tokens": 30718, "output_tokens": 29}),
        ("opencode-1.18.33", {"input_tokens": 23547, "output_tokens": 31, "calls": 3}),
        ("gemini-0.61.0", {"input_tokens": 37048, "output_tokens": 31}),
    ],
)
def test_a_recorded_session_is_understood(
    tmp_path: Path, name: str, claimed: dict[str, float]
) -> None:
    signs = Signs()
    parting = read_script(
        name.partition("-")[0], _recorded(f"{name}.finished", 0), job(tmp_path), signs
    )
    assert (parting.ended, parting.word, parting.code) == ("finished", "I have finished.", 0), (
        parting
    )
    assert parting.claimed == claimed
    assert signs.of("text") == ["step", "step", "I have finished."]
    assert [SHELL in tool for tool in signs.of("tool")] == [True, False]
    assert signs.of("session") == [parting.session] and parting.session


@pytest.mark.parametrize(
    ("name", "code", "ended", "why"),
    [
        ("claude-2.1.329.denied", 0, "crashed", "refused every tool call"),
        ("claude-2.1.197.budget", 1, "crashed", "429"),
        ("claude-2.1.329.retried", 0, "finished", ""),
        ("codex-0.169.0.budget", 1, "crashed", "Quota exceeded"),
        ("codex-0.169.0.unreachable", 1, "unavailable", "Connection failed"),
        ("opencode-1.18.33.unreachable", 1, "unavailable", "Unable to connect"),
        ("opencode-1.18.33.hung", -9, "crashed", "exit code"),
        ("gemini-0.61.0.budget", 173, "crashed", "exhausted"),
        ("gemini-0.61.0.hung", -9, "crashed", "exit code"),
    ],
)
def test_a_recorded_failure_is_told(
    tmp_path: Path, name: str, code: int, ended: str, why: str
) -> None:
    signs = Signs()
    script = (
        _recorded(name, code)
        if code >= 0
        else f"{_recorded(name, 0).partition(';')[0]}; kill -KILL $$"
    )
    parting = read_script(name.partition("-")[0], script, job(tmp_path), signs)
    assert (parting.ended, parting.code) == (ended, code) and why in parting.why, parting


@pytest.mark.parametrize(
    ("name", "ended", "word"),
    [("mini-2.4.6.finished", "finished", "I have finished."), ("mini-2.4.6.gaveup", "crashed", "")],
)
def test_a_recorded_conversation_is_understood(
    tmp_path: Path, name: str, ended: str, word: str
) -> None:
    signs = Signs()
    parting = read_script("mini", _recorded(name, 0), job(tmp_path), signs)
    assert (parting.ended, parting.word) == (ended, word) and (
        "RepeatedFormatError" in parting.why
    ) != bool(word)
    assert signs.of("text") == (["step", "step", "I have finished."] if word else [])


def test_trouble_is_no_sign_of_life(tmp_path: Path) -> None:
    signs = Signs()
    read_script("codex", _recorded("codex-0.169.0.unreachable", 1), job(tmp_path), signs)
    first = next(i for i, sign in enumerate(signs) if sign.kind == "trouble")
    assert {sign.kind for sign in signs[first:]} == {"trouble"}


def test_a_resumed_thread_does_not_count_twice(tmp_path: Path) -> None:
    earlier = {"input_tokens": 30718.0, "output_tokens": 29.0}
    work = job(tmp_path, resume="01a1fcc6-db31-72d1-bd78-52d52283820e", claimed=earlier)
    parting = read_script("codex", _recorded("codex-0.169.0.resumed", 0), work, Signs())
    assert (
        parting.claimed == {"input_tokens": 10492, "output_tokens": 5}
        and parting.session == work.resume
    )


def test_noise_between_events_is_passed_over(tmp_path: Path) -> None:
    rows = (STREAMS / "claude-2.1.329.finished.jsonl").read_bytes().splitlines()
    noise = [
        b"",
        b"\xff\xfe\x00",
        b"{broken",
        b"null",
        b"[1]",
        b"{}",
        b'{"type": 7}',
        b'{"type": "result"',
    ]
    noise += [
        b'{"type": "assistant", "message": {"content": [7, {"type": "text", "text": ["a"]}]}}'
    ]
    noise += [b"x" * 300_000, b"[" * 5000]
    noisy = tmp_path / "noisy"
    noisy.write_bytes(b"\n".join(line for row in rows for line in (*noise, row)))
    parting = read_script(
        "claude", f"cat {noisy}; head -c 300000 /dev/zero >&2", job(tmp_path), Signs()
    )
    assert (parting.ended, parting.word) == ("finished", "I have finished.")


def test_a_line_that_is_too_long_is_dropped_and_no_other() -> None:
    async def go() -> tuple[list[bytes], int]:
        async with started(
            "/bin/sh", "-c", "echo one; head -c 3000000 /dev/zero; echo; echo two", stdin=False
        ) as pipes:
            found = headless.LineReader(pipes.stdout, asyncio.Event(), longest=1 << 20)
            return [line async for line in found], found.dropped

    assert asyncio.run(go()) == ([b"one", b"two"], 1)


def test_a_pipe_that_stays_open_does_not_hold_up(tmp_path: Path) -> None:
    script = f"sleep 600 & {_recorded('opencode-1.18.33.finished', 0)}"
    assert read_script("opencode", script, job(tmp_path), Signs()).ended == "finished"


def test_a_program_that_does_not_leave_after_its_result_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headless, "LEAVE_SECONDS", 0.2)
    script = f"{_recorded('gemini-0.61.0.finished', 0).partition(';')[0]}; sleep 600"
    parting = read_script("gemini", script, job(tmp_path), Signs())
    assert (parting.ended, parting.code) == ("finished", None)


@pytest.mark.parametrize("kind", [*NATIVE, "cmd: anything"])
def test_a_program_that_says_nothing_has_crashed_unless_it_may_be_silent(
    tmp_path: Path, kind: str
) -> None:
    work = job(tmp_path)
    silent = read_script(kind, "exit 0", work, Signs())
    assert silent.ended == ("finished" if kind in ("mini", "cmd: anything") else "crashed")
    failed = read_script(kind, "echo no such option >&2; exit 2", work, Signs())
    assert (
        failed.ended == "crashed" and "no such option" in failed.why and "exit code 2" in failed.why
    )


def test_a_prompt_goes_through_standard_input(tmp_path: Path) -> None:
    prompt = '{"type": "text", "part": {"text": "as it was given"}}\n'

    async def go() -> Parting:
        work = job(tmp_path, prompt)
        async with started("/bin/cat") as pipes:  # ends when its input is closed
            return await adapter_by_name("opencode").open_dialogue(pipes, work, Signs()).run()

    assert asyncio.run(go()).word == "as it was given"


def test_what_a_plain_program_prints_is_its_word(tmp_path: Path) -> None:
    signs = Signs()
    parting = read_script(
        "cmd: anything", r"printf '\033[32mtrying\033[0m\n\nfound 2.61\n'", job(tmp_path), signs
    )
    assert signs.of("text") == ["trying", "found 2.61"] and parting.word == "found 2.61"


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += _places(inner, (*path, key))
    return found


def _events() -> list[dict[str, Any]]:
    files = sorted(STREAMS.glob("*.jsonl"))
    rows = [json.loads(row) for file in files for row in file.read_text().splitlines()]
    cursor = {
        "type": "tool_call",
        "subtype": "started",
        "tool_call": {"shellToolCall": {"args": {"command": "ls"}}},
    }
    failed = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "errors": ["no"],
    }
    return [*rows, cursor, failed, {"type": "thinking", "text": "hm"}]


_EVENTS = _events()


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(READINGS))
def test_no_event_whatever_its_shape_raises(data: st.DataObject, kind: type[StreamReading]) -> None:
    heard: list[ProgramEvent] = []
    reading = kind(AgentJob("/repo", "/home/agent", "go"), heard.append)
    for _ in range(data.draw(st.integers(1, 5))):
        event = json.loads(json.dumps(data.draw(st.sampled_from(_EVENTS))))
        for place in data.draw(st.lists(st.sampled_from(_places(event)), max_size=3)):
            _put(event, place, data.draw(_JUNK))
        reading.read_line(json.dumps(event).encode())
    reading.on_exit(0)
    assert all(0 <= amount < 1e18 for amount in reading.claimed.values())
    assert all(isinstance(word, str) for word in (reading.word, reading.fault, reading.session))
    assert all(isinstance(sign.text, str) for sign in heard)


def _put(event: Any, place: tuple[Any, ...], junk: Any) -> None:
    for step in place[:-1]:
        try:
            event = event[step]
        except (KeyError, IndexError, TypeError):  # an earlier piece of junk took its place
            return
    if isinstance(event, dict) or (
        isinstance(event, list) and isinstance(place[-1], int) and place[-1] < len(event)
    ):
        event[place[-1]] = junk
