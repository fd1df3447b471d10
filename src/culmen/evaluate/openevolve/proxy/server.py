"""The candidate's end of one connection: imports the candidate, keeps its objects, does what it is asked.

Once the candidate's code runs nothing here can be relied on; the other end takes nothing from here for more than data.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import inspect
import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from culmen.evaluate.jail.plain import last_lines
from culmen.evaluate.jail.wire import Data, WireError
from culmen.evaluate.openevolve.proxy import exact, randomness, script
from culmen.evaluate.openevolve.proxy.peer import Answer, Line, failure

_LIMIT = 1 << 30  # what comes in is the evaluator's
_DATA = (type(None), bool, int, float, str)


class Server:
    """One process's objects; threads that serve further lines share them."""

    def __init__(self, sock: socket.socket, work: Path) -> None:
        self._work = work
        self._things: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._count = 0
        self.line = self._line(sock)

    def _line(self, sock: socket.socket) -> Line:
        line = Line(sock, _LIMIT, self._answer)
        line.takes = 3
        return line

    # -- things and their numbers ----------------------------------------------------------------------------------

    def refer(self, value: Any) -> dict[str, Any]:
        """A reference to something that stays here."""
        kind = _kind(value)
        family = self._number(type(value)) if kind == "object" else 0
        number = self._number(value)
        self._times[number] = self._times.get(number, 0) + 1
        return {"$": "ref", "v": [number, kind, family]}

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            self._count += 1
            number = self._numbers[id(value)] = self._count
            self._things[number] = value
        return number

    def thing(self, number: Any) -> Any:
        """What a number stands for."""
        return self._things[number]

    def _drop(self, number: int, times: int) -> None:
        if isinstance(self._things.get(number), type):  # objects name their classes by number, too
            return
        self._times[number] = self._times.get(number, 0) - times
        if self._times[number] <= 0 and number in self._things:
            del self._numbers[id(self._things.pop(number))], self._times[number]

    # -- answering -------------------------------------------------------------------------------------------------

    def _answer(self, line: Line, kind: str, payload: Data) -> Answer | None:
        try:
            if kind in ("T", "F"):
                return self._second_line(line, kind)
            aside, *content = _Reader(self, line).decode(payload)
            for number, times in (aside or {}).get("drop", ()):
                self._drop(number, times)
            randomness.sow((aside or {}).get("seeds", {}))
            value = _DEEDS[kind](self, line, *content)
        except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is raised over there
            return "E", self._failure(error)
        try:
            return "R", _Writer(self).encode(value)
        except WireError as error:
            return "X", json.dumps(["bad_output", str(error)]).encode("utf-8", "replace")
        except MemoryError:
            return "X", b'["too_large", "it is too large to be sent"]'
        except BaseException as error:  # noqa: BLE001 - not even what the candidate's objects do when they are read
            return "E", self._failure(error)

    def _failure(self, error: BaseException) -> bytes:
        kind = type(error)
        own = (
            kind.__module__ not in sys.stdlib_module_names
            and issubclass(kind, Exception)
            and kind.__module__ in _loaded
        )
        args = list(error.args) if all(type(arg) in _DATA for arg in error.args) else None
        args = None if args is None or any(type(a) is float and not math.isfinite(a) for a in args) else args
        number = self._number(kind) if own else None
        trace, text = last_lines(error), str(error)
        return failure(kind.__name__, trace, module=kind.__module__, text=text, args=args, **{"class": number})

    def _second_line(self, line: Line, kind: str) -> Answer | None:
        """A line to a new thread of this process (T), or to a copy of it (F), whose end travels with the answer."""
        theirs, ours = socket.socketpair()
        if kind == "F" and os.fork() == 0:
            theirs.close()
            line.sock.close()
            line.sock = ours
            return None
        if kind == "T":
            threading.Thread(target=self._line(ours).serve, daemon=True).start()
        else:
            ours.close()
        line.send("R", b"", (theirs.fileno(),))
        theirs.close()
        return None

    # -- what can be asked -----------------------------------------------------------------------------------------

    def _import(self, _line: Line, name: str, part: str) -> dict[str, Any]:
        path = self._work / part
        if str(self._work) not in sys.path:
            sys.path.insert(0, str(self._work))
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {part}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        _loaded.add(name)
        spec.loader.exec_module(module)
        own = {key: value for key, value in vars(module).items() if _defined(value, name)}
        about = {self._number(value): self._describe(_line, value) for value in own.values()}
        names = {key: self.refer(value)["v"] for key, value in own.items()}
        every = getattr(module, "__all__", None)
        return {
            "number": self._number(module),
            "doc": str(module.__doc__) if module.__doc__ else None,
            "names": names,
            "about": about,
            "all": [str(key) for key in every] if isinstance(every, list | tuple) else None,
        }

    def _describe(self, _line: Line, thing: Any) -> dict[str, Any]:
        about: dict[str, Any] = {
            "name": str(getattr(thing, "__name__", type(thing).__name__)),
            "qualname": str(getattr(thing, "__qualname__", "")),
            "doc": str(thing.__doc__) if isinstance(getattr(thing, "__doc__", None), str) else None,
            "module": str(getattr(thing, "__module__", "")),
        }
        if isinstance(thing, type):
            names = [name for name in dir(thing) if callable(inspect.getattr_static(thing, name, None))]
            about["methods"] = [name for name in names if not name.startswith("__")]
            about["special"] = [name for name in names if name.startswith("__")]
            about["error"] = issubclass(thing, BaseException)
        else:
            about["waiting"] = inspect.iscoroutinefunction(thing)
            about["parameters"] = _parameters(thing)
        return about

    def _get(self, _line: Line, thing: Any, name: str) -> Any:
        return getattr(thing, name)

    def _set(self, _line: Line, thing: Any, name: str, value: Any) -> None:
        setattr(thing, name, value)

    def _delete(self, _line: Line, thing: Any, name: str) -> None:
        delattr(thing, name)

    def _list(self, _line: Line, thing: Any) -> list[str]:
        return [str(name) for name in dir(thing)]

    def _call(self, _line: Line, thing: Any, name: str | None, args: Any, kwargs: dict[str, Any]) -> Any:
        return (thing if name is None else getattr(thing, name))(*args, **kwargs)

    def _step(self, _line: Line, thing: Any, how: str, value: Any) -> tuple[bool, Any]:
        try:
            return True, next(thing) if how == "next" else getattr(thing, how)(*([value] if how == "send" else []))
        except StopIteration as end:
            return False, end.value

    def _await(self, _line: Line, thing: Any) -> Any:
        async def waiting() -> Any:
            return await thing

        return asyncio.run(waiting())

    def _script(self, line: Line, part: str, arguments: list[str]) -> int:
        """Run the candidate as a script on the streams that came along; its exit status as `python` would give it."""
        fds, line.fds[:] = line.fds[:], []
        return script.run(str(self._work / part), arguments, fds)


