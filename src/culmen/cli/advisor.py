"""Verbs for the advisor that a run has trained: culmen advisor export, culmen advisor chat."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import verb

PANEL = "Keep a run"

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its name under ./runs.")]
Version = Annotated[int | None, typer.Option(min=0, help="Which version.", show_default="the latest")]


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group, below `culmen advisor`."""
    group = typer.Typer(help="The advisor that a run has trained (needs the extra 'train').")
    for function in (export, chat):
        verb(group, PANEL)(function)
    app.add_typer(group, name="advisor", rich_help_panel=PANEL, no_args_is_help=True)


def export(
    screen: Screen,
    run: Run,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder.")],
    version: Version = None,
) -> Answer:
    """Write a trained advisor for other programs: its adapter in PEFT's layout, or the whole model."""
    from culmen.cli import runs
    from culmen.train import kept

    path = runs.find(run)
    data = {"run": path.name, **kept.export(path, version, out)}

    def show(screen: Screen) -> None:
        what = f"an adapter of {data['base']}" if data["form"] == "adapter" else "a whole model"
        screen.line(f"version {data['version']}, {what}: {data['out']}")
        if data["form"] == "adapter":
            serve = f"vllm serve {data['base']} --enable-lora --lora-modules advisor={data['out']}"
            screen.next_steps((serve, "serve it"))

    return Answer(data, show)


def chat(
    screen: Screen,
    run: Run,
    version: Version = None,
    say: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A message, in the place of typing. Repeatable.")
    ] = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="What it is told before the conversation.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of its replies.")] = 0,
) -> Answer:
    """Talk to a trained advisor. An empty line ends the conversation."""
    from culmen.cli import runs
    from culmen.core.errors import UserError
    from culmen.train.kept import Talk

    if screen.as_json and not say:
        raise UserError("there is nobody to type with --json", where="--say", fix="give messages with --say TEXT")
    path = runs.find(run)
    talk = Talk(path, version, system, seed)
    if not screen.as_json:
        screen.err.print(f"version {talk.version} of {path.name}", style="dim", markup=False)
    for text in say if say else _typed(screen):
        reply = talk.say(text)
        if not screen.as_json:
            screen.line(reply)
    return Answer({"run": path.name, "version": talk.version, "messages": talk.messages})


def _typed(screen: Screen):
    """Lines of standard input up to an empty one."""
    while True:
        screen.err.print("> ", end="", markup=False)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line
