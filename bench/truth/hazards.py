"""Simulated tasks with known true scores whose evaluations fail, or mislead.

`HAZARDS` has them by name. The value of a failed evaluation is exact: if a world has a `floor`, the
task declares it as the bound of its scores, and a candidate's failures count as that; without one
they count as the true score of the initial program. Failures that are not a candidate's fault (an
outage, a scorer that loses its simulator) never enter a true score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from random import Random
from statistics import NormalDist, fmean

from bench.truth.worlds import (
    START,
    FrontWorld,
    Genome,
    Shape,
    SimulatedWorld,
    candidate_genome,
    deceptive_shape,
    smooth_shape,
)
from msgspec.structs import replace as replaced

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, Result
from culmen.core.task import Objective, Task

FRAGILE = 1
"""The genes of a candidate that fails at the rate `HazardWorld.failing`."""
HOPELESS = 2
"""The genes of a candidate far below all others, whose noise is `WILD` times as large."""
WILD = 10.0
OUTAGE = 20
"""Number of successive evaluations that an outage fails."""
SECONDS_EACH = 0.01
"""Seconds between two evaluations of a world that drifts."""
LOST = "RuntimeError: connection to the simulator lost"


@dataclass(frozen=True)
class HazardWorld(SimulatedWorld):
    """A simulated task with a hazard or two; the score is the quality except for these fields.

    Fragile candidates score `bonus` more and end as `status` at the rate `failing`; with `crashing`
    they fail on that many training cases, always. `away` is the chance of the scorer to fail;
    `outage` the share of `evaluations` after which the next `OUTAGE` fail, for any candidate (such
    a world counts evaluations, so it serves one run only). `gross` is the share of evaluations
    whose error is ten times as large, `skew` the deviation of the logarithm of rewards with the
    quality as mean. `clean`: fragile candidates and the initial program have no noise. `shares` is
    the deviation of the noise as a share of the reward's size. `fixed`: a candidate's answer to a
    case never changes. `few`: candidates of one quality have one text. `train` and `test` are
    numbers of cases; the true score is the mean over the latter, if any. `sign` -1: losses.
    `drift` is the rise of all scores in a second, where an evaluation takes `SECONDS_EACH` (such a
    world serves one run only, too).
    """

    start: float = START
    bonus: float = 0.0
    failing: float = 0.0
    status: Status = Status.ERROR
    crashing: int = 0
    away: float = 0.0
    outage: float | None = None
    gross: float = 0.0
    skew: float = 0.0
    clean: bool = False
    shares: float = 0.0
    fixed: bool = False
    few: bool = False
    train: int = 0
    test: int = 0
    sign: int = 1
    floor: float | None = None
    drift: float = 0.0
    evaluations: int = 100
    made: list[int] = field(default_factory=lambda: [0], init=False, compare=False)

    def task(self) -> Task:
        """The task of this world."""
        sizes = {"train": self.train, "test": self.test}
        numbered = [(split, number) for split, size in sizes.items() for number in range(size)]
        cases = [Case(f"{split}{number}", number, split=split) for split, number in numbered]
        objective = Objective(
            direction="max" if self.sign > 0 else "min",
            bounds=(0.0, 1.0) if self.coin else (self.floor, None),
        )
        first = Genome(self.start).genome_parts(0)
        return Task("hazard", goal="climb", seeds=(first,), cases=tuple(cases), objective=objective)

    def truth(self, candidate: Candidate) -> float:
        """The expected score over evaluations and cases, a candidate's failures at the floor."""
        split, size = ("test", self.test) if self.test else ("train", self.train)
        names = [f"{split}{n}" for n in range(size)] or [""]
        return self.sign * fmean(self._expected_reward(candidate, name) for name in names)

    def is_fragile(self, candidate: Candidate) -> bool:
        """True if its evaluations may fail, through its own fault."""
        return candidate_genome(candidate).genes == FRAGILE and (
            self.failing > 0 or self.crashing > 0
        )

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        seconds, result = super().perform(effect, rng)
        if not isinstance(effect.request, EvaluateRequest) or not isinstance(result, Observation):
            return seconds, result
        if self._is_away(effect.request):
            failure = {"status": Status.ERROR, "reason": "exception", "feedback": LOST}
            return seconds, replaced(result, score=None, **failure)
        if result.ok and self.drift and result.score is not None:
            risen = self.drift * SECONDS_EACH * self.made[0]
            return SECONDS_EACH, replaced(result, score=result.score + risen)
        if result.ok:
            return seconds, result
        reason, feedback = "exception", "IndexError: list index out of range"
        if self.status is Status.TIMEOUT:
            reason, feedback = "timeout", "the time limit passed"
        return seconds, replaced(result, status=self.status, reason=reason, feedback=feedback)

    def _fixed_answer(self, candidate: Candidate, case: str) -> float:
        draw = Random(f"answer/{self.number}/{candidate.digest}/{case}").random()
        return float(draw < self._uncut_reward(candidate, case))

    def _is_away(self, request: EvaluateRequest) -> bool:
        """True if the scorer fails, for any candidate."""
        self.made[0] += 1
        if self.outage is not None:
            return 0 < self.made[0] - round(self.outage * self.evaluations) <= OUTAGE
        return Random(f"away/{request.seed}/{request.candidate.digest}").random() < self.away

    def _is_crashing(self, candidate: Candidate, case: str) -> bool:
        struck = {f"train{n}" for n in range(self.crashing)}
        return case in struck and self.is_fragile(candidate)

    def _uncut_reward(self, candidate: Candidate, case: str) -> float:
        """The expected reward without a failure, before it is cut at the floor."""
        value = self.reward(candidate_genome(candidate).quality) + self.bonus * self.is_fragile(
            candidate
        )
        return value + (self._case_shift(candidate, case) if case else 0.0)

    def _expected_reward(self, candidate: Candidate, case: str) -> float:
        """The exact expected reward of an evaluation."""
        value, lowest = self._uncut_reward(candidate, case), self.floor
        if self.fixed:
            return self._fixed_answer(candidate, case)
        if lowest is not None:
            value = _floored_mean(value, 0.0 if self._is_clean(candidate) else self.noise, lowest)
        rate = self.failing * self.is_fragile(candidate)
        rate = 1.0 if self._is_crashing(candidate, case) else rate
        failed = self.reward(self.start) if lowest is None else lowest
        return (1 - rate) * value + rate * failed

    def _born_child(self, brief: Brief, rank: int, rng: Random) -> Candidate:
        child = super()._born_child(brief, rank, rng)
        parts = candidate_genome(child).genome_parts(0)
        return Candidate.of(parts, child.parents, child.origin) if self.few else child

    def _is_clean(self, candidate: Candidate) -> bool:
        first = candidate_genome(candidate).quality == self.start
        return self.clean and (first or self.is_fragile(candidate))

    def _draw_noise(self, candidate: Candidate, draws: Random) -> float:
        if self._is_clean(candidate):
            return 0.0
        wide = 10.0 if self.gross and draws.random() < self.gross else 1.0
        wide *= WILD if candidate_genome(candidate).genes == HOPELESS and self.noise else 1.0
        grown = self.shares * abs(self._uncut_reward(candidate, "")) if self.shares else 0.0
        return wide * super()._draw_noise(candidate, draws) + grown * (
            draws.gauss(0, 1) if grown else 0.0
        )

    def _draw_score(self, candidate: Candidate, case: str, draws: Random) -> float | None:
        rate = self.failing * self.is_fragile(candidate)
        if self._is_crashing(candidate, case) or (rate and draws.random() < rate):
            return None
        level = self._uncut_reward(candidate, case)
        if self.fixed:
            return self._fixed_answer(candidate, case)
        if self.coin:
            return float(draws.random() < level)
        value = level + self._draw_noise(candidate, draws)
        if self.skew:
            value *= math.exp(self.skew * draws.gauss(0, 1) - self.skew**2 / 2)
        return self.sign * (value if self.floor is None else max(self.floor, value))


