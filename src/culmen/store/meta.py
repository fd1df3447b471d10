"""What a run is: its task, its settings, and where it was made."""

from __future__ import annotations

from typing import Any

import msgspec

from culmen.core.evaluation import Scoring
from culmen.core.options import RunOptions
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.store.codec import decode, encode

FORMAT = 2
"""Version of the journal's format that this program writes; it reads this and everything older."""

_APART = ("model", "models_file", "require", "backend", "embedder", "integrity", "stop_at", "fork_of")


class _Kept(RunOptions, frozen=True, kw_only=True, omit_defaults=True):
    """The options with the values that a journal means where it leaves them out."""

    model: str | dict[str, str] | None = None
    budget: Budget = Budget()
    workers: int = 1


class RunMeta(_Kept, frozen=True, omit_defaults=True):
    """The settings of a run, enough to resume it: its options, and what they came to.

    `strategy` is `{"path": "module:Class", "config": {...}}` and `proposer` has the same form; `models` maps a role to
    the name of its model, never to a key. `trial`: nothing is paid for before an initial
    program has scored. `created` is Unix seconds. `isolation` is the level found in force,
    `scoring` how far scores can be trusted and why. `workers` is 0 until the run first starts, where its cluster is
    to say how many it has room for. `model` is None where a journal does not say.
    """

    id: str
    task: Task
    strategy: dict[str, Any] = msgspec.field(default_factory=dict)
    proposer: dict[str, Any] = msgspec.field(default_factory=dict)
    models: dict[str, str] = msgspec.field(default_factory=dict)
    isolation: str = ""
    scoring: Scoring = Scoring()
    created: float = 0.0
    culmen: str = ""
    python: str = ""
    platform: str = ""
    format: int = FORMAT
    trial: bool = False

    @property
    def options(self) -> RunOptions:
        """The options alone, for a run that begins with them."""
        return RunOptions(**{name: getattr(self, name) for name in RunOptions.__struct_fields__})

    @property
    def model_name(self) -> str:
        """The model in a word; "" where nothing is known of it."""
        return str(self.model or self.models.get("default", ""))


def pack(meta: RunMeta) -> bytes:
    """The settings as a journal stores them: some of the options lie in a table `extra`."""
    plain = msgspec.to_builtins(meta)
    extra = {name: plain.pop(name) for name in _APART if name in plain}
    return encode({**plain, "extra": extra} if extra else plain)


def unpack(raw: bytes) -> RunMeta:
    """The inverse of `pack`; raises `msgspec.DecodeError` for what makes no sense."""
    plain = decode(raw)
    if isinstance(plain, dict):
        extra = plain.pop("extra", {})
        plain |= {name: extra[name] for name in _APART if extra.get(name) is not None}
    return msgspec.convert(plain, RunMeta)
