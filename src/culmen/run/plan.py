"""Plan of a run: task, strategy, options and objects, checked against each other.

    plan = plan_run(task, "polca", RunOptions(budget=Budget(evaluations=500)))
    path, meta = create_run(plan)

The command line (`culmen.run.request`), Python (`culmen.study`), `fork` and the benchmarks all make
their runs here, so each is refused for the same reasons. A plan writes nothing and starts nothing.
"""

from __future__ import annotations

import itertools
import math
import platform
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core import VERSION
from culmen.core.brief import Proposal
from culmen.core.errors import UserError
from culmen.core.event import Entry
from culmen.core.options import BankProgram, RunOptions
from culmen.core.ports import MinimalGateway, MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.engine.checkpoint import EVERY
from culmen.evaluate import backends as cluster
from culmen.run.options import RunObjects, replace_options
from culmen.run.strategy_choice import (
    StrategyChoice,
    check_agents_of_arms,
    choose_strategy,
    usual_strategy,
)
from culmen.run.versions import deciders_of, proposer_of
from culmen.store.database import RunMeta
from culmen.strategies import catalog

if TYPE_CHECKING:
    from culmen.llm.spec import ModelSpec, Roles

# characters of a task's name in a run's: with the time, and beside its score, it fits a line
_STEM = 28


class RunPlan(msgspec.Struct, frozen=True):
    """A run that can be created.

    strategy  an object; in `options` its stop score is resolved: a number, or None if the strategy
              itself ends there
    programs  those of recorded models that the run may ask
    carried   candidates of another run among the initial programs
    """

    task: Task
    strategy: MinimalStrategy
    options: RunOptions
    objects: RunObjects
    programs: tuple[BankProgram, ...] = ()
    carried: int = 0


def plan_run(
    task: Task,
    strategy: StrategyChoice | MinimalStrategy | type[MinimalStrategy] | str | None,
    options: RunOptions,
    objects: RunObjects | None = None,
) -> RunPlan:
    """The plan of a new run; `strategy` is an object, a class without arguments, or a name.

    A `StrategyChoice` is settled by the task and the models, and None is the usual one
    (`culmen.run.strategy_choice.usual_strategy`).

    Raises `UserError` for a run that could never start or never end.
    """
    objects = objects or RunObjects()
    stop_at = parse_stop_score(task, options.stop_at)
    options = msgspec.structs.replace(options, model=_with_absolute_banks(options.model))
    roles = _read_roles(options, objects)
    if isinstance(strategy, StrategyChoice):
        strategy = choose_strategy(strategy, task, options, roles)
    strategy = strategy or usual_strategy(roles)
    named = catalog.make_strategy(strategy) if isinstance(strategy, str) else strategy
    made, stop_at = catalog.ending_at(catalog.strategy_object(named), stop_at)
    options = msgspec.structs.replace(options, stop_at=stop_at)
    plan = RunPlan(task, made, options, objects, _listed_programs(task, roles))
    check_runnable(plan, roles)
    return plan


def plan_fork(
    run: Path,
    strategy: MinimalStrategy | type[MinimalStrategy] | str | None,
    options: RunOptions,
    objects: RunObjects | None = None,
    carry: int = 0,
    wanted_seed: int | None = None,
) -> RunPlan:
    """The plan of a run that reuses the finished results of `run`, with its present evaluator.

    `strategy` is None for that of `run`. With `carry`, the best candidates of `run` are further
    initial programs, under a random seed of its own (`wanted_seed`, if there is one).
    """
    from culmen.evaluate.taskfiles import with_present_files
    from culmen.run import fork
    from culmen.store import views
    from culmen.store.address import read_pointer

    meta = views.run_meta(run)
    task = with_present_files(meta.task)
    if carry:
        task = fork.with_carried_candidates(task, run, carry)
        options = replace_options(options, seed=fork.random_seed(meta, wanted_seed))
    # an address means the same run on every machine
    options = replace_options(options, fork_of=str(read_pointer(run) or run))
    own = strategy or catalog.revive_object(meta.strategy["path"], meta.strategy["config"])
    return msgspec.structs.replace(plan_run(task, own, options, objects), carried=carry)


