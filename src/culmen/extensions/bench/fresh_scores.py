"""Fresh scores of a run's programs for comparisons, in RUN/scores.jsonl.

They are made after the run, one evaluation a line. Every run that has the program keeps a copy, so
that scores move with the run and any selection of runs can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from culmen.core.errors import UserError

FILE = "scores.jsonl"


class FreshScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """One evaluation of `candidate`, for the `repeat`-th time (from 0) on a case.

    `of` is the number of cases of `split` (case "", split "" and 0: no data set). `score` is in the
    task's own direction, None if there is none; `status` then has the reason, and `culprit` is as
    that of an observation. `dollars` is the cost of models that the evaluator asked, `refusal` its
    words if its answer reported its own failure.
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
    culprit: str = ""
    refusal: str = ""

    @property
    def evaluation_key(self) -> tuple[str, str, int]:
        """(split, case, repeat) of the evaluation."""
        return self.split, self.case, self.repeat


def fresh_scores(run: Path) -> list[FreshScore]:
    """All fresh scores of a run; a truncated line is skipped."""
    try:
        lines = (run / FILE).read_bytes().splitlines()
    except OSError:
        return []
    scores: list[FreshScore] = []
    for line in lines:
        try:
            scores.append(msgspec.json.decode(line, type=FreshScore))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the machine stopped in the middle of a line
    return scores


def scored_candidates(run: Path, split: str) -> set[str]:
    """Ids of the candidates of a run with fresh scores on a split."""
    return {each.candidate for each in fresh_scores(run) if each.split == split}


def fresh_score_bytes(run: Path) -> int:
    """Bytes of a run's fresh scores: a number that grows with every one added."""
    try:
        return (run / FILE).stat().st_size
    except OSError:
        return 0


def keep_scores(run: Path, scores: Sequence[FreshScore]) -> None:
    """Append scores to a run's file; raises `UserError` if its folder cannot be written."""
    try:
        with (run / FILE).open("ab") as file:
            file.write(b"".join(b"\n" + msgspec.json.encode(each) for each in scores) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        fix = "check who owns the folder"
        raise UserError(f"cannot write: {error.strerror}", where=str(run / FILE), fix=fix) from None


def of_candidates(scores: Iterable[FreshScore], names: Iterable[str]) -> tuple[FreshScore, ...]:
    """Scores of these candidates, the first one for each (split, case, repeat)."""
    wanted, found = set(names), dict[tuple[object, ...], FreshScore]()
    for each in scores:
        if each.candidate in wanted:
            found.setdefault((each.candidate, *each.evaluation_key), each)
    return tuple(found.values())
