"""Request of a person for a run, in texts as on the command line, and the plan made of it.

The request takes precedence over the task's own defaults, and these over culmen's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.options import (
    DEFAULT_BUDGET,
    BackendChoice,
    RunOptions,
    TaskDefaults,
    parse_amount,
)
from culmen.core.ports import MinimalStrategy
from culmen.core.task import Task
from culmen.core.usage import Budget
from culmen.evaluate import backends as cluster
from culmen.evaluate.forms import find_form, require_form
from culmen.run import pools
from culmen.run.options import folder_task, replace_options
from culmen.run.plan import RunPlan, plan_fork, plan_run
from culmen.run.strategy_choice import OFFLINE, StrategyChoice, altered_strategy, with_agent
from culmen.strategies import catalog

if TYPE_CHECKING:
    from culmen.store.database import RunMeta


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a person for one run, as they were written; None is not chosen.

    seed_program, goal, direction, proxy   replace the task's own
    skill, tasks                           a skill and a folder of Harbor tasks, in place of a task
    preset                                 a table of the task's [presets]
    pool, pool_share                       a file of further initial programs, and the share of the
                                           evaluations that they may use
    settings                               NAME=VALUE of the strategy
    model                                  [ROLE=]MODEL, several
    models                                 file of providers, models and prices
    carry                                  candidates that a fork begins with

    The others are named as on the command line.
    """

    seed_program: Path | None = None
    skill: Path | None = None
    tasks: Path | None = None
    goal: str | None = None
    direction: str | None = None
    proxy: str | None = None
    preset: str | None = None
    pool: Path | None = None
    pool_share: float = 0.25
    strategy: str | None = None
    settings: Sequence[str] | None = None
    model: Sequence[str] | None = None
    models: Path | None = None
    budget: str | None = None
    seed: int | None = None
    workers: int | None = None
    embedder: str | None = None
    integrity: str | None = None
    stop_at: str | None = None
    prior: Path | None = None
    templates: Path | None = None
    allow_failing: bool = False
    agent: str | None = None
    require: str | None = None
    isolation: str | None = None
    backend: str | None = None
    ray_address: str | None = None
    backend_set: str | None = None
    carry: int | None = None


def requested_run(path: Path | None, request: RunRequest) -> RunPlan:
    """The plan of a new run of the task at `path`; UserError for values that are illegal."""
    return requested_plan(*_requested_task(path, request))


def requested_plan(task: Task, request: RunRequest) -> RunPlan:
    """The plan of a new run of a task; UserError for values that are illegal."""
    _check_names(request, request.models and str(request.models))
    defaults = _chosen_defaults(task.defaults, request.preset)
    options = _run_options(defaults, request)
    if request.pool is not None:
        most = pools.seed_allowance(task, options.budget.evaluations, request.pool_share)
        task = pools.with_pool_seeds(task, pools.load_pool(request.pool), most)
    choice = StrategyChoice(
        name=request.strategy or "",
        settings=_parse_settings(request.settings),
        agent=request.agent,
        prior=request.prior,
        usual=defaults.strategy,
        usual_settings=defaults.settings,
    )
    return plan_run(task, choice, options)


def _requested_task(path: Path | None, request: RunRequest) -> tuple[Task, RunRequest]:
    """The task, and what is left of the request: an agent of its evaluations is the task's."""
    if request.skill is not None and request.tasks is not None and path is None:
        form = require_form("rollout", "--skill")
        task = form.task_from_files(request.skill, request.tasks, None, request.goal or "")
    elif path is None or request.skill is not None or request.tasks is not None:
        raise UserError(
            "a run needs a task, or both a skill and a folder of tasks",
            where="culmen run",
            fix=(
                "culmen run FOLDER, culmen run --skill DIR --tasks DIR --agent NAME, "
                "or write a task to start from: culmen new mytask"
            ),
        )
    else:
        task = folder_task(
            path,
            request.seed_program,
            request.goal or "",
            request.direction or "",
            request.proxy or "",
        )
    found = find_form(task.evaluator.form)
    if found is None or not found.backend or request.agent is None:
        return task, request
    return found.with_agent(task, request.agent), msgspec.structs.replace(request, agent=None)


