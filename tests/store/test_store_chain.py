"""A journal vouches for itself: whatever another program does to it is seen by status, best and resume."""

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import text

from culmen.core.errors import JournalDamaged
from culmen.store import chain, views
from culmen.store.archive import restore_archive
from culmen.store.database import open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.transfer import copy_run, recover_run
from tests.store.runs import address, new_run, observed, program, proposed, state, tampering

ARCHIVES = Path(__file__).parents[1] / "run" / "journals" / "0.1.0"
ROWS = 12  # events of a small run: 2 states, 5 proposals, 5 evaluations


@pytest.fixture(autouse=True)
def forget(monkeypatch, tmp_path):
    """Each test looks as a process does that never saw the run; files of checks are its own."""
    monkeypatch.setattr(chain, "_known", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def small_run(folder, name="run-1"):
    """Events 1 to 12; scores 0, 0.25, ..., 1 at the odd ones from 3 on."""
    journal = new_run(folder, name)
    journal.append([state("running")])
    for number in range(5):
        candidate = program(number, text=name)
        journal.append([proposed(2 * number, candidate), observed(2 * number + 1, candidate, number / 4)])
    journal.append([state("interrupted")])
    journal.close()
    return journal.run_dir


def moved(first, second, table="event"):
    """Statements by which two rows change places."""
    swap = f"UPDATE {table} SET seq = {{}} WHERE seq = {{}}"
    return [swap.format(-1, first), swap.format(first, second), swap.format(second, -1)]


COPIED = "INSERT INTO event SELECT {to}, time, kind, effect, topic, key, mark, elapsed, shape, body, result, data FROM"
LATER = ["UPDATE event SET seq = -seq - 1 WHERE seq >= 6", "UPDATE event SET seq = -seq WHERE seq < 0"]

TAMPERINGS = {
    "delete the first event": (["DELETE FROM event WHERE seq = 1"], "event 1 of the journal is missing"),
    "delete one in the middle": (["DELETE FROM event WHERE seq = 6"], "event 6 of the journal is missing"),
    "delete the last event": (["DELETE FROM event WHERE seq = 12"], "ends at event 11, but 12 were written"),
    "cut off the end with all that is kept of it": (
        [f"DELETE FROM {table} WHERE seq > 9" for table in ("event", "link", "observation")],
        "ends at event 9, but 12 were written",
    ),
    "delete one and renumber": (
        ["DELETE FROM event WHERE seq = 6", "UPDATE event SET seq = seq - 1 WHERE seq > 6"],
        "event 6 is not the one that was written after event 5",
    ),
    "swap two events": (moved(4, 6), "event 4 was changed after it was written"),
    "swap two events with their hashes": (
        moved(4, 6) + moved(4, 6, "link"),
        "event 4 is not the one that was written after event 3",
    ),
    "overwrite what an event holds": (
        ["UPDATE event SET body = CAST('{{}}' AS {bytes}) WHERE seq = 4"],
        "event 4 was changed after it was written",
    ),
    "change a score in its event": (
        ["UPDATE event SET result = (SELECT result FROM event WHERE seq = 11) WHERE seq = 3"],
        "event 3 was changed after it was written",
    ),
    "change a score beside its event": (
        ["UPDATE observation SET score = 5 WHERE seq = 5"],
        "the score kept of event 5 is not the one in the event",
    ),
    "change a mean": (["UPDATE tally SET mean = 5 WHERE first = 5"], "do not add up to its evaluations"),
    "forgive a failure": (["UPDATE tally SET failed = 2 WHERE first = 5"], "do not add up to its evaluations"),
    "change a number": (
        ["UPDATE counter SET value = 3 WHERE scope = 'status'"],
        "the numbers of events and evaluations kept",
    ),
    "repeat an event": ([f"{COPIED.format(to=13)} event WHERE seq = 11"], "event 13 has no hash"),
    "insert an event": ([*LATER, f"{COPIED.format(to=6)} event WHERE seq = 4"], "event 6 is not the one"),
    "change when it happened": (["UPDATE event SET time = time + 1 WHERE seq = 7"], "event 7 was changed"),
    "move the end of the chain": (["UPDATE seal SET seq = 11"], "event 12 was added by another program"),
    "change the hash at the end": (
        ["UPDATE seal SET hash = origin"],
        "the hash recorded for the last event, 12, is not its own",
    ),
    "take the hashes away": (["DELETE FROM link WHERE seq >= 5"], "event 5 has no hash"),
    "take the end of the chain away": (["DELETE FROM seal"], "the record of the journal's last event is missing"),
    "change the settings": (
        ["UPDATE run SET meta = (SELECT origin FROM seal)"],
        "settings were changed by another program",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_seen_by_status_best_and_resume(each_store, tmp_path, name):
    run = small_run(tmp_path)
    chain._known.clear()
    statements, message = TAMPERINGS[name]
    with tampering(run) as connection:
        kind = "BLOB" if connection.dialect.name == "sqlite" else "BYTEA"
        for statement in statements:
            connection.exec_driver_sql(statement.format(bytes=kind) if "{bytes}" in statement else statement)
    for look in (views.run_status, views.best_result, lambda run: SqlJournal.open(run, write=True)):
        with pytest.raises(JournalDamaged, match=message) as caught:
            look(run)
        assert "culmen recover" in caught.value.fix or "backups" in caught.value.fix
    (line,) = views.run_lines([run])
    assert (line.state, line.fix) == ("damaged", caught.value.fix)


def test_events_of_another_run_do_not_fit(tmp_path):
    run, other = small_run(tmp_path), small_run(tmp_path, "run-2")
    with tampering(run) as connection:
        connection.exec_driver_sql(f"ATTACH '{other}/journal.db' AS other")
        for table in ("event", "link"):
            connection.exec_driver_sql(f"DELETE FROM main.{table} WHERE seq = 6")
            connection.exec_driver_sql(f"INSERT INTO main.{table} SELECT * FROM other.{table} WHERE seq = 6")
    with pytest.raises(JournalDamaged, match="event 6 is not the one that was written after event 5"):
        views.run_status(run)


def test_a_text_that_was_changed_is_named_by_whoever_reads_it(each_store, tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.execute(text("UPDATE blob SET data = :data"), {"data": b'{"main.py":"x = 9"}'})
    assert views.run_status(run).evaluations == 5
    with pytest.raises(JournalDamaged, match="was changed after it was written"):
        list(SqlJournal.open(run).retrace())


def test_recover_saves_what_comes_before_the_break_and_names_the_rest(tmp_path):
    run = small_run(tmp_path)
    before = [event.entry for event in SqlJournal.open(run).read()]
    with tampering(run) as connection:
        connection.exec_driver_sql("UPDATE event SET mark = 'other' WHERE seq = 8")
    with pytest.raises(JournalDamaged, match="event 8 was changed") as caught:
        views.run_status(run)
    assert "saves the first 7 events" in caught.value.fix
    saved = recover_run(run)
    assert (saved.events, saved.beyond) == (7, 5)
    assert [event.entry for event in SqlJournal.open(saved.path).read()] == before[:7]
    assert views.run_status(saved.path).evaluations == 3
    SqlJournal.open(saved.path, write=True).close()


def test_without_the_record_of_the_end_recover_saves_all_that_the_error_promises(tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.exec_driver_sql("DELETE FROM seal")
    with pytest.raises(JournalDamaged) as caught:
        views.run_status(run)
    assert f"saves the first {ROWS} events" in caught.value.fix and recover_run(run).events == ROWS


def test_sums_that_were_changed_are_made_anew_by_recover(tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.exec_driver_sql("UPDATE tally SET mean = 9")
    with pytest.raises(JournalDamaged, match="add up"):
        views.best_result(run)
    saved = recover_run(run)
    assert saved.events == ROWS and views.best_result(saved.path).score == 1.0


def test_copies_are_whole_and_a_changed_copy_is_seen(each_store, tmp_path):
    run = small_run(tmp_path)
    for number, target in enumerate((tmp_path / "copy", tmp_path / "moved")):
        if number:
            shutil.copytree(run, target)
        else:
            copy_run(run, target)
        assert views.run_status(target).events == ROWS
        SqlJournal.open(target, write=True).close()
    with tampering(tmp_path / "copy") as connection:
        connection.exec_driver_sql("UPDATE event SET elapsed = 1 WHERE seq = 2")
    with pytest.raises(JournalDamaged, match="event 2 was changed"):
        views.run_status(tmp_path / "copy")


def test_a_run_without_hashes_opens_as_before_and_is_chained_from_then_on(tmp_path):
    run = tmp_path / "old"
    restore_archive(ARCHIVES / "polca-interrupted.culmen.tar.xz", run)
    before = views.run_status(run)
    with SqlJournal.open(run, write=True) as journal:
        journal.append([state("interrupted")])
    assert views.run_status(run).events == before.events + 1
    SqlJournal.open(run, write=True).close()
    with tampering(run) as connection:
        connection.exec_driver_sql(f"UPDATE event SET time = 1 WHERE seq = {before.events + 1}")
    with pytest.raises(JournalDamaged, match=f"event {before.events + 1} was changed"):
        views.run_status(run)


def test_what_was_checked_is_not_read_again_until_a_file_changes(tmp_path, monkeypatch):
    run, read = small_run(tmp_path), []
    check = chain._check_events
    monkeypatch.setattr(chain, "_check_events", lambda *given: read.append(given[3].seq) or check(*given))
    for _ in range(2):
        views.run_status(run)
    assert read == []  # its writer left it whole
    os.utime(run / "journal.db")
    for _ in range(2):
        views.run_status(run)
    SqlJournal.open(run, write=True).close()
    assert read == [0]
    with SqlJournal.open(run, write=True) as journal:
        journal.append([state("running")])
        views.run_status(run)
        journal.append([state("interrupted")])
        views.run_status(run)
    views.run_status(run)
    assert read == [0, ROWS, ROWS + 1]  # of a run that is written: what came since


def test_a_large_run_is_remembered_by_other_processes_too(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "FEW", 1)
    run = small_run(tmp_path)
    monkeypatch.setattr(chain, "_known", {})
    monkeypatch.setattr(chain, "_check_events", None)
    assert views.run_status(run).events == ROWS


def test_a_writer_that_was_not_alone_leaves_nothing_unchecked(tmp_path):
    journal = new_run(tmp_path)
    journal.append([state("running"), state("running")])
    with tampering(journal.run_dir) as connection:
        connection.exec_driver_sql("UPDATE event SET elapsed = 1 WHERE seq = 1")
    journal.append([state("interrupted")])
    journal.close()
    with pytest.raises(JournalDamaged, match="event 1 was changed"):
        views.run_status(journal.run_dir)


@pytest.mark.parametrize("name", ["a chain made anew", "a tail cut off cleanly"])
def test_what_was_seen_once_shows_what_the_chain_cannot(tmp_path, name):
    """Both are consistent; only a memory outside of the run can tell."""
    run = small_run(tmp_path)
    views.run_status(run)
    with tampering(run) as connection:
        if name.startswith("a tail"):
            for table in ("event", "link"):
                connection.exec_driver_sql(f"DELETE FROM {table} WHERE seq = 12")
            connection.exec_driver_sql("UPDATE seal SET seq = 11, hash = (SELECT hash FROM link WHERE seq = 11)")
            connection.exec_driver_sql("UPDATE counter SET value = value - 1 WHERE name = 'state'")
        else:
            connection.exec_driver_sql("UPDATE event SET elapsed = 1 WHERE seq = 1")
            rechain(connection)
    with pytest.raises(JournalDamaged, match="last looked at"):
        views.run_status(run)
    chain._known.clear()
    assert views.run_status(run).evaluations == 5


def rechain(connection):
    """All hashes, computed anew from what is there."""
    seal = chain.read_seal(connection)
    last, rows = seal.origin, next(iter(chain._pages(connection, 0)))
    for row in rows:
        last = chain.link_hash(last, row[:12])
        connection.execute(text("UPDATE link SET hash = :hash WHERE seq = :seq"), {"hash": last, "seq": row[0]})
    connection.execute(text("UPDATE seal SET hash = :hash"), {"hash": last})


def test_a_database_is_read_from_the_last_check_and_whole_when_it_goes_on(tmp_path, shared_database, monkeypatch):
    from tests.store import runs

    monkeypatch.setattr(runs, "DATABASE", shared_database)
    run = small_run(tmp_path)
    assert address("x") and views.run_status(run).events == ROWS
    with tampering(run) as connection:
        connection.exec_driver_sql("UPDATE event SET elapsed = 1 WHERE seq = 2")
    assert views.run_status(run).events == ROWS  # seen before, and its end is the same
    with pytest.raises(JournalDamaged, match="event 2 was changed"):
        SqlJournal.open(run, write=True)


test_a_database_is_read_from_the_last_check_and_whole_when_it_goes_on = pytest.mark.postgres(
    test_a_database_is_read_from_the_last_check_and_whole_when_it_goes_on
)


def test_numbers_are_hashed_as_every_database_returns_them(each_store, tmp_path):
    journal = new_run(tmp_path)
    odd = observed(2, program(1), -0.0, elapsed=-0.0, feedback="\ud800\0", seconds=3)
    journal.append([proposed(1, program(1)), odd, observed(3, program(1), 7)])
    journal.close()
    chain._known.clear()
    assert views.run_status(journal.run_dir).evaluations == 2
    with open_snapshot(journal.run_dir) as connection:
        chain.check_whole(connection, journal.run_dir)
