"""Fresh scores of a run's programs, made after the run to compare it: RUN/scores.jsonl, a line an
evaluation.

They lie in every run that has the program, so that a run takes them with it, and any selection of
runs can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError

FILE = "scores.jsonl"


class FreshScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation: of `candidate`, on a case of the `of` cases of `split` ("", "" and 0: no data
    set), for the `repeat`-th time (from 0).

    `score` is in the task's own direction, None where the candidate failed, with its `status` then.
    `dollars` is what models cost that the evaluator asked.
    """

    candidate: str
    split: str
    case: str
    of: int
    repeat: int
    score: float | None
    status: str = "ok"
    trust: str = ""
    dollars: float = 0.0

    @property
    def place(self) -> tuple[str, str, int]:
        """What it is a score of: split, case, repeat."""
        return self.split, self.case, self.repeat


def fresh_scores(run: Path) -> list[FreshScore]:
    """All of a run; none where it has none. A line that was cut off is left out."""
    try:
        lines = (run / FILE).read_bytes().splitlines()
    except OSError:
        return []
    found: list[FreshScore] = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=FreshScore))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the machine stopped in the middle of a line
    return found


def scored(run: Path) -> int:
    """A number that grows with what is kept of a run."""
    try:
        return (run / FILE).stat().st_size
    except OSError:
        return 0


def keep_scores(run: Path, scores: Sequence[FreshScore]) -> None:
    """Append them to a run; raises `UserError` where its folder cannot be written."""
    try:
        with (run / FILE).open("ab") as file:
            file.write(b"".join(b"\n" + msgspec.json.encode(each) for each in scores) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fix = "check who owns the folder"
        raise UserError(f"cannot write: {error.strerror}", where=str(run / FILE), fix=fix) from None


def of_candidates(scores: Iterable[FreshScore], names: Iterable[str]) -> tuple[FreshScore, ...]:
    """Those of these candidates, each place once, the first."""
    wanted, found = set(names), dict[tuple[object, ...], FreshScore]()
    for each in scores:
        if each.candidate in wanted:
            found.setdefault((each.candidate, *each.place), each)
    return tuple(found.values())
