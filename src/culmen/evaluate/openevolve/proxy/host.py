"""The candidate's process, first of its jail: watches over one server for each process that imports the program.

It loads no candidate itself. The evaluator's socket comes over the line that joins the two processes. The first server
is ready before it is asked for; each ends when its peer hangs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from culmen.evaluate.jail import kernel, wire
from culmen.evaluate.jail.confine import CHANNEL, LINE
from culmen.evaluate.openevolve.proxy.server import Server

_GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


@dataclass
class _Child:
    pid: int
    handover: socket.socket  # its connection is passed through this
    peer: socket.socket | None = None


class Host:
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
                Server(socket.socket(fileno=fds[0]), self._work).line.serve()
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
    Host(work, request["seed"]).run()
