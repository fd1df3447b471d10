"""Cases that mislead a search: doubled, contradicting, or with the answer in the input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from culmen.core.evaluation import Case

_NAMED = 3  # cases or pairs named in one line


def case_problems(cases: Sequence[Case]) -> Iterator[tuple[str, str]]:
    """Problems of a data set with their remedies, one line each."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(_plain(case.input), []).append(case)
    # without an input there is nothing to compare by: the id is then the case
    doubled = [group for key, group in groups.items() if len(group) > 1 and key != "null"]
    answers = {id(group): {_plain(case.info) for case in group} for group in doubled}
    crossing = [group for group in doubled if len({case.split for case in group}) > 1]
    if crossing:
        what = f"{len(crossing)} of {len(groups)} inputs stand in several splits"
        fix = "keep each input in one split: what is trained on is no test"
        yield f"{what}: {_listed(crossing)}", fix
    within = [g for g in doubled if g not in crossing and len(answers[id(g)]) == 1]
    if within:
        what = f"{len(within)} of {len(groups)} inputs stand twice in one split"
        yield f"{what}: {_listed(within)}", "leave out the copies: they count double"
    torn = [group for group in doubled if len(answers[id(group)]) > 1]
    if torn:
        what = f"{len(torn)} of {len(groups)} inputs have two answers"
        fix = "correct one of them: no candidate can be right on both"
        yield f"{what}: {_listed(torn)}", fix
    for path, column, kind in telling_columns(cases):
        what = f"the input's '{path}' {kind} the answer{column and f' ({column})'} in all cases"
        yield what, "leave it out, if it is not known where the result is to be used"


def _listed(groups: Sequence[Sequence[Case]]) -> str:
    """`c1 (train) = c9 (test), c2 (train) = c7 (val) and 3 more`."""
    shown = [
        " = ".join(f"{case.id} ({case.split})" for case in group[:_NAMED])
        for group in groups[:_NAMED]
    ]
    more = len(groups) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def telling_columns(cases: Sequence[Case]) -> Iterator[tuple[str, str, str]]:
    """Columns of inputs that give an answer away: their path, the answer's column, and how."""
    rows = [(_leaves(case.input), _leaves(case.info)) for case in cases]
    if len(rows) < 4:  # a column may fit so few answers by chance
        return
    inputs, infos = rows[0]
    for answer in infos:
        answers = [_plain(info.get(answer)) for _, info in rows]
        if len(set(answers)) < 2:
            continue
        for name in inputs:
            values = [_plain(given.get(name)) for given, _ in rows]
            kind = how_it_tells(values, answers)
            if kind:
                yield name or "value", answer, kind


def how_it_tells(values: Sequence[str], answers: Sequence[str]) -> str:
    """The way a column's values give the answers away: `is`, `goes with`, or "" for none.

    Values that repeat, and each of which has one answer only, go with it.
    """
    if all(value == answer for value, answer in zip(values, answers, strict=True)):
        return "is"
    pairs, different = set(zip(values, answers, strict=True)), set(values)
    is_repeated = len(values) >= 2 * len(different) and len(different) > 1
    return "goes with" if is_repeated and len(pairs) == len(different) else ""


def _leaves(value: object) -> dict[str, object]:
    """The plain values of a case's part by name; a part that is one value has the name ""."""
    if isinstance(value, dict):
        return {
            str(name): each
            for name, each in value.items()  # pyright: ignore[reportUnknownVariableType]
            if isinstance(each, str | int | float | bool)
        }
    return {"": value} if isinstance(value, str | int | float | bool) else {}


def _plain(value: object) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
