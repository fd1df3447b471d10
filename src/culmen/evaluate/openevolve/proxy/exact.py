"""Plain data that keeps its Python types over the wire: tuples, sets, ranges, NumPy scalars; and references.

What a reference means is the affair of the two ends: `Writer.refer` makes one, `Reader.resolve` reads it.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from culmen.evaluate.jail import wire
from culmen.evaluate.jail.wire import WireError

_SETS = {"set": set, "frozenset": frozenset}
_NUMBERS = (bool, int, float, complex)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


class Writer(wire.Writer):
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


class Reader(wire.Reader):
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
