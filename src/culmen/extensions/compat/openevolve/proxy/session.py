"""The evaluator's end of the connection to the candidate.

It decides on the values that may cross, and notes those that did.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from culmen.core.json import JsonObject
from culmen.extensions.compat.openevolve.proxy import connection, remote_objects
from culmen.extensions.compat.openevolve.proxy.connection import (
    PeerConnection,
    Reply,
    ReplyKind,
    encode_failure,
    random_state,
)
from culmen.extensions.compat.openevolve.proxy.operations import Operation, Side, rule_of
from culmen.extensions.compat.openevolve.proxy.remote_objects import RemoteHandle
from culmen.jail import wire

# exceptions of ordinary programs, which end loops and look-ups of names
_ORDINARY = (StopIteration, StopAsyncIteration, AttributeError)
LIMIT = 1 << 26  # bytes that the candidate may send at once
SOCKET, SETTINGS, NOTES = "socket", "settings", "notes"
NOT_FINITE, OBJECT = "numbers that are not finite", "an object"
CONSTRUCTORS = "any class"  # accepted if no initial program was tried to find the needs


class CrossingRefused(Exception):
    """The candidate returned a value that may not cross.

    The evaluation is invalid, even if the evaluator catches this.
    """


class ProgramGone(BaseException):
    """The candidate's process has ended.

    Evaluators must not catch this: the evaluation is over.
    """


class ProxySession:
    """One process's connection to the candidate.

    Objects of the candidate stay in its process and have numbers here. Every thread has a
    connection of its own, with a thread of the candidate's process.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, SETTINGS), encoding="utf-8") as file:
            settings = json.load(file)
        self._accepted, self._learning = frozenset(settings["accept"]), bool(settings["learn"])
        self._noted: set[str] = set()
        self._has_raised = False
        self._exports: list[Callable[..., object]] = []
        self.life, self.objects = 0, remote_objects.RemoteObjects(self)
        self._modules: list[tuple[RemoteHandle, str, str]] = []
        self.seeds: JsonObject = {}
        self._clone: socket.socket | None = None
        self._over = False
        self._use_socket(self._connect_socket())

    def _connect_socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(os.path.join(self.folder, SOCKET))
        return sock

    def _use_socket(self, sock: socket.socket) -> None:
        self._owner = threading.get_ident()
        self._main, self._others = (
            PeerConnection(sock, LIMIT, self._answer_callback),
            threading.local(),
        )

    # -- the module
    # ------------------------------------------------------------------------------

    def import_part(self, name: str, part: str) -> JsonObject:
        """Import a part of the candidate anew, in its process, as module `name`.

        Returns its `remote`, documentation and definitions.
        """
        about = self.ask(Operation.IMPORT, name, part, key="import")
        try:
            remote, doc, every = (
                RemoteHandle(int(about["number"]), self.life, name),
                about["doc"],
                about["all"],
            )
            definitions = [
                (str(definition), int(number), kind)
                for definition, (number, kind, _) in about["names"].items()
            ]
            for number, description in about["about"].items():
                self.objects.add_description(number, description)
            self._modules.append((remote, name, part))
            names = {}
            for definition, number, kind in definitions:
                if kind in ("function", "class") and not definition.startswith("__"):
                    names[definition] = self.objects.stand_in_for(number, kind, 0, definition)
                    remote_objects.set_origin(names[definition], (remote, definition))
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            raise self.malformed_answer_error("import") from None
        return {"names": names, "remote": remote, "doc": doc, "all": every}

    def current_number(self, remote: RemoteHandle) -> int:
        """The present number of an object.

        After a restart only objects that a module defines are found again.
        """
        if remote.life != self.life:
            if remote.origin is None:
                raise self._program_gone_error()
            module, name = remote.origin
            again = remote_objects.remote_of(
                self.remote_attribute(module, name, remote_objects.DEFINITIONS)
            )
            if again is None:
                raise self._program_gone_error()
            remote.number, remote.life = again.number, again.life
        return remote.number

    def _restart_connection(self) -> None:
        """Restart the connection after an exchange was interrupted on our side.

        The state of an interrupted exchange, for example by a signal, is unknown.
        """
        modules, self._modules = self._modules, []
        self.life += 1
        self.objects.clear()
        self._use_socket(self._connect_socket())
        for remote, name, part in modules:
            again = self.import_part(name, part)["remote"]
            remote.number, remote.life = again.number, again.life
            self._modules[-1] = (remote, name, part)

    def remote_attribute(
        self,
        remote: RemoteHandle,
        name: str,
        open_kinds: frozenset[str],
        methods: frozenset[str] = frozenset(),
    ) -> object:
        """An attribute of an object of the candidate.

        A method is called without fetching it first.
        """
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        if name not in methods:
            return self.ask(Operation.GET_ATTRIBUTE, remote, name, key=name, open_kinds=open_kinds)

        def call(args: tuple[object, ...], kwargs: JsonObject) -> object:
            return self.ask(Operation.CALL, remote, name, args, kwargs, key=f"{name}()")

        return remote_objects.make_function(call, name)

    # -- asking
    # ------------------------------------------------------------------------------

    def ask(
        self,
        kind: Operation,
        *content: object,
        key: str,
        open_kinds: frozenset[str] = frozenset(),
        fds: tuple[int, ...] = (),
    ) -> Any:
        """One request; `key` is its subject, in notes and in `accept`.

        Raises the candidate's exception, CrossingRefused for a value that may not cross,
        ProgramGone if the candidate's process ended.
        """
        peer = self._thread_connection()
        notices = {"drop": self.objects.take_dropped(), "seeds": self._new_seeds()}
        payload = _Writer(self).encode([notices if any(notices.values()) else None, *content])
        try:
            answered, payload = peer.ask(kind, payload, fds)
        except EOFError:
            self._over = True
            raise self._program_gone_error() from None
        except wire.TooLarge:
            raise self._refusal_error(
                "too_large", f"{key} returned more than {LIMIT} bytes"
            ) from None
        if answered == ReplyKind.UNSENDABLE:
            raise self._unsendable_error(payload, key)
        if answered == ReplyKind.EXCEPTION:
            error = remote_objects.restore_exception(self.objects, payload)
            if not isinstance(error, _ORDINARY) and not self._has_raised:
                self._has_raised = True
                self.note_event("raised", f"{type(error).__name__}: {error}"[:300])
            raise error
        return self._decode_value(payload, key, open_kinds)

    def _thread_connection(self) -> PeerConnection:
        if self._over:
            raise self._program_gone_error()
        if self._main.broken:
            self._restart_connection()
        if threading.get_ident() == self._owner:
            return self._main
        own_connection: PeerConnection | None = getattr(self._others, "line", None)
        if own_connection is None or own_connection.broken:
            own_connection = self._others.line = PeerConnection(
                self._open_further_connection(Operation.OPEN_THREAD), LIMIT, self._answer_callback
            )
        return own_connection

    def _open_further_connection(self, kind: Operation) -> socket.socket:
        """A further connection to the candidate.

        To a thread of its process (T) or to a copy of the process (F).
        """
        with self._main.lock:
            self._main.takes = 1
            try:
                self._main.ask(kind, b"")
                return socket.socket(fileno=self._main.fds.pop())
            except (EOFError, IndexError, OSError):
                raise self._program_gone_error() from None
            finally:
                self._main.takes = 0

    def _new_seeds(self) -> JsonObject:
        seeds, self.seeds = self.seeds, {}
        return seeds

    def _decode_value(self, payload: wire.Data, key: str, open_kinds: frozenset[str]) -> Any:
        reader = _Reader(self, key, open_kinds)
        try:
            value = reader.decode(payload)
        except wire.WireError as error:
            raise self._refusal_error("bad_output", f"{key}: {error}") from None
        if reader.has_nonfinite:
            self.admit_crossing(key, NOT_FINITE, "not_finite")
        return value

    # -- answering
    # ------------------------------------------------------------------------------

    def export_function(self, function: Callable[..., object]) -> int:
        """A number by which the candidate may call a function of the evaluator."""
        self._exports.append(function)
        return len(self._exports) - 1

    def _answer_callback(self, at: PeerConnection, kind: str, payload: wire.Data) -> Reply:
        """Call a function that the candidate was given; refuse any other request."""
        try:
            rule = rule_of(kind, Side.CANDIDATE)
            content = self._decode_value(payload, "callback()", frozenset())
            return ReplyKind.VALUE, _Writer(self).encode(
                [rule.handler(self._exports, at, *content)]
            )
        except Exception as error:  # noqa: BLE001 - exceptions of our function are raised in the candidate
            return ReplyKind.EXCEPTION, encode_failure(type(error).__name__, str(error))

    # -- permissions and notes
    # ------------------------------------------------------------------------

    def admit_crossing(self, key: str, what: str, reason: str) -> None:
        """Let a value cross that is not plain finite data, or raise CrossingRefused.

        During the trial of the initial program every value may cross and is noted; later only
        values seen then, or named in the task.
        """
        if self._learning:
            return self.note_event("used", f"{key} {what}")
        if f"{key} {what}" not in self._accepted:
            raise self._refusal_error(reason, f"{key} returned {what}")

    @property
    def any_class(self) -> bool:
        """True if classes may be instantiated without having been seen."""
        return CONSTRUCTORS in self._accepted

    def malformed_answer_error(self, key: str) -> CrossingRefused:
        """The error for an answer of plain data, but of another kind than requested."""
        return self._refusal_error("bad_output", f"{key}: the program sent an invalid answer")

    def _refusal_error(self, reason: str, text: str) -> CrossingRefused:
        self.note_event("refused", text, reason)
        return CrossingRefused(text)

    def _unsendable_error(self, payload: wire.Data, key: str) -> CrossingRefused:
        """The error for a value that the other side cannot send."""
        try:
            reason, text = json.loads(payload[:1000])
        except (ValueError, TypeError):
            reason, text = "bad_output", "no answer"
        return self._refusal_error(
            "too_large" if reason == "too_large" else "bad_output", f"{key}: {text}"
        )

    def _program_gone_error(self) -> ProgramGone:
        self.note_event("gone")
        return ProgramGone("the program's process has ended")

    def note_event(self, what: str, text: str = "", reason: str = "") -> None:
        """Report an event to the process that started the evaluator, from any of its processes."""
        line = json.dumps([what, text, reason, os.getpid()]) + "\n"
        if what != "import" and (line in self._noted or len(self._noted) >= 100):
            return
        self._noted.add(line)
        with open(os.path.join(self.folder, NOTES), "ab", buffering=0) as file:
            file.write(line.encode())

    # -- forks
    # ------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Fork the candidate, too, so that our child has a candidate in its present state."""
        self._main.lock.acquire()
        if not (self._over or self._main.broken):
            with contextlib.suppress(ProgramGone):
                self._clone = self._open_further_connection(Operation.FORK)

    def after_fork_in_parent(self) -> None:
        """Leave the copy of the candidate to our child."""
        clone, self._clone = self._clone, None
        if clone is not None:
            clone.close()
        self._main.lock.release()

    def after_fork_in_child(self) -> None:
        """Continue with the copy; without one this process has no program."""
        clone, self._clone = self._clone, None
        self._over = self._over or clone is None
        if clone is not None:
            self._main.sock.close()
            self._use_socket(clone)


