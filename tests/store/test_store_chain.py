"""A journal vouches for itself: replay, export, resume and fork see every foreign change."""

import shutil

import pytest

from culmen.cli.keep import replay_run
from culmen.core.errors import JournalDamaged
from culmen.run.fork import finished_results
from culmen.store import views
from culmen.store.chain import JournalAltered
from culmen.store.export import export_run
from culmen.store.journal import SqlJournal
from culmen.store.transfer import copy_run, recover_run
from tests.store.runs import new_run, observed, program, proposed, state, tampering

ROWS = 12  # events of a small run: 2 states, 5 proposals, 5 evaluations


def small_run(folder, name="run-1"):
    """Events 1 to 12; scores 0, 0.25, ..., 1 at the odd ones from 3 on."""
    journal = new_run(folder, name)
    journal.append([state("running")])
    for number in range(5):
        candidate = program(number, text=name)
        journal.append(
            [proposed(2 * number, candidate), observed(2 * number + 1, candidate, number / 4)]
        )
    journal.append([state("interrupted")])
    journal.close()
    return journal.run_dir


def moved(first, second, table="event"):
    """Statements by which two rows change places."""
    swap = f"UPDATE {table} SET seq = {{}} WHERE seq = {{}}"
    return [swap.format(-1, first), swap.format(first, second), swap.format(second, -1)]


COPIED = (
    "INSERT INTO event SELECT {to}, time, kind, effect, topic, key, mark, elapsed, shape, body, result, "
    "data, hash FROM"
)
LATER = [
    "UPDATE event SET seq = -seq - 1 WHERE seq >= 6",
    "UPDATE event SET seq = -seq WHERE seq < 0",
]

