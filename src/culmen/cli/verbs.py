"""Common parts of verbs: declaration, shared arguments, runs and candidates by name."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from culmen.cli.options import FIRST, PANELS
from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.extensions import GROUP
from culmen.core.json import JsonObject
from culmen.observe.figures import RUNS, run_name

INTERRUPTED = 130
Verb = Callable[..., Answer]
VerbGroup = tuple[str, Mapping[str, Verb]]
"""Help text of `culmen GROUP --help`, and the group's verbs by name."""


def _no_groups() -> Mapping[str, VerbGroup]:
    return {}


@dataclasses.dataclass(frozen=True)
class VerbTable:
    """Verbs of one panel of `culmen --help`, and groups of verbs by name.

    They come behind the panel's verb or group `after`, or at its end.
    """

    panel: str
    verbs: tuple[Verb, ...] = ()
    groups: Mapping[str, VerbGroup] = dataclasses.field(default_factory=_no_groups)
    after: str = ""


Run = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="A run folder, or its name under ./runs. Default: the latest run."
    ),
]
RequiredRun = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, or its name under ./runs.")
]
Candidate = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="Id of a candidate or its first digits; 'best'; or 'seed', the initial program.",
    ),
]

Goal = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Goal of the search, in a sentence or two.")
]
Direction = Annotated[
    str | None,
    typer.Option(
        metavar="WAY", help="max or min, for an evaluator without a task.toml.", show_default="max"
    ),
]
SeedProgram = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Initial program, instead of the task's. Repeatable."),
]
AskedModels = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="ROLE=MODEL",
        help="Model that the evaluator asks in this role. Repeatable.",
    ),
]
ModelsFile = Annotated[
    Path | None,
    typer.Option("--models", metavar="FILE", help="Providers, models and prices (TOML or YAML)."),
]
Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="WAY",
        help="Run candidates of evaluate(path) in a separate process: auto, always, never.",
        show_default="auto",
    ),
]

_Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, nothing else.")
]


def declare_tables(app: typer.Typer, tables: Iterable[VerbTable]) -> None:
    """Add the verbs and groups of all tables, panel by panel, in the order of the panels' first.

    Raises `UserError` if two have the same name.
    """
    panels: dict[str, list[tuple[str, Verb | VerbGroup]]] = {}
    taken: set[str] = set()
    for table in tables:
        added = [*((verb.__name__, verb) for verb in table.verbs), *table.groups.items()]
        for name in (name for name, _ in added if name in taken):
            raise UserError(
                f"two verbs have the name '{name}'",
                where=f"entry points {GROUP}, slot verbs",
                fix="uninstall the package that adds the second one",
            )
        taken.update(name for name, _ in added)
        panel = panels.setdefault(table.panel, [])
        names = [name for name, _ in panel]
        place = names.index(table.after) + 1 if table.after in names else len(names)
        panel[place:place] = added
    for panel, entries in panels.items():
        for name, entry in entries:
            _declare_entry(app, panel, name, entry)


def _declare_entry(app: typer.Typer, panel: str, name: str, entry: Verb | VerbGroup) -> None:
    if not isinstance(entry, tuple):
        declare_verb(app, entry, name, panel)
        return
    text, verbs = entry
    group = typer.Typer(help=text)
    for verb, function in verbs.items():
        declare_verb(group, function, verb, panel)
    app.add_typer(group, name=name, rich_help_panel=panel, no_args_is_help=True)


def declare_verb(app: typer.Typer, function: Verb, name: str, panel: str) -> None:
    """Add a verb, with `--json`, for a function that takes a `Screen` and returns an `Answer`.

    The function's other arguments become the verb's. An argument whose type is a dataclass stands
    for the options that are its fields.
    """
    own = inspect.signature(function, eval_str=True)
    own_parameters = list(own.parameters.values())[1:]
    groups: JsonObject = {
        p.name: p.annotation for p in own_parameters if dataclasses.is_dataclass(p.annotation)
    }

    def command(**arguments: object) -> int:
        screen = Screen(arguments.pop("json") is True)
        for group, kind in groups.items():
            arguments[group] = kind(
                **{field.name: arguments.pop(field.name) for field in dataclasses.fields(kind)}
            )
        try:
            return screen.print_answer(function(screen, **arguments))
        except KeyboardInterrupt as interrupt:  # typer would end without a word
            _drop_frames(interrupt)
            screen.print_error("interrupted", "interrupted")
            return INTERRUPTED

    parameters = [
        p
        for parameter in own_parameters
        for p in (
            _field_parameters(parameter.annotation) if parameter.name in groups else [parameter]
        )
    ]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    if groups:
        parameters = _arrange_options(parameters)
    parameters.append(
        inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Json)
    )
    command.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__, command.__name__ = function.__doc__, name
    app.command(name, rich_help_panel=panel)(command)


def _drop_frames(interrupt: KeyboardInterrupt) -> None:
    """Free what the interrupted frames held.

    An event loop that was not yet whole, or a coroutine that never began, would complain on stderr.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            interrupt.__traceback__ = interrupt.__context__ = None
    finally:
        sys.unraisablehook = hook


def _arrange_options(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Options of a search, those used most first, the others in panels of the help."""
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    order = [*FIRST, *panels]
    for parameter in parameters:
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo) and parameter.name in panels:
                info.rich_help_panel = panels[parameter.name]

    def rank(parameter: inspect.Parameter) -> int:
        return order.index(parameter.name) if parameter.name in order else len(FIRST)

    return sorted(parameters, key=rank)


def _field_parameters(kind: Any) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(kind)
    ]


def find_run(run: str | None) -> Path:
    """The run by path, name under ./runs or address; None is the latest one.

    `UserError` names similar ones if there is none.
    """
    from culmen.store import views

    return views.find_run(run, RUNS)


def find_run_to_write(run: str | None) -> Path:
    """`find_run` for a verb that writes.

    A run of a database gets a folder under ./runs, which is not cleaned up.
    """
    from culmen.store.address import is_address, local_folder, parse_address

    if run is None or not is_address(run):
        return find_run(run)
    address = parse_address(run)
    return local_folder(address, RUNS) if address.name else find_run(run)


def find_candidate(run: Path, candidate: str) -> str:
    """The full id of a candidate: `best`, `seed`, or the first digits of an id."""
    from culmen.store import views

    if candidate == "best":
        best = views.best_result(run)
        if best is None:
            raise UserError(
                "nothing has scored yet", where=str(run), fix=f"culmen log {run_name(run)}"
            )
        return best.id
    if candidate == "seed":
        seeds = views.candidate_rows(run, "old", operator="seed", limit=1)
        if not seeds:
            raise UserError(
                "this run began without an initial program",
                where=str(run),
                fix=f"culmen show {run_name(run)} best",
            )
        return seeds[0].id
    return views.find_candidate(run, candidate)
