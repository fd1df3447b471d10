"""A run too long to go through for a page: what pieces of its journal show, evenly spread over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from culmen.core.usage import total
from culmen.store import views
from culmen.store.views import JournalPiece

LONG = 400_000
"""Events above which a page reads pieces of a journal."""
_READ, _LEAST, _MOST = 40_000, 400, 2_500  # events read in all, and of one piece


class Flow(NamedTuple):
    """One piece: from when to when (active seconds), and how many effects of each kind were in flight on average."""

    begin: float
    end: float
    load: dict[str, float]


class Pieces:
    """Pieces of the events `first` to `last` of a run; each is longer than effects in flight at once have events, as
    far as `workers` tells. What was in flight through a whole piece is not seen."""

    def __init__(self, run: Path, first: int, last: int, workers: int) -> None:
        size = max(_LEAST, min(_MOST, 4 * workers))
        self._pieces = [piece for piece in views.pieces(run, first, last, _READ // size, size) if piece.marks]
        self._share = sum(piece.last - piece.first for piece in self._pieces) / max(1, last - first)

    @property
    def read(self) -> int:
        """Events that were read."""
        return sum(piece.last - piece.first for piece in self._pieces)

    def seconds(self) -> dict[str, list[float]]:
        """How long effects took, by kind: those that began in the first quarter of a piece and ended within it."""
        taken: dict[str, list[float]] = {}
        for piece in self._pieces:
            began, until = dict[int, float](), piece.first + (piece.last - piece.first) / 4
            for mark in piece.marks:
                if mark.kind == "started" and mark.seq <= until:
                    began[mark.key] = mark.elapsed
                elif mark.kind == "done" and mark.key in began:
                    taken.setdefault(mark.effect, []).append(mark.elapsed - began.pop(mark.key))
        return taken

    @cached_property
    def flows(self) -> list[Flow]:
        """Effects in flight, piece by piece; none for a piece in which no time passed."""
        return [_flow(piece) for piece in self._pieces if piece.marks[-1].elapsed > piece.marks[0].elapsed]

    def ended(self) -> Counter[str]:
        """About how many effects of each kind were done."""
        done = Counter(m.effect for piece in self._pieces for m in piece.marks if m.kind == "done")
        return self._scaled(done)

    def faults(self) -> Counter[str]:
        """About how often each fault occurred, also what a retry made good."""
        found = Counter[str]()
        for piece in self._pieces:
            for cost in piece.costs:
                found.update(cost.faults)
        return self._scaled(found)

    def spending(self, evaluations: int, dollars: float, tokens: int) -> list[dict[str, float]]:
        """Evaluations, dollars and tokens as the run went on: what the pieces show, ending in what was spent in all."""
        usage = [total(cost.usage for cost in piece.costs) for piece in self._pieces]
        made = [sum(m.kind == "done" and m.effect == "evaluate" for m in piece.marks) for piece in self._pieces]
        columns = {
            "evaluations": _course(made, evaluations),
            "dollars": _course([each.dollars for each in usage], dollars),
            "tokens": _course([each.tokens for each in usage], tokens),
        }
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def _scaled(self, counts: Counter[str]) -> Counter[str]:
        return Counter({name: round(count / self._share) for name, count in counts.items()})


def _course(parts: Sequence[float], whole: float) -> list[float]:
    """Sums up to each part, as a course that ends at `whole`."""
    every, so_far, course = sum(parts) or 1.0, 0.0, list[float]()
    for part in parts:
        so_far += part
        course.append(whole * so_far / every)
    return course


def _flow(piece: JournalPiece) -> Flow:
    """What began before the piece, or did not end within it, counts up to its edge."""
    begin, end = piece.marks[0].elapsed, piece.marks[-1].elapsed
    began, busy = dict[int, tuple[str, float]](), Counter[str]()
    for mark in piece.marks:
        if mark.kind == "started":
            began[mark.key] = mark.effect, mark.elapsed
        elif mark.kind in ("done", "torn"):
            effect, start = began.pop(mark.key, (mark.effect, begin))
            busy[effect] += mark.elapsed - start  # pyright: ignore[reportArgumentType]
        else:  # a session ended: nothing is in flight any more
            began = _left(began, busy, mark.elapsed)
    _left(began, busy, end)
    return Flow(begin, end, {effect: seconds / (end - begin) for effect, seconds in busy.items()})


def _left(began: dict[int, tuple[str, float]], busy: Counter[str], until: float) -> dict[int, tuple[str, float]]:
    for effect, start in began.values():
        busy[effect] += until - start  # pyright: ignore[reportArgumentType]
    return {}
