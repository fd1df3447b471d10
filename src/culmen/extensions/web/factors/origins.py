"""Origins of the candidates of a run, and the gain of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from culmen.core.candidate import Origin, key_of
from culmen.core.usage import Usage
from culmen.extensions.web.factors.effects import LevelGain, level_gains
from culmen.store.codec import decode_value, unescape_text
from culmen.store.database import open_snapshot, read_meta
from culmen.store.evidence import MODELLED, evidence_of
from culmen.store.reader import blobs_in

if TYPE_CHECKING:
    from culmen.evidence.evidence import Evidence
    from culmen.store.sql import Connection

LEVELS = 8
"""Levels of a factor that are kept apart: the most frequent ones; the rest is one."""

FEW = 3
"""Candidates below which a level is put to the rest."""

REST = "\0rest"
"""Name of the level of all that are not kept apart."""


class FactorGains(NamedTuple):
    """Gains of the levels of one factor, in units of the reward.

    `improved` is the share of each level's candidates that scored better than their first parents;
    `members` are the ids of each level's candidates; `tied` the factors whose levels went with
    these so closely that the data cannot separate them.
    """

    name: str
    levels: tuple[str, ...]
    gains: tuple[LevelGain, ...]
    improved: tuple[float, ...]
    members: tuple[tuple[str, ...], ...]
    tied: tuple[str, ...] = ()


class _Child(NamedTuple):
    id: str
    origin: Origin
    parents: tuple[str, ...]
    texts: bytes


def factor_gains(run: Path | str) -> list[FactorGains]:
    """Gains by operator, model, island, changed part, idea, and candidates shown in the prompt.

    Factors with one level are left out. Empty for a run with more than `MODELLED` evaluations.
    """
    with open_snapshot(run) as connection, evidence_of(connection) as found:
        model = found.evidence.account.value_model()
        if model is None or found.evidence.account.evaluations > MODELLED:
            return []
        children, void = _evaluated_children(connection, found.evidence)
        better = _better_than_parents(found.evidence, children, void)
        factors = _factors_of(connection, children)
        if not factors:
            return []
        numbers = [_number_levels(values) for values in factors.values()]
        gains = level_gains(model, [each.id for each in children], [n for _, n in numbers], void)
    told: list[FactorGains] = []
    for place, (name, (levels, levels_of), mine) in enumerate(zip(factors, numbers, gains)):
        members = [
            tuple(each.id for each, n in zip(children, levels_of) if n == level)
            for level in range(len(levels))
        ]
        tied = [
            other
            for at, other in enumerate(factors)
            if at != place and _go_together(levels_of, numbers[at][1])
        ]
        improved = tuple(sum(each in better for each in some) / len(some) for some in members)
        told.append(
            FactorGains(name, tuple(levels), tuple(mine), improved, tuple(members), tuple(tied))
        )
    return told


def _better_than_parents(
    evidence: Evidence, children: Sequence[_Child], void: Sequence[bool]
) -> set[str]:
    """Candidates whose mean score is better than that of their first parent that scored."""
    account, better = evidence.account, set[str]()
    for child, is_void in zip(children, void):
        own = account.tally(child.id)
        above = (account.tally(name) for name in child.parents)
        parent = next((each for each in above if each is not None and each.count), None)
        if own is None or parent is None or is_void or not own.count:
            continue
        if own.mean > parent.mean:
            better.add(child.id)
    return better


def _evaluated_children(
    connection: Connection, evidence: Evidence
) -> tuple[list[_Child], list[bool]]:
    """Candidates with a parent that scored, or failed by their own fault, in order.

    The flags are True for those rejected for their integrity: they gained nothing.
    """
    account, model = evidence.account, evidence.model
    rows = account.rows
    counted = ((rows["count"] > 0) | (account.counted_failures() > 0) | rows["barred"]).tolist()
    barred = rows["barred"].tolist()
    query = "SELECT id, origin, parents, parts FROM candidate ORDER BY seq, id"
    children: list[_Child] = []
    void: list[bool] = []
    for row in connection.execute(query):
        name = unescape_text(row.id)
        place, known = account.numbers.get(key_of(name), -1), model.index.get(name, -1)
        if place >= 0 and counted[place] and known >= 0 and model.parents[known] >= 0:
            parents = tuple(unescape_text(row.parents).split())
            children.append(_Child(name, decode_value(row.origin, Origin), parents, row.parts))
            void.append(barred[place])
    return children, void


def _factors_of(connection: Connection, children: Sequence[_Child]) -> dict[str, list[str]]:
    """Levels of every child by factor; factors with one level are left out."""
    origins = [each.origin for each in children]
    islands = ["" if each.island is None else str(each.island) for each in origins]
    factors = {
        "operator": [each.operator for each in origins],
        "model": [each.model for each in origins],
        "island": islands,
        "part": _changed_parts(connection, children),
        "idea": [each.note for each in origins],
        "shown": [_shown_beside(each) for each in children],
    }
    kept = {name: _rarest_as_one(values) for name, values in factors.items()}
    return {
        name: values
        for name, values in kept.items()
        if len(set(values)) > 1 and len(set(values) - {REST, ""}) > (name in ("idea", "shown"))
    }


def _shown_beside(child: _Child) -> str:
    """The candidates that a model saw; "" for one that no prompt asked for."""
    if not child.origin.model or child.origin.model == "offline":
        return ""
    return "others" if len(child.parents) > 1 else "alone"


def _changed_parts(connection: Connection, children: Sequence[_Child]) -> list[str]:
    """Names of the texts that differ from the parent's, of a task with several; else all ""."""
    seeds = read_meta(connection).task.seeds
    if not seeds or len(seeds[0]) < 2:
        return [""] * len(children)
    rows = connection.execute("SELECT id, parts FROM candidate")
    kept = {unescape_text(name): parts for name, parts in rows}
    blobs = blobs_in(connection).get(list(dict.fromkeys(kept.values())))
    texts = {sha: decode_value(raw, dict[str, str]) for sha, raw in blobs.items()}
    names: list[str] = []
    for each in children:
        parent = next((kept[one] for one in each.parents if one in kept), None)
        before, after = ({} if parent is None else texts[parent]), texts[each.texts]
        changed = [name for name, text in after.items() if before.get(name) != text]
        names.append(" and ".join(changed) if len(changed) < 3 else "three or more")
    return names


