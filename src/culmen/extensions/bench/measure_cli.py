"""The verb `score`: a final measurement of given candidates, for tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import INTERRUPTED, VerbTable, find_run_to_write
from culmen.extensions.bench.cli import print_progress, progress_printer
from culmen.extensions.bench.markup import Latex, Markdown, MarkupScreen, chosen_notation
from culmen.report.figures import (
    Bounds,
    count_text,
    difference_text,
    dollars_text,
    join_nonempty,
    margin_decimals,
    number_text,
    plus_minus,
    score_with_margin,
    short_path,
)

if TYPE_CHECKING:
    from culmen.extensions.bench.measure import (
        FinalMeasurement,
        MeasuredCandidate,
        ScoreRequest,
        Wanted,
    )
    from culmen.extensions.bench.score import Scored


def score(
    screen: Screen,
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|TASK",
            help="A run, or a task folder. Default: the latest run.",
        ),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID...",
            help="Candidates: ids, 'best', 'seed', or files with programs.",
            show_default="seed best",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Cases to score on.", show_default="test, else val, else all"
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Evaluations of each candidate on each case.",
            show_default="10; 1 of a deterministic task",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,...",
            help="Limits of the whole measurement: evaluations, dollars, seconds.",
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Evaluations at once.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[ROLE=]MODEL",
            help="Model that the evaluator asks, instead of the run's. Repeatable.",
        ),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Providers, models and prices (TOML or YAML)."),
    ] = None,
    latex: Latex = False,
    markdown: Markdown = False,
) -> Answer:
    """Measure candidates again for a table: mean and 95 % interval, difference to the first.

    All get the same cases and random seeds. After an interruption the same command goes on;
    evaluations that are there are never made again.
    """
    from culmen.core.usage import Budget
    from culmen.extensions.bench.measure import ScoreRequest, make_evaluations, measure_candidates

    notation = chosen_notation(latex, markdown)
    limits = Budget() if budget is None else Budget.parse(budget)
    options = _given_options(workers, model, models)
    request = ScoreRequest(split or "", repeats, limits, options)
    wanted = _wanted_measurement(of, candidate or (), request)
    _announce(screen, wanted)
    code, done = 0, None
    try:
        done = make_evaluations(wanted, progress_printer(screen))
    except KeyboardInterrupt:
        code = INTERRUPTED
    made = measure_candidates(wanted)
    data = {
        **msgspec.to_builtins(made),
        "complete": made.is_complete,
        "folder": str(wanted.folder),
        "isolation": done.isolation if done else "",
    }

    def show(screen: Screen) -> None:
        if notation is not None:
            MarkupScreen(notation).print_table(*_table(made), _FLUSH_RIGHT)
        else:
            _show_measurement(screen, made)
        for remark in measurement_remarks(wanted, made, done):
            screen.print_note(remark)

    return Answer(data, show, code)


def _given_options(
    workers: int | None, model: Sequence[str] | None, models: Path | None
) -> dict[str, object]:
    given = {
        "workers": workers,
        "model": ",".join(model) if model else None,
        "models_file": None if models is None else str(models.resolve()),
    }
    return {name: value for name, value in given.items() if value is not None}


def _wanted_measurement(of: str | None, words: Sequence[str], request: ScoreRequest) -> Wanted:
    """The measurement of a run, or of a task if `of` is one."""
    from culmen.extensions.bench.measure import measurement_of_run, measurement_of_task
    from culmen.run.options import folder_task
    from culmen.store.address import has_run

    path = None if of is None else Path(of)
    if path is None or has_run(path) or not path.exists():
        return measurement_of_run(find_run_to_write(of), words, request)
    return measurement_of_task(folder_task(path, None, ""), words, request)


def _announce(screen: Screen, wanted: Wanted) -> None:
    """Print the planned evaluations and their limits to standard error, before the first one."""
    plan, missing = wanted.plan, len(wanted.plan.missing)
    where = f" on {count_text(len(plan.cases), f'{plan.split} case')}" if plan.split else ""
    times = "once" if plan.repeats == 1 else f"{plan.repeats} times each"
    there = wanted.evaluations - missing
    known = [each.dollars for each in wanted.scores]
    price = sum(known) / len(known) * missing if sum(known) else 0.0
    facts = [
        f"{plan.task.name}: {count_text(len(plan.candidates), 'candidate')}{where}, {times}: "
        f"{count_text(missing, 'evaluation')} to be made",
        f"{there:,} of {wanted.evaluations:,} are there" if there else "",
        f"likely {dollars_text(price)}" if price else "",
        "" if wanted.budget.dollars is None else f"at most {dollars_text(wanted.budget.dollars)}",
    ]
    print_progress(screen, join_nonempty(facts))


_HEADS = ("candidate", "score", "new cases", "evaluations", "failed", "difference", "cost")
_FLUSH_RIGHT = ("evaluations", "failed", "cost")


def _table(made: FinalMeasurement) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; columns without any content are left out."""
    cells = [_row_cells(row, made) for row in made.rows]
    used = [place for place in range(len(_HEADS)) if any(row[place] for row in cells)]
    return [_HEADS[place] for place in used], [[row[place] for place in used] for row in cells]


