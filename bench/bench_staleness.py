"""Costs of relaxed barriers in the training of an advisor: staleness 0 to 2.

Stale samples are corrected, or not.

The policy and the toy are those of bench_objectives.py, credit is the phase-adaptive mix. One
version draws the replies of staleness + 1 barriers; they are trained on one after another. Needs
the extra `train`.

    python bench/bench_staleness.py [--seeds 10] [--rate 0.01] [--barriers 40] [--group 8] [--jobs 1]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.extensions.train.toy_advisor import Toy, examined, policy, rehearse

from culmen.extensions.train.engine import Rules
from culmen.extensions.train.objectives import AdvantageRule

ARMS = ((0, True), (1, True), (1, False), (2, True), (2, False))
FRESH = 64  # replies of the final policy


def course(
    staleness: int, corrected: bool, seed: int, rate: float, toy: Toy
) -> tuple[float, float, float, float]:
    """Figures of one policy: quality in the last tenth, and of fresh replies at the end.

    Also the largest ratio and gradient norm.
    """
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    engine, credit = policy(seed), AdvantageRule("phase_adaptive", k=4)
    rules = Rules(rate=rate, stale=staleness)
    rows = list(rehearse(engine, toy, credit, rules, seed, corrected=corrected))
    late = fmean(row["quality"] for row in rows[-len(rows) // 10 :])
    ratio, norm = (
        max((row.get(name, 0.0) for row in rows), default=0.0)
        for name in ("ratio_max", "grad_norm")
    )
    return late, examined(engine, toy, FRESH)["quality"], ratio, norm


def main() -> None:
    """Train every arm with every seed and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--barriers", type=int, default=40)
    parser.add_argument("--group", type=int, default=8, help="replies of a barrier")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    toy = Toy(barriers=options.barriers, group=options.group)
    jobs = [(*arm, seed, options.rate, toy) for arm in ARMS for seed in range(options.seeds)]
    begun, load = time.perf_counter(), os.getloadavg()[0]
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(course, *zip(*jobs, strict=True)))
    print(f"rate {options.rate:g}, {options.seeds} random seeds, {toy}", end="")
    print(f"; {time.perf_counter() - begun:.0f} s, load before {load:.1f}\n")
    print(
        "| staleness | stale samples | quality, last tenth | of 64 fresh replies | difference to 0 |",
        end="",
    )
    print(" largest ratio | largest gradient norm |\n" + "|---" * 7 + "|")
    rows = [found[at : at + options.seeds] for at in range(0, len(found), options.seeds)]
    for (staleness, corrected), courses in zip(ARMS, rows, strict=True):
        gains = [mine[1] - base[1] for mine, base in zip(courses, rows[0], strict=True)]
        kind = "-" if not staleness else "corrected" if corrected else "taken as they are"
        cells = [
            str(staleness),
            kind,
            text([each[0] for each in courses]),
            text([each[1] for each in courses]),
        ]
        cells += [
            text(gains) if staleness else "-",
            *(f"{max(each[at] for each in courses):.2f}" for at in (2, 3)),
        ]
        print(f"| {' | '.join(cells)} |")


def text(values: Sequence[float]) -> str:
    """Mean and standard error."""
    return f"{fmean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
