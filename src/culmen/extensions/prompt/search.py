"""From a prompt and a table of cases to a run: plan, cost, power, and the search.

study = culmen.optimize_prompt("Which team?", "tickets.csv", "team", model="openai/gpt-5-mini")
print(study.report)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast, runtime_checkable

import msgspec

from culmen.core.errors import UserError
from culmen.core.options import DEFAULT_STRATEGY, RunOptions
from culmen.core.ports import MinimalStrategy
from culmen.core.task import Asks, Task
from culmen.core.usage import Budget, Usage
from culmen.extensions.prompt import form
from culmen.extensions.prompt.cases import (
    USUAL_SHARES,
    LabelledCases,
    ShownGain,
    parse_shares,
    propose_budget,
    read_labelled_cases,
    shown_gain,
)
from culmen.extensions.prompt.form import JudgeAgreement
from culmen.extensions.prompt.metrics import MetricChoice, choose_metric, judge_question
from culmen.run import options
from culmen.run.options import RunKeywords
from culmen.run.study import Study
from culmen.tasks.reading import missing_file_error, read_text
from culmen.tasks.tables import CaseTable, read_table, table_of_rows

if TYPE_CHECKING:
    from culmen.extensions.prompt.report import PromptReport
    from culmen.run.plan import RunPlan

_SHORT = 8  # tokens of an answer beside the label, and of the frame of a message
_TEXT_FILES = (".txt", ".md", ".prompt", ".jinja", ".j2")
_ONE_PART = "prompt.txt"


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a person for a prompt over cases, as they were written; "" is not chosen.

    prompt     a file, or the text itself
    cases      a file, or rows
    label      the column with the right answer
    inputs     the columns that the model sees; () for those that the prompt names, or all others
    split      TRAIN/VAL/TEST in per cent
    """

    prompt: str
    cases: str | Sequence[Mapping[str, Any]]
    label: str = ""
    inputs: Sequence[str] = ()
    metric: str = ""
    tolerance: float | None = None
    split: str = ""
    delimiter: str = ""
    encoding: str = ""
    goal: str = ""


class PromptPlan(msgspec.Struct, frozen=True):
    """A task made of a prompt and its cases, with the metric and budget proposed."""

    task: Task
    cases: LabelledCases
    metric: MetricChoice
    budget: Budget
    gain: ShownGain | None


def plan_prompt(request: PromptRequest, budget: Budget | None = None) -> PromptPlan:
    """Read prompt and cases; raise `UserError`, with line and column, for mistakes in them."""
    part, prompt = read_prompt(request.prompt)
    shares = parse_shares(request.split) if request.split else USUAL_SHARES
    table = _read_cases(request)
    given = None if budget is None else budget.evaluations
    cases = read_labelled_cases(table, request.label, prompt, request.inputs, shares, given)
    wanted = request.metric or cases.metric
    choice = choose_metric(cases.labels, wanted, request.tolerance)
    if choice.metric.name in ("exact", "contains") and len(set(cases.labels)) == 1:
        raise UserError(
            f"all cases have the label '{cases.labels[0]}': a prompt that always answers so is "
            "perfect",
            where=f"{table.name} (column {cases.label})",
            fix="add cases with other labels, or choose --metric judge",
        )
    name = "prompt" if not isinstance(request.cases, str) else Path(request.cases).stem
    task = form.build_task(name, part, prompt, cases, choice.metric, request.goal)
    task = msgspec.structs.replace(task, asks=likely_asks(task, cases))
    proposed = propose_budget(cases, budget)
    return PromptPlan(
        form.with_budget(task, proposed), cases, choice, proposed, shown_gain(cases, proposed)
    )


def read_prompt(prompt: str) -> tuple[str, str]:
    """Name and text of a prompt, which is a file or the text itself."""
    # characters of a prompt that may be a file's name
    is_name = "\n" not in prompt and len(prompt) <= 200
    path = Path(prompt).expanduser()
    if is_name and path.is_file():
        text = read_text(path)
        if not text.strip():
            raise UserError("the prompt is empty", where=str(path), fix="write a first version")
        return path.name, text
    if not prompt.strip():
        raise UserError(
            "the prompt is empty", where="PROMPT", fix="give a file, or the text in quotation marks"
        )
    if is_name and (" " not in prompt.strip() or path.suffix.lower() in _TEXT_FILES):
        raise missing_file_error(path, "PROMPT")
    return _ONE_PART, prompt


def _read_cases(request: PromptRequest) -> CaseTable:
    if isinstance(request.cases, str):
        path = Path(request.cases).expanduser()
        delimiter = {"tab": "\t", "\\t": "\t"}.get(request.delimiter, request.delimiter)
        if len(delimiter) > 1:
            raise UserError("a delimiter is one character", where="--delimiter", fix="write ';'")
        return read_table(path, delimiter, request.encoding)
    if not request.cases:
        raise UserError("there are no cases", where="cases=", fix="pass rows, or a file")
    return table_of_rows(request.cases)


# -- cost and judge, before the run


