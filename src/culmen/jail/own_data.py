"""Data and random generators that an evaluator's own code reaches, found without running it.

The walk begins at functions and modules of the user's, follows the global names in their code,
closures, defaults, attributes and containers, and stops at libraries. Each value
leaves a piece under the name by which the code reaches it: plain data their bytes, everything else
its identity, so that two walks in one process can be compared.
"""

from __future__ import annotations

import contextlib
import functools
import io
import marshal
import os
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, GeneratorType, MethodType, ModuleType

from culmen.jail.plain import OURS, THEIRS, Value
from culmen.jail.streams import NamedGenerator, is_generator

_MOST_OBJECTS = 10_000  # that are compared: beyond them a fresh process costs less than a walk
_MOST_BYTES = 1 << 20
_LONG = 1 << 16  # of a text that is compared by its identity, since texts never change
_PLAIN_FORMAT = 2  # of marshal: later ones write the same data in different ways
_ATOMS = frozenset((int, float, str, bytes, bool, type(None), complex))
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, bytearray)
_LIBRARY = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class CannotCompare(Exception):
    """Data are too large, or of a kind that shows nothing of its state; the text names them."""


@functools.cache
def is_own_file(path: str | None) -> bool:
    """True if a module's file is the user's, and not a library's or culmen's."""
    if not path or path.startswith("<frozen") or any(part in path for part in _PACKAGES):
        return False
    if path.startswith(OURS):
        return path.startswith(THEIRS)
    return not path.startswith(_LIBRARY)


def is_own_scope(scope: dict[str, Value]) -> bool:
    """True if a module's namespace is the user's: his file, the main program, or executed text."""
    if scope.get("__name__") == "__main__" or "__file__" not in scope:
        return scope.get("__name__") not in sys.builtin_module_names
    return is_own_file(scope["__file__"])


