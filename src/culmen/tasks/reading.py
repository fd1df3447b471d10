"""Files of a task: their texts, languages and, for Python, the names that they define.

Nothing is imported or run. Error messages name the place of a mistake and the nearest valid name.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Literal

import msgspec

from culmen.core import markers
from culmen.core.errors import TaskError
from culmen.core.evaluation import Case
from culmen.core.foreign import parse_python, parse_python_or_none
from culmen.core.inside import path_inside
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, digest_pieces
from culmen.jail.forms import Definition, Module

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
    import difflib

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


def read_module(path: Path) -> Module:
    """The names of a Python file; raises `TaskError` if it cannot be read or parsed."""
    return parse_module(read_text(path), str(path))


def parse_module(text: str, where: str) -> Module:
    """The names of a Python text.

    Raises `TaskError`, with `where` and the line, if the text is not Python.
    """
    try:
        tree = parse_python(text)
    except SyntaxError as error:
        location = f"{where}:{error.lineno}" if error.lineno else where
        raise TaskError(
            f"not valid Python: {error.msg}", where=location, fix="correct that line"
        ) from None
    definitions = list(_top_level_bindings(tree.body))
    return Module(
        {d.name: d for d in definitions if d.name != "*"}, any(d.name == "*" for d in definitions)
    )


def preloadable_modules(text: str) -> tuple[str, ...]:
    """The numerical modules that a Python text imports and this machine has, sorted.

    Found without importing any. Loading them once before the first candidate saves loading them for
    each.
    """
    tree = parse_python_or_none(text)
    nodes = list(ast.walk(tree)) if tree else []
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
    tree = parse_python_or_none(text)
    nodes = ast.walk(tree) if tree else ()
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
    tree = parse_python_or_none(text)
    if tree is None:
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
_PASSING_ENDS = ("~", ".swp", ".swo", "-wal", "-shm", "-journal")  # of editors and of SQLite
_JOURNAL = "journal.db"  # marks the folder of a run, wherever it lies
_DATA_LANGUAGES = {"html", "json", "markdown", "text"}
_SOURCE_SUFFIXES = {".cfg", ".h", ".hpp", ".ini", ".pyi", ".pyx", ".so"}  # not in LANGUAGES


def evaluator_files(path: Path, apart: Iterable[Path]) -> tuple[dict[str, str], str]:
    """SHA-256 of an evaluator and of the files beside it, by name, and a note.

    The note is "" if all files were covered. `apart` are files that do not belong to the evaluator
    (initial programs, cases, settings). Hidden files, caches, logs, pictures, prose, folders of
    runs and the output of this process do not count. Of a folder with more than 400 files or 64 MB
    only the evaluator and Python files directly beside it are covered. See `record_file`.
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
            return _record_files(path, {path, *near}), note
    return _record_files(path, {path, *files}), ""


def evaluator_digest(files: Mapping[str, str]) -> str:
    """Digest of an evaluator from the records of its files; sizes do not count."""
    return digest_pieces(
        *(piece for name, record in files.items() for piece in (name, _split_record(record)[0]))
    )


def task_digest(
    evaluator: Evaluator,
    cases: tuple[Case, ...],
    objective: Objective,
    limits: Limits,
    surface: Surface,
    seeds: tuple[dict[str, str], ...],
    same_draws: bool = False,
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
    drawn = ("same_draws",) if same_draws else ()
    encoded = (msgspec.json.encode(piece, order="sorted") for piece in plain)
    return digest_pieces(*encoded, *drawn)


def with_digest(task: Task) -> Task:
    """The task with its digest updated."""
    parts = (task.evaluator, task.cases, task.objective, task.limits, task.surface, task.seeds)
    return msgspec.structs.replace(task, digest=task_digest(*parts, task.same_draws))


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
    outputs = own_outputs()
    for root, folders, names in os.walk(folder):
        if _JOURNAL in names and Path(root) != folder:
            folders.clear()
            continue
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS
        )
        for name in sorted(names):
            file = Path(root, name)
            if is_relevant_name(name) and file.is_file() and file_number(file) not in outputs:
                yield file


def is_relevant_name(name: str) -> bool:
    """True if a file of this name can matter to an evaluation."""
    return (
        not name.startswith((".", "#"))
        and not name.endswith(_PASSING_ENDS)
        and Path(name).suffix not in _SKIPPED_SUFFIXES
    )


def own_outputs() -> set[tuple[int, int]]:
    """The files that this process prints to, as `file_number`: no part of any evaluator."""
    numbers: set[tuple[int, int]] = set()
    for stream in (1, 2):
        with suppress(OSError):
            numbers.add(file_number(stream))
    return numbers


def file_number(file: Path | str | int) -> tuple[int, int]:
    """Device and inode of a file, which a path shares with a descriptor of the same file."""
    about = os.stat(file)
    return about.st_dev, about.st_ino


# Records of files, `SHA256` or `SHA256:SIZE`. A file recorded with its size in bytes may grow:
# what only grows is a log. Programs and settings are recorded without it.

_RECORD = re.compile(r"([0-9a-f]{64}):(\d+)")
FileChange = Literal["", "grown", "changed", "missing"]


def record_file(file: Path) -> str:
    """The record of a file's present content, with its size unless it is a program or settings."""
    suffix = file.suffix.lower()
    language = LANGUAGES.get(suffix, "text")
    if language not in _DATA_LANGUAGES or suffix in _SOURCE_SUFFIXES:
        return file_sha256(file)
    return record_start(file, file.stat().st_size)


def record_start(file: Path, size: int) -> str:
    """The record of the first `size` bytes of a file; of fewer if it is shorter."""
    sha, left = hashlib.sha256(), size
    with file.open("rb") as stream:
        while left and (piece := stream.read(min(left, 1 << 20))):
            sha.update(piece)
            left -= len(piece)
    return f"{sha.hexdigest()}:{size - left}"


def may_grow(record: str) -> bool:
    """True if the record is of a file that is neither program nor settings."""
    return _split_record(record)[1] is not None


def compare_file(file: Path, record: str) -> FileChange:
    """The change of a file since its record, "" for none; the loss of an empty file is none."""
    sha, size = _split_record(record)
    try:
        if size is None:
            return "" if file_sha256(file) == sha else "changed"
        if record_start(file, size) != record:
            return "changed"
        return "grown" if file.stat().st_size > size else ""
    except OSError:
        return "missing" if size != 0 else ""


def _split_record(record: str) -> tuple[str, int | None]:
    match = _RECORD.fullmatch(record)
    return (match[1], int(match[2])) if match else (record, None)


def _record_files(evaluator: Path, files: Iterable[Path]) -> dict[str, str]:
    folder = evaluator.parent
    return {
        file.relative_to(folder).as_posix(): (
            file_sha256(file) if file == evaluator else record_file(file)
        )
        for file in sorted(files)
    }


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_FIRST = ("initial_program", "init_program", "initial_prompt", "init_prompt")


def initial_programs(folder: Path) -> list[Path]:
    """The files of a folder that are named as initial programs, by the first name there is.

    A folder of such a name stands for the files in it.
    """
    for name in _FIRST:
        inside = folder / name
        files = [*folder.glob(f"{name}.*"), *(inside.iterdir() if inside.is_dir() else ())]
        found = [
            p
            for p in files
            if path_inside(folder, p.relative_to(folder)).is_file()
            and p.suffix != ".pyc"
            and p.name[0] != "."
        ]
        if found:
            return sorted(found)
    return []
