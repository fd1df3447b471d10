"""Mined faults as proposed Harbor tasks, which become cases when a person confirms them.

DIR/proposed/FAULT/ has evidence.md and up to six tasks, each of another session's request;
DIR/tasks has the confirmed ones. DIR/faults.json is the record of all faults: one that a person has
removed from proposed/ is not proposed again.

No recorded command is ever run: a task asks which commands an agent would run, and its tests
compare them with the fault's patterns.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from culmen.core.errors import RunLocked, UserError
from culmen.extensions.skills.mining import commands as check
from culmen.extensions.skills.mining.faults import FaultEvidence, RecurringFault, find_faults
from culmen.extensions.skills.mining.keys import require_detectors
from culmen.extensions.skills.mining.logs import cut_session, read_logs
from culmen.extensions.skills.mining.redaction import Redactor

PROPOSED, TASKS, RECORD = "proposed", "tasks", "faults.json"
LEAST = 3  # sessions that make a fault a recurring one
_SPLITS = ("train", "val", "test")
_TOML = """\
version = "1.0"

[metadata.culmen]
environment = "plain"
split = "{split}"
fault = {fault}

[agent]
timeout_sec = 300.0

[verifier]
timeout_sec = 60.0
"""
_INSTRUCTION = """\
The project that this request is about is not here, and nothing is to be run. Write the shell
commands that you would run in the project, one a line, to the file commands.sh in the working
directory.

The request:

{request}
"""
_TEST = """\
#!/bin/bash
python3 /tests/commands.py /app/commands.sh /tests/rule.json /logs/verifier/reward.txt
"""


class FaultRecord(msgspec.Struct):
    """A fault as recorded: `state` is proposed | confirmed | removed | not replayable."""

    name: str
    state: str
    sessions: int
    avoid: str
    use: str
    why_not: str = ""


class MiningRecord(msgspec.Struct):
    """DIR/faults.json.

    `files` has size and time of each session's log by the session's name, `cut` the number of
    distinct secrets by kind, `quoted` the texts that
    no rule can judge and that a person has confirmed.
    """

    faults: list[FaultRecord] = []
    files: dict[str, str] = {}
    cut: dict[str, int] = {}
    quoted: list[str] = []


class MiningReport(msgspec.Struct):
    """The outcome of one mining; `new` are faults that were proposed now."""

    sessions: dict[str, int]
    fresh: int
    unread: dict[str, str]
    damaged: int
    cut: dict[str, int]
    faults: list[FaultRecord]
    new: list[str]


def read_record(folder: Path) -> MiningRecord:
    """The record of a folder; an empty one without a file."""
    file = folder / RECORD
    if not file.is_file():
        return MiningRecord()
    try:
        return msgspec.json.decode(file.read_bytes(), type=MiningRecord)
    except msgspec.DecodeError as error:
        raise UserError(
            f"the record of mined faults cannot be read: {error}",
            where=str(file),
            fix="move it away; what was removed from proposed/ is proposed again then",
        ) from None


def write_record(folder: Path, record: MiningRecord) -> None:
    """Replace the record of a folder."""
    made = folder / f".{RECORD}"
    made.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2))
    made.replace(folder / RECORD)


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold the folder; the system lets go of it if the process dies. Raises RunLocked."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".mine.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunLocked(
                "another culmen skill mine is at work here",
                where=str(folder),
                fix="wait for its end",
            ) from None
        yield


def mine_sessions(
    places: Sequence[Path], folder: Path, least: int = LEAST, quoted: Sequence[str] = ()
) -> MiningReport:
    """Read logs, cut secrets, and propose a task folder for each recurring fault.

    `quoted` has texts that no rule can judge and that a person confirms; they are remembered.
    """
    require_detectors()
    confirmed = sorted({*read_record(folder).quoted, *quoted})
    logs, redactor = read_logs(places), Redactor(confirmed)
    for session in logs.sessions:
        redactor.learn_names(t for s in session.steps for t in (s.text, s.command, s.result))
    sessions = [cut_session(session, redactor.cut) for session in logs.sessions]
    folder.mkdir(parents=True, exist_ok=True)
    before = read_record(folder)
    new: list[str] = []
    known = {each.name: each for each in before.faults}
    for fault in find_faults(sessions, least):
        there = (folder / PROPOSED / fault.name).is_dir()
        again = bool(quoted) and _has_unjudged(folder / PROPOSED / fault.name)
        known[fault.name] = _propose(fault, folder, redactor.cut, known.get(fault.name), again)
        if not there and (folder / PROPOSED / fault.name).is_dir():
            new.append(fault.name)
    faults = [msgspec.structs.replace(one, state=_state(folder, one)) for one in known.values()]
    counted = {s.source: sum(x.source == s.source for x in sessions) for s in sessions}
    fresh = sum(before.files.get(name) != stamp for name, stamp in logs.files.items())
    files = {**before.files, **logs.files}
    write_record(folder, MiningRecord(faults, files, redactor.counts, confirmed))
    unread = {redactor.cut(name): why for name, why in logs.unread.items()}
    return MiningReport(counted, fresh, unread, logs.damaged, redactor.counts, faults, new)


def _state(folder: Path, record: FaultRecord) -> str:
    """Folders come first: tasks of a person's choice stay whatever later sessions say."""
    if any((folder / TASKS).glob(f"{record.name}-[0-9]*")):
        return "confirmed"
    if (folder / PROPOSED / record.name).is_dir():
        return PROPOSED
    return "not replayable" if record.why_not else "removed"


