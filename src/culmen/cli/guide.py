"""The verb `help`: all verbs by group, and all settings of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.options import RUN_SETTINGS


def help(
    screen: Screen,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="VERB", help="A verb; or settings: those of a run, for --set."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All verbs, by group.")] = False,
) -> Answer:
    """Show the help of a verb, all verbs (--all) or all settings."""
    if topic == "settings":
        return _list_settings()
    if topic is not None or not every:  # both are `--help`, but for options beside them
        raise UserError("one thing at a time", where="culmen help", fix="culmen help --all")
    sections = _list_verbs()

    def show(screen: Screen) -> None:
        width = max(len(row["verb"]) for rows in sections.values() for row in rows)
        for title, rows in sections.items():
            screen.print_heading(title)
            screen.print_pairs(*((f"  {row['verb']:<{width}}", row["help"]) for row in rows))
            screen.print_line()
        screen.print_line("Options of each: culmen help VERB")

    return Answer({"verbs": [row for rows in sections.values() for row in rows]}, show)


def _list_settings() -> Answer:
    settings = [
        {"name": name, "value": each.value, "default": each.default, "meaning": each.meaning}
        for name, each in RUN_SETTINGS.items()
    ]

    def show(screen: Screen) -> None:
        screen.print_line("Settings of a run, for --set NAME=VALUE of run, prompt and runs fork;")
        screen.print_line("those of its backend for resume, too:")
        screen.print_line()
        screen.print_definitions(
            (row["name"], row["meaning"], f"{row['value']}; default: {row['default']}")
            for row in settings
        )
        screen.print_next_steps(("culmen strategies NAME", "the settings of a strategy"))

    return Answer({"settings": settings}, show)


def _list_verbs() -> dict[str, list[JsonObject]]:
    """Rows of all verbs under the titles of their sections: panels first, then groups."""
    from culmen.cli.main import make_app

    panels: dict[str, list[JsonObject]] = {}
    groups: dict[str, list[JsonObject]] = {}
    for name, command in typer.main.get_command(make_app()).commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        if command.callback is not None:  # a group alone is its section
            row = {"verb": name, "help": _summary(command)}
            panels.setdefault(command.rich_help_panel or "", []).append(row)
        if below := list(_rows_below(name, command)):
            groups[f"culmen {name}: {_summary(command)}"] = below
    return panels | groups


def _rows_below(words: str, group: Any) -> Iterator[JsonObject]:
    """Rows of the verbs of a group; a group among them is one row, with its verbs."""
    for name, command in getattr(group, "commands", {}).items():
        inner = ", ".join(getattr(command, "commands", {}))
        text = _summary(command)
        if inner:
            text = f"{text.partition('. ')[0].rstrip('.')} ({inner})."
        yield {"verb": f"{words} {name}", "help": text}


def _summary(command: Any) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").strip().partition("\n\n")[0].split())
