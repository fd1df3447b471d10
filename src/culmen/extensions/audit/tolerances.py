"""Tolerances in the text of an evaluator.

An evaluator tolerates violations by tiny numbers in its comparisons, by rounding, by arithmetic in
single precision, and by comparisons with NaN, which are never true. All are found in the syntax
tree; no code is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

import msgspec

from culmen.core.foreign import parse_python_or_none
from culmen.core.task import Task

_LARGEST = 1e-2  # largest constant that counts as a tolerance
_NAMED = re.compile(r"tol|slack|eps|margin|threshold", re.I)
DEFAULT_SIZES = {"isclose": 1e-5, "allclose": 1e-5}  # relative tolerances of numpy
_EXTREMES = {"min", "max", "minimum", "maximum", "clip", "fmin", "fmax"}
_IGNORING_NAN = re.compile(r"nan\w+|fmin|fmax")
FIGURES_BY_TYPE = {"float32": 9, "single": 9, "f4": 9, "float16": 5, "half": 5, "f2": 5}
"""Significant digits whose rounding error is a tenth of that of the type."""
_ORDERING = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)

# -- the evaluator's text


def with_tolerance_flag(task: Task) -> Task:
    """The task, with a flag for tolerances in its evaluator's text (`Evaluator.tolerances`).

    Without one no evaluations need be kept to test a tolerance. Evaluators that are not Python and
    those with an exact verifier are unchanged.
    """
    evaluator = task.evaluator
    if not evaluator.is_python or evaluator.verifier or not Path(evaluator.path).is_file():
        return task
    sources = evaluator_sources(task)
    present = bool(tolerance_lines(sources))
    changed = msgspec.structs.replace(evaluator, tolerances=present)
    return msgspec.structs.replace(task, evaluator=changed)


def evaluator_sources(task: Task) -> dict[str, str]:
    """Texts of the evaluator and of the modules beside it that it imports, by file name."""
    if not task.evaluator.path:
        return {}
    path = Path(task.evaluator.path)
    main = path.read_text(encoding="utf-8", errors="replace")
    skipped = {path.name, Path(task.evaluator.verifier).name}
    siblings = [each for each in sorted(path.parent.glob("*.py")) if each.name not in skipped]
    imported = [each for each in siblings if f"import {each.stem}" in main]
    imported += [each for each in siblings if f"from {each.stem} " in main]
    files = {each.name: each.read_text(encoding="utf-8", errors="replace") for each in imported}
    return {path.name: main, **files}


def syntax_tree(text: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is not Python."""
    return parse_python_or_none(text)


# -- tolerances in it


class Constant:
    """A tolerance in a text: the expression that makes it."""

    def __init__(self, file: str, node: ast.expr) -> None:
        self.file, self.node, self.line = file, node, node.lineno


def tolerance_lines(sources: Mapping[str, str]) -> list[tuple[str, int]]:
    """File and line of every tolerance.

    Comparisons that NaN passes count only if the sources never test for finite numbers.
    """
    lines = [
        (each.file, each.line)
        for file, text in sources.items()
        for each in tolerance_constants(file, text)
    ]
    if any(word in text for text in sources.values() for word in ("isfinite", "isnan")):
        return lines
    trees = {file: syntax_tree(text) for file, text in sources.items()}
    return lines + [
        (file, line) for file, tree in trees.items() if tree for line in ordering_lines(tree)
    ]


def ordering_lines(tree: ast.AST) -> list[int]:
    """Lines that NaN passes: comparisons of sizes, and functions of numpy that leave it out."""
    return sorted(
        {
            node.lineno
            for node in ast.walk(tree)
            if is_ordering(node) or (isinstance(node, ast.Call) and leaves_nan_out(node))
        }
    )


def leaves_nan_out(node: ast.Call) -> bool:
    return is_of_numpy(node) and bool(_IGNORING_NAN.fullmatch(called_name(node)))


def is_ordering(node: ast.AST) -> TypeGuard[ast.Compare]:
    return isinstance(node, ast.Compare) and any(isinstance(op, _ORDERING) for op in node.ops)


def tolerance_constants(file: str, text: str) -> list[Constant]:
    """Tolerances of a text by their place: numbers, calls that round, types of low precision."""
    tree = syntax_tree(text)
    nodes = {} if tree is None else {place_of(node): node for node in tolerance_numbers(tree)}
    return [Constant(file, nodes[place]) for place in sorted(nodes)]


