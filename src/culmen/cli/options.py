"""Options of a run on the command line; conversion to `RunOptions` and a strategy.

The command line takes precedence over the task, and the task over culmen's defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.options import DEFAULT_BUDGET, DEFAULT_STRATEGY, BackendChoice, RunOptions
from culmen.core.ports import MinimalStrategy, Strategy, with_protocol_defaults
from culmen.core.task import Task
from culmen.core.usage import Budget

if TYPE_CHECKING:
    from culmen.store.database import RunMeta

OFFLINE, BUILTIN = "offline", "builtin"  # agents that are no programs
LIMITS = "Hard limits: evaluations, seconds, calls, tokens, dollars, final."
BudgetText = Annotated[str | None, typer.Option("--budget", metavar="NAME=N,...", help=LIMITS)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Options of `run` and `fork` for the search; None if not given."""

    strategy: Annotated[
        str | None, typer.Option(help="See: culmen strategies.", show_default=DEFAULT_STRATEGY)
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the strategy. Repeatable."),
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROLE=]MODEL",
            help="Model, for one role or for all. Repeatable.",
            show_default="offline",
        ),
    ] = None
    models: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Providers, models and prices (TOML or YAML)."),
    ] = None
    budget: BudgetText = None
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="0")] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Evaluations at once.", show_default="one per core; on Ray, its room"
        ),
    ] = None
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder to write the run to.", show_default="runs/TASK-TIME"
        ),
    ] = None
    db: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the journal in PostgreSQL: postgresql+psycopg://user@host/database[#NAME].",
        ),
    ] = None
    embedder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="hashing, local:MODEL or PROVIDER/MODEL.", show_default="hashing"
        ),
    ] = None
    integrity: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="What to do about signs of gaming: warn, reject or stop.",
            show_default="warn",
        ),
    ] = None
    stop_at: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE",
            help="End once a candidate is known to score as much; or: target, the task's own.",
        ),
    ] = None
    prior: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Start from what that run of the same task learnt of noise and steps.",
        ),
    ] = None
    templates: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Prompt templates to use instead of culmen's own. See: culmen templates.",
        ),
    ] = None
    allow_failing: Annotated[
        bool,
        typer.Option("--allow-failing", help="Search even if the initial program gives no score."),
    ] = False
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "Search with agents (strategy cato): offline, builtin, claude, cmd:... See: doctor."
            ),
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags(SearchFlags):
    """The same for `run`, which may take a protocol from the task."""

    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use the task's [presets.NAME], such as paper; other options come first.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkFlags(SearchFlags):
    """The same for `fork`, whose budget may be added to."""

    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="NAME=N,...", help=f"{LIMITS} NAME=+N is N more than the run had."
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceFlags:
    """Options of `run`, `resume` and `fork` for the place of evaluations."""

    require: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help="Refuse weaker: namespaces, container, restricted, limits."
        ),
    ] = None
    isolation: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help="Use this level and no other: container takes the task's image."
        ),
    ] = None
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Where evaluations run: local, ray or slurm.", show_default="local"
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the Ray cluster: auto, local, ray://HOST:PORT.",
            show_default="auto",
        ),
    ] = None
    backend_set: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,...",
            help="What an evaluation needs there: cpu=1,gpu=0,memory=2GB,custom.NAME=1.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressFlags:
    """Options for progress reports of a search."""

    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PLACE]", help="Also tell tensorboard, mlflow, wandb or otel. Repeatable."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = (
        False
    )


def of_run(task: Task, flags: RunFlags, place: PlaceFlags) -> tuple[MinimalStrategy, RunOptions]:
    """Strategy and options of a new run; UserError for values that are illegal."""
    from culmen.run import inputs
    from culmen.run.options import RunObjects, replace_options
    from culmen.strategies import catalog

    task = _with_preset(task, flags.preset)
    # defaults of an OpenEvolve folder are for another program
    own = task.defaults if "strategy" in task.defaults else {}
    model = ",".join(flags.model or ()) or own.get("model") or _models_in_file(flags) or OFFLINE
    name = (
        flags.strategy
        or (catalog.WITH_AGENTS if flags.agent else own.get("strategy"))
        or DEFAULT_STRATEGY
    )
    settings = _parse_settings(flags.settings)
    if name == own.get("strategy"):
        settings = {**catalog.setting_texts(own.get("settings", {})), **settings}
    strategy = catalog.make_strategy(name, _with_agent(name, flags.agent, settings, model))
    if flags.prior is not None:
        strategy = _with_prior(strategy, flags.prior, task, model)
    start = RunOptions(
        model=model,
        budget=_chosen_budget(flags.budget, task) or DEFAULT_BUDGET,
        seed=flags.seed if flags.seed is not None else int(task.defaults.get("seed", 0)),
        workers=flags.workers or int(task.defaults.get("workers", 0)),
        backend=_chosen_backend(place, task.defaults.get("resources", {}), None),
    )
    options = _checked_options(replace_options(start, **_given_options(flags, place)))
    inputs.check_models(options, RunObjects())
    return strategy, options


