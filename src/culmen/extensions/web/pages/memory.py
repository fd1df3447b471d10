"""Memory: the strategy's memory, as far as its notes and embeddings show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard

from culmen.core.json import JsonObject
from culmen.extensions.web.pages.mechanism import KNOWN, TELL, condition_findings
from culmen.extensions.web.runs import Digest, thin_points
from culmen.report.figures import number_text
from culmen.store import views

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FRONT = 30  # rows of the frontier
_LISTED = 200  # entries of a list
_MAPPED = 2_000  # candidates on the map, evenly spread over the run


def memory_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """A list of panels, empty if the notes hold nothing to show.

    Each has a `kind`: map, grid, islands, front, facts or list.
    """
    run.refresh()
    makers: tuple[Callable[[Digest], list[JsonObject]], ...] = (
        island_panels,
        grid_panels,
        _most_used_panels,
        _idea_panels,
        _front_panels,
        _embedding_panels,
        _other_note_panels,
    )
    panels = [panel for make in makers for panel in make(run)]
    best = views.best_result(run.run)
    return {
        "condition": condition_findings(run),
        "panels": panels,
        "best": best.id if best else "",
        "direction": run.meta.task.objective.direction,
        "notes": sorted({note.kind for note in run.notes}),
    }


def latest_note(run: Digest, kind: str) -> JsonObject | None:
    """The newest note of a kind, without its name; None without one."""
    for note in reversed(run.notes):
        if note.kind == kind:
            return {name: value for name, value in note.body.items() if name != "note"}
    return None


def _embedding_panels(run: Digest) -> list[JsonObject]:
    """Embedded candidates in the plane of their two principal components (PCA).

    With figures of the strategy's epsilon-net.
    """
    vectors = run.memoise_result("vectors", run.last, lambda: _embedding_positions(run))
    if not vectors[0]:
        return []
    ids, points, explained = vectors
    best = views.best_result(run.run)
    shown = dict(thin_points(list(zip(ids, points)), _MAPPED))
    if best is not None and best.id in ids:
        shown[best.id] = points[ids.index(best.id)]
    total, ids, points = len(ids), list(shown), list(shown.values())
    net = latest_note(run, "memory") or {}
    nodes = {node.id: node for node in views.family_tree(run.run)}
    drawn = [nodes.get(name) for name in ids]
    return [
        {
            "kind": "map",
            "title": "Candidates by meaning",
            "ids": ids,
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "means": [node.mean if node else None for node in drawn],
            "seen": [bool(node and (node.count or node.failed)) for node in drawn],
            "explained": explained,
            "total": total,
            "net": {
                KNOWN[f"memory {name}"]: net[name]
                for name in ("size", "refused", "epsilon")
                if name in net
            },
        }
    ]


@dataclass
class _Vectors:
    """Embeddings of candidates by id, read up to the event `last`."""

    last: int = 0
    rows: dict[str, NDArray[np.float32]] = field(default_factory=dict)


def _embedding_positions(run: Digest) -> tuple[list[str], list[tuple[float, float]], list[float]]:
    """Ids, positions, and the shares of the variance that the two components explain."""
    import numpy as np

    vectors = run.kept_part("vectors", _Vectors, _Vectors)
    rows = vectors.rows
    for each in views.candidate_embeddings(run.run, vectors.last):
        table = np.frombuffer(each.data, "<f4").reshape(len(each.candidates), each.width)
        rows.update(zip(each.candidates, table, strict=True))
        vectors.last = each.seq
    if len(rows) < 3 or len({len(row) for row in rows.values()}) > 1:
        return [], [], []
    matrix = np.stack(list(rows.values())).astype(np.float64)
    matrix -= matrix.mean(axis=0)
    some = matrix[
        :: max(1, len(matrix) // 4000)  # rows from which the principal components are computed
    ]  # a sample determines the axes; all rows are projected on them
    values, axes = np.linalg.eigh(some.T @ some)
    positions = matrix @ axes[:, ::-1][:, :2]
    variance = float(values.sum()) or 1.0
    explained = [float(value) / variance for value in values[::-1][:2]]
    return list(rows), [(round(float(x), 5), round(float(y), 5)) for x, y in positions], explained


def _front_panels(run: Digest) -> list[JsonObject]:
    """GEPA's frontier: number of cases each member leads on, and its mean by case."""
    note = latest_note(run, "pareto")
    if note is None or not isinstance(note.get("leads"), dict):
        return []
    leads = sorted(note["leads"].items(), key=lambda pair: -pair[1])[:_FRONT]
    means = views.case_means(run.run, [name for name, _ in leads])
    cases = list(dict.fromkeys(case for each in means.values() for case in each))[:60]
    rows = [
        {"id": name, "leads": count, "means": [means.get(name, {}).get(case) for case in cases]}
        for name, count in leads
    ]
    return [
        {
            "kind": "front",
            "title": "Pareto front",
            "rows": rows,
            "cases": cases,
            "members": note.get("members"),
        }
    ]


_DRAWN = {
    "noise",
    "seeded",
    "priority",
    *TELL,
}  # shown by the findings, by other panels, or under Mechanism


def _most_used_panels(run: Digest) -> list[JsonObject]:
    """Candidates used most by the default strategy.

    With their requests for children, repeated evaluations, and latest expected gain.
    """
    used: dict[str, JsonObject] = {}
    for note in run.notes:
        if note.kind == "pedigree" and (name := str(note.body.get("of", ""))):
            row = used.setdefault(
                name, {"id": name, "requests": 0, "repeats": 0, "gain promised last": 0.0}
            )
            row["repeats" if note.body.get("action") == "again" else "requests"] += 1
            row["gain promised last"] = float(note.body.get("gain") or 0.0)
    rows = sorted(used.values(), key=lambda row: -(row["requests"] + row["repeats"]))
    return [_list_panel("Candidates used most", rows, _FRONT)] if rows else []


