"""Does the command that a run within noise recommends answer what it promises?

    python bench/bench_next.py --seeds 100 [--evaluations 300] [--strategy pedigree]

Whole runs of the packing world (`bench/truth/packing.py`) on a virtual clock. Where a run ends
within noise, the fork that its last line recommends is run as well, under the next random seed.

advised     runs that recommend a fork to measure longer
told        of these, forks whose gain over the initial program is beyond noise
real        advised forks whose measured candidate is truly better by a tenth or more
real, told  of these, those beyond noise
answered    told, or the 95 % interval excludes the gain that was promised to be told
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_truth import evaluated
from bench.truth.packing import FIRST, PackingWorld

from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.report.facts import Facts
from culmen.report.sentences import find_problems
from culmen.strategies import catalog
from culmen.testing.virtual import Simulation, simulate

REAL = 0.1  # share of the first score by which a candidate is truly better
ADVISED = re.compile(r"culmen runs fork \S+ --carry 1 --budget (evaluations=\+\d+,final=[\d.]+)$")


class Advice(NamedTuple):
    """A run's advice and its result; `command` is "" without one.

    `promised` and `told` are the gains before and after, `margin` that of the latter; `kept`: the
    fork reports the initial program. `worth` is the true gain of the candidate that was measured.
    """

    command: str
    promised: float = 0.0
    told: float = 0.0
    margin: float = 0.0
    worth: float = 0.0
    kept: bool = False
    same_initial: bool = True

    @property
    def is_told(self) -> bool:
        """True if the gain is beyond noise."""
        return self.told > self.margin > 0 and not self.kept

    @property
    def is_answered(self) -> bool:
        """True if the gain is distinguished from noise, or excluded."""
        return self.is_told or self.told + self.margin < self.promised


def follow_advice(evaluations: int, strategy: str, seed: int) -> Advice:
    """One run, and the fork that it recommends."""
    world = PackingWorld(number=seed, evaluations=evaluations)
    task, budget = world.task(), Budget(evaluations=evaluations)
    first = simulate(catalog.make_strategy(strategy), task, world, budget, seed=seed, workers=2)
    before = _facts(first, task, budget)
    command = next(
        (each.command for each in find_problems(before) if each.topic == "within_noise"), ""
    )
    advised = ADVISED.match(command)
    if advised is None or before.result is None:
        return Advice("")
    leader = before.result.challenger or before.result
    known = evaluated(first, task)
    carrying = msgspec.structs.replace(task, carried=(dict(known[leader.id].parts),))
    longer = Budget.parse(advised[1].replace("=+", "="))
    made = catalog.make_strategy(strategy)
    fork = simulate(made, carrying, world, longer, seed=seed + 1, workers=2)
    after = _facts(fork, carrying, longer)
    assert after.result is not None and after.result.initial is not None
    measured = (after.result.challenger or after.result).id
    programs = {each.id: each for each in carrying.starting_candidates()} | evaluated(
        fork, carrying
    )
    return Advice(
        command,
        -(before.result.gain or 0.0),
        -(after.result.gain or 0.0),
        after.result.gain_margin or 0.0,
        FIRST - world.truth(programs[measured]),
        after.result.kept_initial,
        after.result.initial.id == task.initial_candidates()[0].id,
    )


def _facts(run: Simulation, task: Task, budget: Budget) -> Facts:
    best: RunResult | None = run.verdict
    assert best is not None
    return Facts(
        run="first",
        result=best,
        noise=best.noise,
        objective=task.objective,
        evaluations=best.evaluations,
        budget=budget,
    )


def advice_table(found: Sequence[Advice]) -> dict[str, int]:
    """The counts of the columns above."""
    advised = [each for each in found if each.command]
    real = [each for each in advised if each.worth >= REAL * FIRST]
    return {
        "runs": len(found),
        "advised": len(advised),
        "told": sum(each.is_told for each in advised),
        "real": len(real),
        "real, told": sum(each.is_told for each in real),
        "answered": sum(each.is_answered for each in advised),
    }


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--strategy", default="pedigree")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    follow = partial(follow_advice, asked.evaluations, asked.strategy)
    with ProcessPoolExecutor(asked.processes) as pool:
        found = list(pool.map(follow, range(asked.seeds)))
    for name, many in advice_table(found).items():
        print(f"{name:12} {many:5}")


if __name__ == "__main__":
    main()
