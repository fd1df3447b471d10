"""Random streams of an evaluation, to which the generators that its code reaches are set.

A generator's stream depends on the evaluation's seed and on the generator's name alone, so
workers, repeats and the final choice draw different numbers, and a replay draws the same. After the
call each generator is compared with a twin that stood still: one that moved along its own stream
proves that the evaluation drew random numbers. A generator that the evaluation seeded by itself
left its stream, which proves nothing. Only the standard library is imported here.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NamedTuple

from culmen.jail.plain import Value

IMPORT_SEED = 0
"""The seed under which evaluators are imported: data drawn then are the same in every process."""

_SEARCHED_FIRST = 1 << 8  # numbers of its stream in which a moved generator is looked for first,
_SEARCHED = 1 << 15  # then,
_SEARCHED_LATER = 1 << 12  # and in later calls of one process, for generators that were not found
_WORD_BYTES = 4  # of one number of Python's Mersenne Twister
_PATTERN_BITS = 64  # of the next numbers, by which their place in a stream is recognised
_MASK = (1 << 32) - 1


class NamedGenerator(NamedTuple):
    """A generator with the path by which the evaluator's code reaches it."""

    name: str
    generator: Value


def is_generator(value: object) -> bool:
    """True if the value is a source of random numbers that can be set.

    The system's entropy (`random.SystemRandom`) cannot.
    """
    kind = type(value)  # `isinstance` would wake objects that are made at first use
    if issubclass(kind, random.Random):
        return not issubclass(kind, random.SystemRandom)
    return issubclass(kind, _numpy_kinds() + _torch_kinds())


def _numpy_kinds() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy.random")
    if numpy is None or not hasattr(numpy, "BitGenerator"):  # not loaded yet
        return ()
    return numpy.Generator, numpy.RandomState, numpy.BitGenerator, numpy.SeedSequence


def _torch_kinds() -> tuple[type, ...]:
    torch = sys.modules.get("torch")
    return (torch.Generator,) if torch is not None and hasattr(torch, "Generator") else ()


