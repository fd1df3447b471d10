"""Kills, full disks, cut and garbled files, rivals, clocks: nothing acknowledged is lost.

Every error gives its reason.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import msgspec
import pytest

from culmen.core.brief import Proposal
from culmen.core.errors import JournalDamaged, RunLocked, Unavailable, UserError
from culmen.core.task import Task
from culmen.store import views
from culmen.store.address import NETWORK, filesystem_type, has_run, refuse_network, require_local
from culmen.store.database import RunMeta, open_snapshot
from culmen.store.journal import SqlJournal
from culmen.store.lease import RunLock, lock_owner, take_lease
from culmen.store.transfer import recover_run
from culmen.store.writer import make_tables
from tests.store.runs import new_run, observed, program, proposed, state

HERE = Path(__file__).parent


def fill(journal, batches, size=3000):
    """Batches of one proposal and one evaluation each, with texts that do not compress."""
    last = len(list(journal.read()))
    chance = random.Random(last)
    for number in range(last, last + batches):
        candidate = program(number, text=chance.randbytes(size // 2).hex())
        journal.append(
            [
                proposed(2 * number, candidate, prompt=chance.randbytes(2500).hex()),
                observed(2 * number + 1, candidate, 1.0),
            ]
        )


def entries(run):
    return [event.entry for event in SqlJournal.open(run).read()]


def without_texts(entry):
    """The entry without its prompt, which no strategy reads.

    This form is saved where the prompt's blob is damaged.
    """
    if not isinstance(entry.result, Proposal):
        return entry
    return msgspec.structs.replace(entry, result=msgspec.structs.replace(entry.result, prompt=""))


@pytest.mark.slow
def test_sigkill_at_random_instants_loses_nothing_acknowledged(tmp_path):
    command = [sys.executable, str(HERE / "crash_harness.py"), str(tmp_path / "run"), "30", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["lost"] == report["wrong"] == report["miscounted"] == 0
    assert report["check"] == "ok" and report["state"] == "interrupted"
    assert report["events"] >= report["acknowledged"] > 50


def test_a_full_database_raises_unavailable_and_goes_on_when_there_is_room(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 5)
    before = entries(journal.run_dir)
    connection = journal._required_writer._connection.raw
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 3}")
    with pytest.raises(Unavailable) as caught:
        fill(journal, 50)
    assert caught.value.exit_code == 75 and "resume" in caught.value.fix
    reached = entries(journal.run_dir)
    assert reached[: len(before)] == before and len(reached) % 2 == 0
    connection.execute("PRAGMA max_page_count=1000000")
    fill(journal, 5)
    assert len(entries(journal.run_dir)) == len(reached) + 10
    journal.close()


LIMITED = """
import resource, sys
from culmen.core.errors import Unavailable
from culmen.store.journal import SqlJournal
from tests.store.test_store_faults import entries, fill

folder, size = sys.argv[1], int(sys.argv[2])
journal = SqlJournal.open(folder, write=True)
hard = resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
try:
    fill(journal, 500, size=80_000)
