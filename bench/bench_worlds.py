"""Strategies on the family of simulated worlds: a report's quality, claim and interval.

    python bench/bench_worlds.py --seeds 100 --jobs 2 --out worlds.jsonl          (resumable: finished runs are kept)
    python bench/bench_worlds.py --out worlds.jsonl --report

Every run is a whole search of the real engine on a virtual clock, final choice included. `quality`
is the hidden quality (0..1) of the reported candidate, `claim` its reported score minus its true
one (in steps of quality where the score is quality), `inside` how often the 95 % interval holds the
truth. In the same table: plain rules and every strategy.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.truth import rules, worlds

from culmen.core.brief import Proposal
from culmen.core.usage import Budget
from culmen.strategies import catalog
from culmen.testing.virtual import simulate

RULES = {
    "greedy": rules.Greedy,
    "follow": rules.FollowMean,
    "ucb": rules.UpperBound,
    "halving": rules.Halving,
}
SEARCHES = (
    "polca",
    "turboevolve",
    "openevolve",
    "gepa",
    "puct",
    "map_elites",
    "beam",
    "sequential",
    "best_of_n",
)
REGIMES = {
    "": lambda n: Budget(evaluations=n),
    "dear calls": lambda n: Budget(evaluations=4 * n, calls=n // 5),
    "dear evaluations": lambda n: Budget(evaluations=n // 3, calls=n),
}


def run(
    strategy: str, world: str, seed: int, evaluations: int, workers: int, regime: str
) -> dict[str, Any]:
    """One search; plain data."""
    member = replace(worlds.FAMILY[world], number=seed)
    task, budget = member.task(), REGIMES[regime](evaluations)
    search = (
        RULES[strategy]()
        if strategy in RULES
        else catalog.make_strategy(*catalog.parse_strategy(strategy))
    )
    done = simulate(search, task, member, budget, seed=seed, workers=workers)
    found = {candidate.id: candidate for candidate in task.initial_candidates()}
    calls = 0
    for event in done.journal.read():
        if event.entry.kind == "done" and isinstance(event.entry.result, Proposal):
            calls += 1
            found.update((candidate.id, candidate) for candidate in event.entry.result.candidates)
    choice = done.verdict
    row = {
        "strategy": strategy,
        "world": world,
        "seed": seed,
        "n": evaluations,
        "workers": workers,
        "regime": regime,
    }
    if choice is None:
        return {**row, "quality": 0.0, "calls": calls}
    truth = member.truth(found[choice.id])
    wide = choice.margin or 1e-9 * abs(truth) + 1e-12
    return {
        **row,
        "quality": worlds.hidden_quality(found[choice.id]),
        "claim": (choice.score - truth) / member.unit,
        "inside": abs(choice.score - truth) <= wide,
        "top": max(worlds.hidden_quality(candidate) for candidate in found.values()),
        "calls": calls,
    }


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, str, int, int, int, str]]:
    """The runs asked for, seed by seed."""
    members = options.worlds or list(worlds.FAMILY)
    for seed in range(options.first, options.first + options.seeds):
        for strategy in options.strategies:
            for world in members:
                yield strategy, world, seed, options.evaluations, options.workers, options.regime


def report(rows: list[dict[str, Any]]) -> None:
    """Tables, one for each budget, number of workers and regime."""
    for n, workers, regime in sorted({(r["n"], r["workers"], r["regime"]) for r in rows}):
        chosen = [r for r in rows if (r["n"], r["workers"], r["regime"]) == (n, workers, regime)]
        order = [*RULES, "pedigree", *SEARCHES]
        names = sorted(
            {r["strategy"] for r in chosen},
            key=lambda n: (order.index(n) if n in order else len(order), n),
        )
        print(f"\n{n} evaluations, {workers} at once {regime}\n")
        print(
            "| world | "
            + " | ".join(names)
            + " | claim | inside | seeds |\n|---|"
            + "---|" * (len(names) + 3)
        )
        for label, half in (("tuned", worlds.TUNED), ("held out", worlds.HELD_OUT)):
            print(f"| *{label}* |" + " |" * (len(names) + 3))
            for world in half:
                cells, own = [], [r for r in chosen if r["world"] == world]
                for name in names:
                    values = [r["quality"] for r in own if r["strategy"] == name]
                    cells.append(
                        "{:.3f} ± {:.3f}".format(*interval(values)) if len(values) > 1 else ""
                    )
                ours = [r for r in own if r["strategy"] == "pedigree" and "claim" in r]
                claim = (
                    "{:+.3f} ± {:.3f}".format(*interval([r["claim"] for r in ours]))
                    if len(ours) > 1
                    else ""
                )
                inside = f"{100 * sum(r['inside'] for r in ours) / len(ours):.0f} %" if ours else ""
                if own:
                    print(
                        f"| {world} | "
                        + " | ".join(cells)
                        + f" | {claim} | {inside} | {len(ours)} |"
                    )


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half of its 95 % interval."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
    return mean, float(student.ppf(0.975, len(values) - 1)) * spread


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--strategies", nargs="*", default=["pedigree", *RULES], help="NAME or NAME(setting=value)"
    )
    parser.add_argument("--worlds", nargs="*")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=10_000)
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--regime", default="", choices=list(REGIMES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("worlds.jsonl"))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    rows = (
        [json.loads(line) for line in options.out.read_text().splitlines()]
        if options.out.exists()
        else []
    )
    if not options.report:
        done = {
            tuple(r[k] for k in ("strategy", "world", "seed", "n", "workers", "regime"))
            for r in rows
        }
        todo = [job for job in wanted(options) if job not in done]
        with ProcessPoolExecutor(options.jobs) as pool, options.out.open("a") as file:
            for row in pool.map(run, *zip(*todo), chunksize=4) if todo else ():
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
    report(rows)


if __name__ == "__main__":
    main()