def _floored_mean(mean: float, sd: float, lowest: float) -> float:
    """The mean of a normal value, with values below `lowest` replaced by `lowest`."""
    if not sd:
        return max(mean, lowest)
    z, normal = (mean - lowest) / sd, NormalDist()
    return lowest + (mean - lowest) * normal.cdf(z) + sd * normal.pdf(z)


@dataclass(frozen=True)
class TwoObjectives(FrontWorld):
    """The quarter circle of `FrontWorld`; its score is the mean of both objectives."""

    evaluations: int = 100


def blind_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """A program of 1.0 that is fragile, or one of 0.8 that is steady, whatever the parent."""
    return Genome(1.0, FRAGILE) if rng.random() < 0.5 else Genome(0.8)


def inherited_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """As in `smooth`; one child in ten becomes fragile, or steady if its parent was fragile."""
    child = smooth_shape(parent, rng, world)
    return replace(child, genes=parent.genes ^ FRAGILE) if rng.random() < 0.1 else child


def own_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """As in `smooth`; every second child is fragile, whatever its parent."""
    return replace(smooth_shape(parent, rng, world), genes=FRAGILE * (rng.random() < 0.5))


def equal_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Every child is as good as the initial program."""
    return parent


def ten_points_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Three children in twenty are better by 0.1, once; the others equal their parents."""
    if parent.genes or rng.random() >= 0.15:
        return parent
    return Genome(min(1.0, parent.quality + 0.1), 1)


