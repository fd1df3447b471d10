"""Runs in PostgreSQL: ownership, lost connections, kills, secrets, addresses, copies.

Also their messages.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from culmen.core.errors import RunLocked, Unavailable, UserError
from culmen.extensions.cluster import postgres
from culmen.store import inbox, transfer, views
from culmen.store import inbox as sending
from culmen.store.address import Address, has_run, local_folder, parse_address, read_pointer
from culmen.store.archive import vacuum_store
from culmen.store.database import run_database, run_folders
from culmen.store.journal import SqlJournal
from culmen.store.lease import current_owner, run_signature
from culmen.store.transfer import recover_run
from tests.postgres import PASSWORD
from tests.store import runs
from tests.store.contracts import specimen_entries
from tests.store.relay import Relay
from tests.store.runs import new_run, observed, program, proposed, state

pytestmark = pytest.mark.postgres
HERE = Path(__file__).parent


@pytest.fixture
def store(shared_database, monkeypatch, tmp_path):
    """The shared database, in which the runs are that `new_run` makes.

    Looked at from elsewhere, their folders are in the cache below `tmp_path`.
    """
    monkeypatch.setattr(runs, "DATABASE", shared_database)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shared_database


def entries(run):
    return [event.entry for event in SqlJournal.open(run).read()]


def fill(journal, first, last):
    for key in range(first, last):
        candidate = program(key, text="x" * 3000)
        journal.append(
            [proposed(2 * key, candidate, prompt="p" * 5000), observed(2 * key + 1, candidate, 1.0)]
        )


def test_a_second_writer_is_refused_by_name_and_let_in_later(store, tmp_path):
    journal = new_run(tmp_path)
    journal.append([state("running")])
    with pytest.raises(RunLocked, match=f"process {os.getpid()} on "):
        SqlJournal.open(journal.run_dir, write=True)
    assert (
        views.run_status(journal.run_dir).owner.pid
        == current_owner(journal.run_dir).pid
        == os.getpid()
    )
    before = run_signature(journal.run_dir)
    journal.close()
    assert current_owner(journal.run_dir) is None and run_signature(journal.run_dir) != before
    assert views.run_status(journal.run_dir).state == "interrupted"
    SqlJournal.open(journal.run_dir, write=True).close()


WRITER = """
import sys
from culmen.store.journal import SqlJournal
from tests.store.test_store_postgres import fill
journal = SqlJournal.open(sys.argv[1], write=True)
fill(journal, 0, 2)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_gives_the_run_back_and_everything_it_said_is_there(store, tmp_path):
    journal = new_run(tmp_path)
    journal.close()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(journal.run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parents[1],
        env={**os.environ, "CULMEN_DB": store},
    ) as process:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(RunLocked, match=f"process {process.pid} on "):
            SqlJournal.open(journal.run_dir, write=True)
        process.send_signal(signal.SIGKILL)
    with SqlJournal.open(journal.run_dir, write=True) as again:
        fill(again, 2, 3)
    assert len(entries(journal.run_dir)) == 6


