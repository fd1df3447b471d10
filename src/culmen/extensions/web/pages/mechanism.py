"""Mechanism: the figures in a strategy's notes, over the course of the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeGuard

from culmen.core.json import JsonObject
from culmen.extensions.web.runs import Digest, thin_points, thin_with_extremes
from culmen.report import sentences
from culmen.report.figures import count_text, number_text
from culmen.store import views
from culmen.store.views import StrategyNote

_SAID = ("few_turns", "reserve")  # kinds of notes shown as a sentence only
_ID = re.compile(r"[0-9a-f]{12}")
_GROUPS = ("island", "agent", "lane", "branch", "role", "policy")
_STEPS = {
    "round",
    "turn",
    "step",
    "number",
    "island",
    "agent",
    "lane",
    "nth",
    "rank",
    "seq",
    "barrier",
}
"""Fields that are positions, not measurements."""

KNOWN = {
    "pedigree gain": "Expected gain of a step for a share of the budget",
    "pedigree k": "K: children asked for at once",
    "noise sd": "Noise: deviation of one evaluation",
    "event k": "K: candidates asked for at once",
    "event next_k": "K of the island's next request",
    "event cells": "Cells taken",
    "event quality": "Mean reward of the occupants",
    "event best": "Best reward of the island",
    "event candidates[].reward": "Rewards of the candidates of each request",
    "event parent.reward": "Rewards of the parents",
    "event inspirations[].reward": "Rewards of the programs shown beside the parent",
    "event migrated": "Migrants that took a cell",
    "event faults": "Faults of the replies",
    "seeded seeds[].reward": "Rewards of the initial programs",
    "priority parents[].mean": "Mean rewards of the programs explored",
    "priority parents[].count": "Observations of the programs explored",
    "priority parents[].failures": "Failed evaluations of the programs explored",
    "memory size": "Programs in memory",
    "memory epsilon": "Epsilon in force",
    "memory refused": "Proposals refused as too similar",
    "memory admitted": "Programs admitted per round",
    "memory quantiles": "Distances at which proposals arrived, by quantile",
    "filter_crowded refused": "Refused so far, when the filter was found too wide",
    "grid cells": "Cells taken",
    "grid quality": "Mean reward of the occupants",
    "grid entered": "Programs of a request that took a cell",
    "grid best": "Best reward",
    "grid placed[].reward": "Rewards of the candidates of each request",
    "experiment momentum": "Momentum",
    "experiment idea": "Number of the idea that was tried",
    "experiment ideas[].tries": "Tries of the ideas kept",
    "experiment dropped": "Numbers of the ideas dropped",
    "experiment failures": "Failures so far, by kind",
    "experiment score": "Scores of the agents' experiments",
    "experiment best": "Best of the agents' experiments",
    "barrier alpha": "Alpha: weight of the late phase's advantages",
    "barrier advantages": "Advantages",
    "barrier rewards": "Rewards of the decisions",
    "barrier version": "Policy version",
    "barrier entropy": "Entropy of the policy, nats per token",
    "barrier grad_norm": "Gradient norm before clipping",
    "barrier kl": "KL: how far an update moved the policy",
    "barrier clip_low": "Share of tokens held back by the lower clip",
    "barrier clip_high": "Share of tokens held back by the upper clip",
    "barrier ratio_max": "Largest importance ratio",
    "barrier gap_mean": "Sampled against recomputed log-probabilities, mean gap",
    "barrier gap_max": "Sampled against recomputed log-probabilities, largest gap",
    "barrier spreads": "Spread of the rewards and of both branches",
    "barrier failures": "Experiments that failed, by kind",
    "barrier clamped": "Rewards at either bound",
    "barrier tokens_per_second": "Tokens trained on per second",
    "pareto members": "Candidates scored on all cases",
    "pareto accepted": "Children accepted per turn",
    "puct value": "Value Q of the expanded states",
    "puct expansions": "Expansions of the chosen state",
    "puct states": "States kept",
}
"""Fields drawn first, with their titles: `NOTE FIELD`."""
LEADING = (
    "alpha",
    "advantages",
    "advantage",
    "version",
    "entropy",
    "kl",
    "loss",
    "reward",
    "rewards",
    "k",
)


def mechanism_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Plots of every numeric field of every note, by group.

    Fields with one value a note are lines, lists of values are dots. A group is an island, agent,
    lane or the like that a note names. `x` is the number of evaluations up to the note. Also the
    last barriers of a training with alarms, the newest first.
    """
    run.refresh()
    alarms: list[JsonObject] = []
    series_by_field: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    dotted: set[tuple[str, str]] = set()
    counts: dict[str, int] = {}
    for note in run.notes:
        kind = note.kind
        if kind in _SAID:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        x, group = run.evaluations_at(note.seq), _group_name(note.body)
        if kind == "barrier" and (wrong := _text_list(note.body.get("alarms"))):
            alarms.append({"evaluations": x, "barrier": note.body.get("barrier"), "alarms": wrong})
        for name, inner, value, several in _iter_numbers(note.body):
            called = ", ".join(filter(None, (group, inner)))
            series_by_field.setdefault((kind, name), {}).setdefault(called, []).append((x, value))
            if several:
                dotted.add((kind, name))
    plots = [_field_plot(key, groups, key in dotted) for key, groups in series_by_field.items()]
    plots.sort(key=lambda plot: plot["place"])
    # latest barriers with an alarm
    conditions = {"alarms": alarms[-20:][::-1], "alarmed": len(alarms)}
    conditions["condition"] = condition_findings(run)
    return {
        "plots": plots[:60],
        "notes": counts,
        "evaluations": len(run.evaluations),
        **conditions,
    }