def stream_seed(seed: int | str, name: str) -> int:
    """The seed of one generator, 63 bits."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Streams:
    """The generators of one process, set before each evaluation and looked at after it."""

    def __init__(self) -> None:
        self._global_seed = 0
        self._set: list[_Stream] = []
        self._known: dict[int, _Stream] = {}
        self._lost: set[str] = set()  # names that left their stream once

    def set_streams(self, seed: int | str, generators: Iterable[NamedGenerator] = ()) -> None:
        """Set the global generators, and each of the others to a seed of its own."""
        self.note_seeded(seed)
        for name, generator in global_generators():
            self._stream_of(name, generator).set_generator(self._global_seed)
        self.set_more(seed, generators)

    def note_seeded(self, seed: int | str) -> None:
        """Take the global generators as set by `seed_globals(seed)`, and no others as set."""
        self._global_seed, self._set = global_seed(seed), []

    def set_more(self, seed: int | str, generators: Iterable[NamedGenerator]) -> None:
        """Set further generators, each to a seed of its own."""
        for name, generator in generators:
            stream = self._stream_of(name, generator)
            stream.set_generator(stream_seed(seed, name))
            self._set.append(stream)

    def _stream_of(self, name: str, generator: Value) -> _Stream:
        stream = self._known.get(id(generator))
        if stream is None or stream.generator is not generator:
            stream = self._known[id(generator)] = _new_stream(name, generator)
        return stream

    def moved_names(self) -> tuple[str, ...]:
        """Names of the generators that moved along their own streams since they were set.

        All generators are somewhere else afterwards.
        """
        everywhere = [self._stream_of(*each) for each in global_generators()]
        for stream in everywhere:
            stream.seed = self._global_seed  # also of one that was loaded since
        return tuple(
            dict.fromkeys(each.name for each in (*everywhere, *self._set) if self._has_drawn(each))
        )

    def _has_drawn(self, stream: _Stream) -> bool:
        if not stream.has_moved():
            return False
        found = stream.is_on_stream(_SEARCHED_LATER if stream.name in self._lost else _SEARCHED)
        if not found:
            self._lost.add(stream.name)
        return found


def global_generators() -> list[NamedGenerator]:
    """The generators behind the functions of `random`, `numpy.random` and `torch`, if loaded."""
    found = [NamedGenerator("random", random._inst)]  # type: ignore[attr-defined]
    legacy = sys.modules.get("numpy.random.mtrand")
    if legacy is not None and hasattr(legacy, "_rand"):
        found.append(NamedGenerator("numpy.random", legacy._rand))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        found.append(NamedGenerator("torch", torch.default_generator))
    return found


class _Stream:
    """The stream that a generator was set to, beside a twin at its beginning."""

    def __init__(self, name: str, generator: Value) -> None:
        self.name, self.generator, self.seed = name, generator, 0
        self._next = self._first = b""  # the next numbers of the generator and of its twin

    def set_generator(self, seed: int) -> None:
        """Set the generator to the beginning of the stream with this seed."""
        raise NotImplementedError

    def has_moved(self) -> bool:
        """True if the generator is not at the beginning; it and the twin go on by some numbers."""
        raise NotImplementedError

    def is_on_stream(self, limit: int) -> bool:
        """True if the generator's next numbers are among the next `limit` of its twin.

        To be asked right after `has_moved`: streams of a kind share a twin.
        """
        raise NotImplementedError


_twins: dict[type, Value] = {}


def _twin_of(kind: type) -> Value:
    """A generator of this kind, the same for all streams: making one takes up to 0.2 ms."""
    if kind not in _twins:
        _twins[kind] = kind(0)
    return _twins[kind]


def prepare_twins() -> None:
    """Make the twins of the global generators, before processes are forked that need them."""
    for _, generator in global_generators():
        if not isinstance(generator, _torch_kinds()):  # those are made anew for each comparison
            _twin_of(type(getattr(generator, "_bit_generator", generator)))


class _PythonStream(_Stream):
    def set_generator(self, seed: int) -> None:
        self.seed = seed
        random.Random.seed(self.generator, seed)  # a subclass may have another `seed`

    def has_moved(self) -> bool:
        twin, draw = _twin_of(random.Random), random.Random.getrandbits
        twin.seed(self.seed)
        mine, first = draw(self.generator, _PATTERN_BITS), twin.getrandbits(_PATTERN_BITS)
        self._next, self._first = mine.to_bytes(8, "little"), first.to_bytes(8, "little")
        return mine != first

    def is_on_stream(self, limit: int) -> bool:
        twin, stream = _twin_of(random.Random), self._first
        for count in _lengths(limit):
            words = twin.getrandbits(8 * _WORD_BYTES * count)
            stream += words.to_bytes(_WORD_BYTES * count, "little")
            if _has_at_multiple(stream, self._next, _WORD_BYTES):
                return True
        return False


class _NumpyStream(_Stream):
    """A bit generator of numpy, alone or inside a Generator or RandomState."""

    def __init__(self, name: str, generator: Value) -> None:
        super().__init__(name, generator)
        self._bits = getattr(generator, "bit_generator", None) or getattr(
            generator, "_bit_generator", generator
        )
        self._is_state = hasattr(generator, "set_state")
        self._is_legacy = self._is_state and hasattr(self._bits, "_legacy_seeding")

    def set_generator(self, seed: int) -> None:
        self.seed = seed
        if self._is_legacy:
            self.generator.seed(seed & _MASK)
            return
        _put_state(self._bits, type(self._bits)(seed))
        if self._is_state:
            kept = self.generator.get_state(legacy=False)
            self.generator.set_state({**kept, "has_gauss": 0, "gauss": 0.0})

    def has_moved(self) -> bool:
        twin = _twin_of(type(self._bits))
        if self._is_legacy:
            twin._legacy_seeding(self.seed & _MASK)
        else:
            _put_state(twin, type(twin)(self.seed))
        self._next = self._bits.random_raw(2).tobytes()
        self._first = twin.random_raw(2).tobytes()
        return self._next != self._first

    def is_on_stream(self, limit: int) -> bool:
        twin = _twin_of(type(self._bits))
        increment = _increment(self._bits)
        if increment is not None:
            return increment == _increment(twin)
        stream = self._first
        for count in _lengths(limit):
            numbers = twin.random_raw(count)
            stream += numbers.tobytes()
            if _has_at_multiple(stream, self._next, numbers.itemsize):
                return True
        return False


def _increment(bits: Value) -> object:
    """The increment of PCG64, another one for each stream (O'Neill 2014); None for other kinds."""
    inner = bits.state["state"] if type(bits).__name__.startswith("PCG64") else {}
    return inner.get("inc")


def _put_state(bits: Value, fresh: Value) -> None:
    """Give a bit generator the state of a fresh one, and the seed that its children come from."""
    try:
        bits.__setstate__((fresh.state, fresh.seed_seq))
    except (AttributeError, TypeError, ValueError):  # older versions keep the children's seed
        bits.state = fresh.state


class _SeedSequenceStream(_Stream):
    """A seed sequence, whose children have numbers."""

    def set_generator(self, seed: int) -> None:
        fresh = type(self.generator)(seed, pool_size=self.generator.pool_size)
        self.generator.__setstate_cython__(fresh.__reduce__()[2])

    def has_moved(self) -> bool:
        return self.generator.n_children_spawned > 0

    def is_on_stream(self, limit: int) -> bool:
        return True


class _TorchStream(_Stream):
    def set_generator(self, seed: int) -> None:
        self.seed, torch = seed, sys.modules["torch"]
        if self.generator is torch.default_generator:
            torch.manual_seed(seed)  # the devices' generators, too
        self.generator.manual_seed(seed)

    def has_moved(self) -> bool:
        torch = sys.modules["torch"]
        first = torch.Generator().manual_seed(self.seed).get_state()
        return not torch.equal(first, self.generator.get_state())

    def is_on_stream(self, limit: int) -> bool:
        return self.generator.initial_seed() == self.seed


def _new_stream(name: str, generator: Value) -> _Stream:
    if isinstance(generator, random.Random):
        return _PythonStream(name, generator)
    if isinstance(generator, _torch_kinds()):
        return _TorchStream(name, generator)
    numpy = sys.modules["numpy.random"]
    if isinstance(generator, numpy.SeedSequence):
        return _SeedSequenceStream(name, generator)
    return _NumpyStream(name, generator)


def _lengths(limit: int) -> tuple[int, int]:
    """Numbers to search first, and then: most calls draw few."""
    return min(limit, _SEARCHED_FIRST), max(0, limit - _SEARCHED_FIRST)


def _has_at_multiple(stream: bytes, pattern: bytes, width: int) -> bool:
    """True if the pattern stands in the stream at a multiple of `width` bytes."""
    at = stream.find(pattern)
    while at >= 0 and at % width:
        at = stream.find(pattern, at + 1)
    return at >= 0


# -- numpy's global generator, from its import on


class _SeedOnImport:
    """An entry of `sys.meta_path` that seeds numpy's global generator as soon as there is one."""

    wanted = "numpy.random.mtrand"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The usual spec, whose loader then seeds; None for every other module."""
        if name != self.wanted:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _SeedingLoader(spec.loader, self.seed)  # type: ignore[assignment]
        return spec


class _SeedingLoader:
    def __init__(self, loader: Value, seed: int) -> None:
        self._loader, self._seed = loader, seed
        self.create_module: Callable[[ModuleSpec], ModuleType | None] = loader.create_module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module._rand.seed(self._seed & _MASK)  # type: ignore[attr-defined]


def global_seed(seed: int | str) -> int:
    """A seed that no evaluator would write: one that seeds with 0 is not on the stream of 0."""
    return stream_seed(seed, "global")


def seed_globals(seed: int | str) -> None:
    """Seed the global generators; numpy's at its import, if that is still to come."""
    seed = global_seed(seed)
    seed_random(seed)
    legacy = sys.modules.get("numpy.random.mtrand")
    if legacy is not None:
        legacy._rand.seed(seed & _MASK)
        return
    sys.meta_path[:] = [each for each in sys.meta_path if not isinstance(each, _SeedOnImport)]
    sys.meta_path.insert(0, _SeedOnImport(seed))  # type: ignore[arg-type]


def seed_random(number: int) -> None:
    """Seed the global generator of `random`, past functions that replace `random.seed`."""
    random.Random.seed(random._inst, number)  # type: ignore[attr-defined]
