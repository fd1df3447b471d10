"""Stand-ins in the evaluator for functions, classes, objects and exceptions.

The originals are the candidate's. A stand-in forwards attributes, calls and the container protocol;
each answer is plain data or another stand-in. It never forwards comparisons, arithmetic or
conversions: an object that claims to equal everything is compared by identity.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from types import FunctionType
from typing import Any, ClassVar, Protocol

from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.proxy.operations import Operation
from culmen.jail.wire import Data

KINDS = ("function", "class", "object", "iterator", "awaitable", "module")
HARMLESS = frozenset(
    {"iterator", "awaitable"}
)  # the stand-in of any such object can only be consumed, and once
DEFINITIONS = frozenset(
    {"function", "class", "module", *HARMLESS}
)  # kinds that a module or a class may hold
METHODS = frozenset({"function", *HARMLESS})
_SPECIAL = (
    "__call__",
    "__len__",
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
    "__iter__",
    "__enter__",
    "__exit__",
)

# functions made from this text have no source that `inspect` could find, and traces end in them
_CODE = """
def plain(call):
    def program(*args, **kwargs):
        try:
            return call(args, kwargs)
        except BaseException as error:
            raise error.with_traceback(None)
    return program

def waiting(call):
    async def program(*args, **kwargs):
        return await call(args, kwargs)
    return program
"""
_MAKE: JsonObject = {}
exec(compile(_CODE, "<program>", "exec"), _MAKE)


class RemoteHandle:
    """Address of an object of the candidate.

    Its number in the candidate's process, the life of the connection, and its path in a later life.
    """

    __slots__ = ("__weakref__", "key", "life", "number", "origin")

    def __init__(
        self, number: int, life: int, key: str, origin: tuple[RemoteHandle, str] | None = None
    ) -> None:
        self.number, self.life, self.key, self.origin = number, life, key, origin


class RemoteAccess(Protocol):
    """The members of a session (session.py) that stand-ins use.

    life        number of times that the connection was restarted
    any_class   True if classes may be instantiated without having been seen
    """

    life: int

    @property
    def any_class(self) -> bool: ...

    def ask(
        self, kind: Operation, *content: object, key: str, open_kinds: frozenset[str] = frozenset()
    ) -> Any:
        """Request one operation; return the checked answer."""
        ...

    def malformed_answer_error(self, key: str) -> Exception:
        """The error for an answer of another kind than requested."""
        ...

    def remote_attribute(
        self,
        remote: RemoteHandle,
        name: str,
        open_kinds: frozenset[str],
        methods: frozenset[str] = frozenset(),
    ) -> object:
        """An attribute of an object in the candidate's process."""
        ...


