"""AlphaEvolve: `culmen import alphaevolve DIR` makes task folders of its notebooks.

A notebook of AlphaEvolve's repository of problems, or of its results, has cells with data (a
construction), cells with functions, and cells that verify the data and print a value. Each of the
latter becomes a task: the initial program returns the construction, and the notebook's functions
and statements judge, in the scorer's process, what a program returns. Georgiev et al. 2025,
arXiv:2511.02864; Novikov et al. 2025, arXiv:2506.13131.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import math
import os
import re
import shutil
import subprocess
import symtable
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate.jail.scorer import Invalid
from culmen.evaluate.taskfiles.loading import toml_text

Kind = list[Any]  # the form of a construction, as JSON: ["list", ["tuple", ["int"], ["int"]]]
_NUMBERS = ("bool", "int", "float", "complex")
_ROW = 8  # items of the longest tuple that is a row, of fixed length, and no list
_PROBE_SECONDS = 600.0  # for all cells of one notebook
_LEAST_SECONDS = 60.0
_GOAL_CHARS = 8000  # of a notebook's text in a goal
_CODE_CHARS = 12_000  # of its verification there
_NAME_CHARS = 40
_PLOTS = frozenset({"matplotlib", "plotly", "seaborn", "IPython", "pylab", "ipywidgets", "google"})

# -- judging: in the scorer of an imported task -----------------------------------------------


def judge(
    verify: Callable[..., object], kinds: Mapping[str, Kind], output: object
) -> dict[str, object]:
    """The value that a verification gives a construction; raises Invalid if it refuses it."""
    values = [output] if len(kinds) == 1 else output
    if not isinstance(values, list | tuple) or len(values) != len(kinds):
        raise Invalid(f"not a tuple of {', '.join(kinds)}")
    shaped = [shaped_value(value, kinds[name], name) for name, value in zip(kinds, values)]
    try:
        number = number_of(verify(*shaped))
    except Invalid:
        raise
    except Exception as error:  # noqa: BLE001 - a verification may raise anything of an output
        text = f"{type(error).__name__}: {error}".removeprefix("AssertionError: ")
        raise Invalid(text[:2000]) from None
    if number is None or not math.isfinite(number):
        raise Invalid(f"its value is {number}")
    return {"score": number}


def require(value: object, what: str) -> None:
    """Raise Invalid if a check of the notebook's is not true."""
    if not value:
        raise Invalid(f"not true: {what}")


def number_of(value: object) -> float | None:
    """A value as one number, also of a dict with a single one; None if it is none."""
    if isinstance(value, dict):
        found = [each for item in value.values() if (each := number_of(item)) is not None]
        return found[0] if len(found) == 1 else None
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", 1) == 1:
        value = item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def kind_of(value: object) -> Kind:
    """The form of a construction; raises TypeError for what a program cannot return."""
    import numpy

    if isinstance(value, numpy.ndarray):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"an array of {value.dtype}")
        return ["array", value.dtype.name, value.ndim]
    if isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, tuple) and len(value) <= _ROW:
        return ["tuple", *map(kind_of, value)]
    if isinstance(value, list | tuple | set | frozenset):
        name = "tuples" if isinstance(value, tuple) else "set" if _is_set(value) else "list"
        return [name, _joined([kind_of(item) for item in value])]
    if isinstance(value, dict):
        return ["dict", *(_joined([kind_of(each) for each in part]) for part in _halves(value))]
    if isinstance(value, bool | int | float | complex | str):
        return [type(value).__name__]
    raise TypeError(f"a value of type {type(value).__name__}")


def _is_set(value: object) -> bool:
    return isinstance(value, set | frozenset)


