"""Power of a task: gains that a final choice can tell from noise.

They rest on repeated evaluations of the initial program. A gain g is found with probability .8 at
the 5 % level (two-sided) if each program has n evaluations on the same cases:

    n = 2 s² ((z.975 + z.8) / g)²          s² variance of repeated evaluations of one case
    m = b ((z.975 + z.8) / g)²             b  variance of the cases' means

m different cases tell the gain for new cases of the kind, if it varies between cases as much as
scores do. This variance is unknown before there is a second program.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance

import msgspec

from culmen.core.answers import refusal_remedy, refusal_words
from culmen.core.errors import UserError
from culmen.core.evaluation import REFUSED, Case, Observation
from culmen.core.ports import Backend
from culmen.core.spread import pooled_variance
from culmen.core.task import Task
from culmen.engine.reserve import FACTOR, evaluations_to_tell
from culmen.evaluate.backends import SettlingBackend
from culmen.evidence.verdict import reported_split

KEPT = 0.3
"""Share of a budget that the final choice of a run of the planned size gets."""

CHOOSING = 0.4
"""Share of this that picks the winner, at most (`engine.finale`)."""


class NoiseSample(msgspec.Struct, frozen=True):
    """Repeated evaluations of the initial program on the split that a result is reported on.

    `rounds` holds the scores of one evaluation of every case each (None: failed); `cases` is 0
    without a data set, where a round is one evaluation. `within` is the variance between repeats of
    a case, `between` that of the cases' means; `seconds` and `dollars` are for one evaluation.
    """

    split: str
    cases: int
    rounds: tuple[tuple[float | None, ...], ...]
    within: float
    between: float
    failed: int
    seconds: float
    dollars: float

    @property
    def evaluations(self) -> int:
        """Evaluations made."""
        return sum(map(len, self.rounds))


class NeededEvaluations(msgspec.Struct, frozen=True):
    """Evaluations with which a gain is found.

    `rounds` over `cases` for each of two programs, `final` for both; `new_cases` are the different
    cases that it takes for new cases of the kind (0 without a data set). `budget` is for a run
    whose final choice gets the share `KEPT`; seconds (one worker) and dollars are for `final`.
    """

    gain: float
    rounds: int
    cases: int
    new_cases: int
    final: int
    budget: int
    seconds: float
    dollars: float


async def sample_noise(
    task: Task,
    backend: Backend,
    rounds: int,
    workers: int = 1,
    report: Callable[[int, int], None] | None = None,
) -> NoiseSample:
    """Evaluate the first initial program `rounds` times on every case of the reported split.

    Each round (2 or more) has another random seed. Starts and closes the backend. `report` is
    called with the evaluations done and to do. Raises `UserError` without an initial program, or if
    no evaluation gives a score.
    """
    if not task.seeds:
        fix = "add one to the task: [seed] in task.toml"
        raise UserError("no initial program to measure the noise with", where=task.name, fix=fix)
    backend = SettlingBackend(backend, task)
    candidate, split = task.initial_candidates()[0], reported_split(task)
    cases: tuple[Case | None, ...] = task.split(split) if split else (None,)
    places = [(number, case) for number in range(max(2, rounds)) for case in cases]
    waiting, seen = list(enumerate(places))[::-1], dict[int, Observation]()

    async def work() -> None:
        while waiting:
            place, (number, case) = waiting.pop()
            seen[place] = await backend.evaluate(candidate, case, number)
            if report is not None:
                report(len(seen), len(places))

    try:
        await backend.start()
        await asyncio.gather(*(work() for _ in range(max(1, workers))))
    finally:
        await backend.close()
    return summarize_noise(task, [seen[place] for place in range(len(places))], len(cases))


def summarize_noise(task: Task, seen: Sequence[Observation], cases: int) -> NoiseSample:
    """The sample from all observations, one round of `cases` after the other."""
    rewards = [
        task.objective.reward(o.score) if o.ok and o.score is not None else None for o in seen
    ]
    rounds = tuple(tuple(rewards[i : i + cases]) for i in range(0, len(rewards), cases))
    by_case = [[r for r in column if r is not None] for column in zip(*rounds, strict=True)]
    scored = [values for values in by_case if values]
    if not scored:
        failed = next(o for o in seen if not o.ok)
        fix, what = "culmen check shows what went wrong", f"never scored: {failed.reason}"
        if failed.reason == REFUSED:
            fix, what = refusal_remedy(failed), f"is refused: {refusal_words(failed)}"
        raise UserError(f"the initial program {what}", where=task.name, fix=fix)
    within = pooled_variance(scored) or 0.0
    means = [fmean(values) for values in scored]
    spread = variance(means) if len(means) > 1 else 0.0
    return NoiseSample(
        split=reported_split(task),
        cases=cases if task.cases else 0,
        rounds=rounds,
        within=within,
        between=max(0.0, spread - within / len(rounds)),
        failed=sum(reward is None for reward in rewards),
        seconds=fmean(o.seconds for o in seen),
        dollars=fmean(o.usage.at_most("dollars") for o in seen),
    )


def needed_evaluations(sample: NoiseSample, gain: float) -> NeededEvaluations:
    """Evaluations that find a gain of this size, in the unit of the score.

    One round where repeats of a case never differed.
    """
    each = evaluations_to_tell(gain, sample.within)
    rounds = max(1, math.ceil(each / max(1, sample.cases)))
    final = 2 * rounds * max(1, sample.cases)
    budget = math.ceil(final / (KEPT * (1.0 - CHOOSING)))
    return NeededEvaluations(
        gain=gain,
        rounds=rounds,
        cases=sample.cases,
        new_cases=math.ceil(sample.between * (FACTOR / gain) ** 2) if sample.cases else 0,
        final=final,
        budget=budget,
        seconds=final * sample.seconds,
        dollars=final * sample.dollars,
    )