def hopeless_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """As in `smooth`; a third of the children lie 3 below, thirty deviations of a noise of 0.1."""
    child = smooth_shape(parent, rng, world)
    return Genome(child.quality - 3.0, HOPELESS) if rng.random() < 1 / 3 else child


def packing_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Per cent of bins that are wasted, as a loss: sensible programs 8.8, silly ones 160 to 390.

    A sixth are sensible, a third silly; the others equal their parents, or are a bit worse.
    """
    draw = rng.random()
    if draw < 1 / 6:
        return Genome(-8.8)
    if draw < 1 / 2:
        return Genome(-rng.uniform(160.0, 390.0))
    return parent if draw < 3 / 4 else Genome(parent.quality - rng.expovariate(0.5))


def two_programs_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Always one program."""
    return Genome(3.0)


def four_programs_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """One of three programs."""
    return Genome(rng.choice((3.0, 5.0, 9.0)))


def one_gain_shape(parent: Genome, rng: Random, world: int) -> Genome:
    """Three children in twenty are better by 0.12, once; the others are equal, or a bit worse."""
    draw = rng.random()
    if draw < 0.15 and not parent.genes:
        return Genome(parent.quality + 0.12, 1)
    worse = rng.expovariate(20.0) if draw > 0.6 else 0.0
    return replace(parent, quality=parent.quality - worse)


def deficit_reward(value: float) -> float:
    """Distance to quality 1 as a reward, at most 0."""
    return value - 1.0


def energy_reward(value: float) -> float:
    """1.2 for the initial program, 2 for the best."""
    return 1.2 + 0.8 * (value - START) / (1.0 - START)


def _fragile_world(shape: Shape, rate: float) -> HazardWorld:
    return HazardWorld(shape=shape, noise=0.05, failing=rate, bonus=0.15, floor=0.0)


def _pass_fail_world(shape: Shape, rate: float) -> HazardWorld:
    """Pass/fail on 20 training and 20 test cases."""
    return HazardWorld(shape=shape, coin=True, start=rate, train=20, test=20, evaluations=400)