def _with_preset(task: Task, name: str | None) -> Task:
    """The task with a preset's table over its defaults; UserError for an unknown name."""
    presets = task.defaults.get("presets", {})
    if name is None:
        return task
    if name not in presets:
        fix = (
            f"one of {', '.join(presets)}"
            if presets
            else f"write [presets.{name}] into task.toml: culmen docs tasks"
        )
        raise UserError(f"the task has no preset '{name}'", where="--preset", fix=fix)
    return replace(task, defaults=task.defaults | presets[name])


def of_fork(
    meta: RunMeta, flags: SearchFlags, place: PlaceFlags, budget: Budget
) -> tuple[MinimalStrategy | None, RunOptions]:
    """The strategy of a fork, None if unchanged, and its options.

    Options that are not given are the parent's.
    """
    from culmen.run import inputs
    from culmen.run.options import RunObjects, replace_options
    from culmen.strategies import catalog

    strategy, settings = None, _parse_settings(flags.settings)
    settings |= {"agent": flags.agent} if flags.agent else {}
    if flags.strategy or settings:
        strategy = (
            catalog.make_strategy(flags.strategy, settings)
            if flags.strategy
            else _altered_strategy(meta, settings)
        )
    given: JsonObject = {"model": ",".join(flags.model)} if flags.model else {}
    given |= {
        name: value for name in ("seed", "workers") if (value := getattr(flags, name)) is not None
    }
    given["backend"] = _chosen_backend(place, {}, meta.backend)
    options = _checked_options(
        replace_options(meta.options, budget=budget, **given, **_given_options(flags, place))
    )
    if flags.model:
        inputs.check_models(options, RunObjects())
    return strategy, options


def of_session(meta: RunMeta, place: PlaceFlags) -> JsonObject:
    """Keywords of `Study.resume` for a session in another place than the run's."""
    backend = _chosen_backend(place, {}, meta.backend)
    level = {} if place.isolation is None else {"isolation": place.isolation}
    return {"require": place.require, **level} | (
        {} if backend == meta.backend else {"backend": backend}
    )


def _chosen_backend(
    place: PlaceFlags, defaults: Mapping[str, Any], old: BackendChoice | None
) -> BackendChoice | None:
    """The backend of the command line, else of the old run, else of the task's [resources]."""
    from culmen.evaluate import cluster

    if (
        old is not None
        and place.backend is None
        and place.ray_address is None
        and place.backend_set is None
    ):
        return old
    found = cluster.parse_backend_choice(
        place.backend, place.ray_address, place.backend_set, defaults, old
    )
    if found is not None:
        cluster.require_backend_extra(found)
    return found


def _given_options(flags: SearchFlags, place: PlaceFlags) -> JsonObject:
    """Options of a run that were given, by their names in `RunOptions`."""
    named = {
        "models_file": None if flags.models is None else str(flags.models.resolve()),
        "require": place.require,
        "level": place.isolation,
        "embedder": flags.embedder,
        "integrity": flags.integrity,
        "templates": None if flags.templates is None else _read_templates(flags.templates),
    }
    given: JsonObject = {name: value for name, value in named.items() if value is not None}
    given |= {"allow_failing": True} if flags.allow_failing else {}
    return given if flags.stop_at is None else {**given, "stop_at": flags.stop_at}


def _read_templates(folder: Path) -> dict[str, str]:
    from culmen.prompts.template import read_folder

    return read_folder(folder)


def _checked_options(options: RunOptions) -> RunOptions:
    """The options; UserError for unknown names, before there is a run."""
    from culmen import embed
    from culmen.evaluate.jail.probes import level_rank

    if options.models_file is not None and not Path(options.models_file).is_file():
        raise UserError(
            f"there is no models file '{options.models_file}'",
            where="--models",
            fix="check the path",
        )
    for level in filter(None, (options.require, options.level)):
        level_rank(level)
    embed.make_embedder(options.embedder, options.models_file)
    return options


