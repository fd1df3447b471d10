"""Loops that refine a computed value by calls of a criterion, and their number of calls.

The purpose of a loop is unknown, so its criterion is drawn at random: a function of the program
that takes the value (or the statements after it in the same block), the reduction of its result to
a number (sum, mean, min, max), and the sign.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from functools import cache

from culmen.evaluate.integrity import inserted
from culmen.models.offline.source import INSERTED, EditableText, EditContext, Span

_HANDED = 0.6  # probability of choosing a value that one function passes to another

_LEAVES = (
    ast.Return
    | ast.Break
    | ast.Continue
    | ast.Yield
    | ast.YieldFrom
    | ast.Await
    | ast.Global
    | ast.Nonlocal
)


@dataclass(frozen=True)
class Spot:
    """A value to refine: its expression, its statement, and the statement's block."""

    value: ast.expr
    statement: ast.stmt
    body: list[ast.stmt]
    name: str  # the name it is assigned to, "" if it is returned
    looped: bool  # inside a loop, which repeats the cost of refining it


def insert_loop(source: EditableText, edit: EditContext) -> str | None:
    """Wrap one value, assigned or returned, in a loop that improves it.

    Its criterion is drawn from the program.
    """
    spots = _refinable_spots(source)
    if not spots or total_loop_calls(source) + edit.calls > edit.most:
        return None
    handed = _passed_values(source, spots)
    if handed and edit.rng.random() < _HANDED:
        spot, taker = edit.rng.choice(handed)
        criterion = ("", f"lambda value: {taker}(value)")
    else:
        outside = [spot for spot in spots if not spot.looped]
        spot = edit.rng.choice(outside if outside and edit.rng.random() < 0.9 else spots)
        following = (
            _following_criterion(source, edit, spot)
            if spot.name and edit.rng.random() < 0.5
            else None
        )
        criterion = following or _consumer_criterion(source, edit, spot.statement)
    if criterion is None:
        return None
    before, call = criterion
    wrapped = f"{INSERTED}({call}, {source.node_text(spot.value)}, {_loop_arguments(edit)})"
    return _text_with_loop(source, spot.statement, before, (source.node_span(spot.value), wrapped))


def raise_loop_calls(source: EditableText, edit: EditContext) -> str | None:
    """Give the loops of the program more calls, up to their common limit."""
    limit = edit.most / max(total_loop_calls(source), 1)
    factor = min(edit.rng.choice((2.0, 4.0, limit)), limit)
    if factor < 1.2:
        return None
    return _with_scaled_limits(source, factor)


def text_with_calls(source: EditableText, calls: int) -> str:
    """The text with `calls` shared among its inserted loops; unchanged if it has none."""
    return (
        _with_scaled_limits(source, calls / total_loop_calls(source))
        if total_loop_calls(source)
        else None
    ) or source.text


def _with_scaled_limits(source: EditableText, factor: float) -> str | None:
    return source.replace_spans(
        *(
            (source.node_span(each.value), _scaled_limit(each, factor))
            for each in source.limit_keywords()
        )
    )


@cache
def inserted_source() -> str:
    """The source text of the inserted function."""
    return inspect.getsource(inserted.refine_by_gradient)


def _refinable_spots(source: EditableText) -> list[Spot]:
    loops = [
        source.node_span(node)
        for node in source.editable_nodes()
        if isinstance(node, ast.For | ast.While)
    ]
    spots: list[Spot] = []
    for body in source.statement_lists():
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    pass
                case ast.Return(value=ast.expr() as value):
                    name = ""
                case _:
                    continue
            start = source.node_span(statement)[0]
            if not isinstance(value, ast.Lambda) and source.line_span(statement):
                spots.append(
                    Spot(
                        value,
                        statement,
                        body,
                        name,
                        any(low <= start < high for low, high in loops),
                    )
                )
    return spots


def total_loop_calls(source: EditableText) -> float:
    """Number of calls of their criteria that the inserted loops of a program may make."""
    return sum(_limit_value(each) for each in source.limit_keywords() if each.arg == "calls")


def _limit_value(keyword: ast.keyword) -> float:
    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else 0
    return float(value) if isinstance(value, int | float) else 0.0


def _scaled_limit(keyword: ast.keyword, factor: float) -> str:
    value = _limit_value(keyword) * factor
    return str(max(1, round(value))) if keyword.arg == "calls" else f"{value:.3g}"


def _loop_arguments(edit: EditContext) -> str:
    rng = edit.rng
    reduce = rng.choice(("sum", "sum", "sum", "min", "max", "mean"))
    sign = rng.choice((1, -1, edit.sense or 1, edit.sense or -1))
    limits = f"calls={edit.calls}, seconds={edit.calls * edit.pace:.3g}"
    step, pairs = f"{10 ** rng.uniform(-2.0, -0.5):.2g}", rng.choice((4, 8))
    draws = f"seed={rng.randrange(1000)}, step={step}, pairs={pairs}"
    return f'reduce="{reduce}", sign={sign}, {limits}, {draws}'


def _consumer_criterion(
    source: EditableText, edit: EditContext, inside: ast.stmt
) -> tuple[str, str] | None:
    """A function of the program that takes the value, as a whole or item by item.

    Never one that leads back to the function around `inside`.
    """
    here = _enclosing_function(source, inside)
    choices: list[str] = []
    for node in source.tree.body if source.tree else ():
        if not isinstance(node, ast.FunctionDef) or node.name == INSERTED or node is here:
            continue
        if here is not None and _can_call(source, node.name, here.name):
            continue
        needed = len(node.args.args) - len(node.args.defaults)
        if node.args.args and needed <= 1:
            choices.append(f"lambda value: {node.name}(value)")
        if len(node.args.args) > 1:
            choices.append(f"lambda value: {node.name}(*value)")
    return ("", edit.rng.choice(choices)) if choices else None


