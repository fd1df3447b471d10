"""The final choice: is the reported number true, and does its interval hold the truth?

A 95 % interval should hold it 90 to 98 times in 100.

Simulated searches (a start of 0.10; a child is 0.05 better with probability 0.15, as good with
0.21, else worse by an exponential amount of mean 0.06) follow the highest mean with four workers,
300 evaluations with everything. Each world changes one thing: noise, cases, failures. Printed, over
the random seeds: true reward of the reported candidate, claim minus truth with its standard error,
mean half width of the 95 % intervals, share of intervals that hold the truth (of the best, of the
initial program, of the gain), how often a true gain was called beyond noise (seen), and how often
one that is none (false). On a data set the truth is the mean of the split.

    python bench/bench_finale.py [--seeds 100] [--evaluations 300] [--world NAME]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Case, Observation, Status
from culmen.core.event import Effect, EvaluateRequest, ProposeRequest, Result
from culmen.core.ports import Lab
from culmen.core.result import RunResult
from culmen.core.task import Objective, Task
from culmen.core.usage import Budget
from culmen.testing.virtual import simulate


@dataclass(frozen=True)
class Hill:
    """A landscape with noise.

    Standard deviations: `sigma` of the noise, `effects` of the cases, `together` of the joint
    effects of candidate and case.
    """

    sigma: float = 0.1
    train: int = 0
    test: int = 0
    effects: float = 0.0
    together: float = 0.0
    binary: bool = False
    student: bool = False
    unequal: bool = False
    crashes: float = 0.0
    better: float = 0.15

    def cases(self) -> tuple[Case, ...]:
        """Training and test cases."""
        splits = (("train", self.train), ("test", self.test))
        return tuple(
            Case(f"{split}{i}", split=split) for split, many in splits for i in range(many)
        )

    def level(self, candidate: Candidate, case: str) -> float:
        """The expected reward of an evaluation that does not fail."""
        mu, serial = candidate.text.split()
        level = float(mu) + (
            self.effects * _gauss(case) + self.together * _gauss(f"{serial}/{case}")
            if case
            else 0.0
        )
        return 1 / (1 + math.exp(-6 * (level - 0.5))) if self.binary else level

    def fails(self, candidate: Candidate) -> float:
        """Probability of a failure."""
        return (
            self.crashes * (_uniform(candidate.text) < 0.5)
            if float(candidate.text.split()[0]) > 0.1
            else 0.0
        )

    def truth(self, candidate: Candidate) -> float:
        """The mean over the test cases, failures at 0."""
        names = [case.id for case in self.cases() if case.split == "test"] or [""]
        return (1 - self.fails(candidate)) * statistics.fmean(
            self.level(candidate, name) for name in names
        )

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        """The duration and the result of an effect."""
        request = effect.request
        if isinstance(request, EvaluateRequest):
            return 1.0, self.observe(request, Random(f"{request.seed}/{request.candidate.digest}"))
        assert isinstance(request, ProposeRequest) and request.brief.parent is not None
        draw = Random(request.seed)
        mu, chance = float(request.brief.parent.text.split()[0]), draw.random()
        if chance < self.better:
            mu += 0.05
        elif chance > self.better + 0.21:
            mu -= draw.expovariate(1 / 0.06)
        child = Candidate.of(
            {"x": f"{min(1.0, mu)!r} {draw.getrandbits(40)}"}, (request.brief.parent.id,)
        )
        return 0.01, Proposal((child,))

    def observe(self, request: EvaluateRequest, draw: Random) -> Observation:
        """One evaluation."""
        name, case = request.candidate.id, request.case.id if request.case else ""
        if draw.random() < self.fails(request.candidate):
            return Observation(name, Status.ERROR, case=case, seed=request.seed)
        level = self.level(request.candidate, case)
        sigma = self.sigma * (0.3 + 1.4 * _uniform(request.candidate.text) if self.unequal else 1.0)
        noise = draw.gauss(0.0, sigma) / (
            math.sqrt(draw.gammavariate(1.5, 2) / 3) if self.student else 1.0
        )
        score = float(draw.random() < level) if self.binary else level + noise
        return Observation(name, Status.OK, score, case=case, seed=request.seed, trust="verified")


@lru_cache(100_000)
def _gauss(name: str) -> float:
    return Random(name).gauss(0.0, 1.0)


def _uniform(name: str) -> float:
    return Random(f"u{name}").random()


@dataclass(frozen=True)
class Follow:
    """Evaluates a child of the candidate with the highest mean, then that candidate again."""

    lanes: int = 4

    async def search(self, lab: Lab) -> None:
        seen: dict[str, list[float]] = {}
        known: dict[str, Candidate] = {}

        async def look(candidate: Candidate, times: int = 1) -> None:
            known[candidate.id] = candidate
            for reward in (await lab.evaluate(candidate, lab.minibatch(times))).rewards:
                seen.setdefault(candidate.id, []).append(0.0 if reward is None else reward)

        async def lane() -> None:
            while True:
                best = known[max(seen, key=lambda name: statistics.fmean(seen[name]))]
                for child in (await lab.propose(Brief(best))).candidates:
                    await look(child)
                await look(best)

        await look(lab.seeds[0], 3)
        await lab.gather(*(lane() for _ in range(self.lanes)))


CASES = Hill(train=20, test=100, effects=0.25, together=0.1)
WORLDS: dict[str, Hill] = {
    "smooth": Hill(),
    "nothing better": Hill(better=0.0),
    "Student noise": Hill(student=True),
    "unequal noise": Hill(unequal=True),
    "half of the children crash half of the time": Hill(crashes=0.5),
    "0 or 1": Hill(binary=True),
    "100 test cases": CASES,
    "100 test cases, no noise": replace(CASES, sigma=0.0),
    "20 test cases": replace(CASES, test=20),
    "20 test cases, no noise": replace(CASES, test=20, sigma=0.0),
    "100 test cases, 0 or 1": replace(CASES, binary=True),
}


_SHARES = ("best", "initial", "gain", "seen", "false")


def ended(world: Hill, evaluations: int, seed: int) -> tuple[RunResult, float, float, float]:
    """The result of one run, and true rewards.

    They are those of its best, of its initial program, and of the candidate whose gain
    is reported.
    """
    objective = Objective(bounds=(0.0, None)) if world.crashes else Objective()
    task = Task("hill", seeds=({"x": f"0.1 {seed}"},), cases=world.cases(), objective=objective)
    run = simulate(Follow(), task, world, Budget(evaluations=evaluations), seed=seed, workers=4)
    verdict = run.verdict
    assert verdict is not None and verdict.initial is not None
    gained = verdict.id if verdict.challenger is None else verdict.challenger.id
    best, first, other = (
        world.truth(run.search.lab.find(name)) for name in (verdict.id, verdict.initial.id, gained)
    )
    return verdict, best, first, other


def held(rows: Sequence[tuple[float, float | None]]) -> str:
    """Share of intervals that hold the truth, from (error, margin)."""
    known = [(error, margin) for error, margin in rows if margin is not None]
    if not known:
        return f"{'-':>8}"
    return f"{100 * statistics.fmean(abs(error) <= margin + 1e-9 for error, margin in known):7.1f}%"


def line(name: str, world: Hill, evaluations: int, seeds: int) -> str:
    """One row."""
    found = [ended(world, evaluations, seed) for seed in range(seeds)]
    claims = [(one.score - best, one.margin) for one, best, _, _ in found]
    starts = [
        (one.initial.score - first, one.initial.margin) for one, _, first, _ in found if one.initial
    ]
    gains = [
        (one.gain - (other - first), one.gain_margin)
        for one, _, first, other in found
        if one.gain is not None
    ]
    called: Callable[[RunResult], bool] = lambda one: bool(  # noqa: E731
        one.gain is not None and one.gain_margin is not None and one.gain > one.gain_margin
    )
    false = statistics.fmean(called(one) and other <= first for one, _, first, other in found)
    seen = [called(one) for one, _, first, other in found if other > first]
    true = statistics.fmean(seen) if seen else math.nan
    errors = [error for error, _ in claims]
    margins = [margin for _, margin in claims if margin is not None]
    width = statistics.fmean(margins) if margins else math.nan
    return (
        f"{name:45}{statistics.fmean(best for _, best, _, _ in found):6.3f}"
        f"{statistics.fmean(errors):+8.3f} ± {statistics.stdev(errors) / len(errors) ** 0.5:.3f}{width:8.3f}"
        f"{held(claims)}{held(starts)}{held(gains)}{100 * true:7.0f}%{100 * false:7.1f}%"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--world", default="")
    given = parser.parse_args()
    columns = (("true", 6), ("claim - truth", 16), ("±", 8), *((name, 8) for name in _SHARES))
    print(f"{'world':45}" + "".join(f"{name:>{width}}" for name, width in columns))
    for name, world in WORLDS.items():
        if given.world in name:
            print(line(name, world, given.evaluations, given.seeds), flush=True)


if __name__ == "__main__":
    main()
