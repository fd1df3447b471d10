"""Each format's records become the same steps; what cannot be read is named."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench.bench_mining import WRITERS, Said

from culmen.core.errors import UserError
from culmen.extensions.skills.mining.logs import LoggedStep, cut_session, read_logs

STEPS = [
    Said("user", "Add requests."),
    Said("agent", "I begin.", "pip install requests", "error: externally-managed-environment", 1),
    Said("agent", "", "uv add requests", "ok"),
    Said("user", "thanks"),
]


def lines(file: Path, *rows: Any) -> Path:
    """A file of JSON lines."""
    file.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return file


def outcomes(steps: Sequence[LoggedStep]) -> list[tuple[str, str, int | None, bool | None]]:
    """Outcomes of the commands."""
    return [(step.command, step.result, step.code, step.failed) for step in steps if step.command]


@pytest.mark.parametrize("source", sorted(WRITERS))
def test_logs_of_all_formats_are_the_same_steps(tmp_path: Path, source: str) -> None:
    WRITERS[source](tmp_path / "one", STEPS)
    found = read_logs([tmp_path])
    assert not found.unread and not found.damaged
    (session,) = found.sessions
    assert session.source == source
    said = [(step.who, step.text) for step in session.steps if step.text]
    assert said == [("user", "Add requests."), ("agent", "I begin."), ("user", "thanks")]
    assert [(c, r, f) for c, r, _, f in outcomes(session.steps)] == [
        ("pip install requests", "error: externally-managed-environment", True),
        ("uv add requests", "ok", False),
    ]


def test_logs_of_claude_code_leave_out_what_nobody_said(tmp_path: Path) -> None:
    use = {
        "type": "tool_use",
        "id": "t",
        "name": "Bash",
        "input": {"command": "make", "description": "Build it"},
    }
    blocks = [{"type": "text", "text": "Exit code 2"}, {"type": "text", "text": "no rule"}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": blocks, "is_error": True}
    file = lines(
        tmp_path / "a.jsonl",
        {"type": "user", "isMeta": True, "message": {"content": "meta"}},
        {"type": "user", "isSidechain": True, "message": {"content": "side"}},
        {"type": "file-history-snapshot", "snapshot": {}},
        {
            "type": "assistant",
            "message": {"content": [{"type": "thinking", "thinking": "hm"}, use]},
        },
        "{damaged",
        {"type": "user", "message": {"content": [result, {"type": "image", "source": {}}]}},
        {"type": "user", "message": {"content": [{"type": "text", "text": "go on"}]}},
    )
    found = read_logs([file])
    assert found.damaged == 1
    (session,) = found.sessions
    assert [(s.who, s.text) for s in session.steps] == [("agent", "Build it"), ("user", "go on")]
    assert outcomes(session.steps) == [("make", "no rule", 2, True)]


def test_logs_of_codex_by_version(tmp_path: Path) -> None:
    """Exit codes stand in a head, in metadata or nowhere; words of the body are no exit code."""
    items = [
        (
            "shell",
            {"command": ["bash", "-lc", "a"]},
            '{"output": "x", "metadata": {"exit_code": 127}}',
            (127, True),
        ),
        (
            "exec_command",
            {"cmd": "b"},
            "Chunk ID: a\nProcess exited with code 0\nOutput:\nexit code: 1",
            (0, False),
        ),
        (
            "shell_command",
            {"command": "c"},
            "Exit code: 3\nWall time: 1 seconds\nOutput:\nboom",
            (3, True),
        ),
        (
            "exec_command",
            {"cmd": "d"},
            "Process running with session ID 5\nOutput:\n",
            (None, None),
        ),
        ("exec_command", {"cmd": "e"}, "bash: e: command not found", (None, True)),
    ]
    rows: list[Any] = [
        {"type": "session_meta", "payload": {"id": "x"}},
        {"type": "event_msg", "payload": {}},
    ]
    content = [{"type": "input_text", "text": "<environment_context>\n <cwd>/home/me</cwd>"}]
    rows.append(
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": content},
        }
    )
    for name, arguments, output, _ in items:
        call = {
            "type": "function_call",
            "name": name,
            "call_id": name + output,
            "arguments": json.dumps(arguments),
        }
        rows.append({"type": "response_item", "payload": call})
        done = {"type": "function_call_output", "call_id": name + output, "output": output}
        rows.append({"type": "response_item", "payload": done})
    (session,) = read_logs([lines(tmp_path / "rollout-1.jsonl", *rows)]).sessions
    assert session.source == "codex"
    assert [(s.command, (s.code, s.failed)) for s in session.steps] == [
        (name, known) for name, (_, _, _, known) in zip("abcde", items, strict=True)
    ]


def opencode_database(file: Path, sessions: dict[str, list[tuple[str, list[object]]]]) -> Path:
    """A database with the tables and columns of OpenCode 1.18 that the reader uses."""
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "create table session (id text primary key, parent_id text, time_updated integer)"
        )
        database.execute(
            "create table message (id text primary key, session_id text, time_created integer, data text)"
        )
        database.execute(
            "create table part (id text primary key, message_id text, session_id text, data text)"
        )
        for key, messages in sessions.items():
            parent = "ses_0" if key.startswith("sub") else None
            database.execute("insert into session values (?, ?, ?)", (key, parent, 7))
            for number, (role, parts) in enumerate(messages):
                name = f"msg_{key}_{9 - number}"  # the order is that of the times
                row = (name, key, number, json.dumps({"role": role}))
                database.execute("insert into message values (?, ?, ?, ?)", row)
                for at, part in enumerate(parts):
                    text = part if isinstance(part, str) else json.dumps(part)
                    database.execute(
                        "insert into part values (?, ?, ?, ?)",
                        (f"prt_{name}_{at}", name, key, text),
                    )
        database.commit()
    return file


def test_logs_of_codex_commands_that_outlive_their_call(tmp_path: Path) -> None:
    """The outcome stands at a later write_stdin; until then the log does not tell."""

    def call(which: str, name: str, given: Any, output: str) -> list[Any]:
        asked = {"type": "function_call", "name": name, "call_id": which}
        told = {"type": "function_call_output", "call_id": which, "output": output}
        rows = [{**asked, "arguments": json.dumps(given)}, told]
        return [{"type": "response_item", "payload": row} for row in rows]

    running = "Wall time: 10.0 seconds\nProcess running with session ID 71\nOutput:\n"
    build = call("a", "exec_command", {"cmd": "make all"}, f"{running}one\n")
    poll = call("b", "write_stdin", {"session_id": 71, "chars": ""}, f"{running}two\n")
    done = "Wall time: 1.2 seconds\nProcess exited with code 2\nOutput:\nno rule\n"
    ended = call("c", "write_stdin", {"session_id": 71, "chars": ""}, done)
    file = tmp_path / "rollout-1.jsonl"
    for rows, code, failed, result in (
        ([*build, *poll], None, None, "one\ntwo\n"),
        ([*build, *poll, *ended], 2, True, "one\ntwo\nno rule\n"),
    ):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (session,) = read_logs([file]).sessions
        (step,) = [step for step in session.steps if step.command]
        assert (step.code, step.failed, step.result) == (code, failed, result)


@pytest.mark.parametrize(
    ("words", "failed"),
    [
        ("The user doesn't want to proceed with this tool use.", None),
        ("Permission to use Bash with command rm x has been denied.", None),
        ("rm: cannot remove 'x': Permission denied", True),
    ],
)
def test_logs_of_refused_commands_do_not_tell(
    tmp_path: Path, words: str, failed: bool | None
) -> None:
    """A command that a person or a rule refused neither worked nor failed."""
    use = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "rm x"}}
    result = {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": words}
    rows = [
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [result]}},
    ]
    file = tmp_path / "session.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (session,) = read_logs([file]).sessions
    assert session.steps[0].failed is failed
    rows[1] = {**rows[1], "toolUseResult": {"permissionDecision": "reject"}}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_logs([file]).sessions[0].steps[0].failed is None
    state = {"status": "error", "input": {"command": "rm x"}, "error": words}
    message = {"info": {"role": "assistant"}, "parts": [{"type": "tool", "state": state}]}
    other = tmp_path / "export.json"
    other.write_text(json.dumps({"messages": [message]}))
    assert read_logs([other]).sessions[0].steps[0].failed is failed


def test_logs_of_opencode_as_database(tmp_path: Path) -> None:
    """Sessions of the newer store, without those of subagents; damaged data are passed over."""
    state = {
        "status": "completed",
        "input": {"command": "pip install x"},
        "output": "no",
        "metadata": {"exit": 1},
    }
    asked: tuple[str, list[object]] = ("user", [{"type": "text", "text": "Add x."}])
    worked: tuple[str, list[object]] = (
        "assistant",
        [{"type": "step-start"}, "{", {"type": "tool", "state": state}],
    )
    rows = {"ses_1": [asked, worked], "sub_1": [asked], "ses_2": [], "ses_3": [asked]}
    file = opencode_database(tmp_path / "opencode.db", rows)
    (tmp_path / "other.db").write_text("x")
    found = read_logs([tmp_path])
    assert [session.file for session in found.sessions] == [
        "opencode.db#ses_1",
        "opencode.db#ses_3",
    ]
    assert outcomes(found.sessions[0].steps) == [("pip install x", "no", 1, True)]
    assert [step.text for step in found.sessions[0].steps][:1] == ["Add x."] and not found.unread
    assert set(found.files.values()) == {"7"} and len(read_logs([file, file]).sessions) == 2
    (tmp_path / "opencode-dev.db").write_text("no database")
    (why,) = read_logs([tmp_path / "opencode-dev.db"]).unread.values()
    assert "not OpenCode's database" in why


def test_logs_of_opencode_as_export(tmp_path: Path) -> None:
    state = {"status": "error", "input": {"command": "tsc"}, "error": "rejected by the user"}
    parts = [
        {"type": "text", "text": "made by the program", "synthetic": True},
        {"type": "step-start"},
        {"type": "tool", "tool": "bash", "state": state},
        {
            "type": "tool",
            "tool": "edit",
            "state": {"status": "completed", "input": {"filePath": "a"}, "output": ""},
        },
        {"type": "tool", "tool": "bash", "state": {"status": "running", "input": {"command": "w"}}},
    ]
    messages = [
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": "types?"}]},
        {"info": {"role": "assistant"}, "parts": parts},
    ]
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"info": {"id": "ses_1"}, "messages": messages}))
    (session,) = read_logs([file]).sessions
    assert session.source == "opencode" and [s.text for s in session.steps if s.text] == ["types?"]
    assert outcomes(session.steps) == [
        ("tsc", "rejected by the user", None, True),
        ("w", "", None, None),
    ]


@pytest.mark.parametrize("version", ["ATIF-v1.0", "ATIF-v1.4", "ATIF-v1.7"])
def test_logs_of_atif_by_version(tmp_path: Path, version: str) -> None:
    """Results belong to calls by id, or by place; outcomes are marks, or words of the output."""
    calls = [
        {"tool_call_id": name, "function_name": "bash", "arguments": {"command": name}}
        for name in ("one", "two")
    ]
    named = [
        {"source_call_id": "two", "content": "fine"},
        {"source_call_id": "one", "content": "fatal: no"},
    ]
    alone = [
        {"content": [{"type": "text", "text": "x"}], "extra": {"is_error": True}},
        {"content": "fine"},
    ]
    twice = [
        {"source_call_id": "one", "content": "a", "extra": {"exit_code": 2}},
        {"source_call_id": "one", "content": "b"},
    ]
    steps = [
        {"step_id": 1, "source": "system", "message": "you are"},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": named},
        },
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": alone},
        },
        {"step_id": 4, "source": "agent", "message": "copied", "is_copied_context": True},
        {
            "step_id": 5,
            "source": "agent",
            "message": "",
            "tool_calls": calls,
            "observation": {"results": twice},
        },
    ]
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps({"schema_version": version, "agent": {"name": "a"}, "steps": steps}))
    (session,) = read_logs([file]).sessions
    assert [(s.command, s.failed) for s in session.steps] == [
        ("one", True),
        ("two", False),
        ("one", True),
        ("two", False),
        ("one", True),
        ("two", None),  # without a result it is not told
    ]
    assert session.steps[-2].result == "a\nb"


def test_logs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('{"schema_version": "ATIF-v2.0", "steps": []}')
    (tmp_path / "c.jsonl").write_text('{"other": 1}\n')
    (tmp_path / "d.jsonl").write_bytes(b"\xff\x00\n")
    (tmp_path / "e.jsonl").write_text('{"type": "user", "message": {"content": []}}\n')
    (tmp_path / "f.txt").write_text("no log")
    (tmp_path / "g.json").write_text("[" * 100_000)
    found = read_logs([tmp_path])
    assert not found.sessions
    assert {Path(name).name: why for name, why in found.unread.items()} == {
        "a.json": "not JSON",
        "b.json": "neither a trajectory (ATIF v1.x) nor an export of OpenCode",
        "c.jsonl": "the records are none of Claude Code or Codex",
        "d.jsonl": "no line of it is a record",
        "e.jsonl": "no step of claude in it",
        "g.json": "not JSON",
    }
    with pytest.raises(UserError, match="there are no session logs"):
        read_logs([tmp_path / "nowhere"])


def test_logs_are_clipped_after_the_cut_only(tmp_path: Path) -> None:
    """A secret at the place where a long text is clipped is cut whole."""
    long = "x" * 9_995 + "SECRET-SECRET" + "y" * 20_000
    WRITERS["claude"](tmp_path / "one", [Said("agent", "", "a", long)])
    (session,) = read_logs([tmp_path]).sessions
    cut = cut_session(session, lambda text: text.replace("SECRET-SECRET", ""))
    assert len(cut.steps[0].result) < 20_100 and "SEC" not in cut.steps[0].result


def test_logs_in_a_folder_called_session_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    line = {"type": "user", "message": {"role": "user", "content": "hello"}, "sessionId": "a"}
    (folder / "a.jsonl").write_text(json.dumps(line) + "\n")
    found = read_logs([folder])
    assert [one.source for one in found.sessions] == ["claude"] and not found.unread


def test_logs_with_absurd_exit_codes_are_read(tmp_path: Path) -> None:
    from culmen.extensions.skills.mining.logs import _exit_code

    assert _exit_code(f"Exit code {'9' * 5000}\nx")[0] is None
    assert _exit_code("Exit code 2\nx") == (2, "x")
