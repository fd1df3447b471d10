"""Rules of the source tree that no linter knows.

Unique class names, no import circles, short functions, a map.

python -m tests.layout.rules            # what breaks a rule; exit 1 if anything does
python -m tests.layout.rules --write    # write the map of packages into CONTRIBUTING.md
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "culmen"
MAP = ROOT / "CONTRIBUTING.md"
LONG = 40  # lines of a function's body, its docstring apart
SHARE = 0.005  # of all functions may be longer
_OWN_NAMES = (
    "extensions/builtin",
    "extensions/audit/attacks",
    "extensions/audit/jail_attacks",
)  # programs of users' kind: their classes are not culmen's
_MARKS = "<!-- packages -->", "<!-- end of packages -->"


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Every module below the package folder `source`, by its dotted name.

    Built-in tasks and attack programs are left out.
    """
    found = {}
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).as_posix()
        if not place.startswith(_OWN_NAMES):
            dotted = ".".join((source.name, *Path(place).with_suffix("").parts))
            found[dotted.removesuffix(".__init__")] = path
    return found


def trees(source: Path = SOURCE) -> dict[str, ast.Module]:
    """The syntax tree of every module.

    No garbage is looked for while they grow: nothing of them is any, and each look takes longer
    than the last.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return {
            name: ast.parse(path.read_text(encoding="utf-8"))
            for name, path in modules(source).items()
        }
    finally:
        if collects:
            gc.enable()


def twins(parsed: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    """Public top-level classes that several modules define, with those modules."""
    homes = defaultdict(list)
    for module, tree in parsed.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return {name: found for name, found in homes.items() if len(found) > 1}


def imports(parsed: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Modules that each module imports: at its top, in functions and under TYPE_CHECKING."""
    return {name: set(_imported(name, tree, parsed)) - {name} for name, tree in parsed.items()}


def _imported(module: str, tree: ast.Module, known: Mapping[str, ast.Module]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = any(name.startswith(module + ".") for name in known)
                above = module.split(".")[: len(module.split(".")) - node.level + package]
                base = ".".join([*above, *filter(None, [base])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in known else base


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import one another, each sorted.

    They are strongly connected components (Tarjan 1972).
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph.get(name, ())):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted(found)


def functions(parsed: Mapping[str, ast.Module]) -> list[tuple[int, str]]:
    """Every function as (lines of its body, module:line name); signature and docstring apart."""
    return [
        (_length(node), f"{module}:{node.lineno} {node.name}")
        for module, tree in parsed.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def package_map(source: Path = SOURCE) -> str:
    """The packages as an indented list, each with the first line of its docstring.

    This is the map that stands in CONTRIBUTING.md.
    """
    rows = [(source, source.name + "/")]
    for folder in sorted(path.parent for path in source.rglob("__init__.py")):
        place = folder.relative_to(source).as_posix()
        if (
            folder != source
            and not place.startswith(_OWN_NAMES[0] + "/")
            and "standins" not in place
        ):
            rows.append((folder, "  " * place.count("/") + "  " + folder.name + "/"))
    width = max(len(label) for _, label in rows) + 2
    return "\n".join(
        f"{label:{width}}{_first_line(folder / '__init__.py')}" for folder, label in rows
    )


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def written_map(page: str) -> str:
    """The map as a page has it, between its marks."""
    start, end = (re.escape(mark) for mark in _MARKS)
    found = re.search(rf"{start}\n```text\n(.*?)\n```\n{end}", page, re.S)
    return found[1] if found else ""


def write_map() -> None:
    """Put today's map into CONTRIBUTING.md."""
    page = MAP.read_text(encoding="utf-8")
    before, _, rest = page.partition(_MARKS[0])
    after = rest.partition(_MARKS[1])[2]
    MAP.write_text(
        f"{before}{_MARKS[0]}\n```text\n{package_map()}\n```\n{_MARKS[1]}{after}", encoding="utf-8"
    )


def broken(source: Path = SOURCE) -> list[str]:
    """Breaches of the rules, a sentence each."""
    parsed = trees(source)
    said = [
        f"class {name} is defined in {', '.join(places)}"
        for name, places in sorted(twins(parsed).items())
    ]
    said += [f"import circle: {', '.join(group)}" for group in circles(imports(parsed))]
    sizes = functions(parsed)
    long = sorted((place for place in sizes if place[0] > LONG), reverse=True)
    if len(long) > SHARE * len(sizes):
        said.append(f"{len(long)} of {len(sizes)} functions have more than {LONG} lines: {long}")
    packages = [path for path in source.rglob("__init__.py") if "builtin" not in path.parts]
    unnamed = [path.parent.name for path in packages if not _first_line(path)]
    said += [f"package {name} has no docstring: the map needs its first line" for name in unnamed]
    return said


def main() -> None:
    if "--write" in sys.argv[1:]:
        write_map()
    said = broken()
    if written_map(MAP.read_text(encoding="utf-8")) != package_map():
        said.append("the map in CONTRIBUTING.md is stale: python -m tests.layout.rules --write")
    print("\n".join(said) or f"{len(modules())} modules keep the rules of the source tree")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
