"""Readers of session logs: Claude Code, Codex, OpenCode and ATIF, as one list of steps.

claude    ~/.claude/projects/*/*.jsonl
codex     ~/.codex/sessions/**/rollout-*.jsonl
opencode  ~/.local/share/opencode/opencode.db (tables session, message, part), or
          `opencode export` as a file
atif      trajectory.json of Harbor and of culmen, ATIF v1.x

Records of unknown kinds are passed over: the programs add some with every version. A file of which
no record is known, or whose lines are damaged, is named with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.foreign import boundary
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject

PLACES = {
    "claude": "~/.claude/projects",
    "codex": "~/.codex/sessions",
    "opencode": "~/.local/share/opencode/opencode.db",
}
_DATABASE = re.compile(r"opencode[\w.-]*\.db")
LARGEST = 64 << 20  # bytes of a log that is read
_TEXT = 20_000  # characters that are kept of one text: its beginning and its end
_SUFFIXES = (".json", ".jsonl")
_ERROR_LINE = re.compile(
    r"(?im)^\s*(?:\S+: )?(?:error\b|fatal:|traceback \(most|.*command not found"
    r"|.*no such file or directory|.*\w(?:Error|Exception): )"
)
_FIRST_LINE = re.compile(r"(?i)\A\s*(?:error: )?exit code:? (-?\d{1,9})(?!\d)\s*")
_HEAD = re.compile(r"(?im)^(?:process exited with code|exit code:) (-?\d{1,9})(?!\d)\s*$")


class LoggedStep(msgspec.Struct):
    """A step of a session.

    `who` is user | agent; `text` their words, for a tool call its purpose if one is given;
    `command` is the shell command that a call ran, "" for other steps; `failed` is None if the log
    does not tell.
    """

    who: str
    text: str = ""
    command: str = ""
    result: str = ""
    code: int | None = None
    failed: bool | None = None


# a command that was never run: words of Claude Code and OpenCode in its place
_NEVER_RUN = re.compile(
    r"(?i)the user (?:doesn't want to (?:proceed with|take)|rejected|has rejected|declined)"
    r"|permission to use \S+ .{0,200}(?:denied|not been granted|haven't granted)"
    r"|requested permissions to use|rejected permission|rule which prevents"
)
# Codex goes on with the model while a command runs; its later output names the session
_RUNNING = re.compile(r"(?im)^process running with session id:? (\d{1,18})\s*$")


class SessionLog(msgspec.Struct):
    """A session's steps in order, its format, a hash of its path as name, and its file's name."""

    source: str
    name: str
    file: str
    steps: list[LoggedStep]


class LogsRead(msgspec.Struct):
    """The sessions of some places; `unread` has a reason for each file that cannot be read.

    `damaged` counts the lines that were passed over in files that can be read otherwise.
    """

    sessions: list[SessionLog] = []
    unread: dict[str, str] = {}
    damaged: int = 0
    files: dict[str, str] = {}


class _Unreadable(Exception):
    """A file that is no session log, with the reason."""


def read_logs(places: Sequence[Path]) -> LogsRead:
    """The sessions of files and of folders with files in them; raise UserError without a place."""
    found = LogsRead()
    for place in places:
        if not place.exists():
            raise UserError(
                "there are no session logs", where=str(place), fix="name a folder or a file"
            )
        for file in _log_files(place):
            try:
                root = place if place.is_dir() else place.parent
                path_inside(root, file.relative_to(root))
                stat = file.stat()
                if _DATABASE.fullmatch(file.name):
                    for session, mark in read_database(file):
                        if session.name not in found.files:
                            found.files[session.name] = mark
                            found.sessions.append(session)
                    continue
                if stat.st_size > LARGEST:
                    raise _Unreadable(f"more than {LARGEST >> 20} MB")
                session, damaged = read_session(file)
            except (_Unreadable, UserError, OSError) as error:
                found.unread[str(file)] = str(error)
                continue
            if session.name not in found.files:
                found.files[session.name] = f"{stat.st_size} {stat.st_mtime_ns}"
                found.sessions.append(session)
                found.damaged += damaged
    return found


def _log_files(place: Path) -> list[Path]:
    """The place itself, or the files in it that may be logs."""
    if place.is_file():
        return [place]
    return sorted(
        file
        for file in place.rglob("*")
        if file.is_file() and (file.suffix in _SUFFIXES or _DATABASE.fullmatch(file.name))
    )


@boundary()
def read_session(file: Path) -> tuple[SessionLog, int]:
    """One session, and the number of its damaged lines; raise `_Unreadable`."""
    name = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    damaged = 0
    if file.suffix == ".jsonl":
        records, damaged = _json_lines(file)
        source, steps = _steps_of_records(records)
    else:
        source, steps = _steps_of_document(_json_file(file))
    if not steps:
        raise _Unreadable(f"no step of {source} in it")
    return SessionLog(source, name, f"{file.parent.name}/{file.name}", steps), damaged


@boundary()
def read_database(file: Path) -> list[tuple[SessionLog, str]]:
    """The sessions of OpenCode's database, each with the time of its last change.

    Sessions of subagents and empty ones are left out, as are those over `LARGEST`. Raises
    `_Unreadable`.
    """
    place = f"file:{urllib.parse.quote(str(file.resolve()))}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(place, uri=True)) as database:
            rows = database.execute(_SESSIONS, (LARGEST,)).fetchall()
            found = [(_stored_session(database, file, key), str(time)) for key, time in rows]
    except sqlite3.Error as error:
        raise _Unreadable(f"not OpenCode's database: {error}") from None
    return [(session, time) for session, time in found if session.steps]


_SESSIONS = (
    "select id, time_updated from session where parent_id is null and (select "
    "coalesce(sum(length(data)), 0) from part where session_id = session.id) <= ? order by id"
)


def _stored_session(database: sqlite3.Connection, file: Path, key: object) -> SessionLog:
    """One session; the data of a message or part that is not JSON are passed over."""
    parts: dict[str, list[JsonObject]] = {}
    query = "select message_id, data from part where session_id = ? order by id"
    for message, data in database.execute(query, (key,)):
        parts.setdefault(str(message), []).append(_json_object(data))
    query = "select id, data from message where session_id = ? order by time_created, id"
    rows = database.execute(query, (key,)).fetchall()
    messages = [(_json_object(data), parts.get(str(message), [])) for message, data in rows]
    name = hashlib.sha256(f"{file.resolve()}#{key}".encode()).hexdigest()[:12]
    return SessionLog("opencode", name, f"{file.name}#{key}", list(_opencode_steps(messages)))


def _json_object(data: object) -> JsonObject:
    try:
        return _mapping(json.loads(data)) if isinstance(data, str | bytes) else {}
    except (ValueError, RecursionError):
        return {}


def _json_file(file: Path) -> object:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise _Unreadable("not JSON") from None


def _json_lines(file: Path) -> tuple[list[JsonObject], int]:
    records: list[JsonObject] = []
    damaged = 0
    for line in file.read_bytes().splitlines():
        try:
            record = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            damaged += 1
            continue
        if isinstance(record, dict):
            records.append(record)
    if not records:
        raise _Unreadable("no line of it is a record")
    return records, damaged


def _steps_of_records(records: list[JsonObject]) -> tuple[str, list[LoggedStep]]:
    if any("payload" in record for record in records):
        payloads = [
            _mapping(each.get("payload")) for each in records if each.get("type") == "response_item"
        ]
        return "codex", list(_codex_steps(payloads))
    if any(record.get("type") in ("user", "assistant") for record in records):
        return "claude", list(_claude_steps(records))
    raise _Unreadable("the records are none of Claude Code or Codex")


def _steps_of_document(found: object) -> tuple[str, list[LoggedStep]]:
    document = _mapping(found)
    if str(document.get("schema_version")).startswith("ATIF-v1."):
        return "atif", list(_atif_steps(_rows(document.get("steps"))))
    if isinstance(document.get("messages"), list):
        pairs = [
            (_mapping(each.get("info")), _rows(each.get("parts")))
            for each in _rows(document["messages"])
        ]
        return "opencode", list(_opencode_steps(pairs))
    raise _Unreadable("neither a trajectory (ATIF v1.x) nor an export of OpenCode")


# -- Claude Code: records user and assistant, tool results as blocks of the user's records


def _claude_steps(records: Iterable[JsonObject]) -> Iterator[LoggedStep]:
    calls: dict[str, LoggedStep] = {}
    for record in records:
        if record.get("isMeta") or record.get("isSidechain") or record.get("isCompactSummary"):
            continue
        content = _mapping(record.get("message")).get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _rows(content)
        who = {"user": "user", "assistant": "agent"}.get(str(record.get("type")), "")
        for block in blocks if who else ():
            match block.get("type"):
                case "text":
                    yield LoggedStep(who, _text_of(block.get("text")))
                case "tool_use":
                    step = _call_step(block.get("input"))
                    calls[str(block.get("id"))] = step
                    yield step
                case "tool_result" if step := calls.get(str(block.get("tool_use_id"))):
                    failed = block.get("is_error") is True
                    _set_result(step, _text_of(block.get("content")), failed=failed)
                    if failed and _was_refused(record, step):
                        step.failed = None
                case _:
                    pass


# -- Codex: messages, function calls and their outputs, paired by call_id


def _codex_steps(items: Iterable[JsonObject]) -> Iterator[LoggedStep]:
    calls: dict[str, LoggedStep] = {}
    running: dict[str, LoggedStep] = {}  # by the number of their session
    for item in items:
        match item.get("type"):
            case "message" if item.get("role") in ("user", "assistant"):
                text = _text_of(item.get("content"))
                if not text.lstrip().startswith(("<environment_context", "<user_instructions")):
                    who = "user" if item["role"] == "user" else "agent"
                    yield LoggedStep(who, text)
            case "function_call" | "custom_tool_call" | "local_shell_call":
                given = item.get("action") or item.get("arguments")
                yield (step := _call_step(given))
                if item.get("name") == "write_stdin":
                    session = (_mapping(given) or _mapping(_decoded(given))).get("session_id")
                    step = running.get(str(session), step)
                calls[str(item.get("call_id"))] = step
            case "function_call_output" | "custom_tool_call_output":
                if step := calls.get(str(item.get("call_id"))):
                    output, earlier = item.get("output"), step.result
                    _set_result(step, output if isinstance(output, dict) else _text_of(output))
                    head, _, body = step.result.partition("Output:\n")
                    if going := _RUNNING.search(head):
                        running[going[1]] = step
                        step.result, step.failed = body, None
                    step.result = earlier + step.result
            case _:
                pass


# -- OpenCode: messages with parts; a call is one part with its state


def _opencode_steps(
    messages: Iterable[tuple[JsonObject, list[JsonObject]]],
) -> Iterator[LoggedStep]:
    for info, parts in messages:
        who = "user" if info.get("role") == "user" else "agent"
        for part in parts:
            if part.get("type") == "text" and not (part.get("synthetic") or part.get("ignored")):
                yield LoggedStep(who, _text_of(part.get("text")))
            elif part.get("type") == "tool":
                state = _mapping(part.get("state"))
                step = _call_step(state.get("input"))
                code = _mapping(state.get("metadata")).get("exit")
                if state.get("status") not in ("pending", "running"):  # these have no outcome
                    _set_result(
                        step,
                        _text_of(state.get("output") or state.get("error")),
                        code=code if isinstance(code, int) else None,
                        failed=True if state.get("status") == "error" else None,
                    )
                if state.get("status") == "error" and _was_refused(state, step):
                    step.failed = None
                yield step


# -- ATIF: steps with tool calls and the observation that follows


def _atif_steps(steps: Iterable[JsonObject]) -> Iterator[LoggedStep]:
    for step in steps:
        who = {"user": "user", "agent": "agent"}.get(str(step.get("source")), "")
        if not who or step.get("is_copied_context"):
            continue
        if text := _text_of(step.get("message")):
            yield LoggedStep(who, text)
        calls = _rows(step.get("tool_calls"))
        results = _rows(_mapping(step.get("observation")).get("results"))
        for place, call in enumerate(calls):
            made = _call_step(call.get("arguments"))
            named = [each for each in results if each.get("source_call_id")]
            own = [each for each in named if each["source_call_id"] == call.get("tool_call_id")]
            if not named and len(results) == len(calls):
                own = [results[place]]
            _set_atif_results(made, own)
            yield made


def _set_atif_results(step: LoggedStep, results: list[JsonObject]) -> None:
    """Set the outcome by all results of a call: the texts, and the first code and mark."""
    if not results:  # not told
        return
    extras = [_mapping(each.get("extra")) for each in results]
    codes = [each.get("exit_code", each.get("returncode")) for each in extras]
    marks = [each.get("is_error") for each in extras]
    _set_result(
        step,
        "\n".join(filter(None, (_text_of(each.get("content")) for each in results))),
        code=next((each for each in codes if isinstance(each, int)), None),
        failed=next((each for each in marks if isinstance(each, bool)), None),
    )


# -- parts of all formats


def _was_refused(record: JsonObject, step: LoggedStep) -> bool:
    """True if a command was refused and never ran."""
    decision = str(record.get("permissionDecision") or "")
    inner = str(_mapping(record.get("toolUseResult")).get("permissionDecision") or "")
    said = step.code is None and _NEVER_RUN.search(step.result)
    return bool(said) or any(each in ("reject", "deny") for each in (decision, inner))


def _call_step(arguments: object) -> LoggedStep:
    """A tool call; its command stands under one of the names that the programs use."""
    given = _mapping(arguments) or _mapping(_decoded(arguments))
    named = [given.get(name) for name in ("command", "cmd", "keystrokes", "script")]
    command = next((each for each in named if each), "")
    if isinstance(command, list):
        words = [str(word) for word in command]
        is_shell = len(words) == 3 and words[1] in ("-c", "-lc")
        command = words[2] if is_shell else " ".join(words)
    purpose = given.get("description") or given.get("justification") or ""
    return LoggedStep("agent", _text_of(purpose), _text_of(command))


def _set_result(
    step: LoggedStep,
    output: str | JsonObject,
    code: int | None = None,
    failed: bool | None = None,
) -> None:
    """Set the outcome; without a code and a mark it is read from the text."""
    found, text = _exit_code(output)
    code = found if code is None else code
    if code is not None:
        failed = code != 0
    elif failed is None:
        failed = bool(_ERROR_LINE.search(text))
    step.result, step.code, step.failed = text, code, failed


def _exit_code(output: str | JsonObject) -> tuple[int | None, str]:
    """The exit code that an output begins with, and the output without it.

    Codex writes JSON with metadata, or a head that ends in a line `Output:`, by version; Claude
    Code writes a first line.
    """
    document = _mapping(output) or _mapping(_decoded(output))
    code = _mapping(document.get("metadata")).get("exit_code")
    if isinstance(code, int):
        return code, _text_of(document.get("output"))
    text = output if isinstance(output, str) else ""
    head, mark, body = text.partition("Output:\n")
    if mark and (coded := _HEAD.search(head)):
        return int(coded[1]), body
    coded = _FIRST_LINE.match(text)
    return (int(coded[1]), text[coded.end() :]) if coded else (None, text)


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _decoded(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] == "{" else None
    except (ValueError, RecursionError):
        return None


def _text_of(value: object) -> str:
    """A text, or the texts of a list of blocks."""
    if isinstance(value, list):
        return "\n".join(_text_of(block.get("text")) for block in _rows(value))
    return value if isinstance(value, str) else ""


def cut_session(session: SessionLog, cut: Callable[[str], str]) -> SessionLog:
    """The session with every text as `cut` returns it, the long ones without their middle."""
    steps = [
        msgspec.structs.replace(
            step,
            text=_clipped(cut(step.text)),
            command=_clipped(cut(step.command)),
            result=_clipped(cut(step.result)),
        )
        for step in session.steps
    ]
    return SessionLog(session.source, session.name, cut(session.file), steps)


def _clipped(text: str) -> str:
    half = _TEXT // 2  # after the cut: half of a key would not be found any more
    return text if len(text) <= _TEXT else f"{text[:half]}\n...\n{text[-half:]}"
