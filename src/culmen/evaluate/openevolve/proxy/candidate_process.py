"""The candidate's end of one connection: imports the candidate, keeps its objects, does what it is asked.

Once the candidate's code runs nothing here can be relied on; the other end takes nothing from here for more than data.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import importlib.util
import inspect
import json
import math
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from culmen.evaluate.jail import kernel, wire
from culmen.evaluate.jail.confine import CHANNEL, LINE
from culmen.evaluate.jail.plain import last_lines
from culmen.evaluate.jail.wire import Data, WireError
from culmen.evaluate.openevolve.proxy import connection
from culmen.evaluate.openevolve.proxy.connection import PeerConnection, Reply, failure

_LIMIT = 1 << 30  # what comes in is the evaluator's
_DATA = (type(None), bool, int, float, str)


class ObjectServer:
    """One process's objects; threads that serve further lines share them."""

    def __init__(self, sock: socket.socket, work: Path) -> None:
        self._work = work
        self._things: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._times: dict[int, int] = {}
        self._count = 0
        self.line = self._line(sock)

    def _line(self, sock: socket.socket) -> PeerConnection:
        line = PeerConnection(sock, _LIMIT, self._answer)
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

    def _answer(self, line: PeerConnection, kind: str, payload: Data) -> Reply | None:
        try:
            if kind in ("T", "F"):
                return self._second_line(line, kind)
            aside, *content = _Reader(self, line).decode(payload)
            for number, times in (aside or {}).get("drop", ()):
                self._drop(number, times)
            connection.sow((aside or {}).get("seeds", {}))
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

    def _second_line(self, line: PeerConnection, kind: str) -> Reply | None:
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

    def _import(self, _line: PeerConnection, name: str, part: str) -> dict[str, Any]:
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

    def _describe(self, _line: PeerConnection, thing: Any) -> dict[str, Any]:
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

    def _get(self, _line: PeerConnection, thing: Any, name: str) -> Any:
        return getattr(thing, name)

    def _set(self, _line: PeerConnection, thing: Any, name: str, value: Any) -> None:
        setattr(thing, name, value)

    def _delete(self, _line: PeerConnection, thing: Any, name: str) -> None:
        delattr(thing, name)

    def _list(self, _line: PeerConnection, thing: Any) -> list[str]:
        return [str(name) for name in dir(thing)]

    def _call(self, _line: PeerConnection, thing: Any, name: str | None, args: Any, kwargs: dict[str, Any]) -> Any:
        return (thing if name is None else getattr(thing, name))(*args, **kwargs)

    def _step(self, _line: PeerConnection, thing: Any, how: str, value: Any) -> tuple[bool, Any]:
        try:
            return True, next(thing) if how == "next" else getattr(thing, how)(*([value] if how == "send" else []))
        except StopIteration as end:
            return False, end.value

    def _await(self, _line: PeerConnection, thing: Any) -> Any:
        async def waiting() -> Any:
            return await thing

        return asyncio.run(waiting())

    def _script(self, line: PeerConnection, part: str, arguments: list[str]) -> int:
        """Run the candidate as a script on the streams that came along; its exit status as `python` would give it."""
        fds, line.fds[:] = line.fds[:], []
        return run_script(str(self._work / part), arguments, fds)


_loaded: set[str] = set()
_DEEDS: dict[str, Callable[..., Any]] = {
    "I": ObjectServer._import,
    "D": ObjectServer._describe,
    "G": ObjectServer._get,
    "W": ObjectServer._set,
    "Z": ObjectServer._delete,
    "L": ObjectServer._list,
    "C": ObjectServer._call,
    "N": ObjectServer._step,
    "A": ObjectServer._await,
    "U": ObjectServer._script,
}


class _Writer(connection.TypedWriter):
    def __init__(self, server: ObjectServer) -> None:
        super().__init__()
        self._server = server

    def refer(self, value: Any) -> Any:
        return self._server.refer(value)


class _Reader(connection.TypedReader):
    def __init__(self, server: ObjectServer, line: PeerConnection) -> None:
        super().__init__()
        self._server, self._on = server, line

    def _mark_own(self, number: Any, _depth: int) -> Any:
        return self._server.thing(number)

    def _mark_random(self, spec: Any, depth: int) -> Any:
        return connection.generator(*self.revive(spec, depth + 1))

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


# Running a candidate as a script, on standard streams that came from the evaluator's process.


