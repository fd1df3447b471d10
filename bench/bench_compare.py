"""Shares of comparisons that call two groups of runs different.

The groups are equally good, or differ.

python bench/bench_compare.py [--comparisons 200] [--runs 6] [--drawn 3]

The task has 24 test cases, of which each run's final choice draws some (3), for its winner and for
the initial program beside it, once each. A program passes a case by chance, by the case's
difficulty and its own skill. Worlds:

  untouched      all runs return the initial program
  one program    every run of a group returns the same program; the two are equally good
  different      every run returns a program of its own; all are equally good, or the second group's better by `gain`

`own` compares the runs as they stand, `together` after all programs were scored on the 24 cases.
`wins` is the rule of comparing reported scores as they are, by the sign test.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.extensions.bench.luck import CASES, World, group

from culmen.extensions.bench import stats
from culmen.extensions.bench.compare import compare_runs


def share(
    kind: str, gain: float, together: bool, asked: argparse.Namespace, base: float = 1.0
) -> tuple[float, float]:
    """Shares of comparisons that call the groups different, and in which plain wins do so."""
    called = plain = 0
    for number in range(asked.comparisons):
        world = World(Random(f"{kind} {gain} {together} {number}"), asked.drawn)
        one = group(world, "a", asked.runs, kind, base, together)
        other = group(world, "b", asked.runs, kind, base + gain, together)
        called += compare_runs([*one, *other]).tasks[0].pairs[0].apart
        couple = ([each.score or 0.0 for each in one], [each.score or 0.0 for each in other])
        p = stats.estimate_improvement([couple], paired=True).p
        plain += p is not None and p < 0.05
    return called / asked.comparisons, plain / asked.comparisons


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--drawn", type=int, default=3)
    asked = parser.parse_args()
    facts = f"{asked.runs} runs a group, each measured on {asked.drawn} of {CASES} cases"
    print(f"{asked.comparisons} comparisons each, {facts}; shares called different")
    print(f"{'world':<14}{'gain':>6}{'own':>8}{'together':>10}{'wins':>8}")
    worlds = [(kind, 0.0) for kind in ("untouched", "one program", "different")]
    worlds += [(kind, gain) for gain in (1.0, 2.0, 3.0) for kind in ("one program", "different")]
    for kind, gain in worlds:
        own, wins = share(kind, gain, False, asked)
        together, _ = share(kind, gain, True, asked)
        print(f"{kind:<14}{gain:>6.1f}{own:>8.3f}{together:>10.3f}{wins:>8.3f}", flush=True)


if __name__ == "__main__":
    main()