def _halves(value: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(value), list(value.values())


def _joined(kinds: Sequence[Kind]) -> Kind:
    """A kind that holds all items of a list; ["any"] if there is none."""
    first: Kind = kinds[0] if kinds else ["any"]
    for other in kinds[1:]:
        if first[0] in _NUMBERS and other[0] in _NUMBERS:
            first = [max(first[0], other[0], key=_NUMBERS.index)]
        elif first[0] == other[0] == "tuple" and len(first) == len(other):
            first = ["tuple", *(_joined([a, b]) for a, b in zip(first[1:], other[1:]))]
        elif first[0] == other[0] and first[0] in ("list", "tuples", "set"):
            first = [first[0], _joined([first[1], other[1]])]
        elif first != other:
            return ["any"]
    return first


def shaped_value(value: object, kind: Kind, name: str) -> object:
    """A value in the form that the notebook's construction has; raises Invalid if it cannot be.

    Numbers are finite, whole where the construction's are; lists may have any length but 0.
    """
    head, *inner = kind
    if head in _NUMBERS:
        return _shaped_number(value, head, name)
    if head == "array":
        return _shaped_array(value, inner[0], inner[1], name)
    if head == "dict" and isinstance(value, dict) and value:
        return {
            shaped_value(key, inner[0], f"a key of {name}"): shaped_value(item, inner[1], name)
            for key, item in value.items()
        }
    if head == "any" or (head == "str" and isinstance(value, str)):
        return value
    if head not in ("list", "tuple", "tuples", "set") or not isinstance(value, list | tuple):
        raise Invalid(f"{name} is no {head}")
    if not value or (head == "tuple" and len(value) != len(inner)):
        raise Invalid(f"{name} has {len(value)} items")
    kinds = inner if head == "tuple" else inner * len(value)
    items = [shaped_value(item, each, f"an item of {name}") for item, each in zip(value, kinds)]
    return {"list": list, "set": set}.get(head, tuple)(items)


def _shaped_number(value: object, head: str, name: str) -> object:
    allowed: dict[str, tuple[type, ...]] = {
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
        "complex": (int, float, complex),
    }
    if not isinstance(value, allowed[head]) or (head != "bool" and isinstance(value, bool)):
        raise Invalid(f"{name} is no {head}")
    try:
        number = value if head in ("bool", "int") else (float, complex)[head == "complex"](value)  # pyright: ignore
    except OverflowError:
        raise Invalid(f"{name} is too large") from None
    if head != "int" and not math.isfinite(abs(number)):  # pyright: ignore[reportArgumentType]
        raise Invalid(f"{name} is not finite")
    return number


def _shaped_array(value: object, dtype: str, dimensions: int, name: str) -> object:
    import numpy

    wanted = numpy.dtype(dtype)
    fitting = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}[wanted.kind]
    try:
        array = numpy.asarray(value)
    except ValueError as error:
        raise Invalid(f"{name}: {error}") from None
    if array.dtype.kind not in fitting:
        raise Invalid(f"{name} is an array of {array.dtype}, not of {dtype}")
    if array.ndim != dimensions or not array.size:
        raise Invalid(f"{name} has shape {array.shape}, not {dimensions} dimensions")
    with numpy.errstate(over="ignore"):
        cast = array.astype(wanted)
    same = numpy.isfinite(cast).all() if wanted.kind in "fc" else (cast == array).all()
    if not same:
        raise Invalid(f"{name} has numbers that are not finite or do not fit {dtype}")
    return cast


def described(kind: Kind) -> str:
    """A kind in words."""
    head, *inner = kind
    if head == "array":
        return f"NumPy array of {inner[0]}, {inner[1]} dimension{'s' * (inner[1] != 1)}"
    if head == "tuple":
        return f"tuple ({', '.join(map(described, inner))})"
    if head in ("list", "tuples", "set"):
        return f"{head.removesuffix('s') if head == 'tuples' else head} of {described(inner[0])}"
    return "dict" if head == "dict" else "number or text" if head == "any" else head


# -- notebooks: their cells, and the statements in them ---------------------------------------


class CellError(Exception):
    """A cell cannot be imported; the arguments are a sentence and the smallest change."""


@dataclass(frozen=True)
class _Cell:
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


