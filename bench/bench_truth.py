"""Is a run's report true? Worlds with known true scores x random seeds x strategies.

    python bench/bench_truth.py --seeds 100 --json truth.jsonl     (resumable: keeps finished runs)
    python bench/bench_truth.py --world flaky --strategy all --seeds 30 --json truth.jsonl

Every run is a whole search of the real engine on a virtual clock, final choice included; only its
verdict and its journal are read. The worlds, and what a failed evaluation is worth in each, are
those of `bench/truth/hazards.py`: at the declared bound, without one at the true score of the
initial program, and not at all where no candidate is at fault. Differences are turned so that higher is
better, also where scores are minimised. The columns, shares in per cent:

worth / best     true score of the report, and of the best evaluated in that run (means)
claim - truth    of the reported score, with its standard error over the runs
score, gain      95 % intervals that hold the truth, of those given; the gain is over the initial one,
                 of the best other candidate if the initial one is reported
claimed          runs whose gain is larger than its margin
replaced         runs that report another program than the initial one
kept             evaluations of the final choice (mean)
false            of these, those that are not truly better than the initial program
worse            runs whose report is truly worse than the initial program
± 0, no ±        runs that report a margin of 0, or none
width            the margin as a multiple of that of a t interval of the reported candidate's own
                 final evaluations, of those with at least 5 that differ (median)
spent            evaluations of the final choice (mean)
unconfirmed      runs whose report rests on no fresh evaluation
steady           runs that report a candidate that never fails, and not the initial one
CPU s            processor seconds per run

No evaluator runs here: a world draws its noise from the seed of each evaluation, in this process.
Generators of real evaluators, and the processes that keep or restart them, are measured by
`bench_inherit.py aa`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, TypeGuard

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.truth.hazards import HAZARDS, HazardWorld, TwoObjectives, hazard_world

from culmen.core.brief import Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evidence.intervals import t_quantile_95
from culmen.strategies import catalog
from culmen.testing.virtual import Simulation, simulate

STRATEGIES = ("pedigree", "best_of_n", "map_elites", "polca", "gepa", "openevolve", "turboevolve")
KEY = ("world", "strategy", "seed", "evaluations", "workers")
CALLS = 20  # of the model for each evaluation: enough for every strategy, and an end for all
NONE = 1e-12  # differences that are none
COLUMNS = (
    *(
        "world",
        "strategy",
        "runs",
        "evaluations",
        "worth / best",
        "claim - truth",
        "score",
        "gain",
        "claimed",
        "replaced",
        "kept",
    ),
    *("false", "worse", "± 0", "no ±", "width", "spent", "unconfirmed"),
    *("steady", "CPU s"),
)
WIDTHS = (26, 12, 6, 12, 15, 16, 6, 6, 8, 8, 6, 6, 6, 5, 5, 6, 6, 12, 7, 6)

Row = dict[str, Any]
Job = tuple[str, str, int, int, int]


def truth_of(world: HazardWorld | TwoObjectives, candidate: Candidate) -> float:
    """The true score; with two objectives their mean."""
    found = world.truth(candidate)
    return fmean(found) if isinstance(found, tuple) else found


def kept_evaluations(run: Simulation) -> int:
    """Number of evaluations of the final choice."""
    account = run.search.evidence.account
    return sum(len(seen) for part in (account.looks, account.fresh) for seen in part.values())


def has_fragile(world: HazardWorld | TwoObjectives) -> TypeGuard[HazardWorld]:
    """Some of its candidates are fragile."""
    return isinstance(world, HazardWorld) and (world.failing > 0 or world.crashing > 0)


def evaluated(run: Simulation, task: Task) -> dict[str, Candidate]:
    """All candidates that were evaluated, by id."""
    known, seen = {one.id: one for one in task.initial_candidates()}, set[str]()
    for event in run.journal.read():
        result = event.entry.result
        if event.entry.kind == "done" and isinstance(result, Proposal):
            known.update((one.id, one) for one in result.candidates)
        elif event.entry.kind == "done" and isinstance(result, Observation):
            seen.add(result.candidate)
    return {name: one for name, one in known.items() if name in seen}


def row_of(job: Job) -> Row:
    """One run, as plain data; scores and truths in the task's own direction."""
    name, strategy, seed, evaluations, workers = job
    world = hazard_world(name, seed, evaluations)
    task, begun = world.task(), time.process_time()
    budget = Budget(evaluations=world.evaluations, calls=CALLS * world.evaluations)
    run = simulate(catalog.make_strategy(strategy), task, world, budget, seed=seed, workers=workers)
    spent, verdict, known = time.process_time() - begun, run.verdict, evaluated(run, task)
    row: Row = dict(zip(KEY, (name, strategy, seed, world.evaluations, workers), strict=True))
    row |= {
        "cpu": round(spent, 4),
        "minimised": task.objective.direction == "min",
        "reported": verdict is not None,
    }
    if verdict is None:
        return row
    start, best = task.initial_candidates()[0], known[verdict.id]
    worths = [task.objective.reward(truth_of(world, one)) for one in known.values()]
    initial = None if verdict.initial is None else (verdict.initial.score, verdict.initial.margin)
    account, steady = run.search.evidence.account, None
    judged = run.search.evidence.verdict
    own = [judged.worth_of(fact) for fact in judged.fresh_facts(best.id)]
    measured = best if verdict.challenger is None else known[verdict.challenger.id]
    if has_fragile(world):
        steady = best.id != start.id and not world.is_fragile(best)
    return row | {
        "truth": truth_of(world, best),
        "start": truth_of(world, start),
        "top": task.objective.score(max(worths)),
        "score": verdict.score,
        "margin": verdict.margin,
        "count": verdict.count,
        "failures": verdict.failures,
        "confirmed": verdict.confirmed,
        "initial": initial,
        "gain": verdict.gain,
        "replaced": best.id != start.id,
        "kept": kept_evaluations(run),
        "gain_margin": verdict.gain_margin,
        "lift": truth_of(world, measured) - truth_of(world, start),
        "own_margin": own_margin(own),
        "final": sum(
            len(seen) for part in (account.looks, account.fresh) for seen in part.values()
        ),
        "steady": steady,
    }


