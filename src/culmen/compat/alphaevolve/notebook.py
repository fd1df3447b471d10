"""Notebooks as cells and statements, and the part of one that verifies a construction.

A cell that verifies is run once, after the statements that it needs, to see which data it reads
and which values it shows. What makes the data is the initial program; what depends on them in the
cell is the verification.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import symtable
import textwrap
import time
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from culmen.compat.alphaevolve.judging import number_of

PROGRAM = '''\
{imports}


# EVOLVE-BLOCK-START
{data}


def construct():
    """The construction that is judged."""
    return {names}
# EVOLVE-BLOCK-END
'''
_ASKED = "asked for"  # label of the expression that the user gives
_PLOTS = frozenset({"matplotlib", "plotly", "seaborn", "IPython", "pylab", "ipywidgets", "google"})


class CellError(Exception):
    """A cell cannot be imported; the arguments are a sentence and the smallest change."""


@dataclass(frozen=True)
class NotebookCell:
    """A cell, with the headings above it, the largest first."""

    number: int
    text: str
    is_code: bool
    headings: tuple[str, ...]

    @property
    def title(self) -> str:
        """The title in Colab's form, or the nearest heading."""
        found = re.search(r"^#\s*@title\s*(.*)$", self.text, re.MULTILINE)
        return found[1].strip() if found and self.is_code else ("", *self.headings)[-1]

    @property
    def verifies(self) -> bool:
        """True if its title says that it verifies something."""
        return self.is_code and "verif" in self.title.lower()


def read_cells(file: Path) -> list[NotebookCell]:
    """A notebook's cells; raises CellError for a file that is none."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))["cells"]
        texts = [("".join(each["source"]), each["cell_type"]) for each in raw]
    except (ValueError, KeyError, TypeError) as error:
        what = f"it is no notebook: {type(error).__name__}: {error}"
        raise CellError(what, f"give a file that Jupyter opens, for {file}") from None
    cells: list[NotebookCell] = []
    path: dict[int, str] = {}
    for number, (text, kind) in enumerate(texts, 1):
        if kind == "markdown":
            for marks, heading in re.findall(r"^(#{1,6})\s*(\S.*)$", text, re.MULTILINE):
                kept = {level: each for level, each in path.items() if level < len(marks)}
                path = {**kept, len(marks): heading.strip()}
        cells.append(NotebookCell(number, text, kind == "code", tuple(path.values())))
    return cells


@dataclass(frozen=True)
class CellStatement:
    """A statement of a code cell, with the global names that it reads and binds."""

    node: ast.stmt
    cell: int
    text: str
    reads: frozenset[str]
    binds: frozenset[str]

    @property
    def is_definition(self) -> bool:
        return isinstance(self.node, ast.FunctionDef | ast.ClassDef)

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom)

    @property
    def call(self) -> ast.Call | None:
        """The call, if it is nothing else."""
        value = self.node.value if isinstance(self.node, ast.Expr) else None
        return value if isinstance(value, ast.Call) else None

    @property
    def prints(self) -> bool:
        return self.call is not None and ast.unparse(self.call.func) == "print"


def cell_statements(cell: NotebookCell) -> Iterator[CellStatement]:
    """The statements of a code cell; raises SyntaxError."""
    lines = ["" if line[:1] in "!%" else line for line in cell.text.splitlines()]
    for node in _unwrapped(ast.parse("\n".join(lines)).body):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        whole = "\n".join(lines[first - 1 : node.end_lineno])
        text = whole if node.col_offset == 0 and ";" not in whole else ast.unparse(node)
        yield CellStatement(node, cell.number, text, *global_names(node))


def _unwrapped(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, with those below `if __name__ == "__main__"` in its place."""
    for node in nodes:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield from _unwrapped(node.body)
        else:
            yield node


