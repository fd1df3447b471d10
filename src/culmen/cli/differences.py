"""Unified diffs between two candidates."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from culmen.cli.screen import Answer, Screen
from culmen.observe.figures import clean, count, number

if TYPE_CHECKING:
    from culmen.store.views import Detail

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def lines(first: Detail, second: Detail) -> list[str]:
    """The unified diff over all parts, without line ends."""
    found: list[str] = []
    one, two = first.candidate, second.candidate
    for name in dict.fromkeys([*one.parts, *two.parts]):
        before, after = (c.parts.get(name, "").splitlines() for c in (one, two))
        found += difflib.unified_diff(before, after, f"{name} ({one.id})", f"{name} ({two.id})", lineterm="")
    return found


def without_helpers(found: Sequence[str]) -> list[str]:
    """The diff with one line for each helper of the offline proposer that came in whole: only its calls are news."""
    from culmen.offline.edits.source import IDIOMS

    kept: list[str] = []
    inside = 0  # lines of the helper that is being left out
    for text in (*found, ""):
        body = text[:1] == "+" and (not text[1:].strip() or text[1:2] in (" ", ")"))
        if inside and body:
            inside += 1
            continue
        if inside:
            kept[-1] += f" ...  # a general-purpose loop of {inside} lines, left out here"
        inside = int(any(text.startswith(f"+def {name}(") for name in IDIOMS))
        kept.append(f"{text.partition('(')[0]}()" if inside else text)
    return kept[:-1]


def answer(first: Detail, second: Detail) -> Answer:
    """The diff as an answer."""
    found = lines(first, second)
    data = {
        "first": first.candidate.id,
        "second": second.candidate.id,
        "scores": [first.row.mean, second.row.mean],
        "diff": "\n".join(found),
    }
    return Answer(data, lambda screen: show(screen, first, second, found))


def show(screen: Screen, first: Detail, second: Detail, found: Sequence[str], most: int = 0) -> None:
    """Coloured; `most` lines at most (0: all of them)."""
    scores = " -> ".join(number(detail.row.mean) for detail in (first, second))
    if screen.out.is_terminal:
        screen.heading(f"{first.candidate.id} -> {second.candidate.id}", f"score {scores}")
    if not found:
        screen.line("no difference: the same texts")
    for text in found[: most or len(found)]:
        style = "dim" if text.startswith(("+++", "---")) else _STYLES.get(text[:1], "")
        screen.code_line(clean(text), style)
    if most and len(found) > most:
        screen.line(f"... and {count(len(found) - most, 'more line')}", style="dim")