def _list_panel(title: str, rows: list[JsonObject], most: int = _LISTED) -> JsonObject:
    return {"kind": "list", "title": title, "rows": rows[:most], "count": len(rows)}


def _idea_panels(run: Digest) -> list[JsonObject]:
    """PACEvolve's pools: the ideas of every island in its newest note."""
    newest: dict[int, list[JsonObject]] = {}
    for note in run.notes:
        ideas = note.body.get("ideas")
        if _is_table(ideas):
            newest[int(note.body.get("island", 0))] = ideas
    rows = [
        {"island": island, **idea} for island, ideas in sorted(newest.items()) for idea in ideas
    ]
    return [_list_panel("Idea pool", rows)] if rows else []


def _other_note_panels(run: Digest) -> list[JsonObject]:
    """The newest note of every other kind: plain fields, and lists as tables."""
    kinds = dict.fromkeys(note.kind for note in run.notes)
    panels: list[JsonObject] = []
    for kind in kinds:
        if kind in _DRAWN or not kind:
            continue
        body = latest_note(run, kind) or {}
        facts = _flat_fields(body)
        if facts:
            panels.append({"kind": "facts", "title": kind, "facts": facts})
        for name, value in body.items():
            if _is_table(value) and name != "ideas":
                panels.append(_list_panel(f"{kind}: {name}", value))
    return panels


def _flat_fields(body: JsonObject) -> JsonObject:
    """Fields with a single value, and those of objects one level down."""
    fields: JsonObject = {}
    for name, value in body.items():
        if isinstance(value, dict):
            fields |= {
                f"{name}.{inner}": each
                for inner, each in value.items()
                if not isinstance(each, dict | list)
            }
        elif isinstance(value, list) and not _is_table(value):
            fields[name] = ", ".join(map(_value_text, value[:12])) + (
                " ..." if len(value) > 12 else ""
            )
        elif not isinstance(value, list):
            fields[name] = value
    return fields


def _value_text(value: object) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _is_table(value: object) -> TypeGuard[list[JsonObject]]:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) for each in value[:5])
    )


# Grids of MAP-Elites and islands, from strategies' notes on every candidate they placed.

_BUILT_IN = ("complexity", "diversity")
Offer = tuple[str, float, list[float]]  # candidate, reward, features


def island_panels(run: Digest) -> list[JsonObject]:
    """One row for each island: cells taken, their mean reward, the best, and an adapted K."""
    last: dict[int, JsonObject] = {}
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


def grid_panels(run: Digest) -> list[JsonObject]:
    """For every island, the best reward noted in each cell of its first two dimensions.

    The layout follows the values noted so far (an adaptive grid changes its layout as they spread),
    with the strategy's own number of bins. Migrants are not included: the notes only count them.
    """
    names = _feature_names(run)
    bins = int((run.meta.strategy.get("config") or {}).get("bins", 10))
    panels: list[JsonObject] = []
    for island, offers in sorted(_offers_by_island(run).items())[:12]:
        if offers and len(offers[0][2]) == len(names):
            panels.append(_grid_panel(island, offers, names, bins))
    return panels


def _feature_names(run: Digest) -> tuple[str, ...]:
    config = run.meta.strategy.get("config") or {}
    return tuple(config.get("features") or run.meta.task.features or _BUILT_IN)


def _offers_by_island(run: Digest) -> dict[int, list[Offer]]:
    offers: dict[int, list[Offer]] = {}
    for note in run.notes:
        body = note.body
        for each in _placed_candidates(body):
            if each.get("features") and each.get("reward") is not None:
                offer = (
                    str(each["id"]),
                    float(each["reward"]),
                    [float(value) for value in each["features"]],
                )
                offers.setdefault(int(body.get("island", 0)), []).append(offer)
    return offers


def _placed_candidates(body: JsonObject) -> Iterator[JsonObject]:
    for name in {"seeded": ("seeds",), "event": ("candidates",), "grid": ("placed",)}.get(
        str(body.get("note")), ()
    ):
        yield from (each for each in body.get(name) or () if isinstance(each, dict))


def _grid_panel(
    island: int, offers: Sequence[Offer], names: Sequence[str], bins: int
) -> JsonObject:
    spans = [(min(column), max(column)) for column in zip(*(features for *_, features in offers))][
        :2
    ]
    cells: dict[tuple[int, ...], tuple[str, float, int]] = {}
    for name, reward, features in offers:
        cell = tuple(_bin_of_value(value, span, bins) for value, span in zip(features, spans))
        held = cells.get(cell)
        if held is None or reward > held[1]:
            cells[cell] = (name, reward, 1 + (held[2] if held else 0))
        else:
            cells[cell] = (*held[:2], held[2] + 1)
    return {
        "kind": "grid",
        "title": f"Grid of island {island}",
        "axes": [
            {"name": name, "low": low, "high": high} for name, (low, high) in zip(names, spans)
        ],
        "dimensions": len(names),
        "bins": bins,
        "cells": [
            {"at": list(at), "id": name, "reward": r, "offers": n}
            for at, (name, r, n) in sorted(cells.items())
        ],
    }


def _bin_of_value(value: float, span: tuple[float, float], bins: int) -> int:
    """The bin of a value as in `memory.grid`: equal widths, the last one closed."""
    low, high = span
    return 0 if high <= low else min(int((value - low) / (high - low) * bins), bins - 1)
