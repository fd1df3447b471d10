"""Changes of a text in a few places: numbers, statements or lines, and operators."""

from __future__ import annotations

import ast
import difflib
import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from culmen.models.offline.source import (
    EditableText,
    EditContext,
    Span,
    numeral_spans,
    operator_changes,
    statement_spans,
)

_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARITHMETIC = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("sin", "cos"),
)
_SWAPPED = {"sum": "mean", "mean": "sum"} | {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}

Change = tuple[Span, str]


def exchange_operator(source: EditableText, edit: EditContext) -> str | None:
    """One operator, condition, loop range or function name exchanged for a related one."""
    if source.is_code:
        related = operator_changes(source.text, source.suffix)
        return _random_change(
            source,
            edit,
            [(span, edit.rng.choice(new)) for span, new in related if source.is_editable(*span)],
        )
    return _random_change(
        source,
        edit,
        [
            change
            for node in source.editable_nodes()
            for change in _related_changes(source, edit, node)
        ],
    )


def bound_value(source: EditableText, edit: EditContext) -> str | None:
    """One value with an upper or lower bound.

    The bound is a number of any magnitude between 0.01 and 10, or, for arrays, a level of their
    own: a multiple of their mean, or a quantile.
    """
    bound = f"{math.exp(edit.rng.uniform(math.log(0.01), math.log(10.0))):.3g}"
    changes = [
        change
        for node in source.editable_nodes()
        for change in _bound_changes(source, edit, node, bound)
    ]
    levels = _array_bound_changes(source, edit) if "np." in source.text else []
    return _random_change(source, edit, levels if levels and edit.rng.random() < 0.7 else changes)


def _random_change(source: EditableText, edit: EditContext, changes: list[Change]) -> str | None:
    return source.replace_spans(edit.rng.choice(changes)) if changes else None


def _related_changes(source: EditableText, edit: EditContext, node: ast.AST) -> Iterator[Change]:
    span, code, rng = source.node_span, source.node_text, edit.rng
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            new = rng.choice([sign for kind, sign in _COMPARE.items() if kind is not type(op)])
            yield span(node), f"{code(left)} {new} {code(right)}"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            new = rng.choice([sign for kind, sign in _ARITHMETIC.items() if kind is not type(op)])
            yield span(node), f"({code(left)}) {new} ({code(right)})"
        case ast.BoolOp(values=[left, right]):
            new = "or" if isinstance(node.op, ast.And) else "and"
            yield span(node), f"(({code(left)}) {new} ({code(right)}))"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield (
                span(test),
                rng.choice(
                    (f"not ({code(test)})", f"({code(test)}) or True", f"({code(test)}) and False")
                ),
            )
        case ast.Call(func=ast.Name(id="range"), args=[*_, last]):
            yield span(last), f"{code(last)} {rng.choice(('+ 1', '- 1', '* 2', '// 2'))}"
            yield span(node), f"reversed({code(node)})"
        case ast.Call(func=ast.Name(id=name) as func) if name in _SWAPPED:
            yield span(func), _SWAPPED[name]
        case ast.Call(func=ast.Attribute(value=owner, attr=name) as func) if name in _SWAPPED:
            yield span(func), f"{code(owner)}.{_SWAPPED[name]}"
        case _:
            return


def _bound_changes(
    source: EditableText, edit: EditContext, node: ast.AST, bound: str
) -> Iterator[Change]:
    scalar, array = edit.rng.choice(
        (("min", "np.minimum"), ("min", "np.minimum"), ("max", "np.maximum"))
    )
    match node:
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as args, keywords=[]):
            end = source.node_span(args[-1])[1]
            yield (end, end), f", {bound}"
        case ast.Assign(targets=[ast.Name() | ast.Subscript()], value=ast.expr() as value):
            if isinstance(value, ast.BinOp | ast.Call | ast.Subscript | ast.Name | ast.IfExp):
                name = array if "np." in source.text and edit.rng.random() < 0.7 else scalar
                yield source.node_span(value), f"{name}({source.node_text(value)}, {bound})"
        case _:
            return


