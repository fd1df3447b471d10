"""The verb `power`: the gain that a run can tell from noise, before it is paid for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import (
    AskedModels,
    CommandFlags,
    Direction,
    ModelsFile,
    Proxy,
    SeedProgram,
    VerbTable,
    asking_backend,
)
from culmen.report.figures import count_text, dollars_text, duration_text, number_text

if TYPE_CHECKING:
    from culmen.core.task import Task
    from culmen.extensions.bench.power import NeededEvaluations, NoiseSample

_SHARES = (0.25, 0.5, 1.0, 2.0)  # of the standard deviation of one evaluation: gains shown unasked


def power(
    screen: Screen,
    flags: CommandFlags,
    task: Annotated[
        Path | None,
        typer.Argument(metavar="TASK", help="A task folder, its task.toml, or an evaluator.py."),
    ] = None,
    gain: Annotated[
        list[float] | None,
        typer.Option(help="A gain to tell, in the unit of the score; may be repeated."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=2, help="Evaluations of every case. Default: 30 in all.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 1,
    direction: Direction = None,
    seed_program: SeedProgram = None,
    proxy: Proxy = None,
    model: AskedModels = None,
    models: ModelsFile = None,
) -> Answer:
    """Measure a task's noise, and the evaluations needed to tell a gain from it.

    Evaluates the initial program again and again on the cases that a result is reported on.
    """
    from culmen.extensions.bench.power import needed_evaluations, sample_noise
    from culmen.run import options
    from culmen.run.assemble import run_blocking

    found = flags.require_task(task, direction or "")
    loaded = options.folder_task(found, seed_program, "", direction or "", proxy or "")
    backend = asking_backend(loaded, workers, model, models)
    size = _case_count(loaded)
    many = rounds or max(2, -(-30 // size))  # evaluations that noise is measured with, at least
    with _progress_line(screen, many * size) as report:
        sample = run_blocking(sample_noise(loaded, backend, many, workers, report))
    plans = [needed_evaluations(sample, each) for each in gain or _usual_gains(sample)]
    data = {
        "noise": {**msgspec.to_builtins(sample), "evaluations": sample.evaluations},
        "plans": msgspec.to_builtins(plans),
    }
    return Answer(data, lambda s: _show_noise(s, loaded, flags.task_words(task), sample, plans))


def _case_count(task: Task) -> int:
    from culmen.evidence.verdict import reported_split

    split = reported_split(task)
    return len(task.split(split)) if split else 1


def _usual_gains(sample: NoiseSample) -> list[float]:
    """Gains of round size around the noise of one evaluation; none without noise."""
    return sorted({float(f"{share * sample.within**0.5:.1g}") for share in _SHARES} - {0.0})


@contextlib.contextmanager
def _progress_line(screen: Screen, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call after every evaluation: a moving line on a terminal."""
    if screen.as_json:
        yield None
    elif not screen.is_live:
        screen.err.print(f"evaluating the initial program {total:,} times", markup=False)
        yield None
    else:
        with screen.err.status("") as line:
            yield lambda done, of: line.update(f"evaluation {done:,} of {of:,}")


def _show_noise(
    screen: Screen,
    task: Task,
    place: str,
    sample: NoiseSample,
    plans: list[NeededEvaluations],
) -> None:
    screen.print_heading(task.name, f"noise of {count_text(sample.evaluations, 'evaluation')}")
    screen.print_pairs(
        ("noise", f"{number_text(sample.within**0.5)} (standard deviation of one evaluation)"),
        ("between cases", f"{number_text(sample.between**0.5)}" if sample.cases > 1 else ""),
        ("cases", f"{sample.cases} ({sample.split})" if sample.cases else ""),
        ("failed", count_text(sample.failed, "evaluation") if sample.failed else ""),
        ("one takes", _cost_text(sample.seconds, sample.dollars)),
    )
    if not sample.within:
        screen.print_line(
            "Repeated evaluations were all equal: one round of evaluations shows any gain."
        )
    if plans:
        screen.print_line()
        screen.print_table(
            ["gain", "each program", "final choice", "takes", "run", "new cases"],
            [_plan_row(plan) for plan in plans],
            right="gain",
        )
        screen.print_line(
            "A winner that is better by this gain is shown to be better in 8 of 10 final choices.",
            "dim",
        )
        if sample.cases:
            screen.print_line(
                "New cases: the size of a data set that shows the gain on cases outside it.", "dim"
            )
    if plans:
        budget = f"evaluations={plans[-1].budget},final=0.3"
        screen.print_next_steps((f"culmen run --budget {budget} {place}", "a run of this size"))


def _plan_row(plan: NeededEvaluations) -> list[str]:
    cases = f"{plan.cases} cases × {plan.rounds}" if plan.cases else f"{plan.rounds:,} times"
    takes = _cost_text(plan.seconds, plan.dollars)
    run, new = f"{plan.budget:,} evaluations", f"{plan.new_cases:,} cases" if plan.cases else ""
    return [f"{plan.gain:g}", cases, f"{plan.final:,}", takes, run, new]


def _cost_text(seconds: float, price: float) -> str:
    return duration_text(seconds) + (f", {dollars_text(price)}" if price else "")


VERBS = VerbTable("Views", groups={"compare": ("", {"power": power})})
