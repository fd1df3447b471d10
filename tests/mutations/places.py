"""Places of a text where one small change makes another program, and the changed text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Place(NamedTuple):
    """A node of the syntax tree by its number, with its position and its change.

    The number is that in the order of `ast.walk`.
    """

    number: int
    line: int
    column: int
    change: str


def places_of(text: str) -> list[Place]:
    """All places of a module, annotations and what only type checkers read left out."""
    tree = ast.parse(text)
    passive = _passive(tree)
    found: list[Place] = []
    for number, node in enumerate(ast.walk(tree)):
        if node not in passive:
            found += [
                Place(number, node.lineno, node.col_offset, change) for change in _changes(node)
            ]  # pyright: ignore
    return found


def mutated(text: str, place: Place) -> ast.Module:
    """The module with this change."""
    tree = ast.parse(text)
    for number, node in enumerate(ast.walk(tree)):
        if number == place.number:
            _change(node, place.change)
    return ast.fix_missing_locations(tree)


def _passive(tree: ast.Module) -> set[ast.AST]:
    """Nodes that do nothing when the program runs."""
    quiet: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            quiet.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            quiet.append(node.returns)
        elif (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            quiet.append(node)
    return {inner for node in quiet for inner in ast.walk(node)}


def _changes(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op]) | ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in _SWAPS:
            yield f"{type(op).__name__}->{_SWAPS[type(op)].__name__}"
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition negated"
        case ast.Constant(value=value) if type(value) in (int, float):
            yield f"{value}->{_other(value)}"  # type: ignore[arg-type]
        case ast.Expr(value=ast.Call()):
            yield "call left out"
        case _:
            return


def _other(value: float) -> float:
    return value + 1 if isinstance(value, int) else value * 2 or 1.0


def _change(node: ast.AST, change: str) -> None:
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [_SWAPS[type(op)]()]  # type: ignore[list-item]
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            node.op = _SWAPS[type(op)]()  # type: ignore[assignment]
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=int() | float() as value):
            node.value = _other(value)
        case ast.Expr():
            node.value = ast.Constant(None)
        case _:
            raise ValueError(f"nothing to change: {change}")