def own_margin(values: Sequence[float]) -> float | None:
    """Half the 95 % t interval of these values; None if fewer than 5, or equal."""
    if len(values) < 5 or len(set(values)) == 1:
        return None
    return t_quantile_95(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def relative_width(row: Row) -> float | None:
    """The reported margin as a multiple of that of the candidate's own values."""
    own, margin = row.get("own_margin"), row["margin"]
    return None if own is None or margin is None else margin / own


def middle(found: Iterable[float | None]) -> str:
    """Median of those that are known."""
    known = [one for one in found if one is not None]
    return f"{median(known):.2f}" if known else "-"


def better_by(row: Row, one: str, other: str) -> float:
    """By how much one of the row's scores is better than another."""
    return (row[one] - row[other]) * (-1 if row["minimised"] else 1)


def inside(error: float, margin: float | None) -> bool | None:
    """The interval holds the truth, up to rounding; None without an interval."""
    return None if margin is None else abs(error) <= margin + 1e-9


def is_claimed(row: Row) -> bool:
    """The reported gain is beyond its margin."""
    gain, margin = row["gain"], row["gain_margin"]
    if gain is None or margin is None:
        return False
    return (-gain if row["minimised"] else gain) > margin + NONE


def share(found: Iterable[bool | None]) -> str:
    """Percentage of those that are known."""
    known = [one for one in found if one is not None]
    return f"{100 * fmean(known):.0f}" if known else "-"


def cells(rows: Sequence[Row]) -> tuple[str, ...]:
    """The cells of one world and strategy."""
    told = [row for row in rows if row["reported"]]
    head = (rows[0]["world"], rows[0]["strategy"], f"{len(rows)}", f"{rows[0]['evaluations']}")
    cpu = f"{fmean(row['cpu'] for row in rows):.2f}"
    if not told:
        return (*head, *repeat("-", 13), cpu)
    errors = [better_by(row, "score", "truth") for row in told]
    error = stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    gained = [row for row in told if row["gain"] is not None]
    gains = [row["gain"] - row["lift"] for row in gained]
    lifts = [better_by(row, "truth", "start") for row in told]
    claims = [is_claimed(row) for row in told]
    return (
        *head[:2],
        head[2] if len(told) == len(rows) else f"{len(told)}/{len(rows)}",
        head[3],
        f"{fmean(row['truth'] for row in told):.3f} / {fmean(row['top'] for row in told):.3f}",
        f"{fmean(errors):+.3f} ± {error:.3f}",
        share(inside(e, row["margin"]) for e, row in zip(errors, told, strict=True)),
        share(inside(e, row["gain_margin"]) for e, row in zip(gains, gained, strict=True)),
        share(claims),
        share(row.get("replaced") for row in told),
        f"{fmean(row.get('kept', math.nan) for row in told):.0f}",
        share(lift <= NONE for lift, claim in zip(lifts, claims, strict=True) if claim),
        share(lift < -NONE for lift in lifts),
        share(row["margin"] is not None and row["margin"] <= NONE for row in told),
        share(row["margin"] is None for row in told),
        middle(relative_width(row) for row in told),
        f"{fmean(row.get('final', math.nan) for row in told):.0f}",
        share(not row["confirmed"] for row in told),
        share(row["steady"] for row in told),
        cpu,
    )


def line(texts: Sequence[str]) -> str:
    """A row of the table."""
    sized = [f"{text:>{width}}" for text, width in zip(texts, WIDTHS, strict=True)]
    names = [f"{text:<{width}}" for text, width in zip(texts[:2], WIDTHS, strict=False)]
    return f"| {' | '.join([*names, *sized[2:]])} |"


def kept_rows(path: Path | None) -> dict[Job, Row]:
    """The runs of before."""
    if path is None or not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {tuple(row[name] for name in KEY): row for row in rows}  # pyright: ignore[reportReturnType]


def made_rows(jobs: Sequence[Job], processes: int, path: Path | None) -> Iterator[Row]:
    """The rows of these runs, each written as soon as known."""
    with ProcessPoolExecutor(processes) as pool:
        for row in pool.map(row_of, jobs, chunksize=2) if jobs else ():
            if path is not None:
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            yield row


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first random seed")
    parser.add_argument("--world", action="append", help="a part of a name; may be repeated")
    parser.add_argument("--strategy", action="append", help="may be repeated; all: every one")
    parser.add_argument("--evaluations", type=int, default=0, help="0: those of each world")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="runs, one a line; those in it are kept")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, row by row."""
    asked = options(arguments)
    strategies = asked.strategy or ["pedigree"]
    strategies = STRATEGIES if "all" in strategies else strategies
    kept = kept_rows(asked.json)
    print(line(COLUMNS), "|" + "---|" * len(COLUMNS), sep="\n", flush=True)
    for name in HAZARDS:
        if not any(part in name for part in asked.world or [""]):
            continue
        for strategy in strategies:
            many = asked.evaluations or HAZARDS[name].evaluations
            seeds = range(asked.first, asked.first + asked.seeds)
            jobs: list[Job] = [(name, strategy, seed, many, asked.workers) for seed in seeds]
            new = made_rows([job for job in jobs if job not in kept], asked.jobs, asked.json)
            print(line(cells([*(kept[job] for job in jobs if job in kept), *new])), flush=True)


if __name__ == "__main__":
    main()
