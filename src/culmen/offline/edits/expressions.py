"""Changes inside expressions: operators, conditions, loop ranges, bounds, and cheaper equivalents."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from culmen.offline.edits.source import EditableText, EditContext, Span

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


def operators(source: EditableText, edit: EditContext) -> str | None:
    """One operator, condition, loop range or function name exchanged for a related one."""
    return _one_of(source, edit, [change for node in source.nodes() for change in _related(source, edit, node)])


def bounds(source: EditableText, edit: EditContext) -> str | None:
    """One value given an upper or lower bound: a number of any magnitude between 0.01 and 10, or, for arrays, a level
    of their own: a multiple of their mean, or a quantile."""
    bound = f"{math.exp(edit.rng.uniform(math.log(0.01), math.log(10.0))):.3g}"
    changes = [change for node in source.nodes() for change in _bounded(source, edit, node, bound)]
    levels = _levels(source, edit) if "np." in source.text else []
    return _one_of(source, edit, levels if levels and edit.rng.random() < 0.7 else changes)


def cheaper(source: EditableText, edit: EditContext) -> str | None:
    """Array functions on single numbers become those of `math`, and arrays that a loop reads item by item become lists
    before it, in one function or in all: the same numbers in a fraction of the time, where it works.
    """
    functions = _functions(source)
    if functions and edit.rng.random() < 0.5:
        functions = [edit.rng.choice(functions)]
    share = edit.rng.choice((1.0, 0.7))
    changes: list[Change] = []
    for function in functions:
        scalars, lists = (
            [change for change in found if edit.rng.random() < share]
            for found in (_scalars(source, function), _lists(source, function))
        )
        if scalars and "import math\n" not in source.text:
            first = function.body[1] if len(function.body) > 1 and ast.get_docstring(function) else function.body[0]
            start = source.span(first)[0]
            lists.append(((start, start), f"import math\n{source.indent(first)}"))
        changes.extend(lists + scalars)
    return source.replace(*changes) if changes else None


def _one_of(source: EditableText, edit: EditContext, changes: list[Change]) -> str | None:
    return source.replace(edit.rng.choice(changes)) if changes else None


def _related(source: EditableText, edit: EditContext, node: ast.AST) -> Iterator[Change]:
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


def _bounded(source: EditableText, edit: EditContext, node: ast.AST, bound: str) -> Iterator[Change]:
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


def _levels(source: EditableText, edit: EditContext) -> list[Change]:
    """For each array that is computed outside of loops, a line after it that bounds it by a level of its own.

    What was made a list stays one.
    """
    changes: list[Change] = []
    loops = [source.span(node) for node in source.nodes() if isinstance(node, ast.For | ast.While)]
    for node in source.nodes():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp() | ast.Call() | ast.Subscript() as value):
                start, place = source.span(node)[0], source.lines(node)
            case _:
                continue
        looped = any(low <= start < high for low, high in loops)
        if looped or place is None or not source.text[: place[1]].endswith("\n"):
            continue
        bound = edit.rng.choice(("np.minimum", "np.minimum", "np.maximum"))
        listed = ".tolist()" if source.code(value).endswith(".tolist()") else ""
        line = f"{source.indent(node)}{name} = {bound}({name}, {_level(edit, name)}){listed}\n"
        changes.append(((place[1], place[1]), line))
    return changes


def _level(edit: EditContext, name: str) -> str:
    """A multiple of the mean, or a quantile."""
    multiple = f"{10 ** edit.rng.uniform(-0.5, 0.5):.2g} * np.mean({name})"
    return edit.rng.choice((multiple, f"np.quantile({name}, {edit.rng.random():.2g})"))


def _functions(source: EditableText) -> list[ast.FunctionDef]:
    return [node for node in source.nodes() if isinstance(node, ast.FunctionDef) and source.lines(node.body[-1])]


def _scalars(source: EditableText, function: ast.FunctionDef) -> list[Change]:
    changes: list[Change] = []
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="linalg"), attr="norm"),
                args=[ast.BinOp(left=left, op=ast.Sub(), right=right)],
                keywords=[],
            ):
                changes.append((source.span(node), f"math.dist({source.code(left)}, {source.code(right)})"))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) as func) if name in _SCALAR:
                changes.append((source.span(func), f"math.{name}"))
            case _:
                continue
    return [(span, new) for span, new in changes if source.allows(*span)]


def _lists(source: EditableText, function: ast.FunctionDef) -> list[Change]:
    """For each loop of the function that stands in no other loop, each name that it reads items of."""
    changes: list[Change] = []
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop(0)
        if not isinstance(node, ast.For | ast.While):
            queue.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
            continue
        start, indent = source.span(node)[0], source.indent(node)
        names = {n.value.id for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)}
        for name in sorted(names) if not indent.strip() and source.lines(node) else ():
            new = f"{name} = {name}.tolist() if hasattr({name}, 'tolist') else {name}\n{indent}"
            if new not in source.text:
                changes.append(((start, start), new))
    return changes
