"""Values with their types as bytes, for timed programs: MessagePack with extensions.

As `wire`, reading cannot run code, but it is done in C, and tuples, sets, sparse matrices and
records stay what they are: a solver gets the input that its generator made. A value is None, bool,
int, float, complex, str, bytes, list, tuple, set, frozenset, dict, NumPy array or scalar, sparse
matrix of SciPy, or a record (NamedTuple, dataclass; read back as a named tuple).
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from culmen.jail.wire import DTYPES, MAX_DEPTH, Data, WireError, checked_keys

Plain: TypeAlias = Any  # a value of the kinds above, also of packages that may not be loaded
_TUPLE, _SET, _FROZENSET, _PAIRS, _COMPLEX, _INTEGER, _ARRAY, _SPARSE, _RECORD = range(1, 10)
_CONTAINERS: dict[type, int] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_FLAT = frozenset({float, bool, type(None), str, bytes})  # values that need no look
_KEYS = frozenset({str, int, float, bool, type(None), bytes})
_BASES: tuple[Plain, ...] = (int, float, str, bytes, list, tuple, dict, set, frozenset)
_WIDE_BITS = 63  # larger integers travel as texts
_LONGEST_INTEGER = 4096  # characters of one
_COMPRESSED = ("csr", "csc")


def encode(value: object) -> bytes:
    """The value as bytes; raise WireError if it is not plain data."""
    try:
        return msgspec.msgpack.encode(_packed(value, 0))
    except (RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise WireError(f"not plain data: {type(error).__name__}") from None


def decode(data: Data) -> Plain:
    """The value of `encode`d bytes; raise WireError if they are malformed or hostile."""
    try:
        return _decoder.decode(data)
    except WireError:
        raise
    except (
        msgspec.DecodeError,
        struct.error,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        raise WireError(f"malformed: {type(error).__name__}: {error}"[:300]) from None


def _packed(value: Plain, depth: int) -> Plain:
    """The value as MessagePack has it; objects that need no change are returned unchanged."""
    if depth > MAX_DEPTH:
        raise WireError(f"nested deeper than {MAX_DEPTH}")
    kind = type(value)
    if kind in _FLAT:
        return value
    if kind is int:
        return value if value.bit_length() <= _WIDE_BITS else _wide_integer(value)
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= _FLAT or (kinds <= _KEYS and _fits(value)):
            return value
        return [_packed(item, depth + 1) for item in value]
    if kind is dict:
        return _packed_dict(value, depth)
    if kind in _CONTAINERS:
        return _extension(_CONTAINERS[kind], _packed(list(value), depth + 1))
    return _packed_object(value, depth)


def _fits(value: list[Plain]) -> bool:
    """True if all integers of a list of plain scalars fit into 64 bits."""
    whole = [item for item in value if type(item) is int]
    return not whole or max(map(int.bit_length, (max(whole), min(whole)))) <= _WIDE_BITS


def _wide_integer(value: int) -> msgspec.msgpack.Ext:
    text = hex(value)
    if len(text) > _LONGEST_INTEGER:
        raise WireError(f"an integer of more than {4 * _LONGEST_INTEGER} bits")
    return _extension(_INTEGER, text)


def _packed_dict(value: dict[Plain, Plain], depth: int) -> Plain:
    items = {key: _packed(item, depth + 1) for key, item in value.items()}
    if set(map(type, items)) <= _KEYS and _fits(list(items)):
        return items
    keys = [_packed(key, depth + 1) for key in items]
    return _extension(_PAIRS, [keys, list(items.values())])


def _packed_object(value: Plain, depth: int) -> Plain:
    """Values of NumPy and SciPy, records, and subclasses of plain types."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _packed_array(numpy, value, depth)
    if numpy is not None and isinstance(value, numpy.generic):
        plain = value.item()
        return _packed(float(plain) if isinstance(plain, numpy.generic) else plain, depth)
    if isinstance(value, complex):
        return msgspec.msgpack.Ext(_COMPLEX, struct.pack("<dd", value.real, value.imag))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return _record(type(value).__name__, names, [getattr(value, n) for n in names], depth)
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", None)) is not None:
        return _record(type(value).__name__, list(fields), list(value), depth)
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(value):
        return _packed_sparse(value, depth)
    for base in _BASES:
        if isinstance(value, base):
            return _packed(base(value), depth)
    raise WireError(f"{type(value).__name__} is not plain data")


