"""Is what a run reports true, on programs that real models wrote? A task, a bank, random seeds.

    python bench/bench_bank.py TASK BANK --repeats 40 --measured m.jsonl      (measures, then compares)
    python bench/bench_bank.py TASK BANK --measured m.jsonl --seeds 100       (compares again)

TASK is a task folder, BANK a folder for `--model bank:BANK`. Each program, and the initial one, is
evaluated `--repeats` times by the task's own evaluator, one at a time, all programs in turn, so
that a slow minute of the machine falls on all of them. The mean of these is a program's worth. Then
whole searches run on a virtual clock: an evaluation of a program is one of its measurements, drawn
at random with replacement, so worth is the truth exactly, and thousands of runs cost nothing. A
program that failed every time has no worth and is never the best.

first     each drawn program is measured once; the report is the highest measurement
equal     the same draws, and the budget spread evenly over them; the report is the highest mean
culmen    `culmen run TASK --model bank:BANK`: search, final choice and report

Columns, scores turned so that higher is better; means over random seeds with 95 % intervals:
lost            worth of the best program in the bank minus worth of the reported one
claim - truth   reported score minus worth of the reported program
right           runs that report the best program, or one whose worth is equal within its error
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import msgspec

from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation, Status
from culmen.core.event import ProposeRequest, at_least
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.local import LocalBackend
from culmen.evaluate.taskfiles.loading import load as load_task
from culmen.llm import make_gateway
from culmen.llm.bank import BankProposer, list_banks
from culmen.llm.roles import ModelBook
from culmen.prompts.writer import FallbackProposer
from culmen.strategies import catalog
from culmen.testing.virtual import simulate

Rows = dict[str, list[Observation]]  # measurements by candidate


class Bank:
    """A task, its bank, and all candidates by id."""

    def __init__(self, task: Task, folder: str) -> None:
        self.task, model = task, f"bank:{folder}"
        self.roles = ModelBook().parse_roles(model)
        self.programs = list_banks(self.roles.banks(), task)
        self.gateway = make_gateway(task, model, bank=self.programs)
        self.initial = task.initial_candidates()
        self.drawn = [self._read_candidate(index) for index in range(len(self.programs))]
        self.candidates = {each.id: each for each in (*self.initial, *self.drawn)}

    def _read_candidate(self, index: int) -> Candidate:
        from culmen.core.brief import Brief

        brief = Brief(format="bank", hypothesis=self.programs[index].key)
        return asyncio.run(self.gateway.propose(brief, 0)).candidates[0]


async def measure_programs(banks: Sequence[Bank], repeats: int, slow: float, file: Path) -> None:
    """Append measurements to the file until each candidate of each bank has `repeats`.

    Tasks and candidates take turns; the cases of a task do, too, from round to round. Candidates
    that failed twice, and those whose first evaluation took more than `slow` seconds, have enough.
    """
    backends = [LocalBackend(bank.task, 1, None) for bank in banks]
    rows = {bank.task.name: read_measured(file, bank.task) for bank in banks}
    for backend in backends:
        await backend.start()
    try:
        for turn in range(repeats):
            for bank, backend in zip(banks, backends, strict=True):
                cases = bank.task.cases or (None,)
                for candidate in bank.candidates.values():
                    known = rows[bank.task.name].setdefault(candidate.id, [])
                    if len(known) > turn or is_enough(known, slow):
                        continue
                    seen = await backend.evaluate(candidate, cases[turn % len(cases)], turn)
                    known.append(seen)
                    append_measured(file, bank.task, candidate, seen)
                print(f"round {turn + 1} of {repeats}: {bank.task.name}", flush=True)
    finally:
        for backend in backends:
            await backend.close()


def is_enough(known: Sequence[Observation], slow: float) -> bool:
    """True for candidates that always fail, and for those that are slow to evaluate."""
    failed = len(known) > 1 and all(each.score is None for each in known[:2])
    return failed or (len(known) > 0 and known[0].seconds > slow)


def read_measured(file: Path, task: Task) -> Rows:
    """Measurements of a task's candidates, by id."""
    rows: Rows = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        data = json.loads(line)
        if data["task"] == task.name:
            seen = msgspec.convert(data["observation"], Observation)
            rows.setdefault(data["candidate"], []).append(seen)
    return rows


def append_measured(file: Path, task: Task, candidate: Candidate, seen: Observation) -> None:
    """One line for a measurement."""
    plain = {"task": task.name, "candidate": candidate.id, "observation": msgspec.to_builtins(seen)}
    with file.open("a") as out:
        out.write(json.dumps(plain) + "\n")