@pytest.mark.slow
def test_sigkill_at_random_instants_loses_nothing_acknowledged(store, tmp_path):
    url = f"{store}#{runs.address('killed').rpartition('#')[2]}"
    harness = [
        sys.executable,
        str(HERE / "crash_harness.py"),
        str(tmp_path / "run"),
        "12",
        "1",
        url,
    ]
    done = subprocess.run(harness, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["lost"] == report["wrong"] == report["miscounted"] == 0
    assert report["events"] >= report["acknowledged"] > 20 and report["state"] == "interrupted"


def test_cut_connections_lose_nothing_and_writing_goes_on(store, tmp_path, postgres_server):
    """As the driver does: an append that was refused as unavailable is made again.

    The cut falls anywhere in an append.
    """
    journal = new_run(tmp_path)
    refused = 0
    for key in range(24):
        saboteur = threading.Thread(target=postgres_server.cut_connections)
        if key % 2:
            saboteur.start()
        while True:
            try:
                fill(journal, key, key + 1)
                break
            except Unavailable as error:
                assert "safe" in error.what and PASSWORD not in str(error)
                refused += 1
        if key % 2:
            saboteur.join()
    postgres_server.cut_connections()
    with pytest.raises(Unavailable):
        fill(journal, 24, 25)
    fill(journal, 24, 25)
    events = _patiently(lambda: list(SqlJournal.open(journal.run_dir).read()))
    assert [event.entry.key for event in events] == list(range(50))
    assert _patiently(lambda: views.run_status(journal.run_dir)).evaluations == 25
    journal.close()


def _patiently(ask):
    """The pool may still hold connections that were cut."""
    for _ in range(100):
        try:
            return ask()
        except Unavailable:
            continue
    raise AssertionError("the database never answered again")


def test_a_commit_whose_answer_was_lost_is_not_made_twice(store, tmp_path, postgres_server):
    with tempfile.TemporaryDirectory(prefix="culmen-relay-") as folder:
        relay = Relay(Path(folder), postgres_server.home)
        url = store.replace(str(postgres_server.home), folder)
        journal = SqlJournal.create(
            tmp_path / "run", new_meta(tmp_path), f"{url}#{runs.address('lost').split('#')[1]}"
        )
        fill(journal, 0, 1)
        batch = [observed(7, program(1), 0.5), state("running")]
        relay.swallow()
        with pytest.raises(Unavailable):
            journal.append(batch)
        assert relay.swallowed == 1
        again = journal.append(batch)
        assert list(journal.read(2)) == again and [event.seq for event in again] == [3, 4]
        fill(journal, 4, 5)
        assert [event.entry.key for event in journal.read()] == [0, 1, 7, 0, 8, 9]
        assert views.run_status(journal.run_dir).evaluations == 3
        journal.close()
        relay.close()


def new_meta(folder):
    journal = new_run(folder, "meta")
    journal.close()
    return journal.meta


def test_who_lost_the_run_to_another_while_cut_off_cannot_write(store, tmp_path, postgres_server):
    stale = new_run(tmp_path)
    fill(stale, 0, 1)
    postgres_server.cut_connections()
    fresh = _patiently(lambda: SqlJournal.open(stale.run_dir, write=True))
    fill(fresh, 1, 2)
    with pytest.raises((Unavailable, RunLocked)):
        stale.append([state("finished")])
    with pytest.raises(RunLocked, match=f"process {os.getpid()}"):
        stale.append([state("finished")])
    fresh.close()
    with pytest.raises(RunLocked, match="took this run over"):
        stale.append([state("finished")])
    stale.close()
    assert len(entries(fresh.run_dir)) == 4


def test_a_server_that_is_not_there_and_a_wrong_password_say_so_without_it(store, tmp_path):
    for url in (
        f"postgresql+psycopg://culmen:{'hush' * 3}@127.0.0.1:9/none",
        store.replace("pass%20word", "hushhush"),
    ):
        with pytest.raises((Unavailable, UserError)) as caught:
            SqlJournal.create(tmp_path / "run", new_meta(tmp_path / url[-5:]), url)
        assert "hushhush" not in str(caught.value) and "hushhush" not in repr(caught.value)
        assert not has_run(tmp_path / "run")


def test_the_password_is_written_nowhere(store, tmp_path, postgres_server):
    journal = new_run(tmp_path)
    journal.append(specimen_entries())
    journal.close()
    address = read_pointer(journal.run_dir)
    assert PASSWORD not in repr(address) and PASSWORD in unquote(address.secret_url)
    told = [
        str(views.run_status(journal.run_dir)),
        str(views.run_meta(journal.run_dir)),
        repr(address),
        str(address),
    ]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            told.append(path.read_text(errors="replace"))
    assert not [each for each in told if PASSWORD in each or "pass%20word" in each]
    with postgres_server.connect(urlsplit(address.url).path.strip("/")) as connection:
        number = connection.execute(
            "SELECT id FROM culmen.run WHERE name = %s", [address.name]
        ).fetchone()[0]
        rows = connection.execute(f"SELECT meta FROM culmen_run_{number}.run").fetchall()
    assert all(PASSWORD.encode() not in row[0] for row in rows)


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        ("postgresql://u:p@h/d#n", "postgresql+psycopg://u@h/d", "n"),
        ("postgres://h:5433/d", "postgresql+psycopg://h:5433/d", ""),
        (
            "postgresql+psycopg:///d?host=/tmp/s&password=p",
            "postgresql+psycopg:///d?host=/tmp/s",
            "",
        ),
        (
            "postgresql+psycopg://u@/d?host=/tmp/s#a%20b",
            "postgresql+psycopg://u@/d?host=/tmp/s",
            "a b",
        ),
        ("postgresql://u:p%2F@[::1]:5432/d", "postgresql+psycopg://u@[::1]:5432/d", ""),
    ],
)
def test_addresses_are_read_and_passwords_put_aside(text, url, name):
    address = parse_address(text)
    assert (address.url, address.name) == (url, name)
    assert parse_address(str(address)) == Address(url, name) or name == "a b"


@pytest.mark.parametrize(
    "text", ["mysql://h/d", "postgresql://h", "postgresql://h/d#..", "postgresql://h/d#a/b", "db:x"]
)
def test_what_is_no_address_is_refused_with_an_example(text, monkeypatch):
    monkeypatch.delenv("CULMEN_DB", raising=False)
    with pytest.raises(UserError):
        parse_address(text)


