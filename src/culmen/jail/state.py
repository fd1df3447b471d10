"""State of a process: every evaluation in it begins from the state after the import.

Before a call the random generators get streams of their own (`streams`). After it the settings of
the interpreter, the modules and the evaluator's own data (`own_data`) are compared with the first
ones. Differences are named, and the process must then be replaced by a fresh copy, so
that programs leave nothing to one another. One evaluator may keep its state; it says so
(`Evaluator.keeps_state`), and the process then stays.

Names and functions of modules are compared at once for the modules that a program's text names,
and in turns for all others: comparing all of them takes as long as a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from types import ModuleType

from culmen.core.json import JsonObject
from culmen.jail import procfs
from culmen.jail.own_data import OwnData, is_own_scope
from culmen.jail.plain import Value
from culmen.jail.streams import Streams, global_generators, prepare_twins, seed_globals
from culmen.jail.wire import EvaluationTraces

_KEPT_SHARE_DIVISOR = 4  # of the memory limit, a quarter may be kept between calls
_TURNS = 64  # calls after which every module was compared
_SHOWN = 4  # names that an answer has at most
_WORD = re.compile(r"[A-Za-z_]\w+")
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # flags of classes that can, or cannot, be patched
_ALWAYS = ("builtins", "math", "random", "time", "json")


def import_modules(names: Iterable[str]) -> None:
    """Import modules of libraries; those that cannot be imported by name are left out."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class OwnStreams:
    """The random generators that an evaluator reaches, in a process for one evaluation."""

    def __init__(self, roots: Iterable[tuple[str, object]]) -> None:
        self._roots = tuple(roots)
        self.streams, self.data = Streams(), OwnData().walk(self._roots)

    def begin(self, seed: int, text: str = "") -> None:
        """Set every generator that the evaluator reaches, for an evaluation with this seed."""
        self.streams.set_streams(seed, self.data.generators)

    def end(self) -> EvaluationTraces:
        """Generators that moved, and data of the evaluator that changed, since the begin."""
        drew = self.streams.moved_names()
        left = [] if self.data.doubt else [f"data {name}" for name in self.changed_data()]
        return EvaluationTraces(drew[:_SHOWN], tuple(left[:_SHOWN]))

    def changed_data(self) -> list[str]:
        """Names of the evaluator's data that changed, or that cannot be compared."""
        first = self.data
        if first.doubt:
            return [f"{first.doubt} (cannot be compared)"]
        try:
            now = OwnData(first=False).walk(self._roots)
        except MemoryError:
            return ["too much to be compared"]
        if now.doubt:
            return [now.doubt]
        return _differences(first.pieces, now.pieces)


class ProgramStreams:
    """Random generators of the modules that a program consists of, set once each is loaded.

    `folder` has the program's files. The global generators were set before by `seed_globals`:
    numbers drawn while the program loads are part of the evaluation.
    """

    def __init__(self, folder: str, seed: int | str, streams: Streams | None = None) -> None:
        self.streams, self._folder, self._seed = streams or Streams(), folder + os.sep, seed
        if streams is None:
            self.streams.note_seeded(seed)
        self._hook_imports()

    def _hook_imports(self) -> None:
        """Have the import system call `_on_load` for every module that it loads from source."""
        load = SourceFileLoader.exec_module

        streams = self

        def exec_module(self: SourceFileLoader, module: ModuleType) -> None:
            load(self, module)
            if self.path.startswith(streams._folder):
                streams._on_load(module)

        SourceFileLoader.exec_module = exec_module

    def _on_load(self, module: ModuleType) -> None:
        found = OwnData().walk([(module.__name__, module)]).generators
        known = [each.generator for each in global_generators()]
        new = [each for each in found if not any(each.generator is other for other in known)]
        self.streams.set_more(self._seed, new)

    @property
    def has_drawn(self) -> bool:
        """True if a generator moved along its stream; asked once, at the end."""
        return bool(self.streams.moved_names())


def rehearse_program() -> None:
    """Do what children do for a program some times, before they are forked.

    Code that runs for the first times writes to its own memory, which each child would copy.
    """
    prepare_twins()
    module = ModuleType("program")
    module.__file__ = os.path.join(os.sep, "program.py")
    exec("DATA = [1]\ndef run(case=None):\n    return DATA", vars(module))
    for seed in range(20):  # after which the interpreter has specialised the code
        streams = Streams()
        seed_globals(seed)
        streams.note_seeded(seed)
        streams.set_more(seed, OwnData().walk([("program", module)]).generators)
        streams.moved_names()


