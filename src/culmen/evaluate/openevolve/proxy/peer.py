"""Two processes that ask each other over one socket: who waits for an answer answers questions meanwhile."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from culmen.evaluate.jail import wire

ANSWERS = ("R", "E", "X")  # a value; an exception; a value that cannot be sent
Answer = tuple[str, wire.Data]


class Line:
    """One end. `limit` bounds what the other side may send at once; `answer` deals with its questions (None: none).

    Frames are those of wire.py. While `takes` is above 0, descriptors that come along with a frame are put into `fds`.
    An exchange that is broken off, for whatever reason, closes the line: nobody could tell what an answer belongs to.
    """

    def __init__(
        self, sock: socket.socket, limit: int, answer: Callable[[Line, str, wire.Data], Answer | None]
    ) -> None:
        self.sock, self.limit, self._answer = sock, limit, answer
        self.lock = threading.RLock()
        self.takes, self.fds = 0, list[int]()
        self.broken = False

    def ask(self, kind: str, payload: wire.Data, fds: tuple[int, ...] = ()) -> Answer:
        """Ask, and wait for the answer. Raises EOFError when the other side is gone, TooLarge above the limit."""
        with self.lock:
            try:
                self.send(kind, payload, fds)
                while True:
                    kind, payload = self.receive()
                    if kind in ANSWERS:
                        return kind, payload
                    self._reply(kind, payload)
            except BaseException as error:
                self.broken = True
                self.sock.close()
                if isinstance(error, OSError):
                    raise EOFError from None
                raise

    def serve(self) -> None:
        """Answer questions until the other side hangs up."""
        try:
            while True:
                self._reply(*self.receive())
        except (EOFError, OSError):
            return

    def _reply(self, kind: str, payload: wire.Data) -> None:
        answer = self._answer(self, kind, payload)
        if answer is not None:
            self.send(*answer)

    def send(self, kind: str, payload: wire.Data, fds: tuple[int, ...] = ()) -> None:
        """One frame; descriptors travel with its first bytes."""
        if fds:
            data = wire.frame(kind, payload)
            self.sock.sendall(data[socket.send_fds(self.sock, [data], fds) :])
        else:
            wire.send(self.sock, kind, payload)

    def receive(self) -> Answer:
        """One frame of the other side."""
        first = bytearray()
        if self.takes:
            data, fds, _, _ = socket.recv_fds(self.sock, wire.HEADER_SIZE, self.takes)
            first += data
            self.fds += fds
            if not first:
                raise EOFError
        header = first + wire.exactly(self.sock, wire.HEADER_SIZE - len(first))
        kind, length = wire.parse_header(header, self.limit)
        return kind, wire.exactly(self.sock, length)


def failure(kind: str, trace: str, **more: Any) -> bytes:
    """The payload of an exception frame: plain JSON, which every reader takes for text only."""
    return json.dumps({"type": kind, "trace": trace, **more}).encode("utf-8", "replace")