def create_run(
    plan: RunPlan, run_dir: str | Path | None = None, db: str | None = None
) -> tuple[Path, RunMeta]:
    """Create the folder and the journal of a planned run; return its path and metadata.

    `run_dir` defaults to runs/NAME-TIME; `db` is the URL of a database that keeps the journal.
    """
    from culmen.store.journal import SqlJournal

    path = reserve_path(plan.task) if run_dir is None else Path(run_dir).expanduser().resolve()
    meta = run_meta(path, plan)
    try:
        journal = SqlJournal.create(path, meta, db)
    except BaseException:
        with suppress(OSError):
            path.rmdir()  # if nothing is in it
        raise
    seeds = Proposal(candidates=plan.task.initial_candidates())
    journal.append([Entry("note", effect="seeds", body={"note": "seeds"}, result=seeds)])
    journal.close()
    return path, meta


def reserve_path(task: Task) -> Path:
    """Make the folder of a new run, runs/NAME-TIME, numbered if that exists.

    Runs that start in the same second never share one. If none can be made, the path is returned,
    and creating the journal says what is wrong.
    """
    stem = (
        "".join(c if c.isalnum() or c in "-_" else "-" for c in task.name)[:_STEM].rstrip("-_")
        or "run"
    )
    base = Path("runs").resolve() / f"{stem}-{time.strftime('%m%d-%H%M%S')}"
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError:
            break
    return path


def run_meta(path: Path, plan: RunPlan) -> RunMeta:
    """The metadata that the journal needs to resume a planned run; never a key."""
    options = plan.options
    backend = plan.objects.backend
    workers = options.workers or (0 if backend is None else backend.workers)
    named = options.model
    return RunMeta(
        id=path.name,
        task=plan.task,
        strategy=catalog.strategy_config(plan.strategy),
        models=dict(named) if isinstance(named, dict) else {"default": str(named)},
        created=time.time(),
        culmen=VERSION,
        python=platform.python_version(),
        platform=sys.platform,
        trial=not options.allow_failing,
        bank=plan.programs,
        versions=_versions(plan),
        checkpoints=EVERY,
        **{
            **msgspec.structs.asdict(options),
            "workers": workers or cluster.usual_workers(options.backend),
        },
    )


def _with_absolute_banks(
    model: str | dict[str, str] | None,
) -> str | dict[str, str] | None:
    """The model's text, or texts by role, with the folders of banks as absolute paths."""
    if model is None or "bank:" not in str(model):
        return model
    from culmen.llm.roles import absolute_banks

    if isinstance(model, dict):
        return {role: absolute_banks(name) for role, name in model.items()}
    return absolute_banks(model)


def _read_roles(options: RunOptions, objects: RunObjects) -> Roles | None:
    """The models by role; None if there are none, or if the caller's own world answers for them."""
    if objects.world is not None and "bank:" not in str(options.model):
        return None
    if objects.model is None and options.asks_no_model:
        return None
    from culmen.llm.roles import read_roles

    return read_roles(objects.model_of(options), options.models_file)


def _listed_programs(task: Task, roles: Roles | None) -> tuple[BankProgram, ...]:
    """The programs of the recorded models that the run may ask."""
    banks = roles.banks() if roles else ()
    if not banks:
        return ()
    from culmen.llm.bank import list_banks

    return list_banks(banks, task)


def _versions(plan: RunPlan) -> dict[str, int]:
    """The versions of what will decide in a planned run."""
    proposer = proposer_of(plan.options.searches_offline, plan.objects)
    return {name: part.version for name, part in deciders_of(plan.strategy, proposer).items()}


# Checks of a plan. None writes or starts anything.


def check_runnable(plan: RunPlan, roles: Roles | None) -> None:
    """Refuse a run that could never start or never end; `roles` are its models."""
    task, options, objects = plan.task, plan.options, plan.objects
    check_ends(plan.strategy, options, objects)
    if options.backend is not None:
        cluster.require_backend_extra(options.backend)
    if objects.world is None:
        check_models(roles, options.budget, plan.programs)
        if not isinstance(objects.model, MinimalGateway):
            check_roles(task, roles)
    own_model = objects.model is not None or objects.world is not None
    check_agents_of_arms(plan.strategy, options.searches_offline and not own_model)
    writes = with_protocol_defaults(Strategy, plan.strategy).writes
    if not task.seeds and options.searches_offline and objects.proposer is None and not writes:
        uses = ", ".join(task.evaluator.options.get("uses", ()))
        raise UserError(
            "a task without an initial program needs a model to write the first candidate",
            where=f"task {task.name}",
            fix=f"give an initial program{f' that defines {uses}' if uses else ''} with "
            "--seed-program FILE, or choose a model with --model NAME, or an agent with "
            "--agent NAME",
        )


