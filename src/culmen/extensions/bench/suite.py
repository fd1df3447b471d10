"""Task x strategy x random seed at an equal budget.

Every cell is a run folder, so an interrupted bench goes on. Cells are taken seed by seed, so that
an unfinished bench has about as many runs of every strategy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from culmen.core.errors import NoAnswer, UserError, missing_extra
from culmen.core.json import JsonObject
from culmen.core.options import RunOptions
from culmen.core.packages import PACKAGES, module_advice
from culmen.core.ports import MinimalStrategy
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.store import views
from culmen.store.address import has_run

if TYPE_CHECKING:
    from culmen.run.study import Study


class Suite(msgspec.Struct, frozen=True):
    """The plan of a bench: tasks, strategies, random seeds, and one budget for every cell.

    Tasks are task folders, folders of task folders, or names of built-in tasks. A strategy is a
    name, or a name with settings: `polca(epsilon=off)`. `pool=FILE` among them is the file of
    candidates that its searches begin with (of a folder `TASK.json` in it), `pool_share` the share
    of the evaluations that these may use at most. `preset=NAME` is one of the strategy's own, or
    the settings of the task's `[presets.NAME]`. `budget` may limit evaluations, dollars or both,
    and is equal for all strategies. `agent` works for the strategies that have one (cato). Without
    `timed` the offline proposer writes no loops at all: if their guard of time ends them, their
    results depend on the machine.
    """

    name: str
    tasks: tuple[str, ...]
    strategies: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    budget: Budget = Budget(evaluations=200)
    model: str = "offline"
    models_file: str | None = None
    workers: int | None = None
    timed: bool = True
    agent: str | None = None


SUITES = {
    "turboevolve": Suite(
        "turboevolve",
        tasks=(
            "first_autocorr_ineq",
            "second_autocorr_ineq",
            "uncertainty_ineq",
            "circle_packing",
            "erdos_min_overlap",
            "heilbronn_triangle",
            "min_max_distance_ratio",
        ),
        strategies=("turboevolve", "openevolve", "map_elites", "best_of_n", "polca"),
    ),
    # POLCA, Section 5.4 and Appendix C: without each part, epsilon swept, another priority, and its
    # baselines.
    "polca": Suite(
        "polca",
        tasks=("routing_rules",),
        strategies=(
            "polca",
            "polca(epsilon=off)",
            "polca(summarizer=off)",
            "polca(epsilon=off, summarizer=off)",
            "polca(epsilon=q0.01)",
            "polca(epsilon=q0.2)",
            "polca(epsilon=q0.5)",
            "polca(priority=ucb)",
            "sequential",
            "gepa",
            "openevolve",
        ),
        seeds=(0, 1, 2, 3, 4, 5),
    ),
    # PACEvolve++, Section 4: its tasks (data made by their generators, or files given), no training
    # and the baselines' objectives.
    "pacevolve": Suite(
        "pacevolve",
        tasks=("eplb", "kuairec", "multi_evolve"),
        strategies=(
            "pacevolve_plus_plus",
            "pacevolve_plus_plus(preset=no_rl)",
            "pacevolve_plus_plus(preset=thetaevolve)",
            "pacevolve_plus_plus(preset=max_at_k)",
            "pacevolve_plus_plus(preset=ttt_discover)",
        ),
        seeds=(0, 1, 2),
    ),
    # CATO's mathematical tasks; its agents, one agent alone, and searches without agents.
    "cato": Suite(
        "cato",
        tasks=("circle_packing", "heilbronn_triangle", "min_max_distance_ratio"),
        strategies=("cato", "cato(agents=1)", "gepa", "openevolve"),
        seeds=(0, 1, 2),
    ),
}


_FEW = 10  # candidates on all cases, below which a run is called small


class Cell(msgspec.Struct, frozen=True):
    """One run to be made: its task, strategy, random seed, and folder."""

    task: str
    strategy: str
    seed: int
    path: Path


class CellResult(msgspec.Struct, frozen=True):
    """Result of one cell.

    `score` is the reported one, in the task's direction, with half the width `margin` of its 95 %
    interval (None: unknown); `certified` the certified value by the task's verifier (None: it has
    none, or did not accept). `calls` counts the model calls for candidates. `data` names made-up
    data of the task.
    """

    task: str
    strategy: str
    seed: int
    run: str
    state: str
    direction: str
    score: float | None
    certified: float | None
    evaluations: int
    calls: int
    tokens: int
    dollars: float
    unpriced: int
    seconds: float
    data: str = ""
    margin: float | None = None

    @property
    def label(self) -> str:
        """The task's name for tables, as `Task.label`."""
        return f"{self.task} ({self.data})" if self.data else self.task


