"""The jailed program as an evaluator of the form serve sees it."""

from __future__ import annotations

import json
import socket
from typing import Any

from culmen.evaluate.jail import wire


class CandidateError(Exception):
    """A function of the candidate raised, or what it returned is not plain data. Evaluators may catch it."""


class CandidateGone(BaseException):
    """The candidate's process has ended (time, memory, crash). Nothing to catch: the evaluation is over."""


class Program:
    """`program(*args)` calls the entry, `program.named(name, *args)` another function; plain data both ways."""

    def __init__(self, channel: socket.socket, limit: int = 1 << 26) -> None:
        channel.setblocking(True)
        self.channel, self.limit, self.gone = channel, limit, False

    def __call__(self, *args: Any) -> Any:
        """Call the entry."""
        return self.named(None, *args)

    def call(self, name: str | None, args: tuple[Any, ...] | list[Any] = ()) -> Any:
        """Call a function by name with a list of arguments."""
        return self.named(name, *args)

    def named(self, name: str | None, *args: Any) -> Any:
        """Call a function of the program. Raises CandidateError if that raises, CandidateGone if the process ends."""
        if self.gone:
            raise CandidateGone
        try:
            wire.send(self.channel, "C", wire.encode([name, list(args)]))
            kind, payload = wire.receive(self.channel, self.limit)
        except (OSError, EOFError, wire.TooLarge):
            self.gone = True
            raise CandidateGone from None
        if kind == "R":
            try:
                return wire.decode(payload)
            except wire.WireError as error:
                raise CandidateError(f"bad output: {error}") from None
        raise CandidateError(_text(payload))


def _text(payload: wire.Data) -> str:
    """The traceback in an exception frame, whatever a hostile program put there."""
    try:
        report = json.loads(payload)
        return str(report["trace"])[-6000:]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "the candidate sent something that is no answer"
