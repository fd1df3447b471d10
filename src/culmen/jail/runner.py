"""The candidate's side, inside the jail: run the program, send plain data back.

Once candidate code runs, nothing in this process is trusted. It may be patched or bypassed; that
only allows it to send other plain data, which the scorer judges like any output.

Frames out: K jail ready · J jail failed · R result · D result of a program that drew random numbers
· E exception · X left without a result. In: Q request · C call · D end of the calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

from culmen.core.json import JsonObject
from culmen.jail import kernel, wire
from culmen.jail.confine import CHANNEL
from culmen.jail.plain import last_lines
from culmen.jail.state import ProgramStreams
from culmen.jail.streams import prepare_twins, seed_globals

REQUEST_LIMIT = 1 << 30  # requests come from the orchestrator, which is trusted


def serve_request(work: str) -> NoReturn:
    """Serve one request on the channel, then exit at once."""
    channel = socket.socket(fileno=CHANNEL)
    wire.send(channel, "K")
    try:
        _answer_request(channel, work)
    finally:
        exit_at_once()


def _answer_request(channel: socket.socket, work: str) -> None:
    request = wire.decode(wire.receive(channel, REQUEST_LIMIT)[1])
    try:
        write_parts(work, request["parts"])
        _serving_function(request)(channel, request, Path(work))
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything; it becomes a value here
        wire.send(channel, "E", encode_exception(error))


def rehearse(folder: str) -> None:
    """Do in this process what its children do for a program, some times, before they are forked.

    Code that runs for the first times writes to its own memory, which each child would copy.
    """
    prepare_twins()
    path, load, name = sys.path[:], SourceFileLoader.exec_module, "culmen_rehearsal"
    request = {"form": "call", "function": "", "module": name, "entry": "run"}
    program = "DATA = [1]\ndef run(case=None):\n    return DATA"
    request |= {"has_input": False, "input": None, "parts": {name: program}}
    for seed in range(20):  # after which the interpreter has specialised the code
        ours, theirs = socket.socketpair()
        with ours, theirs:
            seed_globals(seed)
            wire.send(ours, "Q", wire.encode({**request, "seed": seed}))
            _answer_request(theirs, folder)
        sys.path[:], SourceFileLoader.exec_module = path, load
        del sys.modules[name]
    sys.path_importer_cache.pop(folder, None)


def exit_at_once() -> NoReturn:
    """End without running exit handlers of the candidate."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(0)


def _serving_function(request: JsonObject) -> Callable[[socket.socket, JsonObject, Path], None]:
    """The function for the request's form: one of these, or one that the request names."""
    if request["function"]:
        module, _, name = request["function"].partition(":")
        return getattr(importlib.import_module(module), name)
    forms = {"call": run_call, "serve": run_serve, "command": run_command, "build": run_build}
    return forms[request["form"]]


def write_parts(folder: str, parts: dict[str, str]) -> None:
    """Write each part as a file of its name; raise ValueError for names that lead outside."""
    for name, text in parts.items():
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ValueError(f"a part cannot be called {name!r}")
        if "/" in name:
            os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb", 0) as file:
            file.write(text.encode())


class _PartLoader(SourceFileLoader):
    """Compiles a part, of which no bytecode is kept, in few steps."""

    def get_code(self, _name: str) -> CodeType:
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


def load_part(folder: Path, part: str) -> ModuleType:
    """Import a part as a module of its own name; a part without a suffix is read as Python."""
    path = f"{folder}/{part}"
    stem, suffix = os.path.splitext(os.path.basename(part))
    if suffix != ".py":
        path, stem = f"{path}.py", stem + suffix
        os.replace(path[:-3], path)
    sys.path.insert(0, str(folder))
    name = stem if stem.isidentifier() else "candidate"
    loader = _PartLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    loader.exec_module(module)
    return module


def entry_arguments(
    entry: Callable[..., object], has_input: bool, value: object
) -> tuple[list[object], JsonObject]:
    """Positional and keyword arguments of `entry` for a case.

    A case is passed whole if `entry` takes one argument, else a dict by keyword and a list by
    position.
    """
    if not has_input:
        return [], {}
    ways: list[tuple[list[object], JsonObject]] = [([value], {})]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        ways.insert(0, ([], value))
    elif isinstance(value, list):
        ways.append((value, {}))
    try:
        signature = inspect.signature(entry)
    except (TypeError, ValueError):
        return [value], {}
    for positional, named in ways:
        try:
            signature.bind(*positional, **named)
        except TypeError:
            continue
        return positional, named
    return [value], {}