class Contender(NamedTuple):
    """A strategy of a suite, and the pool that its searches begin with ("": none)."""

    strategy: MinimalStrategy
    pool: str
    share: float

    @classmethod
    def from_text(
        cls, text: str, task: Task, agent: str | None = None, model: str = "offline"
    ) -> Contender:
        """Read `name(setting=value, pool=FILE)` for a task; UserError for illegal values.

        `agent` is for strategies that have one; without it `model` decides.
        """
        from culmen.run import pools
        from culmen.strategies import catalog

        name, settings = catalog.parse_strategy(text)
        pool, share = settings.pop("pool", ""), settings.pop("pool_share", str(pools.SHARE))
        if pool and Path(pool).expanduser().is_dir():
            pool = str(Path(pool) / f"{task.name}.json")
        if getattr(catalog.strategy_class(name), "agent_setting", ""):
            offline = RunOptions(model=model).searches_offline
            settings = catalog.with_agent(name, agent, settings, offline)
        try:
            return cls(
                catalog.make_strategy(name, _with_preset(name, settings, task)), pool, float(share)
            )
        except ValueError:
            fix = "give a share of the evaluations between 0 and 1"
            raise UserError(f"pool_share cannot be '{share}'", where=text, fix=fix) from None


def _with_preset(name: str, settings: dict[str, str], task: Task) -> dict[str, str]:
    """The settings with those of the task's preset, if the strategy has no presets of its own."""
    from culmen.strategies import catalog

    cls = catalog.strategy_class(name)
    if "preset" not in settings or hasattr(cls, "presets"):
        return settings
    preset, presets = settings["preset"], task.defaults.presets
    fitting = {
        key: choices
        for key, choices in presets.items()
        if catalog.strategy_class(choices.strategy or name) is cls
    }
    if preset not in fitting:
        fix = (
            f"one of {', '.join(fitting)}"
            if fitting
            else f"write [presets.{preset}] into task.toml: culmen docs tasks"
        )
        raise UserError(
            f"task '{task.name}' has no preset '{preset}' for {name}", where="--strategies", fix=fix
        )
    own_settings = {key: value for key, value in settings.items() if key != "preset"}
    return fitting[preset].settings | own_settings


def tasks_of(suite: Suite) -> dict[str, Task]:
    """The tasks by name, or by folder if several have one name.

    Raises `UserError` for a task that does not exist, and if two folders have one name, too.
    """
    sources = list(dict.fromkeys(source for task in suite.tasks for source in _task_folders(task)))
    loaded = [(source, _load_task(source)) for source in sources]
    name_counts = Counter(task.name for _, task in loaded)
    tasks: dict[str, Task] = {}
    for source, task in loaded:
        name = task.name if name_counts[task.name] == 1 else Path(source).resolve().name
        if name in tasks:
            raise UserError(
                f"two tasks are called '{name}'",
                where=source,
                fix="give one another name in its task.toml",
            )
        tasks[name] = msgspec.structs.replace(task, name=name)
    return tasks