def _passed_values(source: EditableText, spots: list[Spot]) -> list[tuple[Spot, str]]:
    """Returned values, with the function of the program that takes them.

    They are the likeliest places to refine.
    """
    pairs = maker_taker_pairs(source.tree)
    values: list[tuple[Spot, str]] = []
    for spot in spots:
        here = _enclosing_function(source, spot.statement) if not spot.name else None
        values.extend(
            (spot, taker) for maker, taker in pairs if here is not None and maker == here.name
        )
    return values


def maker_taker_pairs(tree: ast.Module | None) -> list[tuple[str, str]]:
    """Pairs (maker, taker) of top-level functions of which one takes the other's result.

    Either the program calls `taker(maker(...))`, or a name is bound to `maker(...)` and given to
    `taker` alone in the same function. Pairs are distinct.
    """
    if tree is None:
        return []
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    pairs: dict[tuple[str, str], None] = {}
    scopes = [tree, *(node for node in tree.body if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        bound: dict[str, str] = {}
        for node in ast.walk(scope):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker))
                ):
                    bound[name] = maker
                case _:
                    continue
        for node in ast.walk(scope):
            match node:
                case ast.Call(func=ast.Name(id=taker), args=[ast.Name(id=name)], keywords=[]) if (
                    name in bound
                ):
                    pairs[bound[name], taker] = None
                case ast.Call(
                    func=ast.Name(id=taker), args=[ast.Call(func=ast.Name(id=maker))], keywords=[]
                ):
                    pairs[maker, taker] = None
                case _:
                    continue
    return [
        (maker, taker)
        for maker, taker in pairs
        if maker in functions and taker in functions and maker != taker
    ]


def _following_criterion(
    source: EditableText, edit: EditContext, spot: Spot
) -> tuple[str, str] | None:
    """The statements after the value as a criterion function.

    They end with the first one that gives a name a value or returns one.
    """
    at = spot.body.index(spot.statement)
    ends: list[tuple[int, str]] = []
    for index, node in enumerate(spot.body[at + 1 :], at + 1):
        if isinstance(node, ast.Return):
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            ends.extend((index, source.node_text(part)) for part in parts if part is not None)
            break
        if (
            any(isinstance(inner, _LEAVES) for inner in ast.walk(node))
            or source.line_span(node) is None
        ):
            break
        ends.extend((index, name) for name in sorted(_stored_names(node)) if name != spot.name)
    if not ends:
        return None
    last, result = edit.rng.choice(ends)
    block = spot.body[at + 1 : last + 1]
    block = block[:-1] if isinstance(block[-1], ast.Return) else block
    indent = source.statement_indent(spot.statement)
    text = "".join(source.text[slice(*span)] for node in block if (span := source.line_span(node)))
    earlier = {name for node in spot.body[:at] for name in _stored_names(node)}
    bound = "".join(
        f", {name}={name}"
        for name in sorted({n for node in block for n in _stored_names(node)} & earlier)
    )
    lines = (
        textwrap.dedent(text)
        + ("" if not text or text.endswith("\n") else "\n")
        + f"return {result}\n"
    )
    function = f"def outcome({spot.name}{bound}):\n{textwrap.indent(lines, '    ')}"
    return textwrap.indent(function, indent), "outcome"


def _text_with_loop(
    source: EditableText, statement: ast.stmt, before: str, change: tuple[Span, str]
) -> str | None:
    """The text with this change in the statement and lines before it.

    The loop's function is added if it is missing.
    """
    anchor, changes = _helper_site(source, statement), [change]
    helper = _helper_text(source, source.statement_indent(anchor))
    if anchor is statement:
        before = helper + before
    elif helper:
        top = source.node_span(anchor)[0]
        changes.append(((top, top), helper + source.statement_indent(anchor)))
    if before:
        start = source.node_span(statement)[0]
        changes.append(((start, start), before.lstrip() + source.statement_indent(statement)))
    return source.replace_spans(*changes)


def _stored_names(node: ast.AST) -> set[str]:
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def _helper_site(source: EditableText, statement: ast.stmt) -> ast.stmt:
    """The place for a helper: before the top-level statement around this one.

    It is right before the statement if that place is not editable.
    """
    top = _top_level_statement(source, statement)
    return top if top is not None and source.line_span(top) else statement


def _helper_text(source: EditableText, indent: str) -> str:
    """The loop's function for this place, without the first line's indent; "" if it is there."""
    if f"def {INSERTED}(" in source.text:
        return ""
    return textwrap.indent(inserted_source(), indent).lstrip() + ("\n\n" if not indent else "\n")


def _top_level_statement(source: EditableText, inside: ast.stmt) -> ast.stmt | None:
    start = source.node_span(inside)[0]
    for node in source.tree.body if source.tree else ():
        low, high = source.node_span(node)
        if low <= start < high:
            return node
    return None


def _enclosing_function(source: EditableText, inside: ast.stmt) -> ast.FunctionDef | None:
    top = _top_level_statement(source, inside)
    return top if isinstance(top, ast.FunctionDef) else None


def _can_call(source: EditableText, caller: str, callee: str) -> bool:
    """True if running one top-level function may run the other, by the names they mention."""
    bodies = {
        node.name: node
        for node in (source.tree.body if source.tree else ())
        if isinstance(node, ast.FunctionDef)
    }
    seen, queue = set[str](), [caller]
    while queue:
        name = queue.pop()
        if name == callee:
            return True
        if name in bodies and name not in seen:
            seen.add(name)
            queue.extend(node.id for node in ast.walk(bodies[name]) if isinstance(node, ast.Name))
    return False