def _array_bound_changes(source: EditableText, edit: EditContext) -> list[Change]:
    """Changes that bound each array computed outside of loops by a level of its own.

    Each is a line after the array's assignment. Lists stay lists.
    """
    changes: list[Change] = []
    loops = [
        source.node_span(node)
        for node in source.editable_nodes()
        if isinstance(node, ast.For | ast.While)
    ]
    for node in source.editable_nodes():
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.BinOp() | ast.Call() | ast.Subscript() as value,
            ):
                start, place = source.node_span(node)[0], source.line_span(node)
            case _:
                continue
        looped = any(low <= start < high for low, high in loops)
        if looped or place is None or not source.text[: place[1]].endswith("\n"):
            continue
        bound = edit.rng.choice(("np.minimum", "np.minimum", "np.maximum"))
        listed = ".tolist()" if source.node_text(value).endswith(".tolist()") else ""
        clipped = f"{bound}({name}, {_array_level(edit, name)}){listed}"
        line = f"{source.statement_indent(node)}{name} = {clipped}\n"
        changes.append(((place[1], place[1]), line))
    return changes


def _array_level(edit: EditContext, name: str) -> str:
    """A multiple of the mean, or a quantile."""
    multiple = f"{10 ** edit.rng.uniform(-0.5, 0.5):.2g} * np.mean({name})"
    return edit.rng.choice((multiple, f"np.quantile({name}, {edit.rng.random():.2g})"))


# Whole statements deleted, doubled, swapped and moved; in other texts, lines and sentences.

# as `_SENTENCE`, but a point inside of a number or a name ends none
_WHOLE_SENTENCE = re.compile(r"(?:[^.!?\n]|[.!?](?=\S))+[.!?]*[ \t]*\n?|\n")
_LIST_MARK = re.compile(r"\s*(?:[-*+>]|#+|\d+[.)])\s+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?[ \t]*\n?|\n")


def change_statement(source: EditableText, edit: EditContext) -> str | None:
    """One statement deleted, doubled, swapped with another of its block, or moved."""
    spots = [
        (body, node, at)
        for body in source.statement_lists()
        for node in body
        if (at := _movable_span(source, node))
    ]
    if not spots:
        return None
    body, node, at = edit.rng.choice(spots)
    text = _with_newline(source.text[slice(*at)])
    action = edit.rng.choice(("delete", "double", "swap", "move"))
    if action == "delete":
        return source.replace_spans(
            (at, "" if len(body) > 1 else f"{source.statement_indent(node)}pass\n")
        )
    if action == "double":
        return source.replace_spans(
            ((at[1], at[1]), text if source.text[: at[1]].endswith("\n") else "\n" + text)
        )
    if action == "swap":
        others = [place for block, _, place in spots if block is body and place != at]
        other = edit.rng.choice(others) if others else at
        return (
            source.replace_spans((at, _with_newline(source.text[slice(*other)])), (other, text))
            if others
            else None
        )
    _, target, there = edit.rng.choice(spots)
    moved = textwrap.indent(textwrap.dedent(text), source.statement_indent(target))
    removed = "" if len(body) > 1 else f"{source.statement_indent(node)}pass\n"
    return (
        None
        if at[0] <= there[0] <= at[1]
        else source.replace_spans((at, removed), ((there[0], there[0]), moved))
    )


