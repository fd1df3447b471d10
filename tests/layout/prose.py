"""Rules of the language: names and docstrings that a stranger reads without a glossary.

python -m tests.layout.prose [PACKAGE...]     # what breaks a rule, place by place
python -m tests.layout.prose --count          # how much of each there is, by package
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.layout.rules import SOURCE, trees

FIRST_LINE = 90
"""Characters of a docstring's first line, at most."""

QUESTIONS = ("What", "Whether", "How", "Who", "Where", "Which", "When", "Why", "Whose")
"""Words that a docstring does not begin with: it begins with a noun phrase or an imperative."""

MARKS = re.compile(
    r"\b(told|tells|says|said|nobody|so many|as it is|but for|whoever"
    r"|(?:of|in|from|by|on|to|with|at|for) (?:what|who|whom)"
    r"|who (?:is|was|has|are|were)|what (?:is|was|has|are|were))\b",
    re.IGNORECASE,
)
"""Words and turns of the project's dialect: "returned", "reported", "except" and nouns are plain."""

ALLOWED = 0.01
"""Share of all docstrings that may have a mark."""

ONE_WORD = 0.25
"""Share of all functions and methods that may have a name of one word: the class supplies the object."""

TWINS = 4
"""Modules that may define a function of the same name."""

EVERYWHERE = ("main", "__getattr__")
"""Functions that a file has one of: of programs, and of modules that load their parts late."""

UNTYPED = 403
"""Annotations with `Any`, at most: values of libraries without types."""

PROGRAMS = ("culmen.evaluate.integrity.inserted",)
"""Modules whose texts are pasted into candidates: their docstrings are fixed."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """One docstring or name that breaks a rule."""

    rule: str
    module: str
    line: int
    text: str


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def findings(parsed: dict[str, ast.Module]) -> list[Finding]:
    """Docstrings with a question word first, a long first line, or a mark of the dialect."""
    found: list[Finding] = []
    for module, tree in parsed.items():
        for line, text in docstrings(tree) if module not in PROGRAMS else ():
            first = text.partition("\n")[0]
            if first.split(maxsplit=1)[0].strip(",.:") in QUESTIONS:
                found.append(Finding("question", module, line, first))
            if len(first) > FIRST_LINE:
                found.append(Finding("length", module, line, first))
            if mark := MARKS.search(text):
                found.append(Finding("mark", module, line, f"{mark[0]!r}: {first}"))
    return found


def function_names(parsed: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Module and name of every function and method, except those inside functions and dunders."""
    for module, tree in parsed.items():
        stack: list[ast.AST] = [tree]
        while stack:
            for node in ast.iter_child_nodes(stack.pop()):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    stack.append(node)
                elif not node.name.startswith("__"):
                    yield module, node.name


def one_word_share(parsed: dict[str, ast.Module]) -> float:
    """Share of the functions' names that are one word."""
    names = [name for _, name in function_names(parsed)]
    return sum("_" not in name.strip("_") for name in names) / max(len(names), 1)


def shared_function_names(parsed: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Functions of modules that share their name with too many others, with these modules."""
    homes: dict[str, list[str]] = {}
    for module, tree in parsed.items():
        for node in tree.body:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name not in EVERYWHERE
            ):
                homes.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > TWINS}


def untyped(source: Path = SOURCE) -> int:
    """Count of `Any` in the source."""
    return sum(len(re.findall(r"\bAny\b", path.read_text())) for path in source.rglob("*.py"))


def main(source: Path = SOURCE) -> None:
    """Print findings, of the packages that are named or of all."""
    parsed, wanted = trees(source), [name for name in sys.argv[1:] if not name.startswith("-")]
    found = findings(parsed)
    if wanted:
        found = [
            one
            for one in found
            if one.module.split(".")[1:2] and one.module.split(".")[1] in wanted
        ]
    if "--count" in sys.argv[1:]:
        counts = Counter(
            (one.module.split(".")[1] if "." in one.module else "", one.rule) for one in found
        )
        print(
            "\n".join(
                f"{package:12} {rule:9} {many:5}"
                for (package, rule), many in sorted(counts.items())
            )
        )
        return
    for one in found:
        print(f"{one.module}:{one.line} {one.rule}: {one.text}")


if __name__ == "__main__":
    main()
