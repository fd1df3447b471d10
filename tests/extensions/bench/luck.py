"""Two groups of runs whose programs are known to be equally good, or not.

The data set has 24 cases, scores are 0 or 1.
"""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, stdev

import pytest

from culmen.core.task import Objective
from culmen.core.usage import Budget
from culmen.extensions.bench.fresh_scores import FreshScore
from culmen.extensions.bench.records import ComparedRun, Measurement

CASES, REPEATS = 24, 1
INITIAL = "initial"


class World:
    """Chances to pass, by program and case."""

    def __init__(self, rng: Random, drawn: int) -> None:
        self.rng, self.drawn = rng, drawn
        self._difficulty = [rng.gauss(0, 1.5) for _ in range(CASES)]
        self._taste: dict[str, list[float]] = {INITIAL: [0.0] * CASES}
        self._chances: dict[tuple[str, float], list[float]] = {}
        self._fresh: dict[tuple[str, int, int], float] = {}

    def chances(self, program: str, skill: float) -> list[float]:
        """Chances to pass by case: programs differ case by case.

        Those of one skill have the same mean.
        """
        taste = self._taste.setdefault(program, [self.rng.gauss(0, 1.0) for _ in range(CASES)])
        wanted = fmean(_chance(0.5 + skill + each) for each in self._difficulty)
        low, high = -20.0, 20.0
        for _ in range(30):
            middle = (low + high) / 2
            found = [_chance(middle + one + other) for one, other in zip(taste, self._difficulty)]
            low, high = (middle, high) if fmean(found) < wanted else (low, middle)
        return [_chance(low + one + other) for one, other in zip(taste, self._difficulty)]

    def passes(self, program: str, skill: float, case: int) -> float:
        """One evaluation: 0 or 1."""
        if (program, skill) not in self._chances:
            self._chances[program, skill] = self.chances(program, skill)
        return float(self.rng.random() < self._chances[program, skill][case])

    def fresh(self, program: str, skill: float) -> tuple[FreshScore, ...]:
        """The program on all cases, always the same once it was evaluated."""
        for case in range(CASES):
            for repeat in range(REPEATS):
                if (program, case, repeat) not in self._fresh:
                    self._fresh[program, case, repeat] = self.passes(program, skill, case)
        return tuple(
            FreshScore(name, "test", str(case), CASES, repeat, score)
            for (name, case, repeat), score in self._fresh.items()
            if name == program
        )


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def interval(values: list[float]) -> Measurement:
    """A mean with its margin by Student's t; few equal ones are no certainty."""
    error = max(stdev(values), 0.25) / math.sqrt(len(values))
    student = pytest.importorskip("scipy.stats", reason="scipy is not installed").t
    return Measurement(
        fmean(values), float(student.ppf(0.975, len(values) - 1)) * error, len(values)
    )


def run(
    world: World, group: str, seed: int, program: str, skill: float, together: bool
) -> ComparedRun:
    """A finished run that returned this program, measured as a run's final choice does it."""
    cases = world.rng.sample(range(CASES), world.drawn)
    scores = [world.passes(program, skill, case) for case in cases]
    beside = [world.passes(INITIAL, 0.0, case) for case in cases]
    own = interval(scores)
    gain = (
        None
        if program == INITIAL
        else interval([one - other for one, other in zip(scores, beside)])
    )
    fresh = (*world.fresh(program, skill), *world.fresh(INITIAL, 0.0)) if together else ()
    return ComparedRun(
        run=f"{group}-{seed}",
        task="task",
        digest="task",
        objective=Objective(bounds=(0.0, 1.0)),
        strategy=group,
        config={},
        model="",
        seed=seed,
        state="finished",
        score=own.value,
        certified=None,
        strict=None,
        trust="",
        evaluations=100,
        dollars=0.0,
        unpriced=0,
        seconds=1.0,
        budget=Budget(evaluations=100),
        program=program,
        margin=own.margin,
        count=world.drawn,
        split="test",
        cases=world.drawn,
        of=CASES,
        initial_program=INITIAL,
        initial=None if gain is None else interval(beside),
        gain=gain,
        fresh=fresh,
    )


def group(
    world: World, name: str, runs: int, kind: str, skill: float, together: bool
) -> list[ComparedRun]:
    """Runs of one strategy in a world of this kind."""
    program = {"untouched": INITIAL, "one program": name}.get(kind)
    if kind == "untouched":
        skill = 0.0
    return [
        run(world, name, seed, program or f"{name}{seed}", skill, together) for seed in range(runs)
    ]