class OwnData:
    """One walk: `pieces` by name, and the `generators` met on the way, in a fixed order.

    `first` walks look at the size of data before they write them out.
    """

    def __init__(self, *, first: bool = True) -> None:
        self.pieces: dict[str, object] = {}
        self.generators: list[NamedGenerator] = []
        self.doubt = ""  # the name of what cannot be compared
        self.held: dict[int, object] = {}  # all objects met, so that their identities stay theirs
        self._first, self._objects, self._bytes = first, _MOST_OBJECTS, _MOST_BYTES

    def walk(self, roots: Iterable[tuple[str, object]]) -> OwnData:
        """Visit these values by name, until there are too many."""
        for name, value in roots:
            try:
                self._visit(name, value, 0)
            except CannotCompare as error:
                self.doubt = self.doubt or str(error)
            except RecursionError:
                self.doubt = self.doubt or name
        return self

    def _visit(self, name: str, value: Value, depth: int) -> None:
        kind = type(value)
        if kind in _ATOMS and (kind not in (str, bytes) or len(value) <= _LONG):
            self.pieces[name] = marshal.dumps(value, _PLAIN_FORMAT)
            return
        self.pieces.setdefault(name, id(value))  # it may have been met under this name before
        if id(value) in self.held:
            return
        self.held[id(value)] = value
        self._objects -= 1
        if self._objects < 0 or depth > 16:  # containers and attributes inside one another
            raise CannotCompare(name)
        if is_generator(value):
            self.generators.append(NamedGenerator(name, value))
        else:
            _visitor_for(kind)(self, name, value, depth)

    def _visit_all(self, pairs: Iterable[tuple[str, object]], depth: int) -> None:
        for name, value in pairs:
            try:
                self._visit(name, value, depth + 1)
            except CannotCompare as error:  # generators further on are found all the same
                self.doubt = self.doubt or str(error)
                if self._objects < 0:
                    raise

    # -- kinds of values

    def _visit_container(self, name: str, value: Value, depth: int) -> None:
        """A container: its bytes if all in it is plain data, else its elements one by one."""
        if self._first and not self._has_room(value):
            raise CannotCompare(name)
        try:
            self.pieces[name] = raw = marshal.dumps(value, _PLAIN_FORMAT)
        except (ValueError, BufferError):
            identity = id(value)
            if isinstance(value, dict) and "__builtins__" in value:  # of executed text: a module's
                value = {key: each for key, each in value.items() if not _is_dunder(str(key))}
            self.pieces[name] = identity, len(value)
            return self._visit_elements(name, value, depth)
        self._bytes -= len(raw)

    def _has_room(self, value: Value) -> bool:
        """True if a container, with all that is in it, may be written out."""
        waiting = [value]
        while waiting and self._objects >= 0:
            here = waiting.pop()
            if isinstance(here, _CONTAINERS):
                self._objects -= len(here)
                inner = here.values() if isinstance(here, dict) else here
                waiting += (
                    []
                    if isinstance(here, bytearray)
                    else [each for each in inner if type(each) not in _ATOMS]
                )
            elif isinstance(here, _buffers()) and here.nbytes > self._bytes:
                return False
        return self._objects >= 0

    def _visit_elements(self, name: str, value: Value, depth: int) -> None:
        pairs = dict.items(value) if isinstance(value, dict) else enumerate(value)
        shown = [
            (f"{name}[{key!r}]" if type(key) in _ATOMS else f"{name}[]", each)
            for key, each in list(pairs)
        ]
        self._visit_all(shown, depth)

    def _visit_array(self, name: str, value: Value, depth: int) -> None:
        """An array of numpy: its bytes, or its elements if they are objects."""
        if value.dtype.hasobject:
            return self._visit(f"{name}[]", value.tolist(), depth + 1)
        self._bytes -= value.nbytes
        if self._bytes < 0:
            raise CannotCompare(name)
        self.pieces[name] = value.shape, value.dtype.str, value.tobytes()

    def _visit_function(self, name: str, value: FunctionType, depth: int) -> None:
        """A function: the values bound to it and, if it is own, the globals that its code names."""
        scope, code = value.__globals__, value.__code__
        self.pieces[name] = id(value), id(code)
        self.held[id(code)] = code
        if not is_own_scope(scope):
            return
        for part in (value.__defaults__, value.__kwdefaults__, value.__dict__):
            if part:
                self._visit(f"{name}()", part, depth + 1)
        cells = zip(code.co_freevars, value.__closure__ or ())
        self._visit_all(((f"{name}.{free}", cell) for free, cell in cells), depth)
        home = scope.get("__name__", "")
        reached = [each for each in names_in_code(code) if each in scope]
        self._visit_all(((f"{home}.{each}", scope[each]) for each in reached), depth)

    def _visit_cell(self, name: str, value: CellType, depth: int) -> None:
        try:
            inner = value.cell_contents
        except ValueError:  # empty
            return
        self._visit(name, inner, depth + 1)

    def _visit_class(self, name: str, value: type, depth: int) -> None:
        """A class: its attributes if it is own."""
        module = sys.modules.get(value.__module__)
        if module is None or not is_own_scope(vars(module)):
            return
        inner = [(key, each) for key, each in vars(value).items() if key not in _CLASS_NAMES]
        self._visit_all(((f"{name}.{key}", each) for key, each in inner), depth)

    def _visit_module(self, name: str, value: ModuleType, depth: int) -> None:
        """A module: all values in it, and their names, if it is own."""
        scope = vars(value)
        if not is_own_scope(scope) or "__file__" not in scope:
            return
        inner = [(key, each) for key, each in list(scope.items()) if not _is_dunder(key)]
        home = value.__name__
        self.pieces[f"{home} names"] = tuple(key for key, _ in inner)
        self._visit_all(((f"{home}.{key}", each) for key, each in inner), depth)

    def _visit_wrapper(self, name: str, value: Value, depth: int) -> None:
        """A static or class method, a property, a bound method or a partial call."""
        inner = [(each, getattr(value, each, None)) for each in _WRAPPED]
        pairs = [(f"{name}.{each}", part) for each, part in inner if part is not None]
        self._visit_all(pairs, depth)

    def _visit_cache(self, name: str, value: Value, depth: int) -> None:
        """A function with `lru_cache`: what it remembers changes with every miss."""
        about = value.cache_info()
        self.pieces[name] = id(value), about.misses, about.currsize
        self._visit(f"{name}()", value.__wrapped__, depth + 1)

    def _visit_suspended(
        self, name: str, value: GeneratorType[Value, Value, Value], depth: int
    ) -> None:
        """A generator function in the middle: where it stands, and its variables."""
        frame = value.gi_frame
        self.pieces[name] = id(value), -1 if frame is None else frame.f_lasti
        inner = [] if frame is None else list(frame.f_locals.items())
        self._visit_all(((f"{name}.{key}", each) for key, each in inner), depth)

    def _visit_iterator(self, name: str, value: Value, depth: int) -> None:
        """An iterator of Python's: the state that a copy would get."""
        try:
            with warnings.catch_warnings():  # copies are deprecated from Python 3.12 on
                warnings.simplefilter("ignore")
                self.pieces[name] = marshal.dumps(_iterator_state(value), _PLAIN_FORMAT)
        except (TypeError, AttributeError, ValueError):
            raise CannotCompare(name) from None

    def _visit_file(self, name: str, value: io.IOBase, depth: int) -> None:
        place = None
        if not value.closed:
            try:
                place = value.tell()
            except (OSError, ValueError):  # a pipe, or read line by line at the moment
                place = None
        self.pieces[name] = id(value), value.closed, place

    def _visit_known(self, name: str, value: Value, depth: int) -> None:
        """An object whose state is read in one step."""
        self.pieces[name] = id(value), _KNOWN[_full_name(type(value))](value)

    def _visit_identity(self, name: str, value: Value, depth: int) -> None:
        """An object that never changes, or without an effect on a result."""

    def _visit_object(self, name: str, value: Value, depth: int) -> None:
        """An object: its attributes; one that shows none cannot be compared."""
        kind = type(value)
        own, is_container = object_attributes(value), issubclass(kind, _CONTAINERS)
        if own is None and not is_container:
            raise CannotCompare(name)
        self._visit_all(((f"{name}.{key}", each) for key, each in (own or {}).items()), depth)
        if is_container:
            self.pieces[name] = id(value), len(value)
            self._visit_elements(name, value, depth)
        self._visit(f"{name}.__class__", kind, depth + 1)


