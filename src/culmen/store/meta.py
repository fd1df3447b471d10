"""What a run is: its task, its settings, and where it was made."""

from __future__ import annotations

from typing import Any

import msgspec

from culmen.core.evaluation import Scoring
from culmen.core.task import Task
from culmen.core.usage import Budget

FORMAT = 2
"""Version of the journal's format that this program writes; it reads this and everything older."""


class RunMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a run, enough to resume it.

    `strategy` is `{"path": "module:Class", "config": {...}}` and `proposer` has the same form; `models` maps a role to
    the name of its model, never to a key. `created` is Unix seconds. `isolation` is the level found in force,
    `scoring` how far scores can be trusted and why. `workers` is 0 until the run first starts, where its cluster is
    to say how many it has room for.
    """

    id: str
    task: Task
    strategy: dict[str, Any] = {}
    proposer: dict[str, Any] = {}
    models: dict[str, str] = {}
    budget: Budget = Budget()
    seed: int = 0
    workers: int = 1
    isolation: str = ""
    scoring: Scoring = Scoring()
    created: float = 0.0
    culmen: str = ""
    python: str = ""
    platform: str = ""
    format: int = FORMAT
    extra: dict[str, Any] = {}