def _propose(
    fault: RecurringFault,
    folder: Path,
    cut: Callable[[str], str],
    known: FaultRecord | None,
    again: bool,
) -> FaultRecord:
    """The fault's record, after its tasks are written unless it was proposed before.

    `again` writes a proposal that is there once more.
    """
    record = FaultRecord(
        fault.name,
        PROPOSED,
        fault.sessions,
        " ".join(fault.avoid),
        " ".join(fault.use),
        fault.why_not,
    )
    home = folder / PROPOSED / fault.name
    if known is not None and not known.why_not and not again:  # proposed once, perhaps removed
        record.why_not = ""
        return record
    if fault.why_not or (not again and _state(folder, record) != "removed"):
        return record
    rule = rule_text(fault, cut)
    usable, reasons = _usable_evidence(fault, rule)
    if not usable:
        record.why_not = "; ".join(sorted(reasons))
        return record
    with tempfile.TemporaryDirectory(dir=folder) as place:
        made = Path(place) / fault.name
        for number, evidence in enumerate(usable):
            task = made / f"{fault.name}-{number + 1}"
            _write_task(task, fault.name, rule, evidence, number, cut)
        _write(made / "evidence.md", _evidence_text(fault, len(usable), folder), cut)
        home.parent.mkdir(exist_ok=True)
        if again:
            shutil.rmtree(home)
        shutil.move(made, home)
    return record


def _has_unjudged(home: Path) -> bool:
    """True if an unconfirmed proposal withholds a text that no rule can judge."""
    files = [home / "evidence.md", *home.glob("*/instruction.md")]
    return any("[unjudged-" in file.read_text("utf-8") for file in files if file.is_file())


def _usable_evidence(fault: RecurringFault, rule: str) -> tuple[list[FaultEvidence], set[str]]:
    """Evidence for tasks, each of another session, and the reasons that the other has none."""
    found: list[FaultEvidence] = []
    reasons: set[str] = set()
    for evidence in fault.evidence:
        if len(found) == 6:  # tasks of one fault
            break
        reason = _reason_against(fault, rule, evidence, [one.request for one in found])
        if any(one.session == evidence.session for one in found):
            reason = "another of the same session"
        if reason:
            reasons.add(reason)
        else:
            found.append(evidence)
    return found, reasons


def _reason_against(
    fault: RecurringFault, rule: str, evidence: FaultEvidence, requests: Sequence[str]
) -> str:
    """The reason that evidence makes no task, "" if it does; the last one is the replay."""
    asked = f"{evidence.request} {evidence.purpose}".lower().split()
    asked = [word.strip(".,:;!?`'\"()") for word in asked]
    own = [word.lower() for word in fault.use if word not in fault.avoid]
    if not evidence.request:
        return "no request of a person is recorded before it"
    if own and all(word in asked for word in own):
        return "the request says itself what to use"
    if evidence.request in requests:
        return "the same request again"
    if replay(rule, evidence.before):
        return "the check passes on what was wrong"
    return "" if replay(rule, evidence.after) else "the check fails on what was right"


