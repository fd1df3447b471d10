"""Archives and vacuum: packed files are compared, and nothing that lives is touched.

Exports hold a page at a time.
"""

import json
import shutil
import subprocess
import sys
import tarfile

import pytest

from culmen.core.errors import JournalDamaged, RunLocked, UserError
from culmen.store import inbox, transfer, views
from culmen.store.address import local_folder, parse_address
from culmen.store.archive import SUFFIX, archive_run, restore_archive, stored_bytes, vacuum_store
from culmen.store.export import inert_cell
from culmen.store.journal import SqlJournal
from tests.store.runs import new_run, observed, program, proposed, state


@pytest.mark.usefixtures("each_store")
def test_a_message_that_is_no_text_is_refused_before_it_is_left(tmp_path):
    with new_run(tmp_path) as journal:
        for left in (("hint", "try \ud800 twice", None), ("candidate", "", {"a": "x = '\udfff'"})):
            with pytest.raises(UserError, match="is not a character"):
                inbox.leave_message(journal.run_dir, *left)
        assert inbox.waiting_messages(journal.run_dir) == []


def finished_run(folder, name="run-1", events=30):
    """A run with a blob that is a file, and something that an agent left in the folder."""
    journal = new_run(folder, name)
    for key in range(events):
        candidate = program(key, text="x" * (100_000 if key == 3 else 3000))
        journal.append(
            [
                proposed(2 * key, candidate, prompt="p" * 5000),
                observed(2 * key + 1, candidate, float(key)),
            ]
        )
    journal.append([state("finished")])
    journal.close()
    (journal.run_dir / "repository").mkdir()
    (journal.run_dir / "repository" / "notes.md").write_text("kept")
    (journal.run_dir / "inbox").mkdir(exist_ok=True)
    (journal.run_dir / "link").symlink_to("/etc/hostname")
    return journal.run_dir


def unpack(tar, folder):
    """Unpack an archive; Pythons before 3.11.4 know no filter."""
    tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def entries(run):
    return [event.entry for event in SqlJournal.open(run).read(whole=True)]