def read_cells(file: Path) -> list[_Cell]:
    """A notebook's cells; raises CellError for a file that is none."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))["cells"]
        texts = [("".join(each["source"]), each["cell_type"]) for each in raw]
    except (ValueError, KeyError, TypeError) as error:
        what = f"it is no notebook: {type(error).__name__}: {error}"
        raise CellError(what, f"give a file that Jupyter opens, for {file}") from None
    cells: list[_Cell] = []
    path: dict[int, str] = {}
    for number, (text, kind) in enumerate(texts, 1):
        if kind == "markdown":
            for marks, heading in re.findall(r"^(#{1,6})\s*(\S.*)$", text, re.MULTILINE):
                kept = {level: each for level, each in path.items() if level < len(marks)}
                path = {**kept, len(marks): heading.strip()}
        cells.append(_Cell(number, text, kind == "code", tuple(path.values())))
    return cells


@dataclass(frozen=True)
class _Statement:
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


def cell_statements(cell: _Cell) -> Iterator[_Statement]:
    """The statements of a code cell; raises SyntaxError."""
    lines = ["" if line[:1] in "!%" else line for line in cell.text.splitlines()]
    for node in _unwrapped(ast.parse("\n".join(lines)).body):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        whole = "\n".join(lines[first - 1 : node.end_lineno])
        text = whole if node.col_offset == 0 and ";" not in whole else ast.unparse(node)
        yield _Statement(node, cell.number, text, *global_names(node))


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
    """What `print(...)` shows, in order: expressions, with the text before each."""
    before = ""
    for value in call.args:
        parts = value.values if isinstance(value, ast.JoinedStr) else [value]
        for part in parts:
            part = part.value if isinstance(part, ast.FormattedValue) else part
            if isinstance(part, ast.Constant):
                before = str(part.value)
            else:
                yield part, before


# -- one verification: what it judges, and what it needs --------------------------------------


@dataclass
class _Shown:
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

    statements: Sequence[_Statement]
    cell: _Cell
    chosen: frozenset[str] = frozenset()  # names of the construction, if the user gives them
    score: str = ""  # the expression to improve, if the user gives it
    namespace: dict[str, Any] = field(default_factory=dict)
    rests: dict[str, frozenset[str]] = field(default_factory=dict)  # the data a name rests on
    shown: list[_Shown] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        numbers = [at for at, each in enumerate(self.statements) if each.cell == self.cell.number]
        self.start, self.end = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
        own = [at for at in numbers if not self.statements[at].is_import]
        self.own = [at for at in own if not self._plots(at)]
        active = [at for at in self.own if not self.statements[at].is_definition]
        wanted = {name for at in active for name in self.statements[at].reads}
        if self.score:
            wanted |= _names_in(ast.parse(self.score, mode="eval"))
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
        if node is not None and _names_in(node) & self.rests.keys():
            self._show(node, "", is_printed=True)
        self.seconds = time.monotonic() - begun

    def _run_statement(self, statement: _Statement) -> None:
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
        rests_on = self._rests_on(_names_in(node))
        self.shown.append(_Shown(node, label, value, rests_on, is_printed))

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
        return any(_imports(node) & _PLOTS for node in nodes)

    def constructions(self) -> list[tuple[tuple[str, ...], _Shown]]:
        """The data that are judged, each with the value that is to improve: the last one shown.

        Raises CellError if no shown number rests on data.
        """
        found: dict[tuple[str, ...], _Shown] = {}
        shown = self.shown[-1:] if self.score else self.shown
        for each in sorted(shown, key=lambda each: each.is_printed):
            if each.rests_on and not each.is_check and number_of(each.value) is not None:
                found[self._construction(each.rests_on)] = each
        data = sorted(frozenset[str]().union(*self.rests.values()))
        if not found and data:
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
        length = len(values[largest])
        taken = {name for name, value in values.items() if len(value) == length}
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

    def _only_makes(self, statement: _Statement, names: tuple[str, ...]) -> bool:
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
        return _text_of(kept) + PROGRAM.format(names=", ".join(names))

    def verification_text(self, names: tuple[str, ...], score: _Shown, others: set[str]) -> str:
        """The definitions that a verification needs, and the function `verify`."""
        made = set(self.constructing(names))
        making = {at for at in made if self.statements[at].binds & set(names)}
        body = [at for at in self.run_order if at not in made and self._judges(at, names, others)]
        checks = self._checks(body, names, others)
        reads = {name for at in body for name in self.statements[at].reads}
        reads |= _names_in(score.node)
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


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _imports(node: ast.stmt) -> set[str]:
    """The packages that a statement imports."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            found.add(each.module.partition(".")[0])
    return found


