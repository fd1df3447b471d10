"""Plan of a run: its choices, resolved one after the other and checked against each other.

    plan = plan_run(task, "polca", RunOptions(budget=Budget(evaluations=500)))
    path, meta = create_run(plan)

The command line, Python (`culmen.run.study`), `fork` and the benchmarks all make their runs here,
of the choices in `culmen.run.request`, so each is refused for the same reasons. A plan writes
nothing and starts nothing.
"""

from __future__ import annotations

import itertools
import platform
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from culmen.core import VERSION
from culmen.core.brief import Proposal
from culmen.core.errors import UserError
from culmen.core.event import Entry
from culmen.core.options import BankProgram, RunOptions
from culmen.core.ports import MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.engine.loop import EVERY
from culmen.run.options import RunObjects
from culmen.run.request import (
    BudgetChoice,
    Choice,
    DefaultsChoice,
    ForkChoice,
    GivenStrategy,
    ModelChoice,
    OptionChoice,
    PlaceChoice,
    PlanDraft,
    PoolChoice,
    RunRequest,
    StopChoice,
    StrategyChoice,
    TaskChoice,
)
from culmen.store import views
from culmen.store.database import RunMeta, pack_meta, unpack_meta
from culmen.strategies import catalog

# characters of a task's name in a run's: with the time, and beside its score, it fits a line
_STEM = 28


class RunPlan(msgspec.Struct, frozen=True):
    """A run that can be created.

    strategy  an object; in `options` its stop score is resolved: a number, or None if the strategy
              itself ends there
    versions  those of what decides in the run (`culmen.run.recheck`)
    programs  those of recorded models that the run may ask
    carried   candidates of another run that the search starts from
    """

    task: Task
    strategy: MinimalStrategy
    options: RunOptions
    objects: RunObjects
    versions: dict[str, int] = {}
    programs: tuple[BankProgram, ...] = ()
    carried: int = 0


def resolve_plan(draft: PlanDraft, choices: Iterable[Choice]) -> RunPlan:
    """The plan of a draft in which the choices have resolved themselves, one after the other.

    Raises `UserError` for a run that could never start or never end.
    """
    for choice in choices:
        choice.resolve(draft)
    check_ends(draft.strategy, draft.options, draft.objects)
    names = RunPlan.__struct_fields__
    return RunPlan(**{name: getattr(draft, name) for name in names})


def plan_run(
    task: Task | str | Path,
    strategy: MinimalStrategy | type[MinimalStrategy] | str | None,
    options: RunOptions,
    objects: RunObjects | None = None,
) -> RunPlan:
    """The plan of a new run, from Python; `strategy` None is the usual one."""
    choices = [TaskChoice(task=task), *_choices(), GivenStrategy(strategy=strategy)]
    return resolve_plan(PlanDraft(options, objects), choices)


def plan_fork(
    run: Path,
    strategy: MinimalStrategy | type[MinimalStrategy] | str | None,
    options: RunOptions,
    objects: RunObjects | None = None,
    carry: int = 0,
    wanted_seed: int | None = None,
) -> RunPlan:
    """The plan of a run that reuses the finished results of `run`, with its present evaluator.

    `strategy` is None for that of `run`. With `carry`, the search starts from the best
    candidates of `run`, too, under a random seed of its own (`wanted_seed`, if there is one).
    """
    parent = ForkChoice(RunRequest(carry=carry, seed=wanted_seed), run=run)
    choices = [parent, *_choices(), GivenStrategy(strategy=strategy)]
    return resolve_plan(PlanDraft(options, objects), choices)


def requested_run(task: Task | Path | None, request: RunRequest) -> RunPlan:
    """The plan of a new run of a task, or of that at a path."""
    origin = [TaskChoice(request, task=task), DefaultsChoice(request)]
    choices = [*origin, *_choices(request), StrategyChoice(request)]
    return resolve_plan(PlanDraft(RunOptions()), choices)


def requested_fork(run: Path, request: RunRequest) -> RunPlan:
    """The plan of a fork of `run`; options that are not given are those of `run`."""
    choices = [ForkChoice(request, run=run), *_choices(request), StrategyChoice(request)]
    return resolve_plan(PlanDraft(views.run_meta(run).options), choices)


def _choices(request: RunRequest | None = None) -> list[Choice]:
    """The choices between task and strategy; each stands behind those that it reads."""
    kinds = (OptionChoice, BudgetChoice, PoolChoice, PlaceChoice, StopChoice, ModelChoice)
    return [kind(request or RunRequest()) for kind in kinds]


def create_run(
    plan: RunPlan, run_dir: str | Path | None = None, db: str | None = None
) -> tuple[Path, RunMeta]:
    """Create the folder and the journal of a planned run; return its path and metadata.

    `run_dir` defaults to runs/NAME-TIME; `db` is the URL of a database that keeps the journal.
    """
    from culmen.store.journal import SqlJournal

    try:
        # what no journal gives back, and folders that cannot be, are refused before any is made
        meta = run_meta(plan)
        msgspec.json.encode(unpack_meta(pack_meta(meta)))
        path = reserve_path(plan.task) if run_dir is None else Path(run_dir).expanduser().resolve()
        path.is_dir()
    except (OSError, TypeError, ValueError, RuntimeError, msgspec.MsgspecError) as error:
        fix = "pass plain data (numbers, texts, lists, mappings) and a folder that can be"
        raise UserError(f"this run cannot be kept: {error}", fix=fix) from error
    meta = msgspec.structs.replace(meta, id=path.name)
    try:
        journal = SqlJournal.create(path, meta, db)
    except BaseException:
        with suppress(OSError):
            path.rmdir()  # if nothing is in it
        raise
    seeds = Proposal(candidates=plan.task.starting_candidates())
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


def run_meta(plan: RunPlan, name: str = "") -> RunMeta:
    """The metadata that the journal needs to resume a planned run; never a key."""
    model = plan.options.model
    return RunMeta(
        id=name,
        task=plan.task,
        strategy=catalog.strategy_config(plan.strategy),
        models=dict(model) if isinstance(model, dict) else {"default": str(model)},
        created=time.time(),
        culmen=VERSION,
        python=platform.python_version(),
        platform=sys.platform,
        trial=not plan.options.allow_failing,
        bank=plan.programs,
        versions=plan.versions,
        checkpoints=EVERY,
        **msgspec.structs.asdict(plan.options),
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
