"""Files of a task: their texts, languages and, for Python, the names that they define.

Nothing is imported or run. Error messages name the place of a mistake and the nearest valid name.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from culmen.core.errors import TaskError
from culmen.core.evaluation import Case
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, digest_pieces
from culmen.evaluate.taskfiles import surface as markers

LANGUAGES = {
    ".py": "python",
    ".awk": "awk",
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".f90": "fortran",
    ".go": "go",
    ".html": "html",
    ".java": "java",
    ".jl": "julia",
    ".js": "javascript",
    ".json": "json",
    ".lean": "lean",
    ".md": "markdown",
    ".metal": "metal",
    ".ml": "ocaml",
    ".prompt": "text",
    ".r": "r",
    ".rs": "rust",
    ".sh": "shell",
    ".sql": "sql",
    ".swift": "swift",
    ".toml": "toml",
    ".ts": "typescript",
    ".txt": "text",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_NUMERICAL = {
    "numpy",
    "scipy",
    "pandas",
    "sympy",
    "networkx",
    "shapely",
}  # single-threaded while they load


def read_text(path: Path) -> str:
    """A UTF-8 text file with line ends as `\\n`; raises `TaskError`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise missing_file_error(path) from None
    except OSError as error:
        raise TaskError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            fix="check the path and its rights",
        ) from None
    except UnicodeDecodeError as error:
        what = f"not UTF-8 text (byte {error.start})"
        raise TaskError(what, where=str(path), fix="save the file as UTF-8") from None
    return text.replace("\r\n", "\n")


def missing_file_error(path: Path, key: str = "") -> TaskError:
    """The error for a missing file, with the nearest name in its folder."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    near = closest_name(path.name, names)
    fix = f"did you mean '{near}'?" if near else f"create {path.name}, or name another file"
    where = f"{key}: {path}" if key else str(path)
    return TaskError(f"file '{path.name}' does not exist", where=where, fix=fix)


def closest_name(name: str, names: Iterable[str]) -> str:
    """The most similar name, "" if none is near."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)), "")


def one_of(word: str, words: Iterable[str]) -> str:
    """The remedy for a wrong word: the nearest word, if any, and all possible ones."""
    choices = sorted(words)
    near = closest_name(word, choices)
    return (f"did you mean '{near}'? " if near else "") + f"possible: {', '.join(choices)}"


def unknown_keys(
    table: Mapping[str, object],
    allowed: Iterable[str],
    where: str,
    toml: str = "",
    section: str = "",
) -> None:
    """Raise `TaskError` for the first key that is not allowed."""
    known = list(allowed)
    for key in table:
        if key not in known:
            location = f"{where}:{line_of(toml, section, str(key))}" if toml else where
            inside = f" in [{section}]" if section else ""
            raise TaskError(
                f"unknown key '{key}'{inside}", where=location, fix=one_of(str(key), known)
            )


def line_of(toml: str, section: str, key: str) -> int:
    """The line (from 1) of a key of a TOML text, or of its section's heading.

    1 if neither is found. A search by lines, good enough for messages: it does not parse multi-line
    values.
    """
    current, heading = "", 1
    for number, line in enumerate(toml.splitlines(), 1):
        if match := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            current = match[1].replace('"', "").replace(" ", "")
            if current in (section, f"{section}.{key}".lstrip(".")):
                heading = number
            if current == f"{section}.{key}".lstrip("."):
                return number
        elif current == section and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return number
    return heading


def language_of(name: str) -> str:
    """The language of a file by its suffix, "text" if it is not known."""
    return LANGUAGES.get(Path(name).suffix.lower(), "text")


class Definition(NamedTuple):
    """A name a module binds at its top level.

    `params` are the arguments a `def` needs, `optional` those with a default; None if no `def`
    is visible.
    """

    name: str
    line: int
    params: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()


class Module(NamedTuple):
    """The top-level names of a Python text.

    `open` if it also binds names that cannot be seen (import *).
    """

    names: dict[str, Definition]
    open: bool

    def may_define(self, name: str) -> bool:
        """True if the name is bound, or may be."""
        return self.open or name in self.names


def read_module(path: Path) -> Module:
    """The names of a Python file; raises `TaskError` if it cannot be read or parsed."""
    return parse_module(read_text(path), str(path))


