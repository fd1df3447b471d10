"""How the training of an advisor stands, from its notes."""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from culmen.store.views import noted

if TYPE_CHECKING:
    from sqlalchemy import Connection

WINDOW = 20  # barriers whose alarms are told


class Training(msgspec.Struct, frozen=True):
    """After so many `barriers`: the policy's version, alpha and mean reward of the last one, and why that one took no
    step of the optimiser ("" if it did).

    `alarms` counts barriers by what was wrong with them, `skips` those without a step by the reason, both among the
    last `WINDOW`; `standing` are the alarms of the last one.
    """

    barriers: int
    version: int
    alpha: float
    reward: float | None
    entropy: float | None
    skip: str
    standing: tuple[str, ...]
    alarms: dict[str, int]
    skips: dict[str, int]


def training(connection: Connection) -> Training | None:
    """The training of a run; None if its strategy trains nothing, or no barrier is over."""
    recent = noted.newest(connection, "barrier", WINDOW)
    if not recent:
        return None
    last = recent[0]
    rewards = [float(reward) for reward in last.get("rewards", ())]
    return Training(
        barriers=noted.number(connection, "barrier"),
        version=int(last.get("version", 0)),
        alpha=float(last.get("alpha", 0.0)),
        reward=fmean(rewards) if rewards else None,
        entropy=next((float(each["entropy"]) for each in recent if "entropy" in each), None),
        skip=str(last.get("skip", "")),
        standing=tuple(map(str, last.get("alarms", ()))),
        alarms=dict(Counter(str(name) for each in recent for name in each.get("alarms", ())).most_common()),
        skips=dict(Counter(str(each["skip"]) for each in recent if each.get("skip")).most_common()),
    )