def _models_in_file(flags: SearchFlags) -> str:
    """The models that the file of `--models` gives to roles; "" without one.

    Raises `UserError` for a file with models but without roles, which leaves the model undecided.
    """
    if flags.models is None or not flags.models.is_file():
        return ""
    from culmen.llm.roles import ModelBook

    book = ModelBook(flags.models)
    found = book.roles_text()
    if not found and book.model_names() and flags.embedder is None:
        fix = f'--model {book.model_names()[0]}, or a table [roles] with default = "{book.model_names()[0]}"'
        raise UserError(
            "the models file says which models there are, not which to ask",
            where=str(flags.models),
            fix=fix,
        )
    return found


def _with_agent(
    name: str, agent: str | None, settings: dict[str, str], model: str
) -> dict[str, str]:
    """The settings with an agent, for strategies that have one.

    It is the agent named, else the built-in one if there is a model, else the offline one. Raises
    `UserError` for an agent that cannot work here.
    """
    from culmen.strategies import catalog

    field = with_protocol_defaults(Strategy, catalog.strategy_class(name)).agent_setting
    if not field:
        return settings if agent is None else {**settings, "agent": agent}
    if agent is not None and settings.get(field, agent) != agent:
        raise UserError(
            "two agents are named",
            where=f"--agent {agent} --set {field}={settings[field]}",
            fix="name one",
        )
    kind = agent or settings.get(field) or (OFFLINE if OFFLINE in model.split(",") else BUILTIN)
    if kind == BUILTIN and OFFLINE in model.split(","):
        raise UserError(
            "the built-in agent needs a model",
            where=f"--agent {BUILTIN}",
            fix=f"choose one with --model NAME, or use --agent {OFFLINE}",
        )
    if kind not in (OFFLINE, BUILTIN):
        _check_installed(kind)
    return {**settings, field: kind}


def _with_prior(strategy: Any, run: Path, task: Task, model: str) -> MinimalStrategy:
    """The strategy with the noise and steps learnt by a run as its prior."""
    from culmen.store import views
    from culmen.strategies.pedigree import PedigreeSearch, Prior

    where = f"--prior {run}"
    if not isinstance(strategy, PedigreeSearch):
        raise UserError(
            "only the strategy pedigree takes a prior",
            where=where,
            fix="leave out --prior or --strategy",
        )
    about, law = views.run_meta(run), views.step_law(run)
    if about.task.digest != task.digest or about.model_name != model:
        raise UserError(
            "that run is of another task or model, so its steps say nothing of this one's",
            where=where,
            fix="name a run of the same task with the same --model",
        )
    if law is None:
        raise UserError(
            "that run has no scores to learn from",
            where=where,
            fix="name a run that scored something",
        )
    return dataclasses.replace(strategy, prior=Prior(*law))


def _check_installed(kind: str) -> None:
    """Raise `UserError` for an agent that is unknown or not installed."""
    from culmen.agents.adapters import catalog, programs

    programs.find_program(catalog.adapter_by_name(kind).program)


def _altered_strategy(meta: RunMeta, given: Mapping[str, str]) -> Any:
    """The run's own strategy with some settings changed."""
    from culmen.strategies import catalog

    old = catalog.revive_object(meta.strategy["path"], meta.strategy["config"])
    new = catalog.make_strategy(meta.strategy["path"], given)
    fields = {name.strip().replace("-", "_") for name in given}
    return dataclasses.replace(old, **{name: getattr(new, name) for name in fields})


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


def _chosen_budget(text: str | None, task: Task) -> Budget | None:
    """The given budget, the task's, or that of an OpenEvolve folder.

    The last has one evaluation per iteration, and one for the initial program.
    """
    if text is not None:
        if "=+" in text:
            fix = f"culmen fork RUN --budget {text} goes on with a run; for a new one leave the +"
            raise UserError("a new run has no budget to add to", where=f"--budget {text}", fix=fix)
        return Budget.parse(text)
    if task.defaults.get("budget"):
        return Budget.parse(task.defaults["budget"])
    iterations = task.defaults.get("iterations")
    return Budget(evaluations=int(iterations) + 1) if iterations else None
