"""Output and logs of real programs, as `record` stored them, through their readers.

`CULMEN_TEST_AGENTS=codex,opencode` records these anew, and replays that, too.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from culmen.extensions.agents.adapters.catalog import NATIVE, TESTED
from culmen.extensions.skills.mining.logs import read_logs
from tests.extensions.agents.adapters.driving import Signs, job, replayed
from tests.extensions.agents.adapters.real import need
from tests.extensions.agents.adapters.record import COMMANDS, LAST, LOGS, RECORDED, record

FOLDERS = sorted(RECORDED.iterdir())


def check_recording(folder: Path, tmp_path: Path) -> None:
    """The readers find the program's commands, last word, tokens and log."""
    kind, said = folder.name.partition("-")[0], json.loads((folder / "said.json").read_text())
    worked = said["worked"]
    signs = Signs()
    parting = replayed(kind, folder / "worked.jsonl", worked["code"], job(tmp_path), signs)
    assert (parting.ended, parting.word) == ("finished", LAST), parting
    tokens = {"input_tokens": worked["input"], "output_tokens": worked["output"]}
    assert {name: parting.claimed[name] for name in tokens} == tokens
    assert parting.claimed.get("calls", worked["calls"]) == worked["calls"]
    asked = [tool for tool in signs.of("tool") if any(each in tool for each, _ in COMMANDS)]
    assert len(asked) == len(COMMANDS)
    failed = said["failed"]
    parting = replayed(kind, folder / "failed.jsonl", failed["code"], job(tmp_path), Signs())
    assert parting.ended == "crashed" and "400" in parting.why, parting
    if kind in LOGS:
        (session,) = read_logs([_log(folder, tmp_path)]).sessions
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


def test_each_program_is_recorded_in_the_version_that_was_tried_last() -> None:
    npm = [kind for kind in NATIVE if kind in TESTED and TESTED[kind].installer.startswith("npm")]
    assert [each.name for each in FOLDERS] == sorted(
        f"{kind}-{TESTED[kind].versions[-1]}" for kind in npm
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [folder.name.partition("-")[0] for folder in FOLDERS])
def test_a_recording_made_anew_is_read_alike(tmp_path: Path, kind: str) -> None:
    need(kind)
    check_recording(record(kind, tmp_path / "recorded"), tmp_path)
