"""Several objectives under noise: the hypervolume of a search's report.

It is held against a weighted sum and random search.

Every search ends with the same final choice; they differ in where they look. Printed is the true
hypervolume of the reported candidates (share of the largest possible) with its 95 % interval over
the random seeds.

    python bench/bench_front.py --seeds 30
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
import numpy as np
from bench.truth.worlds import FrontWorld

from culmen.core.brief import Brief
from culmen.core.ports import Lab
from culmen.core.usage import Budget
from culmen.evidence.front import hypervolume
from culmen.evidence.intervals import t_quantile_95
from culmen.strategies.pedigree import PedigreeSearch
from culmen.testing.virtual import simulate


class NoFront:
    """The evidence of a run without its front."""

    front = None

    def __init__(self, evidence: Any) -> None:
        self._evidence = evidence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evidence, name)


class OneScore:
    """A lab whose task has the weighted sum as its only objective."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        plain = msgspec.structs.replace(lab.task.objective, metrics=(), constraints=())
        self.evidence = NoFront(lab.evidence)
        self.task = msgspec.structs.replace(lab.task, objective=plain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lab, name)


class WeightedSum:
    """The default strategy on the sum of both objectives, scaled alike."""

    async def search(self, lab: Lab) -> None:
        await PedigreeSearch().search(OneScore(lab))  # pyright: ignore[reportArgumentType]


class RandomParents:
    """Children of random candidates, each evaluated once."""

    async def search(self, lab: Lab) -> None:
        known = list(lab.seeds)
        await lab.evaluate(known[0])
        while True:
            proposal = await lab.propose(Brief(lab.rng.choice(known)))
            for child in proposal.candidates:
                await lab.evaluate(child)
                known.append(child)


def share(world: FrontWorld, strategy: Any, seed: int, evaluations: int) -> tuple[float, int]:
    """True hypervolume of the reported front as a share of the largest.

    Also how many members it has.
    """
    done = simulate(
        strategy, world.task(), world, Budget(evaluations=evaluations), seed=seed, workers=4
    )
    assert done.verdict is not None
    truth = np.array([world.truth(done.search.lab.find(point.id)) for point in done.verdict.front])
    angles = np.linspace(0, math.pi / 2, 400)
    whole = np.column_stack([np.cos(angles) ** world.bend, np.sin(angles) ** world.bend])
    zero = np.zeros(2)
    return hypervolume(truth, zero) / hypervolume(whole, zero), len(truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--evaluations", type=int, default=200)
    asked = parser.parse_args()
    print(
        "| front | noise | search | true hypervolume of the reported front | members |\n|---|---|---|---|---|"
    )
    for bend, name in ((1.0, "convex"), (2.5, "hollow")):
        for noise in (0.03,):
            world = FrontWorld(noise=noise, bend=bend)
            for strategy in (PedigreeSearch(), WeightedSum(), RandomParents()):
                found = [
                    share(world, strategy, seed, asked.evaluations) for seed in range(asked.seeds)
                ]
                values = [value for value, _ in found]
                margin = t_quantile_95(len(values) - 1) * stdev(values) / len(values) ** 0.5
                members = fmean(many for _, many in found)
                row = (
                    name,
                    f"{noise:g}",
                    type(strategy).__name__,
                    f"{fmean(values):.3f} ± {margin:.3f}",
                    f"{members:.1f}",
                )
                print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
