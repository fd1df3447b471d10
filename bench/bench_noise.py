"""Noise: how good is the candidate a search *reports*, when every evaluation is noisy?

Simulated landscape (Assumption 1 of POLCA's analysis), sigma = 2 gamma, 300 evaluations, all of
them counted, the final choice included. Two ways to report are compared for a greedy search that
trusts single samples (evaluate once, improve the best score ever seen): its own (the highest score
ever seen) and the engine's; and the engine's for the strategies.

    python bench/bench_noise.py [--seeds 200]
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, replace

from culmen.core.brief import Brief
from culmen.core.candidate import Candidate
from culmen.core.ports import Lab, MinimalStrategy
from culmen.core.usage import Budget
from culmen.extensions.baselines.map_elites import MapElites
from culmen.strategies.best_of_n import BestOfN
from culmen.strategies.memory.priorities import Quantile, UcbSigma
from culmen.strategies.polca import Beam, Polca, Sequential
from culmen.testing.landscape import Landscape, task, written_reward
from culmen.testing.virtual import Simulation, simulate

GAMMA = 0.1
WORLD = Landscape(gamma=GAMMA, delta0=0.3, sigma=2 * GAMMA)


@dataclass(frozen=True)
class Greedy:
    """Improves the candidate with the highest single score, and never looks at anything twice."""

    async def search(self, lab: Lab) -> None:
        best, score = lab.seeds[0], float("-inf")
        waiting: tuple[Candidate, ...] = lab.seeds
        while True:
            for candidate in waiting:
                reward = (await lab.evaluate(candidate)).reward
                if reward is not None and reward > score:
                    best, score = candidate, reward
            waiting = (await lab.propose(Brief(best))).candidates


BLURRED = replace(WORLD, blur=0.3)  # about six programs of equal reward fit into the net

SEARCHES: dict[str, tuple[MinimalStrategy, Landscape]] = {
    "polca": (Polca(epsilon=0.1), WORLD),
    "polca, blurred embeddings": (Polca(epsilon=0.1), BLURRED),
    "polca, blurred, epsilon=0.15": (Polca(epsilon=0.15), BLURRED),
    "polca, blurred, epsilon=q0.7": (Polca(epsilon=Quantile(0.7)), BLURRED),
    "polca, 4 lanes of 1": (Polca(explore=1, epsilon=0.1, lanes=4), WORLD),
    "polca, UCB eq. 1": (Polca(epsilon=0.1, priority=UcbSigma(WORLD.sigma)), WORLD),
    "polca, no epsilon-net": (Polca(epsilon=None), WORLD),
    "beam": (Beam(), WORLD),
    "map_elites": (MapElites(), WORLD),
    "sequential": (Sequential(), WORLD),
    "best_of_n": (BestOfN(), WORLD),
    "greedy": (Greedy(), WORLD),
}


def reported(run: Simulation) -> tuple[float, float]:
    """(true reward, reported score) of the engine's choice."""
    verdict = run.verdict
    assert verdict is not None
    return written_reward(run.search.lab.find(verdict.id)), verdict.score


def claimed(run: Simulation) -> tuple[float, float]:
    """(true reward, reported score) when the highest single score of the whole run is reported."""
    best = max(
        (entry.result.score, entry.result.candidate)
        for entry in (event.entry for event in run.journal.read())
        if entry.kind == "done" and entry.effect == "evaluate"
    )
    return written_reward(run.search.lab.find(best[1])), best[0]


def line(name: str, pairs: list[tuple[float, float]]) -> str:
    """One row: mean true reward with standard error, its lowest decile.

    Also the mean of reported minus true.
    """
    true = sorted(mu for mu, _ in pairs)
    error = statistics.stdev(true) / len(true) ** 0.5
    curse = statistics.mean(score - mu for mu, score in pairs)
    return f"{name:40}{statistics.mean(true):8.3f} ± {error:.3f}{true[len(true) // 10]:12.3f}{curse:+16.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=300)
    args = parser.parse_args()
    print(
        f"sigma {WORLD.sigma}, gamma {WORLD.gamma}, delta0 {WORLD.delta0}, best possible {WORLD.bound}, ",
        end="",
    )
    print(f"{args.evaluations} evaluations, {args.seeds} seeds")
    print(
        f"{'search, and who reports':40}{'true reward':>16}{'10 % worst':>12}{'reported - true':>16}"
    )
    for name, (strategy, world) in SEARCHES.items():
        budget = Budget(evaluations=args.evaluations, calls=20 * args.evaluations)
        runs = [
            simulate(strategy, task(), world, budget, seed=seed, workers=4)
            for seed in range(args.seeds)
        ]
        print(line(f"{name}, engine", [reported(run) for run in runs]))
        if isinstance(strategy, Greedy):
            print(line(f"{name}, itself", [claimed(run) for run in runs]))


if __name__ == "__main__":
    main()
