"""Tables of comparisons and analyses as LaTeX or Markdown, for a paper or a README.

`MarkupScreen` prints what a `Screen` prints: tables in the notation, sentences as its comments or
paragraphs, and no commands to type next.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import typer

from culmen.cli.screen import Screen
from culmen.core.errors import UserError
from culmen.report.figures import escape_controls

Notation = Literal["latex", "markdown"]

Latex = Annotated[bool, typer.Option("--latex", help="Print the tables as LaTeX (booktabs).")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_NEGATIVE = re.compile(r"(?<![\w.)])-(?=\d)")


def chosen_notation(latex: bool, markdown: bool) -> Notation | None:
    """The notation that the two options ask for; None without any."""
    if latex and markdown:
        raise UserError(
            "LaTeX and Markdown are two outputs",
            where="--latex --markdown",
            fix="give one of them",
        )
    return "latex" if latex else "markdown" if markdown else None


def latex_text(text: str) -> str:
    """A text with LaTeX's special characters escaped and minus signs before numbers."""
    return "".join(_LATEX.get(sign, sign) for sign in _NEGATIVE.sub("−", text))


def latex_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> str:
    """A `tabular` with the rules of the package booktabs."""
    flush = "".join("r" if name in right else "l" for name in columns)
    head, *body = (
        " & ".join(latex_text(cell.strip()) for cell in row) + r" \\" for row in (columns, *rows)
    )
    lines = [rf"\begin{{tabular}}{{{flush}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*lines, *body, r"\bottomrule", r"\end{tabular}"])


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]
) -> str:
    """A table in Markdown's pipe notation."""
    rule = ["---:" if name in right else "---" for name in columns]
    lines = [[cell.strip().replace("|", r"\|") for cell in row] for row in (columns, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (lines[0], rule, *lines[1:]))


class MarkupScreen(Screen):
    """A screen that prints in a notation."""

    def __init__(self, notation: Notation) -> None:
        super().__init__()
        self._latex = notation == "latex"

    def print_line(self, text: str = "", style: str = "") -> None:
        """Print a sentence: a comment in LaTeX, a paragraph in Markdown."""
        text = escape_controls(text).replace("\n", " ")
        if text:
            sys.stdout.write(f"% {text}\n" if self._latex else f"{text}\n\n")

    def print_rule(self, title: str) -> None:
        """Print the title of a section."""
        sys.stdout.write(f"\n% {title}\n" if self._latex else f"## {title}\n\n")

    def print_heading(self, title: str, rest: str = "") -> None:
        """Print the title of a table."""
        self.print_line(title if self._latex else f"**{title}** {rest}".strip())

    def print_table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], right: str | Sequence[str] = ()
    ) -> None:
        """Print a table; however wide, it stays one."""
        flush = right.split() if isinstance(right, str) else right
        cells = [[escape_controls(cell) for cell in row] for row in rows]
        table = (latex_table if self._latex else markdown_table)(columns, cells, flush)
        sys.stdout.write(f"{table}\n\n")

    def print_next_steps(self, *steps: tuple[str, str], label: str = "next") -> None:
        """No-op: commands to type are no part of a paper."""
