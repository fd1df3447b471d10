"""The pages in docs/fidelity: code and tests that they name have to exist.

A page names, for each place of a paper, the code and the tests that hold it.

python -m tests.docs.fidelity            # rows that name something missing; exit 1 if any do
python -m tests.docs.fidelity --write    # also write today's line numbers into the pages
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "fidelity"
_CODE = re.compile(r"`([\w/]+\.py):(\d+)`(?: `([\w.]+)`)?")
_TEST = re.compile(r"`(\w[\w/]*\.py)` `(\w+)`")


@cache
def names(path: Path) -> dict[str, int]:
    """Every class, function, method and constant of a module, with its line.

    There are none if there is no such file.
    """
    found: dict[str, int] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else ():
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node.lineno
            inner = node.body if isinstance(node, ast.ClassDef) else ()
            methods = (
                each for each in inner if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            found |= {f"{node.name}.{each.name}": each.lineno for each in methods}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id: node.lineno for each in targets if isinstance(each, ast.Name)}
    return found


def code_path(file: str) -> Path:
    """The path of a file in the package, or else in the repository (scripts in `bench/`).

    The package is preferred; the repository is for names that the package does not have.
    """
    return next(
        (path for top in ("src/culmen", ".") if (path := ROOT / top / file).is_file()),
        ROOT / "src/culmen" / file,
    )


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of a page's table.

    They are the place, its content, the code, the tests, and the difference in culmen.
    """
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| Paper |"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def faults(text: str) -> list[str]:
    """Faults of a page, a sentence each.

    A file, function or test that does not exist, code without a test, or a row without a reason.
    """
    found: list[str] = []
    for place, _, code, tests, note in rows(text):
        named = _CODE.fullmatch(code)
        held = _TEST.findall(tests)
        if named and not held:
            found.append(f"{place}: no test")
        if not named and not (code == "none" and note):
            found.append(f"{place}: neither code nor a reason")
        wanted = [("src/culmen", named[1], named[3])] if named else []
        for top, file, name in [*wanted, *(("tests", *each) for each in held)]:
            path = ROOT / top / file if top == "tests" else code_path(file)
            if not path.is_file() or (name and name not in names(path)):
                found.append(f"{place}: there is no {top}/{file} {name or ''}".rstrip())
    return found


def renumbered(text: str) -> str:
    """The page with today's line numbers."""
    return _CODE.sub(_with_line, text)


def _with_line(found: re.Match[str]) -> str:
    line = names(code_path(found[1])).get(found[3], 1) if found[3] else 1
    return found[0].replace(f":{found[2]}`", f":{line}`")


def main(words: list[str]) -> int:
    """The command."""
    wrong = []
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path.name}: {fault}" for fault in faults(text)]
        if "--write" in words:
            path.write_text(renumbered(text), encoding="utf-8")
    print("\n".join(wrong) or "every function and test that is named is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
