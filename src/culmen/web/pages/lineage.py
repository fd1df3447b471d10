"""Lineage: the family tree, as columns so that thousands of candidates stay small, and the path to the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from culmen.store import views
from culmen.web.digest import Digest


def lineage(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """Columns by candidate in order of appearance: `parent` is a place in the same columns, -1 for a root.

    `path` are the places from the seed to the best candidate (or to `to`), following first parents.
    """
    run.refresh()
    nodes = views.family(run.run)
    place = {node.id: number for number, node in enumerate(nodes)}
    parents = [place.get(node.parent, -1) for node in nodes]
    parents = [parent if parent < number else -1 for number, parent in enumerate(parents)]  # no cycles
    best = views.best(run.run)
    end = params.get("to") or (best.id if best else "")
    return {
        "ids": [node.id for node in nodes],
        "parents": parents,
        "means": [node.mean for node in nodes],
        "counts": [node.count for node in nodes],
        "failed": [node.failed for node in nodes],
        "evaluations": [run.evaluations_at(node.seq) for node in nodes],
        **_operators([node.operator for node in nodes]),
        "path": _path(place.get(end, -1), parents),
        "best": best.id if best else "",
        "direction": run.meta.task.objective.direction,
    }


def _operators(each: list[str]) -> dict[str, Any]:
    """Names once, and which one each candidate has."""
    names = list(dict.fromkeys(each))
    index = {name: number for number, name in enumerate(names)}
    return {"operators": names, "operator": [index[name] for name in each]}


def _path(end: int, parents: list[int]) -> list[int]:
    path: list[int] = []
    while end >= 0:
        path.append(end)
        end = parents[end]
    return list(reversed(path))
