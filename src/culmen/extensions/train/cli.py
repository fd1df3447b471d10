"""`culmen runs advisor ...`: the advisor that a run has trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import RequiredRun, VerbGroup, VerbTable, find_run
from culmen.core.errors import UserError

Version = Annotated[
    int | None, typer.Option(min=0, help="Version of the advisor.", show_default="the latest")
]


def advisor_export(
    screen: Screen,
    run: RequiredRun,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder.")],
    version: Version = None,
) -> Answer:
    """Write a trained advisor for other programs.

    It is an adapter in PEFT's layout, or the whole model if the policy has no adapter.
    """
    from culmen.extensions.train import advisors

    path = find_run(run)
    data = {"run": path.name, **advisors.export_advisor(path, version, out)}

    def show(screen: Screen) -> None:
        what = f"an adapter of {data['base']}" if data["form"] == "adapter" else "a whole model"
        screen.print_line(f"version {data['version']}, {what}: {data['out']}")
        if data["form"] == "adapter":
            serve = f"vllm serve {data['base']} --enable-lora --lora-modules advisor={data['out']}"
            screen.print_next_steps((serve, "serve it"))

    return Answer(data, show)


def advisor_chat(
    screen: Screen,
    run: RequiredRun,
    version: Version = None,
    say: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A message, instead of typing it. Repeatable."),
    ] = None,
    system: Annotated[
        str, typer.Option(metavar="TEXT", help="System prompt of the conversation.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Random seed of its replies.")] = 0,
) -> Answer:
    """Talk to a trained advisor. An empty line ends the conversation."""
    from culmen.extensions.train.advisors import AdvisorChat

    if screen.as_json and not say:
        raise UserError(
            "with --json no messages can be typed",
            where="--say",
            fix="give messages with --say TEXT",
        )
    path = find_run(run)
    talk = AdvisorChat(path, version, system, seed)
    if not screen.as_json:
        screen.err.print(f"version {talk.version} of {path.name}", style="dim", markup=False)
    for text in say if say else _typed_lines(screen):
        reply = talk.send_message(text)
        if not screen.as_json:
            screen.print_line(reply)
    return Answer({"run": path.name, "version": talk.version, "messages": talk.messages})


def _typed_lines(screen: Screen) -> Iterator[str]:
    """Lines of standard input up to an empty one."""
    while True:
        screen.err.print("> ", end="", markup=False)
        line = sys.stdin.readline().strip()
        if not line:
            return
        yield line


ADVISOR: VerbGroup = (
    "The advisor that a run has trained (needs the extra 'train').",
    {"export": advisor_export, "chat": advisor_chat},
)
VERBS = VerbTable("Keep a run", groups={"runs": ("", {"advisor": ADVISOR})})
