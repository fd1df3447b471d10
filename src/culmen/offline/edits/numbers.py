"""Changing numbers, one, some, or all of a list, at the scale that the step says. Works on any text."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

from culmen.offline.edits.source import EditableText, EditContext, Span

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]|\d)")
_LARGEST = 1e15


@dataclass(frozen=True)
class Literal:
    """A number of the text: where it stands and what it is (an int stays an int)."""

    span: Span
    value: int | float


def literals(source: EditableText) -> list[Literal]:
    """All editable numbers: the numeric constants of Python code, or what looks like a number in other texts.

    What inserted loops may use (keywords `calls` and `seconds`) is not among them: `effort` sees to that.
    """
    if source.tree is not None:
        timed = {id(node.value) for node in source.allowances()}
        found = [
            Literal(source.span(node), node.value)
            for node in source.nodes()
            if id(node) not in timed
            and isinstance(node, ast.Constant)
            and isinstance(node.value, int | float)
            and not isinstance(node.value, bool)
        ]
    else:
        spans = [match.span() for match in _NUMBER.finditer(source.text) if source.allows(*match.span())]
        found = [Literal(span, read(source.text[slice(*span)])) for span in spans]
    return [literal for literal in found if abs(literal.value) < _LARGEST]


def numbers(source: EditableText, edit: EditContext) -> str | None:
    """Change one number, a few, or all numbers of one list or tuple."""
    found = literals(source)
    if not found:
        return None
    choice = edit.rng.random()
    chosen = [edit.rng.choice(found)]
    if choice < 0.3:
        chosen = edit.rng.sample(found, min(len(found), edit.rng.randint(2, 4)))
    elif choice < 0.5:
        chosen = _row(source, edit, found) or chosen
    return source.replace(*((one.span, write(source, shifted(one.value, found, edit))) for one in chosen))


def shifted(value: int | float, others: list[Literal], edit: EditContext) -> int | float:
    """Another number near this one: log-normal factor, additive step, changed sign, or a number found elsewhere."""
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
    whole = round(new)
    return whole if whole != value else value + rng.choice((-1, 1))


def write(source: EditableText, value: int | float) -> str:
    """The number as text; a negative one in brackets where code could otherwise bind it wrongly."""
    text = repr(value)
    return f"({text})" if value < 0 and source.tree is not None else text


def read(text: str) -> int | float:
    """The number a text stands for."""
    return int(text) if re.fullmatch(r"-?\d+", text) and len(text) < 20 else float(text)


def _row(source: EditableText, edit: EditContext, found: list[Literal]) -> list[Literal]:
    """The numbers of one bracketed list, of any depth."""
    if source.tree is not None:
        rows = [source.span(node) for node in source.nodes() if isinstance(node, ast.List | ast.Tuple)]
    else:
        rows = [match.span() for match in re.finditer(r"[\[(][^\[\]()]*[\])]|[^\n]+", source.text)]
    inside = [[one for one in found if low <= one.span[0] and one.span[1] <= high] for low, high in rows]
    several = [row for row in inside if len(row) > 1]
    return edit.rng.choice(several) if several else []
