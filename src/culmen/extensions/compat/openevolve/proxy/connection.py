"""One connection between the two processes: requests and answers, and the values in them.

Values are plain data that keeps its Python types (tuples, sets, ranges, NumPy scalars), and
references to objects that stay where they are: `TypedWriter.refer` makes one, `TypedReader.resolve`
reads it. Random generators travel by their state.
"""

from __future__ import annotations

import json
import math
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from enum import StrEnum
from types import ModuleType
from typing import Any, ClassVar

from culmen.core.json import JsonObject
from culmen.jail import wire
from culmen.jail.wire import WireError

_SETS = {"set": set, "frozenset": frozenset}
_NUMBERS = (bool, int, float, complex)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


class TypedWriter(wire.ValueWriter):
    """Like `wire.ValueWriter`, with types kept; values that are not plain data go to `refer`."""

    def __init__(self) -> None:
        super().__init__(keeps_tuples=True)

    def plain(self, value: object, depth: int) -> object:
        """See `wire.ValueWriter`.

        NumPy's scalars come first, for some of them are Python numbers, too.
        """
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(type(value), numpy.generic):
            return self._typed_scalar(numpy, value, depth)
        return super().plain(value, depth)

    def other(self, value: Any, depth: int) -> object:
        """Sets, byte arrays, ranges and views of dicts; else a reference."""
        kind = type(value)
        for name, base in _SETS.items():
            if issubclass(kind, base):
                return {
                    "$": "set",
                    "v": [name, [self.plain(item, depth + 1) for item in base.__iter__(value)]],
                }
        if kind is bytearray:
            return {"$": "bytearray", "v": self.plain(bytes(value), depth + 1)}
        if kind is range:
            return {"$": "range", "v": [value.start, value.stop, value.step]}
        if kind in _VIEWS:
            return self.plain(list(value), depth)
        return self.refer(value)

    def refer(self, value: object) -> object:
        """A reference to an object that stays here; raise WireError if none is possible."""
        raise WireError(f"{type(value).__name__} is not plain data")

    def _array(self, numpy: ModuleType, value: object, depth: int) -> object:
        array = numpy.asarray(value, order="C")
        if array.dtype.kind in "OUS":
            return self.plain(array.tolist(), depth + 1)
        return self.array_reference(numpy, array)

    def _typed_scalar(self, numpy: ModuleType, value: object, depth: int) -> object:
        name = numpy.asarray(value).dtype.newbyteorder("<").str
        if name not in wire.DTYPES:
            return self._scalar(numpy, value, depth)
        return {"$": "scalar", "v": [name, super().plain(numpy.asarray(value).item(), depth)]}