def parse_module(text: str, where: str) -> Module:
    """The names of a Python text.

    Raises `TaskError`, with `where` and the line, if the text is not Python.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        location = f"{where}:{error.lineno}" if error.lineno else where
        raise TaskError(
            f"not valid Python: {error.msg}", where=location, fix="correct that line"
        ) from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"not valid Python: {error}", where=where, fix="correct the file") from None
    definitions = list(_top_level_bindings(tree.body))
    return Module(
        {d.name: d for d in definitions if d.name != "*"}, any(d.name == "*" for d in definitions)
    )


def preloadable_modules(text: str) -> tuple[str, ...]:
    """The numerical modules that a Python text imports and this machine has, sorted.

    Found without importing any. Loading them once before the first candidate saves loading them for
    each.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return tuple(
        sorted(
            name for name in names if name.partition(".")[0] in _NUMERICAL and _is_installed(name)
        )
    )


def possible_file_names(text: str) -> set[str]:
    """The pieces between slashes of all short texts in a Python file: possible file names."""
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    literals = (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return {
        piece
        for literal in literals
        if len(literal) < 200
        for piece in literal.replace("\\", "/").split("/")
    }


def _is_installed(name: str) -> bool:
    locations, qualified = None, ""
    for piece in name.split("."):
        qualified = f"{qualified}.{piece}".lstrip(".")
        spec = PathFinder.find_spec(qualified, locations)
        if spec is None:
            return False
        locations = spec.submodule_search_locations or []
    return True


def require_function(module: Module, name: str, path: Path, why: str) -> Definition:
    """The definition of a required function; raise `TaskError` with a near name without one."""
    if module.may_define(name):
        return module.names.get(name, Definition(name, 1))
    near = closest_name(name, module.names)
    hint = f"; there is '{near}' on line {module.names[near].line}" if near else ""
    raise TaskError(f"no function '{name}' is defined{hint}", where=str(path), fix=why)


def _top_level_bindings(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _function_definition(node)
            case ast.ClassDef(name=name):
                yield Definition(name, node.lineno)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (
                    Definition(a.asname or a.name.partition(".")[0], node.lineno) for a in names
                )
            case ast.Assign(targets=targets):
                yield from (
                    Definition(n.id, n.lineno)
                    for t in targets
                    for n in ast.walk(t)
                    if isinstance(n, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=name)) if node.value is not None:
                yield Definition(name, node.lineno)
            case _:
                yield from _nested_bindings(node)


def _nested_bindings(node: ast.stmt) -> Iterator[Definition]:
    """Names bound in the branches of if, try, with and for at the top level."""
    for field in ("body", "orelse", "finalbody"):
        yield from _top_level_bindings(getattr(node, field, []))
    for handler in getattr(node, "handlers", []):
        yield from _top_level_bindings(handler.body)


def _function_definition(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Definition:
    args = node.args
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    first = len(positional) - len(args.defaults)
    keyword = [
        (a.arg, default is not None) for a, default in zip(args.kwonlyargs, args.kw_defaults)
    ]
    needed = (*positional[:first], *(name for name, has_default in keyword if not has_default))
    optional = (*positional[first:], *(name for name, has_default in keyword if has_default))
    return Definition(node.name, node.lineno, needed, optional)


# Views of the evaluator for agents: its whole file, its docstrings and constants, or nothing.

Shown = Literal["full", "public", "none"]
MAX_SHOWN = 20_000  # characters of a file that is shown whole
_LONGEST = 100  # characters of a constant worth showing; a longer one may be an answer


def text_for_agents(path: Path, how: Shown) -> str:
    """The part of an evaluator's file that agents may read.

    "full": the whole file, cut after `MAX_SHOWN` characters. "public": its docstring, its short
    constants and its functions' heads with their docstrings; "" for a file that is not Python.
    "none": "".
    """
    text = "" if how == "none" else path.read_text(encoding="utf-8", errors="replace")
    if how == "full":
        return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "\n# cut here"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    pieces = [_quote_docstring(ast.get_docstring(tree), "")]
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            line = ast.unparse(node)
            pieces.append(line if len(line) <= _LONGEST else "")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
            "_"
        ):
            head = f"def {node.name}({ast.unparse(node.args)}):"
            pieces.append(
                f"{head}\n{_quote_docstring(ast.get_docstring(node), '    ') or '    ...'}"
            )
    return "\n".join(filter(None, pieces))


def _quote_docstring(text: str | None, indent: str) -> str:
    if not text:
        return ""
    return "\n".join(f"{indent}{line}".rstrip() for line in f'"""{text}\n"""'.splitlines())


# Digests of the files that an evaluation depends on, independent of the folder's location.

MAX_FILES = 400
MAX_BYTES = 64 * 2**20
_SKIPPED_FOLDERS = {
    "__pycache__",
    "node_modules",
    "venv",
    "runs",
    "openevolve_output",
    "results",
    "logs",
}
_SKIPPED_SUFFIXES = {".pyc", ".md", ".rst", ".log", ".png", ".jpg", ".svg", ".pdf"}


def evaluator_files(path: Path, apart: Iterable[Path]) -> tuple[dict[str, str], str]:
    """SHA-256 of an evaluator and of the files beside it, by name, and a note.

    The note is "" if all files were covered. `apart` are files that do not belong to the evaluator
    (initial programs, cases, settings). Hidden files, caches, logs, pictures and prose do not
    count. Of a folder with more than 400 files or 64 MB only the evaluator and Python files
    directly beside it are covered.
    """
    folder, skipped = path.parent, {p.resolve() for p in apart}
    files: list[Path] = []
    size = 0
    for file in iter_relevant_files(folder):
        if file.resolve() in skipped:
            continue
        files.append(file)
        size += file.stat().st_size
        if len(files) > MAX_FILES or size > MAX_BYTES:
            near = [
                f for f in sorted(folder.glob("*.py")) if f.is_file() and f.resolve() not in skipped
            ]
            note = (
                f"{folder} is large: only its own .py files count as the evaluator; move it to a "
                "small folder"
            )
            return _file_digests(folder, {path, *near}), note
    return _file_digests(folder, {path, *files}), ""


def evaluator_digest(files: Mapping[str, str]) -> str:
    """Digest of an evaluator from those of its files."""
    return digest_pieces(*(piece for pair in files.items() for piece in pair))


def task_digest(
    evaluator: Evaluator,
    cases: tuple[Case, ...],
    objective: Objective,
    limits: Limits,
    surface: Surface,
    seeds: tuple[dict[str, str], ...],
) -> str:
    """Digest of everything that affects a score; of initial programs only the immutable text."""
    contract = msgspec.structs.replace(
        evaluator,
        path="",
        verifier=Path(evaluator.verifier).name,
        files={},
        shown="",
        tolerances=True,
    )
    plain = [
        contract,
        cases,
        objective,
        limits,
        surface,
        [_immutable_text(surface, seed) for seed in seeds],
    ]
    return digest_pieces(*(msgspec.json.encode(piece, order="sorted") for piece in plain))


def with_digest(task: Task) -> Task:
    """The task with its digest updated."""
    parts = (task.evaluator, task.cases, task.objective, task.limits, task.surface, task.seeds)
    return msgspec.structs.replace(task, digest=task_digest(*parts))


def _immutable_text(surface: Surface, seed: dict[str, str]) -> dict[str, str | list[str]]:
    fixed: dict[str, str | list[str]] = {
        name: seed[name] for name in surface.frozen if name in seed
    }
    if surface.markers == "enforced":
        for name, text in seed.items():
            if name not in fixed and markers.has_blocks(text):
                fixed[name] = [
                    region.text for region in markers.split_blocks(text) if not region.editable
                ]
    return fixed


def iter_relevant_files(folder: Path) -> Iterator[Path]:
    """Files of a folder and below that can matter to an evaluation."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS
        )
        for name in sorted(names):
            file = Path(root, name)
            if not name.startswith(".") and file.suffix not in _SKIPPED_SUFFIXES and file.is_file():
                yield file


def _file_digests(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): file_sha256(file) for file in sorted(files)}


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def initial_programs(folder: Path) -> list[Path]:
    """The `initial_program.*` files of a folder."""
    return sorted(
        path
        for path in folder.glob("initial_program.*")
        if path.is_file() and path.suffix != ".pyc"
    )
