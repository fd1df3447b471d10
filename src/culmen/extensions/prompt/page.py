"""Page of a prompt over labelled cases: what the terminal shows at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.extensions.prompt.form import FORM, JudgeAgreement
from culmen.extensions.prompt.report import BOUNDS, Confusion, PromptReport, WorstCase, read_report
from culmen.extensions.web.pages.added import Page
from culmen.extensions.web.runs import Digest
from culmen.report.figures import count_text, difference_text, score_with_margin


def prompt_page(run: Digest, params: Mapping[str, str]) -> JsonObject:
    """Scores, cost, confusion, prompts, worst cases; no blocks before a confirmed result."""
    if not is_prompt_run(run):
        return {"blocks": []}
    try:
        report = read_report(run.run)
    except UserError:
        return {"blocks": []}
    blocks: list[JsonObject] = [
        {
            "kind": "facts",
            "lines": True,
            "heading": "Result",
            "note": report.headline,
            "pairs": _pairs(report),
        }
    ]
    blocks += _confusion_blocks(report)
    blocks.append(
        {
            "kind": "diff",
            "heading": "Prompt, before and after",
            "before": report.before.text,
            "after": report.after.text,
            "note": "Your prompt was kept." if report.before.text == report.after.text else None,
        }
    )
    if report.worst:
        blocks.append(
            {
                "kind": "table",
                "heading": f"Worst {report.split} cases",
                "columns": ["case", "input", "label", "answer", "score", "before"],
                "rows": [_worst_row(each) for each in report.worst],
            }
        )
    return {"blocks": blocks}


def is_prompt_run(run: Digest) -> bool:
    """True for a run of a prompt over labelled cases."""
    return run.meta.task.evaluator.form == FORM


def _pairs(report: PromptReport) -> list[list[str]]:
    after = score_with_margin(report.after.score, report.after.margin, BOUNDS)
    if report.after.new_margin:
        new = score_with_margin(report.after.score, report.after.new_margin, BOUNDS)
        after += f" for these cases, {new} for new ones"
    held = "" if report.split == "test" else "; no case was held out"
    gain = "" if report.gain is None else difference_text(report.gain, report.gain_margin)
    pairs = [
        ["before", score_with_margin(report.before.score, report.before.margin, BOUNDS)],
        ["after", after],
        ["gain", "" if report.kept else gain],
        ["measured on", f"{count_text(report.cases, f'{report.split} case')}{held}"],
        ["metric", report.metric],
        ["judge", _judge_text(report.agreement)],
        ["spent", report.spent],
    ]
    return [pair for pair in pairs if pair[1]]


def _judge_text(known: JudgeAgreement | None) -> str:
    return "" if known is None else f"agrees with {known.agreed} of {known.asked} known answers"


def _confusion_blocks(report: PromptReport) -> list[JsonObject]:
    tables = [("after", report.confusion), ("before", report.confusion_before)]
    return [_confusion_block(name, table) for name, table in tables if table is not None]


def _confusion_block(name: str, table: Confusion) -> JsonObject:
    rows = [[label, *counts] for label, counts in zip(table.labels, table.counts, strict=True)]
    return {
        "kind": "table",
        "heading": f"Confusion {name}",
        "note": "A row for each label, a column for each answer.",
        "columns": ["label", *table.answers],
        "rows": rows,
        "diagonal": True,
    }


def _worst_row(each: WorstCase) -> list[str | float]:
    scores = ["none" if value is None else value for value in (each.score, each.before)]
    return [each.case, each.input, each.label, each.answer, *scores]


PROMPT = Page("Prompt", prompt_page, "result", is_prompt_run)