_SMOOTH = HazardWorld(noise=0.1)
_TWO = HazardWorld(shape=two_programs_shape, start=1.0, few=True, evaluations=20)
_RATES = (0.1, 0.3, 0.5, 0.7)
HAZARDS: dict[str, HazardWorld | TwoObjectives] = {
    "smooth, noise 2 steps": _SMOOTH,
    "smooth, minimised": replace(_SMOOTH, reward=deficit_reward, sign=-1),
    "exact": HazardWorld(),
    "deceptive": HazardWorld(shape=deceptive_shape),
    "flaky": HazardWorld(shape=blind_shape, noise=0.02, clean=True, start=0.3, failing=0.5),
    **{f"fragile {rate}, inherited": _fragile_world(inherited_shape, rate) for rate in _RATES},
    **{f"fragile {rate}, own": _fragile_world(own_shape, rate) for rate in _RATES},
    **{
        f"all equal, drift {drift:+g}": HazardWorld(
            shape=equal_shape, noise=0.02, drift=drift, evaluations=300
        )
        for drift in (0.0, 0.1, -0.1, 0.3, -0.3)
    },
    "one gain of 1.2 sd": HazardWorld(shape=one_gain_shape, noise=0.1, evaluations=300),
    "outage in the middle": HazardWorld(noise=0.05, outage=0.4),
    "outage at the end": HazardWorld(noise=0.05, outage=0.8),
    "Student t, 2 df": HazardWorld(noise=0.1, tails=2),
    "5 % gross errors": HazardWorld(noise=0.05, gross=0.05),
    "log-normal": HazardWorld(skew=0.7),
    "time-outs": HazardWorld(
        shape=own_shape, noise=0.05, failing=0.3, status=Status.TIMEOUT, floor=0.0
    ),
    "crashing cases": HazardWorld(
        shape=own_shape,
        noise=0.05,
        effect=0.05,
        train=40,
        crashing=3,
        floor=0.0,
        evaluations=300,
    ),
    **{
        f"pass/fail {rate}, all equal": _pass_fail_world(equal_shape, rate)
        for rate in (0.5, 0.7, 0.9, 0.97)
    },
    **{
        f"pass/fail {rate}, some +0.1": _pass_fail_world(ten_points_shape, rate)
        for rate in (0.5, 0.7, 0.9)
    },
    "simulator lost, minimised": HazardWorld(noise=0.05, reward=energy_reward, sign=-1, away=0.3),
    "packing, minimised": HazardWorld(
        shape=packing_shape, start=-14.5, shares=0.35, sign=-1, evaluations=300
    ),
    "packing, 120 evaluations": HazardWorld(
        shape=packing_shape, start=-14.5, shares=0.35, sign=-1, evaluations=120
    ),
    "noise of 30 % of the score": HazardWorld(shares=0.3),
    "noise falls with the score": HazardWorld(shares=0.3, reward=deficit_reward, sign=-1),
    "hopeless at 30 sd": HazardWorld(shape=hopeless_shape, noise=0.1),
    "a number, all equal": HazardWorld(shape=equal_shape, noise=0.1),
    "two programs, exact": _TWO,
    "four programs, exact": replace(_TWO, shape=four_programs_shape),
    "neutral edits, exact": replace(_TWO, shape=four_programs_shape, few=False, evaluations=60),
    **{
        f"rollouts {rate}, all equal": HazardWorld(
            shape=equal_shape, coin=True, start=rate, evaluations=60
        )
        for rate in (0.5, 0.7, 0.9, 0.97)
    },
    "fixed answers": replace(_pass_fail_world(ten_points_shape, 0.4), fixed=True, evaluations=200),
    "two objectives": TwoObjectives(noise=0.05),
}
"""Every world by name."""


def hazard_world(name: str, seed: int, evaluations: int = 0) -> HazardWorld | TwoObjectives:
    """The world of this name for one run; `evaluations` 0: the world's own number."""
    world = HAZARDS[name]
    count = evaluations or world.evaluations
    if isinstance(world, TwoObjectives):
        return replace(world, evaluations=count)
    return replace(world, number=seed, evaluations=count)
