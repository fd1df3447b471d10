"""Reading of an agent's files, as if every path were a trap.

An agent may swap any file, folder or link of its tree for another at any time. So every step of a
path is opened relative to the folder before it, links are never followed, and checks are made on
the opened file, not on its name.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LONGEST, _DEEPEST = 200, 12


class IntakeRefused(Exception):
    """A refused file or request; its text is one word, the reason."""


def split_path(path: str) -> tuple[str, ...]:
    """The names in a relative path.

    Raises IntakeRefused: bad_name, outside (absolute, or with ..).
    """
    if path.startswith("/"):
        raise IntakeRefused("outside")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise IntakeRefused("outside")
    if not names or len(names) > _DEEPEST or not all(map(is_safe_name, names)):
        raise IntakeRefused("bad_name")
    return names


def is_safe_name(name: str) -> bool:
    """True if a file name can be kept.

    It is printable, valid UTF-8, not too long, and not a name that git treats as its own.
    """
    return (
        name.isprintable()
        and "\\" not in name
        and "/" not in name
        and len(name.encode("utf-8", "surrogatepass")) <= _LONGEST
        and not name.lower().startswith((".git", "git~"))
        and name not in (".", "..", "")
    )


@contextmanager
def open_folder(root: Path | str, names: tuple[str, ...] = ()) -> Iterator[int]:
    """A descriptor of the folder `names` below `root`.

    Raises IntakeRefused: missing, link, not_a_folder.
    """
    fd = os.open(root, _FOLDER)
    try:
        for name in names:
            inner = _open_entry(name, _FOLDER, fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def read_regular_file(root: Path | str, path: str, limit: int) -> bytes:
    """Bytes of a regular file.

    Raises IntakeRefused: as `split_path` and `open_folder`, and not_a_file, hard_link, too_large.
    """
    *way, name = split_path(path)
    with open_folder(root, tuple(way)) as fd:
        return read_at(fd, name, limit)


def read_at(fd: int, name: str, limit: int) -> bytes:
    """Bytes of a regular file in an open folder; see `read_regular_file`."""
    try:
        # before opening, which may act on a device
        _check_regular(os.stat(name, dir_fd=fd, follow_symlinks=False), limit)
    except OSError as error:
        raise _refusal_from_error(error) from None
    file = _open_entry(name, _FILE, fd)
    try:
        _check_regular(os.fstat(file), limit)
        data = b""
        while len(data) <= limit and (more := os.read(file, limit + 1 - len(data))):
            data += more
    except OSError as error:
        raise _refusal_from_error(error) from None
    finally:
        os.close(file)
    if len(data) > limit:  # the file grew during the read
        raise IntakeRefused("too_large")
    return data


def write_regular_file(root: Path | str, path: str, data: bytes, owner: int | None) -> None:
    """Write a file in a folder in which an agent may have laid links.

    No link is followed, and an existing file is replaced. Raises OSError, and IntakeRefused for a
    bad name.
    """
    *way, name = split_path(path)
    fd = os.open(root, _FOLDER)
    try:
        for step in way:
            with suppress(FileExistsError):
                os.mkdir(step, 0o755, dir_fd=fd)
                _set_owner(step, fd, owner)
            inner = os.open(step, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        new = f".{secrets.token_hex(6)}.new"
        file = os.open(
            new,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=fd,
        )
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
            if owner is not None:
                os.fchown(opened.fileno(), owner, owner)
        os.rename(new, name, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)


def _set_owner(name: str, fd: int, owner: int | None) -> None:
    if owner is not None:
        os.chown(name, owner, owner, dir_fd=fd, follow_symlinks=False)


def decode_text(data: bytes) -> str:
    """Bytes as text. Raises IntakeRefused: not_text."""
    try:
        decoded = data.decode("utf-8")
    except UnicodeDecodeError:
        raise IntakeRefused("not_text") from None
    if "\0" in decoded:
        raise IntakeRefused("not_text")
    return decoded


def walk_folder(
    root: Path | str,
    names: tuple[str, ...] = (),
    limit: int = 10_000,
    skip: Callable[[tuple[str, ...]], bool] = lambda _: False,
) -> Iterator[tuple[str, bool]]:
    """Paths below a folder, and True for each regular file; links are not followed.

    Folders for which `skip` returns True are not entered. After `limit` entries the walk ends with
    the path "...", False.
    """
    count = 0
    queue = [names]
    while queue:
        here = queue.pop()
        try:
            with open_folder(root, here) as fd:
                entries = _folder_entries(fd, limit - count + 1)
        except IntakeRefused:
            yield "/".join(here), False
            continue
        for name, mode in entries:
            way = (*here, name)
            if skip(way):
                continue
            count += 1
            if count > limit:
                yield "...", False
                return
            if not is_safe_name(name):  # the name appears in reports and must not act on a terminal
                yield "".join(char if char.isprintable() else "?" for char in "/".join(way)), False
            elif stat.S_ISDIR(mode) and len(way) < _DEEPEST:
                queue.append(way)
            else:
                yield "/".join(way), stat.S_ISREG(mode)


def _folder_entries(fd: int, limit: int) -> list[tuple[str, int]]:
    listing = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(listing) >= limit:
                break
            try:
                listing.append((entry.name, entry.stat(follow_symlinks=False).st_mode))
            except OSError:  # removed in the meantime
                continue
    return sorted(listing)


def _open_entry(name: str, flags: int, fd: int) -> int:
    try:
        return os.open(name, flags, dir_fd=fd)
    except OSError as error:
        raise _refusal_from_error(error) from None


def _check_regular(info: os.stat_result, limit: int) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise IntakeRefused("link")
    if not stat.S_ISREG(info.st_mode):
        raise IntakeRefused("not_a_file")
    if info.st_nlink > 1:
        raise IntakeRefused("hard_link")
    if info.st_size > limit:
        raise IntakeRefused("too_large")


def _refusal_from_error(error: OSError) -> IntakeRefused:
    words = {
        errno.ENOENT: "missing",
        errno.ELOOP: "link",
        errno.ENOTDIR: "not_a_folder",
        errno.ENXIO: "not_a_file",
    }
    return IntakeRefused(words.get(error.errno or 0, "unreadable"))