def _task_folders(task: str) -> list[str]:
    """The task itself, or those in a folder of task folders, by name."""
    folder = Path(task)
    if not folder.is_dir() or (folder / "task.toml").exists():
        return [task]
    return sorted(str(file.parent) for file in folder.glob("*/task.toml")) or [task]


def check_packages(suite: Suite) -> None:
    """Refuse a suite one of whose runs would lack a package, before any run is made."""
    for task in tasks_of(suite).values():
        needs = [(package, f"task '{task.name}'") for package in task.evaluator.packages]
        needs += [
            ("sklearn", f"clustering the initial programs of '{text}'")
            for text in suite.strategies
            if _clusters_seeds(suite, text, task)
        ]
        for package, who in needs:
            if not _is_installed(package):
                raise _missing_package(who, package)


def _missing_package(who: str, package: str) -> UserError:
    from culmen.jail.fork_server import EXTRAS

    name = PACKAGES.get(package, package)
    if package in EXTRAS:
        return missing_extra(who, name, EXTRAS[package], "culmen compare")
    what = f"{who} needs the module {package}, which is not installed"
    return UserError(what, where="culmen compare", fix=module_advice(package))


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # a module that was set to None, or has no spec
        return False


def _clusters_seeds(suite: Suite, text: str, task: Task) -> bool:
    """True if the strategy would divide its initial programs by k-means."""
    from culmen.run import pools
    from culmen.strategies.seed_pool import Kmeans, KmeansElite, RandomElite

    strategy, pool, share = Contender.from_text(text, task, suite.agent, suite.model)
    allocation = getattr(strategy, "allocation", None)
    if not isinstance(allocation, Kmeans | KmeansElite) or isinstance(allocation, RandomElite):
        return False
    seeds = len(task.initial_candidates())
    if pool:
        most = pools.carried_allowance(task, suite.budget.evaluations, share)
        found = len(pools.load_pool(pool).members)
        seeds += found if most is None else min(most, found)
    return seeds > getattr(strategy, "islands", 1)


def small_budget_notes(suite: Suite) -> list[str]:
    """Sentences about tasks whose cases take up the budget of a run."""
    notes: list[str] = []
    evaluations = suite.budget.evaluations
    for name, task in tasks_of(suite).items():
        cases = len(task.split("train"))
        if evaluations is None or not cases or evaluations >= _FEW * cases:
            continue
        rooms = evaluations // cases
        told = f"{rooms} candidates" if rooms > 1 else "one candidate" if rooms else "no candidate"
        notes.append(
            f"{name} has {cases} training cases and a run {evaluations} evaluations: a strategy "
            f"that evaluates on all cases sees {told}, the initial program included. "
            f"--budget evaluations={_FEW * cases} holds {_FEW}."
        )
    return notes


def suite_cells(suite: Suite, out: Path) -> list[Cell]:
    """All cells of a suite; raises `UserError` for a task or a strategy that does not exist."""
    tasks = tasks_of(suite)
    for task, strategy in product(tasks.values(), suite.strategies):
        Contender.from_text(strategy, task, suite.agent, suite.model)
    kind = "" if suite.timed else "-untimed"
    return [
        Cell(task, strategy, seed, out / task / _folder_name(strategy) / f"seed-{seed}{kind}")
        for seed in suite.seeds
        for task in tasks
        for strategy in suite.strategies
    ]


def run_cells(
    suite: Suite, out: Path, parts: Mapping[str, object] | None = None
) -> Iterator[CellResult]:
    """Run unfinished cells, reuse finished ones; one result per cell, in order.

    `parts` are further keywords of each study, as `embedder`, or `model` in place of the suite's.
    Ends early after a cell that was interrupted. Raises `UserError` if a folder holds a run with
    other settings.
    """
    from culmen.run.study import Study

    tasks = tasks_of(suite)
    for cell in suite_cells(suite, out):
        study = _new_study(suite, cell, tasks[cell.task], parts or {})
        if not views.run_status(cell.path).is_finished:
            own = JsonObject(_study_parts(suite) | dict(parts or {}))
            try:
                (Study.resume(cell.path, **own) if study is None else study).run(progress=False)
            except NoAnswer:  # of a finished run it is a result as any other
                if not views.run_status(cell.path).is_finished:
                    raise
        result = cell_result(cell)
        yield result
        if result.state != "finished":
            return


