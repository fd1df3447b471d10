"""Checkpoints: the stored state of a search, so that a resume replays only what follows.

A strategy's state is in its coroutines, which cannot be stored. A strategy whose lanes share one
object calls `Lab.checkpoint` between two turns of a lane. When a checkpoint is due, the lanes wait
there until nothing is under way: then that object and the engine's own are all there is.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import NamedTuple, Protocol

import msgspec

EVERY = 1000
"""Completions after which a checkpoint is due, for runs made today."""


class SearchState(NamedTuple):
    """All of a search at rest: members of the search and of its lab, by name.

    `remembered` are the keys of evaluations by mark; `strategy` is what the lanes share.
    """

    search: dict[str, object]
    lab: dict[str, object]
    remembered: dict[int, int]
    strategy: object


class CheckpointStore(Protocol):
    """Stores the newest checkpoint of a run."""

    def write(self, seq: int, state: bytes) -> None:
        """Replace the checkpoint by that after the event `seq`, which is durable."""
        ...


SaveState = Callable[[SearchState], None]
"""Called with the state of a search at rest; must be done with it on return."""


def pack_state(state: SearchState, anchors: Mapping[str, object]) -> bytes:
    """A state as bytes; `anchors` are objects that it refers to by name.

    Raises `pickle.PicklingError`, `TypeError` or `AttributeError` if it cannot be stored.
    """
    names = {id(anchor): name for name, anchor in anchors.items()}
    target = io.BytesIO()
    _Packer(target, names).dump(state)
    return target.getvalue()


def unpack_state(packed: bytes, anchors: Mapping[str, object]) -> SearchState:
    """The inverse of `pack_state`, with the anchors of another search.

    For bytes of one's own only: they can name any function to call.
    """
    return _Unpacker(io.BytesIO(packed), anchors).load()


class _Packer(pickle.Pickler):
    """Stores anchors by name, and defaults of structures as such.

    Whether a member is its default decides if it is encoded, and with that random seeds.
    """

    def __init__(self, target: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(target, protocol=5)
        self._names = {**_default_names(), **names}

    def persistent_id(self, obj: object) -> str | None:
        return self._names.get(id(obj))


class _Unpacker(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, anchors: Mapping[str, object]) -> None:
        super().__init__(source)
        self._known = dict(anchors)

    def persistent_load(self, pid: str) -> object:
        if pid not in self._known:
            module, _, name = pid.partition(":")
            struct, _, member = name.rpartition(".")
            self._known[pid] = _defaults_of(getattr(import_module(module), struct))[member]
        return self._known[pid]


def _default_names() -> dict[int, str]:
    """Names of the defaults of all structures of culmen, by identity."""
    names: dict[int, str] = {}
    structs: list[type[msgspec.Struct]] = list(msgspec.Struct.__subclasses__())
    for struct in structs:  # grows
        structs += struct.__subclasses__()
        if struct.__module__.startswith("culmen.") and "." not in struct.__qualname__:
            for member, default in _defaults_of(struct).items():
                names[id(default)] = f"{struct.__module__}:{struct.__name__}.{member}"
    return names


def _defaults_of(struct: type[msgspec.Struct]) -> dict[str, object]:
    """Defaults by name, without those of which Python has a single object."""
    found = {each.name: each.default for each in msgspec.structs.fields(struct)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, float | str | bytes | tuple | msgspec.Struct) and value not in ("", ())
    }
