"""Runs of a place: tasks, suites, cells and final measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from culmen import tasks as taskfiles
from culmen.core.errors import UserError
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.extensions.bench.measure import (
    BEST,
    SEED,
    FinalMeasurement,
    ScoreRequest,
    Wanted,
    make_evaluations,
    measure_candidates,
    measurement_of_run,
)
from culmen.extensions.bench.reproduce.places import ExperimentPlan, Paper
from culmen.extensions.bench.reproduce.toy import ToyProposer, toy_models
from culmen.extensions.bench.score import plan_runs_by_task, score_runs
from culmen.extensions.bench.suite import (
    CellResult,
    Contender,
    Suite,
    run_cells,
    suite_cells,
    tasks_of,
)
from culmen.run.options import RunObjects
from culmen.run.pools import build_pool, load_pool, save_pool, without_best

Report = Callable[[str], None]
"""Receives a line of progress."""

_STAND_IN = Path(__file__).with_name("stand_in")


class Conditions(msgspec.Struct, frozen=True):
    """Choices for all runs of a place: size, models, and the folder of everything made.

    `folders` are a user's own task folders in place of built-in tasks, by name; `advisor` is the
    model that PACEvolve++ trains, `agent` the kind of agents of CATO, `pool` a pool of programs.
    """

    out: Path
    toy: bool = False
    model: str = ""
    models_file: str | None = None
    embedder: str = "hashing"
    folders: Mapping[str, str] = {}
    seeds: int | None = None
    budget: str | None = None
    workers: int | None = None
    advisor: str = "tiny"
    agent: str = "builtin"
    pool: str = "uncertainty_ineq"


class Made(msgspec.Struct, frozen=True):
    """One finished run of an experiment: its contender by the paper's name, and its cell."""

    contender: str
    cell: CellResult

    @property
    def path(self) -> Path:
        """The run's folder."""
        return Path(self.cell.run)


