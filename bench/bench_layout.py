"""The size of the source tree, and the number of its files that a reader meets.

These are the figures of docs/decisions/layout.md.

    python bench/bench_layout.py             # sizes, rules, and the files that one small offline run enters
    python bench/bench_layout.py --files     # those files by name, too
    python bench/bench_layout.py --docstrings 20 --seed 1    # first lines of docstrings, drawn at random

A file is entered when one of its functions is called in the driver's process, other than while
modules are imported. Programs are files that are run or shown as they are rather than imported: the
attacks of `audit` and of the jail, the files of built-in tasks, stand-ins for other packages,
migrations, and the scripts of coding agents.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.layout import prose, rules  # noqa: E402

_PROGRAMS = tuple(
    f"extensions/{folder}/"
    for folder in ("audit/attacks", "audit/jail_attacks", "builtin", "agents/sandbox/scripts")
)
_STANDINS = "/standins/"
_LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)

SMALL_RUN = (
    "run",
    "mytask",
    "--run-dir",
    "small",
    "--budget",
    "evaluations=12",
    "--strategy",
    "polca",
    "--quiet",
)

_TRACED = """
import json, sys, threading
root, out, *words = sys.argv[1:]
entered, importing = set(), threading.local()

def see(frame, event, _):
    code, depth = frame.f_code, getattr(importing, "depth", 0)
    if code.co_name == "<module>":
        importing.depth = depth + {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not depth and code.co_flags & 1 and code.co_filename.startswith(root):  # 1: a function
        entered.add(code.co_filename[len(root):])

threading.setprofile(see)
sys.setprofile(see)
code = 0
try:
    if words[0] == "optimize":
        import culmen
        culmen.optimize(None, words[1], strategy="polca", budget=culmen.Budget(evaluations=12), run_dir=words[2])
    else:
        sys.argv = ["culmen", *words]
        from culmen.cli.main import main
        main()
except SystemExit as end:
    code = end.code
finally:
    sys.setprofile(None)
    json.dump(sorted(entered), open(out, "w"))
sys.exit(code)
"""


def entered(folder: Path, *words: str) -> list[str]:
    """Files below src/culmen/ that `culmen WORDS` enters.

    `optimize TASK FOLDER` stands for the Python call.
    """
    out = folder / "entered.json"
    root = str(ROOT / "src" / "culmen") + "/"
    command = [sys.executable, "-c", _TRACED, root, str(out), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"culmen {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(out.read_text())


def is_program(path: Path) -> bool:
    """True if a file of src/culmen is a program of its own rather than a module."""
    place = path.relative_to(rules.SOURCE).as_posix()
    return place.startswith(_PROGRAMS) or _STANDINS in place


def code_lines(path: Path) -> int:
    """Lines that hold more than white space, a comment or a docstring.

    Docstrings are left out where the file is whole Python.
    """
    text = path.read_text(encoding="utf-8")
    tokens = (
        t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _LAYOUT
    )
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:  # a template of a program
        return len(lines)
    for node in nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def count_lines(path: Path) -> int:
    """All lines of a file."""
    return path.read_text(encoding="utf-8").count("\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", action="store_true", help="name the files")
    parser.add_argument(
        "--docstrings", type=int, default=0, help="draw so many docstrings and print nothing else"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed of the draw")
    args = parser.parse_args()
    if args.docstrings:
        draw_docstrings(args.docstrings, args.seed)
        return
    named = args.files
    parsed, paths = (
        rules.trees(),
        [p for p in rules.SOURCE.rglob("*.py") if "__pycache__" not in p.parts],
    )
    sizes = [lines for lines, _ in rules.functions(parsed)]
    lengths = sorted(p.read_text(encoding="utf-8").count("\n") for p in paths)
    print(
        f"{len(paths)} files, {sum(lengths)} lines in src/culmen; module median {lengths[len(lengths) // 2]},"
    )
    print(f"  95 % up to {lengths[int(len(lengths) * 0.95)]}, longest {lengths[-1]}")
    programs = [path for path in paths if is_program(path)]
    print(f"{len(paths) - len(programs)} of the files are modules, {len(programs)} are programs")
    code, theirs = sum(map(code_lines, paths)), sum(map(code_lines, programs))
    print(f"{code} lines without blanks, docstrings and comments, {theirs} of them in programs")
    core = [
        path for path in paths if path.relative_to(rules.SOURCE).parts[0] not in ("extensions",)
    ]
    print(f"core: {sum(map(count_lines, core))} lines in {len(core)} files, without the extensions")
    print(f"{len(list((rules.SOURCE / 'cli').glob('*.py')))} files in cli/")
    print(f"{len(rules.twins(parsed))} public class names that several modules define")
    print(
        f"{len(rules.circles(rules.imports(parsed)))} import circles (under TYPE_CHECKING and in functions, too)"
    )
    print(f"{prose.one_word_share(parsed):.0%} of the functions' names are one word")
    print(f"Any stands {prose.untyped()} times")
    long = sum(lines > rules.LONG for lines in sizes)
    print(f"{long} of {len(sizes)} functions over {rules.LONG} lines ({long / len(sizes):.2%})")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entered(folder, "new", "mytask")
        show(
            "culmen.optimize (polca, 12 evaluations of a task folder)",
            entered(folder, "optimize", "mytask", "first"),
            named,
        )
        show("culmen run with the same settings", entered(folder, *SMALL_RUN), named)


def draw_docstrings(count: int, seed: int) -> None:
    """Print the first lines of `count` docstrings of the source, drawn without choice."""
    parsed = rules.trees()
    lines = [
        (module, text.partition("\n")[0])
        for module in sorted(parsed)
        for _, text in prose.docstrings(parsed[module])
    ]
    for module, text in Random(seed).sample(lines, count):
        shown = re.sub(r"(<\w+>)", r"`\1`", text)  # a page would take it for HTML
        print(f"- `{module.removeprefix('culmen.')}`: {shown}")


def show(what: str, files: list[str], named: bool) -> None:
    print(f"{len(files)} files entered by {what}")
    for file in files if named else ():
        print(f"  {file}")


if __name__ == "__main__":
    main()
