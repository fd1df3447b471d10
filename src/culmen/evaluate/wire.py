"""Plain data between processes that do not trust one another: frames, and values as JSON plus raw number buffers.

Nothing here can run code when it is read: no pickle, no object arrays, a short list of number types. A value is
None, bool, int, float, complex, str, bytes, list or tuple (read back as a list), dict, NumPy scalar (read back as a
Python number) or array. Objects of a subclass travel as the plain value underneath, whatever their methods claim.
"""

from __future__ import annotations

import base64
import json
import math
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 64
_DTYPES = frozenset(
    ["|b1", "|i1", "|u1"] + [f"<{kind}" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")]
)
_HEADER = struct.Struct("<IB")
_MARK = "$"  # the one key of a dict that stands for something JSON lacks


class WireError(ValueError):
    """The value or the frame is not plain data within the limits."""


class TooLarge(WireError):
    """The frame is longer than allowed."""


# -- frames --------------------------------------------------------------------------------------------------------


def frame(kind: str, payload: bytes = b"") -> bytes:
    """Length (4 bytes), kind (1 ASCII character), payload."""
    return _HEADER.pack(len(payload), ord(kind)) + payload


def parse_header(header: bytes, limit: int) -> tuple[str, int]:
    """Kind and payload length of a frame; a length above `limit` raises TooLarge."""
    length, kind = _HEADER.unpack(header)
    if length > limit:
        raise TooLarge(f"{length} bytes, {limit} are allowed")
    return chr(kind), length


HEADER_SIZE = _HEADER.size


def send(channel: socket.socket, kind: str, payload: bytes = b"") -> None:
    """Write one frame (blocking)."""
    channel.sendall(frame(kind, payload))


def receive(channel: socket.socket, limit: int) -> tuple[str, bytes]:
    """Read one frame (blocking). Raises EOFError when the other side is gone, TooLarge above `limit` bytes."""
    kind, length = parse_header(_exactly(channel, HEADER_SIZE), limit)
    return kind, _exactly(channel, length)


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


# -- values --------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """The value as bytes; anything but plain data raises WireError."""
    buffers = bytearray()
    try:
        text = json.dumps(_plain(value, buffers, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        document = text.encode("utf-8")
    except (RecursionError, UnicodeEncodeError) as error:
        raise WireError(f"not plain data: {type(error).__name__}") from None
    return b"".join([struct.pack("<I", len(document)), document, buffers])


def decode(data: bytes) -> Any:
    """The value of `encode`d bytes; malformed or hostile bytes raise WireError."""
    try:
        (size,) = struct.unpack_from("<I", data)
        if size > len(data) - 4:
            raise WireError("truncated")
        document = json.loads(str(data[4 : 4 + size], "utf-8"), parse_constant=_refuse_constant)
        # arrays are views of this one copy, so that naming a buffer many times costs the reader nothing
        return _revive(document, memoryview(bytearray(data))[4 + size :], 0)
    except WireError:
        raise
    except (struct.error, ValueError, TypeError, KeyError, RecursionError, OverflowError, MemoryError) as error:
        raise WireError(f"malformed: {type(error).__name__}") from None


def _refuse_constant(name: str) -> Any:
    raise WireError(f"{name} is not JSON")


def _plain(value: Any, buffers: bytearray, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH}")
    for base, convert in _CONVERTERS:
        if issubclass(type(value), base):
            return convert(value, buffers, depth)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if issubclass(type(value), numpy.generic):
            return _plain(_scalar(numpy, value), buffers, depth + 1)
        if issubclass(type(value), numpy.ndarray):
            return _array(numpy, value, buffers, depth)
    raise WireError(f"{type(value).__name__} is not plain data")


def _float(value: float, _buffers: bytearray, _depth: int) -> Any:
    plain = float.__add__(value, 0.0) if type(value) is not float else value
    return plain if math.isfinite(plain) else {_MARK: "float", "v": repr(plain)}


def _integer(value: int, _buffers: bytearray, _depth: int) -> int:
    plain = int.__add__(value, 0)
    if plain.bit_length() > 4096:
        raise WireError("an integer of more than 4096 bits")
    return plain


def _dict(value: dict, buffers: bytearray, depth: int) -> Any:
    pairs = [(k, _plain(v, buffers, depth + 1)) for k, v in dict.items(value)]
    if all(type(k) is str for k, _ in pairs) and _MARK not in dict.keys(value):
        return dict(pairs)
    return {_MARK: "dict", "v": [[_plain(k, buffers, depth + 1), v] for k, v in pairs]}


def _sequence(iterate: Callable[[Any], Any]) -> Callable[[Any, bytearray, int], Any]:
    return lambda value, buffers, depth: [_plain(v, buffers, depth + 1) for v in iterate(value)]


def _bytes(value: bytes, _buffers: bytearray, _depth: int) -> Any:
    return {_MARK: "bytes", "v": base64.b64encode(bytes.__getitem__(value, slice(None))).decode()}


def _complex(value: complex, buffers: bytearray, depth: int) -> Any:
    plain = complex.__add__(value, 0j)
    return {_MARK: "complex", "v": [_float(plain.real, buffers, depth), _float(plain.imag, buffers, depth)]}


def _scalar(numpy: Any, value: Any) -> Any:
    plain = numpy.asarray(value).item()
    if issubclass(type(plain), numpy.generic):  # long doubles have no Python counterpart
        return float(plain)
    return plain


def _array(numpy: Any, value: Any, buffers: bytearray, depth: int) -> Any:
    array = numpy.array(value, copy=True, subok=False, order="C")
    if array.dtype.kind in "OUS" or array.ndim == 0:
        return _plain(array.tolist(), buffers, depth + 1)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype("<f8")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    name = array.dtype.str
    if name not in _DTYPES:
        raise WireError(f"an array of {array.dtype} is not plain data")
    offset = len(buffers)
    buffers += array.tobytes()
    return {_MARK: "array", "v": [name, list(array.shape), offset, len(buffers) - offset]}


_CONVERTERS: tuple[tuple[type, Callable[[Any, bytearray, int], Any]], ...] = (
    (type(None), lambda value, _b, _d: None),
    (bool, lambda value, _b, _d: value),
    (int, _integer),
    (float, _float),
    (str, lambda value, _b, _d: str.__str__(value) if type(value) is str else str.__add__("", value)),
    (list, _sequence(list.__iter__)),
    (tuple, _sequence(tuple.__iter__)),
    (dict, _dict),
    (bytes, _bytes),
    (complex, _complex),
)


def _revive(value: Any, buffers: memoryview, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise WireError("nested too deep")
    if isinstance(value, str):
        value.encode("utf-8")  # lone surrogates would break databases and terminals far from here
        return value
    if isinstance(value, list):
        return [_revive(item, buffers, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK in value:
        return _REVIVERS[value[_MARK]](value["v"], buffers, depth)
    return {_revive(k, buffers, depth + 1): _revive(v, buffers, depth + 1) for k, v in value.items()}


def _slice(buffers: memoryview, offset: Any, size: Any) -> memoryview:
    if type(offset) is not int or type(size) is not int or not 0 <= offset <= offset + size <= len(buffers):
        raise WireError("a buffer outside the frame")
    return buffers[offset : offset + size]


def _revive_array(spec: Any, buffers: memoryview, _depth: int) -> Any:
    import numpy

    name, shape, offset, size = spec
    if name not in _DTYPES or len(shape) > 32 or not all(type(n) is int and n >= 0 for n in shape):
        raise WireError("not an array of plain numbers")
    dtype = numpy.dtype(name)
    if math.prod(shape) * dtype.itemsize != size:
        raise WireError("array shape and size disagree")
    return numpy.frombuffer(_slice(buffers, offset, size), dtype).reshape(shape)


def _revive_dict(pairs: Any, buffers: memoryview, depth: int) -> dict:
    keys = [_revive(key, buffers, depth + 1) for key, _ in pairs]
    keys = [tuple(key) if isinstance(key, list) else key for key in keys]
    return dict(zip(keys, [_revive(item, buffers, depth + 1) for _, item in pairs]))


_REVIVERS: dict[str, Callable[[Any, memoryview, int], Any]] = {
    "float": lambda spec, _b, _d: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[spec],
    "bytes": lambda spec, _b, _d: base64.b64decode(spec, validate=True),
    "complex": lambda spec, buffers, depth: complex(*(float(_revive(part, buffers, depth + 1)) for part in spec)),
    "array": _revive_array,
    "dict": _revive_dict,
}
