"""POLCA's theorems, measured on the simulated landscape.

The engine, strategies and memories are the real ones.

Theorem 2: expected steps to a reward above B - gamma, updating from the best against updating from
the newest. Theorem 1: observations spent on programs at or below B - gamma under UCB (eq. 1),
against the bound of Appendix A.3. Ablation: epsilon-net on and off, priority by mean and by UCB:
true reward of the reported program.

    python bench/bench_theory.py [--seeds 100] [--plot docs/img/theory.png]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

from culmen.core.candidate import Candidate
from culmen.core.event import Effect, ProposeRequest, Result
from culmen.core.ports import MinimalStrategy
from culmen.core.usage import Budget
from culmen.strategies.memory.priorities import Mean, Newest, UcbSigma
from culmen.strategies.polca import Polca
from culmen.testing.landscape import Landscape, Restart, task, written_reward
from culmen.testing.virtual import simulate

BEST = Polca(1, 1, epsilon=None, priority=Mean(), summarizer=None)
NEWEST = Polca(1, 1, epsilon=None, priority=Newest(), summarizer=None)


class Reached(Exception):
    """The first program above B - gamma was proposed, at this step."""


@dataclass
class Stopwatch:
    """Counts proposals, and stops the run at the first one above B - gamma."""

    world: Landscape
    steps: int = 0

    def perform(self, effect: Effect, rng: Random) -> tuple[float, Result]:
        seconds, result = self.world.perform(effect, rng)
        if isinstance(effect.request, ProposeRequest):
            self.steps += 1
            if any(
                written_reward(child) > self.world.bound - self.world.gamma
                for child in result.candidates
            ):
                raise Reached
        return seconds, result


def steps(strategy: MinimalStrategy, world: Landscape, seed: int) -> int:
    """Proposals until one lies above B - gamma; evaluations are exact."""
    watch = Stopwatch(world)
    try:
        simulate(strategy, task(deterministic=True), watch, Budget(calls=1_000_000), seed=seed)
    except Reached:
        return watch.steps
    raise AssertionError("a million proposals and no success")


def theorem_2(seeds: int, delta0: float = 0.5) -> Iterator[tuple[int, float, float, float, float]]:
    """Rows of theorem 2 for N = B / gamma.

    (N, mean steps from the best, its bound, mean steps from the newest, its formula)
    """
    for n in range(2, 9):
        world = Landscape(gamma=1.0 / n, delta0=delta0, failure=Restart())
        best = statistics.mean(steps(BEST, world, seed) for seed in range(seeds))
        newest = statistics.mean(steps(NEWEST, world, seed) for seed in range(seeds))
        # N - 1 improvements of just above gamma already pass B - gamma; the theorem counts N
        yield n, best, n / delta0, newest, (delta0**-n - 1) / (1 - delta0)


def poor(candidate: Candidate, world: Landscape) -> bool:
    """True if a program's true reward is at most B - gamma."""
    return written_reward(candidate) <= world.bound - world.gamma


def selections(world: Landscape, epsilon: float, n: int, seed: int) -> int:
    """Observations of programs at or below B - gamma in n iterations.

    Each iteration makes one selection (Section 4's version).
    """
    strategy = Polca(1, 1, epsilon, priority=UcbSigma(world.sigma, horizon=n), summarizer=None)
    budget = Budget(calls=n, final=0.0)
    run = simulate(strategy, task(), world, budget, seed=seed)
    tallies = run.search.evidence.account.tallies()
    return sum(tally.count for tally in tallies if poor(run.search.lab.find(tally.id), world))


def bound(world: Landscape, epsilon: float, n: int) -> float:
    """The right side of the last line of Appendix A.3."""
    interval = 2 * math.log(n) / world.delta0
    single = 64 * world.sigma**2 / world.gamma**2 * math.log(n)
    return 2 * world.bound / world.gamma * interval + world.net_size(epsilon) * (single + 3)


def theorem_1(seeds: int, horizons: tuple[int, ...]) -> Iterator[tuple[float, int, float, float]]:
    """(sigma, n, mean observations of poor programs, bound)."""
    for sigma in (0.0, 0.05):
        world = Landscape(gamma=0.1, delta0=0.3, sigma=sigma)
        for n in horizons:
            measured = statistics.mean(selections(world, 0.1, n, seed) for seed in range(seeds))
            yield sigma, n, measured, bound(world, 0.1, n)


