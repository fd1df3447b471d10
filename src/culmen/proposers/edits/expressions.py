"""Changes inside expressions: operators, conditions, loop ranges, bounds, and cheaper equivalents."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from culmen.proposers.edits.source import Edit, Source, Span

_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}
_PAIRS = (
    ("min", "max"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("floor", "ceil"),
    ("sin", "cos"),
)
_SWAPPED = {"sum": "mean", "mean": "sum"} | {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_SCALAR = ("sqrt", "sin", "cos", "tan", "exp", "log", "hypot", "floor", "ceil")

Change = tuple[Span, str]


def operators(source: Source, edit: Edit) -> str | None:
    """One operator, condition, loop range or function name exchanged for a related one."""
    return _one_of(source, edit, [change for node in source.nodes() for change in _related(source, edit, node)])


def bounds(source: Source, edit: Edit) -> str | None:
    """One value given an upper or lower bound: a number of any magnitude between 0.01 and 10."""
    bound = f"{math.exp(edit.rng.uniform(math.log(0.01), math.log(10.0))):.3g}"
    return _one_of(source, edit, [change for node in source.nodes() for change in _bounded(source, edit, node, bound)])


def cheaper(source: Source, edit: Edit) -> str | None:
    """Array functions on scalars exchanged for those of `math`, arrays that are read one by one for lists."""
    changes = [change for node in source.nodes() for change in _cheapened(source, node)]
    if not changes:
        return None
    chosen = edit.rng.sample(changes, edit.rng.randint(1, min(3, len(changes))))
    return source.replace(*chosen)


def _one_of(source: Source, edit: Edit, changes: list[Change]) -> str | None:
    return source.replace(edit.rng.choice(changes)) if changes else None


def _related(source: Source, edit: Edit, node: ast.AST) -> Iterator[Change]:
    span, code, rng = source.span, source.code, edit.rng
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
                rng.choice((f"not ({code(test)})", f"({code(test)}) or True", f"({code(test)}) and False")),
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


def _bounded(source: Source, edit: Edit, node: ast.AST, bound: str) -> Iterator[Change]:
    scalar, array = edit.rng.choice((("min", "np.minimum"), ("min", "np.minimum"), ("max", "np.maximum")))
    match node:
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _, *_] as args, keywords=[]):
            end = source.span(args[-1])[1]
            yield (end, end), f", {bound}"
        case ast.Assign(targets=[ast.Name() | ast.Subscript()], value=ast.expr() as value):
            if isinstance(value, ast.BinOp | ast.Call | ast.Subscript | ast.Name | ast.IfExp):
                name = array if "np." in source.text and edit.rng.random() < 0.7 else scalar
                yield source.span(value), f"{name}({source.code(value)}, {bound})"
        case _:
            return


def _cheapened(source: Source, node: ast.AST) -> Iterator[Change]:
    math_module = "math" if "import math\n" in source.text else '__import__("math")'
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(attr="linalg"), attr="norm"),
            args=[ast.BinOp(left=left, op=ast.Sub(), right=right)],
            keywords=[],
        ):
            yield source.span(node), f"{math_module}.dist({source.code(left)}, {source.code(right)})"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) as func) if name in _SCALAR:
            yield source.span(func), f"{math_module}.{name}"
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Attribute(value=owner)) as value):
            if not (isinstance(value.func, ast.Attribute) and value.func.attr == "tolist") and "np" in source.code(
                owner
            ):
                yield source.span(value), f"{source.code(value)}.tolist()"
        case ast.FunctionDef(args=ast.arguments(args=[_, *_] as args), body=[first, *_]):
            name, indent = args[0].arg, source.indent(first)
            if "np" in source.code(node) and not indent.strip() and f"{name}.tolist()" not in source.code(node):
                start = source.span(first)[0]
                yield (start, start), f"{name} = {name}.tolist() if hasattr({name}, 'tolist') else {name}\n{indent}"
        case _:
            return
