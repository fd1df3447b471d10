"""Runs in a database from the command line: made, looked at, copied, dropped; and archives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import PASSWORD, Server

from .conftest import Place


@pytest.fixture
def served(done: Place, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The finished run, with an empty database in CULMEN_DB."""
    monkeypatch.setenv("CULMEN_DB", database)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return done


def told(place: Place, *arguments: str) -> dict:
    """The output of a verb as a document; the password is in none of it."""
    asked = place.here(*arguments, "--json")
    assert asked.code == 0, asked.err + asked.out
    words = place.here(*arguments) if arguments[0] not in ("db", "archive", "run") else asked
    assert PASSWORD not in asked.out + asked.err + words.out + words.err
    return asked.document


@pytest.mark.slow
@pytest.mark.postgres
def test_a_run_is_copied_into_a_database_and_every_verb_finds_it_there(
    served: Place, database: str
) -> None:
    copied = told(served, "runs", "db", "copy", "first", "db:")["copied"]
    assert copied[0]["to"].endswith("#first") and copied[0]["tables"]["event"]["rows"] > 10
    for address in ("db:first", f"{database}#first"):
        assert told(served, "status", address)["state"] == "finished"
    assert told(served, "runs", "replay", "db:first", "--verify")["matches"]
    for verb in ("best", "show", "audit"):
        told(served, verb, "db:first")
    for view in (("--diff", "seed"), ("--lineage",), ("--log",)):
        told(served, "show", "db:first", *view)
    assert [line["run"] for line in told(served, "runs", "db", "list", "db:")["runs"]] == ["first"]
    assert told(served, "runs", "vacuum", "db:first")["after"] > 0
    again = served.here("runs", "db", "copy", "first", "db:")
    assert again.code == 2 and "already" in again.err
    assert served.here("runs", "db", "drop", "db:first").code == 2
    told(served, "runs", "db", "drop", "db:first", "--yes")
    assert told(served, "runs", "db", "list", "db:")["runs"] == []
    assert served.here("status", "db:first").code == 2


@pytest.mark.postgres
@pytest.mark.jail
def test_a_run_with_its_journal_in_a_database_is_made_and_resumed(
    served: Place, tmp_path: Path
) -> None:
    where = str(tmp_path / "here" / "remote")
    options = ("--budget", "evaluations=6", "--quiet", "--workers", "1")
    told(served, "run", "peak", *options, "--db", "db:remote", "--run-dir", where)
    assert not (Path(where) / "journal.db").exists()
    assert (
        told(served, "status", where)["state"]
        == told(served, "status", "db:remote")["state"]
        == "finished"
    )
    assert served.here("resume", where, "--json").document["state"] == "finished"
    assert told(served, "runs", "replay", "db:remote")["matches"]


def test_archives_come_back_from_the_command_line(done: Place, tmp_path: Path) -> None:
    packed = tmp_path / "first.culmen.tar.xz"
    made = done.here("runs", "archive", "first", "--out", str(packed), "--json").document[
        "archives"
    ][0]
    assert made["after"] < made["before"] and not made["removed"]
    back = done.here(
        "runs", "archive", "--restore", str(packed), "--out", str(tmp_path / "back"), "--json"
    )
    assert back.code == 0 and back.document["archives"][0]["events"] == made["events"]
    assert done.here("runs", "replay", str(tmp_path / "back"), "--json").document["matches"]
    assert "->" in done.here("runs", "vacuum", str(tmp_path / "back")).out
    assert done.here("runs", "archive", "--restore", "--remove", str(packed)).code == 2


def test_an_address_without_a_database_says_what_to_set(
    done: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CULMEN_DB", raising=False)
    asked = done.here("status", "db:first")
    assert asked.code == 2 and "export CULMEN_DB=" in asked.err


def results(place: Place, run: str) -> dict:
    """The first finished result for the mark of a request, which a fork takes over."""
    events = told(place, "show", run, "--log", "--all")["events"]
    return {event["mark"]: event["result"] for event in reversed(events) if event["kind"] == "done"}


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.jail
def test_forks_go_into_a_database_from_one_to_another_and_back(
    served: Place, postgres_server: Server, tmp_path: Path
) -> None:
    other = f"{postgres_server.new_database()}#second"
    steps = (
        ("first", "db:forked", "db:forked"),
        ("db:forked", other, other),
        (other, "", str(tmp_path / "back")),
    )
    first = results(served, "first")
    for number, (parent, into, run) in enumerate(steps):
        options = ["--budget", f"evaluations={16 + number}", "--quiet", "--workers", "1"]
        folder = tmp_path / ("back" if not into else f"here-{number}")
        made = told_of_fork(
            served, parent, *options, "--run-dir", str(folder), *(["--db", into] if into else [])
        )
        assert made["evaluations"] > 10 and (folder / "journal.db").exists() == (not into)
        old, new = results(served, parent), results(served, run)
        shared = old.keys() & new.keys()
        assert len(shared) >= 3 and all(
            old[mark] == new[mark] for mark in shared
        )  # seconds and all: not made again
        assert (
            told(served, "status", run)["state"] == "finished"
            and told(served, "runs", "replay", run)["matches"]
        )
    assert first.keys() & results(served, str(tmp_path / "back")).keys()
    told(served, "runs", "db", "drop", other, "--yes")  # a fork outlives its parent
    resumed = served.here("resume", str(tmp_path / "back"), "--json")
    assert resumed.code == 0, resumed.err


def told_of_fork(place: Place, *arguments: str) -> dict:
    """A search takes over signals, so it is a process of its own."""
    made = place.culmen("runs", "fork", *arguments, "--json")
    assert made.code == 0, made.err + made.out
    assert PASSWORD not in made.out + made.err
    return made.document