class _Writer(connection.TypedWriter):
    def __init__(self, session: ProxySession) -> None:
        super().__init__()
        self._session = session

    def refer(self, value: object) -> object:
        remote = value if isinstance(value, RemoteHandle) else remote_objects.remote_of(value)
        if remote is not None:
            return {"$": "own", "v": self._session.current_number(remote)}
        state = random_state(value)
        if state is not None:
            return {"$": "random", "v": self.plain(state, 0)}
        if not callable(value):
            self._session.note_event(
                "unsupported", f"an object of {type(value).__name__} is passed to the program"
            )
            raise wire.WireError(
                f"{type(value).__name__} cannot be passed to the program: give it plain data"
            )
        name = getattr(value, "__name__", type(value).__name__)
        return {"$": "call", "v": [self._session.export_function(value), str(name)]}


class _Reader(connection.TypedReader):
    def __init__(self, session: ProxySession, key: str, open_kinds: frozenset[str]) -> None:
        super().__init__()
        self._session, self._key, self._open = session, key, open_kinds

    def resolve(self, spec: tuple[object, str, object]) -> object:
        number, kind, family = spec
        if type(number) is not int or kind not in remote_objects.KINDS or type(family) is not int:
            raise wire.WireError("an invalid reference")
        if kind not in self._open and kind not in remote_objects.HARMLESS:
            self._session.admit_crossing(self._key, OBJECT, "bad_output")
        return self._session.objects.stand_in_for(number, kind, family, self._key)