class ProcessState(OwnStreams):
    """The state of this process at first, to be compared with it after each call.

    `roots` are the evaluator's functions and modules by name; `memory_mb` is a call's limit,
    `names` the modules that were loaded before.
    """

    def __init__(
        self,
        roots: Iterable[tuple[str, object]],
        memory_mb: int,
        names: ModuleNames,
    ) -> None:
        super().__init__(roots)
        self._names = names
        self._settings, self._threads = read_settings(), threading.active_count()
        names.refresh("sys")  # standard streams are the process's own
        self._modules = set(sys.modules)
        self._memory = procfs.data_bytes() + memory_mb * (1 << 20) // _KEPT_SHARE_DIVISOR

    def begin(self, seed: int, text: str = "") -> None:
        """Set the generators; `text` is the program, whose modules are compared at once."""
        self._names.watch(text)
        super().begin(seed)

    def end(self) -> EvaluationTraces:
        """Generators that moved and state that changed since the begin."""
        drew = self.streams.moved_names()
        fresh = self._new_modules()
        made = [name for name in fresh if self._is_from_run(name)]
        settings = self._changed_settings()
        # a library that is loaded in the middle of a call changes settings: no doing of the call's
        imported = [name for name in fresh if name not in made] if settings else []
        left = [
            *self._unended(),
            *(f"module {name}" for name in made),
            *(() if imported else settings),
            *(f"data {name}" for name in self.changed_data()),
            *self._names.changed(),
        ]
        return EvaluationTraces(drew[:_SHOWN], tuple(dict.fromkeys(left))[:_SHOWN], tuple(imported))

    def _changed_settings(self) -> list[str]:
        """Names of changed settings; those of libraries that were loaded since are new."""
        now = read_settings()
        if now == self._settings:
            return []
        before = {name: value for name, value in self._settings.items() if name in now}
        return [name for name, value in before.items() if value != now[name]]

    def _new_modules(self) -> list[str]:
        """Names of the modules that were loaded since the last look."""
        if len(sys.modules) == len(self._modules):
            return []
        fresh = [name for name in list(sys.modules) if name not in self._modules]
        self._modules = set(sys.modules)
        return fresh

    def _unended(self) -> Iterator[str]:
        """Threads, processes, timers and memory that stay after a call."""
        if threading.active_count() > self._threads:
            yield "a thread"
        if procfs.child_pids(os.getpid()):
            yield "a process"
        if signal.getitimer(signal.ITIMER_REAL)[0] > 0:
            yield "a timer"
        if procfs.data_bytes() > self._memory:
            yield "memory"

    def _is_from_run(self, name: str) -> bool:
        """True if a new module belongs to the run: a program, or one made without a file."""
        module = sys.modules.get(name)
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if file is None:
            return spec is None or not (
                spec.origin in ("built-in", "frozen") or spec.submodule_search_locations
            )
        try:
            return os.stat(file).st_ctime >= self._names.born
        except OSError:
            return True


