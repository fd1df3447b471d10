"""The protocol between the evaluator's process and the candidate's: all operations.

One frame asks and one answers (wire.py); a side that waits for an answer answers requests meanwhile
(connection.py). `TABLE` is the whole protocol: a frame that is not in it, or comes from the wrong
side, is refused. The handlers run in the candidate's process, next to hostile code, and protect
nothing; only `call_back` runs in the evaluator's. The evaluator is protected by its reading of
answers: as plain data and as handles on things that stay in the candidate's process (session.py).
docs/decisions/proxy.md has the value of each operation to an attacker.

Fresh interpreters of the evaluator import this module: modules that only the candidate's side needs
are imported by its handlers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import math
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.proxy.connection import PeerConnection, ReplyKind
from culmen.jail.plain import last_lines

if TYPE_CHECKING:
    from pathlib import Path

PLAIN_TYPES = (type(None), bool, int, float, str)


class Operation(StrEnum):
    """The operations that one side can request; the value is the kind of the frame."""

    IMPORT = "I"
    DESCRIBE = "D"
    GET_ATTRIBUTE = "G"
    SET_ATTRIBUTE = "W"
    DELETE_ATTRIBUTE = "Z"
    LIST_ATTRIBUTES = "L"
    CALL = "C"
    STEP_ITERATOR = "N"
    AWAIT = "A"
    RUN_SCRIPT = "U"
    OPEN_THREAD = "T"
    FORK = "F"
    CALL_BACK = "B"


class Side(Enum):
    """The two processes."""

    EVALUATOR = "evaluator"
    CANDIDATE = "candidate"


class OperationRefused(Exception):
    """Unknown operation, or one that this side may not request."""


class Rule(NamedTuple):
    """One operation.

    `request` and `answer` describe the values that cross; with `descriptor` the handler itself
    answers, by a frame with the descriptor of a new connection.
    """

    asker: Side
    handler: Callable[..., Any]
    request: str
    answer: str
    descriptor: bool = False


def rule_of(kind: str, asker: Side) -> Rule:
    """The rule for a frame that `asker` sent; raise OperationRefused if there is none."""
    rule = TABLE.get(kind)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if rule is None or rule.asker is not asker:
        raise OperationRefused(f"the {asker.value} may not ask for {kind!r}")
    return rule


# -- the candidate's objects
# ------------------------------------------------------------------------------


class CandidateObjects:
    """The objects of a candidate that the evaluator's process knows by a number.

    They are kept alive until the evaluator's process drops them.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self.modules: set[str] = set()  # names under which the candidate was imported
        self._objects: dict[int, object] = {}
        self._numbers: dict[int, int] = {}
        self._times: dict[int, int] = {}  # how often a number was handed out
        self._count = 0

    def object_number(self, value: object) -> int:
        """The number of an object, a new one if it has none."""
        number = self._numbers.get(id(value))
        if number is None:
            self._count += 1
            number = self._numbers[id(value)] = self._count
            self._objects[number] = value
        return number

    def make_handle(self, value: object) -> list[object]:
        """A handle on an object as it crosses: its number, its kind, the number of its class."""
        kind = self._object_kind(value)
        family = self.object_number(type(value)) if kind == "object" else 0
        number = self.object_number(value)
        self._times[number] = self._times.get(number, 0) + 1
        return [number, kind, family]

    def object_by_number(self, number: int) -> object:
        """The object of a number; raise KeyError if there is none."""
        return self._objects[number]

    def drop_handles(self, number: int, times: int) -> None:
        """Note that the evaluator's process dropped `times` handles on an object.

        The object is forgotten after the last one.
        """
        if isinstance(self._objects.get(number), type):  # objects name their classes by number, too
            return
        self._times[number] = self._times.get(number, 0) - times
        if self._times[number] <= 0 and number in self._objects:
            del self._numbers[id(self._objects.pop(number))], self._times[number]

    def _object_kind(self, value: object) -> str:
        if isinstance(value, type):
            return "class"
        if isinstance(value, ModuleType):
            return "module"
        if hasattr(type(value), "__next__"):
            return "iterator"
        if inspect.isawaitable(value):
            return "awaitable"
        own = type(value).__module__ in self.modules
        return "function" if callable(value) and not own else "object"