def run_script(path: str, arguments: list[str], streams: list[int]) -> int:
    """Its exit status, as `python PATH ARGUMENTS` would give it; `streams` are closed."""
    for target, source in enumerate(streams[:3]):
        os.dup2(source, target)
    for fd in streams:
        os.close(fd)
    with _streams():
        return _status(path, arguments)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """Python's own streams over the descriptors 0 to 2 as they are now."""
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
        for fd in range(3):  # whoever reads them must see their end
            os.dup2(null, fd)
        os.close(null)


def _status(path: str, arguments: list[str]) -> int:
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


# The candidate's process, first of its jail: watches over one server for each process that imports the program.

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


@dataclass
class _Child:
    pid: int
    handover: socket.socket  # its connection is passed through this
    peer: socket.socket | None = None


class Supervisor:
    """Accepts connections of the evaluator and gives each a server."""

    def __init__(self, work: Path, seed: int) -> None:
        self._work, self._seed = work, seed
        self._children: dict[int, _Child] = {}
        self._count = 0
        self._channel = socket.socket(fileno=CHANNEL)
        self._alarm, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = wakeup
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # the candidate has our uid; it need not see our memory
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def run(self) -> None:
        """Until the orchestrator or the evaluator hangs up."""
        spare = self._fork()
        with socket.socket(fileno=LINE) as line:
            _, fds, _, _ = socket.recv_fds(line, 1, 1)
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as listener:
            while self._wait(listener):
                self._give(spare or self._fork(listener), listener)
                spare = None

    def _give(self, child: _Child, listener: socket.socket) -> None:
        child.peer, _ = listener.accept()
        with contextlib.suppress(OSError):
            socket.send_fds(child.handover, [b"C"], [child.peer.fileno()])
        child.handover.close()

    def _wait(self, listener: socket.socket) -> bool:
        """Look after what runs until there is a connection to accept; False when nobody will come any more."""
        while True:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            poll.register(self._channel, _GONE)
            poll.register(self._alarm, select.POLLIN)
            for child in self._children.values():
                if child.peer is not None:
                    poll.register(child.peer, _GONE)
            ready = dict(poll.poll())
            if ready.get(self._channel.fileno(), 0):
                return False
            if self._alarm in ready:
                os.read(self._alarm, 1 << 16)
            for child in list(self._children.values()):
                if child.peer is not None and child.peer.fileno() in ready:
                    self._end(child)
            self._reap()
            if listener.fileno() in ready:
                return True

    def _end(self, child: _Child) -> None:
        """Its peer is gone: whatever it computes, nobody waits for it."""
        with contextlib.suppress(OSError):  # where signals to others are refused it ends with the jail
            os.kill(child.pid, signal.SIGKILL)
        if child.peer is not None:
            child.peer.close()
            child.peer = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None and child.peer is not None:
                self._tell(child.peer, os.waitstatus_to_exitcode(status))

    def _tell(self, peer: socket.socket, code: int) -> None:
        """A server ended by itself; unless its peer went away at the same time, the candidate did that."""
        with peer:
            poll = select.poll()
            poll.register(peer, _GONE)
            if not poll.poll(0):
                with contextlib.suppress(OSError):
                    wire.send(self._channel, "D", json.dumps({"code": code}).encode())

    def _fork(self, listener: socket.socket | None = None) -> _Child:
        ours, theirs = socket.socketpair()
        number, self._count = self._count, self._count + 1
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become(theirs, number, listener)
        theirs.close()
        child = self._children[pid] = _Child(pid, ours)
        return child

    def _become(self, handover: socket.socket, number: int, listener: socket.socket | None) -> NoReturn:
        """The child: nothing of its parent but the work folder and the log; then serve."""
        try:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._channel, listener, *(c.peer for c in self._children.values())):
                if each is not None:
                    each.close()
            for fd in (self._alarm, self._wakeup, *(() if number else (LINE,))):
                os.close(fd)
            if number:
                _sow(f"{self._seed}/{number}")
            else:
                random.seed(self._seed)  # Python draws a new seed when a process forks
            _, fds, _, _ = socket.recv_fds(handover, 1, 1)
            handover.close()
            if fds:
                ObjectServer(socket.socket(fileno=fds[0]), self._work).line.serve()
        finally:
            leave()


def _sow(seed: str) -> None:
    """A later process draws other numbers than the first; which ones depends on the evaluation's seed alone."""
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(random.getrandbits(32))


def leave() -> NoReturn:
    """End without running exit handlers of the candidate."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)


def run_host(channel: socket.socket, request: dict[str, Any], work: Path) -> None:
    """Form host: be there for the evaluator until it hangs up."""
    channel.detach()
    (work / request["module"]).replace(work / request["program"])
    Supervisor(work, request["seed"]).run()
