"""Recorded runs of every kind, made in a moment on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from bench.truth.worlds import FAMILY, FrontWorld

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import EvaluateRequest
from culmen.core.task import MetricGoal, Objective, Task
from culmen.core.usage import Budget
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.pacevolve.pacevolve import Pacevolve
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing import landscape
from culmen.testing.landscape import Landscape
from tests.gallery import Gallery, program, record, task, truth

PICTURE = "data:image/png;base64,iVBORw0KGgo="
_FAILURES = {
    "hangs": (Status.TIMEOUT, "wall_clock", "did not answer within 2 s"),
    "scorer": (Status.INVALID, "scorer_raised", "RuntimeError: no simulator"),
    "fails": (Status.ERROR, "exception", "KeyError: 'sum'"),
}


@dataclass
class Spoilt(Gallery):
    """The gallery, with a share of its candidates or evaluations spoilt in one way."""

    kind: str = ""
    share: float = 0.1
    made: int = 0

    def observe(self, request: EvaluateRequest, rng: Random) -> Observation:
        """An evaluation, spoilt."""
        seen = super().observe(request, rng)
        self.made += 1
        if seen.score is None:
            return seen
        if self.kind == "drifts":
            return msgspec.structs.replace(seen, score=seen.score - 0.004 * self.made)
        if self.kind == "draws":
            return msgspec.structs.replace(seen, artifacts={"map.png": PICTURE})
        if self.kind == "tosses":
            right = float(rng.random() < truth(request.candidate))
            return msgspec.structs.replace(seen, score=right)
        return self._struck(seen, rng) if self._is_struck(request.candidate, rng) else seen

    def _is_struck(self, candidate: Candidate, rng: Random) -> bool:
        is_first = candidate.parts == program(0.2, 0)
        if is_first and self.kind != "fails":
            return False
        draws = Random(candidate.digest) if self.kind in ("hangs", "far") else rng
        return draws.random() < self.share

    def _struck(self, seen: Observation, rng: Random) -> Observation:
        if self.kind == "far":
            return msgspec.structs.replace(seen, score=-1e4 * rng.random())
        status, reason, words = _FAILURES[self.kind]
        about = {"feedback": words, "seconds": 2.0, "culprit": self.kind * (self.kind == "scorer")}
        return Observation(seen.candidate, status, None, seen.case, reason, **about)


class Hopeless(Gallery):
    """A world whose children are all worse than their parents."""

    def _child(
        self,
        base: float,
        ids: tuple[str, ...],
        rank: int,
        model: str,
        island: int | None,
        rng: Random,
    ) -> Candidate:
        made = super()._child(base, ids, rank, model, island, rng)
        worse = round(max(0.0, base - 0.02 - 0.1 * rng.random()), 6)
        return Candidate.of(program(worse, rng.getrandbits(30)), ids, made.origin)


class Three(Gallery):
    """A world with three objectives, of which the first is the gallery's score."""

    def observe(self, request: EvaluateRequest, rng: Random) -> Observation:
        """An evaluation with three metrics."""
        seen = super().observe(request, rng)
        if seen.score is None:
            return seen
        place = Random(request.candidate.digest).random()
        told = {
            "accuracy": seen.score,
            "latency": 5.0 + 20.0 * place + rng.gauss(0, 0.5),
            "size": 100.0 * (1.0 - place) + rng.gauss(0, 2.0),
        }
        return msgspec.structs.replace(seen, metrics=told)


def _with(about: Task, **fields: Any) -> Task:
    return msgspec.structs.replace(about, **fields)


def _minimised() -> Task:
    about = task(direction="min")
    aim = msgspec.structs.replace(about.objective, start=0.8, target=0.05)
    return _with(about, objective=aim)


def _three_goals() -> Task:
    goals = (MetricGoal("accuracy"), MetricGoal("latency", "min"), MetricGoal("size", "min"))
    return _with(task(), objective=Objective(metrics=goals))


def _two_splits() -> Task:
    cases = [Case(f"train-{n}", n, n) for n in range(5)]
    return _with(task(), cases=(*cases, *(Case(f"t-{n}", n, n, split="test") for n in range(8))))


def _bounded(about: Task, low: float | None, high: float | None) -> Task:
    return _with(about, objective=msgspec.structs.replace(about.objective, bounds=(low, high)))


def _carried() -> Task:
    """A task that begins with three candidates of an earlier run."""
    return _with(task(), carried=tuple(program(0.4 + 0.05 * n, 900 + n) for n in range(3)))


def _family(name: str, many: int = 120) -> Callable[[Path], Path]:
    world = FAMILY[name]
    budget = Budget(evaluations=many, calls=40 * many)
    return lambda folder: record(
        folder, PedigreeSearch(), budget=budget, about=world.task(), world=world
    )


def _run(world: Any = None, strategy: Any = None, **more: Any) -> Callable[[Path], Path]:
    return lambda folder: record(folder, strategy or PedigreeSearch(), world=world, **more)


_120, _200 = Budget(evaluations=120), Budget(evaluations=200)
RUNS: dict[str, Callable[[Path], Path]] = {
    "ordinary": _run(budget=_200),
    "exact": _run(Gallery(sigma=0.0, rough=0.0), about=task(deterministic=True), budget=_200),
    "minimised": _run(Gallery(direction="min"), about=_minimised(), budget=_120),
    "failed": _run(Spoilt(kind="fails", share=1.0), budget=_120),
    "hanging": _run(Spoilt(kind="hangs", share=0.4), budget=_120),
    "flaky": _run(Gallery(rough=0.35), budget=_120),
    "evaluator fails": _run(Spoilt(kind="scorer", share=0.3, rough=0.15), budget=_120),
    "far outliers": _run(Spoilt(kind="far", share=0.08), budget=_200),
    "nothing to find": _run(Hopeless(sigma=0.1), budget=_120),
    "three objectives": _run(Three(), about=_three_goals(), budget=_200),
    "two objectives": _run(FrontWorld(noise=0.1), about=FrontWorld().task(), budget=_120),
    "pictures": _run(Spoilt(kind="draws"), budget=_120),
    "killed": _run(budget=_200, kill_after=90),
    "no final choice": _run(budget=Budget(evaluations=9)),
    "islands": _run(
        Landscape(), Pacevolve(islands=3), about=landscape.task(), budget=Budget(evaluations=60)
    ),
    "best of n": _run(strategy=BestOfN(), budget=_120),
    "prompt with cases": _run(about=task(6), budget=_200),
    "test cases apart": _run(about=_two_splits(), budget=_200),
    "two budgets": _run(budget=Budget(evaluations=2000, seconds=60.0)),
    "dollars": _run(budget=Budget(evaluations=300, dollars=0.05)),
    "drift": _run(Spoilt(kind="drifts"), budget=_120),
    "pass or fail": _run(
        Spoilt(kind="tosses", sigma=0.0), about=_bounded(task(), 0, 1), budget=_120
    ),
    "carried": _run(about=_carried(), budget=_120),
    "right answers": _family("right answers"),
    "exact data set": _family("exact data set"),
    "losses over decades": _family("losses over decades"),
    "scores of -1e9": _family("scores of -1e9"),
    "broken children": _family("broken children"),
    "twins": _family("twins"),
    "unit 1e-6": _family("unit 1e-6"),
}
