"""CPU time of one decision of the default strategy.

Beside it the same with every node handled one by one.

python bench/bench_pedigree.py
python bench/bench_pedigree.py --again .3 1000 5000 20000   # a share of candidates evaluated again
"""

from __future__ import annotations

import argparse
import time
from random import Random

import numpy as np

from culmen.evidence.pedigree import ValueModel
from culmen.evidence.pedigree import tree as pedigree
from culmen.strategies.costs import Costs
from culmen.strategies.knowledge_gradient import KnowledgeGradient


class Plenty:
    """The lab as `Costs` asks it."""

    workers = 4

    def left(self, budget: str) -> float:
        """A hundred evaluations, and no other limit."""
        return 100.0 if budget == "evaluations" else float("inf")


def grown(size: int, again: float) -> tuple[ValueModel, KnowledgeGradient]:
    """A model of `size` candidates, each a child of the best of eight, and who decides by it.

    After a share `again` of them an earlier one is evaluated once more.
    """
    rng, model, truths = Random(1), ValueModel(), [0.1]
    for score in (0.10, 0.13):
        model.observe("0", score)
    for i in range(1, size):
        parent = max(rng.sample(range(i), min(i, 8)), key=lambda j: truths[j])
        truths.append(min(1.0, max(0.0, truths[parent] + rng.gauss(-0.02, 0.05))))
        model.add_candidate(str(i), (str(parent),))
        model.observe(str(i), truths[-1] + rng.gauss(0, 0.1))
        if again and rng.random() < again:
            node = rng.randrange(i)
            model.observe(str(node), truths[node] + rng.gauss(0, 0.1))
    return model, KnowledgeGradient(model, Costs(Plenty()), 1, 4, rng)  # type: ignore[arg-type]


def milliseconds(size: int, group: int, again: float) -> float:
    """Median CPU time of a decision after the evaluation of a new child."""
    pedigree.GROUP = group
    model, choice = grown(size, again)
    choice.decide()
    times: list[float] = []
    for i in range(30):
        model.add_candidate(f"new {i}", (str(i),))
        model.observe(f"new {i}", 0.1)
        began = time.process_time()
        choice.decide()
        times.append(time.process_time() - began)
    return 1e3 * float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", type=int, nargs="*", default=[100, 1000, 10_000])
    parser.add_argument("--again", type=float, default=0.0)
    chosen = parser.parse_args()
    print("| candidates | ms a decision | one by one | ratio |\n|---|---|---|---|")
    for size in chosen.sizes:
        fast, slow = (milliseconds(size, group, chosen.again) for group in (16, 10**9))
        print(f"| {size} | {fast:.2f} | {slow:.2f} | {slow / fast:.1f} |")


if __name__ == "__main__":
    main()
