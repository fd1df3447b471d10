"""Does an advisor learn more if its prompt holds the metrics of the program to improve?

A made world (`tests.extensions.train.metric_world`) in which metrics tell what limits a program,
and the score does not. The search is that of `pacevolve_plus_plus`, the advisor a linear softmax
over four kinds of edit, trained by the search's own advantages: with the metrics in its prompt,
without them, and with them and untrained. Compared is the share of decisions that relieve the
limit, a quarter by chance. Needs numpy, and no torch.

    python bench/bench_advisor_metrics.py [--seeds 30] [--jobs 1]
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import fmean, stdev
from typing import Any

from tests.extensions.train.metric_world import searched

from culmen.evidence.intervals import t_quantile_95

ARMS: dict[str, dict[str, bool]] = {
    "with metrics": {"told": True},
    "without metrics": {"told": False},
    "with metrics, untrained": {"told": True, "trained": False},
}


def interval_text(values: list[float]) -> str:
    """Mean and half a 95 % interval (Student's t)."""
    half = t_quantile_95(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{fmean(values):.2f} ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        rows: dict[str, list[dict[str, Any]]] = {
            arm: list(pool.map(partial(searched, **settings), range(given.seeds)))
            for arm, settings in ARMS.items()
        }
    print("| advisor | right, first quarter | right, last quarter | best level |")
    print("|---|---|---|---|")
    for arm, found in rows.items():
        first, last = ([one["hits"][q] for one in found] for q in (0, 3))
        best = [one["best"] for one in found]
        print(f"| {arm} | {interval_text(first)} | {interval_text(last)} | {interval_text(best)} |")
    paired = zip(rows["with metrics"], rows["without metrics"], strict=True)
    gains = [a["hits"][3] - b["hits"][3] for a, b in paired]
    ahead = sum(gain > 0 for gain in gains)
    print(f"\nlast quarter, with - without, paired: {interval_text(gains)}; ahead in {ahead}")


if __name__ == "__main__":
    main()