def test_runs_are_found_by_address_from_anywhere_and_listed(database, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CULMEN_DB", database)
    monkeypatch.setattr(runs, "DATABASE", None)
    assert views.list_runs(local_folder(parse_address(database))) == []
    for name in ("one", "two"):
        with SqlJournal.create(
            tmp_path / name, new_meta(tmp_path / f"{name}-meta"), database
        ) as journal:
            fill(journal, 0, 2 if name == "one" else 3)
    found = views.find_run(f"{database}#two", tmp_path / "elsewhere")
    assert found != tmp_path / "two" and views.run_status(found).evaluations == 3
    assert views.find_run("db:two", tmp_path) == tmp_path / "two"
    lines = views.list_runs(local_folder(parse_address(database)))
    assert sorted((Path(line.path).name, line.evaluations) for line in lines) == [
        ("one", 2),
        ("two", 3),
    ]
    with pytest.raises(UserError, match="no run 'three'"):
        views.run_status(views.find_run("db:three", tmp_path))
    with pytest.raises(UserError, match="already"):
        SqlJournal.create(tmp_path / "again", new_meta(tmp_path / "m"), f"{database}#one")
    run_database(parse_address("db:one")).drop_run()
    assert [folder.name for folder in run_folders(local_folder(parse_address(database)))] == ["two"]


def test_a_run_that_is_written_is_not_dropped(store, tmp_path):
    journal = new_run(tmp_path)
    with pytest.raises(RunLocked):
        run_database(read_pointer(journal.run_dir)).drop_run()
    with pytest.raises(RunLocked):
        vacuum_store(journal.run_dir)
    journal.close()
    assert min(vacuum_store(journal.run_dir)) > 0
    run_database(read_pointer(journal.run_dir)).drop_run()


def test_messages_reach_the_owner_from_another_machine(store, tmp_path):
    journal = new_run(tmp_path)
    journal.append([state("running")])
    elsewhere = local_folder(read_pointer(journal.run_dir))
    assert elsewhere != journal.run_dir
    first = sending.send_hint(elsewhere, "try \x00 twice")
    second = sending.send_stop(elsewhere)
    assert first.live and inbox.waiting_messages(journal.run_dir) == [first.message, second.message]
    inbox.remove_message(journal.run_dir, first.message.id)
    assert inbox.waiting_messages(elsewhere) == [second.message]
    journal.close()


def test_copies_go_there_and_back_and_are_the_same(store, database, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "DATABASE", None)
    journal = new_run(tmp_path)
    journal.append(specimen_entries())
    for key in range(30):
        fill(journal, key, key + 1)
    here = transfer.copy_run(
        journal.run_dir, parse_address(store, runs.uuid.uuid4().hex)
    )  # while it is written
    journal.close()
    there = transfer.copy_run(
        local_folder(parse_address(here.target)), parse_address(database, "copy")
    )
    back = transfer.copy_run(local_folder(parse_address(there.target)), tmp_path / "back")
    assert here.tables == there.tables == back.tables
    assert (
        entries(tmp_path / "back")
        == entries(journal.run_dir)
        == entries(local_folder(parse_address(there.target)))
    )
    for folder in (tmp_path / "back", local_folder(parse_address(there.target))):
        with SqlJournal.open(folder, write=True) as copy:
            fill(copy, 40, 41)
        assert (
            views.run_status(folder).evaluations
            == views.run_status(journal.run_dir).evaluations + 1
        )
    for taken in (tmp_path / "back", parse_address(there.target)):
        with pytest.raises(UserError, match="already"):
            transfer.copy_run(journal.run_dir, taken)


def test_partial_indexes_have_their_conditions_here_too(store, tmp_path):
    journal = new_run(tmp_path)
    with postgres.catalogue_session(read_pointer(journal.run_dir)) as connection:
        schema = f"culmen_run_{postgres.number_of(connection, read_pointer(journal.run_dir))}"
        asked = (
            "SELECT indexname FROM pg_indexes WHERE schemaname = :schema "
            "AND position(' WHERE ' in indexdef) > 0"
        )
        found = set(connection.execute(asked, schema=schema).scalars())
    assert found == {"event_topic", "event_other", "tally_judged"}


def test_the_hash_of_a_table_tells_a_changed_row(store, tmp_path, postgres_server):
    journal = new_run(tmp_path)
    fill(journal, 0, 3)
    journal.close()
    before = transfer.table_sums(journal.run_dir)
    with postgres.catalogue_session(read_pointer(journal.run_dir), write=True) as connection:
        number = postgres.number_of(connection, read_pointer(journal.run_dir))
        connection.execute(
            f"UPDATE culmen_run_{number}.observation SET score = score + 1e-9 WHERE seq = 2"
        )
    after = transfer.table_sums(journal.run_dir)
    assert {name for name in before if before[name] != after[name]} == {"observation"}
    assert before["observation"].rows == after["observation"].rows


def test_recover_is_for_folders(store, tmp_path):
    journal = new_run(tmp_path)
    journal.close()
    with pytest.raises(UserError, match="backups"):
        recover_run(journal.run_dir)