def _rarest_as_one(values: list[str]) -> list[str]:
    """The values, all but the most frequent ones replaced by `REST`."""
    counts = Counter(values)
    common = [name for name, many in counts.most_common(LEVELS) if many >= FEW]
    if len(counts) > LEVELS:
        common = common[: LEVELS - 1]
    return [value if value in common else REST for value in values]


def _number_levels(values: list[str]) -> tuple[list[str], list[int]]:
    """Names of the levels, the most frequent first and the rest last, and each value's number."""
    counts = Counter(values)
    names = sorted(counts, key=lambda name: (name == REST, -counts[name], name))
    numbers = {name: number for number, name in enumerate(names)}
    return names, [numbers[value] for value in values]


def candidate_costs(run: Path | str, spent_at: Callable[[int], Usage]) -> dict[str, float]:
    """Dollars of the request of every candidate; siblings share alike.

    `spent_at` returns the costs up to an event.
    """
    with open_snapshot(run) as connection:
        rows = connection.execute("SELECT id, seq FROM candidate").all()
    born = Counter(row.seq for row in rows)
    costs = {
        seq: (spent_at(seq).dollars - spent_at(seq - 1).dollars) / many
        for seq, many in born.items()
    }
    return {unescape_text(row.id): costs[row.seq] for row in rows}


def _go_together(one: Sequence[int], other: Sequence[int]) -> bool:
    """True if the levels of two factors nearly always occur together."""
    total, pairs, left, right = len(one), Counter(zip(one, other)), Counter(one), Counter(other)
    fewest = min(len(left), len(right)) - 1
    square = sum(many**2 / (left[a] * right[b]) for (a, b), many in pairs.items()) - 1.0
    # Cramer's V of 0.95: their gains cannot be told apart
    return fewest > 0 and total > 0 and square >= fewest * 0.95**2