_loaded: set[str] = set()
_DEEDS: dict[str, Callable[..., Any]] = {
    "I": Server._import,
    "D": Server._describe,
    "G": Server._get,
    "W": Server._set,
    "Z": Server._delete,
    "L": Server._list,
    "C": Server._call,
    "N": Server._step,
    "A": Server._await,
    "U": Server._script,
}


class _Writer(exact.Writer):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def refer(self, value: Any) -> Any:
        return self._server.refer(value)


class _Reader(exact.Reader):
    def __init__(self, server: Server, line: Line) -> None:
        super().__init__()
        self._server, self._on = server, line

    def _mark_own(self, number: Any, _depth: int) -> Any:
        return self._server.thing(number)

    def _mark_random(self, spec: Any, depth: int) -> Any:
        return randomness.generator(*self.revive(spec, depth + 1))

    def _mark_call(self, spec: Any, _depth: int) -> Any:
        number, name = spec
        server, line = self._server, self._on

        def callback(*args: Any, **kwargs: Any) -> Any:
            kind, payload = line.ask("B", _Writer(server).encode([number, list(args), kwargs]))
            if kind == "E":
                raise _raised(payload)
            return _Reader(server, line).decode(payload)[0]

        callback.__name__ = callback.__qualname__ = name
        return callback


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return "class"
    if isinstance(value, ModuleType):
        return "module"
    if hasattr(type(value), "__next__"):
        return "iterator"
    if inspect.isawaitable(value):
        return "awaitable"
    own = type(value).__module__ in _loaded
    return "function" if callable(value) and not own else "object"


def _defined(value: Any, name: str) -> bool:
    """Whether a module defines this function or class itself."""
    return getattr(value, "__module__", None) == name and (isinstance(value, type) or inspect.isroutine(value))


def _parameters(thing: Any) -> list[list[Any]]:
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return [["args", 2, False, None], ["kwargs", 4, False, None]]
    return [[p.name, int(p.kind), p.default is not p.empty, _shown(p.default)] for p in parameters]


def _shown(value: Any) -> Any:
    """A default as the evaluator may see it."""
    plain = type(value) in _DATA and not (type(value) is float and not math.isfinite(value))
    return value if plain else "..."


def _raised(payload: Data) -> Exception:
    report = json.loads(payload)
    kind: Any = getattr(builtins, report["type"], None)
    usable = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError)
    return kind(report["trace"]) if usable else RuntimeError(f"{report['type']}: {report['trace']}")
