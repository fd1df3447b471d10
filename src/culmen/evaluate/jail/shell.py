"""Form command, inside the jail: run a command line on the candidate's files, send its stdout and the files it left."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

from culmen.evaluate.jail import kernel, wire

_STDIN = ".input"
_MAX_FILES = 64


class ExitStatus(Exception):
    """The command ended with a status other than 0."""


class OutputLimit(Exception):
    """The command printed more than is kept."""


def run_command(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Run it once: stdin is the case's input, {part} and {input} in the arguments stand for files."""
    feed(work, request)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # the command has our uid; it need not see our memory
    line = [substitute(word, request["parts"]) for word in request["command"]]
    with (work / _STDIN).open("rb") as stdin:
        process = subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, cwd=work)
        assert process.stdout is not None
        text = process.stdout.read(request["limit"] + 1)
    if len(text) > request["limit"]:
        raise OutputLimit(f"more than {request['limit']} bytes on stdout")
    status = process.wait()
    if status != 0:
        raise ExitStatus(f"the command ended with status {status}")
    files = collect(work, request["outputs"], {_STDIN, *request["parts"]}, request["limit"] - len(text))
    wire.send(channel, "R", wire.encode({"stdout": text.decode("utf-8", "replace"), "files": files}))


def feed(work: Path, request: dict[str, Any]) -> None:
    """Put the case's input where stdin and {input} find it: text as it is, anything else as JSON."""
    value = request["input"]
    text = "" if not request["has_input"] else value if isinstance(value, str) else json.dumps(value)
    (work / _STDIN).write_text(text, encoding="utf-8")


def substitute(word: str, parts: dict[str, str]) -> str:
    """One argument with its placeholders filled in; other braces stay."""
    for name in parts:
        word = word.replace("{" + name + "}", name)
    return word.replace("{input}", _STDIN)


def collect(work: Path, wanted: list[str], known: set[str], room: int) -> dict[str, str]:
    """Texts of the `wanted` files, or of whatever new files there are; no binaries, `room` bytes in all."""
    names = wanted or sorted(_new_files(work, known))
    files: dict[str, str] = {}
    for name in names[:_MAX_FILES]:
        path = work / name
        try:
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) and info.st_size <= room:
                files[name] = path.read_bytes()[:room].decode("utf-8")
                room -= info.st_size
        except (OSError, UnicodeDecodeError):
            continue
    return files


def _new_files(work: Path, known: set[str]) -> list[str]:
    found = []
    for folder, folders, names in os.walk(work):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        inside = [os.path.relpath(os.path.join(folder, name), work) for name in names]
        found += [name for name in inside if name not in known]
        if len(found) > 1000:
            break
    return found