def _differences(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Names with different values; new ones and those that are gone included."""
    if before == now:
        return []
    names = dict.fromkeys((*before, *now))
    return [name for name in names if before.get(name, names) != now.get(name, names)]


# -- settings of the interpreter


def read_settings() -> JsonObject:
    """Settings of this process by name, as values that can be compared."""
    settings: JsonObject = {name: read() for name, read in _SETTINGS.items()}
    for name, (library, read) in _LIBRARY_SETTINGS.items():
        module = sys.modules.get(library)
        if module is not None:
            with contextlib.suppress(AttributeError):  # not loaded to its end, or another version
                settings[name] = read(module)
    return settings


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _file_mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _environment() -> Mapping[Value, Value]:
    """The environment as the bytes that `os.environ` keeps; its texts are decoded one by one."""
    return dict(getattr(os.environ, "_data", os.environ))


def _signal_handlers() -> list[object]:
    return [*map(_read_handler, _SIGNALS)]


_read_handler = importlib.import_module("_signal").getsignal  # without signal's enumerations
_SIGNALS = sorted(int(number) for number in signal.valid_signals())
_SETTINGS: dict[str, Callable[[], object]] = {
    "os.environ": _environment,
    "working folder": _folder,
    "sys.path": lambda: tuple(sys.path),
    "sys.argv": lambda: tuple(sys.argv),
    "import hooks": lambda: (*map(id, sys.meta_path), *map(id, sys.path_hooks)),
    "open files": procfs.descriptor_count,
    "recursion limit": sys.getrecursionlimit,
    "limit of digits": getattr(sys, "get_int_max_str_digits", int),
    "switch interval": sys.getswitchinterval,
    "trace function": lambda: (id(sys.gettrace()), id(sys.getprofile())),
    "standard streams": lambda: (id(sys.stdout), id(sys.stderr), id(sys.stdin)),
    "hooks of sys": lambda: (id(sys.excepthook), id(sys.displayhook), id(sys.unraisablehook)),
    "warning filters": lambda: (tuple(warnings.filters), id(warnings.showwarning)),
    "garbage collector": lambda: (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
    "signal handlers": _signal_handlers,
    "umask": _file_mask,
}


def _numpy_settings(numpy: Value) -> object:
    return numpy.geterr(), numpy.geterrcall(), numpy.get_printoptions()


def _decimal_settings(decimal: Value) -> object:
    *settings, _, traps = decimal.getcontext().__reduce__()[1]  # without the flags
    return settings, traps


def _torch_settings(torch: Value) -> object:
    return (
        torch.get_num_threads(),
        str(torch.get_default_dtype()),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    )


def _asyncio_settings(events: Value) -> object:
    """The class of asyncio's policy, None for the usual one, which is made at first use."""
    policy = getattr(events, "_event_loop_policy", None)
    return None if policy is None or type(policy).__module__.startswith("asyncio") else type(policy)


def _logging_settings(logging: Value) -> object:
    root = logging.root
    return root.level, root.manager.disable, tuple(map(id, root.handlers))


_READERS: dict[str, Callable[[Value], object]] = {
    "asyncio.events": _asyncio_settings,
    "logging": _logging_settings,
    "locale": lambda locale: locale.setlocale(locale.LC_ALL),
    "numpy": _numpy_settings,
    "decimal": _decimal_settings,
    "torch": _torch_settings,
    "socket": lambda socket: socket.getdefaulttimeout(),
    "csv": lambda csv: csv.field_size_limit(),
    "time": lambda time: (time.tzname, time.timezone),
    "mpmath": lambda mpmath: (mpmath.mp.prec, mpmath.iv.prec),
    "pandas": lambda pandas: repr(pandas.options.d),
    "matplotlib": lambda matplotlib: repr(dict.items(matplotlib.rcParams)),
}
_LIBRARY_SETTINGS = {f"settings of {name}": (name, read) for name, read in _READERS.items()}
"""Settings of libraries that no name of a module shows."""


# -- names of modules: functions replaced, settings that are variables


class ModuleNames:
    """Namespaces of all loaded modules but the evaluator's own, which `OwnData` compares.

    Made once before processes are forked. Modules whose file changed after `born` (Unix seconds;
    by default now) belong to no library.
    """

    def __init__(self, born: float | None = None) -> None:
        # clocks of file systems may be behind
        self.born = time.time() - 1.0 if born is None else born
        self._before: dict[str, tuple[dict[str, Value], dict[str, Value]]] = {}
        self._inner: dict[str, dict[str, object]] = {}
        self._by_word: dict[str, list[str]] = {}
        self._named: list[str] = []
        for name, module in list(sys.modules.items()):
            scope = getattr(module, "__dict__", None)
            if isinstance(scope, dict) and name != "__main__" and not _is_own_module(scope):
                self._before[name] = scope, dict(scope)
                self._by_word.setdefault(name.rpartition(".")[2], []).append(name)
        self._order, self._turn = tuple(self._before), 0

    def refresh(self, name: str) -> None:
        """Take a module's present names as the first ones."""
        scope = self._before[name][0]
        self._before[name] = scope, dict(scope)

    def watch(self, text: str) -> None:
        """Look at the modules that a program's text names, classes and data in them included."""
        words = set(_WORD.findall(text)) if text else ()
        self._named = [name for word in words for name in self._by_word.get(word, ())]
        for name in self._named:
            if name not in self._inner:
                self._inner[name] = _inner_state(name, self._before[name][0])

    def changed(self) -> list[str]:
        """Names that differ: of the modules that the text names, and of those whose turn it is."""
        self._turn = (self._turn + 1) % _TURNS
        looked = dict.fromkeys((*_ALWAYS, *self._named, *self._order[self._turn :: _TURNS]))
        found = [self._difference(name) for name in looked if name in self._before]
        for name in self._named:
            found += _differences(self._inner[name], _inner_state(name, self._before[name][0]))
        return [name for name in found if name]

    def _difference(self, name: str) -> str:
        """The first name of a module whose value is another, "" for none; new names are fine."""
        scope, before = self._before[name]
        try:
            # comparing whole dicts is several times as fast, and usually decides
            if before == scope:
                return ""
            if before.items() <= scope.items():
                self.refresh(name)
                return ""
        except (ValueError, TypeError):  # another object, whose comparison fails
            pass
        changed = (key for key, value in before.items() if scope.get(key) is not value)
        return next((f"{name}.{key}" for key in changed if not key.startswith("_")), "")


def _is_own_module(scope: dict[str, Value]) -> bool:
    return "__file__" in scope and is_own_scope(scope)


def _inner_state(name: str, scope: dict[str, Value]) -> dict[str, object]:
    """Attributes of a module's own classes, and its plain data, by name."""
    state: dict[str, object] = {}
    value: Value
    for key, value in scope.items():
        if key.startswith("_"):
            continue
        if isinstance(value, type) and value.__module__ == name:
            if value.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE:
                state[f"{name}.{key}"] = dict(vars(value))
        elif isinstance(value, dict | list | set) and len(value) <= 1000:
            state[f"{name}.{key}"] = _contents(value)
    return state


def _contents(value: Value) -> object:
    """A container as bytes, or the identities of its entries if they are not plain data."""
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        entries = (*value, *value.values()) if isinstance(value, dict) else value
        return tuple(map(id, entries))
