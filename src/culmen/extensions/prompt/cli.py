"""The verb `prompt`: from a prompt and a table of cases to a better prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from culmen.cli.options import ProgressFlags, SearchFlags, request_from_flags
from culmen.cli.screen import Answer, Screen
from culmen.cli.verbs import Goal, VerbTable
from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.core.usage import Budget
from culmen.extensions.prompt.form import ANSWER
from culmen.report.figures import count_text, join_nonempty, number_text
from culmen.report.forecast import forecast_data, forecast_text

if TYPE_CHECKING:
    from culmen.extensions.prompt.form import JudgeAgreement
    from culmen.extensions.prompt.search import PromptPlan
    from culmen.report.forecast import RunForecast
    from culmen.run.plan import RunPlan

_ANSWER = "answer="  # of a role's model in `--model`
_NAMED = 8  # labels or columns named in one line


def prompt(
    screen: Screen,
    flags: SearchFlags,
    progress: ProgressFlags,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="A file, or the text in quotation marks.")
    ],
    cases: Annotated[
        str,
        typer.Argument(metavar="CASES", help="A CSV, JSON, JSONL or parquet file, a case a row."),
    ],
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column with the right answer.")
    ] = "",
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="COLUMN",
            help="A column that the model sees. Repeatable.",
            show_default="those in {braces} in the prompt, or all but the label",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="exact, contains, f1, numeric or judge.",
            show_default="by the labels",
        ),
    ] = "",
    tolerance: Annotated[
        float | None, typer.Option(help="Largest error of a right number.", show_default="0")
    ] = None,
    split: Annotated[
        str,
        typer.Option(metavar="TRAIN/VAL/TEST", help="Shares in per cent.", show_default="50/25/25"),
    ] = "",
    answer_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The model that the prompt is for.", show_default="--model"
        ),
    ] = None,
    delimiter: Annotated[
        str, typer.Option(metavar="CHARACTER", help="Of a CSV file.", show_default="found")
    ] = "",
    encoding: Annotated[
        str, typer.Option(metavar="NAME", help="Of the text file.", show_default="found")
    ] = "",
    goal: Goal = None,
) -> Answer:
    """Improve a prompt over labelled cases: from a table to a result.

    Metric, split and budget are proposed and shown, with power and cost, before the first call.
    """
    from culmen.cli.search import run_plan
    from culmen.extensions.prompt.search import (
        PromptRequest,
        checked_judge,
        plan_prompt,
    )
    from culmen.run.forecast import forecast_plan
    from culmen.run.plan import requested_run

    request = PromptRequest(
        prompt=prompt,
        cases=cases,
        label=label,
        inputs=inputs or (),
        metric=metric,
        tolerance=tolerance,
        split=split,
        delimiter=delimiter,
        encoding=encoding,
        goal=goal or "",
    )
    plan = plan_prompt(request, None if flags.budget is None else Budget.parse(flags.budget))
    shows = not screen.as_json and not progress.quiet
    if not (flags.model or flags.models or answer_model):
        if shows:
            show_plan(screen, plan, None)
        raise UserError(
            "which model answers is not said",
            where="--model",
            fix="add --model MODEL, as gpt-5-mini; for a server of your own: culmen docs endpoint",
        )
    asked = request_from_flags(
        flags,
        model=_models_by_role(flags, answer_model),
        budget=None,
    )
    run = requested_run(plan.task, asked)
    cost = forecast_plan(run)
    if shows:
        show_plan(screen, plan, cost)
    run, agreement = checked_judge(plan, run)
    if agreement is not None and shows:
        screen.print_pairs(("judge", _agreement_text(agreement)), err=True)
    answer = run_plan(screen, run, flags, progress, run.task.notes)
    answer.data["plan"] = plan_document(plan, run, cost, agreement)
    return answer


def _models_by_role(flags: SearchFlags, answer_model: str | None) -> list[str] | None:
    """The models of `--model` with that of the role `answer`, which writes prompts if none does."""
    from culmen.models.roles import ModelBook

    given = [each for each in flags.model or () if each.startswith(_ANSWER)]
    answer = answer_model or (given[-1].removeprefix(_ANSWER) if given else "")
    if not answer:
        return flags.model
    others = [each for each in flags.model or () if not each.startswith(_ANSWER)]
    has_default = any("=" not in each for each in others) or ModelBook(flags.models).roles_text()
    return [*([] if has_default else [answer]), *others, f"{_ANSWER}{answer}"]


def plan_document(
    plan: PromptPlan, run: RunPlan, cost: RunForecast | None, agreement: JudgeAgreement | None
) -> JsonObject:
    """The plan as plain data."""
    cases = plan.cases
    return {
        "cases": len(cases.cases),
        "label": cases.label,
        "labels": list(plan.metric.metric.classes),
        "inputs": list(cases.inputs),
        "metric": plan.metric.metric.name,
        "reason": plan.metric.reason,
        "split": {name: cases.count_split(name) for name in ("train", "val", "test")},
        "budget": run.options.budget,
        "power": plan.gain,
        "likely": None if cost is None else forecast_data(cost),
        "agreement": agreement,
        "notes": list(cases.notes),
    }


def show_plan(screen: Screen, plan: PromptPlan, cost: RunForecast | None) -> None:
    """Print cases, metric, split, power and cost to standard error."""
    cases, choice = plan.cases, plan.metric
    classes = choice.metric.classes
    shown = ", ".join(classes[:_NAMED]) + (
        f" and {len(classes) - _NAMED} more" if len(classes) > _NAMED else ""
    )
    screen.print_pairs(
        ("cases", count_text(len(cases.cases), "case")),
        ("label", cases.label + (f": {shown}" if classes else "")),
        ("inputs", _inputs_text(plan)),
        ("metric", f"{choice.metric.name} ({choice.reason}): {choice.metric.description}"),
        ("split", _split_text(plan)),
        ("power", _power_text(plan)),
        ("likely", _cost_text(plan, cost)),
        err=True,
    )


def _inputs_text(plan: PromptPlan) -> str:
    from culmen.extensions.prompt.cases import placeholders_of

    prompt = next(iter(plan.task.seeds[0].values()))
    filled = [name for name in placeholders_of(prompt) if name in plan.cases.inputs]
    names = ", ".join(plan.cases.inputs[:_NAMED])
    more = len(plan.cases.inputs) - _NAMED
    where = "in the prompt's braces" if filled else "after the prompt, as the user's message"
    return f"{names}{f' and {more} more' if more > 0 else ''} ({where})"


def _split_text(plan: PromptPlan) -> str:
    counts = [(name, plan.cases.count_split(name)) for name in ("train", "val", "test")]
    parts = join_nonempty(f"{count} {name}" for name, count in counts if count)
    return f"{parts} ({plan.cases.split_reason})"


def _power_text(plan: PromptPlan) -> str:
    gain = plan.gain
    if gain is None and plan.cases.count_split("test"):
        return "the budget is too small to try both prompts on test cases"
    if gain is None:
        return "no test cases: whether a gain holds for new cases cannot be seen"
    most = "" if plan.budget.evaluations else "at most "  # fewer if money ends the run first
    cases = f"{most}{count_text(gain.cases, 'test case')}"
    return (
        f"with {cases} gains above {number_text(gain.gain, 2)} can be seen; "
        f"{gain.other_evaluations:,} evaluations with {gain.other_cases:,} test cases "
        f"see {gain.other_gain:g}"
    )


def _cost_text(plan: PromptPlan, cost: RunForecast | None) -> str:
    """The forecast, and what it takes an answer for; "" without one."""
    if cost is None:
        return ""
    question = count_text(round(plan.task.asks[ANSWER].input), "token")
    return f"{forecast_text(cost)}; {question} a question, and answers as short as the labels"


def _agreement_text(agreement: JudgeAgreement) -> str:
    odd = join_nonempty(
        [
            f"refused the label of {', '.join(agreement.missed)}" if agreement.missed else "",
            f"accepted a wrong answer to {', '.join(agreement.fooled)}" if agreement.fooled else "",
            f"gave no clear verdict on {', '.join(agreement.unclear)}" if agreement.unclear else "",
        ]
    )
    return f"agrees with {agreement.agreed} of {agreement.asked} known answers" + (
        f" ({odd})" if odd else ""
    )


VERBS = VerbTable("Search", (prompt,), after="resume")