class TypedReader(wire.ValueReader):
    """The inverse of `TypedWriter`; `odd` is True if a number of the value is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.has_nonfinite = False

    def resolve(self, spec: tuple[object, str, object]) -> object:
        """The object of a reference; raise WireError if there is none."""
        raise WireError("a reference is not allowed here")

    def _float(self, spec: str, depth: int) -> float:
        self.has_nonfinite = True
        return super()._float(spec, depth)

    def _set(self, spec: tuple[str, Iterable[object]], depth: int) -> object:
        name, items = spec
        return _SETS[name](wire.checked_keys(self.revive(list(items), depth)))

    def _scalar(self, spec: tuple[str, object], depth: int) -> object:
        import numpy

        name, value = spec
        plain = self.revive(value, depth + 1)
        if (
            name not in wire.DTYPES or type(plain) not in _NUMBERS
        ):  # from a text NumPy would make a number, too
            raise WireError("not a plain number")
        with numpy.errstate(over="ignore"):
            number = numpy.dtype(name).type(plain)
        self.has_nonfinite = self.has_nonfinite or not numpy.isfinite(number)
        return number

    def _array(self, spec: object, depth: int) -> object:
        import numpy

        array = super()._array(spec, depth)
        if array.dtype.kind in "fc" and not numpy.isfinite(array).all():
            self.has_nonfinite = True
        return array

    def _complex(self, spec: object, depth: int) -> complex:
        value = super()._complex(spec, depth)
        self.has_nonfinite = self.has_nonfinite or not (
            math.isfinite(value.real) and math.isfinite(value.imag)
        )
        return value

    marks: ClassVar[dict[str, Callable[..., object]]] = {
        **wire.ValueReader.marks,
        "float": _float,
        "complex": _complex,
        "array": _array,
        "set": _set,
        "bytearray": lambda self, spec, depth: bytearray(self.revive(spec, depth + 1)),
        "range": lambda _, spec, _depth: range(*spec),
        "scalar": _scalar,
        "ref": lambda self, spec, _depth: self.resolve(spec),
    }


# -- asking and answering
# ------------------------------------------------------------------------------


class ReplyKind(StrEnum):
    """The kinds of frames that answer a question."""

    VALUE = "R"
    EXCEPTION = "E"
    UNSENDABLE = "X"  # there is a value, but it cannot be sent


_REPLIES = frozenset(ReplyKind)
Reply = tuple[str, wire.Data]


class PeerConnection:
    """One end; while waiting for an answer it answers requests.

    `limit` bounds the bytes of one frame from the other side. `answer` handles its requests; if it
    returns None, the answer is sent already. Frames are those of wire.py; while `takes` is above 0,
    at most that many descriptors that come with a frame are put into `fds`. An interrupted exchange
    closes the connection: answers could no longer be matched to requests.
    """

    def __init__(
        self,
        sock: socket.socket,
        limit: int,
        answer: Callable[[PeerConnection, str, wire.Data], Reply | None],
        takes: int = 0,
    ) -> None:
        self.sock, self.limit, self._answer, self.takes = sock, limit, answer, takes
        self.lock = threading.RLock()
        self.fds = list[int]()
        self.broken = False

    def sibling_connection(self, sock: socket.socket) -> PeerConnection:
        """Another connection of the same kind."""
        return PeerConnection(sock, self.limit, self._answer, self.takes)

    def ask(self, kind: str, payload: wire.Data, fds: tuple[int, ...] = ()) -> Reply:
        """Send a request and wait for the answer.

        Raises EOFError if the other side has gone, TooLarge above the limit.
        """
        with self.lock:
            try:
                self.send(kind, payload, fds)
                while True:
                    kind, payload = self.receive()
                    if kind in _REPLIES:
                        return kind, payload
                    self._reply_to_request(kind, payload)
            except BaseException as error:
                self.broken = True
                self.sock.close()
                if isinstance(error, OSError):
                    raise EOFError from None
                raise

    def serve(self) -> None:
        """Answer requests until the other side closes the connection."""
        try:
            while True:
                self._reply_to_request(*self.receive())
        except (EOFError, OSError):
            return

    def _reply_to_request(self, kind: str, payload: wire.Data) -> None:
        answer = self._answer(self, kind, payload)
        if answer is not None:
            self.send(*answer)

    def send(self, kind: str, payload: wire.Data, fds: tuple[int, ...] = ()) -> None:
        """Send one frame; descriptors travel with its first bytes."""
        if fds:
            data = wire.frame_bytes(kind, payload)
            self.sock.sendall(data[wire.send_descriptors(self.sock, data, fds) :])
        else:
            wire.send(self.sock, kind, payload)

    def receive(self) -> Reply:
        """Receive one frame of the other side."""
        first = bytearray()
        if self.takes:
            data, fds, _, _ = socket.recv_fds(self.sock, wire.HEADER_SIZE, self.takes)
            first += data
            self.fds += fds
            if not first:
                raise EOFError
        header = first + wire.receive_exactly(self.sock, wire.HEADER_SIZE - len(first))
        kind, length = wire.parse_header(header, self.limit)
        return kind, wire.receive_exactly(self.sock, length)


def encode_failure(kind: str, trace: str, **more: object) -> bytes:
    """The payload of an exception frame: plain JSON, which every reader treats as text only."""
    return json.dumps({"type": kind, "trace": trace, **more}).encode("utf-8", "replace")


# -- random generators
# ------------------------------------------------------------------------------


_NUMPY = "numpy.random"  # NumPy loads it late, because it is slow to import


def random_state(value: Any) -> tuple[str, object] | None:
    """A random generator as plain data; None for anything else."""
    if type(value) is random.Random:
        return "Random", value.getstate()
    numbers = sys.modules.get(_NUMPY)
    if numbers is None:
        return None
    if type(value) is numbers.Generator:
        return "Generator", value.bit_generator.state
    return (
        ("RandomState", value.get_state(legacy=False))
        if type(value) is numbers.RandomState
        else None
    )


def restore_generator(kind: str, state: Any) -> object:
    """The inverse of `random_state`."""
    if kind == "Random":
        generator = random.Random()
        generator.setstate((state[0], tuple(state[1]), state[2]))
        return generator
    import numpy

    if kind == "RandomState":
        legacy = numpy.random.RandomState()
        legacy.set_state(state)
        return legacy
    bit_generator = getattr(numpy.random, state["bit_generator"])()
    bit_generator.state = state
    return numpy.random.Generator(bit_generator)


def seed_generators(seeds: JsonObject) -> None:
    """Seed the global generators with the evaluator's seeds."""
    if "random" in seeds:
        random.seed(seeds["random"])
    if "numpy" in seeds:
        import numpy

        numpy.random.seed(seeds["numpy"])


def watch_seeding(on_seed: Callable[[str, object], None]) -> None:
    """Call the callback with (module, seed) at every seeding of global generators here."""

    def watch(name: str, module: Any) -> None:
        seed = module.seed

        def seeding(*args: object, **kwargs: object) -> object:
            result = seed(*args, **kwargs)
            value = [*args, *kwargs.values(), None][0]
            on_seed(name, value)
            return result

        module.seed = seeding

    watch("random", random)
    if _NUMPY in sys.modules:
        watch("numpy", sys.modules[_NUMPY])
