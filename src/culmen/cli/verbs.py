"""Common parts of verbs: declaration, shared arguments, runs and candidates by name."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
import typer.core
from typer.models import OptionInfo

from culmen.cli.options import FIRST, PANELS
from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.extensions import GROUP
from culmen.core.json import JsonObject
from culmen.core.usage import MOST
from culmen.report.figures import RUNS, run_name

if TYPE_CHECKING:
    from culmen.core.ports import Backend
    from culmen.core.task import Task
    from culmen.jail.command import Command

INTERRUPTED = 130
Verb = Callable[..., Answer]
VerbGroup = tuple[str, "Mapping[str, Verb | VerbGroup]"]
"""Help text of `culmen GROUP --help`, and what is in the group by name; "" is the group itself."""


def _no_groups() -> Mapping[str, VerbGroup]:
    return {}


@dataclasses.dataclass(frozen=True)
class VerbTable:
    """Verbs of one panel of the help, and groups of verbs by name.

    Several tables may add to one group, each under its own panel. They come behind the verb or
    group `after`, or at the end.
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
Goal = Annotated[str | None, typer.Option(metavar="TEXT", help="Goal, instead of the task's.")]
Direction = Annotated[
    str | None,
    typer.Option(metavar="WAY", help="max or min, without a task.toml.", show_default="max"),
]
SeedProgram = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="Initial program. Repeatable.")
]
SkillPath = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Improve this skill; with --tasks, --agent.")
]
TasksFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The Harbor tasks on which it is tried.")
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


def asking_backend(
    task: Task,
    workers: int,
    model: Sequence[str] | None,
    models: Path | None,
    require: str | None = None,
    isolation: str | None = None,
) -> Backend:
    """This machine's backend for looks at a task, with the models that its evaluator asks."""
    from culmen.core.options import BackendChoice
    from culmen.evaluate.backends import make_backend
    from culmen.jail.probes import known_level
    from culmen.run.assemble import with_evaluator_models

    level = isolation and known_level(isolation)
    own = make_backend(BackendChoice(), task, workers, require, level=level)
    return with_evaluator_models(
        task, own, ",".join(model) if model else None, models and str(models)
    )


Proxy = Annotated[
    str | None,
    typer.Option(
        metavar="WAY",
        help="Run candidates of evaluate(path) in a separate process: auto, always, never.",
        show_default="auto",
    ),
]


def option_words(given: Mapping[str, object]) -> str:
    """Options as they were given, for commands to type next; with a space at the end."""
    pairs = (
        (name, str(each))
        for name, value in given.items()
        for each in (value if isinstance(value, list) else [value])
        if each is not None
    )
    return "".join(f"{name} {shlex.quote(text)} " for name, text in pairs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandFlags:
    """Options of verbs that take a command after `--` as evaluator."""

    command: Annotated[str | None, typer.Option(hidden=True)] = None
    edit: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="A file that may change. Repeatable.")
    ] = None
    metric: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Its number: a line with {}, a pattern, a JSON key, exit or seconds.",
            show_default="the last number",
        ),
    ] = ""

    def as_command(self, words: str | None = None) -> Command:
        """The command, in this folder; raise `UserError` if it cannot be one."""
        from culmen.jail.command import Command, check_metric

        line = shlex.split(words or self.command or "")
        if not line or not self.edit:
            raise UserError(
                "a command and the files that may change are needed",
                where="culmen judge, check, run, audit, compare power",
                fix="add --edit FILE -- COMMAND, with options of culmen before the --",
            )
        check_metric(self.metric)
        edit = tuple(Path(name).as_posix() for name in self.edit)
        return Command(tuple(line), edit, self.metric, str(Path().absolute()))

    def task_words(self, path: Path | None) -> str:
        """The task as it was given, for commands to type next."""
        if self.command is None:
            return shlex.quote(str(path))
        metric = f"--metric {shlex.quote(self.metric)} " if self.metric else ""
        return (
            f"{metric}--edit {' --edit '.join(map(shlex.quote, self.edit or ()))} -- {self.command}"
        )

    def find_task(
        self, path: Path | None, direction: str = "", goal: str = ""
    ) -> Path | Task | None:
        """The task of the command, else `path`; raise `UserError` for both."""
        if self.command is None and (self.edit or self.metric):
            raise UserError(
                "--edit and --metric need a command", fix="add it at the end: -- COMMAND"
            )
        if self.command is None:
            return path
        if path is not None:
            raise UserError(
                "a task and a command are two evaluators", where=path, fix="leave one out"
            )
        from culmen.tasks.loading import command_task

        return command_task(self.as_command(), direction, goal)

    def require_task(self, path: Path | None, direction: str = "") -> Path | Task:
        """`find_task`; raise `UserError` if there is neither."""
        found = self.find_task(path, direction)
        if found is None:
            raise UserError(
                "there is neither a task nor a command",
                fix="name a folder (. is this one), or --edit FILE -- COMMAND; or write a task to "
                "start from: culmen new mytask",
            )
        return found


