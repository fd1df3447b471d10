"""Output and logs of real programs, as `record` stored them, through their readers.

`CULMEN_TEST_AGENTS=codex,acp:codex` records these anew, and replays that, too.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from culmen.extensions.agents.adapters import AgentJob, Parting
from culmen.extensions.agents.adapters.catalog import KNOWN, NATIVE, TESTED, adapter_by_name
from culmen.extensions.skills.mining.logs import read_logs
from tests.extensions.agents.adapters.driving import Signs, job, python, replayed, started
from tests.extensions.agents.adapters.real import need
from tests.extensions.agents.adapters.record import COMMANDS, LAST, LOGS, RECORDED, record

FOLDERS = sorted(RECORDED.iterdir())
# which claim no tokens, those of the last model call, or at times those of all calls but one
CLAIM_LESS = ("mini", "acp:claude", "acp:codex", "acp:opencode")
FAILED = {  # how a model's fault ends the others' sessions: as "crashed", with the fault's number
    "acp:codex": ("finished", ""),  # as by its own account: the gateway's transcript decides
    "mini": ("crashed", "exit code 1"),
}


def _kind(folder: Path) -> str:
    return folder.name.partition("-")[0].replace(".", ":")


def _parting(kind: str, file: Path, code: int, work: AgentJob, signs: Signs) -> Parting:
    """The adapter's result for the recorded output."""
    if not kind.startswith("acp:"):
        return replayed(kind, file, code, work, signs)

    async def go() -> Parting:
        played = started(*python("replay_acp.py", str(file)))
        async with played as pipes, asyncio.timeout(60):
            return await adapter_by_name(kind).open_dialogue(pipes, work, signs).run()

    return asyncio.run(go())


def check_recording(folder: Path, tmp_path: Path) -> None:
    """The readers find the program's commands, last word, tokens and log."""
    kind, said = _kind(folder), json.loads((folder / "said.json").read_text())
    worked = said["worked"]
    signs = Signs()
    parting = _parting(kind, folder / "worked.jsonl", worked["code"], job(tmp_path), signs)
    assert (parting.ended, parting.word) == ("finished", LAST), parting
    tokens = {"input_tokens": worked["input"], "output_tokens": worked["output"]}
    claimed = {name: parting.claimed.get(name, 0) for name in tokens}
    if kind in CLAIM_LESS:
        assert all(claimed[name] <= tokens[name] for name in tokens), claimed
    else:
        assert claimed == tokens
    assert parting.claimed.get("calls", worked["calls"]) == worked["calls"]
    if kind != "mini":  # whose output has commands in the midst of words
        asked = [tool for tool in signs.of("tool") if any(each in tool for each, _ in COMMANDS)]
        assert len(asked) == len(COMMANDS)
    failed = said["failed"]
    parting = _parting(kind, folder / "failed.jsonl", failed["code"], job(tmp_path), Signs())
    wanted = FAILED.get(kind, ("crashed", "400"))
    assert parting.ended == wanted[0] and wanted[1] in parting.why, parting
    if kind in LOGS:
        logs = [_log(folder, tmp_path), *folder.glob("export.json")]
        assert len(logs) == 2 or kind != "opencode"
        for log in logs:
            (session,) = read_logs([log]).sessions
            assert session.source == kind
            seen = [(each.command, each.failed) for each in session.steps if each.command]
            assert seen == [(command, code != 0) for command, code in COMMANDS]
            assert session.steps[-1].text == LAST


def _log(folder: Path, tmp_path: Path) -> Path:
    """The log as the program stores it."""
    tables = folder / "log.tables"
    if not tables.is_file():
        return folder / "log.jsonl"
    made = tmp_path / "opencode.db"
    with closing(sqlite3.connect(made)) as database:
        for line in tables.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                table, *cells = json.loads(line)
                database.execute(
                    f"insert into {table} values ({', '.join('?' * len(cells))})", cells
                )
            else:
                database.execute(line)
        database.commit()
    return made


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_recording_is_read_as_it_was(tmp_path: Path, folder: Path) -> None:
    check_recording(folder, tmp_path)


@pytest.mark.parametrize("name", [each.name for each in FOLDERS if _kind(each).startswith("acp:")])
def test_a_replay_ends_where_its_recording_does(tmp_path: Path, name: str) -> None:
    folder = RECORDED / name
    lines = (folder / "worked.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    answers = [at for at, line in enumerate(lines) if "method" not in json.loads(line)]
    for kept in (*(lines[:at] for at in answers), lines[1:]):
        cut.write_text("".join(kept), encoding="utf-8")
        parting = _parting(_kind(folder), cut, 0, job(tmp_path), Signs())
        assert (parting.ended, parting.code) == ("crashed", 3), parting


def test_each_program_is_recorded_in_the_version_that_was_tried_last() -> None:
    kinds = [*NATIVE, *(f"acp:{name}" for name in KNOWN)]
    tried = {kind: TESTED[adapter_by_name(kind).program].versions for kind in kinds}
    assert [each.name for each in FOLDERS] == sorted(
        f"{kind.replace(':', '.')}-{versions[-1]}" for kind, versions in tried.items() if versions
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", list(map(_kind, FOLDERS)))
def test_a_recording_made_anew_is_read_alike(tmp_path: Path, kind: str) -> None:
    need(kind)
    check_recording(record(kind, tmp_path / "recorded"), tmp_path)
