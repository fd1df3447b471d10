"""The verb `paper wording`: CATO's open experiment on a task of yours, by one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED, VerbTable
from culmen.report.figures import count_text

if TYPE_CHECKING:
    from culmen.extensions.agents.wordings import MeanEstimate, WordingComparison


def wording(
    screen: Screen,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task folder, or a built-in task.")],
    agent: Annotated[str, typer.Option(metavar="NAME", help="Agent of CATO. See: doctor.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each wording.")] = 6,
    budget: Annotated[
        str, typer.Option(metavar="NAME=N,...", help="Budget of each run.")
    ] = "evaluations=2000,seconds=36000",
    model: Annotated[str, typer.Option(help="Model of each run.")] = "offline",
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Setting of cato. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of runs.")] = Path(
        "runs/wording"
    ),
) -> Answer:
    """Compare the paper's pressing wording with ours: gaming, gain and cost of each agent.

    After an interruption, the same command continues: finished runs are reused.
    """
    from culmen import tasks as taskfiles
    from culmen.core.usage import Budget
    from culmen.extensions.agents.cato import Cato
    from culmen.extensions.agents.wordings import compare_wordings, make_runs
    from culmen.strategies.catalog import make_strategy

    loaded = taskfiles.load(task if Path(task).exists() else taskfiles.example_path(task))
    pairs = (each.partition("=") for each in setting or ())
    given = {name: value for name, _, value in pairs}
    rules = cast(Cato, make_strategy("cato", {**given, "agent": Cato.require_agent(agent)}))
    runs = list(make_runs(loaded, rules, seeds, out, model=model, budget=Budget.parse(budget)))
    comparison, done = compare_wordings(runs), len(runs) == 2 * seeds

    def show(screen: Screen) -> None:
        show_comparison(screen, comparison)
        screen.print_line()
        outcome = "Complete" if done else "Interrupted: run the same command again to continue"
        screen.print_line(f"{outcome}. The runs are in {out}.")

    data = {"complete": done, "runs": runs, "comparison": comparison}
    return Answer(data, show, 0 if done else INTERRUPTED)


def show_comparison(screen: Screen, found: WordingComparison) -> None:
    """Print both tables, and the differences with their intervals."""
    screen.print_line("Means ± half a 95 % interval over runs.", style="dim")
    heads = ["wording", "runs", "gamed", "best", "before the first finding", "agents"]
    heads += ["experiments", "seconds", "dollars"]
    rows = [
        [
            each.wording,
            f"{each.runs}",
            f"{each.gamed} ({each.gamed_low:.0%} to {each.gamed_high:.0%})",
            *map(estimate_text, (each.best, each.honest, each.agents, each.experiments)),
            estimate_text(each.seconds),
            estimate_text(each.dollars, "not counted"),
        ]
        for each in found.summaries
    ]
    screen.print_table(heads, rows, right=heads[1:])
    screen.print_line()
    screen.print_heading("Each further agent")
    heads = ["wording", "agent", "runs", "gamed", "gain", "experiments", "seconds", "dollars"]
    rows = [
        [
            each.wording,
            *map(str, (each.number, each.runs, each.gamed)),
            *map(estimate_text, (each.gain, each.experiments, each.seconds)),
            estimate_text(each.dollars, "not counted"),
        ]
        for each in found.further
    ]
    screen.print_table(heads, rows, right=heads[1:])
    pairs = found.gamed_difference
    if pairs is None:
        return
    screen.print_line()
    screen.print_line(
        f"go_on_until_reached - stop_when_reached, {count_text(pairs.count, 'pair')}: "
        f"share of gamed runs {estimate_text(pairs)}, "
        f"score before the first finding {estimate_text(found.honest_difference)}"
    )


def estimate_text(value: MeanEstimate | None, none: str = "-") -> str:
    """`0.4 ± 0.1`; the mean alone of one run, `none` without any."""
    if value is None:
        return none
    return f"{value.mean:.5g}" + ("" if value.margin is None else f" ± {value.margin:.2g}")


VERBS = VerbTable(
    "Papers", groups={"paper": ("Tables and figures of papers, made again.", {"wording": wording})}
)
