"""Versions of what decides in a run: the engine, its strategy and its proposer.

Each has an integer beside its code, raised when it decides otherwise than before, with a sentence
that says how. A run's settings and each of its sessions name them. A resume replays the journal
with the code of today, so it is refused at once if one of them differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from culmen.core.errors import UserError
from culmen.core.ports import Proposer, Strategy, with_protocol_defaults
from culmen.engine import search
from culmen.run.options import RunObjects
from culmen.store.database import RunMeta
from culmen.strategies import catalog


class Decider(NamedTuple):
    """A part that decides: its name for people, its version, and what each version changed."""

    name: str
    version: int
    changes: Mapping[int, str]


def deciders_of(strategy: object, proposer: object, path: str = "") -> dict[str, Decider]:
    """The deciding parts of a run, by the keys of `RunMeta.versions`.

    `strategy` and `proposer` are objects or classes; without a proposer, requests go to the model
    as they are. `path` is the strategy's, for its name. Strategies that it runs are `arm 0`, ...
    """
    searching = with_protocol_defaults(Strategy, strategy)
    name = catalog.strategy_name(path) or "the strategy"
    parts = {
        "engine": Decider("the engine", search.VERSION, search.CHANGES),
        "strategy": Decider(name, searching.version, searching.changes),
    }
    for number, part in enumerate(searching.parts):
        whole = with_protocol_defaults(Strategy, part)
        path = catalog.path_of(type(part))
        name = catalog.strategy_name(path)
        parts[f"arm {number}"] = Decider(name, whole.version, whole.changes)
    if proposer is not None:
        asking = with_protocol_defaults(Proposer, proposer)
        parts["proposer"] = Decider("the proposer", asking.version, asking.changes)
    return parts


def proposer_of(offline: bool, objects: RunObjects) -> object:
    """The proposer of a run, or its class: the object given, else culmen's own."""
    if objects.proposer is not None:
        return objects.proposer
    if offline and (objects.model is None or isinstance(objects.model, Mapping)):
        from culmen.offline.proposer import OfflineProposer

        return OfflineProposer
    from culmen.prompts.writer import FallbackProposer

    return FallbackProposer


def require_same_versions(
    meta: RunMeta, parts: Mapping[str, Decider], run: str | None = None
) -> None:
    """Raise `UserError` if a part of the run decides otherwise today than when it was made.

    A run that names no versions was made before there were any, by the first of each.
    """
    differing: list[str] = []
    for key, part in parts.items():
        made = meta.versions.get(key, 1)
        if made == part.version:
            continue
        differing.append(f"{part.name} was version {made}, and is version {part.version} now")
        later = sorted(number for number in part.changes if number > made)
        differing += [f"  since version {number}: {part.changes[number]}" for number in later]
    if not differing:
        return
    lines = "\n  ".join(differing)
    made_by = f"with culmen {meta.culmen}" if meta.culmen else "with the culmen that made it"
    name = run or meta.id
    raise UserError(
        f"this run cannot go on as it began: what decides in it has changed\n  {lines}",
        where=f"run {meta.id}",
        fix=f"culmen fork {name}  (a new run that reuses every finished result), or resume it "
        f"{made_by}",
    )
