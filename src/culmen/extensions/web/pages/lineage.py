"""Lineage: the path to one candidate, its branches with counts, and the density of the rest.

The document is bounded: small families are sent whole, of large ones the path, the best branches
of each of its steps and a grid of counts; further branches are asked for one candidate at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.web.pages.candidates import resolve_candidate
from culmen.extensions.web.runs import Digest
from culmen.store import views
from culmen.store.views import FamilyNode

WHOLE = 1_000  # candidates up to which the family is sent whole
_UNCUT = 24  # steps of a path that is shown whole
_COLUMNS, _ROWS = 80, 32  # cells of the density
# distance of the best from the median, as a multiple, beyond which a worse score is far off; and
# scores below which none is: three times is Tukey's outer fence, of the better half alone, since
# any share of the worse half may be ruins
_FAR, _FEW = 3.0, 8
_BINS = 24  # bars of the scores that were tried at a step


class _Family(NamedTuple):
    """The tree by place, which is the order of appearance; parents stand before their children."""

    nodes: list[FamilyNode]
    index: dict[str, int]
    parents: list[int]  # -1: a root
    children: dict[int, list[int]]
    size: list[int]  # of a candidate and all its descendants
    top: list[float | None]  # the best mean among these
    sign: int  # -1 if less is better
    domain: tuple[float, float]


def lineage_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """The path of first parents to `to` (default: the best), and its branches.

    Candidates are columns; `parents` are indices into them, of the nearest ancestor that was sent.
    `line` holds the path in order: an item is a shown step (`node`), several steps between two
    shown ones, or, first, what began elsewhere. Each has its branches off the path: `branches`,
    `tried` (candidates in them), `lost` (those without a score), `top` and `shape` (how many had
    which score). With `below`, only the branches of that candidate from `offset` on are returned.
    """
    run.refresh()
    family = run.memoise_result("family", run.last, lambda: _read_family(run))
    end, unknown = _end_of_path(run, params)
    path = _path_from_root(family.index.get(end, -1), family.parents)
    if "below" in params:
        return _further_branches(run, family, path, params)
    # of a longer path 12 steps are shown at first, and 400 if all are requested
    most = 400 if params.get("all") else 12 if len(path) > _UNCUT else _UNCUT
    steps = _shown_steps(family, path, most)
    line = _line_items(run, family, path, steps)
    whole = len(family.nodes) <= WHOLE
    places = range(len(family.nodes)) if whole else _places_to_send(family, path, steps)
    columns = _node_columns(run, family, places)
    sent = {place: number for number, place in enumerate(places)}
    for item in line:
        item["node"] = sent.get(item["node"], -1)
    unscored = [node for node in family.nodes if node.mean is None]
    low, high = family.domain
    return {
        **columns,
        "total": len(family.nodes),
        "unscored": len(unscored),
        "beyond": sum(
            node.mean is not None and not low <= node.mean <= high for node in family.nodes
        ),
        "whole": whole,
        "domain": family.domain,
        "groups": _groups(family.nodes),
        "cells": None if whole else _density_cells(family),
        "path": [sent[path[step]] for step in steps],
        "steps": len(path),
        "line": line,
        "to": end,
        "unknown": unknown,
        "best": _best_id(run),
        "direction": run.meta.task.objective.direction,
    }


def _best_id(run: Digest) -> str:
    best = views.best_result(run.run)
    return best.id if best else ""


def _end_of_path(run: Digest, params: Mapping[str, str]) -> tuple[str, str]:
    """The candidate at the end of the path; in words, why it is not the one asked for."""
    asked = params.get("to", "")
    if not asked:
        return _best_id(run), ""
    try:
        return resolve_candidate(run, asked), ""
    except UserError as error:
        return _best_id(run), f"{error.what}; {error.fix}"


def _read_family(run: Digest) -> _Family:
    nodes = views.family_tree(run.run)
    sign = -1 if run.meta.task.objective.direction == "min" else 1
    index = {node.id: place for place, node in enumerate(nodes)}
    parents = [index.get(node.parent, -1) for node in nodes]
    parents = [parent if parent < place else -1 for place, parent in enumerate(parents)]
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(parents):
        children.setdefault(parent, []).append(place)
    size, top = [1] * len(nodes), [node.mean for node in nodes]
    for place in range(len(nodes) - 1, -1, -1):
        if (parent := parents[place]) >= 0:
            size[parent] += size[place]
            top[parent] = _better(top[parent], top[place], sign)
    domain = score_domain([node.mean for node in nodes if node.mean is not None], (), sign)
    return _Family(nodes, index, parents, children, size, top, sign, domain)


def _better(one: float | None, other: float | None, sign: int) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=lambda mean: sign * mean)


def score_domain(scores: Sequence[float], kept: Iterable[float], sign: int) -> tuple[float, float]:
    """The range of scores on an axis: a few terrible ones would flatten all others.

    `kept` ones are always inside. Of the others those are left out that are worse than the median
    by more than `_FAR` times what the best is better than it; `sign` is -1 if less is better.
    """
    rewards = sorted(sign * score for score in scores)
    inside = [sign * score for score in kept]
    if rewards:
        middle, best = rewards[len(rewards) // 2], rewards[-1]
        # more than half are equal to the best: then the lower quartile tells what is usual
        spread = best - middle or middle - rewards[len(rewards) // 4]
        fence = middle - _FAR * spread if spread and len(rewards) >= _FEW else rewards[0]
        inside += [best, next(reward for reward in rewards if reward >= fence)]
    if not inside:
        return 0.0, 1.0
    low, high = sorted((sign * min(inside), sign * max(inside)))
    room = (high - low) * 0.06 or abs(high) * 0.05 or 0.5
    return low - room, high + room


def _path_from_root(end: int, parents: list[int]) -> list[int]:
    path: list[int] = []
    while end >= 0:
        path.append(end)
        end = parents[end]
    return path[::-1]


def _shown_steps(family: _Family, path: list[int], most: int) -> list[int]:
    """Positions on the path of the steps that are shown: first, last, and the weightiest others.

    Half of these are the largest changes of the score, half have the largest branches.
    """
    if len(path) <= most:
        return list(range(len(path)))

    def change(step: int) -> float:
        before, now = (family.nodes[path[each]].mean for each in (step - 1, step))
        return 0.0 if before is None or now is None else abs(now - before)

    def tried(step: int) -> int:
        return family.size[path[step]] - family.size[path[step + 1]]

    inner = range(1, len(path) - 1)
    chosen = set(sorted(inner, key=lambda step: (-change(step), step))[: (most - 2) // 2])
    rest = sorted(set(inner) - chosen, key=lambda step: (-tried(step), step))
    steps = {0, *chosen, *rest[: most - 2 - len(chosen)], len(path) - 1}
    # a line that says "1 step between" would take the room of that step
    return sorted(steps | {step for step in inner if {step - 1, step + 1} <= steps})


def _branches_of(family: _Family, place: int, path: list[int]) -> list[int]:
    """Children off the path, in the order of the best that came of them."""
    on_path = set(path)
    worst = float("-inf")

    def key(child: int) -> tuple[float, int]:
        top = family.top[child]
        return (-(worst if top is None else family.sign * top), child)

    return sorted((c for c in family.children.get(place, ()) if c not in on_path), key=key)


def _places_to_send(family: _Family, path: list[int], steps: list[int]) -> list[int]:
    """Of a large family: the shown steps and the best branches of each, in order of appearance."""
    # branches of a step that are sent with it
    most = max(2, min(12, WHOLE // 2 // max(1, len(steps))))
    shown = [path[step] for step in steps]
    places = set(shown)
    for place in (-1, *shown):
        places.update(_branches_of(family, place, path)[:most])
    return sorted(places)


def _node_columns(run: Digest, family: _Family, places: Iterable[int]) -> JsonObject:
    places = list(places)
    sent = {place: number for number, place in enumerate(places)}

    def nearest(place: int) -> int:
        place = family.parents[place]
        while place >= 0 and place not in sent:
            place = family.parents[place]
        return sent.get(place, -1)

    nodes = [family.nodes[place] for place in places]
    return {
        "ids": [node.id for node in nodes],
        "places": places,
        "parents": [nearest(place) for place in places],
        "others": [list(node.others) for node in nodes],
        "means": [node.mean for node in nodes],
        "counts": [node.count for node in nodes],
        "evaluations": [run.evaluations_at(node.seq) for node in nodes],
        **{
            name: [getattr(node, name) for node in nodes]
            for name in ("failed", "operator", "model", "island")
        },
        "kids": [len(family.children.get(place, ())) for place in places],
        "sizes": [family.size[place] for place in places],
        "tops": [family.top[place] for place in places],
    }


def _further_branches(
    run: Digest, family: _Family, path: list[int], params: Mapping[str, str]
) -> JsonObject:
    parent = family.index.get(params["below"], -1)
    offset = int(params["offset"]) if params.get("offset", "").isdigit() else 0
    branches = _branches_of(family, parent, path)
    # branches of one further request
    return _node_columns(run, family, branches[offset : offset + 50]) | {"total": len(branches)}


# What was tried beside the path.


def _line_items(
    run: Digest, family: _Family, path: list[int], steps: list[int]
) -> list[JsonObject]:
    """Items of the path in order; the first is what began elsewhere, from other roots."""
    shown, details = set(steps), _step_details(run, family, path, steps)
    items, item_at = [_empty_item()], dict[int, int]()
    for step, place in enumerate(path):
        if step in shown or step - 1 in shown:
            items.append(_empty_item())
        items[-1]["steps"] += 1
        item_at[place] = len(items) - 1
        if step in shown:
            items[-1] |= {"node": place, "step": step, **details[step]}
    owner: list[int] = []
    for place, node in enumerate(family.nodes):
        if place in item_at:
            owner.append(item_at[place])
            continue
        parent = family.parents[place]
        owner.append(owner[parent] if parent >= 0 else 0)
        items[owner[place]]["branches"] += parent < 0 or parent in item_at
        _count_candidate(items[owner[place]], node, family)
    return [item for item in items if item["steps"] or item["tried"]]


def _empty_item() -> JsonObject:
    return {
        "node": -1,
        "steps": 0,
        "branches": 0,
        "tried": 0,
        "lost": 0,
        "top": None,
        "shape": [0] * _BINS,
    }


def _count_candidate(item: JsonObject, node: FamilyNode, family: _Family) -> None:
    item["tried"] += 1
    if node.mean is None:
        item["lost"] += 1
        return
    item["top"] = _better(item["top"], node.mean, family.sign)
    item["shape"][_bin_of(node.mean, family.domain, _BINS)] += 1


def _bin_of(mean: float, domain: tuple[float, float], bins: int) -> int:
    low, high = domain
    return max(0, min(bins - 1, int(bins * (mean - low) / (high - low))))


def _step_details(
    run: Digest, family: _Family, path: list[int], steps: list[int]
) -> dict[int, JsonObject]:
    """Note, changed lines and cost of each shown step, by its position on the path."""
    key = f"steps {family.nodes[path[-1]].id if path else ''} {len(steps)}"

    def read_steps() -> dict[int, JsonObject]:
        return {step: _step_detail(run, family, path, step) for step in steps}

    return run.memoise_result(key, run.last, read_steps)


def _step_detail(run: Digest, family: _Family, path: list[int], step: int) -> JsonObject:
    node = family.nodes[path[step]]
    detail = views.candidate_detail(run.run, node.id, observations=0, children=0)
    added = removed = 0
    if step:
        before = views.candidate_detail(run.run, node.parent, observations=0, children=0)
        added, removed = _changed_line_counts(before.parts, detail.parts)
    return {
        "note": detail.candidate.origin.note,
        "added": added,
        "removed": removed,
        "dollars": run.spent_at(node.seq).dollars,
    }


def _changed_line_counts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[int, int]:
    """Numbers of added and of removed lines over all parts."""
    added = removed = 0
    for name in before.keys() | now.keys():
        old, new = (Counter(parts.get(name, "").splitlines()) for parts in (before, now))
        added, removed = added + (new - old).total(), removed + (old - new).total()
    return added, removed


def _groups(nodes: Sequence[FamilyNode]) -> JsonObject:
    """By operator, model and island: [name, candidates] of the largest groups, then all others.

    The last pair, if there are more names than colours, is [number of further names, candidates].
    """
    groups: JsonObject = {}
    for kind in ("operator", "model", "island"):
        counts = Counter(getattr(node, kind) for node in nodes).most_common()
        # names with a colour of their own; the others share one
        rest = counts[7:] if len(counts) > 8 else []
        groups[kind] = {
            "names": counts[: len(counts) - len(rest)],
            "more": [len(rest), sum(count for _, count in rest)],
        }
    return groups


def _density_cells(family: _Family) -> JsonObject:
    """A grid over order of appearance and score, as columns by cell that is not empty.

    `row` is -1 for candidates without a score; `best` is the best of a cell, and `operator`,
    `model` and `island` are the most frequent ones in it.
    """
    cells: dict[tuple[int, int], list[FamilyNode]] = {}
    for place, node in enumerate(family.nodes):
        column = place * _COLUMNS // len(family.nodes)
        row = -1 if node.mean is None else _bin_of(node.mean, family.domain, _ROWS)
        cells.setdefault((column, row), []).append(node)

    def best(inside: list[FamilyNode]) -> FamilyNode:
        return max(inside, key=lambda node: family.sign * (node.mean or 0.0))

    def usual(kind: str) -> list[object]:
        return [
            Counter(getattr(node, kind) for node in inside).most_common(1)[0][0]
            for inside in cells.values()
        ]

    leaders = [best(inside) for inside in cells.values()]
    return {
        "columns": _COLUMNS,
        "rows": _ROWS,
        "column": [column for column, _ in cells],
        "row": [row for _, row in cells],
        "count": [len(inside) for inside in cells.values()],
        "best": [leader.id for leader in leaders],
        "mean": [leader.mean for leader in leaders],
        **{kind: usual(kind) for kind in ("operator", "model", "island")},
    }
