"""Output of the command line: one JSON document, or words for a person.

With `--json` standard output carries exactly one document, errors included. Without it, answers go
to standard output; progress and errors go to standard error.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from culmen.report.figures import escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


class Answer(msgspec.Struct):
    """Result of a verb.

    `data` is plain data for `--json`, `show` prints the same in words, `code` is the exit code.
    """

    data: Any
    show: Callable[[Screen], None] | None = None
    code: int = 0


class Screen:
    """Printer of answers and errors in the chosen form.

    Consoles are made when first used.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._out: Console | None = None
        self._err: Console | None = None

    @property
    def out(self) -> Console:
        """Console on standard output."""
        self._out = self._out or _make_console(stderr=False)
        return self._out

    @property
    def err(self) -> Console:
        """Console on standard error."""
        self._err = self._err or _make_console(stderr=True)
        return self._err

    @property
    def is_live(self) -> bool:
        """True if progress may be drawn: standard error is a terminal."""
        return not self.as_json and sys.stderr.isatty()

    def print_line(self, text: str = "", style: str = "") -> None:
        """Print one line to standard output, wrapped on a terminal only."""
        self.out.print(
            escape_controls(text),
            style=style or None,
            markup=False,
            soft_wrap=not self.out.is_terminal,
        )

    def print_text(self, text: str) -> None:
        """Print a text of unknown origin: exact in a pipe, harmless on a terminal."""
        sys.stdout.write(escape_controls(text) if sys.stdout.isatty() else text)
        if text and not text.endswith("\n"):
            sys.stdout.write("\n")

    def print_rule(self, title: str) -> None:
        """Print a line with a title across the page."""
        self.out.print()
        self.out.rule(
            f"[dim]{escape_controls(title).replace('[', '(')}[/]",
            align="left",
            style="dim",
            characters="─",
        )

    def print_code(self, text: str, name: str) -> None:
        """Print a program text: coloured by its file name on a terminal, exact elsewhere."""
        if not self.out.is_terminal:
            self.print_text(text)
            return
        from rich.syntax import Syntax

        lexer = Syntax.guess_lexer(name, escape_controls(text))
        self.out.print(
            Syntax(
                escape_controls(text),
                lexer,
                theme="ansi_dark",
                background_color="default",
                word_wrap=True,
            )
        )

    def print_code_line(self, text: str, style: str = "") -> None:
        """Print one line of a text whose spaces matter."""
        self.out.print(text, style=style or None, markup=False, soft_wrap=True)

    def print_definitions(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Print names with their meanings, and a remark below each."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, meaning, remark in rows:
            grid.add_row(_rich_text(name), _rich_text(meaning))
            grid.add_row("", Text(escape_controls(remark), style="dim"))
        _print_trimmed(self.out, grid)

    def print_finding(self, level: str, what: str, fix: str, style: str) -> None:
        """Print one finding of a check, with its remedy below."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style=style, width=7)
        grid.add_column(overflow="fold")
        grid.add_row(level, _rich_text(what))
        if fix:
            grid.add_row("", _rich_text(f"-> {fix}"))
        _print_trimmed(self.out, grid)

    def print_heading(self, title: str, rest: str = "") -> None:
        """Print a bold title and plain text after it."""
        from rich.text import Text

        self.out.print(
            Text(escape_controls(title), style="bold").append(
                f"  {escape_controls(rest)}" if rest else "", style="not bold"
            )
        )

    def print_prose(self, text: str) -> None:
        """Print paragraphs, wrapped to the present width."""
        for number, paragraph in enumerate(text.strip().split("\n\n")):
            if number:
                self.out.print()
            self.out.print(_rich_text(" ".join(paragraph.split())))

    def print_markdown(self, text: str) -> None:
        """Print a page: laid out on a terminal, otherwise as source."""
        if not self.out.is_terminal:
            sys.stdout.write(text)
            return
        from rich.markdown import Markdown

        self.out.print(Markdown(text))

    def print_note(self, text: str) -> None:
        """Print a remark to standard error."""
        self.err.print(f"note  {escape_controls(text)}", style="yellow", markup=False)

    def print_pairs(self, *rows: tuple[str, str], err: bool = False) -> None:
        """Print labels and values, aligned; rows without a value are left out."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for label, value in rows:
            if value:
                grid.add_row(label, _rich_text(value))
        _print_trimmed(self.err if err else self.out, grid)

    def print_table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], right: str | Sequence[str] = ()
    ) -> None:
        """Print rows under headings.

        `right` names the columns that are flush right (a string: separated by spaces). Columns that
        do not fit beside the others follow in a further table, below the first column again. If not
        even one fits beside the first, each row is a block of lines: no word is ever broken.
        """
        from rich import box
        from rich.table import Table

        cells = [list(row) for row in rows]
        right = right.split() if isinstance(right, str) else right
        if _too_narrow(columns, cells, self.out.width):
            self._print_blocks(columns, cells)
            return
        for indices in _fitting_columns(columns, cells, self.out.width):
            table = Table(
                box=box.SIMPLE_HEAD,
                pad_edge=False,
                show_edge=False,
                header_style="dim",
                padding=(0, 1, 0, 0),
            )
            for index in indices:
                flush = "right" if columns[index] in right else "left"
                table.add_column(
                    columns[index], justify=flush, no_wrap=index < len(columns) - 1, overflow="fold"
                )
            for row in cells:
                table.add_row(*(_rich_text(row[index]) for index in indices))
            _print_trimmed(self.out, table)

    def _print_blocks(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows as blocks of lines, each value behind the name of its column."""
        for row in rows:
            self.out.print(escape_controls(row[0]), style="bold", markup=False, soft_wrap=True)
            for name, value in zip(columns[1:], row[1:]):
                if value:
                    self.out.print(
                        escape_controls(f"  {name} {value}"), markup=False, soft_wrap=True
                    )

    def print_also(self, *steps: tuple[str, str]) -> None:
        """Print further commands after the next one."""
        if steps:
            self.print_next_steps(*steps, label="also")

    def print_next_steps(
        self, *steps: tuple[str, str], label: str = "next", err: bool = False
    ) -> None:
        """Print commands to type next, with the purpose of each."""
        console = self.err if err else self.out
        console.print()
        width = max(len(command) for command, _ in steps)
        for number, (command, why) in enumerate(steps):
            console.print(f"{label}  " if number == 0 else "      ", style="dim", end="")
            console.print(
                escape_controls(command), style="bold", markup=False, end="", soft_wrap=True
            )
            fits = width + len(why) + 8 <= console.width
            console.print(
                f"{' ' * (width - len(command))}  {why}" if fits else "", style="dim", markup=False
            )

    def print_answer(self, answer: Answer) -> int:
        """Print an answer; returns its exit code."""
        if self.as_json:
            self.print_document(answer.data)
        elif answer.show is not None:
            answer.show(self)
        return answer.code

    def print_document(self, data: object) -> None:
        """Print the one JSON document."""
        sys.stdout.write(json.dumps(plain_data(msgspec.to_builtins(data)), indent=2) + "\n")

    def print_error(
        self, kind: str, what: str, where: str = "", fix: str = "", **more: object
    ) -> None:
        """Print the error, its place, and the next command."""
        if self.as_json:
            self.print_document(
                {"error": {"kind": kind, "what": what, "where": where, "next": fix}, **more}
            )
            return
        self.err.print("Error: ", style="bold red", end="")
        self.err.print(escape_controls(what), markup=False, soft_wrap=True)
        for label, text in (("where", where), ("next", fix)):
            if text:
                self.err.print(f"  {label:<6} ", style="dim", end="")
                self.err.print(escape_controls(text), markup=False, soft_wrap=True)


def _too_narrow(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """True if some column does not fit beside the first one.

    The width of the last column is that of its longest word.
    """
    first, *others = _needed_widths(columns, rows)
    return first + 2 + max(others, default=0) > width


def _needed_widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width that each column needs; of the last one, that of its longest word."""
    from rich.cells import cell_len

    texts = [[name, *(row[index] for row in rows)] for index, name in enumerate(columns)]
    if len(texts) > 1:
        texts[-1] = [word for text in texts[-1] for word in text.split()]
    return [max((cell_len(escape_controls(each)) for each in some), default=0) for some in texts]


def _fitting_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[list[int]]:
    """Groups of columns that fit into `width`, each with the first column.

    The last column may wrap between words.
    """
    first, *others = (needed + 2 for needed in _needed_widths(columns, rows))  # two spaces between
    groups, space = [[0]], width + 2 - first
    for index, needed in enumerate(others, 1):
        if needed > space and len(groups[-1]) > 1:
            groups.append([0])
            space = width + 2 - first
        groups[-1].append(index)
        space -= needed
    return groups


def _print_trimmed(console: Console, table: Table) -> None:
    """Print a table; without a terminal, strip the spaces that fill its cells."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as lines:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines.get().splitlines()))


def _rich_text(value: str) -> Text:
    from rich.text import Text

    return Text(escape_controls(value))


def _make_console(stderr: bool) -> Console:
    from rich.console import Console

    class Quiet(Console):
        """Console that raises BrokenPipeError if the reader has gone."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Quiet(stderr=stderr, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 160  # columns without a terminal
    return console


def plain_data(value: object) -> object:
    """Data for JSON, which has no NaN and no infinity: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): plain_data(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(v) for v in value]
    return value