def change_line(source: EditableText, edit: EditContext) -> str | None:
    """A change of a line or sentence, for texts other than Python.

    It is deleted, doubled, swapped or moved, or one of its words is changed. Of a program only
    lines that are a statement are deleted, doubled or swapped.
    """
    if source.tree is not None:
        return None
    if source.is_code:
        return _change_code_line(source, edit)
    pattern = _SENTENCE if edit.rng.random() < 0.3 else re.compile(r"[^\n]*\n|[^\n]+")
    units = [
        m.span()
        for m in pattern.finditer(source.text)
        if m[0].strip() and source.is_editable(*m.span())
    ]
    if not units:
        return None
    at, other = edit.rng.choice(units), edit.rng.choice(units)
    kind, two = (
        _with_newline(source.text[slice(*span)])
        if pattern is not _SENTENCE
        else source.text[slice(*span)]
        for span in (at, other)
    )
    action = edit.rng.choice(
        ("delete", "double", "swap", "move", "words", "words", "merge", "merge")
    )
    if action == "delete":
        return source.replace_spans((at, ""))
    if action == "double":
        return source.replace_spans(((at[1], at[1]), kind))
    if action in ("words", "merge"):
        return source.replace_spans((at, _reworded_line(kind, two, edit, keep=action == "merge")))
    if at == other:
        return None
    return (
        source.replace_spans((at, two), (other, kind))
        if action == "swap"
        else source.replace_spans((at, ""), ((other[0], other[0]), kind))
    )


def _change_code_line(source: EditableText, edit: EditContext) -> str | None:
    """A line that is one assignment or call is deleted, doubled or swapped with the next line.

    Another place may lack its variables.
    """
    found = statement_spans(source.text, source.suffix)
    spans = [span for span in found if source.is_editable(*span)]
    if not spans:
        return None
    at = edit.rng.randrange(len(spans))
    span, text = spans[at], source.text[slice(*spans[at])]
    action = edit.rng.choice(("delete", "double", "swap"))
    if action == "delete":
        return source.replace_spans((span, ""))
    other = spans[(at + 1) % len(spans)]
    if action == "double" or other[0] != span[1]:
        return source.replace_spans(((span[1], span[1]), text))
    return source.replace_spans((span, source.text[slice(*other)]), (other, text))


def crossover_lines(source: EditableText, edit: EditContext) -> str | None:
    """Crossover: some runs of lines that differ are taken from another candidate's text."""
    mates = [mate for mate in edit.mates if mate != source.text]
    if not mates:
        return None
    mine, theirs = (
        source.text.splitlines(keepends=True),
        edit.rng.choice(mates).splitlines(keepends=True),
    )
    starts = [0]
    for line in mine:
        starts.append(starts[-1] + len(line))
    hunks: list[tuple[Span, str]] = []
    for tag, low, high, first, last in difflib.SequenceMatcher(
        None, mine, theirs, autojunk=False
    ).get_opcodes():
        if tag != "equal" and source.is_editable(starts[low], starts[high]):
            hunks.append(((starts[low], starts[high]), "".join(theirs[first:last])))
    taken = [hunk for hunk in hunks if edit.rng.random() < 0.5] or hunks[:1]
    return source.replace_spans(*taken) if taken else None


def _movable_span(source: EditableText, node: ast.stmt) -> Span | None:
    fixed = isinstance(
        node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    )
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return None if fixed or docstring else source.line_span(node)


def _reworded_line(line: str, other: str, edit: EditContext, *, keep: bool) -> str:
    """The line with a change of one word, maybe with a word of another line.

    The word is replaced, or its whole sentence is removed: the rest of one reads as a mistake.
    With `keep` the word stays, and the other one follows it.
    """
    words = re.findall(r"\s+|[^\s]+", line)
    own = [i for i, word in enumerate(words) if not word.isspace()]
    foreign = other.split()
    if not own or not foreign:
        return line
    index = edit.rng.choice(own)
    new = edit.rng.choice(["", edit.rng.choice(foreign)])
    if not new:
        return line if keep else _without_sentence(line, sum(map(len, words[:index])))
    words[index] = f"{words[index]} {new}" if keep else new
    return "".join(words)


def _without_sentence(line: str, at: int) -> str:
    """The line without the sentence at this place; "" if no other is left.

    A list's mark stays before the others.
    """
    mark = _LIST_MARK.match(line)
    begin = mark.end() if mark else 0
    spans = [found.span() for found in _WHOLE_SENTENCE.finditer(line, begin)]
    left = "".join(line[first:last] for first, last in spans if not first <= max(at, begin) < last)
    if not left.strip():
        return ""
    end = "\n" if line.endswith("\n") and not left.endswith("\n") else ""
    return f"{line[:begin]}{left.lstrip()}{end}"


