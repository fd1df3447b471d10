"""Sizes of the source tree, which fall and do not rise: ratchet.toml has today's.

python -m tests.layout.ratchet            # the sizes that rose; exit 1 if any did
python -m tests.layout.ratchet --write    # lower the figures of ratchet.toml to those of today
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.layout import rules

FIGURES = Path(__file__).with_name("ratchet.toml")
Sizes = Mapping[str, Mapping[str, int]]

_LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def room_of(path: Path, source: Path = rules.SOURCE) -> str:
    """The room of a file: the folder below `source`, or that of an extension.

    It is "" for the package's own files.
    """
    parts = path.relative_to(source).parts[:-1]
    return "/".join(parts[: 2 if parts[:1] == ("extensions",) else 1])


def python_files(source: Path = rules.SOURCE) -> list[Path]:
    """All Python files, programs of tasks and attacks included."""
    return [path for path in sorted(source.rglob("*.py")) if "__pycache__" not in path.parts]


def count_tokens(text: str) -> int:
    """Tokens of Python, without comments and layout: a measure that no formatter moves."""
    return sum(
        token.type not in _LAYOUT for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def tokens_by_room(source: Path = rules.SOURCE) -> dict[str, int]:
    """Tokens of each room, of all, and of all but the extensions."""
    found: Counter[str] = Counter()
    for path in python_files(source):
        count = count_tokens(path.read_text(encoding="utf-8"))
        found[room_of(path, source) or "culmen"] += count
        found["all"] += count
        if not room_of(path, source).startswith("extensions"):
            found["all but extensions"] += count
    return dict(found)


def is_constant(node: ast.stmt) -> bool:
    """True for an assignment of a number to an upper-case name at the top of a module."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    named = isinstance(target, ast.Name) and target.id.isupper()
    return named and isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value)


def _is_number(value: ast.expr | None) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) and _is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def equal_names(source: Path = rules.SOURCE) -> int:
    """Modules that share their file's name with another one."""
    names = Counter(
        path.name
        for path in rules.modules(source).values()
        if path.name not in ("__init__.py", "extension.py")
    )
    return sum(count for count in names.values() if count > 1)


def count_words(root: Path = rules.ROOT) -> int:
    """Words of the pages in docs/."""
    pages = [*(root / "docs").glob("*.md"), *(root / "docs").glob("*/*.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def command_line() -> dict[str, int]:
    """Verbs, those of groups included, and all their options."""
    import typer

    from culmen.cli.main import make_app

    found: Counter[str] = Counter()

    def visit(command: Any, context: Any) -> None:
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                if below is not None and not below.hidden:
                    visit(below, context)
            return
        found["verbs"] += 1
        found["options"] += sum(param.param_type_name == "option" for param in command.params)

    command = typer.main.get_command(make_app())
    visit(command, typer.Context(command))
    return dict(found)


def counts(source: Path = rules.SOURCE) -> dict[str, int]:
    """Everything that is counted without a run."""
    parsed = rules.trees(source)
    files = python_files(source)
    return {
        "rooms": len({room.partition("/")[0] for room in map(room_of, files) if room}),
        "files but extensions": sum(not room_of(path).startswith("extensions") for path in files),
        "constants": sum(is_constant(node) for tree in parsed.values() for node in tree.body),
        "equal names": equal_names(source),
        "words": count_words(),
        **command_line(),
    }


def entered_files() -> int:
    """Files whose functions a small run of the command line calls (bench/bench_layout.py)."""
    sys.path.insert(0, str(rules.ROOT / "bench"))
    from bench_layout import SMALL_RUN, entered  # pyright: ignore[reportMissingImports]

    with tempfile.TemporaryDirectory() as name:
        entered(Path(name), "new", "mytask")
        return len(entered(Path(name), *SMALL_RUN))


def read_figures(path: Path = FIGURES) -> dict[str, dict[str, dict[str, Any]]]:
    """Tables of name -> {least, allowed, reason}."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def risen(sizes: Sizes, figures: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """A sentence for every size above its limit, or with a raised limit but no reason."""
    for table, rows in sizes.items():
        known = figures.get(table, {})
        for name, size in rows.items():
            row = known.get(name)
            if row is None:
                yield f"{table} {name}: {size} has no line in {FIGURES.name}"
            elif size > row["allowed"]:
                yield f"{table} {name}: {size}, {row['allowed']} allowed"
        for name, row in known.items():
            if row["allowed"] > row["least"] and not row.get("reason", "").strip():
                yield f"{table} {name}: {row['allowed']} is allowed, {row['least']} was reached, and no reason is given"


def lowered(sizes: Sizes, figures: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The text of ratchet.toml with the sizes that are smaller today; nothing in it rises."""
    lines = [
        "# Sizes that fall: `python -m tests.layout.ratchet --write` lowers them. What has to rise is written here",
        "# by hand, as another number in `allowed`, beside the `least` that was reached, and with its `reason`.",
    ]
    for table in sizes or figures:
        lines += ["", f"[{table}]"]
        for name, size in sorted(sizes[table].items()):
            row = figures.get(table, {}).get(name, {"least": size, "allowed": size})
            least, allowed = min(row["least"], size), min(row["allowed"], size)
            reason = f', reason = "{row["reason"]}"' if allowed > least else ""
            lines.append(f'"{name}" = {{least = {least}, allowed = {allowed}{reason}}}')
    return "\n".join(lines) + "\n"


def measured(*, with_run: bool = True) -> Sizes:
    """All sizes of today."""
    entered = {"files entered": entered_files()} if with_run else {}
    return {"tokens": tokens_by_room(), "counts": {**counts(), **entered}}


def main() -> int:
    figures = read_figures() if FIGURES.exists() else {}
    sizes = measured()
    if "--write" in sys.argv[1:]:
        FIGURES.write_text(lowered(sizes, figures), encoding="utf-8")
        figures = read_figures()
    found = list(risen(sizes, figures))
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