TAMPERINGS = {
    "delete the first event": (
        ["DELETE FROM event WHERE seq = 1"],
        "event 1 of the journal is missing",
    ),
    "delete one in the middle": (
        ["DELETE FROM event WHERE seq = 6"],
        "event 6 of the journal is missing",
    ),
    "delete the last event": (
        ["DELETE FROM event WHERE seq = 12"],
        "ends at event 11, but 12 were written",
    ),
    "cut off the end with all that is kept of it": (
        [f"DELETE FROM {table} WHERE seq > 9" for table in ("event", "observation")],
        "ends at event 9, but 12 were written",
    ),
    "delete one and renumber": (
        ["DELETE FROM event WHERE seq = 6", "UPDATE event SET seq = seq - 1 WHERE seq > 6"],
        "event 6 is not the one that was written after event 5",
    ),
    "swap two events": (moved(4, 6), "event 4 is not the one that was written after event 3"),
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
    "change a mean": (
        ["UPDATE tally SET mean = 5 WHERE first = 5"],
        "do not add up to its evaluations",
    ),
    "forgive a failure": (
        ["UPDATE tally SET failed = 2 WHERE first = 5"],
        "do not add up to its evaluations",
    ),
    "change a number": (
        ["UPDATE counter SET value = 3 WHERE scope = 'status'"],
        "the numbers of events and evaluations kept",
    ),
    "repeat an event": (
        [f"{COPIED.format(to=13)} event WHERE seq = 11"],
        "event 13 is not the one",
    ),
    "insert an event": (
        [*LATER, f"{COPIED.format(to=6)} event WHERE seq = 4"],
        "event 6 is not the one",
    ),
    "change when it happened": (
        ["UPDATE event SET time = time + 1 WHERE seq = 7"],
        "event 7 was changed",
    ),
    "move the end of the chain": (
        ["UPDATE seal SET seq = 11"],
        "event 12 was added by another program",
    ),
    "change the hash at the end": (
        ["UPDATE seal SET hash = origin"],
        "the hash recorded for the last event, 12, is not its own",
    ),
    "take the hashes away": (
        ["UPDATE event SET hash = NULL WHERE seq >= 5"],
        "event 5 has no hash",
    ),
    "take the end of the chain away": (
        ["DELETE FROM seal"],
        "the record of the journal's last event is missing",
    ),
    "change the settings": (
        ["UPDATE run SET meta = CAST(meta || CAST(' ' AS {bytes}) AS {bytes})"],
        "settings were changed by another program",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_seen_by_replay_export_resume_and_fork(each_store, tmp_path, name):
    run = small_run(tmp_path)
    statements, message = TAMPERINGS[name]
    with tampering(run) as connection:
        kind = "BLOB" if connection.dialect.name == "sqlite" else "BYTEA"
        for statement in statements:
            connection.execute(
                statement.format(bytes=kind) if "{bytes}" in statement else statement
            )
    looks = {
        "replay": lambda: replay_run(run, verify=True),
        "export": lambda: export_run(run, "csv", tmp_path / "out.csv"),
        "resume": lambda: SqlJournal.open(run, write=True),
        "fork": lambda: finished_results(run, ""),
    }
    for look in looks.values():
        with pytest.raises(JournalAltered, match=message) as caught:
            look()
        assert "culmen runs recover" in caught.value.fix or "backups" in caught.value.fix
    assert not (tmp_path / "out.csv").exists()


def test_events_of_another_run_do_not_fit(tmp_path):
    run, other = small_run(tmp_path), small_run(tmp_path, "run-2")
    with tampering(run) as connection:
        connection.execute(f"ATTACH '{other}/journal.db' AS other")
        connection.execute("DELETE FROM main.event WHERE seq = 6")
        connection.execute("INSERT INTO main.event SELECT * FROM other.event WHERE seq = 6")
    with pytest.raises(
        JournalAltered, match="event 6 is not the one that was written after event 5"
    ):
        SqlJournal.open(run).check()


def test_a_text_that_was_changed_is_named_by_whoever_reads_it(each_store, tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.execute("UPDATE blob SET data = :data", data=b'{"main.py":"x = 9"}')
    assert views.run_status(run).evaluations == 5
    with pytest.raises(JournalDamaged, match="was changed after it was written"):
        list(SqlJournal.open(run).retrace())


def test_recover_saves_what_comes_before_the_break_and_names_the_rest(tmp_path):
    run = small_run(tmp_path)
    before = [event.entry for event in SqlJournal.open(run).read()]
    with tampering(run) as connection:
        connection.execute("UPDATE event SET mark = 'other' WHERE seq = 8")
    with pytest.raises(JournalAltered, match="event 8 was changed") as caught:
        SqlJournal.open(run).check()
    assert "saves the first 7 events" in caught.value.fix
    saved = recover_run(run)
    assert (saved.events, saved.beyond) == (7, 5)
    assert [event.entry for event in SqlJournal.open(saved.path).read()] == before[:7]
    assert views.run_status(saved.path).evaluations == 3
    SqlJournal.open(saved.path, write=True).close()


def test_without_the_record_of_the_end_recover_saves_all_that_the_error_promises(tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.execute("DELETE FROM seal")
    with pytest.raises(JournalAltered) as caught:
        SqlJournal.open(run).check()
    assert f"saves the first {ROWS} events" in caught.value.fix and recover_run(run).events == ROWS


def test_sums_that_were_changed_are_made_anew_by_recover(tmp_path):
    run = small_run(tmp_path)
    with tampering(run) as connection:
        connection.execute("UPDATE tally SET mean = 9")
    with pytest.raises(JournalAltered, match="add up"):
        SqlJournal.open(run).check()
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
        connection.execute("UPDATE event SET elapsed = 1 WHERE seq = 2")
    with pytest.raises(JournalAltered, match="event 2 was changed"):
        SqlJournal.open(tmp_path / "copy").check()


def test_a_writer_that_was_not_alone_leaves_nothing_unchecked(tmp_path):
    journal = new_run(tmp_path)
    journal.append([state("running"), state("running")])
    with tampering(journal.run_dir) as connection:
        connection.execute("UPDATE event SET elapsed = 1 WHERE seq = 1")
    journal.append([state("interrupted")])
    journal.close()
    with pytest.raises(JournalAltered, match="event 1 was changed"):
        SqlJournal.open(journal.run_dir).check()


def test_numbers_are_hashed_as_every_database_returns_them(each_store, tmp_path):
    journal = new_run(tmp_path)
    odd = observed(2, program(1), -0.0, elapsed=-0.0, feedback="\ud800\0", seconds=3)
    journal.append([proposed(1, program(1)), odd, observed(3, program(1), 7)])
    journal.append([observed(4, program(2), 1e-200), observed(5, program(2), -1e-300)])
    journal.close()
    assert views.run_status(journal.run_dir).evaluations == 4
    SqlJournal.open(journal.run_dir).check()
