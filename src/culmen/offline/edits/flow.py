"""Which function's result goes into which other function: read off the calls of a program, nothing is run."""

from __future__ import annotations

import ast


def handed_on(tree: ast.Module | None) -> list[tuple[str, str]]:
    """Pairs (maker, taker): somewhere the program calls `taker(maker(...))`, or a name is bound to `maker(...)` and
    given to `taker` alone in the same function. Only functions defined at the top level count; no pair twice."""
    if tree is None:
        return []
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    pairs: dict[tuple[str, str], None] = {}
    scopes = [tree, *(node for node in tree.body if isinstance(node, ast.FunctionDef))]
    for scope in scopes:
        bound: dict[str, str] = {}
        for node in ast.walk(scope):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker))):
                    bound[name] = maker
                case _:
                    continue
        for node in ast.walk(scope):
            match node:
                case ast.Call(func=ast.Name(id=taker), args=[ast.Name(id=name)], keywords=[]) if name in bound:
                    pairs[bound[name], taker] = None
                case ast.Call(func=ast.Name(id=taker), args=[ast.Call(func=ast.Name(id=maker))], keywords=[]):
                    pairs[maker, taker] = None
                case _:
                    continue
    return [(maker, taker) for maker, taker in pairs if maker in functions and taker in functions and maker != taker]
