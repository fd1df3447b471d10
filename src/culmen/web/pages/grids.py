"""Grids of MAP-Elites and islands, put together from what strategies noted of every candidate they placed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from culmen.web.digest import Digest

_BUILT_IN = ("complexity", "diversity")
_ISLANDS = 12
Offer = tuple[str, float, list[float]]  # candidate, reward, features


def islands(run: Digest) -> list[dict[str, Any]]:
    """One row for each island: cells taken, their mean reward, the best, and K where it is adapted."""
    last: dict[int, dict[str, Any]] = {}
    requests: dict[int, int] = {}
    for note in run.notes:
        body = note.body
        if "island" in body and "cells" in body:
            last[int(body["island"])] = body
            requests[int(body["island"])] = requests.get(int(body["island"]), 0) + 1
    rows = [
        {
            "island": island,
            "requests": requests[island],
            "cells": body.get("cells"),
            "quality": body.get("quality"),
            "best": body.get("best"),
            "k": body.get("next_k", body.get("k")),
        }
        for island, body in sorted(last.items())
    ]
    return [{"kind": "islands", "title": "Islands", "rows": rows}] if rows else []


def grids(run: Digest) -> list[dict[str, Any]]:
    """For every island the best reward noted in each cell of its first two dimensions.

    The layout is that of the values noted so far (an adaptive grid is laid out anew as they spread), with the
    strategy's own number of bins. Migrants are counted by the notes, not listed: they are not among these.
    """
    names = _names(run)
    bins = int((run.meta.strategy.get("config") or {}).get("bins", 10))
    panels: list[dict[str, Any]] = []
    for island, offers in sorted(_offers(run).items())[:_ISLANDS]:
        if offers and len(offers[0][2]) == len(names):
            panels.append(_grid(island, offers, names, bins))
    return panels


def _names(run: Digest) -> tuple[str, ...]:
    config = run.meta.strategy.get("config") or {}
    return tuple(config.get("features") or run.meta.task.features or _BUILT_IN)


def _offers(run: Digest) -> dict[int, list[Offer]]:
    found: dict[int, list[Offer]] = {}
    for note in run.notes:
        body = note.body
        for each in _placed(body):
            if each.get("features") and each.get("reward") is not None:
                offer = (str(each["id"]), float(each["reward"]), [float(value) for value in each["features"]])
                found.setdefault(int(body.get("island", 0)), []).append(offer)
    return found


def _placed(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in {"seeded": ("seeds",), "event": ("candidates",), "grid": ("placed",)}.get(str(body.get("note")), ()):
        yield from (each for each in body.get(name) or () if isinstance(each, dict))


def _grid(island: int, offers: Sequence[Offer], names: Sequence[str], bins: int) -> dict[str, Any]:
    spans = [(min(column), max(column)) for column in zip(*(features for *_, features in offers))][:2]
    cells: dict[tuple[int, ...], tuple[str, float, int]] = {}
    for name, reward, features in offers:
        cell = tuple(_bin(value, span, bins) for value, span in zip(features, spans))
        held = cells.get(cell)
        if held is None or reward > held[1]:
            cells[cell] = (name, reward, 1 + (held[2] if held else 0))
        else:
            cells[cell] = (*held[:2], held[2] + 1)
    return {
        "kind": "grid",
        "title": f"Grid of island {island}",
        "axes": [{"name": name, "low": low, "high": high} for name, (low, high) in zip(names, spans)],
        "dimensions": len(names),
        "bins": bins,
        "cells": [{"at": list(at), "id": name, "reward": r, "offers": n} for at, (name, r, n) in sorted(cells.items())],
    }


def _bin(value: float, span: tuple[float, float], bins: int) -> int:
    """As `memory.grid` bins: equal widths, the last one closed."""
    low, high = span
    return 0 if high <= low else min(int((value - low) / (high - low) * bins), bins - 1)
