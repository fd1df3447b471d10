"""Partial faults of an evaluator: lines that raise for some evaluations only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from culmen.core.evaluation import place_in

MANY = 3  # candidates that one line of the evaluator must raise for to be reported
_NAMED_CASES = 8
_ERROR = re.compile(r"^\S+ \S* ?((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::| @|$)")


class EvaluationRow(NamedTuple):
    """One evaluation: `case` is "" without a data set, `kind` that of the `Observation`."""

    candidate: str
    case: str
    kind: str

    @property
    def ok(self) -> bool:
        """True if there is a score."""
        return not self.kind


class EvaluatorFault(msgspec.Struct, frozen=True):
    """Evaluations that failed at one line of the evaluator.

    `place` is `file:line`, `error` the most frequent exception ("" if none is named). Of the
    `candidates` that it hit, `scored` scored in another evaluation; `initial` is True if an initial
    program is among them. `evaluations` is their number, a `share` of all on these `cases`, of
    `all_cases`.
    """

    place: str
    error: str
    candidates: int
    scored: int
    initial: bool
    evaluations: int
    share: float
    cases: tuple[str, ...]
    all_cases: int

    @property
    def is_certain(self) -> bool:
        """True if the fault is the evaluator's, whatever candidates return.

        It hits an initial program, or half of all evaluations on these cases and mostly candidates
        that score elsewhere.
        """
        return self.initial or (self.share >= 0.5 and 2 * self.scored >= self.candidates)

    @property
    def sentence(self) -> str:
        """`evaluator.py:12 raises KeyError on 3 of 36 cases: c3, c13, c23`."""
        raises = f"{self.place} raises {self.error or 'an exception'}"
        if self.cases == ("",):
            return (
                f"{raises} in {self.evaluations} of {round(self.evaluations / self.share)} "
                "evaluations"
            )
        more = len(self.cases) - _NAMED_CASES
        named = [*self.cases[:_NAMED_CASES], *([f"{more} more"] if more > 0 else [])]
        return f"{raises} on {len(self.cases)} of {self.all_cases} cases: {', '.join(named)}"


def evaluator_faults(
    rows: Iterable[EvaluationRow], initial: Collection[str] = ()
) -> list[EvaluatorFault]:
    """Lines of the evaluator that raised for an `initial` program or for `MANY` candidates.

    Most evaluations first; cases in the order in which they were first seen.
    """
    every = list(rows)
    scored = {row.candidate for row in every if row.ok}
    evaluations_by_case = Counter(row.case for row in every)
    hit: dict[str, list[EvaluationRow]] = {}
    for row in every:
        if place := place_in(row.kind):
            hit.setdefault(place, []).append(row)
    faults: list[EvaluatorFault] = []
    for place, failed in hit.items():
        candidates, cases = {row.candidate for row in failed}, {row.case for row in failed}
        if len(candidates) < MANY and candidates.isdisjoint(initial):
            continue
        errors = Counter(match[1] for row in failed if (match := _ERROR.match(row.kind)))
        fault = EvaluatorFault(
            place=place,
            error=next((name for name, _ in errors.most_common(1)), ""),
            candidates=len(candidates),
            scored=len(candidates & scored),
            initial=not candidates.isdisjoint(initial),
            evaluations=len(failed),
            share=len(failed) / sum(int(evaluations_by_case[case]) for case in cases),
            cases=tuple(case for case in evaluations_by_case if case in cases),
            all_cases=len(evaluations_by_case),
        )
        faults.append(fault)
    return sorted(faults, key=lambda fault: (-fault.evaluations, fault.place))