def _row_cells(row: MeasuredCandidate, made: FinalMeasurement) -> list[str]:
    name = row.id if row.name in ("", row.id) or row.id.startswith(row.name) else row.name
    difference = ""
    if row.difference is not None:
        difference = difference_text(row.difference, row.difference_margin) + (
            plus_minus(row.difference_margin) or _no_interval(row.difference_margin)
        )
    return [
        name if name == row.id else f"{name} {row.id}",
        score_text(row, made),
        _interval_text(row.score, row.new_margin, made.bounds),
        f"{row.evaluations:,}",
        f"{row.failures:,}" if row.failures else "",
        difference,
        dollars_text(row.dollars) if row.dollars else "",
    ]


def score_text(row: MeasuredCandidate, made: FinalMeasurement) -> str:
    if row.score is None:
        return "-"
    text = score_with_margin(row.score, row.margin, made.bounds)
    return text + ("" if row.margin else _no_interval(row.margin))


def _interval_text(score: float | None, margin: float | None, bounds: Bounds) -> str:
    """`0.43 to 0.69`: an interval inside the bounds of the score; "" if it is unknown."""
    if score is None or not margin:
        return ""
    low, high = (
        float("-inf") if bounds[0] is None else bounds[0],
        float("inf") if bounds[1] is None else bounds[1],
    )
    digits = margin_decimals(margin)
    ends = (max(low, score - margin), min(high, score + margin))
    return " to ".join(number_text(end, digits) for end in ends)


def _no_interval(margin: float | None) -> str:
    return " (exact)" if margin == 0 else " (interval unknown)"


def _show_measurement(screen: Screen, made: FinalMeasurement) -> None:
    on = f"{count_text(made.cases, f'{made.split} case')}, " if made.split else ""
    times = "once" if made.repeats == 1 else f"{made.repeats} times each"
    way = "maximise" if made.direction == "max" else "minimise"
    screen.print_heading(made.task, f"{way}, {on}{times}")
    screen.print_table(*_table(made), _FLUSH_RIGHT)


def measurement_remarks(wanted: Wanted, made: FinalMeasurement, done: Scored | None) -> list[str]:
    """Remarks for the reader of a table: missing evaluations, many looks, no interval."""
    left = made.wanted - made.made
    why = "interrupted" if done is None else "the budget is spent" if done.left > done.lost else ""
    why = why or "evaluations were lost to the machine"
    excused = sum(row.excused for row in made.rows)
    refusal = next((each.refusal for each in wanted.scores if each.refusal), "")
    # candidates that a split may score without a choice among them: the best and the initial
    held_out = made.split in ("test", "val") and made.looked > 2
    known = [
        f"{count_text(left, 'evaluation')} left ({why}): the same command goes on" if left else "",
        f"{count_text(excused, 'evaluation')} failed by no fault of a candidate and do not count"
        if excused
        else "",
        f"the evaluator reports: {refusal}" if refusal else "",
        f"{made.looked} candidates have been scored on the {made.split} cases: whichever is chosen "
        "by these scores, its score is no longer fresh"
        if held_out
        else "",
        "one evaluation shows no noise: --repeats 10 gives an interval"
        if any(row.score is not None and row.margin is None for row in made.rows)
        and made.repeats == 1
        else "",
    ]
    known.append(f"scores are kept in {short_path(wanted.folder)}")
    return [each for each in known if each]


VERBS = VerbTable("Views", groups={"compare": ("", {"score": score})})
