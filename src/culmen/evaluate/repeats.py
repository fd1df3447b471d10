"""Repeats of an evaluation that are made otherwise, to find the cause of different scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from culmen.core.evaluation import (
    Case,
    Observation,
)
from culmen.core.ports import Backend

CALL, PROCESS, HASH_SEED = "number of the call", "process", "hash seed"
CAUSES = {
    CALL: (
        "scores differ from one call to the next: the evaluator keeps state, such as a counter",
        "remove keeps_state, unless scores of later programs may depend on earlier ones",
    ),
    PROCESS: (
        "scores differ from one process to the next: the evaluator draws data when it is imported, "
        "without a seed",
        "give that generator a seed, so that all programs are judged on the same data",
    ),
    HASH_SEED: (
        "scores differ with Python's hash seed: they depend on the order of a set",
        "sort what is taken from a set",
    ),
}
"""Kinds of repeats, in the order in which they are made, as (finding, remedy)."""

Wanted = Sequence[tuple[Case | None, int]]
"""Cases and random seeds of evaluations."""


async def repeat_otherwise(
    backend: Backend,
    evaluate_all: Callable[[Wanted], Awaitable[list[Observation]]],
    repeats: Sequence[tuple[Case | None, int]],
    first: Sequence[Observation],
    keeps_state: bool,
) -> tuple[list[Observation], str]:
    """Repeats with random seed 0, `repeats` of each case, and the cause of a difference.

    `first` are the evaluations made before. "" is the cause if all agree, or if evaluations of one
    process differ for no reason that is known: the evaluator is noisy.
    """
    made, cause, is_known = list[Observation](), "", True
    for kind in CAUSES:
        varied = (CALL,) if kind == CALL else await backend.vary_processes(int(kind == HASH_SEED))
        wanted = [(case, 0) for case, count in repeats for _ in range(_share(kind, count))]
        made += await evaluate_all(wanted)
        if is_known and not _agree([*first, *made]):
            is_known = False
            cause = kind if kind in varied and (kind != CALL or keeps_state) else ""
    return made, cause


def _share(kind: str, count: int) -> int:
    """Number of the `count` repeats that are made in this way: half, a quarter, the rest."""
    half = (count + 1) // 2
    quarter = (count - half + 1) // 2
    return {CALL: half, PROCESS: quarter, HASH_SEED: count - half - quarter}[kind]


def _agree(observations: Iterable[Observation]) -> bool:
    """True if all evaluations of each case had the same result."""
    found: dict[str, set[tuple[str, float | None]]] = {}
    for each in observations:
        found.setdefault(each.case, set()).add((each.status.value, each.score))
    return all(len(results) == 1 for results in found.values())
