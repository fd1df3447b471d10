"""What agents may read of the evaluator: all of its file, what it says of itself, or nothing."""

from __future__ import annotations

import ast
from pathlib import Path

from culmen.evaluate.taskfiles.schema import Shown

MOST = 20_000  # characters of a file that is shown whole
_LONGEST = 100  # characters of a constant worth showing; a longer one may be an answer


def shown(path: Path, how: Shown) -> str:
    """The text that agents are given: the whole file (cut after `MOST` characters), or its docstring, its short
    constants and its functions' heads with their docstrings; "" for none, and for a file that is no Python."""
    text = "" if how == "none" else path.read_text(encoding="utf-8", errors="replace")
    if how == "full":
        return text if len(text) <= MOST else text[:MOST] + "\n# cut here"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    pieces = [_quoted(ast.get_docstring(tree), "")]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            line = ast.unparse(node)
            pieces.append(line if len(line) <= _LONGEST else "")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            head = f"def {node.name}({ast.unparse(node.args)}):"
            pieces.append(f"{head}\n{_quoted(ast.get_docstring(node), '    ') or '    ...'}")
    return "\n".join(filter(None, pieces))


def _quoted(text: str | None, indent: str) -> str:
    if not text:
        return ""
    return "\n".join(f"{indent}{line}".rstrip() for line in f'"""{text}\n"""'.splitlines())