def _count_numbers(value: object) -> int:
    """How many numbers a container holds; 0 for anything else."""
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


def _text_of(statements: Sequence[_Statement]) -> str:
    """The statements as a module: imports first, blank lines around definitions."""
    ordered = sorted(statements, key=lambda each: not each.is_import)
    text = ""
    for before, each in zip([None, *ordered], ordered):
        apart = before and (each.is_definition or before.is_definition or before.is_import)
        near = before is None or (before.is_import and each.is_import) or not apart
        text += ("" if before is None else "\n" if near else "\n\n\n") + each.text.strip("\n")
    return text


# -- one notebook: its tasks; in a process of its own -----------------------------------------

PROGRAM = '''


def construct():
    """The construction that is judged."""
    return {names}
'''
EVALUATOR = '''\
"""{notebook}, cell {cell}: its statements judge {names}."""

from culmen.compat.alphaevolve import {helpers}

{verification}


KINDS = {kinds}


def score(output):
    """The value that the notebook shows; {better} is better."""
    return judge(verify, KINDS, output)
'''
_BOUNDS: dict[str, str] = {
    "min": r"upper bound|<=|≤|\\leq?\b",
    "max": r"lower bound|>=|≥|\\geq?\b",
}
_AIMS: dict[str, str] = {
    "min": r"minimi[sz]|(?:smallest|lowest) possible|as (?:small|low|short|few) as possible",
    "max": r"maximi[sz]|(?:largest|highest) possible|as (?:large|high|big|long|many) as possible",
}


def probe_notebook(
    file: Path, direction: str, score: str, construction: Sequence[str]
) -> list[JsonObject]:
    """The tasks of a notebook, or what keeps its verifications from becoming tasks.

    Raises CellError for a file that is no notebook or verifies nothing.
    """
    cells = read_cells(file)
    statements: list[_Statement] = []
    broken: list[JsonObject] = []
    for cell in cells:
        try:
            statements += cell_statements(cell) if cell.is_code else ()
        except SyntaxError as error:
            if cell.verifies:
                broken.append(_failed(cell, f"{error.msg}, line {error.lineno}", file))
    facts: list[JsonObject] = []
    for cell in cells:
        if cell.verifies:
            verification = Verification(statements, cell, frozenset(construction), score)
            facts += _cell_facts(verification, cells, file, direction)
    if not facts and not broken:
        raise CellError(
            "no cell verifies data: none that has 'verification' in its title or heading shows a "
            "value of a construction",
            "add a cell `#@title Verification` that prints the value of a construction, as "
            f"print(FUNCTION(DATA)), to {file}",
        )
    return facts + broken


def _cell_facts(
    verification: Verification, cells: Sequence[_Cell], file: Path, direction: str
) -> Iterator[JsonObject]:
    """The tasks of one cell; none if it only defines functions."""
    cell = verification.cell
    try:
        verification.run()
        found = verification.constructions()
        taken = {name for names, _ in found for name in names}
        for names, shown in found:
            others = taken - set(names)
            yield _task_facts(verification, names, shown, others, cells, file, direction)
    except CellError as error:
        yield {"cell": cell.number, "error": str(error.args[0]), "fix": str(error.args[1])}
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        fix = f"{sys.executable} -m pip install {package}"
        yield {"cell": cell.number, "error": f"cell {cell.number}: {error}", "fix": fix}
    except Exception as error:  # noqa: BLE001 - a notebook may raise anything; it becomes an answer
        yield _failed(cell, f"{type(error).__name__}: {error}", file)


