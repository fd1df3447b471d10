"""Ranking of the factors in made worlds with a planted truth, beside two naive rules.

python bench/bench_factors.py [SEEDS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from statistics import NormalDist, fmean

import numpy as np

from culmen.evidence.pedigree import ValueModel
from culmen.extensions.web.factors.effects import level_gains

LEVELS = "abcdef"


@dataclass(frozen=True)
class World:
    """Six operators of known law, two models and four islands, and the noise of an evaluation.

    `means` and `spread` are those of a child's step where the parent stands at the start; it falls
    by `slope` for every unit that the parent stands higher. `shares` are the operators' shares of
    the requests; `late` ones are used in the last third alone, `leading` ones on the leader by the
    scores seen alone, all others then on any candidate. `fails` is the chance of each to
    make a child without a score.
    """

    name: str
    noise: float
    means: tuple[float, ...] = (-0.04, -0.02, 0.0, 0.02, 0.04, 0.06)
    spread: float = 0.05
    slope: float = 0.0
    shares: tuple[float, ...] = (1, 1, 1, 1, 1, 1)
    late: str = ""
    leading: str = ""
    fails: tuple[float, ...] = (0.1,) * 6
    models: tuple[float, ...] = (-0.02, 0.02)
    size: int = 600
    again: float = 0.2  # of the evaluations, on leaders


WORLDS = (
    World("exact", 0.0),
    World("little noise", 0.02),
    World("noise as large as a step", 0.05),
    World("noise of two steps", 0.10),
    World("counts from 2 % to 40 %", 0.05, shares=(40, 2, 20, 3, 25, 10)),
    World(
        "gains shrink; the best comes late", 0.05, slope=0.15, late="f", shares=(1, 1, 1, 1, 1, 3)
    ),
    World(
        "gains shrink; the worst comes late", 0.05, slope=0.15, late="a", shares=(3, 1, 1, 1, 1, 1)
    ),
    World("the best is used on the leader alone", 0.10, leading="f"),
    World("the good ones fail more often", 0.05, fails=(0.0, 0.05, 0.1, 0.2, 0.3, 0.4)),
    World("60 candidates", 0.05, size=60),
)


@dataclass
class Made:
    """A finished run: each candidate's parent, origin, true reward, and observed rewards."""

    parents: list[int] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)
    seen: list[list[float | None]] = field(default_factory=list)
    model: ValueModel = field(default_factory=ValueModel)


def play(world: World, rng: Random) -> Made:
    """A search that asks for children of the best of a few, by observed means.

    It looks at leaders again.
    """
    run = Made(model=ValueModel(exact=True if not world.noise else None))
    best = np.full(world.size + 1, -np.inf)

    def look(number: int) -> None:
        fails = run.seen[number] == [None]
        reward = None if fails else run.truths[number] + rng.gauss(0, world.noise)
        run.seen[number] = [None] if fails else [*run.seen[number], reward]
        run.model.observe(str(number), reward)
        if not fails:
            best[number] = fmean(each for each in run.seen[number] if each is not None)

    def enter(parent: int, operator: int, model: int, truth: float, fails: bool) -> None:
        number = len(run.truths)
        run.parents.append(parent)
        run.operators.append(operator)
        run.models.append(model)
        run.truths.append(truth)
        run.seen.append([None] if fails else [])
        run.model.add_candidate(str(number), (str(parent),) if parent >= 0 else ())
        look(number)

    enter(-1, 0, 0, 0.0, False)
    while len(run.truths) <= world.size:
        made = len(run.truths)
        if rng.random() < world.again:
            scored = int(np.isfinite(best).sum())
            look(int(np.argsort(-best, kind="stable")[rng.randrange(min(5, scored))]))
            continue
        pool = [n for n in range(made) if run.seen[n] != [None]]
        open_now = [n for n in range(6) if LEVELS[n] not in world.late or made > 2 * world.size / 3]
        operator = rng.choices(open_now, [world.shares[n] for n in open_now])[0]
        model = rng.randrange(2)
        few = rng.sample(pool, min(1 if world.leading else 8, len(pool)))
        parent = max(pool if LEVELS[operator] in world.leading else few, key=lambda n: best[n])
        mean = world.means[operator] + world.models[model] - world.slope * run.truths[parent]
        enter(
            parent,
            operator,
            model,
            run.truths[parent] + rng.gauss(mean, world.spread),
            rng.random() < world.fails[operator],
        )
    return run


