"""`culmen runs advisor ...`: the advisor that a run has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import RequiredRun, VerbGroup, VerbTable, find_run


def advisor_export(
    screen: Screen,
    run: RequiredRun,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder.")],
    version: Annotated[
        int | None, typer.Option(min=0, help="Version of the advisor.", show_default="the latest")
    ] = None,
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


ADVISOR: VerbGroup = (
    "The advisor that a run has trained (needs the extra 'train').",
    {"export": advisor_export},
)
VERBS = VerbTable("Keep a run", groups={"runs": ("", {"advisor": ADVISOR})})