def _failed(cell: _Cell, text: str, file: Path) -> JsonObject:
    what = f"cell {cell.number} ({cell.title}) does not run: {text}"[:600]
    return {"cell": cell.number, "error": what, "fix": f"correct that cell of {file}"}


def _task_facts(
    verification: Verification,
    names: tuple[str, ...],
    shown: _Shown,
    others: set[str],
    cells: Sequence[_Cell],
    file: Path,
    direction: str,
) -> JsonObject:
    """One task: its texts, tried once; raises CellError, and what its texts raise."""
    cell = verification.cell
    text = notebook_text(cells, cell)
    towards = direction or direction_of(shown.label, text)
    if not towards:
        raise CellError(
            f"cell {cell.number} ({cell.title}): nothing says whether {ast.unparse(shown.node)} "
            "should be large or small",
            "say it with --direction max or --direction min",
        )
    value = number_of(shown.value)
    if value is None or not math.isfinite(value):
        raise CellError(
            f"cell {cell.number} ({cell.title}): {ast.unparse(shown.node)} is {value}",
            f"correct the data in {file}",
        )
    kinds = {name: kind_of(verification.namespace[name]) for name in names}
    code = verification.verification_text(names, shown, others)
    evaluator = EVALUATOR.format(
        notebook=file.name,
        cell=cell.number,
        names=", ".join(names),
        helpers="judge, require" if "require(" in code else "judge",
        verification=code.strip("\n"),
        kinds=json.dumps(kinds),
        better="smaller" if towards == "min" else "larger",
    )
    program = verification.program_text(names)
    facts: JsonObject = {
        "cell": cell.number,
        "section": cell.headings[0] if cell.headings else "",
        "names": list(names),
        "kinds": {name: described(kind) for name, kind in kinds.items()},
        "expression": ast.unparse(shown.node),
        "value": value,
        "direction": towards,
        "text": text,
        "code": code,
        "program": program,
        "evaluator": evaluator,
        "packages": sorted(_outside_packages(program)),
        "seconds": verification.seconds,
    }
    return facts | _tried(program, evaluator, value, towards, cell)


def _tried(program: str, evaluator: str, value: float, direction: str, cell: _Cell) -> JsonObject:
    """Weaknesses of a task's verification; raises CellError if its texts give another value."""
    from culmen.compat.algotune import cheap_answers
    from culmen.evaluate.jail import wire

    judging: dict[str, Any] = {"__name__": "evaluator"}
    making: dict[str, Any] = {"__name__": "program"}
    sign = -1 if direction == "min" else 1
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(program, "program.py", "exec"), making)
        exec(compile(evaluator, "evaluator.py", "exec"), judging)
        made = making["construct"]()
        found = judging["score"](wire.decode(wire.encode(made)))["score"]
        if not math.isclose(found, value, rel_tol=1e-9, abs_tol=1e-12):
            raise CellError(
                f"cell {cell.number} ({cell.title}): the value is {value!r} in the notebook and "
                f"{found!r} outside of it",
                "leave the notebook out: cells change what other cells read",
            )
        weak = []
        for name, answer in cheap_answers(made).items():
            with contextlib.suppress(Invalid):
                got = judging["score"](wire.decode(wire.encode(answer)))["score"]
                weak += [f"{name} ({got:.6g})"] if sign * got >= sign * value else []
    return {"weak": weak}


def _outside_packages(program: str) -> set[str]:
    return _imports(ast.parse(program)) - set(sys.stdlib_module_names)  # pyright: ignore


