"""Result of a run over labelled cases: scores, confusion table, diff, worst cases and cost.

Scores, confusion and worst cases are from the final choice's evaluations on the reported split,
which the search never saw if cases were held out.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from culmen.cli.pages import Ending
from culmen.cli.screen import Screen
from culmen.core.errors import UserError
from culmen.core.evaluation import OUTPUT, Case, Observation
from culmen.core.result import RunResult
from culmen.core.task import Task
from culmen.evidence.verdict import reported_split
from culmen.extensions.prompt.form import JudgeAgreement, inputs_text, metric_of
from culmen.extensions.prompt.metrics import OTHER, Metric, are_equal, score_answer
from culmen.report.figures import (
    count_text,
    difference_text,
    escape_controls,
    run_name,
    score_with_margin,
)
from culmen.report.summary import result_line, usage_line
from culmen.store import views

_NAME = 14  # characters of a label in its head
_PAIRS = 8  # confusions listed where the table is too wide
_SHOWN = 160  # characters of an input or an answer
_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_DIFF = "prompt, before and after"


class PromptScore(msgspec.Struct, frozen=True):
    """Score of one prompt, with half widths of its 95 % intervals: these cases, and new ones."""

    id: str
    text: str
    score: float
    margin: float | None = None
    new_margin: float | None = None


class Confusion(msgspec.Struct, frozen=True):
    """Counts of cases: a row for each label, a column for each answer, `other` the last one."""

    labels: tuple[str, ...]
    answers: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class WorstCase(msgspec.Struct, frozen=True):
    """A case of the reported split with a low score; scores None: the evaluation failed."""

    case: str
    input: str
    label: str
    answer: str
    score: float | None
    before: float | None


class PromptReport(msgspec.Struct, frozen=True):
    """Result of a run over labelled cases; `kept` if no prompt was shown to be better.

    `cases` is the number of cases of `split` evaluated.
    """

    run: str
    headline: str
    metric: str
    label: str
    split: str
    cases: int
    before: PromptScore
    after: PromptScore
    gain: float | None
    gain_margin: float | None
    kept: bool
    confusion: Confusion | None
    confusion_before: Confusion | None
    diff: str
    worst: tuple[WorstCase, ...]
    spent: str
    agreement: JudgeAgreement | None = None
    hint: str = ""

    def __str__(self) -> str:
        sections = [*self.sections(), *([("spent", [self.spent])] if self.spent else [])]
        blocks = [
            "\n".join([heading, *(f"  {line}" for line in lines)]) for heading, lines in sections
        ]
        return "\n\n".join([self.headline, *blocks])

    def sections(self) -> list[tuple[str, list[str]]]:
        """Headings with their lines, in display order; the cost is left to the caller."""
        cases = count_text(self.cases, f"{self.split} case")
        found = [(f"score on {cases}", self._score_lines())]
        if self.confusion is not None:
            found.append(("confusion: label (row), answer (column)", table_lines(self.confusion)))
        found.append((_DIFF, self.diff.splitlines() or ["no difference: your prompt was kept"]))
        if self.worst:
            found.append((f"worst {self.split} cases", self._worst_lines()))
        return found

    def _score_lines(self) -> list[str]:
        lines = [
            f"{name:<7} {score_with_margin(each.score, each.margin, BOUNDS)}"
            for name, each in (("before", self.before), ("after", self.after))
        ]
        if self.after.new_margin:
            new = score_with_margin(self.after.score, self.after.new_margin, BOUNDS)
            lines[-1] += f" for these cases, {new} for new ones"
        if self.gain is not None and not self.kept:
            lines.append(f"gain    {difference_text(self.gain, self.gain_margin)}")
        if self.split != "test":
            lines.append("no case was held out: on new cases the score may be lower")
        if self.agreement is not None:
            known = self.agreement
            lines.append(f"judge   agrees with {known.agreed} of {known.asked} known answers")
        return [f"metric  {self.metric}", *lines, *([self.hint] if self.hint else [])]

    def _worst_lines(self) -> list[str]:
        lines: list[str] = []
        for each in self.worst:
            change = "" if not each.before or each.score == each.before else ", right before"
            lines += [
                f"case {each.case}: {each.input}",
                f"    label {each.label} · answer {each.answer}{change}",
            ]
        return lines


BOUNDS = (0.0, 1.0)


def read_report(path: Path) -> PromptReport:
    """The report of a run; raise `UserError` if it has no result yet."""
    now, task = views.run_status(path), views.run_meta(path).task
    if now.best is None or not now.best.confirmed:
        raise UserError(
            "the run has no confirmed result yet",
            where=str(path),
            fix=f"culmen resume {run_name(path)}",
        )
    best, metric = now.best, metric_of(task)
    first = next(iter(task.initial_candidates()))
    seen = {name: _final_observations(path, task, name) for name in (first.id, best.id)}
    texts = views.candidate_detail(path, best.id, observations=0, children=0).candidate.parts
    before_text, after_text = (next(iter(parts.values())) for parts in (first.parts, texts))
    known = task.evaluator.options.get("agreement")
    return PromptReport(
        run=path.name,
        headline=result_line(path, now),
        metric=f"{metric.name}: {metric.description}",
        label=str(task.evaluator.options["label"]),
        split=reported_split(task),
        cases=len(seen[best.id]),
        before=_initial_score(best, first.id, before_text),
        after=PromptScore(best.id, after_text, best.score, best.margin, best.new_margin),
        gain=best.gain,
        gain_margin=best.gain_margin,
        kept=best.kept_initial or best.id == first.id,
        confusion=count_confusion(task, metric, seen[best.id]),
        confusion_before=count_confusion(task, metric, seen[first.id]),
        diff=_diff_text(before_text, after_text),
        worst=find_worst(task, seen[best.id], seen[first.id]),
        spent=usage_line(path, now),
        agreement=None if known is None else msgspec.convert(known, JudgeAgreement),
        hint=_metric_hint(task, metric, views.stream_observations(path)),
    )


def _metric_hint(task: Task, metric: Metric, seen: Iterable[Observation]) -> str:
    """The other metric, if all answers contain their label and none is it."""
    if metric.name != "exact":
        return ""
    labels = {case.id: str(case.info) for case in task.cases}
    other = Metric("contains", classes=metric.classes)
    given = 0
    for each in seen:
        if each.ok:
            given += 1
            answer, label = each.artifacts.get(OUTPUT, ""), labels[each.case]
            if are_equal(answer, label) or not score_answer(other, answer, label).value:
                return ""
    hint = "all answers contain their label and none is it: --metric contains counts them as right"
    return hint if given >= 4 else ""  # fewer may agree by chance


def _initial_score(best: RunResult, name: str, text: str) -> PromptScore:
    initial = best.initial
    if initial is None:
        return PromptScore(name, text, best.score, best.margin, best.new_margin)
    return PromptScore(name, text, initial.score, initial.margin)


Seen = dict[str, list[Observation]]
"""Observations by case."""


def _final_observations(path: Path, task: Task, name: str) -> Seen:
    """The final choice's observations of a candidate on the reported split."""
    cases = {case.id for case in task.split(reported_split(task))}
    seen: Seen = {}
    for each in views.stream_observations(path, name, phase="final"):
        if each.case in cases:
            seen.setdefault(each.case, []).append(each)
    return seen


