"""Installed agent programs: paths that must be visible in a sandbox, and versions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from culmen.core.errors import UserError

VERSION_SECONDS = 5.0  # for a program to print its version
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl")
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")


@dataclass(frozen=True)
class InstalledProgram:
    """An agent program on this machine.

    command   starts the program; its interpreter comes first if a script finds it on PATH
    file      the program itself
    visible   folders and files that it needs beside /usr
    path      folders for PATH
    """

    command: tuple[str, ...]
    file: str
    visible: tuple[str, ...]
    path: tuple[str, ...]


def find_program(name: str, fix: str = "") -> InstalledProgram:
    """Program by name or path. Raises UserError if it is not installed."""
    location = shutil.which(os.path.expanduser(name))
    if location is None:
        raise UserError(f"the program '{name}' is not installed", fix=fix or "culmen doctor")
    file = _program_behind_shim(os.path.abspath(location))
    command, visible, folders = (file,), _install_roots(file), [os.path.dirname(file)]
    interpreter, start = _script_interpreter(os.path.realpath(file))
    if interpreter:
        command = (*start, file)
        visible |= _install_roots(interpreter)
        folders.append(os.path.dirname(interpreter))
    # a Python in the program's folder would replace the one that runs candidates
    path = [folder for folder in folders if not os.path.exists(os.path.join(folder, "python3"))]
    return InstalledProgram(command, file, _outermost_paths(visible), tuple(dict.fromkeys(path)))


def mentioned_paths(words: Iterable[str]) -> tuple[str, ...]:
    """Existing paths that a command line names absolutely, to be made visible.

    HOME and folders at the top of the file system are left out: they hold other things.
    """
    named = {word.rpartition("=")[2] for word in words}  # also of --option=PATH
    paths = {word for word in named if os.path.isabs(word) and os.path.exists(word)}
    paths = {os.path.normpath(word) for word in paths if not word.startswith(_SYSTEM)}
    return _outermost_paths(
        {
            word
            for word in paths
            if len(Path(word).parts) > 2 and Path(word) not in _shared_folders()
        }
    )


def absolute_words(words: Iterable[str], folder: Path) -> list[str]:
    """The words of a command, those that name a file or folder below `folder` as absolute paths.

    A word names a path if it has a slash or a suffix, by itself or as the value of `--option=PATH`;
    the first word only with a slash, since a shell looks for any other on PATH.
    """
    return [
        word if not place and "/" not in word else _absolute_word(word, folder)
        for place, word in enumerate(words)
    ]


def _absolute_word(word: str, folder: Path) -> str:
    option, equals, value = word.rpartition("=")
    path = folder / os.path.expanduser(value)
    if ("/" not in value and not Path(value).suffix) or not path.exists():
        return word
    return f"{option}{equals}{os.path.abspath(path)}"


def missing_scripts(words: Iterable[str]) -> list[str]:
    """Words that must name a script, by their suffix or a leading `./`, and are no file here.

    Those with a place in braces are left out.
    """
    named = [word for word in words if word.endswith(_SCRIPTS) or word.startswith(("./", "../"))]
    return [word for word in named if "{" not in word and not os.path.isfile(word)]


def program_version(installed: InstalledProgram) -> str:
    """Version of an installed program; "" if unknown.

    Read from its npm or Python package, else from the output of `--version`.
    """
    return (
        _npm_package_version(os.path.realpath(installed.file))
        or _python_package_version(installed.file)
        or _reported_version(installed.command)
    )


def _install_roots(file: str) -> set[str]:
    """Paths that must be visible for every step of a chain of links to work."""
    roots: set[str] = set()
    for _ in range(20):
        roots.add(_install_root(file))
        if not os.path.islink(file):
            break
        file = os.path.normpath(os.path.join(os.path.dirname(file), os.readlink(file)))
    roots.add(_install_root(os.path.realpath(file)))
    return {root for root in roots if not f"{root}/".startswith(_SYSTEM)}


def _install_root(file: str) -> str:
    """Folder into which a program was installed, or only its file if the folder is shared."""
    parts = Path(file).parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    folder = Path(file).parent
    if (
        folder.name == "bin"
        and folder.parent not in _shared_folders()
        and (folder.parent / "lib").exists()
    ):
        return str(folder.parent)
    return file


def _shared_folders() -> set[Path]:
    """Folders with too many other things to be made visible as a whole."""
    return {Path.home(), Path.home() / ".local", Path("/"), Path("/opt")}


def _outermost_paths(paths: set[str]) -> tuple[str, ...]:
    return tuple(p for p in sorted(paths) if not any(p.startswith(other + "/") for other in paths))


def _script_interpreter(file: str) -> tuple[str, tuple[str, ...]]:
    """Interpreter of a script ("" for a binary), and the start of its command line.

    The second item is empty unless the script finds its interpreter on PATH (`env`).
    """
    try:
        with open(file, "rb") as handle:
            first = handle.readline(500).decode("utf-8", "replace")
    except OSError:
        return "", ()
    words = first[2:].split() if first.startswith("#!") else []
    by_path = bool(words) and os.path.basename(words[0]) == "env"
    if by_path:
        words = list(dropwhile(lambda word: word.startswith("-") or "=" in word, words[1:]))
    interpreter = shutil.which(words[0]) if words else None
    if not interpreter:
        return "", ()
    interpreter = _program_behind_shim(interpreter)
    return interpreter, (interpreter, *words[1:]) if by_path else ()


def _program_behind_shim(file: str) -> str:
    """The program behind a version manager's shim; any other file is returned unchanged.

    Version managers (pyenv, nodenv, asdf, mise) put scripts on PATH that look for the program in
    folders that a sandbox does not show. Raises UserError if the manager does not return a path.
    """
    folder = Path(file).parent
    if folder.name != "shims":
        return file
    complaint = ""
    for manager in ("pyenv", "nodenv", "asdf", "mise"):
        tool = shutil.which(manager) or shutil.which(str(folder.parent / "bin" / manager))
        if tool is None or manager not in str(folder):
            continue
        try:
            done = subprocess.run(
                [tool, "which", os.path.basename(file)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=VERSION_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if os.path.isfile(done.stdout.strip()):
            return done.stdout.strip()
        complaint = complaint or " ".join(done.stderr.split())[:200]
    raise UserError(
        f"'{file}' is a shim of a version manager that does not report the path of the program"
        + (f": {complaint}" if complaint else ""),
        fix=f"name the program by its own path instead of {os.path.basename(file)}",
    )


def _npm_package_version(file: str) -> str:
    """The version in the package.json above a file in node_modules."""
    for folder in Path(file).parents:
        if folder.name == "node_modules":
            break
        try:
            stated = json.loads((folder / "package.json").read_text())
        except (OSError, ValueError):
            continue
        if (
            isinstance(stated, dict)
            and isinstance(stated.get("bin"), dict | str)
            and "node_modules" in file
        ):
            return str(stated.get("version", ""))
    return ""


def _python_package_version(file: str) -> str:
    """The version of the Python package that a script in an environment's bin belongs to."""
    name, root = os.path.basename(file), Path(file).parent.parent
    if Path(file).parent.name != "bin" or root in _shared_folders() or str(root) == "/usr":
        return ""
    for points in root.glob("lib/python3*/site-packages/*.dist-info/entry_points.txt"):
        lines = points.read_text(errors="replace").splitlines()
        if any(line.partition("=")[0].strip() == name for line in lines if "=" in line):
            return points.parent.name.removesuffix(".dist-info").rpartition("-")[2]
    return ""


def _reported_version(command: tuple[str, ...]) -> str:
    """First word of the output of `--version` that looks like a version; "" if none does."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(
                [*command, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=VERSION_SECONDS,
                cwd=home,
                env=environment,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    words = done.stdout.split()
    return next(
        (word.lstrip("v").rstrip(",") for word in words if word.lstrip("v")[:1].isdigit()), ""
    )