def place_of(node: ast.expr) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def tolerance_numbers(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions of a module that are tolerances; a call without one is its own."""
    used = _compared_names(tree)
    for node in ast.walk(tree):
        yield from _tolerance_nodes(node, used)


def _compared_names(tree: ast.Module) -> set[str]:
    """Names and attributes that comparisons use, and names that those are made of."""
    inside = [n for node in ast.walk(tree) if isinstance(node, ast.Compare) for n in ast.walk(node)]
    return {n.id for n in inside if isinstance(n, ast.Name)} | {
        n.attr for n in inside if isinstance(n, ast.Attribute)
    }


def _tolerance_nodes(node: ast.AST, used: set[str]) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            yield from _numbers_inside(node)
            yield from (n for n in ast.walk(node) if isinstance(n, ast.Call) and _is_rounding(n))
            yield from (n for n in (node.left, *node.comparators) if _is_truncation(n, node))
        case ast.Call():
            yield from _tolerances_of_call(node)
        case _:
            for name, value, names in _named_values(node, used):
                yield from _named_tolerance(name, value, names)


def _named_values(node: ast.AST, used: set[str]) -> Iterator[tuple[str, ast.expr, set[str]]]:
    """Names of a node with their values, and the names that comparisons use."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value):
            yield name, value, used
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value, used | {name}
        case ast.keyword(arg=str(name), value=value) if _NAMED.search(name):
            yield name, value, used
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value, set[str]()
        case ast.FunctionDef(args=args):
            pairs = [
                *zip(reversed([*args.posonlyargs, *args.args]), reversed(args.defaults)),
                *zip(args.kwonlyargs, args.kw_defaults),
            ]
            yield from ((arg.arg, value, used) for arg, value in pairs if value is not None)
        case _:
            return


def _named_tolerance(name: str, value: ast.expr, used: set[str]) -> Iterator[ast.expr]:
    """The value assigned to a name, if it is a tolerance or rounded for a comparison."""
    if _is_tiny(value) and (name in used or _NAMED.search(name)):
        yield value
    elif name in used:
        yield from (n for n in ast.walk(value) if isinstance(n, ast.Call) and _is_rounding(n))


def _tolerances_of_call(node: ast.Call) -> Iterator[ast.expr]:
    name = called_name(node)
    if name in DEFAULT_SIZES and isinstance(node.func, ast.Attribute) and not _has_tolerance(node):
        yield node
    if name in _EXTREMES:
        yield from (n for each in node.args for n in _added_numbers(each) if _is_tiny(n))
    if precision_digits(node):
        yield node


def _has_tolerance(node: ast.Call) -> bool:
    names = {keyword.arg for keyword in node.keywords}
    return len(node.args) > 2 or bool(names & {"atol", "abs_tol", "rel_tol", "rtol"})


def _numbers_inside(node: ast.AST) -> Iterator[ast.expr]:
    """Tiny numbers, and factors that differ from 1 by one."""
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.expr) and _is_tiny(each):
            yield each
            continue
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult | ast.Div):
            yield from (n for n in (each.left, each.right) if is_near_one(n))
        pending += ast.iter_child_nodes(each)


def _added_numbers(node: ast.expr) -> Iterator[ast.expr]:
    """The terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _added_numbers(node.left)
        yield from _added_numbers(node.right)
    else:
        yield node


def constant_value(node: ast.AST) -> float | None:
    """The value of an expression of numbers; None for any other, and for whole literals."""
    if isinstance(node, ast.Constant) and type(node.value) is float:
        return node.value
    if not isinstance(node, ast.BinOp | ast.UnaryOp):
        return None
    if not all(
        isinstance(n, ast.operator | ast.unaryop | ast.BinOp | ast.UnaryOp)
        or (isinstance(n, ast.Constant) and type(n.value) in (int, float))
        for n in ast.walk(node)
    ):
        return None
    return _folded_value(node)


def _folded_value(node: ast.AST) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _folded_value(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right):
            one, other = _folded_value(left), _folded_value(right)
            if one is None or other is None or abs(other) > 400:
                return None
            try:
                if isinstance(op, ast.Pow):
                    return float(one**other)
                if isinstance(op, ast.Div):
                    return one / other
                return one * other if isinstance(op, ast.Mult) else None
            except (ArithmeticError, TypeError):
                return None
        case _:
            return None


def _is_tiny(node: ast.AST) -> bool:
    value = constant_value(node)
    return value is not None and 0 < abs(value) <= _LARGEST


def is_near_one(node: ast.AST) -> bool:
    value = constant_value(node)
    return value is not None and 0 < abs(value - 1.0) <= _LARGEST


def called_name(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def _is_rounding(node: ast.Call) -> bool:
    return called_name(node) in ("round", "around", "round_") and rounded_decimals(node) is not None


def rounded_decimals(node: ast.Call) -> int | None:
    """Decimals that a call rounds to; None if they are no literal."""
    is_method = (
        isinstance(node.func, ast.Attribute) and len(node.args) < 2 and not is_of_numpy(node)
    )
    given = [k.value for k in node.keywords if k.arg in ("decimals", "ndigits")]
    given += node.args[0 if is_method else 1 :]
    if not given:
        return 0
    return given[0].value if _is_int(given[0]) else None  # pyright: ignore[reportAttributeAccessIssue]


def is_of_numpy(node: ast.Call) -> bool:
    return ast.unparse(node.func).partition(".")[0] in ("np", "numpy", "jnp", "torch")


def _is_int(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_truncation(node: ast.expr, compare: ast.Compare) -> bool:
    """True for `int(x)` or `floor(x)` as a side of a comparison of sizes."""
    return (
        isinstance(node, ast.Call)
        and is_ordering(compare)
        and called_name(node) in ("int", "floor", "trunc")
        and len(node.args) == 1
    )


def precision_digits(node: ast.Call) -> int:
    """Digits of a call that turns numbers into single or half precision; 0 for any other."""
    name = called_name(node)
    if name in FIGURES_BY_TYPE and len(node.args) == 1:
        return FIGURES_BY_TYPE[name]
    types = [k.value for k in node.keywords if k.arg == "dtype"]
    types += node.args[:1] if name == "astype" else node.args[1:2] if name == "array" else []
    names = (ast.unparse(each).rpartition(".")[2].strip("'\"") for each in types)
    return next((FIGURES_BY_TYPE[each] for each in names if each in FIGURES_BY_TYPE), 0)
