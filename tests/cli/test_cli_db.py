"""Runs in a database from the command line: made, looked at, copied, migrated, dropped; and archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import PASSWORD

from .conftest import Place


@pytest.fixture
def served(done: Place, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The finished run, with an empty database in CULMEN_DB."""
    monkeypatch.setenv("CULMEN_DB", database)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return done


def told(place: Place, *arguments: str) -> dict:
    """What a verb says as a document; the password is in none of it."""
    asked = place.here(*arguments, "--json")
    assert asked.code == 0, asked.err + asked.out
    words = place.here(*arguments) if arguments[0] not in ("db", "archive", "run") else asked
    assert PASSWORD not in asked.out + asked.err + words.out + words.err
    return asked.document


@pytest.mark.postgres
def test_a_run_is_copied_into_a_database_and_every_verb_finds_it_there(served: Place, database: str) -> None:
    copied = told(served, "db", "copy", "first", "db:")["copied"]
    assert copied[0]["to"].endswith("#first") and copied[0]["tables"]["event"]["rows"] > 10
    for address in ("db:first", f"{database}#first"):
        assert told(served, "status", address)["state"] == "finished"
    assert told(served, "replay", "db:first", "--verify")["matches"]
    for verb in ("best", "show", "diff", "lineage", "log", "audit"):
        told(served, verb, "db:first")
    assert [line["run"] for line in told(served, "db", "list", "db:")["runs"]] == ["first"]
    assert told(served, "db", "migrate", "db:")["runs"] == {"first": "up to date"}
    assert told(served, "vacuum", "db:first")["after"] > 0
    again = served.here("db", "copy", "first", "db:")
    assert again.code == 2 and "already" in again.err
    assert served.here("db", "drop", "db:first").code == 2
    told(served, "db", "drop", "db:first", "--yes")
    assert told(served, "db", "list", "db:")["runs"] == []
    assert served.here("status", "db:first").code == 2


@pytest.mark.postgres
@pytest.mark.jail
def test_a_run_with_its_journal_in_a_database_is_made_and_resumed(served: Place, tmp_path: Path) -> None:
    where = str(tmp_path / "here" / "remote")
    options = ("--budget", "evaluations=6", "--quiet", "--workers", "1")
    told(served, "run", "peak", *options, "--db", "db:remote", "--run-dir", where)
    assert not (Path(where) / "journal.db").exists()
    assert told(served, "status", where)["state"] == told(served, "status", "db:remote")["state"] == "finished"
    assert served.here("resume", where, "--json").document["state"] == "finished"
    assert told(served, "replay", "db:remote")["matches"]


def test_archives_come_back_from_the_command_line(done: Place, tmp_path: Path) -> None:
    packed = tmp_path / "first.culmen.tar.xz"
    made = done.here("archive", "first", "--out", str(packed), "--json").document["archives"][0]
    assert made["after"] < made["before"] and not made["removed"]
    back = done.here("archive", "--restore", str(packed), "--out", str(tmp_path / "back"), "--json")
    assert back.code == 0 and back.document["archives"][0]["events"] == made["events"]
    assert done.here("replay", str(tmp_path / "back"), "--json").document["matches"]
    assert "->" in done.here("vacuum", str(tmp_path / "back")).out
    assert done.here("archive", "--restore", "--remove", str(packed)).code == 2


def test_an_address_without_a_database_says_what_to_set(done: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CULMEN_DB", raising=False)
    asked = done.here("status", "db:first")
    assert asked.code == 2 and "export CULMEN_DB=" in asked.err