def check_models(roles: Roles | None, budget: Budget, programs: Iterable[BankProgram] = ()) -> None:
    """Refuse models without a key, and without a price if dollars alone are limited."""
    models = roles.without_banks().all_models() if roles else ()
    for entry in models:
        if entry.backend is None and not entry.provider.key.is_available():
            entry.provider.key.reveal()
    if budget.dollars is not None and budget.calls is None and budget.tokens is None:
        _check_prices(models)
        _check_bank_prices(programs)


def _check_prices(models: Iterable[ModelSpec]) -> None:
    """Refuse models whose price is unknown: a budget in dollars would not limit them."""
    unknown = {m.name: m for m in models if not m.can_be_priced and not m.price_unknown}
    if unknown:
        raise UserError(
            f"dollars would limit nothing: the price of {', '.join(unknown)} is unknown",
            where="budget",
            fix="limit calls=100 or tokens=1000000 as well, or describe the model in a models file "
            "(--models FILE), with price = { input = 0.2, output = 0.8 } (dollars per million "
            "tokens), or with price_unknown = true to run all the same",
        )


def _check_bank_prices(programs: Iterable[BankProgram]) -> None:
    """Refuse programs whose price is unknown: a budget in dollars would not limit them."""
    unknown = sorted({program.model for program in programs if program.price is None})
    if unknown:
        raise UserError(
            f"dollars would limit nothing: the bank has no price for {', '.join(unknown)}",
            where="budget",
            fix='limit evaluations=100 instead, or write [price] "'
            f"{unknown[0]}\" = 0.05 (dollars a program) into the bank's bank.toml",
        )


def check_roles(task: Task, roles: Roles | None) -> None:
    """Refuse a task whose evaluator asks models in roles without a model."""
    wanted = task.evaluator.options.get("roles", ())
    asked = roles.without_banks() if roles else None
    missing = [role for role in wanted if asked is None or asked.pick_model(role, 0) is None]
    if missing:
        raise UserError(
            f"the evaluator asks models as {', '.join(wanted)}; no model is named for "
            f"{', '.join(missing)}",
            where=f"task {task.name}",
            fix=(
                f"add {' '.join(f'--model {role}=MODEL' for role in missing)} (the search may stay "
                "--model offline)"
            ),
        )


def check_ends(strategy: MinimalStrategy, options: RunOptions, objects: RunObjects) -> None:
    """Refuse a run that could never end: without a budget, or with one that is never spent."""
    budget = options.budget
    if not budget.has_limit:
        raise UserError(
            "nothing ends this run",
            where="budget",
            fix="give a budget, for example evaluations=200",
        )
    if (
        budget.evaluations is None
        and budget.seconds is None
        and _is_free(strategy, options, objects)
    ):
        named = [
            name for name in ("dollars", "calls", "tokens") if getattr(budget, name) is not None
        ]
        raise UserError(
            f"nothing ends this run: the offline model spends no {' or '.join(named)}",
            where="budget",
            fix="limit evaluations=200 or seconds=600 as well, or choose a model with --model NAME",
        )


def parse_stop_score(task: Task, wanted: float | str | None) -> float | None:
    """The score at which a search is to end; `target` is the task's own.

    Raises UserError for any other word.
    """
    if wanted is None or isinstance(wanted, float | int):
        return None if wanted is None else float(wanted)
    if wanted.strip().lower() == "target":
        if task.objective.target is None:
            raise UserError(
                "this task declares no target",
                where="--stop-at target",
                fix="write --stop-at SCORE",
            )
        return task.objective.target
    if wanted.strip().lower() in ("none", "off"):
        return None
    try:
        score = float(wanted)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        fix = "write a number, target for the task's own, or none"
        raise UserError(f"'{wanted}' is not a score", where="--stop-at", fix=fix)
    return score


def _is_free(strategy: MinimalStrategy, options: RunOptions, objects: RunObjects) -> bool:
    """True if nothing in this run is ever paid for.

    The offline proposer, no agents, embedders in this process.
    """
    if (
        not options.asks_no_model
        or with_protocol_defaults(Strategy, strategy).writes
        or objects.crafts
        or objects.world
    ):
        return False
    if objects.proposer is not None and not objects.proposer.free:
        return False
    return objects.embedder is None and "/" not in options.embedder.partition(":")[0]
