"""Mechanism: the numbers a strategy notes about itself, as the run went on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from culmen.web.pages.condition import condition
from culmen.web.runs import Digest, buckets, thin

_POINTS = 400
_DOTS = 1500
_MOST = 60  # plots
_ALARMS = 20  # the last barriers with one
_SAID = ("few_turns",)  # a sentence says it all
_ID = re.compile(r"[0-9a-f]{12}")
_GROUPS = ("island", "agent", "lane", "branch", "role", "policy")
_STEPS = {"round", "turn", "step", "number", "island", "agent", "lane", "nth", "rank", "seq", "barrier"}
"""Places, not measures."""

KNOWN: dict[tuple[str, str], str] = {
    ("pedigree", "gain"): "Expected gain of a step for a share of the budget",
    ("pedigree", "k"): "K: children asked for at once",
    ("noise", "sd"): "Noise: deviation of one evaluation",
    ("event", "k"): "K: candidates asked for at once",
    ("event", "next_k"): "K of the island's next request",
    ("event", "cells"): "Cells taken",
    ("event", "quality"): "Mean reward of the occupants",
    ("event", "best"): "Best reward of the island",
    ("event", "candidates[].reward"): "Rewards of what each request brought",
    ("event", "parent.reward"): "Rewards of the parents",
    ("event", "inspirations[].reward"): "Rewards of the programs shown beside the parent",
    ("event", "migrated"): "Migrants that took a cell",
    ("event", "faults"): "Faults of the replies",
    ("seeded", "seeds[].reward"): "Rewards of the initial programs",
    ("priority", "parents[].mean"): "Mean rewards of the programs explored",
    ("priority", "parents[].count"): "Observations of the programs explored",
    ("priority", "parents[].failures"): "Failed evaluations of the programs explored",
    ("memory", "size"): "Programs in memory",
    ("memory", "epsilon"): "Epsilon in force",
    ("memory", "refused"): "Proposals refused as too similar",
    ("memory", "admitted"): "Programs admitted per round",
    ("memory", "quantiles"): "Distances at which proposals arrived, by quantile",
    ("filter_crowded", "refused"): "Refused so far, where the filter was found too wide",
    ("grid", "cells"): "Cells taken",
    ("grid", "quality"): "Mean reward of the occupants",
    ("grid", "entered"): "Programs of a request that took a cell",
    ("grid", "best"): "Best reward",
    ("grid", "placed[].reward"): "Rewards of what each request brought",
    ("experiment", "momentum"): "Momentum",
    ("experiment", "idea"): "Number of the idea that was tried",
    ("experiment", "ideas[].tries"): "Tries of the ideas kept",
    ("experiment", "dropped"): "Numbers of the ideas dropped",
    ("experiment", "failures"): "Failures so far, by kind",
    ("experiment", "score"): "Scores of the agents' experiments",
    ("experiment", "best"): "Best of the agents' experiments",
    ("barrier", "alpha"): "Alpha: weight of the late phase's advantages",
    ("barrier", "advantages"): "Advantages",
    ("barrier", "rewards"): "Rewards of the decisions",
    ("barrier", "version"): "Policy version",
    ("barrier", "entropy"): "Entropy of the policy, nats per token",
    ("barrier", "grad_norm"): "Gradient norm before clipping",
    ("barrier", "kl"): "KL: how far an update moved the policy",
    ("barrier", "clip_low"): "Share of tokens held back by the lower clip",
    ("barrier", "clip_high"): "Share of tokens held back by the upper clip",
    ("barrier", "ratio_max"): "Largest importance ratio",
    ("barrier", "gap_mean"): "Sampled against recomputed log-probabilities, mean gap",
    ("barrier", "gap_max"): "Sampled against recomputed log-probabilities, largest gap",
    ("barrier", "spreads"): "Spread of the rewards and of both branches",
    ("barrier", "failures"): "Experiments that failed, by kind",
    ("barrier", "clamped"): "Rewards at either bound",
    ("barrier", "tokens_per_second"): "Tokens trained on per second",
    ("pareto", "members"): "Candidates scored on all cases",
    ("pareto", "accepted"): "Children accepted per turn",
    ("puct", "value"): "Value Q of the expanded states",
    ("puct", "expansions"): "Expansions of the chosen state",
    ("puct", "states"): "States kept",
}
"""What is drawn first, with a title: (note, field)."""
LEADING = ("alpha", "advantages", "advantage", "version", "entropy", "kl", "loss", "reward", "rewards", "k")


def mechanism(run: Digest, params: Mapping[str, str]) -> dict[str, Any]:
    """Plots of every numeric field of every note: lines (one value a note) or dots (lists of values), by group.

    A group is an island, agent, lane or the like, where a note names one. `x` counts evaluations up to the note. Also
    the last barriers of a training at which something looked wrong, the newest first.
    """
    run.refresh()
    alarms: list[dict[str, Any]] = []
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    dotted: set[tuple[str, str]] = set()
    counts: dict[str, int] = {}
    for note in run.notes:
        kind = note.kind
        if kind in _SAID:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        x, group = run.evaluations_at(note.seq), _group(note.body)
        if kind == "barrier" and (wrong := _words(note.body.get("alarms"))):
            alarms.append({"evaluations": x, "barrier": note.body.get("barrier"), "alarms": wrong})
        for name, inner, value, several in _numbers(note.body):
            called = ", ".join(filter(None, (group, inner)))
            found.setdefault((kind, name), {}).setdefault(called, []).append((x, value))
            if several:
                dotted.add((kind, name))
    plots = [_plot(key, groups, key in dotted) for key, groups in found.items()]
    plots.sort(key=lambda plot: plot["place"])
    told = {"alarms": alarms[-_ALARMS:][::-1], "alarmed": len(alarms)}
    told["condition"] = condition(run)
    return {"plots": plots[:_MOST], "notes": counts, "evaluations": len(run.evaluations), **told}


def _plot(key: tuple[str, str], groups: dict[str, list[tuple[float, float]]], dots: bool) -> dict[str, Any]:
    kind, name = key
    known = list(KNOWN)
    leading = next((place for place, word in enumerate(LEADING) if name == word), None)
    place = known.index(key) if key in KNOWN else 100 + leading if leading is not None else 1000
    return {
        "note": kind,
        "field": name,
        "title": KNOWN.get(key) or f"{kind}: {name}".replace("_", " ").replace("[].", ", "),
        "known": place < 1000,
        "place": place,
        "dots": dots,
        "series": [
            {"name": group, "points": thin(points, _DOTS) if dots else buckets(points, _POINTS)}
            for group, points in sorted(groups.items(), key=lambda pair: _natural(pair[0]))
        ],
    }


def _words(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _natural(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition(" ")
    return (head, int(number)) if number.isdigit() else (name, -1)


def _group(body: Mapping[str, Any]) -> str:
    for name in _GROUPS:
        if name in body and isinstance(body[name], int | str):
            return f"{name} {body[name]}"
    return ""


def _numbers(body: Mapping[str, Any]) -> Iterator[tuple[str, str, float, bool]]:
    """Field, which of its values (of a table of numbers), value, and whether a note holds several: numbers, lists of
    them, and those of objects one level down; not what candidates have by their ids."""
    for name, value in body.items():
        if name in _STEPS:
            continue
        if _is_number(value):
            yield name, "", float(value), False
        elif isinstance(value, dict):
            yield from _table(name, value)
        elif isinstance(value, list):
            yield from _several(name, value)


def _table(name: str, value: dict[str, Any]) -> Iterator[tuple[str, str, float, bool]]:
    """A line each of what is alike (shares, counts by kind); of a candidate its own measures."""
    for key, each in value.items():
        if not _is_number(each) or _ID.fullmatch(key):
            continue
        yield (
            (f"{name}.{key}", "", float(each), False)
            if "id" in value
            else (name, key.replace("_", " "), float(each), False)
        )


def _several(name: str, value: list[Any]) -> Iterator[tuple[str, str, float, bool]]:
    for each in value:
        if _is_number(each):
            yield name, "", float(each), True
        elif isinstance(each, dict):
            for key, inner in each.items():
                if _is_number(inner) and key not in _STEPS:
                    yield f"{name}[].{key}", "", float(inner), True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < 1e300