def likely_asks(task: Task, cases: LabelledCases) -> dict[str, Asks]:
    """Likely tokens of a question about one case and of its answer, by role."""
    prompt = next(iter(task.seeds[0].values()))
    sample = cases.cases[:: max(1, len(cases.cases) // 50)]  # cases whose length is looked at

    def mean_tokens(texts: Sequence[str]) -> int:
        return sum(map(len, texts)) // len(texts) // 4  # characters of a token

    def said(messages: Sequence[Mapping[str, str]]) -> str:
        return "".join(message["content"] for message in messages)

    label = mean_tokens([str(case.info) for case in sample]) + _SHORT
    question = mean_tokens([said(form.case_messages(prompt, case.input)) for case in sample])
    asks = {form.ANSWER: Asks(1, question + _SHORT, label)}
    if form.JUDGE in task.evaluator.options["roles"]:
        graded = [
            said(judge_question(form.inputs_text(case.input), str(case.info), str(case.info)))
            for case in sample
        ]
        asks[form.JUDGE] = Asks(1, mean_tokens(graded) + _SHORT, _SHORT)
    return asks


def checked_judge(plan: PromptPlan, run: RunPlan) -> tuple[RunPlan, JudgeAgreement | None]:
    """The run's plan with the judge's agreement with known answers; None without a judge.

    What the answers cost is taken from the run's budget.

    Raises `UserError` for a judge that agrees too rarely.
    """
    from culmen.run.assemble import evaluator_answerer, run_blocking

    model = run.objects.model_of(run.options)
    answerer = None
    if plan.metric.metric.name == "judge":
        answerer = evaluator_answerer(run.task, model, run.options.models_file)
    if answerer is None:
        return run, None

    async def measure() -> JudgeAgreement:
        try:
            cases = plan.cases.cases
            # cases that a judge's agreement is measured on
            chosen = cases[:: max(1, len(cases) // 6)][:6]
            talk = answerer.open_talk(run.options.seed)
            measured = await form.measure_agreement(talk, chosen)
            return msgspec.structs.replace(measured, usage=talk.usage)
        finally:
            await answerer.close()

    agreement = run_blocking(measure())
    if agreement.share < 0.75:  # agreement below which a judge is refused
        odd = ", ".join(dict.fromkeys((*agreement.missed, *agreement.fooled, *agreement.unclear)))
        unclear = f" ({len(agreement.unclear)} replies leave it open)" if agreement.unclear else ""
        raise UserError(
            f"the judge agrees with {agreement.agreed} of {agreement.asked} known answers"
            f"{unclear}: its scores would mean little",
            where=f"cases {odd}",
            fix="name a better one with --model judge=MODEL, or choose --metric f1",
        )
    task = form.with_agreement(run.task, agreement)
    left = budget_after(run.options.budget, agreement.usage)
    options = msgspec.structs.replace(run.options, budget=left)
    return msgspec.structs.replace(run, task=task, options=options), agreement


def budget_after(budget: Budget, used: Usage) -> Budget:
    """The remaining calls, tokens and dollars; raises `UserError` if none remain."""
    left: dict[str, int | float] = {}
    for name in ("calls", "tokens", "dollars"):
        limit = getattr(budget, name)
        if limit is None:
            continue
        left[name] = limit - used.at_most(name)
        if left[name] <= 0:
            raise UserError(
                f"asking the judge about known answers has spent the budget of {name}",
                where=f"budget {name}={limit:g}",
                fix=f"give more than {used.at_most(name):g}, or choose --metric f1",
            )
    return msgspec.structs.replace(budget, **left)


# -- from Python


class PromptStudy(Study):
    """A study of a prompt over labelled cases, with the report on its result."""

    @property
    def report(self) -> PromptReport:
        """Scores before and after, confusion table, diff and worst cases; also `print`ed."""
        from culmen.extensions.prompt.report import read_report

        return read_report(self.path)


@runtime_checkable
class _DataFrame(Protocol):
    """The one method of a pandas data frame that is used here."""

    def to_dict(self, orient: Any, /) -> Any: ...


def optimize_prompt(
    prompt: str | Path,
    cases: str | Path | Iterable[Mapping[str, Any]] | _DataFrame,
    label: str,
    *,
    inputs: Sequence[str] = (),
    metric: str = "",
    tolerance: float | None = None,
    split: str = "",
    strategy: MinimalStrategy | type[MinimalStrategy] | str = DEFAULT_STRATEGY,
    goal: str = "",
    run_dir: str | Path | None = None,
    progress: bool = True,
    **keywords: Unpack[RunKeywords],
) -> PromptStudy:
    """Improve a prompt over labelled cases and return the finished study.

    `prompt` is a file or the text itself; `cases` a CSV, JSONL or parquet file, rows as
    mappings, or a data frame; `label` the column of the right answer. `inputs` are the columns that
    the model sees (default: those in braces in the prompt, else all others), `metric` is exact,
    contains, f1, numeric or judge (default: by the labels), `split` TRAIN/VAL/TEST in per cent.
    `model` may be a mapping with the roles `answer` and `judge`. `study.report` has the result. The
    other keywords are those of `optimize`. Raises `UserError` for mistakes that you can fix.
    """
    from culmen.run.plan import plan_run

    if isinstance(cases, str | Path):
        rows: str | list[Mapping[str, Any]] = str(cases)
    else:
        records: Any = cases.to_dict("records") if isinstance(cases, _DataFrame) else cases
        rows = [dict(row) for row in records]
    request = PromptRequest(
        prompt=str(prompt),
        cases=rows,
        label=label,
        inputs=inputs,
        metric=metric,
        tolerance=tolerance,
        split=split,
        goal=goal,
    )
    chosen, objects = options.read_keywords(keywords, RunOptions(), RunKeywords)
    plan = plan_prompt(request, chosen.budget if keywords.get("budget") is not None else None)
    chosen = msgspec.structs.replace(
        chosen,
        budget=plan.budget,
        workers=chosen.workers or form.WORKERS,
    )
    run, _ = checked_judge(plan, plan_run(plan.task, strategy, chosen, objects))
    study = PromptStudy.from_plan(run, run_dir)
    study.run(progress)
    return cast("PromptStudy", study)