def _field_plot(
    key: tuple[str, str], groups: dict[str, list[tuple[float, float]]], dots: bool
) -> JsonObject:
    kind, name = key
    called, known = f"{kind} {name}", list(KNOWN)
    place = 100 + LEADING.index(name) if name in LEADING else 1000
    place = known.index(called) if called in KNOWN else place
    return {
        "note": kind,
        "field": name,
        "title": KNOWN.get(called) or f"{kind}: {name}".replace("_", " ").replace("[].", ", "),
        "known": place < 1000,
        "place": place,
        "dots": dots,
        "series": [
            {
                "name": group,
                "points": thin_points(points, 1500) if dots else thin_with_extremes(points, 400),
            }
            for group, points in sorted(groups.items(), key=lambda pair: _natural_order(pair[0]))
        ],
    }


def _text_list(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _natural_order(name: str) -> tuple[str, int]:
    head, _, number = name.rpartition(" ")
    return (head, int(number)) if number.isdigit() else (name, -1)


def _group_name(body: JsonObject) -> str:
    for name in _GROUPS:
        if name in body and isinstance(body[name], int | str):
            return f"{name} {body[name]}"
    return ""


def _iter_numbers(body: JsonObject) -> Iterator[tuple[str, str, float, bool]]:
    """Numbers in a note: field, name in a table of numbers, value, and True for a list.

    Covers numbers, lists of numbers, and those of objects one level down, except tables by
    candidates' ids.
    """
    for name, value in body.items():
        if name in _STEPS:
            continue
        if _is_number(value):
            yield name, "", float(value), False
        elif isinstance(value, dict):
            yield from _iter_table_numbers(name, value)
        elif isinstance(value, list):
            yield from _iter_list_numbers(name, value)


def _iter_table_numbers(name: str, value: JsonObject) -> Iterator[tuple[str, str, float, bool]]:
    """Numbers of a table.

    Similar ones (shares, counts by kind) share a field; measurements of one candidate are fields of
    their own.
    """
    for key, each in value.items():
        if not _is_number(each) or _ID.fullmatch(key):
            continue
        yield (
            (f"{name}.{key}", "", float(each), False)
            if "id" in value
            else (name, key.replace("_", " "), float(each), False)
        )


def _iter_list_numbers(name: str, value: list[object]) -> Iterator[tuple[str, str, float, bool]]:
    for each in value:
        if _is_number(each):
            yield name, "", float(each), True
        elif isinstance(each, dict):
            for key, inner in each.items():
                if _is_number(inner) and key not in _STEPS:
                    yield f"{name}[].{key}", "", float(inner), True


def _is_number(value: object) -> TypeGuard[int | float]:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value
        and abs(value) < 1e300
    )


# Findings from a strategy's notes, healthy or not, above the pages Memory and Mechanism.

Bodies = Sequence[JsonObject]
Finding = tuple[str, bool]  # the sentence, and True if healthy
_ENOUGH = 6  # notes of a kind below which the last third is not judged
_SIMILAR = 0.5  # share of refused candidates above which the filter is too wide


def condition_findings(run: Digest) -> list[JsonObject]:
    """One finding for each known kind of note, with `text` and `healthy`.

    `run` must be refreshed.
    """
    kinds: dict[str, list[StrategyNote]] = {}
    for note in run.notes:
        kinds.setdefault(note.kind, []).append(note)
    findings = [
        (TELL[kind]([note.body for note in notes])) for kind, notes in kinds.items() if kind in TELL
    ]
    best = views.best_result(run.run) if findings else None
    if best is not None:
        findings.insert(0, (sentences.noise_sentence(best.noise), True))
    return [{"text": text, "healthy": healthy} for text, healthy in findings]


