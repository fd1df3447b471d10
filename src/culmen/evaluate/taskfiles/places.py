"""Reading files and naming places, so that every message says where and how to go on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from culmen.core.errors import TaskError


def read_text(path: Path) -> str:
    """A UTF-8 text file with line ends as `\\n`; raises `TaskError`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise TaskError(
            f"cannot be read: {error.strerror}", where=str(path), fix="check the path and its rights"
        ) from None
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text (byte {error.start})"
        raise TaskError(what, where=str(path), fix="save the file as UTF-8") from None
    return text.replace("\r\n", "\n")


def missing(path: Path, key: str = "") -> TaskError:
    """The error for a file that is not there, with the nearest name in its folder."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    near = closest(path.name, names)
    fix = f"did you mean '{near}'?" if near else f"create {path.name}, or name another file"
    where = f"{key}: {path}" if key else str(path)
    return TaskError(f"file '{path.name}' does not exist", where=where, fix=fix)


def closest(name: str, names: Iterable[str]) -> str:
    """The name most like this one, "" if none is near."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)), "")


def one_of(word: str, words: Iterable[str]) -> str:
    """A fix for a wrong word: the near one if there is one, and all that are possible."""
    choices = sorted(words)
    near = closest(word, choices)
    return (f"did you mean '{near}'? " if near else "") + f"possible: {', '.join(choices)}"


def unknown_keys(
    table: Mapping[str, object], allowed: Iterable[str], where: str, toml: str = "", section: str = ""
) -> None:
    """Raises `TaskError` for the first key that is not allowed."""
    known = list(allowed)
    for key in table:
        if key not in known:
            place = f"{where}:{line_of(toml, section, str(key))}" if toml else where
            inside = f" in [{section}]" if section else ""
            raise TaskError(f"unknown key '{key}'{inside}", where=place, fix=one_of(str(key), known))


def line_of(toml: str, section: str, key: str) -> int:
    """The line (from 1) of a key of a TOML text, or of its section's heading; 1 if neither is found.

    A search by lines, good enough for messages: it does not parse multi-line values.
    """
    current, heading = "", 1
    for number, line in enumerate(toml.splitlines(), 1):
        if match := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            current = match[1].replace('"', "").replace(" ", "")
            if current in (section, f"{section}.{key}".lstrip(".")):
                heading = number
            if current == f"{section}.{key}".lstrip("."):
                return number
        elif current == section and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return heading