def _packed_array(numpy: Plain, value: Plain, depth: int) -> Plain:
    array = numpy.asarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype("<f8")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    order = "F" if array.ndim > 1 and array.flags.f_contiguous else "C"
    if array.dtype.str not in DTYPES:
        return _packed(array.tolist(), depth + 1)
    head = msgspec.msgpack.encode([array.dtype.str, order, list(array.shape)])
    start = struct.pack("<I", len(head)) + head
    return msgspec.msgpack.Ext(_ARRAY, start + array.tobytes(order=order))


def _packed_sparse(value: Plain, depth: int) -> Plain:
    kind = value.format
    stored = value if kind in _COMPRESSED else value.tocoo()
    pieces = (
        [stored.data, stored.indices, stored.indptr]
        if kind in _COMPRESSED
        else [stored.data, stored.row, stored.col]
    )
    is_array = type(value).__name__.endswith("_array")
    whole = [kind, is_array, list(value.shape), [_packed(each, depth + 1) for each in pieces]]
    return _extension(_SPARSE, whole)


def _record(name: str, fields: list[str], values: list[Plain], depth: int) -> msgspec.msgpack.Ext:
    return _extension(_RECORD, [name, fields, [_packed(each, depth + 1) for each in values]])


def _extension(code: int, value: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def _read_extension(code: int, data: memoryview) -> Plain:
    """The value of one extension; raises what the decoder turns into WireError."""
    if code == _ARRAY:
        return _read_array(data)
    if code == _COMPLEX:
        return complex(*struct.unpack("<dd", data))
    inner = _decoder.decode(data)
    read = _READERS.get(code)
    if read is None:
        raise WireError("an unknown extension")
    return read(inner)


def _read_array(data: memoryview) -> Plain:
    import numpy

    (size,) = struct.unpack_from("<I", data)
    name, order, shape = msgspec.msgpack.decode(data[4 : 4 + size], type=tuple[str, str, list[int]])
    if name not in DTYPES or order not in ("C", "F") or len(shape) > 32:
        raise WireError("not an array of plain numbers")
    numbers = data[4 + size :]
    if name == "|b1" and numpy.frombuffer(numbers, numpy.uint8).max(initial=0) > 1:
        raise WireError("neither true nor false")
    # a copy is aligned, owned and can be written to, as an array that a program made itself
    return numpy.frombuffer(numbers, numpy.dtype(name)).reshape(shape, order=order).copy(order)


def _read_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise WireError("an integer that is too long")
    return int(text, 16)


def _read_pairs(pairs: list[list[Plain]]) -> dict[Plain, Plain]:
    keys, values = pairs
    return dict(zip(checked_keys(keys), values, strict=True))


def _read_sparse(whole: list[Plain]) -> Plain:
    import scipy.sparse

    kind, is_array, shape, pieces = whole
    if kind not in ("csr", "csc", "coo", "lil", "dok", "dia", "bsr"):
        raise WireError("an unknown sparse format")
    base = kind if kind in _COMPRESSED else "coo"
    make = getattr(scipy.sparse, f"{base}_{'array' if is_array else 'matrix'}")
    first, second, third = pieces
    content = (first, second, third) if kind in _COMPRESSED else (first, (second, third))
    matrix = make(content, shape=tuple(shape))
    if kind in _COMPRESSED:
        matrix.check_format(full_check=True)  # SciPy's code trusts the indices
    return matrix if base == kind else matrix.asformat(kind)


def _read_record(whole: list[Plain]) -> Plain:
    name, fields, values = whole
    return _record_type(name, tuple(fields))(*values)


@lru_cache(256)
def _record_type(name: str, fields: tuple[str, ...]) -> Plain:
    """The named tuple of a record; `namedtuple` raises ValueError for other than identifiers."""
    if len(fields) > 100:  # of a record
        raise WireError("a record of too many fields")
    return namedtuple(name, fields)


_READERS: dict[int, Callable[[Plain], Plain]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _PAIRS: _read_pairs,
    _INTEGER: _read_integer,
    _SPARSE: _read_sparse,
    _RECORD: _read_record,
}
_decoder: msgspec.msgpack.Decoder[Plain] = msgspec.msgpack.Decoder(ext_hook=_read_extension)
