"""Plain data between processes that do not trust each other.

Frames, and values as JSON plus raw number buffers. Reading them cannot run code: no pickle, no
object arrays, a short list of number types. A value is None, bool, int, float, complex, str, bytes,
list or tuple (read back as a list unless `keeps_tuples`), dict, NumPy scalar (read back as a Python
number) or array.
Objects of a subclass travel as the plain value underneath; their methods are not called.
"""

from __future__ import annotations

import errno
import json
import math
import resource
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

MAX_DEPTH = 64  # of nested data: deep enough for documents, far from Python's limit of recursion
PACKET_BYTES = 1 << 16  # read at once from a control channel: its messages are shorter
DTYPES = frozenset(
    ["|b1", "|i1", "|u1"]
    + [f"<{kind}" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")]
)
Data = bytes | bytearray
T = TypeVar("T")
_HEADER = struct.Struct("<IB")
_LONG_BYTES = 1 << 16  # longer payloads are sent without a copy
# keys of one hash in a dict: hashes can be chosen, and n equal ones take n**2 time
_EQUAL_HASH_LIMIT = 50
_ALIGNED = 8  # raw numbers begin at a multiple of this number of bytes
_MARK = "$"  # key of a dict that stands for a value that JSON lacks


class WireError(ValueError):
    """The value or the frame is not plain data within the limits."""


class TooLarge(WireError):
    """The frame is longer than allowed."""


# -- frames
# ------------------------------------------------------------------------------


def frame_bytes(kind: str, payload: Data = b"") -> bytes:
    """Length (4 bytes), kind (1 ASCII character), payload."""
    return _HEADER.pack(len(payload), ord(kind)) + payload


def parse_header(header: Data, limit: int) -> tuple[str, int]:
    """Kind and payload length of a frame; a length above `limit` raises TooLarge."""
    length, kind = _HEADER.unpack(header)
    if length > limit:
        raise TooLarge(f"{length} bytes, {limit} are allowed")
    return chr(kind), length


HEADER_SIZE = _HEADER.size


def send(channel: socket.socket, kind: str, payload: Data = b"") -> None:
    """Write one frame (blocking)."""
    if len(payload) < _LONG_BYTES:
        channel.sendall(frame_bytes(kind, payload))
    else:  # two calls are cheaper than a copy
        channel.sendall(_HEADER.pack(len(payload), ord(kind)))
        channel.sendall(payload)


def receive(channel: socket.socket, limit: int) -> tuple[str, Data]:
    """Read one frame (blocking).

    Raises EOFError if the other side has gone, TooLarge above `limit` bytes.
    """
    kind, length = parse_header(receive_exactly(channel, HEADER_SIZE), limit)
    return kind, receive_exactly(channel, length)


def receive_exactly(channel: socket.socket, size: int) -> bytearray:
    """Read exactly `size` bytes (blocking); raise EOFError if the other side has gone."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = channel.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def send_descriptors(channel: socket.socket, data: bytes, fds: Sequence[int]) -> int:
    """Send data with descriptors; return the number of bytes sent, raise OSError if that fails.

    The kernel refuses them while the user has more in flight, in all processes, than this one may
    open. Candidates can cause that, so this process may open more for a moment.
    """
    try:
        return socket.send_fds(channel, [data], list(fds))
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            return socket.send_fds(channel, [data], list(fds))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- values
# ------------------------------------------------------------------------------


def encode(value: object, keeps_tuples: bool = False) -> bytes:
    """The value as bytes; raise WireError unless it is plain data."""
    return ValueWriter(keeps_tuples).encode(value)


def decode(data: Data, limit: int | None = None) -> Any:
    """The value of `encode`d bytes; raise WireError if they are malformed or hostile.

    An array without elements has a shape, from which a reader may make much: raise TooLarge if its
    other sides are those of an array of more than `limit` bytes.
    """
    return ValueReader(limit).decode(data)


class ValueWriter:
    """Turns one value into bytes, once.

    `forms` maps each plain type to its writer; subclasses may accept more kinds of values in
    `other`.
    """

    # in this order, because a bool is also an int
    forms: ClassVar[tuple[tuple[type, Callable[..., object]], ...]]

    def __init__(self, keeps_tuples: bool = False) -> None:
        self._keeps_tuples = keeps_tuples
        self._chunks: list[bytes | memoryview] = []
        self._size = 0

    def encode(self, value: object) -> bytes:
        """See `encode`."""
        try:
            text = json.dumps(
                self.plain(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":")
            )
            document = text.encode("utf-8")
        except (RecursionError, UnicodeEncodeError) as error:
            raise WireError(f"not plain data: {type(error).__name__}") from None
        document += b" " * (-(4 + len(document)) % _ALIGNED)
        return b"".join([struct.pack("<I", len(document)), document, *self._chunks])

    def plain(self, value: object, depth: int) -> object:
        """The value as JSON has it; numbers of arrays go into the buffers."""
        if depth > MAX_DEPTH:
            raise WireError(f"nested deeper than {MAX_DEPTH}")
        kind = type(value)
        form = self.exact.get(kind)
        if form is not None:
            return form(self, value, depth)
        for base, form in self.forms:
            if issubclass(kind, base):
                return form(self, value, depth)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if issubclass(kind, numpy.generic):
                return self._scalar(numpy, value, depth)
            if issubclass(kind, numpy.ndarray):
                return self._array(numpy, value, depth)
        return self.other(value, depth)

    def other(self, value: object, depth: int) -> object:
        """Write a value that is not plain data."""
        raise WireError(f"{type(value).__name__} is not plain data")

    def _none(self, value: None, _depth: int) -> None:
        return None

    def _bool(self, value: bool, _depth: int) -> bool:
        return value

    def _int(self, value: int, _depth: int) -> int:
        plain = int.__add__(value, 0)
        if plain.bit_length() > 4096:
            raise WireError("an integer of more than 4096 bits")
        return plain

    def _float(self, value: float, _depth: int) -> object:
        plain = float.__add__(value, 0.0) if type(value) is not float else value
        return plain if math.isfinite(plain) else {_MARK: "float", "v": repr(plain)}

    def _str(self, value: str, _depth: int) -> str:
        return value if type(value) is str else str.__add__("", value)

    def _list(self, value: list, depth: int) -> object:
        return [self.plain(item, depth + 1) for item in list.__iter__(value)]

    def _tuple(self, value: tuple, depth: int) -> object:
        items = [self.plain(item, depth + 1) for item in tuple.__iter__(value)]
        return {_MARK: "tuple", "v": items} if self._keeps_tuples else items

    def _dict(self, value: dict, depth: int) -> object:
        pairs = [(k, self.plain(v, depth + 1)) for k, v in dict.items(value)]
        if all(type(k) is str for k, _ in pairs) and _MARK not in dict.keys(value):
            return dict(pairs)
        return {_MARK: "dict", "v": [[self.plain(k, depth + 1), v] for k, v in pairs]}

    def _bytes(self, value: bytes, _depth: int) -> object:
        return {
            _MARK: "bytes",
            "v": self._append_buffer(bytes.__getitem__(value, slice(None)), bytes.__len__(value)),
        }

    def _complex(self, value: complex, depth: int) -> object:
        plain = complex.__add__(value, 0j)
        return {
            _MARK: "complex",
            "v": [self._float(plain.real, depth), self._float(plain.imag, depth)],
        }

    def _scalar(self, numpy: ModuleType, value: object, depth: int) -> object:
        plain = numpy.asarray(value).item()
        if issubclass(type(plain), numpy.generic):  # long doubles have no Python counterpart
            plain = float(plain)
        return self.plain(plain, depth + 1)

    def _array(self, numpy: ModuleType, value: object, depth: int) -> object:
        array = numpy.asarray(value, order="C")
        if array.dtype.kind in "OUS" or array.ndim == 0:
            return self.plain(array.tolist(), depth + 1)
        return self.array_reference(numpy, array)

    def array_reference(self, numpy: ModuleType, array: Any) -> object:
        """An array of numbers as a reference to its bytes in the buffers.

        Not a subclass, C order.
        """
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            array = array.astype("<f8")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        name = array.dtype.str
        if name not in DTYPES:
            raise WireError(f"an array of {array.dtype} is not plain data")
        numbers = memoryview(array.reshape(-1).view(numpy.uint8)) if array.size else b""
        return {
            _MARK: "array",
            "v": [name, list(array.shape), *self._append_buffer(numbers, array.nbytes)],
        }

    def _append_buffer(self, chunk: bytes | memoryview, size: int) -> list[int]:
        """Append raw bytes to the buffers; return their offset and size."""
        offset, padding = self._size, -size % _ALIGNED
        self._chunks += (chunk, bytes(padding))
        self._size += size + padding
        return [offset, size]

    forms = (
        (type(None), _none),
        (bool, _bool),
        (int, _int),
        (float, _float),
        (str, _str),
        (list, _list),
        (tuple, _tuple),
        (dict, _dict),
        (bytes, _bytes),
        (complex, _complex),
    )
    exact: ClassVar[dict[type, Callable[..., object]]] = dict(forms)


class ValueReader:
    """Turns bytes back into one value.

    `marks` maps each kind of value besides JSON's own to its reader; subclasses may add more.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.buffers, self._taken, self._limit = memoryview(b""), 0, limit

    def decode(self, data: Data) -> Any:
        """See `decode`."""
        try:
            (size,) = struct.unpack_from("<I", data)
            if size > len(data) - 4:
                raise WireError("truncated")
            document = json.loads(str(data[4 : 4 + size], "utf-8"), parse_constant=_refuse_constant)
            # arrays are views of the one copy
            self.buffers = memoryview(data if isinstance(data, bytearray) else bytearray(data))[
                4 + size :
            ]
            return self.revive(document, 0)
        except WireError:
            raise
        except (
            struct.error,
            ValueError,
            TypeError,
            KeyError,
            RecursionError,
            OverflowError,
            MemoryError,
        ) as error:
            raise WireError(f"malformed: {type(error).__name__}") from None

    def revive(self, value: object, depth: int) -> Any:
        """The inverse of `ValueWriter.plain`."""
        if depth > 2 * MAX_DEPTH:
            raise WireError("nested too deep")
        if isinstance(value, str):
            if not value.isascii():
                value.encode("utf-8")  # lone surrogates would break databases and terminals
            return value
        if isinstance(value, float) and not math.isfinite(value):
            # 1e999, for example: values that are not finite have a mark of their own
            raise WireError("a number out of range")
        if isinstance(value, list):
            return [self.revive(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        if _MARK in value:
            return self._read_marked(value[_MARK], value["v"], depth)
        return {self.revive(k, depth + 1): self.revive(v, depth + 1) for k, v in value.items()}

    def _read_marked(self, name: object, spec: object, depth: int) -> Any:
        read = self.marks.get(name) if type(name) is str else None
        if read is None:
            raise WireError("an unknown mark")
        return read(self, spec, depth)

    def _float(self, spec: str, _depth: int) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[spec]

    def _bytes(self, spec: Any, _depth: int) -> bytes:
        return bytes(self._buffer_slice(*spec))

    def _complex(self, spec: Any, depth: int) -> complex:
        real, imag = (self.revive(part, depth + 1) for part in spec)
        if type(real) is not float or type(imag) is not float:
            raise WireError("not a complex number")
        return complex(real, imag)

    def _tuple(self, spec: list[object], depth: int) -> tuple:
        return tuple(self.revive(list(spec), depth))

    def _dict(self, pairs: Any, depth: int) -> dict:
        # items first: in the order in which they were written
        items = [self.revive(item, depth + 1) for _, item in pairs]
        keys = [self.revive(key, depth + 1) for key, _ in pairs]
        names = [tuple(key) if isinstance(key, list) else key for key in keys]
        return dict(zip(checked_keys(names), items))

    def _array(self, spec: Any, _depth: int) -> Any:
        import numpy

        name, shape, offset, size = spec
        if (
            name not in DTYPES
            or len(shape) > 32
            or not all(type(n) is int and n >= 0 for n in shape)
        ):
            raise WireError("not an array of plain numbers")
        dtype = numpy.dtype(name)
        if math.prod(shape) * dtype.itemsize != size:
            raise WireError("array shape and size disagree")
        outline = math.prod(max(1, n) for n in shape) * dtype.itemsize
        if self._limit is not None and outline > self._limit:
            raise TooLarge(f"an empty array with the sides of one of {outline:,} bytes")
        numbers = self._buffer_slice(offset, size)
        if name == "|b1" and numpy.frombuffer(numbers, numpy.uint8).max(initial=0) > 1:
            raise WireError("neither true nor false")
        return numpy.frombuffer(numbers, dtype).reshape(shape)

    def _buffer_slice(self, offset: object, size: object) -> memoryview:
        """A piece of the buffers.

        Pieces come in order and no two values share one: arrays stay independent, and a short frame
        cannot expand into many copies.
        """
        if type(offset) is not int or type(size) is not int or size < 0:
            raise WireError("not a buffer")
        if not self._taken <= offset <= offset + size <= len(self.buffers):
            raise WireError("a buffer outside the frame, or one that is used twice")
        self._taken = offset + size
        return self.buffers[offset : self._taken]

    marks: ClassVar[dict[str, Callable[..., object]]] = {
        "float": _float,
        "bytes": _bytes,
        "complex": _complex,
        "tuple": _tuple,
        "dict": _dict,
        "array": _array,
    }


def checked_keys(keys: list[T]) -> list[T]:
    """The keys of a table to be built; raise WireError if too many of them have one hash."""
    if max(Counter(map(hash, keys)).values(), default=0) > _EQUAL_HASH_LIMIT:
        raise WireError("too many keys with the same hash")
    return keys


def _refuse_constant(name: str) -> NoReturn:
    raise WireError(f"{name} is not JSON")


# -- texts and traces of an evaluation
# ------------------------------------------------------------------------------


def storable_text(text: str, limit: int = 20_000) -> str:
    """Text that every database and terminal accepts, cut in the middle to `limit` characters."""
    text = (
        text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
    if len(text) <= limit:
        return text
    half = (limit - 20) // 2
    return f"{text[:half]}\n[... cut ...]\n{text[-half:]}"


class EvaluationTraces(NamedTuple):
    """Traces of one evaluation in its process.

    `drew` names the generators that moved along their streams, `left` the state that it changed,
    `imported` the modules of libraries that it imported if settings are others since.
    """

    drew: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if the next evaluation would find the first state."""
        return not self.left and not self.imported

    def as_json(self) -> dict[str, list[str]]:
        """The names that there are, for an answer."""
        return {key: list(names) for key, names in self._asdict().items() if names}

    @staticmethod
    def from_json(found: object) -> EvaluationTraces:
        """Traces from an answer, in which nothing is trusted; raise ValueError for another form."""
        if not isinstance(found, dict):
            raise ValueError("not an object")
        read = [found.get(key, ()) for key in EvaluationTraces._fields]
        return EvaluationTraces(*(tuple(str(name)[:100] for name in names) for names in read))