class RemoteObject:
    """An object of the candidate.

    Its class has a subclass of this, with the special methods that it defines.
    """

    _remote: RemoteHandle
    _session: RemoteAccess
    _methods: frozenset[str]
    _open = METHODS

    def __init_subclass__(cls) -> None:
        if "_session" not in cls.__dict__:
            raise TypeError("a class of the program cannot be the base of one here")

    def __getattr__(self, name: str) -> object:
        return self._session.remote_attribute(self._remote, name, self._open, self._methods)

    def __setattr__(self, name: str, value: object) -> None:
        self._session.ask(Operation.SET_ATTRIBUTE, self._remote, name, value, key=name)

    def __delattr__(self, name: str) -> None:
        self._session.ask(Operation.DELETE_ATTRIBUTE, self._remote, name, key=name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the program>"


class RemoteClass(type):
    """A class of the candidate: calling it makes an object in the candidate's process."""

    def __call__(cls, *args: object, **kwargs: object) -> object:
        session: RemoteAccess = cls.__dict__["_session"]
        kinds = frozenset({"object"}) if session.any_class else frozenset[str]()
        return session.ask(
            Operation.CALL,
            cls.__dict__["_own"],
            None,
            args,
            kwargs,
            key=f"{cls.__name__}()",
            open_kinds=kinds,
        )

    def __getattr__(cls, name: str) -> object:
        if "_own" not in cls.__dict__:
            raise AttributeError(name)
        return cls.__dict__["_session"].remote_attribute(cls.__dict__["_own"], name, DEFINITIONS)


class RemoteIterator:
    """An iterator or generator of the candidate; once ended it stays ended."""

    def __init__(self, session: RemoteAccess, remote: RemoteHandle) -> None:
        self._session, self._remote, self._ended = session, remote, False

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        return self._step_remote("next")

    def send(self, value: object) -> object:
        """See `generator.send`."""
        return self._step_remote("send", value)

    def close(self) -> None:
        """See `generator.close`."""
        if not self._ended:
            self._ended = True
            self._session.ask(Operation.STEP_ITERATOR, self._remote, "close", None, key="close()")

    def _step_remote(self, how: str, value: object = None) -> object:
        if self._ended:
            raise StopIteration
        answer = self._session.ask(
            Operation.STEP_ITERATOR, self._remote, how, value, key=self._remote.key
        )
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            raise self._session.malformed_answer_error(self._remote.key)
        more, item = answer
        if more is not True:
            self._ended = True
            raise StopIteration(item)
        return item


class RemoteAwaitable:
    """An awaitable of the candidate; its event loop runs in the candidate's process."""

    def __init__(self, session: RemoteAccess, remote: RemoteHandle) -> None:
        self._session, self._remote = session, remote

    def __await__(self) -> Generator[None, None, object]:
        return self._session.ask(Operation.AWAIT, self._remote, key=self._remote.key)
        yield


class RemoteObjects:
    """The stand-ins of one session.

    An object has the same stand-in as long as that is referenced.
    """

    def __init__(self, session: RemoteAccess) -> None:
        self._session = session
        self.clear()

    def clear(self) -> None:
        """Forget the numbers: the candidate restarts."""
        self._known: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
        self._times: dict[int, int] = {}
        self._dropped: dict[int, int] = {}
        self._about: dict[int, object] = {}

    def add_description(self, number: int, about: object) -> None:
        """Add a description that came unrequested."""
        self._about[number] = about

    def stand_in_for(self, number: int, kind: str, family: int, key: str) -> object:
        """The stand-in for an object.

        `family` is the number of the object's class, `key` the subject of the request.
        """
        self._times[number] = self._times.get(number, 0) + 1
        stand_in = self._known.get(number)
        if stand_in is None:
            remote = RemoteHandle(number, self._session.life, key)
            stand_in = self._known[number] = self._makers[kind](self, remote, family)
            weakref.finalize(stand_in, self._record_drop, number, self._session.life).atexit = False
        return stand_in

    def take_dropped(self) -> list[list[int]]:
        """Objects no longer referenced, with the number of times they were handed over."""
        pairs, self._dropped = [[number, times] for number, times in self._dropped.items()], {}
        return pairs

    def _record_drop(self, number: int, life: int) -> None:
        if life == self._session.life and number in self._times:
            self._dropped[number] = self._dropped.get(number, 0) + self._times.pop(number)

    def _function_stand_in(self, remote: RemoteHandle, _family: int) -> object:
        about = self._description_of(remote)
        session, key = self._session, f"{remote.key}()"

        def call(args: tuple[object, ...], kwargs: JsonObject) -> object:
            return session.ask(Operation.CALL, remote, None, args, kwargs, key=key)

        stand_in = _MAKE["waiting" if about.get("waiting") is True else "plain"](call)
        _set_metadata(stand_in, about)
        stand_in.__signature__ = _build_signature(about)
        stand_in._remote = remote
        return stand_in

    def _class_stand_in(self, remote: RemoteHandle, _family: int) -> object:
        about = self._description_of(remote)
        error = about.get("error") is True
        names = [name for name in about.get("special", ()) if name in _SPECIAL]
        space = {name: _forwarding_method(name) for name in names}
        methods = frozenset(name for name in about.get("methods", ()) if isinstance(name, str))
        space |= {"_own": remote, "_session": self._session, "_methods": methods}
        name = str(about.get("name", "object"))
        if error:  # such classes are only there to be caught and compared
            return type(name, (Exception,), {"_own": remote})
        stand_in = RemoteClass(name, (RemoteObject,), space)
        _set_metadata(stand_in, about)
        return stand_in

    def _object_stand_in(self, remote: RemoteHandle, family: int) -> object:
        cls = self.stand_in_for(family, "class", 0, remote.key)
        if not isinstance(cls, RemoteClass):
            raise ValueError("an object of an unknown class")
        stand_in = object.__new__(cls)
        object.__setattr__(stand_in, "_remote", remote)
        return stand_in

    def _module_stand_in(self, remote: RemoteHandle, _family: int) -> object:
        space = {"_session": self._session, "_methods": frozenset(), "_open": DEFINITIONS}
        stand_in = object.__new__(type("module", (RemoteObject,), space))
        object.__setattr__(stand_in, "_remote", remote)
        return stand_in

    _makers: ClassVar[dict[str, Callable[..., object]]] = {
        "function": _function_stand_in,
        "class": _class_stand_in,
        "object": _object_stand_in,
        "iterator": lambda self, remote, _: RemoteIterator(self._session, remote),
        "awaitable": lambda self, remote, _: RemoteAwaitable(self._session, remote),
        "module": _module_stand_in,
    }

    def _description_of(self, remote: RemoteHandle) -> JsonObject:
        about = self._about.pop(remote.number, None)
        if about is None:
            about = self._session.ask(Operation.DESCRIBE, remote, key="description")
        return about if isinstance(about, dict) else {}


def remote_of(value: Any) -> RemoteHandle | None:
    """The address of a stand-in's object; None for any other value."""
    kind = type(value)
    if kind is FunctionType:
        return value.__dict__.get("_remote")
    if issubclass(kind, type):
        return value.__dict__.get("_own")
    if issubclass(kind, RemoteObject):
        return object.__getattribute__(value, "_remote")
    return value._remote if kind in (RemoteIterator, RemoteAwaitable) else None


def set_origin(stand_in: object, origin: tuple[RemoteHandle, str]) -> None:
    """Note the module and the name that define a stand-in's object."""
    remote = remote_of(stand_in)
    if remote is not None:
        remote.origin = origin


def make_function(call: Callable[..., object], name: str) -> object:
    """A function that hands its arguments to `call`."""
    function = _MAKE["plain"](call)
    function.__name__ = function.__qualname__ = name
    return function


def _forwarding_method(name: str) -> Callable[..., object]:
    """A special method that calls the candidate's."""

    def called(self: RemoteObject, *args: object, **kwargs: object) -> object:
        return self._session.ask(
            Operation.CALL, self._remote, None, args, kwargs, key=f"{self._remote.key}()"
        )

    def special(self: RemoteObject, *args: object) -> object:
        # exceptions and their traces do not cross
        plain = [None] * len(args) if name == "__exit__" else args
        value = self._session.ask(
            Operation.CALL, self._remote, name, plain, {}, key=f"{name}()", open_kinds=HARMLESS
        )
        return bool(value) if name in ("__contains__", "__exit__") else value

    return called if name == "__call__" else special


def _set_metadata(stand_in: object, about: JsonObject) -> None:
    for name in ("name", "qualname", "doc", "module"):
        value = about.get(name)
        if isinstance(value, str):
            setattr(stand_in, f"__{name}__", value)


def _build_signature(about: JsonObject) -> inspect.Signature:
    kinds = {str(int(kind)): kind for kind in inspect._ParameterKind}
    empty = inspect.Parameter.empty
    try:
        parameters = [
            inspect.Parameter(name, kinds[str(kind)], default=default if has else empty)
            for name, kind, has, default in about["parameters"]
        ]
        return inspect.Signature(parameters)
    except (KeyError, TypeError, ValueError):
        return inspect.Signature(
            [inspect.Parameter("args", kinds["2"]), inspect.Parameter("kwargs", kinds["4"])]
        )


# -- exceptions
# ------------------------------------------------------------------------------

_PACKAGES = frozenset({*sys.stdlib_module_names, "numpy", "scipy"})


def restore_exception(objects: RemoteObjects, payload: Data) -> BaseException:
    """An exception of the same name as the candidate's.

    Its class is one of Python's, NumPy's, SciPy's or the candidate's own, else a new one; its text
    and its trace are only texts.
    """
    try:
        report = json.loads(payload)
        name, text, trace = str(report["type"]), str(report.get("text", "")), str(report["trace"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return RuntimeError("the program sent an invalid answer")
    cls = _candidate_exception_class(objects, report.get("class")) or _exception_class_by_name(
        str(report.get("module", "")), name
    )
    values = report.get("args")
    try:
        plain = isinstance(values, list) and all(map(_is_plain, values))
        error = cls(*values) if plain and values else cls(text) if text else cls()
    except Exception:  # noqa: BLE001 - some exceptions want other arguments
        error = RuntimeError(f"{name}: {text}")
    error.add_note(f"in the program:\n{trace[-6000:]}")
    return error


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | None) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _candidate_exception_class(
    objects: RemoteObjects, number: object
) -> type[BaseException] | None:
    stand_in = (
        objects.stand_in_for(number, "class", 0, "exception") if type(number) is int else None
    )
    return stand_in if isinstance(stand_in, type) and issubclass(stand_in, Exception) else None


def _exception_class_by_name(module: str, name: str) -> type[BaseException]:
    """The class of that name that is loaded here, or a new one."""
    loaded = (
        getattr(sys.modules.get(module), name, None)
        if module.partition(".")[0] in _PACKAGES
        else None
    )
    if isinstance(loaded, type) and issubclass(loaded, Exception | SystemExit | KeyboardInterrupt):
        return loaded
    return type(name if name.isidentifier() else "ProgramError", (Exception,), {})
