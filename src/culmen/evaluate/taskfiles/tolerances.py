"""Tolerances in the text of an evaluator: tiny numbers that comparisons forgive.

Found in the syntax tree; no code is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from culmen.core.task import Task

_LARGEST = 1e-2  # largest constant that counts as a tolerance
_NAMED = re.compile(r"tol|slack|eps|margin|threshold", re.I)
_TIGHT = "1e-12"


def with_tolerance_flag(task: Task) -> Task:
    """The task, with a flag for tolerances in its evaluator's text (`Evaluator.tolerances`).

    Without one no evaluations need be kept to test a tolerance. Evaluators that are not Python and
    those with an exact verifier are unchanged.
    """
    evaluator = task.evaluator
    if not evaluator.is_python or evaluator.verifier or not Path(evaluator.path).is_file():
        return task
    sources = evaluator_sources(task)
    present = any(tolerance_constants(file, text) for file, text in sources.items())
    changed = msgspec.structs.replace(evaluator, tolerances=present)
    return msgspec.structs.replace(task, evaluator=changed)


def evaluator_sources(task: Task) -> dict[str, str]:
    """Texts of the evaluator and of the modules beside it that it imports, by file name."""
    if not task.evaluator.path:
        return {}
    path = Path(task.evaluator.path)
    main = path.read_text(encoding="utf-8", errors="replace")
    skipped = {path.name, Path(task.evaluator.verifier).name}
    imported = [
        sibling
        for sibling in sorted(path.parent.glob("*.py"))
        if sibling.name not in skipped and f"import {sibling.stem}" in main
    ]
    imported += [
        sibling
        for sibling in sorted(path.parent.glob("*.py"))
        if sibling.name not in skipped and f"from {sibling.stem} " in main
    ]
    return {
        path.name: main,
        **{
            sibling.name: sibling.read_text(encoding="utf-8", errors="replace")
            for sibling in imported
        },
    }


class Constant:
    """A tolerance in a text: the place of its number.

    For a `close` call without a tolerance of its own, the place is the call.
    """

    def __init__(self, file: str, node: ast.expr, line: int) -> None:
        self.file, self.node, self.line = file, node, line


def tolerance_constants(file: str, text: str) -> list[Constant]:
    """Tiny numbers that comparisons use, directly, by a name, or as a tolerance argument."""
    tree = syntax_tree(text)
    if tree is None:
        return []
    constants: dict[tuple[int, int], Constant] = {}
    for number in tolerance_numbers(tree):
        constants.setdefault(
            (number.lineno, number.col_offset), Constant(file, number, number.lineno)
        )
    return [constants[key] for key in sorted(constants)]


def tolerance_numbers(tree: ast.Module) -> Iterator[ast.expr]:
    """Expressions of a module that are tolerances; a `close` call without one is its own."""
    used = {
        n.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for n in ast.walk(node)
        if isinstance(n, ast.Name)
    }
    for node in ast.walk(tree):
        yield from _tolerance_nodes(node, used)


def _tolerance_nodes(node: ast.AST, used: set[str]) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            yield from (n for n in ast.walk(node) if _is_tiny_float(n))  # pyright: ignore[reportReturnType]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_tiny_float(value) and (
            name in used or _NAMED.search(name)
        ):
            yield value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_tiny_float(
            value
        ):
            yield value
        case ast.keyword(arg=str(name), value=value) if _is_tiny_float(value) and _NAMED.search(
            name
        ):
            yield value
        case ast.FunctionDef(args=args):
            pairs = [
                *zip(reversed([*args.posonlyargs, *args.args]), reversed(args.defaults)),
                *zip(args.kwonlyargs, args.kw_defaults),
            ]
            yield from (
                value
                for arg, value in pairs
                if value is not None
                and _is_tiny_float(value)
                and (arg.arg in used or _NAMED.search(arg.arg))
            )
        case ast.Call(func=ast.Attribute(attr="isclose" | "allclose"), keywords=keywords) if (
            len(node.args) < 3
        ):
            if not any(
                keyword.arg in ("atol", "abs_tol", "rel_tol", "rtol") for keyword in keywords
            ):
                yield node
        case _:
            return


def _is_tiny_float(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and type(node.value) is float
        and 0 < abs(node.value) <= _LARGEST
    )


def tightened_text(text: str, constant: Constant, share: float = 0.0) -> str:
    """The text with one tolerance reduced to `share` of its value, at least to 1e-12."""
    node, lines = constant.node, text.splitlines(keepends=True)
    line, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    last = lines[end].encode()
    if isinstance(node, ast.Call):  # isclose(a, b) -> isclose(a, b, rtol=0, atol=1e-12)
        offset = (node.end_col_offset or 0) - 1
        exact = "math." in ast.unparse(node.func)
        # a share of the default relative tolerance of these functions
        tight = repr(share * (1e-9 if exact else 1e-5)) if share else _TIGHT
        word = (
            ("rel_tol=0, abs_tol" if not share else "rel_tol")
            if exact
            else ("rtol=0, atol" if not share else "rtol")
        )
        lines[end] = (last[:offset] + f", {word}={tight}".encode() + last[offset:]).decode()
        return "".join(lines)
    smaller = float(_TIGHT)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        smaller = max(share * abs(node.value), smaller)
    first = lines[line].encode()
    lines[line] = (
        first[: node.col_offset] + repr(smaller).encode() + first[node.end_col_offset or 0 :]
    ).decode()
    return "".join(lines)


def tightened_sources(sources: Mapping[str, str], share: float = 0.0) -> dict[str, str]:
    """Files with tolerances, by name, with all of theirs reduced."""
    changed: dict[str, str] = {}
    for file, text in sources.items():
        for constant in reversed(tolerance_constants(file, text)):
            changed[file] = text = tightened_text(text, constant, share)
    return changed


def syntax_tree(text: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