def requested_fork(run: Path, request: RunRequest) -> RunPlan:
    """The plan of a fork of `run`; options that are not given are those of `run`."""
    from culmen.run import fork
    from culmen.store import views

    meta, budget, carry = views.run_meta(run), None, request.carry
    _check_names(request, str(request.models) if request.models else meta.models_file)
    if request.budget:
        made = views.run_status(run).evaluations
        budget, carry = fork.settle_fork_budget(meta, made, request.budget, carry)
    given: JsonObject = {"model": _joined_models(request.model)} if request.model else {}
    given |= {
        name: value for name in ("seed", "workers") if (value := getattr(request, name)) is not None
    }
    given["backend"] = _chosen_backend(request, meta.backend)
    options = replace_options(
        meta.options, budget=budget or meta.budget, **given, **_given_options(request)
    )
    strategy = _forked_strategy(meta, request, options.searches_offline)
    return plan_fork(run, strategy, options, None, carry or 0, request.seed)


def session_keywords(meta: RunMeta, request: RunRequest) -> JsonObject:
    """Keywords of `Study.resume` for a session in another place than the run's."""
    backend = _chosen_backend(request, meta.backend)
    if backend is not None and backend != meta.backend:
        cluster.require_backend_extra(backend)
    level = {} if request.isolation is None else {"isolation": request.isolation}
    return {"require": request.require, **level} | (
        {} if backend == meta.backend else {"backend": backend}
    )


def _chosen_defaults(defaults: TaskDefaults, preset: str | None) -> TaskDefaults:
    """The task's defaults, a preset's choices over them; UserError for an unknown name."""
    if preset is None:
        return defaults
    if preset not in defaults.presets:
        fix = (
            f"one of {', '.join(defaults.presets)}"
            if defaults.presets
            else f"write [presets.{preset}] into task.toml: culmen docs tasks"
        )
        raise UserError(f"the task has no preset '{preset}'", where="--preset", fix=fix)
    return defaults.presets[preset]


def _run_options(defaults: TaskDefaults, request: RunRequest) -> RunOptions:
    """The options of a new run, not checked yet."""
    start = RunOptions(
        model=_joined_models(request.model or ())
        or defaults.model
        or _models_in_file(request)
        or OFFLINE,
        budget=_given_budget(request) or defaults.budget or DEFAULT_BUDGET,
        seed=request.seed if request.seed is not None else defaults.seed,
        workers=request.workers or defaults.workers,
        backend=_chosen_backend(request, defaults.backend),
    )
    return replace_options(start, **_given_options(request))


def _joined_models(given: Sequence[str]) -> str:
    """The texts of several `--model` as one: two for one role are an ensemble of both."""
    if len(given) < 2:
        return "".join(given)
    from culmen.llm.roles import join_model_texts

    return join_model_texts(given)


def _forked_strategy(meta: RunMeta, request: RunRequest, offline: bool) -> MinimalStrategy | None:
    """The strategy of a fork; None if it is unchanged."""
    settings, name = _parse_settings(request.settings), request.strategy
    if name or request.agent:
        settings = with_agent(name or meta.strategy["path"], request.agent, settings, offline)
    if name:
        return catalog.make_strategy(name, settings)
    return altered_strategy(meta, settings) if settings else None


def _given_options(request: RunRequest) -> JsonObject:
    """Options of a run that were given, by their names in `RunOptions`."""
    named = {
        "models_file": None if request.models is None else str(request.models.resolve()),
        "require": request.require,
        "level": request.isolation,
        "embedder": request.embedder,
        "integrity": request.integrity,
        "templates": None if request.templates is None else _read_templates(request.templates),
        "pool": None if request.pool is None else pools.pool_label(request.pool),
    }
    given: JsonObject = {name: value for name, value in named.items() if value is not None}
    given |= {"allow_failing": True} if request.allow_failing else {}
    return given if request.stop_at is None else {**given, "stop_at": request.stop_at}


def _read_templates(folder: Path) -> dict[str, str]:
    from culmen.prompts.template import read_folder

    return read_folder(folder)