def replay(rule: str, recorded: Sequence[str]) -> bool:
    """True if the check by this rule passes on recorded commands. The commands are not run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "commands.sh").write_text("\n".join(recorded), encoding="utf-8")
        (folder / "rule.json").write_text(rule, encoding="utf-8")
        names = [str(folder / name) for name in ("commands.sh", "rule.json", "reward.txt")]
        subprocess.run(
            [sys.executable, "-I", check.__file__, *names],
            check=True,
            capture_output=True,
            timeout=60.0,  # seconds of one replay
        )
        return (folder / "reward.txt").read_text() == "1\n"


def rule_text(fault: RecurringFault, cut: Callable[[str], str]) -> str:
    """The rule of a fault's check as JSON; `cut` is for its values: cut JSON might be none."""
    cause = "a person corrected it" if fault.kind == "corrected" else "it failed"
    why = f"in {fault.sessions} past sessions {cause} ({fault.error}); what worked: "
    avoid, use = [cut(word) for word in fault.avoid], [cut(word) for word in fault.use]
    return json.dumps({"avoid": avoid, "use": use, "why": cut(f"{why}`{' '.join(use)}`")})


def _write_task(
    folder: Path,
    name: str,
    rule: str,
    evidence: FaultEvidence,
    number: int,
    cut: Callable[[str], str],
) -> None:
    # characters of a request that is shown
    request = "\n".join(f"> {line}" for line in evidence.request[:1_500].splitlines())
    if evidence.purpose:
        request += f"\n\nThe step at hand: {evidence.purpose[:200]}"
    toml = _TOML.format(split=_SPLITS[number % 3], fault=json.dumps(name))
    files = {
        "task.toml": toml,
        "instruction.md": _INSTRUCTION.format(request=request),
        "environment/Dockerfile": "FROM python:3-slim\nWORKDIR /app\n",
        "tests/test.sh": _TEST,
    }
    for path, text in files.items():
        _write(folder / path, text, cut)
    (folder / "tests" / "rule.json").write_text(rule, encoding="utf-8")
    shutil.copyfile(check.__file__, folder / "tests" / "commands.py")


def _write(file: Path, text: str, cut: Callable[[str], str]) -> None:
    """Write a text; cut once more, for it was put together from pieces."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(cut(text), encoding="utf-8")


def _evidence_text(fault: RecurringFault, tasks: int, folder: Path) -> str:
    """The evidence for a person who confirms or removes a proposal."""
    cause = "corrected by a person" if fault.kind == "corrected" else "failed"
    lines = [
        f"# `{' '.join(fault.avoid)}` {cause}, `{' '.join(fault.use)}` came in its place",
        "",
        f"In {fault.sessions} sessions, {len(fault.evidence)} times. {tasks} tasks: an agent that "
        "writes the first fails, one that writes the second and not the first passes. Replayed on "
        "the commands of the sessions: failed before, passed after.",
        "",
        f"Confirm: culmen skill mine --out {folder} --accept {fault.name}",
        "Refuse: remove this folder.",
        "",
        "| session | command | error or correction | in its place |",
        "|---|---|---|---|",
    ]
    rows = [(e.session, f"`{e.bad}`", e.error, f"`{e.good}`") for e in fault.evidence]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")[:160]


def accept_proposals(folder: Path, names: Sequence[str]) -> list[str]:
    """Move the tasks of proposed faults to DIR/tasks; return the tasks' names."""
    for name in names:
        if not (folder / PROPOSED / name).is_dir() or Path(name).name != name:
            raise UserError(
                f"no fault '{name}' is proposed",
                where=str(folder / PROPOSED),
                fix=f"the names there: {', '.join(_proposed_names(folder)) or 'none'}",
            )
    (folder / TASKS).mkdir(exist_ok=True)
    moved: list[str] = []
    for name in names:
        for task in sorted((folder / PROPOSED / name).glob(f"{name}-[0-9]*")):
            shutil.move(task, folder / TASKS / task.name)
            moved.append(task.name)
    record = read_record(folder)
    for each in record.faults:
        each.state = _state(folder, each)
    write_record(folder, record)
    return moved


def _proposed_names(folder: Path) -> Iterator[str]:
    yield from sorted(each.name for each in (folder / PROPOSED).glob("*") if each.is_dir())