def truth(world: World, run: Made) -> list[float]:
    """Mean gain of a child of each operator, at the run's average parent, by the average model."""
    parents = np.mean([run.truths[p] for p in run.parents if p >= 0])
    law = NormalDist()

    def gain(mean: float) -> float:
        z = mean / world.spread
        return mean * law.cdf(z) + world.spread * law.pdf(z)

    at = float(np.mean(world.models) - world.slope * parents)
    return [(1 - fails) * gain(mean + at) for mean, fails in zip(world.means, world.fails)]


def estimated(run: Made) -> tuple[list[float], list[float]]:
    """Gains by the value model, and their standard deviations."""
    known = [n for n in range(len(run.truths)) if run.parents[n] >= 0]
    factors = [[column[n] for n in known] for column in (run.operators, run.models)]
    found = level_gains(run.model, [str(n) for n in known], factors, [False] * len(known))[0]
    return [each.gain for each in found], [each.sd for each in found]


def raw_gains(run: Made) -> list[float]:
    """Mean difference of the means that were seen, child and parent; failures are left out."""
    differences: list[list[float]] = [[] for _ in LEVELS]
    means = [fmean([each for each in seen if each is not None] or [np.nan]) for seen in run.seen]
    for n, parent in enumerate(run.parents):
        if parent >= 0 and run.seen[n] != [None]:
            differences[run.operators[n]].append(means[n] - means[parent])
    return [float(np.mean(each)) if each else -np.inf for each in differences]


def new_bests(run: Made) -> list[float]:
    """Number of first scores above all before."""
    counts, best = [0.0] * 6, -np.inf
    for n, seen in enumerate(run.seen):
        first = seen[0]
        if first is not None and first > best:
            counts[run.operators[n]] += run.parents[n] >= 0
            best = first
    return counts


def kendall(one: list[float], other: list[float]) -> float:
    """Kendall's tau; pairs equal in one of the two count as half right."""
    pairs = list(combinations(range(len(one)), 2))
    return float(
        np.mean([np.sign(one[a] - one[b]) * np.sign(other[a] - other[b]) for a, b in pairs])
    )


def interval(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {1.96 * np.std(values, ddof=1) / len(values) ** 0.5:.2f}"


def seconds_of(size: int) -> float:
    """CPU time of all factors of a run of `size` candidates, its value model being there."""
    run = play(World("", 0.05, size=size, again=0.0), Random(1))
    run.model.expected_rewards()
    began = time.process_time()
    estimated(run)
    return time.process_time() - began


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print(f"Kendall's tau over {seeds} random seeds, six operators\n")
    print(
        "| world | what mattered | mean child − parent | new bests | intervals that hold the truth |"
    )
    print("|---|---|---|---|---|")
    rules: dict[str, Callable[[Made], list[float]]] = {"raw": raw_gains, "bests": new_bests}
    everything: dict[str, list[float]] = {"own": [], **{name: [] for name in rules}}
    for world in WORLDS:
        taus: dict[str, list[float]] = {name: [] for name in everything}
        held: list[bool] = []
        for seed in range(seeds):
            run = play(world, Random(f"{world.name} {seed}"))
            right = truth(world, run)
            gains, sds = estimated(run)
            held += [abs(g - t) <= 1.96 * sd for g, t, sd in zip(gains, right, sds)]
            taus["own"].append(kendall(gains, right))
            for name, rule in rules.items():
                taus[name].append(kendall(rule(run), right))
        for name, found in taus.items():
            everything[name] += found
        print(
            f"| {world.name} | {' | '.join(map(interval, taus.values()))} | {np.mean(held):.0%} |",
            flush=True,
        )
    print(f"| all | {' | '.join(map(interval, everything.values()))} | |")
    for size in (1000, 20_000):
        print(f"\n{size:,} candidates: {seconds_of(size):.2f} s of CPU time")


if __name__ == "__main__":
    main()
