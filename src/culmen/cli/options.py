"""Options of a run on the command line; `culmen.run.request` makes a plan of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
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


FIRST = ("model", "budget", "strategy", "settings", "goal", "seed_program", "workers", "seed")
"""The options of a search that are used most, in the order of the help."""

PANELS = {
    "Further": (
        *("name", "preset", "models", "agent", "stop_at", "pool", "carry"),
        *("direction", "skill", "tasks"),
        *("require", "isolation", "backend", "run_dir", "db", "track"),
    ),
}
"""The other ones, by the panel of the help that shows them."""

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the strategy or the run: culmen help settings. Repeatable.",
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Options of `run` and `fork` for the search; None if not given."""

    strategy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="See: culmen strategies.", show_default=DEFAULT_STRATEGY),
    ] = None
    settings: Settings = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROLE=]MODEL",
            help="Model, also for one role. Repeatable.",
            show_default="offline",
        ),
    ] = None
    models: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Providers, models, prices (TOML or YAML)."),
    ] = None
    budget: BudgetText = None
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Random seed.", show_default="0")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Evaluations at once.", show_default="one per core"),
    ] = None
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run's folder.", show_default="runs/TASK-TIME"),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write the run to runs/NAME."),
    ] = None
    db: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the journal in PostgreSQL: postgresql+psycopg://user@host/database.",
        ),
    ] = None
    stop_at: Annotated[
        str | None,
        typer.Option(
            metavar="SCORE",
            help="End at this score; or at: target.",
        ),
    ] = None
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Search with agents, or try a skill with one: offline, builtin, claude, cmd:... "
            "See: doctor.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags(SearchFlags):
    """The same for `run`, which may take a protocol from the task."""

    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Settings under presets.NAME of the task.",
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
        typer.Option(metavar="LEVEL", help="Use this isolation level and no other."),
    ] = None
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where evaluations run: local, ray or slurm.",
            show_default="local",
        ),
    ] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgressFlags:
    """Options for progress reports of a search."""

    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PLACE]",
            help="Also log to tensorboard, mlflow, wandb or otel. Repeatable.",
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
    """The request that these groups of options write down; `more` are further fields of it.

    Settings of the run among those of `--set` become fields; the others are the strategy's.
    """
    from culmen.run.request import RunRequest

    given = {name: value for group in groups for name, value in vars(group).items()} | more
    own = [text for text in given.get("settings") or () if _setting_name(text) in _READERS]
    backend = [text for text in given.get("settings") or () if text.startswith(_BACKEND)]
    for text in own:
        given[_setting_name(text)] = _READERS[_setting_name(text)](text)
    given |= _backend_fields(backend)
    if given.get("settings"):
        given["settings"] = [x for x in given["settings"] if x not in own and x not in backend]
    return RunRequest(**{n: v for n, v in given.items() if n in RunRequest.__struct_fields__})


_BACKEND = "backend."
_SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def _setting_name(text: str) -> str:
    return text.partition("=")[0].strip().replace("-", "_")


def _setting_value(text: str) -> str:
    value = text.partition("=")[2].strip()
    if not value:
        fix = "write --set NAME=VALUE; culmen help settings lists them"
        raise UserError(f"cannot read the setting '{text}'", where=f"--set {text}", fix=fix)
    return value


def _path_value(text: str) -> Path:
    return Path(_setting_value(text)).expanduser()


def _switch_value(text: str) -> bool:
    value = _SWITCHES.get(_setting_value(text).lower())
    if value is None:
        fix = f"write --set {_setting_name(text)}=on"
        raise UserError("this setting is on or off", where=f"--set {text}", fix=fix)
    return value


def _share_value(text: str) -> float:
    try:
        share = float(_setting_value(text))
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        fix = f"write --set {_setting_name(text)}=0.25"
        raise UserError("this setting is a number from 0 to 1", where=f"--set {text}", fix=fix)
    return share


_READERS: dict[str, Callable[[str], object]] = {
    "allow_failing": _switch_value,
    "embedder": _setting_value,
    "integrity": _setting_value,
    "pool_share": _share_value,
    "prior": _path_value,
    "proxy": _setting_value,
    "templates": _path_value,
}
"""Readers of settings of a run by name, which is also that of a field of `RunRequest`."""


def _backend_fields(texts: Sequence[str]) -> dict[str, str]:
    """The fields of a request that settings of the backend make, as `backend.gpu=1`."""
    names = (text.partition("=")[0].strip().removeprefix(_BACKEND) for text in texts)
    pairs = dict(zip(names, map(_setting_value, texts)))
    address = {"ray_address": pairs.pop("address")} if "address" in pairs else {}
    joined = ",".join(f"{name}={value}" for name, value in pairs.items())
    return {**address, **({"backend_set": joined} if joined else {})}