def cell_result(cell: Cell) -> CellResult:
    """The present result of a cell's run."""
    status = views.run_status(cell.path)
    best, usage = status.best, status.usage
    return CellResult(
        task=cell.task,
        strategy=cell.strategy,
        seed=cell.seed,
        run=str(cell.path),
        state=status.recorded,
        direction=status.direction,
        score=None if best is None else best.score,
        certified=None if best is None else best.certified,
        evaluations=status.evaluations,
        calls=usage.calls,
        tokens=usage.input_tokens + usage.output_tokens,
        dollars=usage.dollars,
        unpriced=usage.unpriced,
        seconds=status.elapsed_seconds,
        data=status.data,
        margin=None if best is None else best.margin,
    )


def _study_parts(suite: Suite) -> JsonObject:
    """Further arguments of a study of this suite beside its settings."""
    if suite.timed or suite.model != "offline":
        return {}
    from culmen.models.offline.proposer import UNTIMED, OfflineProposer

    return {"proposer": OfflineProposer(UNTIMED)}


def _new_study(suite: Suite, cell: Cell, task: Task, parts: Mapping[str, object]) -> Study | None:
    """A new study, or None if the cell's run exists already, which must be the same."""
    from culmen.run import options, pools
    from culmen.run.plan import plan_run
    from culmen.run.study import CreateKeywords, Study

    strategy, pool, share = Contender.from_text(cell.strategy, task, suite.agent, suite.model)
    label = pools.pool_label(pool) if pool else ""
    if not has_run(cell.path):
        keywords = {
            "model": suite.model,
            "budget": suite.budget,
            "random_seed": cell.seed,
            "workers": suite.workers or task.defaults.workers or None,
            "models_file": suite.models_file,
            **_study_parts(suite),
            **parts,
        }
        given = RunOptions(pool=label, own_replies=True)
        chosen, objects = options.read_keywords(keywords, given, CreateKeywords)
        if pool:
            task = pools.with_carried_pool(
                task,
                pools.load_pool(pool),
                pools.carried_allowance(task, suite.budget.evaluations, share),
            )
        return Study.from_plan(plan_run(task, strategy, chosen, objects), cell.path)
    _check_same_cell(suite, cell, task, strategy, label, "model" in parts)
    return None


def _check_same_cell(
    suite: Suite, cell: Cell, task: Task, strategy: MinimalStrategy, label: str, own_model: bool
) -> None:
    """Raise `UserError` if the run in a cell's folder is not the one that the suite asks for.

    A model that is an object (`own_model`) is not compared.
    """
    from culmen.strategies import catalog

    meta = views.run_meta(cell.path)
    previous = {
        "task": meta.task.digest,
        "strategy": msgspec.json.encode(meta.strategy),
        "budget": meta.budget,
    }
    present = {
        "task": task.digest,
        "strategy": msgspec.json.encode(catalog.strategy_config(strategy)),
        "budget": suite.budget,
    }
    previous |= {"model": meta.model, "pool": meta.pool}
    present |= {"model": meta.model if own_model else suite.model, "pool": label}
    for name, value in present.items():
        if previous[name] != value:
            message = f"this cell was run with another {name}"
            raise UserError(
                message, where=str(cell.path), fix="give another --out, or remove the folder"
            )


def _load_task(task: str) -> Task:
    """A task folder, or a built-in task by name."""
    from culmen import tasks as taskfiles

    return taskfiles.load(task if Path(task).exists() else taskfiles.example_path(task))


def _folder_name(name: str) -> str:
    """Folder name for a strategy's name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")