Visitor = Callable[[OwnData, str, Value, int], None]
_KNOWN: dict[str, Callable[[Value], object]] = {
    "_thread.lock": lambda value: value.locked(),
    "_thread._local": lambda value: tuple(map(id, vars(value).values())),
    "sqlite3.Connection": lambda value: value.total_changes,
    "torch.Tensor": lambda value: value._version,
    "torch.nn.parameter.Parameter": lambda value: value._version,
    "decimal.Context": str,
    "pathlib.PosixPath": str,
    "mmap.mmap": lambda value: None if value.closed else value.tell(),
}
"""State of objects that show none as attributes, by the name of their class."""

_QUIET_MODULES = ("logging", "typing", "types", "re", "datetime", "zoneinfo", "weakref", "decimal")
_WRAPPED = ("__func__", "__self__", "fget", "fset", "func", "args", "keywords")
_CLASS_NAMES = frozenset(
    ("__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__")
)


_VISITS: tuple[tuple[Value, Visitor], ...] = (
    (FunctionType, OwnData._visit_function),
    (type, OwnData._visit_class),
    (ModuleType, OwnData._visit_module),
    (CellType, OwnData._visit_cell),
    (functools._lru_cache_wrapper, OwnData._visit_cache),
    ((MethodType, staticmethod, classmethod, property, functools.partial), OwnData._visit_wrapper),
    (GeneratorType, OwnData._visit_suspended),
    (io.IOBase, OwnData._visit_file),
)


def _buffers() -> tuple[type[Value], ...]:
    """Types whose values are written out as bytes, of the libraries that are loaded."""
    numpy = sys.modules.get("numpy")
    return (memoryview,) if numpy is None else (memoryview, numpy.ndarray)


@functools.cache
def _visitor_for(kind: type) -> Visitor:
    """The visit for a type of values; kept, since it is asked for every value."""
    for kinds, visit in _VISITS:
        if issubclass(kind, kinds):
            return visit
    if kind in (dict, list, tuple, set, frozenset, bytearray):
        return OwnData._visit_container
    if _full_name(kind) in _KNOWN:
        return OwnData._visit_known
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return OwnData._visit_array
    home = kind.__module__
    if home in ("builtins", "itertools", "collections") and hasattr(kind, "__next__"):
        return OwnData._visit_iterator
    is_plain = home in ("builtins", "numpy", "_thread") and not issubclass(kind, BaseException)
    if is_plain or home.partition(".")[0] in _QUIET_MODULES:
        return OwnData._visit_identity  # scalars, types and functions of C: they never change
    return OwnData._visit_object


def _iterator_state(value: Value) -> Value:
    """State of an iterator and of those inside it, as plain data if their elements are."""
    if hasattr(type(value), "__next__"):
        value = value.__reduce__()[1:]
    return [*map(_iterator_state, value)] if isinstance(value, tuple) else value


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def object_attributes(value: Value) -> dict[str, Value] | None:
    """Attributes of an object, in slots too, read without running code of the object's.

    None if its class leaves no place for any.
    """
    found = dict[str, Value]()
    for name in ("__dict__", *_slots_of(type(value))):
        with contextlib.suppress(AttributeError):  # not set, or there is none
            found[name] = object.__getattribute__(value, name)
    own = found.pop("__dict__", None)
    return None if own is None and not found else found | (own or {})


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


@functools.cache
def _slots_of(kind: type) -> tuple[str, ...]:
    """Names of the slots of a class and its bases."""
    found: list[str] = []
    for each in kind.__mro__:
        slots = vars(each).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not _is_dunder(name)
            found.append(f"_{each.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in dict.fromkeys(found) if not _is_dunder(name))


_names: dict[CodeType, tuple[str, ...]] = {}


def names_in_code(code: CodeType) -> tuple[str, ...]:
    """Global names in a function's code, and in that of the functions inside it."""
    known = _names.get(code)
    if known is None:
        known = _names[code] = tuple(dict.fromkeys(_walk_names(code)))
    return known


def _walk_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _walk_names(inner)
