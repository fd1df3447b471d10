"""Finished runs as one compressed file each (.culmen.tar.xz), and back.

An archive holds `manifest.json`, the journal as one SQLite file without free pages, and the other
files of the run's folder. The manifest names the SHA-256 of every file and the counts and hashes of
the tables (store/transfer.py); they are compared after an archive is written, before anything is
removed, and again when it is restored.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import msgspec

from culmen.core.errors import JournalDamaged, UserError
from culmen.core.foreign import boundary
from culmen.core.inside import OutsideFolder, path_inside
from culmen.store import sidecar, transfer, views
from culmen.store.address import FILE, POINTER, has_run, read_pointer, require_local
from culmen.store.database import run_database, translate_errors
from culmen.store.lease import RunLock, take_lease

SUFFIX = ".culmen.tar.xz"
_MANIFEST, _FORMAT = "manifest.json", 1
_LEFT = (f"{FILE}-wal", f"{FILE}-shm", "lock", FILE, POINTER, "inbox")
_LEFT += (sidecar.CHECKPOINT, sidecar.CHECKPOINT_PART, sidecar.KEPT)


class Manifest(msgspec.Struct, frozen=True):
    """Contents of an archive; `files` maps paths inside the run's folder to SHA-256."""

    run: str
    task: str
    strategy: str
    events: int
    culmen: str
    files: dict[str, str]
    tables: dict[str, transfer.Sum]
    format: int = _FORMAT


class Archived(msgspec.Struct, frozen=True):
    """One archive: its path, and the sizes in bytes of the run's files and of the archive."""

    run: str
    file: str
    events: int
    before: int
    after: int
    removed: bool = False


def archive_run(
    run: Path, out: Path | None = None, *, remove: bool = False, unfinished: bool = False
) -> Archived:
    """Write a run to the archive `out` and verify it; with `remove`, delete the run.

    The default of `out` is RUN.culmen.tar.xz beside the run. Raises `RunLocked` for a run that a
    process is writing, and `UserError` if the file exists or, without `unfinished`, if the run has
    not finished.
    """
    target = out or run.with_name(run.name + SUFFIX)
    if target.exists():
        raise UserError(
            "there is a file already",
            where=target,
            fix="move it away, or name another with --out",
        )
    status = views.run_status(run)
    if not status.is_finished and not unfinished and status.owner is None:
        raise UserError(
            f"this run has not finished ({status.state})",
            where=run,
            fix="culmen runs archive --unfinished takes it so",
        )
    with (
        closing(take_lease(run, None)),
        tempfile.TemporaryDirectory(prefix=".culmen-", dir=target.parent) as folder,
    ):
        staged = Path(folder) / "run"
        _stage_journal(run, staged)
        other_files = _other_files(run)
        files = {
            name: _file_sha256(path) for name, path in {**other_files, FILE: staged / FILE}.items()
        }
        manifest = Manifest(
            status.run,
            status.task,
            status.strategy,
            status.events,
            views.run_meta(run).culmen,
            files,
            transfer.table_sums(staged),
        )
        part = Path(folder) / "archive"
        _write_archive(part, manifest, {**other_files, FILE: staged / FILE})
        before = sum(path.stat().st_size for path in (*other_files.values(), staged / FILE))
        _verify_archive(part)
        part.replace(target)
    if remove:
        delete_run(run)
    return Archived(run.name, str(target), status.events, before, target.stat().st_size, remove)