_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]


@dataclasses.dataclass
class _Group:
    """The entries of a group by name; "" is the verb that the group is by itself."""

    panel: str = ""
    text: str = ""
    entries: dict[str, _Group | tuple[str, Verb]] = dataclasses.field(default_factory=dict)

    def add_entries(
        self, entries: Mapping[str, Verb | VerbGroup], panel: str, after: str = ""
    ) -> None:
        """Add verbs with their panel, and merge groups; UserError if two have the same name."""
        behind = list(self.entries)
        behind = behind[behind.index(after) + 1 :] if after in self.entries else []
        for name, entry in entries.items():
            known = self.entries.get(name)
            if not isinstance(entry, tuple) and known is None:
                self.entries[name] = panel, entry
            elif isinstance(entry, tuple) and (known is None or isinstance(known, _Group)):
                group = self.entries.setdefault(name, _Group(panel))
                assert isinstance(group, _Group)
                group.text = group.text or entry[0]
                group.add_entries(entry[1], panel, after)
            else:
                raise UserError(
                    f"two verbs have the name '{name}'",
                    where=f"entry points {GROUP}, slot verbs",
                    fix="uninstall the package that adds the second one",
                )
        for name in behind:
            self.entries[name] = self.entries.pop(name)


def declare_tables(app: typer.Typer, tables: Iterable[VerbTable]) -> None:
    """Add the verbs and groups of all tables.

    Raises `UserError` if two have the same name.
    """
    root = _Group()
    for table in tables:
        verbs: dict[str, Verb | VerbGroup] = {verb.__name__: verb for verb in table.verbs}
        root.add_entries({**verbs, **table.groups}, table.panel, table.after)
    _declare_entries(app, root)


def _declare_entries(app: typer.Typer, group: _Group, panel: str = "") -> None:
    """Declare the entries of a group; all under one panel, if it is given."""
    for name, entry in group.entries.items():
        if not isinstance(entry, _Group):
            declare_verb(app, entry[1], name, panel or entry[0])
            continue
        own = entry.entries.pop("", None)
        inner = typer.Typer(help=entry.text, no_args_is_help=True)
        if isinstance(own, tuple):
            inner = typer.Typer(cls=VerbWithViews, invoke_without_command=True)
            inner.callback(context_settings={"allow_interspersed_args": True})(make_command(own[1]))
        _declare_entries(inner, entry, "Views" if own else "")
        app.add_typer(inner, name=name, rich_help_panel=entry.panel)


class VerbWithViews(typer.core.TyperGroup):
    """A verb that is also a group: a first word that names a view leads to the view."""

    def __init__(self, **attributes: Any) -> None:
        attributes["subcommand_metavar"] = ""
        super().__init__(**attributes)

    def get_params(self, ctx: Any) -> Any:
        """The verb's options and arguments; for the Tab key options alone, beside the views."""
        params = super().get_params(ctx)
        return [p for p in params if p.opts[0][:1] == "-"] if ctx.resilient_parsing else params

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the view that the first word names, else that of the verb."""
        view = self.commands.get(args[0]) if args else None
        if view is None:
            return super().make_context(info_name, args, parent, **extra)
        return view.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)


def declare_verb(app: typer.Typer, function: Verb, name: str, panel: str) -> None:
    """Add a verb."""
    app.command(name, rich_help_panel=panel)(make_command(function))


def make_command(function: Verb) -> Callable[..., int]:
    """The command, with `--json`, of a function that takes a `Screen` and returns an `Answer`.

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
        _check_numbers(arguments)
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
    if set(groups.values()) - {CommandFlags}:
        parameters = _arrange_options(parameters)
    parameters.append(
        inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Json)
    )
    command.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__name__ = function.__name__
    return command


def _check_numbers(arguments: Mapping[str, object]) -> None:
    """Raise `UserError` for a number that no option can use, such as nan or 1e300."""
    for name, value in arguments.items():
        most = 10_000 if name == "workers" else MOST if name != "seed" else float("inf")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int | float) and not -most <= each <= most:
                what, where = f"{each!s:.60} is no number that can be used", f"--{name}"
                raise UserError(what, where=where, fix=f"write one of at most {most:g}")


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
                "nothing has scored yet", where=run, fix=f"culmen show {run_name(run)} --log"
            )
        return best.id
    if candidate == "seed":
        initial = views.initial_program(run)
        if not initial:
            raise UserError(
                "this run began without an initial program",
                where=run,
                fix=f"culmen show {run_name(run)} best",
            )
        return initial
    return views.find_candidate(run, candidate)