def _with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


# Numbers: one, some, or all of a list, at the scale of the step. Works on any text.

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]|\d)")
_LARGEST = 1e15


@dataclass(frozen=True)
class Literal:
    """A number of the text: its span and value (an int stays an int)."""

    span: Span
    value: int | float


def editable_literals(source: EditableText) -> list[Literal]:
    """All editable numbers: numeric constants of Python code, or numerals in other texts.

    The limits of inserted loops (keywords `calls` and `seconds`) are left out: `effort` changes
    those.
    """
    if source.tree is not None:
        timed = {id(node.value) for node in source.limit_keywords()}
        literals = [
            Literal(source.node_span(node), node.value)
            for node in source.editable_nodes()
            if id(node) not in timed
            and isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and not isinstance(node.value, bool)
        ]
    else:
        found = (
            numeral_spans(source.text, source.suffix)
            if source.is_code
            else [match.span() for match in _NUMBER.finditer(source.text)]
        )
        spans = [span for span in found if source.is_editable(*span)]
        literals = [Literal(span, parse_numeral(source.text[slice(*span)])) for span in spans]
    return [literal for literal in literals if abs(literal.value) < _LARGEST]


def change_numbers(source: EditableText, edit: EditContext) -> str | None:
    """Change one number, a few, or all numbers of one list or tuple."""
    literals = editable_literals(source)
    if not literals:
        return None
    choice = edit.rng.random()
    chosen = [edit.rng.choice(literals)]
    if choice < 0.3:
        chosen = edit.rng.sample(literals, min(len(literals), edit.rng.randint(2, 4)))
    elif choice < 0.5:
        chosen = _row_literals(source, edit, literals) or chosen
    return source.replace_spans(
        *(
            (one.span, numeral_text(source, shifted_number(one.value, literals, edit)))
            for one in chosen
        )
    )


def shifted_number(value: int | float, others: list[Literal], edit: EditContext) -> int | float:
    """A number near this one, or one found elsewhere.

    It is drawn by a log-normal factor, an additive step, or a change of sign.
    """
    rng, step = edit.rng, edit.step
    kind = rng.random()
    if kind < 0.06 and value:
        new: float = -value
    elif kind < 0.14:
        new = rng.choice(others).value
    elif kind < 0.7 and value:
        new = value * math.exp(step * rng.gauss(0, 1))
    else:
        new = value + step * rng.gauss(0, 1) * (abs(value) or 1.0)
    if isinstance(value, float):
        return float(f"{new:.{rng.choice((3, 6))}g}")
    rounded = round(new)
    return rounded if rounded != value else value + rng.choice((-1, 1))


def numeral_text(source: EditableText, value: int | float) -> str:
    """The number as text, in brackets if it is negative and in code.

    Code could otherwise bind the sign wrongly. In a language with types a whole number is not
    negative: it may be a size, an index, or without a sign.
    """
    if source.is_code:
        return (
            repr(abs(value) if isinstance(value, int) else value)
            if value >= 0 or isinstance(value, int)
            else f"({value!r})"
        )
    text = repr(value)
    return f"({text})" if value < 0 and source.tree is not None else text


def parse_numeral(text: str) -> int | float:
    """The number of a numeral."""
    return int(text) if re.fullmatch(r"-?\d+", text) and len(text) < 20 else float(text)


def _row_literals(source: EditableText, edit: EditContext, found: list[Literal]) -> list[Literal]:
    """The numbers of one bracketed list, of any depth."""
    if source.tree is not None:
        rows = [
            source.node_span(node)
            for node in source.editable_nodes()
            if isinstance(node, ast.List | ast.Tuple)
        ]
    else:
        rows = [match.span() for match in re.finditer(r"[\[(][^\[\]()]*[\])]|[^\n]+", source.text)]
    inside = [
        [one for one in found if low <= one.span[0] and one.span[1] <= high] for low, high in rows
    ]
    several = [row for row in inside if len(row) > 1]
    return edit.rng.choice(several) if several else []