def notebook_text(cells: Sequence[_Cell], cell: _Cell) -> str:
    """The notebook's words on a cell: its section, or the headings above it if that is long."""
    words = [each for each in cells if not each.is_code and "Apache License" not in each.text]
    section = [each for each in words if each.headings[:1] == cell.headings[:1]]
    above = [each for each in section if each.headings == cell.headings[: len(each.headings)]]
    whole = "\n\n".join(each.text.strip() for each in section)
    if len(whole) > _GOAL_CHARS:
        whole = "\n\n".join(each.text.strip() for each in above)
    return re.sub(r"!\[[^\]]*\]\([^)]*\)", "", whole)[:_GOAL_CHARS]


def direction_of(label: str, text: str) -> str:
    """The direction that a value's label (a bound) or the notebook's text names; "" if none."""
    for patterns, words in ((_BOUNDS, label), (_AIMS, text)):
        named = [key for key, each in patterns.items() if re.search(each, words, re.IGNORECASE)]
        if len(named) == 1:
            return named[0]
    return ""


def run_probe() -> None:
    """Entry point of the probe's process: a notebook and options in, one JSON document out."""
    out, sys.stdout = sys.stdout, sys.stderr
    asked = json.loads(sys.argv[2])
    try:
        answer = probe_notebook(Path(sys.argv[1]), **asked)
    except CellError as error:
        answer = [{"cell": 0, "error": str(error.args[0]), "fix": str(error.args[1])}]
    out.write(json.dumps(answer))
    out.flush()
    os._exit(0)


# -- the import -------------------------------------------------------------------------------

SETTINGS = """\
# {notebook}, cell {cell} (see LICENSE). The notebook's own construction has {value!r}.
name = {quoted}
goal = {goal}

[seed]
files = ["program.py"]

[evaluator]
entry = "construct"
packages = {packages}
optional_packages = ["scipy"]

[objective]
direction = "{direction}"

[limits]
seconds = 60
output_kb = 65536
scorer_seconds = {seconds}
"""
GOAL = """\
Write program.py with a function construct() that returns {kinds}. The score is `{expression}`, \
{better} is better; the construction that program.py has at first scores {value:.9g}.

{text}

A construction counts if verify accepts it, whatever the text above says of functions and times:

{code}
"""


class ImportedNotebook(msgspec.Struct):
    """The result of importing one verification; `error` and `fix` are "" if it worked."""

    name: str
    folder: str = ""
    cell: int = 0
    construction: list[str] = []
    expression: str = ""
    value: float = 0.0
    direction: str = ""
    weak: list[str] = []
    error: str = ""
    fix: str = ""


@dataclass(frozen=True)
class NotebookOptions:
    """What the user says about notebooks: "" and () leave it to them."""

    direction: str = ""
    score: str = ""
    construction: tuple[str, ...] = ()


def notebook_files(checkout: Path, names: Sequence[str]) -> dict[str, Path]:
    """The notebooks by name: all of a checkout, or those named; raises `UserError`."""
    found = {path.stem: path for path in sorted(checkout.rglob("*.ipynb"))}
    if checkout.suffix == ".ipynb" and checkout.is_file():
        found = {checkout.stem: checkout}
    if not found:
        raise UserError(
            "no notebook is here: there is no file .ipynb",
            where=str(checkout),
            fix="give a checkout: git clone "
            "https://github.com/google-deepmind/alphaevolve_repository_of_problems",
        )
    for name in names:
        if name not in found:
            from culmen.evaluate.taskfiles.reading import one_of

            fix = one_of(name, found)
            raise UserError(f"there is no notebook '{name}'", where=str(checkout), fix=fix)
    return {name: found[name] for name in names or found}


def options_of(direction: str, score: str, construction: str) -> NotebookOptions:
    """Options from the command line's words; raises `UserError`."""
    if direction not in ("", "max", "min"):
        raise UserError(f"no direction: {direction}", where="--direction", fix="use max or min")
    try:
        ast.parse(score or "0", mode="eval")
    except SyntaxError as error:
        fix = 'give an expression of Python: --score "len(points)"'
        raise UserError(f"{error.msg}: {score}", where="--score", fix=fix) from None
    names = tuple(each.strip() for each in construction.split(",") if each.strip())
    return NotebookOptions(direction, score, names)


