"""Changes of names: a variable or an attribute exchanged for another, or combined with one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from culmen.models.offline.source import EditableText, EditContext, Span

_COMBINED = 0.4  # probability that the other name joins the value instead of replacing it
_SIGNS = ("+", "-", "*", "/")
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def exchange_name(source: EditableText, edit: EditContext) -> str | None:
    """One variable or attribute that is read, exchanged for another or combined with it.

    A variable gives way to another of the functions around it, an attribute to another that the
    program reads from the same variable. Combined means their sum, difference, product or quotient.
    """
    places = list(_exchangeable_places(source))
    if not places:
        return None
    span, others = edit.rng.choice(places)
    other, own = edit.rng.choice(others), source.text[slice(*span)]
    if edit.rng.random() < _COMBINED:
        return source.replace_spans((span, f"({own} {edit.rng.choice(_SIGNS)} {other})"))
    return source.replace_spans((span, other))


def _exchangeable_places(source: EditableText) -> Iterator[tuple[Span, list[str]]]:
    """The places where a value is read from a name, each with the texts that may stand there."""
    editable = {id(node) for node in source.editable_nodes()}
    attributes = _attributes_read(source.tree) if source.tree else {}
    for node, visible in _values_read(source.tree) if source.tree else ():
        match node:
            case ast.Name(id=name):
                others = sorted(visible - {name}) if name in visible else []
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in visible:
                others = [f"{owner}.{other}" for other in sorted(attributes[owner] - {name})]
            case _:
                continue
        if others and id(node) in editable:
            yield source.node_span(node), others


def _values_read(tree: ast.Module) -> Iterator[tuple[ast.expr, frozenset[str]]]:
    """Names and attributes that are read as values, each with the variables of its functions.

    What is called, and the owner of an attribute, are no values.
    """
    queue: list[tuple[ast.AST, frozenset[str]]] = [(tree, frozenset())]
    while queue:
        node, visible = queue.pop()
        if isinstance(node, _FUNCTIONS):
            visible |= _variables(node)
        skipped: ast.AST | None = None
        match node:
            case ast.Call(func=ast.Name() | ast.Attribute() as called):
                skipped = called
            case ast.Attribute(value=ast.Name() as owner, ctx=ast.Load()):
                skipped = owner
                yield node, visible
            case ast.Name(ctx=ast.Load()):
                yield node, visible
            case _:
                pass
        queue += [
            (child, visible)
            for child in ast.iter_child_nodes(node)
            if child is not skipped and not isinstance(child, ast.JoinedStr)
        ]


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """The parameters of a function and the names that it assigns."""
    nodes = list(ast.walk(function))
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    assigned = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return frozenset(parameters | assigned)


def _attributes_read(tree: ast.Module) -> dict[str, set[str]]:
    """Attributes that the program reads as values, by the name of their owner."""
    found: dict[str, set[str]] = {}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if id(node) not in called:
                found.setdefault(owner, set()).add(name)
            case _:
                pass
    return found
