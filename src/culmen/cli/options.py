"""Options of a run on the command line; `culmen.run.request` makes a plan of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from culmen.core.errors import UserError
from culmen.core.options import DEFAULT_STRATEGY

if TYPE_CHECKING:
    from culmen.run.request import RunRequest

_RUN_NAME = re.compile(r"\w[\w.-]{0,80}")
LIMITS = "Hard limits: evaluations, seconds, calls, tokens, dollars, final."
BudgetText = Annotated[str | None, typer.Option("--budget", metavar="NAME=N,...", help=LIMITS)]


FIRST = ("model", "budget", "strategy", "agent", "goal", "seed_program", "workers", "seed", "name")
"""The options of a search that are used most, in the order of the help."""

PANELS = {
    "Search": (
        *("settings", "preset", "models", "embedder", "templates", "integrity", "stop_at"),
        *("prior", "pool", "pool_share", "carry", "allow_failing"),
    ),
    "Task": ("direction", "proxy", "skill", "tasks"),
    "Isolation and machines": ("require", "isolation", "backend", "ray_address", "backend_set"),
    "Records": ("run_dir", "db", "track"),
}
"""The other ones, by the panel of the help that shows them."""


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
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the run: its folder is runs/NAME."),
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
                "Search with agents (strategy cato), or with a skill the agent that uses it: "
                "offline, builtin, claude, cmd:... See: doctor."
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
            help="Use the settings under presets.NAME in the task, such as paper; other options "
            "come first.",
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
            metavar="NAME",
            help="Where evaluations run: local, ray, slurm or queue:postgresql://USER@HOST/DATABASE.",
            show_default="local",
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


def run_folder(flags: SearchFlags) -> Path | None:
    """The folder that `--run-dir` or `--name` gives a new run; None for one by task and time."""
    if flags.name is None:
        return flags.run_dir
    if flags.run_dir is not None:
        raise UserError(
            "a name and a folder are two places for one run",
            where=f"--name {flags.name}",
            fix="leave out --name or --run-dir",
        )
    if not _RUN_NAME.fullmatch(flags.name):
        raise UserError(
            f"'{flags.name}' is no name of a run",
            where="--name",
            fix="letters, digits, dots, - and _, as --name ablation-3; --run-dir takes a path",
        )
    return Path("runs") / flags.name


def request_from_flags(*groups: object, **more: Any) -> RunRequest:
    """The request that these groups of options write down; `more` are further fields of it."""
    from culmen.run.request import RunRequest

    given = {name: value for group in groups for name, value in vars(group).items()}
    return RunRequest(
        **{n: v for n, v in (given | more).items() if n in RunRequest.__struct_fields__}
    )
