"""Verbs that come before a run: demo, new, check."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Direction, Proxy, SeedProgram, verb

PANEL = "Start"


def add_to(app: typer.Typer) -> None:
    """Declare the verbs of this group."""
    for function in (demo, new, check):
        verb(app, PANEL)(function)


def demo(
    screen: Screen,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    seconds: Annotated[float, typer.Option(min=1.0, help="The longest, final choice included.")] = 55.0,
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 2,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run lies.", show_default="runs/...")
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="polca, or pacevolve_plus_plus: an advisor in training (needs the extra 'train').")
    ] = "polca",
) -> Answer:
    """Watch a real search: circle packing, offline, in about a minute."""
    from culmen.cli import demo as demonstration
    from culmen.core.errors import UserError

    if strategy == "pacevolve_plus_plus":
        return demonstration.demonstrate_advisor(screen, seed, workers, run_dir)
    if strategy != "polca":
        fix = f"culmen new DIR --example circle_packing, then culmen run DIR --strategy {strategy}"
        raise UserError(f"there is no demo of '{strategy}'", where="--strategy", fix=fix)
    return demonstration.demonstrate(screen, seed, seconds, workers, run_dir)


def new(
    screen: Screen,
    directory: Annotated[Path | None, typer.Argument(metavar="DIR", help="A new or empty folder.")] = None,
    example: Annotated[str | None, typer.Option(help="Copy this built-in task instead of the short one.")] = None,
    examples: Annotated[bool, typer.Option("--examples", help="List the built-in tasks and write nothing.")] = False,
) -> Answer:
    """Write a task to start from: three short commented files.

    Edit them, then: culmen check DIR, culmen run DIR.
    """
    from culmen.core.errors import UserError
    from culmen.evaluate import taskfiles

    if examples:
        return _examples(taskfiles.examples())
    if directory is None:
        raise UserError("no folder named", where="culmen new", fix="culmen new DIR, or culmen new --examples")
    written = taskfiles.write_new(directory, example)
    place = shlex.quote(str(directory))
    commands = [f"culmen check {place}", f"culmen run {place}"]
    data = {"task": str(directory.resolve()), "files": [str(path) for path in written], "next": commands}

    def show(screen: Screen) -> None:
        screen.line(f"Wrote a task into {directory}:")
        for path in written:
            screen.line(f"  {path.relative_to(directory)}")
        screen.next_steps((commands[0], "see whether it works"), (commands[1], "search"))

    return Answer(data, show)


def _examples(listed: list[tuple[str, str]]) -> Answer:
    def show(screen: Screen) -> None:
        screen.table(["name", "what it asks for"], listed)
        screen.next_steps(("culmen new DIR --example NAME", "copy one"))

    return Answer({"examples": [{"name": name, "goal": line} for name, line in listed]}, show)


def check(
    screen: Screen,
    task: Annotated[
        Path,
        typer.Argument(metavar="TASK", help="A task folder, its task.toml, an OpenEvolve folder, or an evaluator.py."),
    ],
    times: Annotated[int, typer.Option(min=2, help="Evaluations alike, and as many with other random seeds.")] = 5,
    require: Annotated[str | None, typer.Option(metavar="LEVEL", help="Refuse weaker isolation than this.")] = None,
    direction: Direction = None,
    seed_program: SeedProgram = None,
    proxy: Proxy = None,
) -> Answer:
    """Run the seed of a task a few times and say what is wrong with the task, if anything.

    Reports score, how far it can be trusted, noise, time, determinism and the isolation level in force. Exit code 1 if
    something is wrong.
    """
    from culmen.cli.checking import answer
    from culmen.run import inputs

    loaded = inputs.folder_task(task, seed_program, "", direction or "", proxy or "")
    return answer(screen, loaded, task, times, require)