def count_confusion(task: Task, metric: Metric, seen: Seen) -> Confusion | None:
    """The confusion table of a classification; None for other metrics, or without answers."""
    if not metric.is_classification or not seen:
        return None
    labels, counts = metric.classes, Counter[tuple[str, str]]()
    for case in task.cases:
        row = next((name for name in labels if are_equal(str(case.info), name)), "")
        for each in seen.get(case.id, [])[-1:]:
            answer = each.artifacts.get(OUTPUT, "") if each.ok else ""
            counts[row, score_answer(metric, answer, str(case.info)).predicted or OTHER] += 1
    answers = (*labels, OTHER)
    return Confusion(
        labels,
        answers,
        tuple(tuple(counts[label, answer] for answer in answers) for label in labels),
    )


def table_lines(table: Confusion) -> list[str]:
    """The table as aligned lines; the commonest confusions if it would be too wide."""
    widths = [min(_NAME, max(5, len(name))) + 2 for name in table.answers]
    first = min(_NAME, max(map(len, table.labels)))
    if first + sum(widths) > 100:  # columns of a confusion table, at most
        return _confusion_pairs(table)
    head = "".join(
        _cut(name, _NAME).rjust(width) for name, width in zip(table.answers, widths, strict=True)
    )
    rows = [
        _cut(label, _NAME).ljust(first)
        + "".join(
            (str(count) if count else "·").rjust(width)
            for count, width in zip(counts, widths, strict=True)
        )
        for label, counts in zip(table.labels, table.counts, strict=True)
    ]
    return [" " * first + head, *rows]


def _confusion_pairs(table: Confusion) -> list[str]:
    wrong = [
        (count, label, answer)
        for label, counts in zip(table.labels, table.counts, strict=True)
        for answer, count in zip(table.answers, counts, strict=True)
        if count and answer != label
    ]
    wrong.sort(key=lambda each: (-each[0], each[1], each[2]))
    lines = [f"{count} × {label} answered as {answer}" for count, label, answer in wrong[:_PAIRS]]
    more = len(wrong) - _PAIRS
    return [*lines, *([f"and {count_text(more, 'rarer confusion')}"] if more > 0 else [])] or [
        "no confusion"
    ]


def find_worst(task: Task, after: Seen, before: Seen) -> tuple[WorstCase, ...]:
    """The cases with the lowest scores, those that were better before first among equals."""

    def badness(case: Case) -> tuple[float, float]:
        return _mean_score(after[case.id]) or 0.0, -(_mean_score(before.get(case.id, [])) or 0.0)

    wrong = [
        case
        for case in task.cases
        if case.id in after and (_mean_score(after[case.id]) or 0.0) < 1.0
    ]
    return tuple(
        WorstCase(
            case=case.id,
            input=_cut(" ".join(inputs_text(case.input).split()), _SHOWN),
            label=_cut(str(case.info), _SHOWN),
            answer=_shown_answer(after[case.id][-1]),
            score=_mean_score(after[case.id]),
            before=_mean_score(before.get(case.id, [])),
        )
        for case in sorted(wrong, key=badness)[:3]
    )


def _mean_score(seen: Sequence[Observation]) -> float | None:
    scores = [each.score for each in seen if each.score is not None]
    return fmean(scores) if scores else None


def _shown_answer(seen: Observation) -> str:
    if not seen.ok:
        return f"none ({seen.reason or seen.status.value})"
    return _cut(" ".join(seen.artifacts.get(OUTPUT, "").split()), _SHOWN) or "(empty)"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _diff_text(before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "before", "after", lineterm=""
    )
    return "\n".join(lines)


def make_ending(path: Path) -> Ending | None:
    """The report at the end of a run; None before there is a confirmed result."""
    try:
        report = read_report(path)
    except UserError:
        return None
    return Ending("prompt", report, lambda screen: show_report(screen, report))


def show_report(screen: Screen, report: PromptReport) -> None:
    """Print the sections of a report; the diff in colour."""
    for heading, lines in report.sections():
        screen.print_line()
        screen.print_heading(heading)
        for line in lines:
            style = _STYLES.get(line[:1], "") if heading == _DIFF else ""
            screen.print_code_line(escape_controls(line), style)