class Experimenter:
    """Maker of an experiment's runs and measurements under some conditions."""

    def __init__(self, paper: Paper, name: str, conditions: Conditions) -> None:
        self.plan, self.conditions, self.name = paper.experiments[name], conditions, name
        self.folder, self._own_tasks = conditions.out, self.plan.tasks
        if conditions.toy:
            self.plan = toy_experiment(self.plan)
        filled = {label: self._filled(text) for label, text in self.plan.contenders.items()}
        self.plan = msgspec.structs.replace(self.plan, contenders=filled)
        toy = paper.experiments[name].toy
        self.cases, self._stand_in = (toy.cases, toy.stand_in) if conditions.toy else (0, 0)

    def suites(self) -> list[Suite]:
        """One suite for each budget: tasks, contenders, random seeds."""
        tasks = self._prepared_tasks()
        groups: dict[str, list[str]] = {}
        for label, strategy in self.plan.contenders.items():
            groups.setdefault(self.budget_of(label), []).append(strategy)
        return [
            Suite(
                self.name,
                tasks,
                tuple(dict.fromkeys(strategies)),
                tuple(range(self.seeds)),
                Budget.parse(budget),
                "offline" if self.conditions.toy else self.conditions.model,
                self.conditions.models_file,
                self.conditions.workers or self.plan.workers,
            )
            for budget, strategies in groups.items()
        ]

    @property
    def substitution(self) -> str:
        """Words for the tasks that stand for the experiment's own at toy size, if they do."""
        own = ", ".join(self._own_tasks)
        if self._stand_in:
            return f"at toy size {self._stand_in} stand-in tasks, not {own}"
        if self.plan.tasks != self._own_tasks:
            words = "alone of" if {*self.plan.tasks} <= {*self._own_tasks} else "in place of"
            return f"at toy size {', '.join(self.plan.tasks)} {words} {own}"
        return f"at toy size {self.cases} cases of {own}" if self.cases else ""

    @property
    def seeds(self) -> int:
        """Runs of each contender on each task."""
        return self.conditions.seeds or self.plan.seeds

    def budget_of(self, label: str) -> str:
        """The budget of one contender, as text."""
        return self.conditions.budget or self.plan.budgets.get(label, self.plan.budget)

    def parts(self, suite: Suite) -> dict[str, object]:
        """Keywords of the studies of a suite besides those that a suite has."""
        parts: dict[str, object] = {"embedder": self.conditions.embedder}
        if self.conditions.toy:
            roles = {role for task in tasks_of(suite).values() for role in _roles_of(task)}
            parts |= {"model": toy_models(tuple(sorted(roles))), "proposer": ToyProposer()}
        return parts

    def make_runs(self, report: Report) -> Iterator[Made]:
        """Make the missing runs; all runs in order, as far as they are finished."""
        for suite in self.suites():
            size = len(suite_cells(suite, self.folder))
            cells = run_cells(suite, self.folder, self.parts(suite))
            for number, cell in enumerate(cells, 1):
                label = self.label_of(cell.strategy)
                report(f"[{number}/{size}] {self.name}: {cell.task} {label} seed {cell.seed}")
                if cell.state == "finished":
                    yield Made(label, cell)

    def label_of(self, strategy: str) -> str:
        """The paper's name of a strategy as written."""
        return next(name for name, text in self.plan.contenders.items() if text == strategy)

    def measure_runs(
        self, runs: Sequence[Made], split: str, repeats: int, report: Report
    ) -> dict[str, FinalMeasurement]:
        """The final measurement of reported and initial programs of these runs, by run folder.

        Equal programs are evaluated once; an interrupted measurement goes on.
        """
        objects = self._objects()
        for planned in plan_runs_by_task([run.path for run in runs], split, repeats):
            missing = len(planned.plan.missing)
            if missing:
                report(f"{planned.plan.task.name}: {missing} evaluations of the final measurement")
            score_runs(planned, None, objects)
        return {
            run.cell.run: measure_candidates(self.measurement(run, (SEED, BEST), split, repeats))
            for run in runs
        }

    def measure_leaders(
        self, run: Made, ids: Sequence[str], split: str, repeats: int
    ) -> dict[str, float]:
        """Scores of candidates of one run in a final measurement, by id."""
        wanted = self.measurement(run, ids, split, repeats)
        make_evaluations(wanted)
        rows = measure_candidates(wanted).rows
        return {row.id: row.score for row in rows if row.score is not None}

    def measurement(self, run: Made, words: Sequence[str], split: str, repeats: int) -> Wanted:
        """The wanted measurement of some candidates of a run."""
        request = ScoreRequest(split, repeats, objects=self._objects())
        return measurement_of_run(run.path, words, request)

    def _filled(self, text: str) -> str:
        """A contender with the conditions in place of `{advisor}`, `{agent}` and pools."""
        given = self.conditions
        agent = "offline" if given.toy else given.agent
        text = text.replace("{advisor}", given.advisor).replace("{agent}", agent)
        if "{pool}" not in text and "{poorer}" not in text:
            return text
        place = self.folder / "pools"
        pool = str(place / "toy.json") if given.toy else given.pool
        poorer = place / f"{Path(pool).stem}-bottom80.json"
        if not poorer.exists():
            place.mkdir(parents=True, exist_ok=True)
            if given.toy:
                self._make_toy_pool(Path(pool))
            save_pool(without_best(load_pool(pool), 0.2), poorer)
        return text.replace("{poorer}", str(poorer)).replace("{pool}", pool)

    def _make_toy_pool(self, pool: Path) -> None:
        """A pool of the candidates of one short run."""
        budget = Budget(evaluations=16)
        suite = Suite("pool", self.plan.tasks, ("map_elites",), (0,), budget)
        cells = list(run_cells(suite, self.folder / "pools", self.parts(suite)))
        save_pool(build_pool([cell.run for cell in cells], best=10, licence="Apache-2.0"), pool)

    def _objects(self) -> RunObjects:
        model = self.parts(self.suites()[0]).get("model")
        return RunObjects(model=model)

    def _prepared_tasks(self) -> tuple[str, ...]:
        """Names or folders of the tasks, written where they are parts of built-in ones."""
        place = self.folder / "tasks"
        if self._stand_in:
            return tuple(_write_cases(_STAND_IN, place, 1, self._stand_in))
        sources = [self.conditions.folders.get(name, name) for name in self.plan.tasks]
        found: list[str] = []
        for source in sources:
            folder = Path(source) if Path(source).is_dir() else taskfiles.example_path(source)
            if self.plan.each_case:
                found += _write_cases(folder, place, 1, self.plan.each_case)
            elif self.cases:
                found += _write_cases(folder, place, self.cases, 1)
            else:
                found.append(source)
        return tuple(found)


