"""Plain data that keeps its Python types over the wire: tuples, sets, ranges, NumPy scalars; and references.

What a reference means is the affair of the two ends: `TypedWriter.refer` makes one, `TypedReader.resolve` reads it.
"""

from __future__ import annotations

import json
import math
import random
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from culmen.evaluate.jail import wire
from culmen.evaluate.jail.wire import WireError

_SETS = {"set": set, "frozenset": frozenset}
_NUMBERS = (bool, int, float, complex)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


class TypedWriter(wire.ValueWriter):
    """Like wire's, with the types kept. What is no plain data goes to `refer`."""

    def plain(self, value: Any, depth: int) -> Any:
        """See wire.Writer; NumPy's scalars come first, for some of them are Python numbers, too."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(type(value), numpy.generic):
            return self._kept(numpy, value, depth)
        return super().plain(value, depth)

    def other(self, value: Any, depth: int) -> Any:
        """Sets, byte arrays, ranges and views of dicts; else a reference."""
        kind = type(value)
        for name, base in _SETS.items():
            if issubclass(kind, base):
                return {"$": "set", "v": [name, [self.plain(item, depth + 1) for item in base.__iter__(value)]]}
        if kind is bytearray:
            return {"$": "bytearray", "v": self.plain(bytes(value), depth + 1)}
        if kind is range:
            return {"$": "range", "v": [value.start, value.stop, value.step]}
        if kind in _VIEWS:
            return self.plain(list(value), depth)
        return self.refer(value)

    def refer(self, value: Any) -> Any:
        """A reference to something that stays here. Raises WireError where there can be none."""
        raise WireError(f"{type(value).__name__} is not plain data")

    def _tuple(self, value: tuple, depth: int) -> Any:
        return {"$": "tuple", "v": super()._tuple(value, depth)}

    def _array(self, numpy: Any, value: Any, depth: int) -> Any:
        array = numpy.asarray(value, order="C")
        if array.dtype.kind in "OUS":
            return self.plain(array.tolist(), depth + 1)
        return self.raw(numpy, array)

    def _kept(self, numpy: Any, value: Any, depth: int) -> Any:
        name = numpy.asarray(value).dtype.newbyteorder("<").str
        if name not in wire.DTYPES:
            return self._scalar(numpy, value, depth)
        return {"$": "scalar", "v": [name, super().plain(numpy.asarray(value).item(), depth)]}


class TypedReader(wire.ValueReader):
    """The inverse. `odd` is whether any number of the value is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = False

    def resolve(self, spec: Any) -> Any:
        """What a reference stands for. Raises WireError."""
        raise WireError("a reference where there can be none")

    def _mark_ref(self, spec: Any, _depth: int) -> Any:
        return self.resolve(spec)

    def _mark_float(self, spec: Any, depth: int) -> float:
        self.odd = True
        return super()._mark_float(spec, depth)

    def _mark_tuple(self, spec: Any, depth: int) -> tuple:
        return tuple(self.revive(list(spec), depth))

    def _mark_set(self, spec: Any, depth: int) -> Any:
        name, items = spec
        return _SETS[name](self.revive(list(items), depth))

    def _mark_bytearray(self, spec: Any, depth: int) -> bytearray:
        return bytearray(self.revive(spec, depth + 1))

    def _mark_range(self, spec: Any, _depth: int) -> range:
        return range(*spec)

    def _mark_scalar(self, spec: Any, depth: int) -> Any:
        import numpy

        name, value = spec
        plain = self.revive(value, depth + 1)
        if name not in wire.DTYPES or type(plain) not in _NUMBERS:  # from a text NumPy would make a number, too
            raise WireError("not a plain number")
        with numpy.errstate(over="ignore"):
            number = numpy.dtype(name).type(plain)
        self.odd = self.odd or not numpy.isfinite(number)
        return number

    def _mark_array(self, spec: Any, depth: int) -> Any:
        import numpy

        array = super()._mark_array(spec, depth)
        if array.dtype.kind in "fc" and not numpy.isfinite(array).all():
            self.odd = True
        return array

    def _mark_complex(self, spec: Any, depth: int) -> complex:
        value = super()._mark_complex(spec, depth)
        self.odd = self.odd or not (math.isfinite(value.real) and math.isfinite(value.imag))
        return value


# Two processes that ask each other over one socket: who waits for an answer answers questions meanwhile.

ANSWERS = ("R", "E", "X")  # a value; an exception; a value that cannot be sent
Reply = tuple[str, wire.Data]


class PeerConnection:
    """One end. `limit` bounds what the other side may send at once; `answer` deals with its questions (None: none).

    Frames are those of wire.py. While `takes` is above 0, descriptors that come along with a frame are put into `fds`.
    An exchange that is broken off, for whatever reason, closes the line: nobody could tell what an answer belongs to.
    """

    def __init__(
        self, sock: socket.socket, limit: int, answer: Callable[[PeerConnection, str, wire.Data], Reply | None]
    ) -> None:
        self.sock, self.limit, self._answer = sock, limit, answer
        self.lock = threading.RLock()
        self.takes, self.fds = 0, list[int]()
        self.broken = False

    def ask(self, kind: str, payload: wire.Data, fds: tuple[int, ...] = ()) -> Reply:
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

    def receive(self) -> Reply:
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


# Random states across processes: generators travel by their state, the evaluator's seeding reaches the candidate.

_NUMPY = "numpy.random"  # loaded late by NumPy itself, which takes longer than all we do


def random_state(value: Any) -> tuple[str, Any] | None:
    """A random generator as plain data; None for anything else."""
    if type(value) is random.Random:
        return "Random", value.getstate()
    numbers: Any = sys.modules.get(_NUMPY)
    if numbers is None:
        return None
    if type(value) is numbers.Generator:
        return "Generator", value.bit_generator.state
    return ("RandomState", value.get_state(legacy=False)) if type(value) is numbers.RandomState else None


def generator(kind: str, state: Any) -> Any:
    """The inverse of `random_state`."""
    if kind == "Random":
        made = random.Random()
        made.setstate((state[0], tuple(state[1]), state[2]))
        return made
    import numpy

    if kind == "RandomState":
        legacy = numpy.random.RandomState()
        legacy.set_state(state)
        return legacy
    bits = getattr(numpy.random, state["bit_generator"])()
    bits.state = state
    return numpy.random.Generator(bits)


def sow(seeds: dict[str, Any]) -> None:
    """Seed the global generators as the evaluator did."""
    if "random" in seeds:
        random.seed(seeds["random"])
    if "numpy" in seeds:
        import numpy

        numpy.random.seed(seeds["numpy"])


def overhear(tell: Callable[[str, Any], None]) -> None:
    """Be told of every seeding of the global generators in this process."""

    def heard(name: str, module: Any) -> None:
        seed = module.seed

        def seeding(*args: Any, **kwargs: Any) -> Any:
            result = seed(*args, **kwargs)
            value = [*args, *kwargs.values(), None][0]
            tell(name, value)
            return result

        module.seed = seeding

    heard("random", random)
    if _NUMPY in sys.modules:
        heard("numpy", sys.modules[_NUMPY])
