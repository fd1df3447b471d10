"""Are a run's reports true, on programs that real models wrote? Tasks, a bank, seeds.

    python bench/bench_bank.py TASK ... --bank BANK --measured m.jsonl --repeats 12   (measures, compares)
    python bench/bench_bank.py TASK ... --bank BANK --measured m.jsonl --rivals PYTHON  (compares again)

TASK is a task folder (`culmen import algotune`), BANK a folder for `--model bank:BANK`. Each
program, and the initial one, is evaluated `--repeats` times by the task's own evaluator, one at a
time, all tasks and programs in turn, so that a slow minute of the machine falls on all of them. The
mean of these is a program's worth. Then whole searches run on a virtual clock: an evaluation of a
program is one of its measurements, drawn at random with replacement whatever the case (and moved by
a hundredth of a per cent, so that scores do not repeat exactly), so worth is the truth, and
thousands of runs cost nothing. A program that failed every time has no worth and is never the best;
programs that were measured less than most are left out.

first         each drawn program is measured once; the report is the highest measurement
equal         the same draws, and the budget spread evenly over them; the report is the highest mean
openevolve    OpenEvolve's and GEPA's own code picks (`bench/bank_rivals.py`), run by --rivals PYTHON
gepa
pedigree, ... `culmen run TASK --model bank:BANK --strategy ...`: search, final choice and report;
              `portfolio` has an arm of best_of_n for the programs of each maker of models

Columns, means over tasks and random seeds with 95 % intervals over random seeds:
lost            worth of the best program in the bank minus worth of the reported one, in % of the best
claim / truth   reported score over worth of the reported program, minus 1, in %
right           runs that report the best program, or one whose worth is equal within its error
wrong           runs that report a program that failed at least once, whose worth is counted as 0
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev

import msgspec

from culmen.core.brief import Brief, Proposal
from culmen.core.candidate import Candidate
from culmen.core.evaluation import Observation
from culmen.core.event import ProposeRequest, at_least
from culmen.core.ports import MinimalStrategy
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate.local import LocalBackend
from culmen.extensions.baselines.portfolio import Portfolio
from culmen.models import make_gateway
from culmen.models.bank import BankProposer, list_banks
from culmen.models.prompts.writer import FallbackProposer
from culmen.models.roles import ModelBook
from culmen.strategies import catalog
from culmen.tasks.loading import load as load_task
from culmen.testing.virtual import simulate

Rows = dict[str, list[Observation]]  # measurements by candidate
Pick = tuple[str, float]  # reported candidate and claimed score

STRATEGIES = ("pedigree", "best_of_n", "portfolio")
RIVALS = ("openevolve", "gepa")
MAKERS = ("Claude", "GPT", "Gemini", "")  # of models, by the beginning of their name; "": others
JITTER = 1e-4


class Bank:
    """A task, its bank, and all candidates by id."""

    def __init__(self, task: Task, folder: str) -> None:
        self.task, self.folder = task, folder
        self.programs = list_banks(ModelBook().parse_roles(f"bank:{folder}").banks(), task)
        self.gateway = make_gateway(task, f"bank:{folder}", bank=self.programs)
        self.initial = task.initial_candidates()[0]
        keys = ["", *(program.key for program in self.programs)]
        self.draws = {key: self._draw(key) for key in keys}  # "": nothing is left
        self.ids = {key: draw.candidates[0] for key, draw in self.draws.items() if key}
        self.candidates = {each.id: each for each in (self.initial, *self.ids.values())}

    def _draw(self, key: str) -> Proposal:
        return asyncio.run(self.gateway.propose(Brief(format="bank", hypothesis=key), 0))

    def keep(self, rows: Rows) -> Rows:
        """The measurements of programs that were measured often enough; drops the other programs."""
        most = max(map(len, rows.values()))
        enough = {name for name, seen in rows.items() if len(seen) == most or is_failing(seen)}
        self.programs = tuple(each for each in self.programs if self.ids[each.key].id in enough)
        return {name: rows[name] for name in rows if name in enough}

    def make_roles(self, by_maker: bool):
        """Roles of the bank: one, or one for the models of each maker."""
        if not by_maker:
            return ModelBook().parse_roles(f"bank:{self.folder}")
        models: dict[str, list[str]] = {}
        for program in self.programs:
            maker = next(each for each in MAKERS if program.model.startswith(each))
            models.setdefault(maker or "others", []).append(program.model)
        texts = {
            maker.lower(): "|".join(f"bank:{self.folder}#{name}" for name in dict.fromkeys(names))
            for maker, names in models.items()
        }
        return ModelBook().parse_roles({"default": f"bank:{self.folder}", **texts})


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
                    if len(known) > turn or is_failing(known) or is_slow(known, slow):
                        continue
                    seen = await backend.evaluate(candidate, cases[turn % len(cases)], turn)
                    known.append(seen)
                    append_measured(file, bank.task, candidate, seen)
                print(f"round {turn + 1} of {repeats}: {bank.task.name}", flush=True)
    finally:
        for backend in backends:
            await backend.close()


def is_failing(known: Sequence[Observation]) -> bool:
    """True for a candidate that failed the first two times."""
    return len(known) > 1 and all(each.score is None for each in known[:2])


def is_slow(known: Sequence[Observation], seconds: float) -> bool:
    """True for a candidate whose first evaluation took long."""
    return len(known) > 0 and known[0].seconds > seconds


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

    def __init__(self, bank: Bank, rows: Rows) -> None:
        self.bank, self.rows = bank, rows
        self.rewards = {name: [bank.task.reward(o) for o in seen] for name, seen in rows.items()}
        self.worth = {name: self.reward_of(name) for name in rows}
        self.top = max(self.worth, key=lambda name: self.worth[name])
        best = [each for each in self.rewards[self.top] if each is not None]
        self.error = 2 * stdev(best) / math.sqrt(len(best))

    def perform(self, effect, rng: Random):
        """A drawn measurement, or a program of the bank."""
        request = effect.request
        if isinstance(request, ProposeRequest):
            return 1.0, self.bank.draws[request.brief.hypothesis]
        seen = rng.choice(self.rows[request.candidate.id])
        score = None if seen.score is None else seen.score * (1.0 + JITTER * rng.gauss(0.0, 1.0))
        case = request.case.id if request.case else ""
        seen = msgspec.structs.replace(seen, seed=request.seed, score=score, case=case)
        return max(seen.seconds, 1e-3), seen

    def reward_of(self, name: str) -> float:
        """Worth: the mean reward, -inf for a program that ever failed."""
        scored = [each for each in self.rewards[name] if each is not None]
        return fmean(scored) if len(scored) == len(self.rewards[name]) else -math.inf

    def run_culmen(self, strategy: str, evaluations: int, seed: int) -> Pick:
        """The report of a run of culmen."""
        bank, estimate = self.bank, self.bank.gateway.estimate
        roles = bank.make_roles(strategy == "portfolio")
        run = simulate(
            make_strategy(strategy, list(roles.table)),
            bank.task,
            self,
            Budget(evaluations=evaluations),
            seed=seed,
            proposer=BankProposer(roles, bank.programs, FallbackProposer()),
            estimate=lambda r: estimate(r) if isinstance(r, ProposeRequest) else at_least(r),
        )
        best = run.verdict
        assert best is not None, "nothing scored"
        return best.id, bank.task.objective.reward(best.score)

    def run_first(self, evaluations: int, seed: int, equal: bool = False) -> Pick:
        """The highest first measurement, or mean of equally many, of drawn programs."""
        rng = Random(f"{seed}")
        drawn = [name for name in self.rows if name != self.bank.initial.id]
        rng.shuffle(drawn)
        names = [self.bank.initial.id, *drawn][:evaluations]
        times = max(1, evaluations // len(names)) if equal else 1
        best = ("", -math.inf)
        for name in names:
            rewards = [rng.choice(self.rewards[name]) for _ in range(times)]
            if None not in rewards:
                best = max(best, (name, fmean(r for r in rewards if r is not None)), key=_second)
        return best

    def run_rivals(
        self, python: str, budgets: Sequence[int], seeds: int
    ) -> dict[str, dict[str, list[Pick]]]:
        """Picks of the other tools, by name and budget."""
        data = {
            "initial": self.bank.initial.id,
            "rewards": self.rewards,
            "seeds": seeds,
            "budgets": budgets,
        }
        script = Path(__file__).with_name("bank_rivals.py")
        done = subprocess.run(
            [python, script], input=json.dumps(data), capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)


def make_strategy(name: str, roles: Sequence[str]) -> MinimalStrategy:
    """A strategy by its name; the portfolio has an arm for each role."""
    if name != "portfolio":
        return catalog.make_strategy(name)
    return Portfolio(tuple(f"best_of_n@{role}" for role in roles if role != "default"))


def _second(pair: Pick) -> float:
    return pair[1]


def interval(values: Sequence[float]) -> str:
    """Mean and half of a 95 % interval, for 30 values and more."""
    return f"{fmean(values):+7.2f} ± {1.96 * stdev(values) / math.sqrt(len(values)):.2f}"


class Found:
    """Reports of one way on all tasks and random seeds of a budget."""

    def __init__(self) -> None:
        self.lost: list[list[float]] = []  # by task and random seed, in per cent
        self.bias: list[list[float]] = []
        self.right: list[float] = []
        self.wrong: list[float] = []

    def add(self, world: MeasuredWorld, picks: Sequence[Pick]) -> None:
        """Enter the picks of one task."""
        best = world.worth[world.top]
        worth = [max(0.0, world.worth[name]) for name, _ in picks]
        self.lost.append([100.0 * (1.0 - each / best) for each in worth])
        pairs = zip(worth, picks, strict=True)
        self.bias.append(
            [100.0 * (claim / each - 1.0) if each else 0.0 for each, (_, claim) in pairs]
        )
        self.right += [best - each <= world.error for each in worth]
        self.wrong += [world.worth[name] == -math.inf for name, _ in picks]

    def line(self) -> str:
        """Means over tasks, with intervals over random seeds."""
        lost, bias = ([fmean(column) for column in zip(*rows)] for rows in (self.lost, self.bias))
        return f"{interval(lost):>18}{interval(bias):>20}{fmean(self.right):>8.0%}{fmean(self.wrong):>8.0%}"


def compare_picks(
    worlds: Sequence[MeasuredWorld], budgets: Sequence[int], seeds: int, rivals: str
) -> None:
    """Print the table, and the loss on each task."""
    theirs = [world.run_rivals(rivals, budgets, seeds) if rivals else {} for world in worlds]
    print(
        f"{'evaluations':>12}  {'':12}{'lost, %':>18}{'claim / truth, %':>20}{'right':>8}{'wrong':>8}  lost by task"
    )
    for budget in budgets:
        for name in ("first", "equal", *(RIVALS if rivals else ()), *STRATEGIES):
            found = Found()
            for world, picks in zip(worlds, theirs, strict=True):
                if name in picks:
                    found.add(world, picks[name][str(budget)])
                elif name in STRATEGIES:
                    found.add(
                        world, [world.run_culmen(name, budget, seed) for seed in range(seeds)]
                    )
                else:
                    found.add(
                        world, [world.run_first(budget, s, name == "equal") for s in range(seeds)]
                    )
            each = " ".join(f"{fmean(lost):6.2f}" for lost in found.lost)
            print(f"{budget:>12}  {name:12}{found.line()}  {each}", flush=True)


def describe_world(world: MeasuredWorld) -> str:
    """Programs, worths and noise of a task."""
    scored = {name: each for name, each in world.worth.items() if each > -math.inf}
    noise = median(
        stdev([r for r in world.rewards[name] if r is not None]) / scored[name] for name in scored
    )
    others = sorted(scored.values())
    return (
        f"{world.bank.task.name:24} {len(world.rows):3} programs, {len(scored)} always score, "
        f"{min(map(len, (world.rows[name] for name in scored)))} measurements each; worth "
        f"{others[0]:.2f} to {others[-1]:.2f} (second {others[-2]:.2f}), noise {100 * noise:.1f} %"
    )


def main() -> None:
    """Measure the programs missing in the file of measurements, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", type=Path)
    parser.add_argument("--bank", required=True)
    parser.add_argument("--measured", type=Path, required=True, help="file of measurements")
    parser.add_argument("--repeats", type=int, default=0, help="measurements of each program")
    parser.add_argument(
        "--slow", type=float, default=8.0, help="seconds of an evaluation that is too slow"
    )
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--evaluations", type=int, nargs="+", default=[18, 36, 72])
    parser.add_argument("--rivals", default="", help="Python with openevolve and gepa")
    chosen = parser.parse_args()
    banks = [Bank(load_task(folder), chosen.bank) for folder in chosen.tasks]
    asyncio.run(measure_programs(banks, chosen.repeats, chosen.slow, chosen.measured))
    worlds = [MeasuredWorld(b, b.keep(read_measured(chosen.measured, b.task))) for b in banks]
    for world in worlds:
        print(describe_world(world))
    compare_picks(worlds, chosen.evaluations, chosen.seeds, chosen.rivals)


if __name__ == "__main__":
    main()
