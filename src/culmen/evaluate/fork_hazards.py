"""Pools, threads and transactions of the user's process that a Python function cannot use.

The processes of a function are forks: they have copies of all objects, but only the thread that
forked. Work given to a copy of a pool is never done. Objects are found from the names that the
function's code uses, its closure and its defaults, through attributes, containers and the user's
own functions. Code of libraries is not followed: it refers to most objects of a process.

The walk goes by nearness and has names for people. The comparison of `jail.own_data` goes by depth,
and writes out what it meets, which must not be done to objects that other threads are using.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import inspect
import queue
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import cast

from culmen.core.evaluation import BackendNote
from culmen.jail.own_data import is_own_scope, names_in_code, object_attributes

_MOST_ITEMS = 100  # of one container
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# objects on which one thread waits for another
_MEETINGS = (
    queue.Queue,
    queue.SimpleQueue,
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    threading.Barrier,
    concurrent.futures.Future,
    asyncio.AbstractEventLoop,
)
_FIX = (
    "start it inside the function, for example 'with ThreadPoolExecutor() as pool:'; or write the "
    "evaluator as a task folder, which is imported in the process that evaluates: culmen new DIR"
)

Named = tuple[str, object]


def find_fork_hazards(fn: Callable[..., object]) -> tuple[BackendNote, ...]:
    """Notes on objects that `fn` uses and that do not work in a fork of this process now."""
    reached = list(_reachable([("the function", fn)]))
    notes = [note for name, value in reached if (note := _hazard_of(name, value)) is not None]
    return (*notes, *_thread_notes(reached))


def reachable_objects(fn: Callable[..., object]) -> Iterator[object]:
    """Objects that `fn` can use by its names, its closure and its defaults, nearest first."""
    return (value for _, value in _reachable([("the function", fn)]))


def _hazard_of(name: str, value: object) -> BackendNote | None:
    if _is_running_pool(value):
        what = (
            f"a {type(value).__name__} in {name} was running before culmen forked; its threads are "
            "not in the evaluator's processes, so work given to it would wait for ever"
        )
        return BackendNote(what, _FIX)
    if _is_of(value, sqlite3.Connection):
        return _connection_hazard(name, cast(sqlite3.Connection, value))
    return None


def _connection_hazard(name: str, connection: sqlite3.Connection) -> BackendNote | None:
    try:
        sqlite3.Connection.cursor(connection)
    except sqlite3.ProgrammingError as error:
        if "thread" not in str(error):  # it is closed
            return None
        what = (
            f"the connection {name} to SQLite was opened in another thread than the one that "
            "forks (a notebook has its own), so SQLite refuses it in the evaluator's processes"
        )
        return BackendNote(what, "open it with sqlite3.connect(..., check_same_thread=False)")
    if not connection.in_transaction:
        return None
    what = (
        f"the connection {name} to SQLite has an open transaction, which each of the evaluator's "
        "processes would have, too: the database may be damaged"
    )
    return BackendNote(what, "commit it before the search begins")


def _is_running_pool(value: object) -> bool:
    """True if a pool has threads; an executor without any starts them at its first work."""
    if _is_of(value, concurrent.futures.Executor):
        own = object_attributes(value) or {}
        ended = own.get("_shutdown") or own.get("_shutdown_thread")
        return not ended and any(map(own.get, ("_threads", "_executor_manager_thread")))
    pools = sys.modules.get("multiprocessing.pool")
    return (
        pools is not None
        and _is_of(value, pools.Pool)
        and (object_attributes(value) or {})["_state"] == "RUN"
    )


def _thread_notes(reached: list[Named]) -> Iterator[BackendNote]:
    """Threads that the function refers to, or that it would wait for."""
    known = {id(value): name for name, value in reached}
    for thread in threading.enumerate():
        if thread in (threading.main_thread(), threading.current_thread()):
            continue
        shared = known.get(id(thread)) or _meeting_of(thread, known)
        if shared:
            what = (
                f"the thread {thread.name!r} ({shared}) was running before culmen forked; it is "
                "not in the evaluator's processes, so they would wait for it for ever"
            )
            yield BackendNote(what, _FIX)


def _meeting_of(thread: threading.Thread, known: dict[int, str]) -> str:
    """The name of an object on which the thread and the function may meet, "" without one."""
    parts = ("_target", "_args", "_kwargs")
    roots: list[Named] = [(name, getattr(thread, name, None)) for name in parts]
    if type(thread) is not threading.Thread:
        roots += [("run", type(thread).run), ("self", vars(thread))]
    for _, value in _reachable(roots):
        if _is_of(value, _MEETINGS) and id(value) in known:
            return f"which uses {known[id(value)]}"
    return ""


# -- objects within reach
# ------------------------------------------------------------------------------


def _reachable(roots: Iterable[Named]) -> Iterator[Named]:
    """Objects with their names in the program, nearest first."""
    waiting, seen = deque(roots), dict[int, object]()  # objects, so that no address is used again
    while waiting and len(seen) < 3000:  # nearest first
        name, value = waiting.popleft()
        if id(value) in seen or type(value) in _PLAIN:
            continue
        seen[id(value)] = value
        yield name, value
        if not _is_running_pool(value) and not _is_of(value, threading.Thread):
            waiting.extend(_parts_of(name, value))


def _parts_of(name: str, value: object) -> Iterator[Named]:
    """The objects that one refers to directly."""
    if type(value) is FunctionType:
        yield from _function_parts(name, value)
    elif type(value) is MethodType:
        yield from ((name, value.__self__), (name, value.__func__))
    elif type(value) is BuiltinMethodType:
        yield name, value.__self__
    elif type(value) is functools.partial:
        yield from ((name, each) for each in (value.func, *value.args, *value.keywords.values()))
    elif _is_of(value, (dict, list, tuple, set, frozenset, deque)):
        yield from _items(name, cast(Iterable[object], value))
    elif not _is_of(value, ModuleType):
        yield from _object_parts(name, value)


def _object_parts(name: str, value: object) -> Iterator[Named]:
    """The functions of a user's class; an object's class and attributes."""
    if _is_of(value, type):
        module = sys.modules.get(cast(type, value).__module__)
        if module is None or is_own_scope(vars(module)):
            for key, each in list(vars(cast(type, value)).items()):
                yield f"{name}.{key}", getattr(each, "__func__", each)
        return
    yield name, type(value)
    own = object_attributes(value)
    for key, each in islice((own or {}).items(), _MOST_ITEMS):
        yield f"{name}.{key}", each
    if not own:  # an object of C, as a writer of csv
        yield from ((name, each) for each in islice(gc.get_referents(value), _MOST_ITEMS))


def _items(name: str, container: Iterable[object]) -> Iterator[Named]:
    """The first values of a container, with their keys if they are texts or numbers."""
    with contextlib.suppress(RuntimeError):  # a thread changes it
        if _is_of(container, dict):
            pairs = list(islice(dict.items(cast(dict[object, object], container)), _MOST_ITEMS))
        else:
            pairs = list(enumerate(islice(container, _MOST_ITEMS)))
        for key, each in pairs:
            yield f"{name}[{key!r:.40}]" if type(key) in _PLAIN else name, each


def _is_of(value: object, kinds: type | tuple[type, ...]) -> bool:
    """True for an instance; `isinstance` would wake objects that are made at first use."""
    return issubclass(type(value), kinds)


def _function_parts(name: str, function: FunctionType) -> Iterator[Named]:
    """Globals that the code names, members of modules among them, cells and defaults."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    for variable, cell in cells:
        with contextlib.suppress(ValueError):  # not assigned yet
            yield variable, cell.cell_contents
    for each in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__name__}", each
    wrapped = inspect.unwrap(function)
    if wrapped is not function:
        yield name, wrapped
    if name != "the function" and not is_own_scope(function.__globals__):
        return
    names = names_in_code(function.__code__)
    for variable in names:
        value = function.__globals__.get(variable)
        yield variable, value
        if type(value) is ModuleType:
            members = vars(value)
            yield from ((f"{variable}.{each}", members[each]) for each in names if each in members)