def restore_archive(file: Path, out: Path) -> Archived:
    """Unpack an archive into a new folder.

    Every file and table is compared with the manifest. Raises `UserError` if `out` exists, and
    `JournalDamaged` if the contents differ from the manifest.
    """
    if out.exists():
        raise UserError(
            "there is something already", where=out, fix="name another folder with --out"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    require_local(out.parent)
    with tempfile.TemporaryDirectory(prefix=".culmen-", dir=out.parent) as folder:
        staged = Path(folder) / "run"
        manifest = _verify_archive(file, staged)
        if transfer.table_sums(staged) != manifest.tables:
            raise JournalDamaged("the tables are not those that were archived", where=file)
        staged.rename(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return Archived(out.name, str(out), manifest.events, file.stat().st_size, size)


def _stage_journal(run: Path, staged: Path) -> None:
    """Write the journal to `staged` as one file without free pages."""
    if read_pointer(run) is not None:
        transfer.copy_run(run, staged)
        _merge_log(staged / FILE)
        return
    staged.mkdir()
    with translate_errors(run), closing(sqlite3.connect(run / FILE)) as raw:
        raw.execute("VACUUM INTO ?", (str(staged / FILE),))


def _merge_log(file: Path) -> None:
    """Merge the write-ahead log into the database file: an archive holds no log."""
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.execute("PRAGMA journal_mode=DELETE")


def _other_files(run: Path) -> dict[str, Path]:
    """All other files of the folder: blobs, agents' files, weights.

    Links and sockets are left out.
    """
    files: dict[str, Path] = {}
    for folder, below, names in os.walk(run):
        below.sort()
        for name in sorted(names):
            path = Path(folder) / name
            inside = path.relative_to(run)
            if inside.parts[0] not in _LEFT and path.is_file() and not path.is_symlink():
                files[str(inside)] = path
    return files


def _write_archive(part: Path, manifest: Manifest, files: dict[str, Path]) -> None:
    # xz; higher ones take several times as long for a tenth of the size
    with tarfile.open(part, "w:xz", preset=1) as tar:
        described = json.dumps(msgspec.to_builtins(manifest), indent=1).encode()
        header = tarfile.TarInfo(_MANIFEST)
        header.size = len(described)
        with tempfile.TemporaryFile() as file:
            file.write(described)
            file.seek(0)
            tar.addfile(header, file)
        for name, path in files.items():
            tar.add(path, f"run/{name}", recursive=False)
    with part.open("rb") as file:
        os.fsync(file.fileno())


@boundary()
def _verify_archive(file: Path, into: Path | None = None) -> Manifest:
    """Compare every file of an archive with its manifest; with `into`, unpack it there."""
    with _open_archive(file) as tar:
        manifest = _parse_manifest(tar, file)
        seen: set[str] = set()
        for member in _members_of(tar, file):
            if member.name == _MANIFEST:
                continue
            name = member.name.removeprefix("run/")
            source = tar.extractfile(member) if member.isfile() and name in manifest.files else None
            if source is None:
                raise JournalDamaged(f"'{member.name}' is not in its manifest", where=file)
            if (
                _stream_digest(source, into and _path_inside(into, name, file))
                != manifest.files[name]
            ):
                raise JournalDamaged(
                    f"'{name}' was altered", where=file, fix="restore the archive from a copy"
                )
            seen.add(name)
    if seen != set(manifest.files):
        missing = ", ".join(sorted(set(manifest.files) - seen)[:5])
        raise JournalDamaged(
            f"files are missing: {missing}", where=file, fix="restore the archive from a copy"
        )
    return manifest


def _members_of(tar: tarfile.TarFile, file: Path) -> Iterator[tarfile.TarInfo]:
    try:
        yield from tar
    except (EOFError, tarfile.TarError, lzma.LZMAError, OSError) as error:
        raise _damaged(file, error) from None


_MAGIC = b"\xfd7zXZ\x00"  # of every xz file


def _damaged(file: Path, error: Exception) -> JournalDamaged:
    return JournalDamaged(
        f"the archive is cut or garbled ({error})", where=file, fix="restore it from a copy"
    )


def _open_archive(file: Path) -> tarfile.TarFile:
    if file.exists() and not file.is_file():  # a pipe would never end
        raise UserError("this is not a file", where=file, fix="culmen runs archive RUN")
    try:
        return tarfile.open(file, "r:xz")
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        with suppress(OSError), file.open("rb") as stream:
            if stream.read(len(_MAGIC)) == _MAGIC:
                raise _damaged(file, error) from None
        raise UserError(
            f"this is not an archive of a run ({error})",
            where=file,
            fix="culmen runs archive RUN",
        ) from None


def _parse_manifest(tar: tarfile.TarFile, file: Path) -> Manifest:
    try:
        first = tar.next()
        source = tar.extractfile(first) if first is not None and first.name == _MANIFEST else None
        manifest = msgspec.json.decode(source.read(), type=Manifest) if source is not None else None
    except (OSError, tarfile.TarError, lzma.LZMAError, EOFError) as error:
        raise _damaged(file, error) from None
    except msgspec.MsgspecError:
        manifest = None
    if manifest is None or manifest.format > _FORMAT or FILE not in manifest.files:
        raise UserError(
            "this culmen cannot read this archive",
            where=file,
            fix="culmen runs archive RUN",
        )
    return manifest


def _path_inside(folder: Path, name: str, file: Path) -> Path:
    try:
        path = path_inside(folder, name)
    except OutsideFolder as error:
        raise JournalDamaged(error.what, where=file, fix="use another archive") from None
    if os.path.lexists(path):
        raise JournalDamaged(f"'{name}' is there twice", where=file)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _stream_digest(source: IO[bytes], copy: Path | None) -> str:
    sha, into = hashlib.sha256(), None if copy is None else copy.open("xb")
    try:
        while block := source.read(1 << 20):
            sha.update(block)
            if into is not None:
                into.write(block)
    except (EOFError, tarfile.TarError, lzma.LZMAError, OSError) as error:
        raise JournalDamaged(
            f"the archive is cut or garbled ({error})", fix="restore it from a copy"
        ) from error
    finally:
        if into is not None:
            into.close()
    return sha.hexdigest()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete_run(run: Path) -> None:
    """Delete a run with its folder; raises `RunLocked` if a process is writing it."""
    address = read_pointer(run)
    if address is not None:
        run_database(address).drop_run()
        shutil.rmtree(run)
        return
    lock = RunLock.acquire(run)
    try:
        shutil.rmtree(run)
    finally:
        lock.release()


# Space used by runs: measure it, and free it.


def vacuum_store(run: Path) -> tuple[int, int]:
    """Free the unused space of a run's store; return its bytes before and after.

    In a folder, half-written files left by a crash are removed too. Raises `RunLocked` if a process
    is writing the run.
    """
    if not has_run(run):
        raise UserError("there is no run here", where=run, fix="culmen status lists the latest run")
    before = stored_bytes(run)
    with translate_errors(run), closing(take_lease(run, None)) as lease:
        address = read_pointer(run)
        if address is None:
            lease.connection.execute("VACUUM")
            lease.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").all()
            for left in (run / "blobs").glob("??/.new-*"):
                left.unlink()
        else:
            run_database(address).vacuum_run(lease.connection)
    return before, stored_bytes(run)


def stored_bytes(run: Path) -> int:
    """Bytes of a run on disk: its folder, or its tables and indexes in the database."""
    address = read_pointer(run)
    if address is None:
        return sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return run_database(address).measure_run()
