"""Share of a small budget of dollars that a run uses.

Whatever the price and however many replies are cut off.

    python bench/bench_budgets.py                # the table: 30 random seeds ($0.50: 4)
    python bench/bench_budgets.py --seeds 4      # quickly

A model that may reply with 16,384 tokens writes about 300 (150 to 450). Of its replies none, a
quarter or half are cut off: they are billed in full, by the provider's own meter, and their cost is
unknown to the run, which counts the most that they may have cost. The share is what the meter shows
at the end of the run: the median over random seeds, and the least and the most. Exit 1 if a run
used more than its budget.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.run.test_run_budgets import SEED, Billing, score

import culmen
from culmen.models.spec import ModelSpec, Price, Provider

BUDGETS = {0.02: 30, 0.05: 30, 0.5: 4}  # dollars, and random seeds
PRICES = (
    Price(input=0.25, output=2.0),
    Price(input=1.0, output=4.0),
    Price(input=3.0, output=15.0),
)
CUT_OFF = (0.0, 0.25, 0.5)


class Cutting(Billing):
    """A provider's meter that cuts off a share of its replies."""

    share = 0.0

    async def complete(self, call):
        self.broken = 10 if self.rng.random() < self.share else 0
        return await super().complete(call)


def used_share(dollars: float, price: Price, cut: float, seed: int) -> float:
    """The billed dollars of one run, as a share of its budget."""
    backend = Cutting(
        usual=300, price=price, pause=0.0, rng=Random(f"{dollars}/{price.output}/{cut}/{seed}")
    )
    backend.share = cut
    provider = Provider("custom", base=0.0, cap=0.001, retries=3, bad_retries=2)
    model = ModelSpec(provider, "billing", price=price, backend=backend)
    with tempfile.TemporaryDirectory() as folder:
        budget = culmen.Budget(evaluations=20_000, dollars=dollars)
        culmen.optimize(
            SEED,
            evaluator=score,
            model=model,
            budget=budget,
            workers=4,
            run_dir=Path(folder, "run"),
            progress=False,
            deterministic=True,
            random_seed=seed,
        )
    return backend.dollars / dollars


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, help="random seeds of every row")
    options = parser.parse_args()
    failed = False
    print(
        "| budget | price in, out | " + " | ".join(f"{cut:.0%} cut off" for cut in CUT_OFF) + " |"
    )
    print("|---|---|" + "---|" * len(CUT_OFF))
    for dollars, seeds in BUDGETS.items():
        for price in PRICES:
            cells: list[str] = []
            for cut in CUT_OFF:
                shares = [
                    used_share(dollars, price, cut, seed) for seed in range(options.seeds or seeds)
                ]
                failed |= max(shares) > 1
                cells.append(f"{median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})")
            print(
                f"| ${dollars:g} | {price.input:g}, {price.output:g} | " + " | ".join(cells) + " |",
                flush=True,
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