def run_call(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Form call: import, run the entry once, send its result ("D" if it drew random numbers)."""
    streams = ProgramStreams(str(work), request["seed"])
    entry = getattr(load_part(work, request["module"]), request["entry"])
    positional, named = entry_arguments(entry, request["has_input"], request["input"])
    result = entry(*positional, **named)
    kind = "X" if result is None else "D" if streams.has_drawn else "R"
    wire.send(channel, kind, wire.encode(result))


def run_serve(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Form serve: import, then answer calls until the scorer closes the connection.

    Tuples come back as lists; with a frame of kind "U" as tuples. An empty frame of kind "D" asks
    at the end if the program drew random numbers.
    """
    streams = ProgramStreams(str(work), request["seed"])
    module = load_part(work, request["module"])
    wire.send(channel, "L")
    while True:
        try:
            kind, payload = wire.receive(channel, REQUEST_LIMIT)
        except (EOFError, OSError):
            return
        if kind == "D":
            wire.send(channel, "D" if streams.has_drawn else "R")
            return
        name, positional, named = wire.decode(payload)
        try:
            found = getattr(module, name or request["entry"])(*positional, **named)
            answer = wire.encode(found, keeps_tuples=kind == "U")
        except Exception as error:  # noqa: BLE001 - the scorer judges every exception of the function
            wire.send(channel, "E", encode_exception(error))
        else:
            wire.send(channel, "R", answer)


def encode_exception(error: BaseException) -> bytes:
    """An exception as JSON: its type and the end of the traceback."""
    return json.dumps({"type": type(error).__name__, "trace": last_lines(error)}).encode(
        "utf-8", "replace"
    )


# -- form command: a command line on the candidate's files
# -----------------------------------------------------------

_STDIN = ".input"
_SCRATCH = ".build"  # folder of a compiler's caches and temporary files
_SAID, _SAID_LINES = 6_000, 30  # bytes and lines of a compiler's messages that are kept


class ExitStatus(Exception):
    """The command ended with a status other than 0."""


class OutputLimit(Exception):
    """The command printed more than the limit."""


def run_build(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Compile the candidate; send the files that the compiler made.

    A compiler that fails is an exception frame of type `BuildError` with its first lines.
    """
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    line = [fill_placeholders(word, request["parts"]) for word in request["build"]]
    scratch = work / _SCRATCH
    scratch.mkdir()
    caches = {name: str(scratch) for name in ("HOME", "TMPDIR", "GOCACHE", "GOPATH")}
    said = scratch / "said"
    with said.open("wb") as log:
        status = subprocess.run(
            line,
            cwd=work,
            env={**os.environ, **caches, "LC_ALL": "C", "GO111MODULE": "off"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if status != 0:
        with said.open("rb") as log:
            text = log.read(_SAID).decode("utf-8", "replace")
        lines = text.strip().splitlines()[:_SAID_LINES] or [f"{line[0]} ended with status {status}"]
        report = {"type": "BuildError", "trace": "\n".join(lines)}
        wire.send(channel, "E", json.dumps(report).encode("utf-8", "replace"))
        return
    made = _new_files(work, {*request["parts"]})
    files = {name: (work / name).read_bytes() for name in made if not name.startswith(_SCRATCH)}
    wire.send(channel, "R", wire.encode(files))


def write_built_files(work: Path, files: dict[str, bytes]) -> None:
    """Write what the compiler made, executable."""
    for name, raw in files.items():
        path = work / name
        if name.startswith("/") or ".." in path.parts:
            raise ValueError(f"a built file cannot be called {name!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        path.chmod(0o755)


def run_command(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Run the command once.

    stdin is the case's input; {part} and {input} in the arguments stand for files.
    """
    write_input(work, request)
    write_built_files(work, request["built"])
    kernel.prctl(
        kernel.PR_SET_DUMPABLE, 0
    )  # the command has this uid, but must not read this memory
    line = [fill_placeholders(word, request["parts"]) for word in request["command"]]
    with (work / _STDIN).open("rb") as stdin:
        process = subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, cwd=work)
        assert process.stdout is not None
        text = process.stdout.read(request["limit"] + 1)
    if len(text) > request["limit"]:
        raise OutputLimit(f"more than {request['limit']} bytes on stdout")
    status = process.wait()
    if status != 0:
        raise ExitStatus(f"the command ended with status {status}")
    files = collect_output_files(
        work,
        request["outputs"],
        {_STDIN, *request["parts"], *request["built"]},
        request["limit"] - len(text),
    )
    wire.send(
        channel, "R", wire.encode({"stdout": text.decode("utf-8", "replace"), "files": files})
    )


def write_input(work: Path, request: JsonObject) -> None:
    """Write the case's input for stdin and {input}: a text unchanged, anything else as JSON."""
    value = request["input"]
    text = (
        "" if not request["has_input"] else value if isinstance(value, str) else json.dumps(value)
    )
    (work / _STDIN).write_text(text, encoding="utf-8")


def fill_placeholders(word: str, parts: dict[str, str]) -> str:
    """One argument with its placeholders filled in; other braces are kept."""
    for name in parts:
        word = word.replace("{" + name + "}", name)
    return word.replace("{input}", _STDIN)


def collect_output_files(
    work: Path, wanted: list[str], known: set[str], remaining: int
) -> dict[str, str]:
    """Texts of the `wanted` files, or of all new files if none are named.

    No binaries; `room` bytes in total.
    """
    names = wanted or sorted(_new_files(work, known))
    files: dict[str, str] = {}
    for name in names[:64]:
        path = work / name
        try:
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) and info.st_size <= remaining:
                files[name] = path.read_bytes()[:remaining].decode("utf-8")
                remaining -= info.st_size
        except (OSError, UnicodeDecodeError):
            continue
    return files


def _new_files(work: Path, known: set[str]) -> list[str]:
    new_files = []
    for folder, folders, names in os.walk(work):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name != "__pycache__"
        ]
        inside = [os.path.relpath(os.path.join(folder, name), work) for name in names]
        new_files += [name for name in inside if name not in known]
        if len(new_files) > 1000:
            break
    return new_files