def global_names(node: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """The global names that a statement reads, and those that it binds or changes."""
    table = symtable.symtable(ast.unparse(node), "cell", "exec")
    reads = {each.get_name() for each in table.get_symbols() if each.is_referenced()}
    binds = {
        each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()
    }
    for inner in _inner_tables(table):
        reads |= {s.get_name() for s in inner.get_symbols() if s.is_global() and s.is_referenced()}
    return frozenset(reads), frozenset(binds | _changed_names(node))


def _inner_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for each in table.get_children():
        yield each
        yield from _inner_tables(each)


def _changed_names(node: ast.stmt) -> set[str]:
    """Names whose value a statement changes in place: `name[0] = 1`, `name.append(1)`."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        targets = [node.value.func]
    values = [each.value for each in targets if isinstance(each, ast.Subscript | ast.Attribute)]
    return {each.id for each in values if isinstance(each, ast.Name)}


def shown_values(call: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    """The expressions that `print(...)` shows, in order, with the text before each."""
    before = ""
    for value in call.args:
        parts = value.values if isinstance(value, ast.JoinedStr) else [value]
        for part in parts:
            part = part.value if isinstance(part, ast.FormattedValue) else part
            if isinstance(part, ast.Constant):
                before = str(part.value)
            else:
                yield part, before


@dataclass
class ShownValue:
    """A value that a cell prints, or a call of it that returns one."""

    node: ast.expr
    label: str
    value: object
    rests_on: frozenset[str]
    is_printed: bool

    @property
    def is_check(self) -> bool:
        return type(self.value).__name__ in ("bool", "bool_")


@dataclass
class Verification:
    """A cell that verifies, run once: the data that it reads, and what it shows of them."""

    statements: Sequence[CellStatement]
    cell: NotebookCell
    chosen: frozenset[str] = frozenset()  # names of the construction, if the user gives them
    score: str = ""  # the expression to improve, if the user gives it
    namespace: dict[str, object] = field(default_factory=dict)
    rests: dict[str, frozenset[str]] = field(default_factory=dict)  # the data a name rests on
    shown: list[ShownValue] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        numbers = [at for at, each in enumerate(self.statements) if each.cell == self.cell.number]
        self.start, self.end = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
        own = [at for at in numbers if not self.statements[at].is_import]
        self.own = [at for at in own if not self._plots(at)]
        active = [at for at in self.own if not self.statements[at].is_definition]
        wanted = {name for at in active for name in self.statements[at].reads}
        if self.score:
            wanted |= names_in(ast.parse(self.score, mode="eval"))
        run = {*active, *self._needed(wanted | self.chosen, self.end)} if active else set[int]()
        # a cell may use what a later one imports: all have run in the notebook before
        self.run_order = sorted(run, key=lambda at: (not self.statements[at].is_import, at))

    def run(self) -> None:
        """Run the statements; raises what they raise."""
        begun = time.monotonic()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for at in self.run_order:
                self._run_statement(self.statements[at])
        node = ast.parse(self.score, mode="eval").body if self.score else None
        if node is not None and names_in(node) & self.rests.keys():
            self._show(node, _ASKED, is_printed=True)
        self.seconds = time.monotonic() - begun

    def _run_statement(self, statement: CellStatement) -> None:
        node = statement.node
        if statement.cell == self.cell.number and isinstance(node, ast.Expr):
            call = statement.call
            values = shown_values(call) if call and statement.prints else [(node.value, "")]
            for value, label in values:
                self._show(value, label, call is None or statement.prints)
        elif not statement.prints:
            module = ast.Module([statement.node], [])
            exec(compile(module, f"cell {statement.cell}", "exec"), self.namespace)
        rests_on = self._rests_on(statement.reads)
        for name in sorted(statement.binds, key=statement.text.find):
            if rests_on and not statement.is_import:
                self.rests[name] = rests_on
            elif name in self.chosen or _holds_numbers(self.namespace.get(name)):
                self.rests[name] = frozenset({name})

    def _show(self, node: ast.expr, label: str, is_printed: bool) -> None:
        code = compile(ast.Expression(node), f"cell {self.cell.number}", "eval")
        value = eval(code, self.namespace)
        rests_on = self._rests_on(names_in(node))
        self.shown.append(ShownValue(node, label, value, rests_on, is_printed))

    def _rests_on(self, names: frozenset[str] | set[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.rests.get(name, ()) for name in names))

    def _binders(self, name: str, before: int) -> list[int]:
        """The statements that give a name its value: the last one, or all if they import it."""
        found = [at for at in range(before) if name in self.statements[at].binds]
        if not found:
            later = range(before, len(self.statements))
            found = [
                at
                for at in later
                if self.statements[at].is_import and name in self.statements[at].binds
            ][:1]
        if found and self.statements[found[-1]].is_import:
            return [at for at in found if self.statements[at].is_import]
        return found[-1:]

    def _needed(
        self, names: frozenset[str] | set[str], before: int, stop: frozenset[int] = frozenset()
    ) -> set[int]:
        """The statements that these names need for their values, without those in `stop`."""
        needed: set[int] = set()
        left = [(name, before) for name in names]
        while left:
            name, place = left.pop()
            for at in self._binders(name, place):
                if at in needed or at in stop:
                    continue
                needed.add(at)
                # a function reads globals when it is called
                own = before if self.statements[at].is_definition else at
                left += [(each, own) for each in self.statements[at].reads]
        return needed

    def _plots(self, at: int) -> bool:
        needed = {at, *self._needed(self.statements[at].reads, self.end)}
        nodes = [self.statements[each].node for each in needed]
        return any(imported_packages(node) & _PLOTS for node in nodes)

    def constructions(self) -> list[tuple[tuple[str, ...], ShownValue]]:
        """The data that are judged, each with the value that is to improve: the last one shown.

        Raises CellError if no shown number rests on data.
        """
        found: dict[tuple[str, ...], ShownValue] = {}
        shown = [each for each in self.shown if each.label == _ASKED] if self.score else self.shown
        for each in sorted(shown, key=lambda each: each.is_printed):
            if each.rests_on and not each.is_check and number_of(each.value) is not None:
                found[self._construction(each.rests_on)] = each
        data = sorted(frozenset[str]().union(*self.rests.values()))
        if not found and data and not self.score:
            names = ",".join(data)
            raise CellError(
                f"cell {self.cell.number} ({self.cell.title}) shows no number of {names}",
                "name the number with --score EXPRESSION, or the data with --construction NAME,...",
            )
        return list(found.items())

    def _construction(self, rests_on: frozenset[str]) -> tuple[str, ...]:
        """The names that a program returns: chosen ones, or the largest and those of its length."""
        if self.chosen:
            return tuple(name for name in self.rests if name in self.chosen)
        values = {name: self.namespace[name] for name in self.rests if name in rests_on}
        largest = max(values, key=lambda name: _count_numbers(values[name]))
        lengths = {name: len(cast(Sized, value)) for name, value in values.items()}
        taken = {name for name in values if lengths[name] == lengths[largest]}
        for at in self.run_order:  # what one statement makes belongs together
            binds = self.statements[at].binds & values.keys()
            taken |= binds if binds & taken else frozenset()
        return tuple(name for name in values if name in taken)

    def constructing(self, names: tuple[str, ...]) -> list[int]:
        """The statements that make the construction, in order."""
        making = [
            at
            for at in self.run_order
            if self.statements[at].binds & set(names)
            and (at < self.start or self._only_makes(self.statements[at], names))
        ]
        needed = [self._needed(self.statements[at].reads, at) for at in making]
        return sorted(set(making).union(*needed))

    def _only_makes(self, statement: CellStatement, names: tuple[str, ...]) -> bool:
        """True if a statement of the cell makes data, or sets their items to values of its own."""
        sets_items = isinstance(statement.node, ast.Assign) and not any(
            isinstance(each, ast.Name) for each in statement.node.targets
        )
        reads = statement.reads - set(names) if sets_items else statement.reads
        return not self._rests_on(reads)

    def program_text(self, names: tuple[str, ...]) -> str:
        """The initial program."""
        made = self.constructing(names)
        kept = [self.statements[at] for at in made if not self.statements[at].prints]
        imports, rest = (
            _text_of([each for each in kept if each.is_import is wanted])
            for wanted in (True, False)
        )
        text = PROGRAM.format(imports=imports, data=rest.strip("\n"), names=", ".join(names))
        return text.lstrip("\n")

    def verification_text(self, names: tuple[str, ...], score: ShownValue, others: set[str]) -> str:
        """The definitions that a verification needs, and the function `verify`."""
        made = set(self.constructing(names))
        making = {at for at in made if self.statements[at].binds & set(names)}
        body = [at for at in self.run_order if at not in made and self._judges(at, names, others)]
        checks = self._checks(body, names, others)
        reads = {name for at in body for name in self.statements[at].reads}
        reads |= names_in(score.node)
        stop = frozenset({*body, *making})
        needed = [self.statements[at] for at in sorted(self._needed(reads, self.end, stop))]
        head = _text_of([each for each in needed if not each.prints])
        lines = [ast.unparse(self.statements[at].node) for at in body]
        lines += [f"require({text}, {json.dumps(text, ensure_ascii=False)})" for text in checks]
        lines.append(f"return {ast.unparse(score.node)}")
        inner = textwrap.indent("\n".join(lines), "    ")
        return f"{head}\n\n\ndef verify({', '.join(names)}):\n{inner}\n"

    def _judges(self, at: int, names: tuple[str, ...], others: set[str]) -> bool:
        """True if a statement of the cell belongs to the verification of these names."""
        statement = self.statements[at]
        rests_on = self._rests_on(statement.reads)
        if not rests_on & set(names) or rests_on & others or statement.prints:
            return False
        shown = [each for each in self.shown if each.node is getattr(statement.node, "value", None)]
        return not any(each.is_check for each in shown)

    def _checks(self, body: list[int], names: tuple[str, ...], others: set[str]) -> list[str]:
        """The expressions of truth values in the cell, which must stay what they are."""
        found = {
            ast.unparse(each.node): bool(each.value)
            for each in self.shown
            if each.is_check and each.rests_on & set(names) and not each.rests_on & others
        }
        for at in body:
            statement = self.statements[at]
            for name in sorted(statement.binds, key=statement.text.find):
                if isinstance(value := self.namespace.get(name), bool):
                    found.setdefault(name, value)
        return [text if value else f"not ({text})" for text, value in found.items()]


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def imported_packages(node: ast.AST) -> set[str]:
    """The packages that a statement imports."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            found.add(each.module.partition(".")[0])
    return found


def _count_numbers(value: object) -> int:
    """The count of numbers in a container; 0 for anything else."""
    if isinstance(getattr(value, "ndim", None), int):
        return int(value.size)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, dict):
        return sum(map(_count_numbers, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return sum(_count_numbers(item) for item in value)
    return int(isinstance(value, int | float | complex))


def _holds_numbers(value: object) -> bool:
    dimensions = getattr(value, "ndim", 0)
    is_array = isinstance(dimensions, int) and dimensions > 0
    sized = is_array or isinstance(value, list | tuple | set | frozenset | dict)
    return sized and _count_numbers(value) > 0


def _text_of(statements: Sequence[CellStatement]) -> str:
    """The statements as a module: imports first, blank lines around definitions."""
    ordered = sorted(statements, key=lambda each: not each.is_import)
    text = ""
    for before, each in zip([None, *ordered], ordered):
        apart = before and (each.is_definition or before.is_definition or before.is_import)
        near = before is None or (before.is_import and each.is_import) or not apart
        text += ("" if before is None else "\n" if near else "\n\n\n") + each.text.strip("\n")
    return text
