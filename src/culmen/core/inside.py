"""Files of foreign folders, such as tasks and skills of others; none from outside.

A link, a second name of a file elsewhere, `..` or an absolute path could make such a folder show a
file of the user to a model. Names that differ only in case are one file on some machines.
"""

from __future__ import annotations

import os
import stat
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from culmen.core.errors import TaskError

# installers share one copy of a package's files between environments by hard links
_INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    | {os.path.dirname(os.path.dirname(os.path.realpath(__file__)))}
)


class OutsideFolder(TaskError):
    """A name in a foreign folder that leads out of it, or that is not one file everywhere."""


def read_inside(folder: Path, name: str) -> bytes:
    """The bytes of a file of a foreign folder; raise `OutsideFolder` or `OSError`."""
    return path_inside(folder, name).read_bytes()


def text_inside(folder: Path, name: str) -> str:
    """The UTF-8 text of a file of a foreign folder, with `\\n` at the end of each line."""
    return read_inside(folder, name).decode("utf-8").replace("\r\n", "\n")


def path_inside(folder: Path, name: str | Path) -> Path:
    """The path of a name in a foreign folder, its links followed; it need not exist.

    Raises `OutsideFolder` for a name that leads out of the folder, for a file that has a name
    outside, for one that is neither file nor folder, and where another name differs only in case.
    """
    given = Path(name)
    if not _is_file_name(str(name)):
        raise TaskError(f"{str(name)[:40]!r} is no name of a file", fix="name it in plain letters")
    if given.is_absolute() or ".." in given.parts:
        raise _outside(folder, given, "leads out of the folder")
    path, root = folder / given, folder.resolve()
    parent = folder
    for part in given.parts:
        _check_spelling(folder, parent / part, os.listdir(parent) if parent.is_dir() else ())
        parent /= part
    _check_file(folder, path, root, Counter())
    return Path(os.path.realpath(path))


def _is_file_name(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def files_inside(folder: Path, without: Collection[str] = ()) -> list[Path]:
    """The regular files of a foreign folder and below, sorted; raise `OutsideFolder`.

    Links to files inside it are files; folders that are links are not entered, nor are those of
    the names in `without`.
    """
    root, found, names = folder.resolve(), list[Path](), Counter[tuple[int, int]]()
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in without]
        entries = (*folders, *files)
        by_case = Counter(map(str.casefold, entries))
        for name in entries:
            path = Path(here, name)
            if by_case[name.casefold()] > 1:
                _check_spelling(folder, path, entries)
            if path.is_symlink() or name in files:
                _check_links(folder, path, root)
        found += (path for name in files if (path := Path(here, name)).exists())
    for path in found:
        about = path.lstat()
        names[about.st_dev, about.st_ino] += 1
    for path in found:
        _check_file(folder, path, root, names)
    return sorted(filter(Path.is_file, found))


def _check_spelling(folder: Path, path: Path, entries: Iterable[str]) -> None:
    for entry in entries:
        if entry != path.name and entry.casefold() == path.name.casefold():
            raise _outside(folder, path, f"and {entry} differ only in case")


def _check_links(folder: Path, path: Path, root: Path) -> None:
    # without an error for a link to itself, which the reader reports as missing
    if not Path(os.path.realpath(path)).is_relative_to(root):
        raise _outside(folder, path, "leads out of the folder")


def _check_file(folder: Path, path: Path, root: Path, names: Counter[tuple[int, int]]) -> None:
    """Refuse a path out of the folder, and a file that is special or has names outside.

    `names` counts the names of each file in the folder; one that is missing is counted here.
    """
    _check_links(folder, path, root)
    try:
        about = path.stat()
    except OSError:
        return  # the reader says that it is missing
    if stat.S_ISDIR(about.st_mode):
        return
    if not stat.S_ISREG(about.st_mode):
        raise _outside(folder, path, "is neither a file nor a folder")
    if about.st_nlink > 1 and not os.fspath(root).startswith(_INSTALLED):
        key = about.st_dev, about.st_ino
        inside = names[key] or _names_inside(root, key)
        if inside < about.st_nlink:
            raise _outside(folder, path, "is a hard link: the file has a name outside the folder")


def _names_inside(root: Path, key: tuple[int, int]) -> int:
    """Number of names in a folder and below of the file with this device and number."""
    return sum(
        (about := os.lstat(os.path.join(here, name))).st_ino == key[1] and about.st_dev == key[0]
        for here, _, files in os.walk(root)
        for name in files
    )


def _outside(folder: Path, path: Path, why: str) -> OutsideFolder:
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return OutsideFolder(
        f"'{name}' {why}", where=str(folder), fix="put a copy of the file into the folder"
    )