except Unavailable:
    reached = entries(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    fill(journal, 2)
    print(len(reached), len(entries(folder)))
"""


@pytest.mark.parametrize("size", [60_000, 150_000, 400_000])
def test_a_file_that_may_not_grow_is_unavailable_and_writing_goes_on_afterwards(tmp_path, size):
    """60 kB stops a large candidate's file, the others stop the log."""
    journal = new_run(tmp_path)
    journal.close()
    command = [sys.executable, "-c", LIMITED, str(journal.run_dir), str(size)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=HERE.parents[1], timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    reached, after = map(int, done.stdout.split())
    assert after == reached + 4 == len(entries(journal.run_dir))


@pytest.fixture
def long_run(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 150)
    journal.close()
    return journal.run_dir


def test_a_cut_journal_says_what_can_be_saved_and_recover_saves_it(long_run):
    whole = entries(long_run)
    database = long_run / "journal.db"
    os.truncate(database, database.stat().st_size * 6 // 10 + 123)
    for write in (False, True):
        with pytest.raises(JournalDamaged, match=r"first \d+ events can be saved"):
            SqlJournal.open(long_run, write)
    saved = recover_run(long_run)
    assert 10 < saved.events < len(whole)
    assert entries(saved.path) == whole[: saved.events]
    assert views.run_status(saved.path).evaluations == saved.events // 2
    with SqlJournal.open(saved.path, write=True) as journal:
        fill(journal, 1)
    with pytest.raises(UserError, match="already"):
        recover_run(long_run)


def test_garbage_in_the_middle_is_found_and_what_comes_before_it_is_saved(long_run):
    whole = entries(long_run)
    database = long_run / "journal.db"
    with database.open("r+b") as file:
        file.seek(database.stat().st_size // 2)
        file.write(b"\xa5" * 50_000)
    with pytest.raises(JournalDamaged):
        list(SqlJournal.open(long_run).read())
    saved = recover_run(long_run, long_run.with_name("rescued"))
    assert 10 < saved.events < len(whole)
    assert entries(saved.path) == whole[: saved.events]


@pytest.mark.parametrize("content", [b"", b"hello" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_journal_that_is_none_is_damaged_beyond_recovery(long_run, content):
    (long_run / "journal.db").write_bytes(content)
    for attempt in (lambda: SqlJournal.open(long_run, write=True), lambda: recover_run(long_run)):
        with pytest.raises(JournalDamaged, match="nothing of it can be read"):
            attempt()
    assert [line.state for line in views.list_runs(long_run.parent)] == ["damaged"]


def test_a_missing_blob_file_is_named(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 2, size=100_000)
    journal.close()
    shutil.rmtree(journal.run_dir / "blobs")
    with pytest.raises(JournalDamaged, match="blob"):
        entries(journal.run_dir)


def test_a_second_writer_is_refused_by_name_and_let_in_later(tmp_path):
    journal = new_run(tmp_path)
    with pytest.raises(RunLocked, match=f"process {os.getpid()} on "):
        SqlJournal.open(journal.run_dir, write=True)
    journal.append([state("running")])
    assert views.run_status(journal.run_dir).owner.pid == os.getpid()
    journal.close()
    assert lock_owner(journal.run_dir) is None
    SqlJournal.open(journal.run_dir, write=True).close()


def test_another_process_is_refused_too(tmp_path):
    journal = new_run(tmp_path)
    code = "import sys; from culmen.store.journal import SqlJournal; SqlJournal.open(sys.argv[1], write=True)"
    run = subprocess.run(
        [sys.executable, "-c", code, str(journal.run_dir)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0 and f"process {os.getpid()} on " in run.stderr
    journal.close()


ORPHAN = """
import os, signal, sys
from pathlib import Path
from random import Random
from culmen.store.lease import RunLock
lock = RunLock.acquire(Path(sys.argv[1]))
ready, tell = os.pipe()
if os.fork() == 0:
    os.write(tell, b"x")
    sys.stdin.read()  # outlives its parent, until the test closes this
    os._exit(0)
os.read(ready, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_children_of_a_killed_owner_do_not_keep_the_run_locked(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], stdin=subprocess.PIPE
    ) as process:
        assert process.wait(60) == -signal.SIGKILL
        assert lock_owner(tmp_path) is None
        RunLock.acquire(tmp_path).release()


def test_a_released_lock_is_free_though_a_child_inherited_it(tmp_path):
    lock = RunLock.acquire(tmp_path)
    copy = os.dup(lock._fd)
    assert lock_owner(tmp_path) == lock.owner
    lock.release()
    assert lock_owner(tmp_path) is None
    os.close(copy)


def test_a_stale_owner_whose_lock_was_lost_cannot_write(tmp_path):
    stale = new_run(tmp_path)
    stale.append([state("running")])
    (stale.run_dir / "lock").unlink()
    fresh = SqlJournal.open(stale.run_dir, write=True)
    fresh.append([state("running")])
    with pytest.raises(RunLocked, match="took this run over"):
        stale.append([state("finished")])
    with pytest.raises(RunLocked):
        stale.set_meta(isolation="none")
    assert [entry.body["state"] for entry in entries(fresh.run_dir)] == ["running", "running"]
    fresh.close()


def test_readers_create_no_file_and_do_not_hinder_the_writer(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 3)
    reader = journal.read()
    next(reader)
    fill(journal, 3)  # while a reader stands in the middle
    assert len(list(reader)) == 11
    journal.close()
    before = sorted(path.name for path in journal.run_dir.rglob("*"))
    assert len(entries(journal.run_dir)) == 12 and views.run_status(journal.run_dir).events == 12
    assert (
        sorted(path.name for path in journal.run_dir.rglob("*"))
        == before
        == ["blobs", "journal.db", "lock"]
        or before
    )


def test_a_run_whose_log_was_left_behind_is_read_without_its_index(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 3)
    copy = tmp_path / "copy"
    shutil.copytree(journal.run_dir, copy)
    (copy / "journal.db-shm").unlink()
    names = sorted(os.listdir(copy))
    assert entries(copy) == entries(journal.run_dir)
    assert sorted(os.listdir(copy)) == names
    journal.close()


def test_a_run_is_read_while_its_last_writer_closes(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 3)
    journal.close()
    writer = textwrap.dedent(
        """
        import sqlite3, sys, time
        end = time.monotonic() + 3
        while time.monotonic() < end:  # each opens the log and removes it when it closes
            with sqlite3.connect(sys.argv[1]) as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS extra (n)")
                connection.execute("INSERT INTO extra VALUES (1)")
            connection.close()
        """
    )
    reads = 0
    with subprocess.Popen(
        [sys.executable, "-c", writer, str(journal.run_dir / "journal.db")]
    ) as process:
        while process.poll() is None:
            with contextlib.suppress(
                Unavailable
            ):  # it began to be written in the middle of the read
                assert len(entries(journal.run_dir)) == 6
                reads += 1
    assert process.returncode == 0 and reads


def test_what_a_writer_changes_in_a_read_is_no_damage(tmp_path):
    journal = new_run(tmp_path)
    fill(journal, 3)
    journal.close()
    file = journal.run_dir / "journal.db"
    with pytest.raises(Unavailable, match="began to be written"), open_snapshot(journal.run_dir):
        file.write_bytes(file.read_bytes() + bytes(4096))
        raise JournalDamaged("a page makes no sense")
    with pytest.raises(JournalDamaged), open_snapshot(journal.run_dir):
        raise JournalDamaged("a page makes no sense")


def test_a_clock_that_goes_backwards_changes_no_order(tmp_path, monkeypatch):
    times = iter([2000.0, 1000.0, 3.0])
    journal = new_run(tmp_path, created=1.0)
    monkeypatch.setattr("time.time", lambda: next(times))
    for name in ("a", "b", "c"):
        journal.append([state(name)])
    monkeypatch.undo()
    assert [(e.seq, e.time, e.entry.body["state"]) for e in journal.read()] == [
        (1, 2000.0, "a"),
        (2, 1000.0, "b"),
        (3, 3.0, "c"),
    ]
    assert views.run_status(journal.run_dir).events == 3
    journal.close()


def test_a_newer_format_is_refused_clearly(tmp_path):
    journal = new_run(tmp_path)
    with journal._required_writer._connection.begin():
        journal._required_writer._connection.execute("UPDATE run SET format = 99")
    journal.close()
    for attempt in (
        lambda: SqlJournal.open(journal.run_dir),
        lambda: SqlJournal.open(journal.run_dir, write=True),
    ):
        with pytest.raises(UserError, match="newer culmen"):
            attempt()


def test_no_run_and_a_run_already(tmp_path):
    with pytest.raises(UserError, match="no run"):
        SqlJournal.open(tmp_path)
    assert list(tmp_path.iterdir()) == []
    new_run(tmp_path).close()
    with pytest.raises(UserError, match="already"):
        new_run(tmp_path)


MOUNTS = """\
22 1 253:0 / / rw - ext4 /dev/vda rw
40 22 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw
41 40 0:41 / /home/me/local\\040disk rw - xfs /dev/vdb rw
42 22 0:42 / /mnt/team rw - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "refused"),
    [
        ("/data/run", "ext4", False),
        ("/home", "nfs4", True),
        ("/home/me/run", "nfs4", True),
        ("/homes/me/run", "ext4", False),
        ("/home/me/local disk/run", "xfs", False),
        ("/mnt/team/run", "fuse.sshfs", True),
    ],
)
def test_network_file_systems_are_told_from_the_mounts(path, kind, refused):
    assert filesystem_type(Path(path), MOUNTS) == kind
    if refused:
        with pytest.raises(UserError, match="network file system"):
            refuse_network(Path(path), kind)
    else:
        refuse_network(Path(path), kind)


def test_the_mounts_of_this_machine_are_read(tmp_path):
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    assert filesystem_type(tmp_path.resolve(), mounts)
    points = {
        Path(line.split()[4].encode().decode("unicode_escape")) for line in mounts.splitlines()
    }
    for point in points:
        kind = filesystem_type(point, mounts)
        if kind in NETWORK:
            with pytest.raises(UserError, match="--db"):
                refuse_network(point, kind)
        elif point.resolve() == point:
            require_local(point)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_is_said_and_every_readable_event_is_saved(long_run, seed):
    """Bytes overwritten all over the file: every error that is raised gives the remedy."""
    random, database = Random(seed), long_run / "journal.db"
    whole, size = entries(long_run), database.stat().st_size
    with database.open("r+b") as file:
        for _ in range((1, 5, 30)[seed % 3]):
            file.seek(random.randrange(8192, size))
            file.write(random.randbytes((1, 8, 100, 3000)[seed % 4]))
    looks = (
        lambda: views.run_status(long_run),
        lambda: list(SqlJournal.open(long_run).read()),
        lambda: SqlJournal.open(long_run, write=True).close(),
    )
    for look in looks:
        with contextlib.suppress(JournalDamaged):
            look()
    with contextlib.suppress(JournalDamaged):
        saved = recover_run(long_run)
        made = entries(saved.path)
        assert len(made) == saved.events
        assert all(
            one in (other, without_texts(other)) for one, other in zip(made, whole, strict=False)
        )
        file = Path(saved.path) / "beyond.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        assert len(lines) == saved.beyond and saved.events + saved.beyond <= len(whole)


def test_events_behind_a_damaged_one_are_saved_beside(long_run):
    whole = len(entries(long_run))
    with sqlite3.connect(long_run / "journal.db") as connection:
        connection.execute("UPDATE event SET effect = CAST(x'ff41' AS TEXT) WHERE seq = 20")
    with pytest.raises(JournalDamaged):
        list(SqlJournal.open(long_run).read())
    saved = recover_run(long_run)
    assert (saved.events, saved.beyond) == (19, whole - 20)
    first = json.loads((Path(saved.path) / "beyond.jsonl").read_bytes().splitlines()[0])
    assert first["seq"] == 21


def test_a_folder_that_cannot_be_written_is_the_users_to_open(long_run, monkeypatch):
    """As an ordinary user; root may write anything, so there the file system refuses it."""
    mounted = os.geteuid() == 0
    if mounted:
        done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("nothing can be mounted here")
    else:
        long_run.chmod(0o500)
        (long_run / "lock").chmod(0o400)
    command = [sys.executable, "-m", "culmen.cli.main", "runs", "vacuum", str(long_run)]
    inside = (
        f'mount --bind {long_run} {long_run} && mount -o remount,bind,ro {long_run} && exec "$@"'
    )
    line = ["unshare", "-m", "sh", "-c", inside, "sh", *command] if mounted else command
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    long_run.chmod(0o700)
    assert done.returncode == 2 and "bug" not in done.stderr, done.stderr
    assert "cannot be written" in done.stderr and "chmod -R u+w" in done.stderr


def test_a_run_is_there_once_it_is_whole(tmp_path):
    """A look while a run's tables are made finds no run, not a damaged one."""
    seen = []

    def looks(connection):
        make_tables(connection, RunMeta("run", Task("task")))
        seen.append(has_run(tmp_path / "run"))

    (tmp_path / "run").mkdir()
    take_lease(tmp_path / "run", looks).close()
    assert seen == [False] and has_run(tmp_path / "run")
    with pytest.raises(
        UserError, match="there is a run already"
    ):  # two began at once, and both saw no run
        take_lease(tmp_path / "run", looks)
    assert SqlJournal.open(tmp_path / "run").meta.id == "run"


KILLED = """
import os, signal, sys
from pathlib import Path
from culmen.core.task import Task
from culmen.store import lease, writer
from culmen.store.database import RunMeta, open_snapshot

def make(connection):
    writer.make_tables(connection, RunMeta("run", Task("task")))
    os.kill(os.getpid(), signal.SIGKILL)

lease.take_lease(Path(sys.argv[1]), make)
"""


def test_a_run_whose_making_was_killed_is_made_again(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    assert subprocess.run([sys.executable, "-c", KILLED, str(run)]).returncode == -signal.SIGKILL
    assert list(run.iterdir()) and not has_run(run)
    SqlJournal.create(run, RunMeta("run", Task("task"))).close()
    assert sorted(path.name for path in run.iterdir()) == ["journal.db", "lock"]