def import_notebook(
    name: str, file: Path, options: NotebookOptions
) -> list[tuple[ImportedNotebook, JsonObject]]:
    """The tasks of one notebook with their facts, not written yet, and what cannot be imported."""
    facts = _probe(file, options)
    fine = [each for each in facts if "error" not in each]
    names = iter(_task_names(name, fine))
    done: list[tuple[ImportedNotebook, JsonObject]] = []
    for each in facts:
        if "error" in each:
            error = f"{file}: {each['error']}"
            failed = ImportedNotebook(name, cell=each["cell"], error=error, fix=each["fix"])
            done.append((failed, {}))
            continue
        measured = each["expression"], each["value"], each["direction"], each["weak"]
        found = ImportedNotebook(next(names), "", each["cell"], each["names"], *measured)
        done.append((found, each))
    return done


def _task_names(name: str, facts: Sequence[JsonObject]) -> list[str]:
    """Names of tasks: the notebook's, its section's if it has several, and the construction's."""
    sections = {each["section"] for each in facts}
    bases = [_slug(each["section"]) if len(sections) > 1 else name for each in facts]
    found: list[str] = []
    for base, each in zip(bases, facts):
        wanted = f"{base}_{each['names'][0]}" if bases.count(base) > 1 else base
        again = sum(other == wanted or other.startswith(f"{wanted}-") for other in found)
        found.append(f"{wanted}-{again + 1}" if again else wanted)
    return found


def _slug(text: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return words if len(words) <= _NAME_CHARS else words[: words[:_NAME_CHARS].rfind("_")]


def write_task(found: ImportedNotebook, facts: JsonObject, target: Path, checkout: Path) -> None:
    """Write the task folder of one verification into `target`, which is replaced."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    if (checkout / "LICENSE").is_file():
        shutil.copyfile(checkout / "LICENSE", target / "LICENSE")
    kinds = [f"{name} ({kind})" for name, kind in facts["kinds"].items()]
    goal = GOAL.format(
        kinds=("the tuple " if len(kinds) > 1 else "") + ", ".join(kinds),
        expression=facts["expression"],
        better="smaller" if facts["direction"] == "min" else "larger",
        value=facts["value"],
        text=facts["text"],
        code=facts["code"][:_CODE_CHARS].strip(),
    )
    settings = SETTINGS.format(
        notebook=facts["notebook"],
        cell=found.cell,
        value=facts["value"],
        quoted=json.dumps(found.name),
        goal=toml_text(goal),
        packages=json.dumps(sorted({"numpy", *facts["packages"]})),
        direction=facts["direction"],
        seconds=math.ceil(max(_LEAST_SECONDS, 10 * facts["seconds"])),
    )
    texts = {"task.toml": settings}
    texts |= {"program.py": facts["program"], "evaluator.py": facts["evaluator"]}
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    found.folder = str(target)


def _probe(file: Path, options: NotebookOptions) -> list[JsonObject]:
    """The answer of `run_probe`, or what went wrong with its process."""
    line = [sys.executable, "-c", f"from {__name__} import run_probe; run_probe()"]
    asked = {
        "direction": options.direction,
        "score": options.score,
        "construction": options.construction,
    }
    try:
        ran = subprocess.run(
            [*line, str(file), json.dumps(asked)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
        answer: list[JsonObject] = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        what = f"its cells did not end within {_PROBE_SECONDS:g} s"
        return [{"cell": 0, "error": what, "fix": "leave the notebook out"}]
    except ValueError:
        last = ran.stderr.strip().splitlines()[-1:] or [f"status {ran.returncode}"]
        what = f"the process that ran its cells ended: {last[0]}"
        return [{"cell": 0, "error": what, "fix": f"correct {file}, or leave it out"}]
    return [each | {"notebook": file.name} for each in answer]
