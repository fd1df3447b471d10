"""`culmen runs track`: an existing run, copied to trackers."""

from __future__ import annotations

from typing import Annotated

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import RequiredRun, VerbTable, find_run
from culmen.core.errors import CulmenError, UserError
from culmen.report.figures import count_text


def track(
    screen: Screen,
    run: RequiredRun,
    to: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[:PLACE][#OPTIONS]",
            help="mlflow, wandb, tensorboard or otel, as with --track.",
        ),
    ],
) -> Answer:
    """Copy an existing run to trackers; a run in progress is followed to its end."""
    from culmen.report.watch import make_trackers

    path, counts = find_run(run), dict[str, int]()
    for tracking in make_trackers(to):
        try:
            counts[tracking.name] = tracking.send_journal(path)
        except CulmenError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of a foreign library
            what = f"{tracking.name} failed: {type(error).__name__}: {error}"
            raise UserError(
                what, where=str(path), fix="see docs/tracking: culmen docs tracking"
            ) from None
    data = {"run": path.name, "evaluations": counts}

    def show(screen: Screen) -> None:
        for name, many in counts.items():
            screen.print_line(f"{name}: {count_text(many, 'evaluation')}")

    return Answer(data, show)


VERBS = VerbTable("Keep a run", groups={"runs": ("", {"track": track})}, after="export")
