"""The bubblewrap command that starts the fork-server in namespaces of its own.

The fork-server sees only the files that Python needs, read-only.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from culmen.jail.confine import WORK

PACKAGE = Path(__file__).resolve().parents[1]  # culmen itself
# the built-in tasks, whose evaluators candidates must not read
HIDDEN = str(PACKAGE / "extensions" / "builtin")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# files that programs and compilers read; none is secret
_ETC = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "passwd",
    "group",
    "nsswitch.conf",
    "mime.types",
    "protocols",
    "services",
    "java-17-openjdk",
    "java-21-openjdk",
    "R",
)


def bwrap_path() -> str | None:
    """Path of bubblewrap, None if it is not installed."""
    return shutil.which("bwrap")


def python_folders() -> tuple[str, ...]:
    """Folders of this interpreter, its libraries and culmen, outermost only."""
    paths = {
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        sysconfig.get_path("stdlib"),
        str(PACKAGE),
    }
    paths |= {
        path for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) if path
    }
    paths |= {str(Path(sys.executable).resolve().parent.parent)}
    return _outermost_paths(
        path for path in paths if os.path.isdir(path) and os.path.realpath(path) != "/"
    )


def readable_paths(extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Paths that a candidate may read and execute at level restricted."""
    etc = tuple(f"/etc/{name}" for name in _ETC)
    return (
        "/usr",
        *(path for path in _SYSTEM if os.path.exists(path)),
        *etc,
        *python_folders(),
        *extra,
    )


def paths_around_hidden(
    folders: Iterable[str], extra: Iterable[str], shut: Iterable[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders without the built-in tasks and `shut`: (listable folders, readable paths).

    A Landlock rule holds for everything below its path, so the neighbours of a hidden folder and of
    its parents are named one by one. Links count as their targets: a rule follows them, and `lib64`
    of a virtual environment is its `lib`.
    """
    hidden = {os.path.realpath(path) for path in (HIDDEN, *shut)}
    listed, read, visited = [], list(extra), set[str]()
    queue = list(folders)
    while queue:
        folder = queue.pop()
        real = os.path.realpath(folder)
        if not any((path + "/").startswith(real.rstrip("/") + "/") for path in hidden):
            if not any((real + "/").startswith(path + "/") for path in hidden):
                read.append(folder)
        elif real not in hidden | visited and os.path.isdir(real):
            visited.add(real)
            listed.append(real)
            queue += [os.path.join(real, name) for name in os.listdir(real)]
    return tuple(listed), tuple(read)


def bwrap_command(
    inner: list[str], extra: Iterable[str] = (), *, user: bool, proc: bool
) -> list[str]:
    """`inner` inside bubblewrap.

    `user`: with a user namespace (we are not root); `proc`: with a fresh /proc. `extra` paths are
    visible read-only; the built-in tasks are hidden, except those in `extra`.
    """
    line = [
        bwrap_path() or "bwrap",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--as-pid-1",
    ]
    line += ["--unshare-user", "--uid", "0", "--gid", "0"] if user else []
    line += ["--cap-add", "ALL", "--hostname", "jail", *system_arguments()]
    line += [
        "--dev",
        "/dev",
        *(["--proc", "/proc"] if proc else []),
        "--tmpfs",
        "/tmp",
        "--perms",
        "0755",
        "--dir",
        WORK,
    ]
    line += read_only_arguments((*python_folders(), *extra), extra)
    return [*line, "--remount-ro", "/", "--chdir", "/", "--", *inner]


def system_arguments() -> list[str]:
    """Arguments that show the system's programs and libraries, read-only."""
    line = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            line += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            line += ["--ro-bind", path, path]
    line += [
        "--perms",
        "0755",
        "--dir",
        "/etc",
    ]  # else 0700, and Debian's /etc/alternatives could not be followed
    for name in _ETC:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return line


def read_only_arguments(paths: Iterable[str], extra: Iterable[str] = ()) -> list[str]:
    """Arguments that show these paths read-only at their own places.

    The built-in tasks are hidden, except those in `extra`.
    """
    line: list[str] = []
    created: set[str] = set()
    for path in _outermost_paths(paths):
        line += parent_arguments(path, created)
        line += ["--ro-bind", path, path]
    if os.path.isdir(HIDDEN):
        line += ["--tmpfs", HIDDEN]
        for path in (path for path in extra if path.startswith(HIDDEN + "/")):
            line += ["--ro-bind", path, path]
        line += ["--remount-ro", HIDDEN]
    return line


def parent_arguments(path: str, created: set[str]) -> list[str]:
    """Arguments that make missing parents open to others, outermost first.

    Bubblewrap itself makes them closed to others.
    """
    line: list[str] = []
    for parent in reversed(Path(path).parents):
        text = str(parent)
        if (
            text not in ("/", "/usr", "/tmp")
            and not text.startswith("/usr/")
            and text not in created
        ):
            created.add(text)
            line += ["--perms", "0755", "--dir", text]
    return line


def _outermost_paths(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted({os.path.abspath(p) for p in paths}, key=len):
        if not any(
            path == base or path.startswith(base.rstrip("/") + "/") for base in (*kept, "/usr")
        ):
            kept.append(path)
    return tuple(kept)