def _pedigree_finding(notes: Bodies) -> Finding:
    again = sum(note.get("action") == "again" for note in notes)
    counts = (
        f"{count_text(len(notes) - again, 'request')} for children, "
        f"{count_text(again, 'repeated evaluation')}"
    )
    gains = [float(note["gain"]) for note in notes if note.get("gain")]
    if len(gains) < _ENOUGH:
        return f"{counts}.", True
    first, last = (
        sum(part) / len(part) for part in (gains[: len(gains) // 3], gains[-(len(gains) // 3) :])
    )
    share = last / first if first else 1.0
    if share < 0.01:  # share of the gain expected at first below which a gain counts as small
        return (
            f"{counts}. The expected gain of a step is {share:.1%} of that at the start: "
            "more budget will change little.",
            False,
        )
    return f"{counts}. The expected gain of a step is {share:.0%} of that at the start.", True


def _memory_finding(notes: Bodies) -> Finding:
    size, refused = int(notes[-1].get("size", 0)), int(notes[-1].get("refused", 0))
    sizes = (
        f"The memory holds {count_text(size, 'program')}; "
        f"{refused} of {size + refused} were refused as too similar"
    )
    if refused > _SIMILAR * (size + refused):
        return f"{sizes}: they were paid for, so a smaller epsilon would serve better.", False
    return f"{sizes}.", True


def _make_success_finding(
    what: str, remedy: str, entered: Callable[[JsonObject], bool]
) -> Callable[[Bodies], Finding]:
    """A finding on the number of successes among notes.

    Not healthy if there is none in the last third.
    """

    def success_finding(notes: Bodies) -> Finding:
        late = notes[-(len(notes) // 3) :]
        some = sum(map(entered, notes))
        counts = f"{some} of {count_text(len(notes), 'turn')} {what}"
        if len(notes) < _ENOUGH:
            return f"{counts}.", True
        if not any(map(entered, late)):
            return f"{counts}, none of the last {len(late)}: {remedy}.", False
        return f"{counts}, {sum(map(entered, late))} of the last {len(late)}.", True

    return success_finding


_MORE = "other models, hints or a task with more to find would help"
_better = _make_success_finding(
    "brought an experiment better than its parent", _MORE, lambda note: bool(note.get("better"))
)


def _took_cell(note: JsonObject) -> bool:
    return any(each.get("outcome") in ("new", "replaced") for each in note.get("candidates") or ())


def _experiment_finding(notes: Bodies) -> Finding:
    if "better" in notes[-1]:
        return _better(notes)
    scored, best = sum(note.get("score") is not None for note in notes), notes[-1].get("best")
    counts = (
        f"The agents made {count_text(len(notes), 'experiment')}, of which {scored} gave a score"
    )
    if not scored:
        return f"{counts}: the page Sessions shows what went wrong.", False
    best_text = number_text(best) if isinstance(best, float | int) else "is not known"
    return f"{counts}; the best {best_text}.", True


def _barrier_finding(notes: Bodies) -> Finding:
    skipped, late = (
        sum(bool(note.get("skip")) for note in notes),
        notes[-(len(notes) // 3) :] or notes,
    )
    alarmed = sum(bool(note.get("alarms")) for note in late)
    alpha = f"alpha is {float(notes[-1].get('alpha') or 0.0):.2f}"
    counts = f"{count_text(len(notes), 'barrier')}, of which {skipped} made no update; {alpha}"
    if alarmed:
        return (
            f"{counts}. {alarmed} of the last {len(late)} raised alarms, listed below.",
            False,
        )
    if skipped > _SIMILAR * len(notes):
        return (
            f"{counts}: equal rewards teach nothing. More islands would help.",
            False,
        )
    return f"{counts}. The last {len(late)} raised no alarms.", True


def _warning_text(note: JsonObject) -> str:
    return str(note.get("told", "")).rstrip(".")


def _warning_finding(notes: Bodies) -> Finding:
    last = notes[-1]
    if {"turns", "needed"} <= last.keys():
        return (
            f"Only {count_text(last['turns'], 'turn')}: this method needs about {last['needed']} "
            "evaluations.",
            False,
        )
    return f"{_warning_text(last) or 'The filter refused most of the latest candidates'}.", False


TELL: dict[str, Callable[[Bodies], Finding]] = {
    "pedigree": _pedigree_finding,
    "memory": _memory_finding,
    "few_turns": _warning_finding,
    "filter_crowded": _warning_finding,
    "event": _make_success_finding(
        "brought a program that took a cell of an island's grid", _MORE, _took_cell
    ),
    "grid": _make_success_finding(
        "brought a program that took a cell of the grid",
        _MORE,
        lambda note: bool(note.get("entered")),
    ),
    "pareto": _make_success_finding(
        "brought a child better than its parent", _MORE, lambda note: bool(note.get("accepted"))
    ),
    "puct": _make_success_finding(
        "brought a state worth keeping", _MORE, lambda note: bool(note.get("kept"))
    ),
    "experiment": _experiment_finding,
    "barrier": _barrier_finding,
}
"""Functions from notes to a finding, by kind of note."""
