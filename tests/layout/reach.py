"""Modules that no test imports: a table names the end-to-end test that holds each.

python -m tests.layout.reach    # the modules with neither a test of their own nor a line in the table; exit 1 if any
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.layout import rules

TESTS = rules.ROOT / "tests"
TABLE = TESTS / "layout" / "held.md"
_ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| [^|]+ \| `(tests/[a-z0-9_/]+\.py)` \|$", re.M)


def directly_imported(folder: Path, parsed: Mapping[str, ast.Module]) -> set[str]:
    """Modules of `parsed` that a file below `folder` imports.

    A name that a package hands on counts for its home.
    """
    found = set()
    for path in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError:  # a fixture that is meant to be broken
            continue
        named = list(_imported(tree))
        aliases = {alias: f"{module}.{name}" if name else module for module, name, alias in named}
        used = [
            (aliases[node.value.id], node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in aliases
        ]
        names = [*((module, name) for module, name, _ in named), *used]
        found |= {home for module, name in names for home in _homes(module, name, parsed)}
    return found


def _imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Every absolute import as (module, name, its name here).

    Plain ones and `importorskip` have no name.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (
                (node.module or "", alias.name, alias.asname or alias.name) for alias in node.names
            )
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("importorskip", "import_module")
        ):
            yield from (
                (each.value, "", "") for each in node.args if isinstance(each, ast.Constant)
            )


def _homes(module: str, name: str, parsed: Mapping[str, ast.Module]) -> Iterator[str]:
    whole = f"{module}.{name}"
    if whole in parsed:
        yield whole
    elif module in parsed:
        yield module
        body = parsed[module].body if name else []
        if any(
            getattr(node, "name", "") == "__getattr__" for node in body
        ):  # the package loads its names late
            body = [
                *body,
                *(node for each in body if isinstance(each, ast.If) for node in each.body),
            ]
        for node in body:
            if isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        yield from _homes(node.module or "", alias.name, parsed)


def has_code(tree: ast.Module) -> bool:
    """A module with more than a docstring and imports."""
    plain = (ast.Import, ast.ImportFrom)
    rest = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return any(not isinstance(node, plain) and not _assigns_all(node) for node in rest)


def _assigns_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def read_table(page: str, package: str = "culmen") -> dict[str, str]:
    """The modules and packages of the table, each with the test file that holds it."""
    return {f"{package}.{module}": test for module, test in _ROW.findall(page)}


def unreached(source: Path = rules.SOURCE, tests: Path = TESTS) -> list[str]:
    """Modules with code that no test file imports, by dotted name."""
    parsed = rules.trees(source)
    reached = directly_imported(tests, parsed)
    return [name for name, tree in parsed.items() if name not in reached and has_code(tree)]


def broken(source: Path = rules.SOURCE, tests: Path = TESTS, page: Path = TABLE) -> list[str]:
    """Faults between modules, tests and table, a sentence each."""
    alone, held = (
        unreached(source, tests),
        read_table(page.read_text(encoding="utf-8"), source.name),
    )
    said = [
        f"{name}: no test imports it, and no line of {page.name} says what holds it"
        for name in alone
        if not any(f"{name}.".startswith(f"{each}.") for each in held)
    ]
    said += [
        f"{name}: its test {test} does not exist"
        for name, test in held.items()
        if not (tests.parent / test).is_file()
    ]
    return said


def main() -> None:
    said = broken()
    print(
        "\n".join(said)
        or f"{len(unreached())} modules are held by tests of the whole alone, each in {TABLE.name}"
    )
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
