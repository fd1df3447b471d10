"""The candidate's process: a supervisor, and servers for the evaluator's processes.

One server for each process of the evaluator that imports the program. The supervisor is the first
process of its jail and loads no candidate itself. The evaluator's socket comes over the line that
joins the two jails. The first server is ready before it is needed; each ends when its peer closes
the connection.

A server imports the candidate and performs operations (operations.py). Once the candidate's code
runs, nothing in it is trusted; the evaluator's side treats all its messages as data.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - operations.py needs these two late, and they are to be loaded before the fork
import builtins
import contextlib
import json
import os
import resource
import runpy  # noqa: F401
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.proxy.connection import (
    PeerConnection,
    Reply,
    ReplyKind,
    TypedReader,
    TypedWriter,
    encode_failure,
    restore_generator,
    seed_generators,
)
from culmen.extensions.compat.openevolve.proxy.operations import (
    CandidateObjects,
    Operation,
    Side,
    is_simple,
    rule_of,
)
from culmen.jail import kernel, wire
from culmen.jail.confine import CHANNEL, LINE
from culmen.jail.plain import last_lines, value_text
from culmen.jail.state import ProgramStreams
from culmen.jail.streams import seed_globals
from culmen.jail.wire import Data, WireError


class CandidateServer:
    """Serves one process of the evaluator.

    Threads that serve further connections share the objects.
    """

    def __init__(self, sock: socket.socket, work: Path) -> None:
        self._objects = CandidateObjects(work)
        # bytes of a request: the evaluator is trusted
        self.connection = PeerConnection(sock, 1 << 30, self._answer_request, takes=3)

    def _answer_request(self, at: PeerConnection, kind: str, payload: Data) -> Reply | None:
        try:
            rule = rule_of(kind, Side.EVALUATOR)
            if rule.descriptor:
                return rule.handler(self._objects, at)
            notices, *content = _RequestReader(self._objects, at).decode(payload)
            if notices is not None:
                for number, times in notices.get("drop", ()):
                    self._objects.drop_handles(number, times)
                seed_generators(notices.get("seeds", {}))
            value = rule.handler(self._objects, at, *content)
        except BaseException as error:  # noqa: BLE001 - the candidate's exception is raised in the evaluator
            return ReplyKind.EXCEPTION, self._encode_exception(error)
        try:
            return ReplyKind.VALUE, _AnswerWriter(self._objects).encode(value)
        except WireError as error:
            return ReplyKind.UNSENDABLE, json.dumps(["bad_output", str(error)]).encode(
                "utf-8", "replace"
            )
        except MemoryError:
            return ReplyKind.UNSENDABLE, b'["too_large", "it is too large to be sent"]'
        except BaseException as error:  # noqa: BLE001 - reading the candidate's objects may raise, too
            return ReplyKind.EXCEPTION, self._encode_exception(error)

    def _encode_exception(self, error: BaseException) -> bytes:
        """Name, text and trace of an exception.

        Also the number of its class, if the candidate defines it.
        """
        kind = type(error)
        module = kind.__module__
        own = (
            module not in sys.stdlib_module_names
            and issubclass(kind, Exception)
            and module in self._objects.modules
        )
        args = list(error.args) if all(map(is_simple, error.args)) else None
        number = self._objects.object_number(kind) if own else None
        trace, text = last_lines(error), value_text(error)
        return encode_failure(
            kind.__name__, trace, module=module, text=text, args=args, **{"class": number}
        )


class _AnswerWriter(TypedWriter):
    def __init__(self, objects: CandidateObjects) -> None:
        super().__init__()
        self._objects = objects

    def refer(self, value: object) -> object:
        return {"$": "ref", "v": self._objects.make_handle(value)}


class _RequestReader(TypedReader):
    """Reads requests of the evaluator.

    They may contain handles, random generators, and functions that can be called back.
    """

    def __init__(self, objects: CandidateObjects, at: PeerConnection) -> None:
        super().__init__()
        self._objects, self._at = objects, at

    def _own(self, number: int, _depth: int) -> object:
        return self._objects.object_by_number(number)

    def _random(self, spec: object, depth: int) -> object:
        return restore_generator(*self.revive(spec, depth + 1))

    def _call(self, spec: tuple[int, str], _depth: int) -> object:
        number, name = spec
        objects, at = self._objects, self._at

        def callback(*args: object, **kwargs: object) -> object:
            question = _AnswerWriter(objects).encode([number, list(args), kwargs])
            kind, payload = at.ask(Operation.CALL_BACK, question)
            if kind == ReplyKind.EXCEPTION:
                raise _callback_exception(payload)
            return _RequestReader(objects, at).decode(payload)[0]

        callback.__name__ = callback.__qualname__ = name
        return callback

    marks: ClassVar[dict[str, Callable[..., object]]] = {
        **TypedReader.marks,
        "own": _own,
        "random": _random,
        "call": _call,
    }


def _callback_exception(payload: Data) -> Exception:
    """An exception of a function of the evaluator, raised in the candidate."""
    report = json.loads(payload)
    kind: Any = getattr(builtins, report["type"], None)
    usable = (
        isinstance(kind, type)
        and issubclass(kind, Exception)
        and not issubclass(kind, UnicodeError)
    )
    return kind(report["trace"]) if usable else RuntimeError(f"{report['type']}: {report['trace']}")


# -- the supervisor
# ------------------------------------------------------------------------------

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
        kernel.prctl(
            kernel.PR_SET_DUMPABLE, 0
        )  # the candidate has our uid; it need not see our memory
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def run(self) -> None:
        """Run until the orchestrator or the evaluator closes the connection."""
        spare = self._fork_candidate_server()
        with socket.socket(fileno=LINE) as line:
            _, fds, _, _ = socket.recv_fds(line, 1, 1)
        if not fds:
            return
        with socket.socket(fileno=fds[0]) as listener:
            while self._wait_for_connection(listener):
                self._hand_over_connection(spare or self._fork_candidate_server(listener), listener)
                spare = None

    def _hand_over_connection(self, child: _Child, listener: socket.socket) -> None:
        child.peer, _ = listener.accept()
        with contextlib.suppress(OSError):
            wire.send_descriptors(child.handover, b"C", [child.peer.fileno()])
        child.handover.close()

    def _wait_for_connection(self, listener: socket.socket) -> bool:
        """Watch the servers until there is a connection to accept; False if none can come."""
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
                    self._end_server(child)
            self._reap_servers()
            if listener.fileno() in ready:
                return True

    def _end_server(self, child: _Child) -> None:
        """End a server whose peer has gone, since no process needs its results."""
        with contextlib.suppress(OSError):  # without the right to signal it, it ends with the jail
            os.kill(child.pid, signal.SIGKILL)
        if child.peer is not None:
            child.peer.close()
            child.peer = None

    def _reap_servers(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is not None and child.peer is not None:
                self._report_exit(child.peer, os.waitstatus_to_exitcode(status))

    def _report_exit(self, peer: socket.socket, code: int) -> None:
        """Report a server that ended by itself, and so because of the candidate.

        No report if its peer ended at the same time.
        """
        with peer:
            poll = select.poll()
            poll.register(peer, _GONE)
            if not poll.poll(0):
                with contextlib.suppress(OSError):
                    wire.send(self._channel, "D", json.dumps({"code": code}).encode())

    def _fork_candidate_server(self, listener: socket.socket | None = None) -> _Child:
        ours, theirs = socket.socketpair()
        number, self._count = self._count, self._count + 1
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._serve_as_child(theirs, number, listener)
        theirs.close()
        child = self._children[pid] = _Child(pid, ours)
        return child

    def _serve_as_child(
        self, handover: socket.socket, number: int, listener: socket.socket | None
    ) -> NoReturn:
        """Become the child: keep only the work folder and the log of the parent, then serve."""
        try:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))  # from here for good
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self._channel, listener, *(c.peer for c in self._children.values())):
                if inherited is not None:
                    inherited.close()
            for fd in (self._alarm, self._wakeup, *(() if number else (LINE,))):
                os.close(fd)
            # a later process draws other numbers than the first
            seed = f"{self._seed}/{number}" if number else self._seed
            seed_globals(seed)  # Python draws a new seed when a process forks
            ProgramStreams(str(self._work), seed)
            _, fds, _, _ = socket.recv_fds(handover, 1, 1)
            handover.close()
            if fds:
                CandidateServer(socket.socket(fileno=fds[0]), self._work).connection.serve()
        finally:
            exit_without_handlers()


def exit_without_handlers() -> NoReturn:
    """End without running exit handlers of the candidate."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)


def run_host(channel: socket.socket, request: JsonObject, work: Path) -> None:
    """Form host: serve the evaluator until it closes the connection."""
    channel.detach()
    (work / request["module"]).replace(work / request["program"])
    Supervisor(work, request["seed"]).run()