def test_a_finished_run_goes_into_a_file_and_comes_back_the_same(tmp_path, each_store, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = finished_run(tmp_path)
    before, sums = entries(run), transfer.table_sums(run)
    made = archive_run(run)
    assert (
        made.file == str(tmp_path / f"run-1{SUFFIX}")
        and made.after < made.before
        and made.events == len(before)
    )
    assert run.is_dir() and not made.removed
    with pytest.raises(UserError, match="a file already"):
        archive_run(run)
    back = tmp_path / "back"
    assert restore_archive(tmp_path / f"run-1{SUFFIX}", back).events == len(before)
    assert entries(back) == before
    restored = transfer.table_sums(back)
    if each_store == "folder":
        assert restored == sums
    assert {name: table.rows for name, table in restored.items()} == {
        name: table.rows for name, table in sums.items()
    }
    assert (back / "repository" / "notes.md").read_text() == "kept" and not (back / "link").exists()
    with SqlJournal.open(back, write=True) as journal:
        journal.append([state("running")])
    with pytest.raises(UserError, match="something already"):
        restore_archive(tmp_path / f"run-1{SUFFIX}", back)


def test_remove_deletes_the_run_once_its_archive_is_sound(tmp_path, each_store, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = finished_run(tmp_path)
    text = None if each_store == "folder" else json.loads((run / "database.json").read_text())
    file = tmp_path / "packed"
    assert archive_run(run, file, remove=True).removed
    assert not run.exists()
    if text is not None:
        with pytest.raises(UserError, match="no run"):
            views.run_status(local_folder(parse_address(text["url"], text["name"])))


@pytest.mark.slow
def test_runs_that_are_written_or_not_finished_are_not_packed(tmp_path, each_store):
    journal = new_run(tmp_path)
    journal.append([state("running")])
    for unfinished in (False, True):
        with pytest.raises(RunLocked):
            archive_run(journal.run_dir, unfinished=unfinished)
    journal.close()
    with pytest.raises(UserError, match="not finished"):
        archive_run(journal.run_dir)
    assert not (tmp_path / f"run-1{SUFFIX}").exists()
    assert archive_run(journal.run_dir, unfinished=True).events == 1


def test_an_archive_that_was_altered_cut_or_is_none_is_refused_and_leaves_nothing(tmp_path):
    archive_run(finished_run(tmp_path), tmp_path / "good")
    with tarfile.open(tmp_path / "good") as tar:
        unpack(tar, tmp_path / "open")
    journal = tmp_path / "open" / "run" / "journal.db"
    journal.write_bytes(journal.read_bytes()[:-1] + b"\x01")
    with tarfile.open(tmp_path / "altered", "w:xz") as tar:
        tar.add(tmp_path / "open" / "manifest.json", "manifest.json")
        for path in sorted((tmp_path / "open" / "run").rglob("*")):
            if path.is_file():
                tar.add(path, f"run/{path.relative_to(tmp_path / 'open' / 'run')}")
    (tmp_path / "cut").write_bytes((tmp_path / "good").read_bytes()[:-200])
    with tarfile.open(tmp_path / "short", "w:xz") as tar:
        tar.add(tmp_path / "open" / "manifest.json", "manifest.json")
    (tmp_path / "none").write_bytes(b"no archive")
    for name in ("altered", "cut", "short", "none"):
        with pytest.raises((JournalDamaged, UserError)):
            restore_archive(tmp_path / name, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    archive_run(finished_run(tmp_path), tmp_path / "good")
    with tarfile.open(tmp_path / "good") as tar:
        unpack(tar, tmp_path / "open")
    manifest = json.loads((tmp_path / "open" / "manifest.json").read_text())
    name, digest = next((n, d) for n, d in manifest["files"].items() if n.startswith("repository"))
    manifest["files"]["../../evil"] = digest
    (tmp_path / "open" / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(tmp_path / "evil-archive", "w:xz") as tar:
        tar.add(tmp_path / "open" / "manifest.json", "manifest.json")
        tar.add(tmp_path / "open" / "run" / name, "run/../../evil")
    with pytest.raises(JournalDamaged, match="leads out of the folder"):
        restore_archive(tmp_path / "evil-archive", tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil"))


def test_vacuum_gives_space_back_and_keeps_everything(tmp_path, each_store):
    run = finished_run(tmp_path)
    if each_store == "folder":
        (run / "blobs" / "ab").mkdir(exist_ok=True)
        (run / "blobs" / "ab" / ".new-left").write_bytes(b"x" * 50_000)
    before = entries(run)
    old, new = vacuum_store(run)
    assert new <= old and new == stored_bytes(run) and entries(run) == before
    assert not list(run.rglob(".new-*"))
    journal = SqlJournal.open(run, write=True)
    with pytest.raises(RunLocked):
        vacuum_store(run)
    journal.close()


EXPORT = """
import resource, sys
from culmen.store.export import export_run
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
counts = [export_run(sys.argv[1], form, "/dev/null") for form in ("csv", "jsonl")]
before = peak()
counts += [export_run(sys.argv[2], form, "/dev/null") for form in ("csv", "jsonl")]
print(*counts, peak() - before)
"""


@pytest.mark.slow
def test_exports_hold_a_page_of_a_long_run(tmp_path):
    """The long run's texts are several times what the process may grow by."""
    for name, many in (("short", 600), ("long", 4000)):
        journal = new_run(tmp_path, name)
        for first in range(0, many, 500):
            batch = [
                observed(key, program(1), 1.0, feedback="f" * 4000)
                for key in range(first, min(first + 500, many))
            ]
            journal.append(batch)
        journal.close()
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(tmp_path / "short"), str(tmp_path / "long")],
        capture_output=True,
        text=True,
        check=True,
    )
    *counts, grown = map(int, done.stdout.split())
    assert counts == [600, 600, 4000, 4000]
    assert grown < 6_000  # kB; the texts are 16 MB


def test_a_flipped_bit_of_an_archive_is_damage_or_changes_nothing(tmp_path):
    """Not the first six bytes, which say what the file is. The end holds no byte of the run."""
    run = finished_run(tmp_path)
    archive_run(run, tmp_path / "good")
    whole, sums, damaged = (tmp_path / "good").read_bytes(), transfer.table_sums(run), 0
    for number in range(40):
        place = 12 + number * (len(whole) - 13) // 39
        flipped = bytes([whole[place] ^ 1 << number % 8])
        (tmp_path / "bad").write_bytes(whole[:place] + flipped + whole[place + 1 :])
        try:
            restore_archive(tmp_path / "bad", tmp_path / "out")
        except JournalDamaged:
            damaged += 1
            assert not (tmp_path / "out").exists()
        else:
            assert transfer.table_sums(tmp_path / "out") == sums
            shutil.rmtree(tmp_path / "out")
    assert damaged >= 35


def test_a_table_has_no_formula_of_a_case_or_a_model():
    cells = ["=1+1", "+x", "-x", "@x", "\t=1", "-1.5", "+2", "a=1", None, 3]
    assert [inert_cell(each) for each in cells] == [
        *("'=1+1", "'+x", "'-x", "'@x", "'\t=1", "-1.5", "+2", "a=1", None, 3)
    ]
