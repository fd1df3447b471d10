"""Verbs about culmen itself: strategies, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb
from culmen.observe.figures import joined

PANEL = "About"


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (strategies, doctor):
        verb(app, PANEL)(function)


def strategies(
    screen: Screen,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A strategy. Default: list them all.")] = None,
) -> Answer:
    """List the search strategies, or show one: its paper, its settings, their defaults and meanings."""
    from culmen.strategies import catalog

    if name is None:
        pages = [catalog.describe(known) for known in catalog.CATALOG]
        return Answer({"strategies": pages}, lambda screen: _list(screen, pages))
    page = catalog.describe(name)
    return Answer(page, lambda screen: _page(screen, page))


def _list(screen: Screen, pages: list[dict[str, Any]]) -> None:
    screen.table(["name", "what it is"], [(page["name"], page["title"]) for page in pages])
    screen.next_steps(("culmen strategies NAME", "paper, settings, defaults"))


def _page(screen: Screen, page: dict[str, Any]) -> None:
    screen.heading(page["name"], page["title"])
    if page["paper"]:
        screen.line(f"Paper: {page['paper']}", style="dim")
    screen.line()
    screen.prose(page["doc"])
    fields = page["fields"]
    if fields:
        screen.rule("settings")
        screen.definitions((field["name"], field["doc"], _default(field)) for field in fields)
        first = f"--set {fields[0]['name']}={fields[0]['default']}"
        screen.next_steps((f"culmen run TASK --strategy {page['name']} {first}", "use it"))


def _default(field: dict[str, Any]) -> str:
    """`default 5; a whole number`."""
    return joined([f"default {field['default']}" if field["default"] else "", field["type"]], "; ")


def doctor(
    screen: Screen,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask this agent one thing, in its sandbox, by the model named.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(metavar="MODEL", help="Model that answers the agent.")] = None,
    models: Annotated[Path | None, typer.Option(metavar="FILE", help="Providers, models and prices.")] = None,
) -> Answer:
    """Look at this machine: Python, isolation in force (found by trying), API keys by name, disk, cores, extras, coding
    agents and their versions. With --agent, see whether that one works."""
    from culmen.cli import examination, outfit

    if agent is not None:
        return outfit.try_out(agent, model, models)
    report = examination.examine()
    return Answer(report, lambda screen: examination.show(screen, report))
