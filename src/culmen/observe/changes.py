"""What changed from a candidate's parent to itself, in a few lines: for places where there is no room for all of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from culmen.observe.figures import clean
from culmen.store import views

_LONG = 4_000  # lines of a text beyond which it is not compared: a view that is drawn while a search runs must be cheap
_WIDE = 400  # characters kept of a line
_BEFORE = 24  # characters kept of a line before the place where it differs


class Change(msgspec.Struct, frozen=True):
    """Lines that begin with `+`, `-`, or with neither where they name a part; `more` lines changed beside these.

    `since` is the id of the candidate that was compared with.
    """

    since: str
    lines: tuple[str, ...]
    more: int


def change(run: Path | str, name: str, most: int = 6) -> Change | None:
    """Candidate `name` of a run against its first parent, in at most `most` lines; None for one without a parent, and
    where nothing can be said."""
    now = views.candidate(run, name, observations=0)
    if not now.row.parents:
        return None
    since = now.row.parents[0]
    found = compared(views.candidate(run, since, observations=0).parts, now.parts)
    if not found:
        return None
    lines = few(found, most)
    told = sum(line[:1] in "+-" for line in lines)
    return Change(since, tuple(lines), sum(line[:1] in "+-" for line in found) - told)


def compared(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Changed lines of all parts, each part under its name where there are several; safe for a terminal."""
    found: list[str] = []
    for name in dict.fromkeys([*before, *after]):
        one, two = (texts.get(name, "").splitlines() for texts in (before, after))
        if max(len(one), len(two)) > _LONG:
            continue
        changed = [clean(line[:_WIDE]) for line in _lines(one, two) if line[1:].strip()]
        found += [clean(name[:_WIDE]), *changed] if changed and len({*before, *after}) > 1 else changed
    return found


def _lines(one: Sequence[str], two: Sequence[str]) -> Iterator[str]:
    """Lines of `one` that went and of `two` that came, place by place."""
    for kind, low, high, start, end in difflib.SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        old, new = ([line.expandtabs(4) for line in each] for each in (one[low:high], two[start:end]))
        for place in range(min(len(old), len(new))):
            old[place], new[place] = _from_difference(old[place], new[place])
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)


def _from_difference(old: str, new: str) -> tuple[str, str]:
    """Both from a little before the place where they differ, if that is far from their beginning."""
    same = next((place for place, (one, other) in enumerate(zip(old, new)) if one != other), min(len(old), len(new)))
    cut = same - _BEFORE
    return (old, new) if cut < _BEFORE else (f"…{old[cut:]}", f"…{new[cut:]}")


def few(lines: list[str], most: int) -> list[str]:
    """At most `most` of them in their order, of what was taken away half at most: what came is the news."""
    if len(lines) <= most:
        return lines
    removed = [place for place, line in enumerate(lines) if line.startswith("-")]
    others = [place for place, line in enumerate(lines) if not line.startswith("-")]
    gone = min(len(removed), max(most // 2, most - len(others)))
    return [lines[place] for place in sorted(removed[:gone] + others[: most - gone])]