def _check_names(request: RunRequest, models_file: str | None) -> None:
    """Raise `UserError` for names of levels, embedders and files that do not exist.

    `models_file` holds the providers of embedders: the given file, for a fork else its parent's.
    """
    from culmen import embed
    from culmen.evaluate.jail.probes import level_rank

    if request.models is not None and not request.models.is_file():
        raise UserError(
            f"there is no models file '{request.models.resolve()}'",
            where="--models",
            fix="check the path",
        )
    for level in (request.require, request.isolation):
        if level is not None:
            level_rank(level)
    if request.embedder is not None:
        embed.make_embedder(request.embedder, models_file)


def _models_in_file(request: RunRequest) -> str:
    """The models that the file of `--models` gives to roles; "" without one.

    Raises `UserError` for a file with models but without roles, which leaves the model undecided.
    """
    if request.models is None or not request.models.is_file():
        return ""
    from culmen.llm.roles import ModelBook

    book = ModelBook(request.models)
    found = book.roles_text()
    if not found and book.model_names() and request.embedder is None:
        first = book.model_names()[0]
        fix = f'--model {first}, or a table [roles] with default = "{first}"'
        raise UserError(
            "the models file says which models there are, not which to ask",
            where=str(request.models),
            fix=fix,
        )
    return found


def _parse_settings(settings: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in settings or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(
                f"cannot read the setting '{text}'",
                where=f"--set {text}",
                fix="write --set NAME=VALUE",
            )
        pairs[name.strip()] = value.strip()
    return pairs


def _given_budget(request: RunRequest) -> Budget | None:
    """The budget of the command line for a new run."""
    text = request.budget
    if text is None:
        return None
    if "=+" in text:
        fix = f"culmen fork RUN --budget {text} goes on with a run; for a new one leave the +"
        raise UserError("a new run has no budget to add to", where=f"--budget {text}", fix=fix)
    return Budget.parse(text)


# The backend of the evaluations.

_BACKEND_TEXTS = ("partition", "account", "qos", "constraint", "cluster", "folder")
_QUEUE_TEXTS = ("share", "quota", "lease")
_BACKEND_NUMBERS = ("wait", "rest", "retries", "jobs", "slots", "minutes")


def _chosen_backend(request: RunRequest, usual: BackendChoice | None) -> BackendChoice | None:
    """The usual backend, the old run's or the task's, with the changes of the command line.

    None for this machine without a word of it. Raises `UserError` for illegal values.
    """
    name, address, settings = request.backend, request.ray_address, request.backend_set
    if name is None and address is None and settings is None:
        return usual
    choice = usual or BackendChoice()
    if name is not None or (address is not None and choice.name == "local"):
        choice = cluster.parse_backend(name or "ray", choice)
    if address is not None:
        choice = cluster.with_address(choice, address)
    choice = _with_backend_settings(choice, _parse_backend_pairs(settings))
    return None if choice == BackendChoice() and usual is None else choice


def _parse_backend_pairs(settings: str | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for piece in filter(None, (settings or "").split(",")):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip() or not value.strip():
            fix = "write --backend-set cpu=1,gpu=0,memory=2GB,custom.NAME=1"
            raise UserError(f"cannot read '{piece}'", where="--backend-set", fix=fix)
        pairs[name.strip()] = value.strip()
    return pairs


def _with_backend_settings(choice: BackendChoice, pairs: Mapping[str, str]) -> BackendChoice:
    amounts, custom, fields = JsonObject(), dict(choice.needs.custom), JsonObject()
    texts, where = dict(choice.texts), "--backend-set"
    for name, value in pairs.items():
        if name in ("cpu", "gpu", "memory"):
            amounts[name] = parse_amount(name, value, where)
        elif name.startswith("custom."):
            custom[name.removeprefix("custom.")] = parse_amount(name, value, where)
        elif name in _BACKEND_NUMBERS:
            number = parse_amount(name, value, where)
            fields[name] = number if name in ("wait", "rest") else int(number)
        elif name in _BACKEND_TEXTS or name in _QUEUE_TEXTS:
            texts[name] = value
        else:
            known = ("cpu", "gpu", "memory", "custom.NAME", *_BACKEND_NUMBERS)
            known += (*_BACKEND_TEXTS, *_QUEUE_TEXTS)
            raise UserError(
                f"there is no backend setting '{name}'",
                where=where,
                fix=f"use {', '.join(known)}",
            )
    needs = msgspec.structs.replace(choice.needs, custom=custom, **amounts)
    return msgspec.structs.replace(choice, needs=needs, texts=texts, **fields)