# -- handlers in the candidate's process
# ---------------------------------------------------------------------------


def import_module(
    objects: CandidateObjects, _at: PeerConnection, name: str, part: str
) -> JsonObject:
    """Import a part of the candidate anew as module `name`.

    Returns handles on its definitions, with descriptions.
    """
    if str(objects.work) not in sys.path:
        sys.path.insert(0, str(objects.work))
    spec = importlib.util.spec_from_file_location(name, objects.work / part)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {part}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    objects.modules.add(name)
    spec.loader.exec_module(module)
    own = {key: value for key, value in vars(module).items() if _defined_in(value, name)}
    every = getattr(module, "__all__", None)
    return {
        "about": {objects.object_number(value): describe_object(value) for value in own.values()},
        "names": {key: objects.make_handle(value) for key, value in own.items()},
        "number": objects.object_number(module),
        "doc": str(module.__doc__) if module.__doc__ else None,
        "all": [str(key) for key in every] if isinstance(every, list | tuple) else None,
    }


def describe_object(target: Any) -> JsonObject:
    """Name, documentation, and the parameters of a function or the methods of a class."""
    about: JsonObject = {
        "name": str(getattr(target, "__name__", type(target).__name__)),
        "qualname": str(getattr(target, "__qualname__", "")),
        "doc": str(target.__doc__) if isinstance(getattr(target, "__doc__", None), str) else None,
        "module": str(getattr(target, "__module__", "")),
    }
    if isinstance(target, type):
        names = [
            name for name in dir(target) if callable(inspect.getattr_static(target, name, None))
        ]
        about["methods"] = [name for name in names if not name.startswith("__")]
        about["special"] = [name for name in names if name.startswith("__")]
        about["error"] = issubclass(target, BaseException)
    else:
        about["waiting"] = inspect.iscoroutinefunction(target)
        about["parameters"] = _describe_parameters(target)
    return about


def call_object(
    target: Any, name: str | None, args: Iterable[object], kwargs: Mapping[str, object]
) -> object:
    """Call an object (`name` None) or one of its methods."""
    return (target if name is None else getattr(target, name))(*args, **kwargs)


def step_iterator(target: Any, how: str, value: object) -> object:
    """Advance an iterator (`how`: next, send or close).

    Returns (True, item), or (False, its value) at its end.
    """
    try:
        return True, next(target) if how == "next" else getattr(target, how)(
            *([value] if how == "send" else [])
        )
    except StopIteration as end:
        return False, end.value


def wait_for(target: Awaitable[object]) -> object:
    """Run an awaitable to its end."""
    import asyncio

    async def waiting() -> object:
        return await target

    return asyncio.run(waiting())


def run_script(
    objects: CandidateObjects, at: PeerConnection, part: str, arguments: list[str]
) -> int:
    """Run the candidate as `python PART ARGUMENTS`; return its exit status.

    Its standard streams are the three descriptors that came with the frame.
    """
    streams, at.fds[:] = at.fds[:], []
    for target, source in enumerate(streams[:3]):
        os.dup2(source, target)
    for fd in streams:
        os.close(fd)
    with _standard_streams():
        return _exit_status(str(objects.work / part), arguments)


def open_thread(_objects: CandidateObjects, at: PeerConnection) -> None:
    """Open a further connection, served by a new thread of this process."""
    theirs, ours = socket.socketpair()
    threading.Thread(target=at.sibling_connection(ours).serve, daemon=True).start()
    _hand_over(at, theirs)


def _on_target(function: Callable[..., object]) -> Callable[..., object]:
    """A handler that needs neither the candidate's objects nor the connection."""
    return lambda _objects, _at, *content: function(*content)


def fork_process(_objects: CandidateObjects, at: PeerConnection) -> None:
    """Open a further connection, served by a copy of this process in its present state."""
    theirs, ours = socket.socketpair()
    if os.fork() == 0:
        theirs.close()
        at.sock.close()
        at.sock = ours
        return
    ours.close()
    _hand_over(at, theirs)


