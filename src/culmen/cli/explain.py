"""The view `show --explain`: one decision of a run in words and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from culmen.cli.screen import Answer, Screen

if TYPE_CHECKING:
    from culmen.core.explanation import DecisionFacts, Explanation

_COLUMNS = {  # headings of the table of actions, and their fields
    "action": "action",
    "expected score": "expected",
    "gain": "gain",
    "per 1 %": "rate",
    "share": "share",
    "costs": "cost",
}


def explain_candidate(path: Path, wanted: str) -> Answer:
    """Explain a decision by its alternatives, with their gains and costs.

    `wanted` is the number of an evaluation, from 1; or a candidate: how it came to be evaluated; or
    "", the latest evaluation. A decision of the default strategy is derived again from the journal,
    so that it is shown as it was made; of other strategies their own notes are shown.
    """
    from culmen.run.explain import explain_evaluation

    explained = explain_evaluation(path, wanted)
    return Answer(explained, lambda screen: show_explanation(screen, explained))


def show_explanation(screen: Screen, explained: Explanation) -> None:
    """Print an explanation in words."""
    for number, line in enumerate(explained.lines, 1):
        screen.print_line(line)
        if number == explained.table_at and explained.finalists:
            _show_finalists(screen, explained)
        elif number == explained.table_at and explained.decision is not None:
            _show_options(screen, explained.decision)
    nearby = explained.evaluation - 1 or explained.evaluation + 1
    screen.print_next_steps(
        (f"culmen show {explained.run} {nearby} --explain", "the evaluation beside it"),
        (f"culmen show {explained.run} {explained.candidate}", "the candidate in full"),
    )


def _show_options(screen: Screen, decision: DecisionFacts) -> None:
    from culmen.report import reasons

    if not decision.options:
        return
    table = [reasons.action_row(each) for each in decision.options]
    shown = {name: field for name, field in _COLUMNS.items() if any(row[field] for row in table)}
    rows = [
        ["*" if row["chosen"] else "", *(row[each] for each in shown.values())] for row in table
    ]
    screen.print_line()
    screen.print_table(["", *shown], rows, right=["gain", "per 1 %", "share"])
    screen.print_line(reasons.options_note(decision), style="dim")
    screen.print_line()


def _show_finalists(screen: Screen, explained: Explanation) -> None:
    from culmen.report import reasons

    rows = [
        [
            "*" if each.id == explained.candidate else "",
            each.id[:8],
            reasons.believed_text(each),
            str(each.looks),
            str(each.failed),
            "initial program" if each.initial else "",
        ]
        for each in explained.finalists
    ]
    screen.print_line()
    columns = ["", "finalist", "believed score", "looks", "failed", "remark"]
    screen.print_table(columns, rows, right=["looks", "failed"])
    screen.print_line()