class MeasuredWorld:
    """Evaluations are drawn from measurements; programs come from the bank."""

    def __init__(self, bank: Bank, rows: dict[str, Row]) -> None:
        self.bank, self.rows = bank, rows

    def perform(self, effect, rng: Random):
        """A drawn measurement, or a program of the bank."""
        request = effect.request
        if isinstance(request, ProposeRequest):
            return 1.0, asyncio.run(self.bank.gateway.propose(request.brief, request.seed))
        seen = rng.choice(self.rows[request.candidate.id][request.case.id if request.case else ""])
        return max(seen.seconds, 1e-3), msgspec.structs.replace(seen, seed=request.seed)

    def reward_of(self, name: str) -> float:
        """Worth: the mean reward, -inf for a program that ever failed."""
        rewards = [self.bank.task.reward(seen) for case in self.rows[name].values() for seen in case]
        scored = [reward for reward in rewards if reward is not None]
        return fmean(scored) if len(scored) == len(rewards) else -math.inf

    def run_culmen(self, evaluations: int, seed: int) -> tuple[str, float]:
        """The reported candidate and its claimed reward."""
        bank, estimate = self.bank, self.bank.gateway.estimate
        run = simulate(
            catalog.make_strategy("pedigree"),
            bank.task,
            self,
            Budget(evaluations=evaluations),
            seed=seed,
            proposer=BankProposer(bank.roles, bank.programs, FallbackProposer()),
            estimate=lambda r: estimate(r) if isinstance(r, ProposeRequest) else at_least(r),
        )
        best = run.verdict
        assert best is not None, "nothing scored"
        return best.id, bank.task.objective.reward(best.score)

    def run_first(self, evaluations: int, seed: int, equal: bool = False) -> tuple[str, float]:
        """The highest first measurement, or mean of equally many, of drawn programs."""
        rng = Random(f"{seed}")
        drawn = [each.id for each in self.bank.drawn]
        rng.shuffle(drawn)
        names = [*(each.id for each in self.bank.initial), *drawn][:evaluations]
        times = max(1, evaluations // len(names)) if equal else 1
        best = ("", -math.inf)
        for name in dict.fromkeys(names):
            (seen,) = self.rows[name].values()
            rewards = [self.bank.task.reward(rng.choice(seen)) for _ in range(times)]
            if None not in rewards:
                best = max(best, (name, fmean(r for r in rewards if r is not None)), key=_second)
        return best


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


def interval(values: Sequence[float]) -> str:
    """Mean and half of a 95 % interval, for 30 values and more."""
    return f"{fmean(values):+8.3f} ± {1.96 * stdev(values) / math.sqrt(len(values)):.3f}"


def compare_picks(world: MeasuredWorld, budgets: Sequence[int], seeds: int) -> None:
    """Print the table."""
    worth = {name: world.reward_of(name) for name in world.rows}
    top = max(worth, key=lambda name: worth[name])
    ways = {
        "first": world.run_first,
        "equal": lambda n, seed: world.run_first(n, seed, equal=True),
        "culmen": world.run_culmen,
    }
    best = [world.bank.task.reward(seen) for seen in next(iter(world.rows[top].values()))]
    error = 2 * stdev([each for each in best if each is not None]) / math.sqrt(len(best))
    print(f"{len(world.bank.drawn)} programs, {seeds} random seeds; best {worth[top]:.4g} ± {error:.2g}")
    print(f"{'evaluations':>12}  {'':8}{'lost':>18}{'claim - truth':>20}{'right':>8}")
    for budget in budgets:
        for name, way in ways.items():
            found = [way(budget, seed) for seed in range(seeds)]
            lost = [worth[top] - worth[each] for each, _ in found]
            bias = [claim - worth[each] for each, claim in found]
            right = fmean(each <= error for each in lost)
            print(f"{budget:>12}  {name:8}{interval(lost):>18}{interval(bias):>20}{right:>8.0%}", flush=True)


def main() -> None:
    """Measure if there is no file of measurements yet, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("bank")
    parser.add_argument("--measured", type=Path, required=True, help="file of measurements")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--evaluations", type=int, nargs="+", default=[18, 36, 72])
    chosen = parser.parse_args()
    bank = Bank(load_task(Path(chosen.task)), chosen.bank)
    if not chosen.measured.exists():
        write_measured(chosen.measured, asyncio.run(measure_programs(bank, chosen.repeats)))
    rows = read_measured(chosen.measured)
    scored = sum(any(s.status is Status.OK for c in row.values() for s in c) for row in rows.values())
    print(f"{bank.task.name}: {len(rows)} programs, {scored} with a score")
    compare_picks(MeasuredWorld(bank, rows), chosen.evaluations, chosen.seeds)


if __name__ == "__main__":
    main()