def ablation(seeds: int) -> Iterator[tuple[str, str, int, float, float]]:
    """Rows of the ablation.

    (epsilon, priority, programs per iteration, mean true reward of the reported program,
    standard error).
    """
    world = Landscape(gamma=0.1, delta0=0.3, sigma=0.2)
    budget = Budget(evaluations=300, calls=6000)
    for explore, epsilon, priority in product(
        (1, 5), (None, 0.05, 0.1, 0.2), (Mean(), UcbSigma(world.sigma))
    ):
        strategy = Polca(explore, epsilon=epsilon, priority=priority)
        true: list[float] = []
        for seed in range(seeds):
            run = simulate(strategy, task(), world, budget, seed=seed, workers=4)
            assert run.verdict is not None
            true.append(written_reward(run.search.lab.find(run.verdict.id)))
        error = statistics.stdev(true) / seeds**0.5
        name = "off" if epsilon is None else f"{epsilon:g}"
        yield name, type(priority).__name__, explore, statistics.mean(true), error


def plot(
    path: Path, steps_rows: list[tuple[int, float, float, float, float]], poor_rows: list[tuple]
) -> None:
    """Both theorems as one picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    n, best, best_bound, newest, newest_formula = zip(*steps_rows)
    left.semilogy(n, newest, "o-", color="tab:red", label="from the newest (sequential)")
    left.semilogy(n, newest_formula, "--", color="tab:red", alpha=0.5, label="its worst case")
    left.semilogy(n, best, "o-", color="tab:blue", label="from the best (POLCA)")
    left.semilogy(n, best_bound, "--", color="tab:blue", alpha=0.5, label="B / (γ δ₀)")
    left.set(xlabel="B / γ", ylabel="steps to a reward above B − γ", title="Theorem 2")
    left.legend()
    for sigma, color in ((0.0, "tab:blue"), (0.05, "tab:orange")):
        rows = [row for row in poor_rows if row[0] == sigma]
        right.loglog(
            [r[1] for r in rows],
            [r[2] for r in rows],
            "o-",
            color=color,
            label=f"measured, σ = {sigma:g}",
        )
        right.loglog(
            [r[1] for r in rows], [r[3] for r in rows], "--", color=color, alpha=0.5, label="bound"
        )
    right.set(xlabel="iterations n", ylabel="observations of programs ≤ B − γ", title="Theorem 1")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print(f"plot: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--horizons", type=int, nargs="+", default=[250, 500, 1000, 2000])
    parser.add_argument("--plot", type=Path, default=Path("docs/img/theory.png"))
    args = parser.parse_args()
    print(
        f"Theorem 2: mean steps to a reward above B - gamma, {args.seeds} seeds; delta0 0.5, failures restart at 0"
    )
    print(
        f"{'B/gamma':>8}{'best':>10}{'<= B/(gamma delta0)':>22}{'newest':>10}{'<= (d^-N-1)/(1-d)':>20}"
    )
    rows = list(theorem_2(args.seeds))
    for n, best, most, newest, formula in rows:
        print(f"{n:8}{best:10.2f}{most:22.1f}{newest:10.1f}{formula:20.0f}")
    print(
        "\nTheorem 1: mean observations of programs at or below B - gamma, UCB of eq. 1, epsilon 0.1"
    )
    print(f"{'sigma':>8}{'n':>8}{'measured':>10}{'per log n':>12}{'bound':>10}")
    spent = list(theorem_1(args.seeds, tuple(args.horizons)))
    for sigma, n, measured, most in spent:
        print(f"{sigma:8.2f}{n:8}{measured:10.1f}{measured / math.log(n):12.2f}{most:10.0f}")
    print("\nAblation: true reward of the reported program, sigma = 2 gamma = 0.2, 300 evaluations")
    print(
        "(a step of gamma is 0.157 long here: a coarser net refuses the very improvements it should admit)"
    )
    print(f"{'epsilon':>8}{'priority':>12}{'explore':>9}{'true reward':>20}")
    for name, priority, explore, mean, error in ablation(args.seeds):
        print(f"{name:>8}{priority:>12}{explore:>9}{mean:12.3f} ± {error:.3f}")
    if importlib.util.find_spec("matplotlib"):
        plot(args.plot, rows, spent)
    else:
        print("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
