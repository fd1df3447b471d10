"""The candidate's side, inside the jail: takes the request, runs the program, sends plain data back.

From the moment candidate code runs nothing here is trusted by anyone: it may be patched, walked or bypassed, and all
that gains is the right to send other plain data, which the scorer judges like any output.

Frames out: K jail stands · J jail failed · R result · E exception · X left without a result. In: Q request · C call.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from culmen.evaluate.jail import shell, wire
from culmen.evaluate.jail.confine import CHANNEL
from culmen.evaluate.jail.plain import last_lines
from culmen.evaluate.openevolve import legacy
from culmen.evaluate.openevolve.proxy import host

REQUEST_LIMIT = 1 << 30  # requests come from the orchestrator, which we trust


def main(work: str) -> NoReturn:
    """Serve one request on the channel, then leave at once."""
    channel = socket.socket(fileno=CHANNEL)
    wire.send(channel, "K")
    _, payload = wire.receive(channel, REQUEST_LIMIT)
    request = wire.decode(payload)
    try:
        write_parts(Path(work), request["parts"])
        _form(request["form"])(channel, request, Path(work))
    except BaseException as error:  # noqa: BLE001 - a candidate may raise anything; it becomes a value here
        wire.send(channel, "E", describe(error))
    finally:
        leave()


def leave() -> NoReturn:
    """End without running exit handlers of the candidate."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(0)


def _form(name: str) -> Callable[[socket.socket, dict[str, Any], Path], None]:
    forms = {
        "call": run_call,
        "serve": run_serve,
        "command": shell.run_command,
        "legacy": legacy.run_legacy,
        "proxied": legacy.run_proxied,
        "host": host.run_host,
        "check": legacy.run_check,
    }
    return forms[name]


def write_parts(folder: Path, parts: dict[str, str]) -> None:
    """Each part as a file of its name; names that lead outside raise ValueError."""
    for name, text in parts.items():
        path = folder / name
        if name.startswith("/") or ".." in path.parts or "\0" in name:
            raise ValueError(f"a part cannot be called {name!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def load(folder: Path, part: str) -> ModuleType:
    """Import a part as a module of its own name; a part without a suffix is read as Python."""
    path = folder / part
    if path.suffix != ".py":
        path = path.with_name(path.name + ".py")
        (folder / part).replace(path)
    sys.path.insert(0, str(folder))
    name = path.stem if path.stem.isidentifier() else "candidate"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {part}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    return module


def arguments(entry: Callable[..., Any], has_input: bool, value: Any) -> tuple[list[Any], dict[str, Any]]:
    """How `entry` gets the case: whole if it takes one argument, else a dict by keyword and a list by position."""
    if not has_input:
        return [], {}
    ways: list[tuple[list[Any], dict[str, Any]]] = [([value], {})]
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


def run_call(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Form call: import, run the entry once, send what it returned."""
    entry = getattr(load(work, request["module"]), request["entry"])
    positional, named = arguments(entry, request["has_input"], request["input"])
    result = entry(*positional, **named)
    wire.send(channel, "X" if result is None else "R", wire.encode(result))


def run_serve(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Form serve: import, then answer calls until the scorer hangs up."""
    module = load(work, request["module"])
    wire.send(channel, "L")
    while True:
        try:
            _, payload = wire.receive(channel, REQUEST_LIMIT)
        except (EOFError, OSError):
            return
        name, positional = wire.decode(payload)
        try:
            answer = wire.encode(getattr(module, name or request["entry"])(*positional))
        except Exception as error:  # noqa: BLE001 - whatever the function raises is the scorer's to judge
            wire.send(channel, "E", describe(error))
        else:
            wire.send(channel, "R", answer)


def describe(error: BaseException) -> bytes:
    """An exception as JSON: its type and the end of the traceback."""
    return json.dumps({"type": type(error).__name__, "trace": last_lines(error)}).encode("utf-8", "replace")
