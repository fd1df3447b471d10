"""The file of a checkpoint: read back whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import UserError
from culmen.store import sidecar
from culmen.store.sidecar import CHECKPOINT, CHECKPOINT_PART, CheckpointFile, StoredCheckpoint
from tests.store.runs import new_run, observed, program, proposed

STATE = b"state of a search" * 100


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    journal = new_run(tmp_path / "run")
    journal.append([proposed(1, program(1))])
    journal.append([observed(2, program(1), 1.0)])
    journal.close()
    return journal.run_dir


def test_a_checkpoint_is_read_back(run: Path) -> None:
    file = CheckpointFile(run, "run-1")
    assert file.read() is None
    file.write(2, STATE)
    assert CheckpointFile(run, "run-1").read() == StoredCheckpoint(2, STATE)
    file.write(1, b"older")
    assert file.read() == StoredCheckpoint(1, b"older")
    assert [path.name for path in run.iterdir() if path.name.startswith(f".{CHECKPOINT}")] == []


def test_one_of_another_run_or_of_an_event_that_is_not_there_is_not_read(run: Path) -> None:
    CheckpointFile(run, "run-1").write(2, STATE)
    assert CheckpointFile(run, "run-2").read() is None
    CheckpointFile(run, "run-1").write(99, STATE)
    assert CheckpointFile(run, "run-1").read() is None


def test_one_of_other_code_is_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointFile(run, "run-1").write(2, STATE)
    monkeypatch.setattr(sidecar, "code_digest", lambda: "another")
    assert CheckpointFile(run, "run-1").read() is None


def test_one_that_somebody_else_wrote_is_not_read(run: Path, own_cache: Path) -> None:
    CheckpointFile(run, "run-1").write(2, STATE)
    key = own_cache / "culmen" / "checkpoint.key"
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    assert CheckpointFile(run, "run-1").read() is None
    CheckpointFile(run, "run-1").write(2, STATE)
    assert CheckpointFile(run, "run-1").read() == StoredCheckpoint(2, STATE)
    key.write_bytes(bytes(32))
    assert CheckpointFile(run, "run-1").read() is None


@pytest.mark.parametrize("place", [0, 20, 40, 100, 200, -1])
def test_one_with_another_byte_is_not_read(run: Path, place: int) -> None:
    CheckpointFile(run, "run-1").write(2, STATE)
    stored = bytearray((run / CHECKPOINT).read_bytes())
    stored[place] ^= 1
    (run / CHECKPOINT).write_bytes(stored)
    assert CheckpointFile(run, "run-1").read() is None


@pytest.mark.parametrize("length", [0, 3, 31, 32, 40, 300])
def test_one_that_was_cut_is_not_read(run: Path, length: int) -> None:
    CheckpointFile(run, "run-1").write(2, STATE)
    (run / CHECKPOINT).write_bytes((run / CHECKPOINT).read_bytes()[:length])
    assert CheckpointFile(run, "run-1").read() is None


def test_one_of_an_altered_journal_is_not_read(run: Path, tmp_path: Path) -> None:
    """A run of the same events has other hashes: its chain begins with random bytes."""
    CheckpointFile(run, "run-1").write(2, STATE)
    other = new_run(tmp_path / "other")
    other.append([proposed(1, program(1))])
    other.append([observed(2, program(1), 1.0)])
    other.close()
    (other.run_dir / CHECKPOINT).write_bytes((run / CHECKPOINT).read_bytes())
    assert CheckpointFile(other.run_dir, "run-1").read() is None


def test_a_user_without_a_home_has_no_checkpoints(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container under any number of a user; the run goes on."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(UserError, match="no home folder"):
        CheckpointFile(run, "run-1").write(2, STATE)
    assert CheckpointFile(run, "run-1").read() is None


def test_what_a_killed_process_left_is_overwritten(run: Path) -> None:
    (run / CHECKPOINT_PART).write_bytes(b"half")
    CheckpointFile(run, "run-1").write(2, STATE)
    assert CheckpointFile(run, "run-1").read() == StoredCheckpoint(2, STATE)
    assert not (run / CHECKPOINT_PART).exists()