def toy_experiment(plan: ExperimentPlan) -> ExperimentPlan:
    """The experiment at toy size."""
    toy = plan.toy
    return msgspec.structs.replace(
        plan,
        tasks=toy.tasks or plan.tasks,
        contenders={**plan.contenders, **toy.contenders},
        budget=toy.budget,
        budgets=toy.budgets,
        seeds=toy.seeds,
        workers=1,  # the same command makes the same table
        each_case=0 if toy.stand_in else plan.each_case,
    )


def check_contenders(experimenter: Experimenter) -> None:
    """Raise `UserError` for strategies or tasks that cannot be, before anything is run."""
    for suite in experimenter.suites():
        for task in tasks_of(suite).values():
            for strategy in suite.strategies:
                Contender.from_text(strategy, task)


def _roles_of(task: Task) -> tuple[str, ...]:
    return tuple(task.evaluator.options.get("roles") or ())


def _write_cases(source: Path, place: Path, together: int, count: int) -> list[str]:
    """Task folders with some cases of a task: `count` folders of `together` cases of each split.

    A folder that is there already is kept. With one case each, of a task whose parts are
    named after its cases (`methods/CASE.dfy`) only that part stays.
    """
    lines = (source / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines if line.strip()]
    if not cases:
        fix = f"give a folder with cases: --task {source.name}=DIR"
        raise UserError("this task has no cases yet", where=str(source), fix=fix)
    single = together == 1
    chosen = [[case] for case in cases[:count]] if single else [_first_cases(cases, together)]
    folders: list[str] = []
    for part in chosen:
        folder = place / (f"{source.name}-{part[0]['id']}" if single else source.name)
        if not (folder / "task.toml").exists():
            _copy_task(source, folder, [json.dumps(case) for case in part])
            keep = {str(case["id"]) for case in part}
            for file in folder.glob("methods/*.dfy"):
                if file.stem not in keep:
                    file.unlink()
        folders.append(str(folder))
    return folders


def _first_cases(cases: Sequence[dict[str, object]], count: int) -> list[dict[str, object]]:
    """The first `count` cases of each split."""
    seen: dict[object, int] = {}
    found: list[dict[str, object]] = []
    for case in cases:
        split = case.get("split", "train")
        seen[split] = seen.get(split, 0) + 1
        if seen[split] <= count:
            found.append(case)
    return found


def _copy_task(source: Path, folder: Path, cases: Sequence[str]) -> None:
    import shutil

    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(source, folder, ignore=ignored, dirs_exist_ok=True)
    text = (folder / "task.toml").read_text(encoding="utf-8")
    name = text.partition('name = "')[2].partition('"')[0]
    renamed = text.replace(f'name = "{name}"', f'name = "{folder.name}"', 1)
    (folder / "task.toml").write_text(renamed, encoding="utf-8")
    (folder / "cases.jsonl").write_text("\n".join(cases) + "\n", encoding="utf-8")
