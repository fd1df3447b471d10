"""Memory: what the strategy keeps, as far as its notes and embeddings tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from culmen.observe.figures import number
from culmen.store import views
from culmen.web.digest import Digest
from culmen.web.pages.grids import grids, islands

_FRONT = 30
_FITTED = 4000  # rows that the main components are taken from
_CASES = 60
_LISTED = 200


def memory(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """A list of panels, each with its `kind`: map, grid, islands, front, facts or list; none where nothing is told."""
    run.refresh()
    makers: tuple[Callable[[Digest], list[dict[str, Any]]], ...] = (islands, grids, _ideas, _front, _map, _rest)
    panels = [panel for make in makers for panel in make(run)]
    best = views.best(run.run)
    return {
        "panels": panels,
        "best": best.id if best else "",
        "direction": run.meta.task.objective.direction,
        "notes": sorted({note.kind for note in run.notes}),
    }


def latest(run: Digest, kind: str) -> dict[str, Any] | None:
    """The newest note of a kind, without its name."""
    for note in reversed(run.notes):
        if note.kind == kind:
            return {name: value for name, value in note.body.items() if name != "note"}
    return None


def _map(run: Digest) -> list[dict[str, Any]]:
    """Embedded candidates in the plane of their two main components (PCA), with the net's own figures beside."""
    vectors = run.memo("vectors", run.last, lambda: _vectors(run))
    if not vectors[0]:
        return []
    ids, points, explained = vectors
    nodes = {node.id: node for node in views.family(run.run)}
    found = [nodes.get(name) for name in ids]
    return [
        {
            "kind": "map",
            "title": "Candidates by meaning",
            "ids": ids,
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "means": [node.mean if node else None for node in found],
            "seen": [bool(node and (node.count or node.failed)) for node in found],
            "explained": explained,
            "net": _flat(latest(run, "memory") or {}),
        }
    ]


def _vectors(run: Digest) -> tuple[list[str], list[tuple[float, float]], list[float]]:
    """Ids, places and the shares of the spread that the two components explain."""
    import numpy as np

    seq, rows = run.kept.get("vectors", (0, {}))
    for each in views.embeddings(run.run, seq):
        table = np.frombuffer(each.data, "<f4").reshape(len(each.candidates), each.width)
        rows.update(zip(each.candidates, table, strict=True))
        seq = each.seq
    run.kept["vectors"] = (seq, rows)
    if len(rows) < 3 or len({len(row) for row in rows.values()}) > 1:
        return [], [], []
    matrix = np.stack(list(rows.values())).astype(np.float64)
    matrix -= matrix.mean(axis=0)
    some = matrix[:: max(1, len(matrix) // _FITTED)]  # the axes of a sample; all are placed on them
    values, axes = np.linalg.eigh(some.T @ some)
    places = matrix @ axes[:, ::-1][:, :2]
    whole = float(values.sum()) or 1.0
    explained = [float(value) / whole for value in values[::-1][:2]]
    return list(rows), [(round(float(x), 5), round(float(y), 5)) for x, y in places], explained


def _front(run: Digest) -> list[dict[str, Any]]:
    """GEPA's frontier: who leads on how many cases, and every member's mean case by case."""
    note = latest(run, "pareto")
    if note is None or not isinstance(note.get("leads"), dict):
        return []
    leads = sorted(note["leads"].items(), key=lambda pair: -pair[1])[:_FRONT]
    means = views.case_means(run.run, [name for name, _ in leads])
    cases = list(dict.fromkeys(case for each in means.values() for case in each))[:_CASES]
    rows = [
        {"id": name, "leads": count, "means": [means.get(name, {}).get(case) for case in cases]}
        for name, count in leads
    ]
    return [{"kind": "front", "title": "Pareto front", "rows": rows, "cases": cases, "members": note.get("members")}]


_DRAWN = {"event", "seeded", "grid", "pareto", "priority"}  # told by the other panels, or under Mechanism


def _ideas(run: Digest) -> list[dict[str, Any]]:
    """PACEvolve's pools: the ideas of every island as its newest note tells them."""
    newest: dict[int, list[Any]] = {}
    for note in run.notes:
        ideas: list[Any] = note.body.get("ideas") or []
        if _is_table(ideas):
            newest[int(note.body.get("island", 0))] = ideas
    rows = [{"island": island, **idea} for island, ideas in sorted(newest.items()) for idea in ideas]
    if not rows:
        return []
    return [{"kind": "list", "title": "Idea pool", "rows": rows[:_LISTED], "count": len(rows)}]


def _rest(run: Digest) -> list[dict[str, Any]]:
    """The newest note of every other kind: its plain fields, and its lists as tables (an idea pool, for one)."""
    kinds = dict.fromkeys(note.kind for note in run.notes)
    mapped = {"memory"} if run.memo("vectors", run.last, lambda: _vectors(run))[0] else set[str]()
    panels: list[dict[str, Any]] = []
    for kind in kinds:
        if kind in _DRAWN | mapped or not kind:
            continue
        body = latest(run, kind) or {}
        facts = _flat(body)
        if facts:
            panels.append({"kind": "facts", "title": kind, "facts": facts})
        for name, value in body.items():
            if _is_table(value) and name != "ideas":
                panels.append(
                    {"kind": "list", "title": f"{kind}: {name}", "rows": value[:_LISTED], "count": len(value)}
                )
    return panels


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that are one value, and those of objects one level down."""
    found: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": each for inner, each in value.items() if not isinstance(each, dict | list)}
        elif isinstance(value, list) and not _is_table(value):
            found[name] = ", ".join(map(_plain, value[:12])) + (" ..." if len(value) > 12 else "")
        elif not isinstance(value, list):
            found[name] = value
    return found


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in _first(value))


def _first(value: Sequence[Any]) -> Sequence[Any]:
    return value[:5]
