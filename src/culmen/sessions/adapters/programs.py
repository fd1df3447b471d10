"""Where agent programs are on this machine: what of it must be visible in a sandbox, and which version it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from culmen.core.errors import UserError

VERSION_SECONDS = 10.0
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")


@dataclass(frozen=True)
class Program:
    """`file` to start, `visible` folders and files it needs beside /usr, `path` folders for PATH."""

    file: str
    visible: tuple[str, ...]
    path: tuple[str, ...]


def find(name: str, fix: str = "") -> Program:
    """A program by name or path. Raises UserError if there is none."""
    found = shutil.which(os.path.expanduser(name))
    if found is None:
        raise UserError(f"the program '{name}' is not installed", fix=fix or "culmen doctor")
    file = os.path.abspath(found)
    visible, path = _roots(file), {os.path.dirname(file): None}
    interpreter = _interpreter(os.path.realpath(file))
    if interpreter:
        visible |= _roots(interpreter)
        path[os.path.dirname(interpreter)] = None
    return Program(file, _outermost(visible), tuple(path))


def mentioned(words: Iterable[str]) -> tuple[str, ...]:
    """Files and folders that a command line names by absolute path: they must be visible, too. Top folders and HOME,
    which hold other things, are not."""
    found = {word for word in words if os.path.isabs(word) and os.path.exists(word)}
    found = {os.path.normpath(word) for word in found if not word.startswith(_SYSTEM)}
    return _outermost({word for word in found if len(Path(word).parts) > 2 and Path(word) not in _shared()})


def version(file: str) -> str:
    """Of an installed program: from its npm package if it is one, else from `--version`; "" if it does not say."""
    return _packaged(os.path.realpath(file)) or _asked(file)


def _roots(file: str) -> set[str]:
    """What must be visible for every step of a chain of links to work."""
    roots: set[str] = set()
    for _ in range(20):
        roots.add(_root(file))
        if not os.path.islink(file):
            break
        file = os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file)))
    roots.add(_root(os.path.realpath(file)))
    return {root for root in roots if not f"{root}/".startswith(_SYSTEM)}


def _root(file: str) -> str:
    """The folder a program was installed into, or just the file where that would show too much."""
    parts = Path(file).parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    folder = Path(file).parent
    if folder.name == "bin" and folder.parent not in _shared():
        return str(folder.parent)
    return file


def _shared() -> set[Path]:
    """Folders of too many things to be shown whole."""
    return {Path.home(), Path.home() / ".local", Path("/"), Path("/opt")}


def _outermost(paths: set[str]) -> tuple[str, ...]:
    return tuple(p for p in sorted(paths) if not any(p.startswith(other + "/") for other in paths))


def _interpreter(file: str) -> str:
    """Of a script, "" for a binary."""
    try:
        with open(file, "rb") as handle:
            first = handle.readline(500).decode("utf-8", "replace")
    except OSError:
        return ""
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return (shutil.which(words[0]) or "") if words else ""


def _packaged(file: str) -> str:
    """The version in the package.json above a file in node_modules."""
    for folder in Path(file).parents:
        if folder.name == "node_modules":
            break
        try:
            stated = json.loads((folder / "package.json").read_text())
        except (OSError, ValueError):
            continue
        if isinstance(stated, dict) and isinstance(stated.get("bin"), dict | str) and "node_modules" in file:
            return str(stated.get("version", ""))
    return ""


def _asked(file: str) -> str:
    """What `--version` prints, the first word that looks like a version."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        try:
            said = subprocess.run(
                [file, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=VERSION_SECONDS, cwd=home, env=environment, start_new_session=True, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
    words = said.stdout.split()
    return next((word.lstrip("v").rstrip(",") for word in words if word.lstrip("v")[:1].isdigit()), "")