# -- the handler in the evaluator's process
# ------------------------------------------------------------------------


def call_back(
    exports: list[Callable[..., object]],
    _at: PeerConnection,
    number: object,
    args: Iterable[object],
    kwargs: Mapping[str, object],
) -> object:
    """Call a function that the evaluator passed to the candidate before."""
    if type(number) is not int or number < 0:
        raise OperationRefused("not the number of a function")
    return exports[number](*args, **kwargs)


# -- the table
# ------------------------------------------------------------------------------

_E, _C = Side.EVALUATOR, Side.CANDIDATE
TABLE: dict[Operation, Rule] = {
    Operation.IMPORT: Rule(
        _E, import_module, "two names", "names, texts, numbers of functions and classes"
    ),
    Operation.DESCRIBE: Rule(
        _E,
        _on_target(describe_object),
        "a handle",
        "names and texts; defaults that are plain finite data",
    ),
    Operation.GET_ATTRIBUTE: Rule(
        _E, _on_target(getattr), "a handle, a name", "plain data, or a handle on a definition"
    ),
    Operation.SET_ATTRIBUTE: Rule(
        _E, _on_target(setattr), "a handle, a name, plain data or a handle", "nothing"
    ),
    Operation.DELETE_ATTRIBUTE: Rule(_E, _on_target(delattr), "a handle, a name", "nothing"),
    Operation.LIST_ATTRIBUTES: Rule(
        _E, _on_target(lambda target: [str(name) for name in dir(target)]), "a handle", "names"
    ),
    Operation.CALL: Rule(
        _E,
        _on_target(call_object),
        "a handle, a method's name or None, arguments: plain data, handles, functions by "
        "number, generators",
        "plain data, or a handle on an iterator or awaitable; on an object if that was admitted",
    ),
    Operation.STEP_ITERATOR: Rule(
        _E,
        _on_target(step_iterator),
        "a handle, how, plain data",
        "true if it continues, plain data",
    ),
    Operation.AWAIT: Rule(_E, _on_target(wait_for), "a handle", "plain data"),
    Operation.RUN_SCRIPT: Rule(
        _E, run_script, "a name, arguments as text, three pipes", "an exit status"
    ),
    Operation.OPEN_THREAD: Rule(_E, open_thread, "nothing", "a descriptor", descriptor=True),
    Operation.FORK: Rule(_E, fork_process, "nothing", "a descriptor", descriptor=True),
    Operation.CALL_BACK: Rule(
        _C, call_back, "a number, plain finite data", "plain data, or an error's text"
    ),
}


# -- pieces of the handlers
# ------------------------------------------------------------------------------


def _hand_over(at: PeerConnection, theirs: socket.socket) -> None:
    at.send(ReplyKind.VALUE, b"", (theirs.fileno(),))
    theirs.close()


def _defined_in(value: object, name: str) -> bool:
    """True if a module defines this function or class itself."""
    return getattr(value, "__module__", None) == name and (
        isinstance(value, type) or inspect.isroutine(value)
    )


def _describe_parameters(target: Callable[..., object]) -> list[list[object]]:
    """(name, kind, has a default, default) of each parameter.

    The default is "..." unless it is plain finite data.
    """
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return [["args", 2, False, None], ["kwargs", 4, False, None]]
    return [
        [
            p.name,
            int(p.kind),
            p.default is not p.empty,
            p.default if is_simple(p.default) else "...",
        ]
        for p in parameters
    ]


def is_simple(value: object) -> bool:
    """True if a value is None, a text, or a finite number of Python's own types."""
    return type(value) in PLAIN_TYPES and not (type(value) is float and not math.isfinite(value))


@contextlib.contextmanager
def _standard_streams() -> Iterator[None]:
    """Replace Python's standard streams by new ones over the present descriptors 0 to 2."""
    kept = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = kept
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):  # readers must see their end
            os.dup2(null, fd)
        os.close(null)


def _exit_status(path: str, arguments: list[str]) -> int:
    import runpy

    sys.argv = [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - as an interpreter would: the trace on stderr, and 1
        sys.stderr.write(last_lines(error))
        return 1
    return 0
