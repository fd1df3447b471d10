"""The structure of `task.toml`, one struct per table, and the files that it names.

An initial program comes from files, patterns, folders or texts, as named parts. The data set is
JSON lines or a table (tables.py).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from culmen.core.candidate import is_text
from culmen.core.errors import TaskError
from culmen.core.evaluation import Case
from culmen.core.foreign import boundary
from culmen.core.inside import files_inside, path_inside
from culmen.core.json import JsonObject
from culmen.core.task import Asks, Limits, Surface
from culmen.tasks import tables
from culmen.tasks.reading import (
    Shown,
    line_of,
    missing_file_error,
    one_of,
    read_text,
    unknown_keys,
)
from culmen.tasks.surface import safe_name

Seeds = tuple[dict[str, str], ...]
SPLITS = ("train", "val", "test")


class SeedTable(msgspec.Struct, frozen=True):
    """Initial programs.

    `files`, `glob` and `parts` together make one initial program; `folders` and `each` make
    several.
    """

    files: list[str] = []
    glob: str = ""
    parts: dict[str, str] = {}  # texts written in task.toml itself
    folders: list[str] = []  # each folder is one seed, its files are the parts
    each: list[str] = []  # each file is one seed with one part, named `name`
    name: str = ""


class EvaluatorTable(msgspec.Struct, frozen=True):
    """The run and judgement of candidates; with `form` "" the evaluator's functions decide."""

    file: str = "evaluator.py"
    verify: str = ""  # a file with certify(output), exact, for the final choice
    form: str = ""  # one of culmen's own, or of an extension
    metric: str = ""  # a score of culmen's instead of score()
    entry: str = "run"  # also Class.method
    module: str = ""
    command: list[str] = []
    build: list[str] = []  # a compiler's command, once a candidate, before form command
    program: list[str] = []  # the evaluator in any language, asked by JSON lines
    url: str = ""  # the same by HTTP on the loopback
    image: str = ""  # the container image that candidates run in at level container
    packages: list[str] = msgspec.field(default_factory=lambda: ["numpy"])
    optional_packages: list[str] = []  # preloaded if they are installed
    thresholds: list[float] = []
    proxy: Literal["auto", "always", "never"] = (
        "auto"  # form legacy: the candidate in a process of its own
    )
    roles: list[str] = []  # in which the evaluator asks models
    asks: dict[str, Asks] = {}  # an evaluation's use of them by role, for forecasts
    keeps_state: bool = False  # what an evaluation leaves in the evaluator is there for the next
    options: JsonObject = {}


class ObjectiveTable(msgspec.Struct, frozen=True):
    """Direction and levels of the score; `inf` and `-inf` in `bounds` leave a side open."""

    direction: str = "max"  # or min; maximize and minimize mean the same
    start: float | None = None
    target: float | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    # the best value known to be true; a score beyond it is checked at once
    known: float | None = None


class DefaultsTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Defaults of a run of this task; `settings` are the strategy's own fields."""

    strategy: str = ""
    model: str = ""
    budget: str = ""
    seed: int = 0
    workers: int = 0
    settings: JsonObject = {}


class DataTable(msgspec.Struct, frozen=True):
    """Data from files, any of which is enough, and the words for those made up without them."""

    files: list[str] = []
    generated: str = "generated data"


class AgentsTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evaluator's text for coding agents: all, docstrings and constants, or nothing."""

    evaluator: Shown = "public"


class ResourcesTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources of one evaluation on a cluster's node."""

    cpu: float = 1.0
    gpu: float = 0.0
    memory: str = ""  # 2GB
    custom: dict[str, float] = {}


class TaskTable(msgspec.Struct, frozen=True):
    """The whole file."""

    name: str = ""
    goal: str = ""
    system: str = ""
    cases: str = ""
    label: str = ""  # the column of a table of cases with the right answer
    deterministic: bool | None = None
    same_draws: bool = False  # one random seed a case for all evaluations
    features: list[str] = []
    seed: SeedTable | None = None
    evaluator: EvaluatorTable = EvaluatorTable()
    objective: ObjectiveTable = ObjectiveTable()
    objectives: JsonObject = {}  # metrics by name, each with its direction
    constraints: list[str] = []  # METRIC <= NUMBER
    limits: Limits = Limits()
    surface: Surface = Surface()
    defaults: DefaultsTable = DefaultsTable()
    presets: dict[str, DefaultsTable] = {}  # other defaults by name, for --preset
    resources: ResourcesTable = ResourcesTable()
    agents: AgentsTable = AgentsTable()
    data: DataTable | None = None


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "seed": SeedTable,
    "evaluator": EvaluatorTable,
    "objective": ObjectiveTable,
    "limits": Limits,
    "surface": Surface,
    "defaults": DefaultsTable,
    "resources": ResourcesTable,
    "agents": AgentsTable,
    "data": DataTable,
}


class TaskToml(msgspec.Struct, frozen=True):
    """A task.toml with its text, so that later errors can name the line.

    `more` is the table that a caller reads beside culmen's own, None without one.
    """

    path: Path
    text: str
    table: TaskTable
    more: Any = None

    def error_at_key(self, what: str, section: str, key: str, fix: str) -> TaskError:
        """An error about one key."""
        line = line_of(self.text, section, key)
        return TaskError(
            what, where=f"{self.path}:{line} ({f'{section}.' if section else ''}{key})", fix=fix
        )


@boundary()
def read_toml(path: Path, more: tuple[str, type[msgspec.Struct]] | None = None) -> TaskToml:
    """Parse a task.toml and check its structure; raises `TaskError` with file and line.

    `more` names one further table and its structure.
    """
    text = read_text(path)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        where = f"{path}:{match[1]}" if match else str(path)
        raise TaskError(
            f"not valid TOML: {error}", where=where, fix="correct that line; texts need quotes"
        ) from None
    if isinstance(program := raw.get("evaluator"), str) and program.startswith("docker:"):
        raw["evaluator"] = {"program": [program]}
    name, kind = more or ("", TaskTable)
    unknown_keys(raw, (*TaskTable.__struct_fields__, *filter(None, [name])), str(path), text)
    for section, struct in {**SECTIONS, **({name: kind} if name else {})}.items():
        table = raw.get(section, {})
        if isinstance(table, dict):
            unknown_keys(table, struct.__struct_fields__, str(path), text, section)
    for name, table in raw["presets"].items() if isinstance(raw.get("presets"), dict) else ():
        if isinstance(table, dict):
            unknown_keys(table, DefaultsTable.__struct_fields__, str(path), text, f"presets.{name}")
    try:
        further = msgspec.convert({name: raw.pop(name, {})}, dict[str, kind]) if name else {}
        return TaskToml(path, text, msgspec.convert(raw, TaskTable), further.get(name))
    except msgspec.ValidationError as error:
        raise _wrong_type(path, text, str(error)) from None


def _wrong_type(path: Path, text: str, message: str) -> TaskError:
    """The error for a wrong type, with its place in the file.

    msgspec's message is `Expected X, got Y - at `$.section.key[0]``.
    """
    what, _, path_in_table = message.partition(" - at ")
    keys = re.findall(r"[\w-]+", re.sub(r"\[.*?\]", "", path_in_table.strip("`$")))
    section, key = (keys[0], keys[1]) if len(keys) > 1 else ("", keys[0] if keys else "")
    line = line_of(text, section, key)
    what = what.replace("`object | null`", "a table").replace("`object`", "a table")
    fix = "correct the value; culmen docs tasks lists what each key takes"
    if keys == ["seed"]:
        fix = 'write files = ["x.py"] under [seed]; a random seed stands under [defaults]'
    return TaskError(
        f"wrong value: {what[0].lower()}{what[1:]}",
        where=f"{path}:{line} ({'.'.join(keys)})",
        fix=fix,
    )


def read_seeds(source: TaskToml) -> tuple[Seeds, tuple[Path, ...]]:
    """The initial programs and their files; none without a [seed]. Raises `TaskError`."""
    table, root = source.table.seed, source.path.parent
    if table is None:
        return (), ()
    together = bool(table.files or table.glob or table.parts)
    if together + bool(table.folders) + bool(table.each) != 1:
        fix = (
            "use files, glob and parts for one initial program, or folders for several, or each "
            "for several of one file"
        )
        raise source.error_at_key(
            "[seed] must name the initial programs in exactly one way", "", "seed", fix
        )
    if together:
        named = _collect_parts(source, table, root)
    elif table.folders:
        named = [_folder_parts(source, path_inside(root, name)) for name in table.folders]
    else:
        name = table.name or f"program{Path(table.each[0]).suffix}"
        named = [{name: _resolve_file(source, "each", root, each)} for each in table.each]
    seeds = tuple(
        {name: _part_text(part_source) for name, part_source in seed.items()} for seed in named
    )
    _check_seeds(source, seeds)
    return seeds, tuple(
        part_source
        for seed in named
        for part_source in seed.values()
        if isinstance(part_source, Path)
    )


def check_text(text: str, where: str) -> None:
    """Raise `TaskError` if the text of an initial program is empty or cannot be stored."""
    if not text.strip():
        raise TaskError(
            "the initial program is empty",
            where=where,
            fix="write a first version into it, however simple",
        )
    if not is_text(text):
        raise TaskError(
            "the initial program holds NUL characters",
            where=where,
            fix="save it as plain UTF-8 text",
        )


def _collect_parts(source: TaskToml, table: SeedTable, root: Path) -> list[dict[str, Path | str]]:
    paths = [_resolve_file(source, "files", root, name) for name in table.files]
    if table.glob:
        matched = [
            p
            for p in sorted(_match_pattern(source, table.glob, root))
            if path_inside(root, p.relative_to(root)).is_file() and p not in paths
        ]
        if not matched and not paths:
            raise source.error_at_key(
                f"no file matches '{table.glob}'", "seed", "glob", "correct the pattern"
            )
        paths += matched
    seed: dict[str, Path | str] = {}
    for path in paths:
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        if name in seed:
            raise source.error_at_key(
                f"two parts are called '{name}'", "seed", "files", "name every part once"
            )
        seed[name] = path
    for name, text in table.parts.items():
        if name in seed or not safe_name(name):
            fix = "use a plain name that no initial file has"
            raise source.error_at_key(f"a part cannot be called '{name}'", "seed", "parts", fix)
        seed[name] = text
    return [seed]


def _match_pattern(source: TaskToml, pattern: str, root: Path) -> list[Path]:
    try:
        return list(root.glob(pattern))
    except (ValueError, NotImplementedError) as error:
        raise source.error_at_key(
            f"bad pattern: {error}", "seed", "glob", 'use a relative one like "prompts/*.txt"'
        ) from None


def _folder_parts(source: TaskToml, folder: Path) -> dict[str, Path | str]:
    if not folder.is_dir():
        raise missing_file_error(folder, f"{source.path} (seed.folders)")
    visible = (p for p in files_inside(folder, ("__pycache__",)) if "__pycache__" not in p.parts)
    parts: dict[str, Path | str] = {
        p.relative_to(folder).as_posix(): p for p in visible if p.name[0] != "."
    }
    if not parts:
        raise source.error_at_key(
            f"folder '{folder.name}' holds no files",
            "seed",
            "folders",
            "put the initial program's files there",
        )
    return parts


def _resolve_file(source: TaskToml, key: str, root: Path, name: str) -> Path:
    path = path_inside(root, name)
    if not path.is_file():
        raise missing_file_error(path, f"{source.path} (seed.{key})")
    return path


def _part_text(source: Path | str) -> str:
    return read_text(source) if isinstance(source, Path) else source


def _check_seeds(source: TaskToml, seeds: Seeds) -> None:
    for number, seed in enumerate(seeds, 1):
        for name, text in seed.items():
            check_text(text, f"{source.path} (initial program {number}, part {name})")
        if seed.keys() != seeds[0].keys():
            what = (
                f"initial program {number} has the parts {_part_names(seed)}, number 1 has "
                f"{_part_names(seeds[0])}"
            )
            raise source.error_at_key(
                what, "", "seed", "give all initial programs the same part names"
            )
        if sum(map(len, seed.values())) > source.table.surface.max_chars:
            what = (
                f"initial program {number} is longer than surface.max_chars = "
                f"{source.table.surface.max_chars}"
            )
            raise source.error_at_key(
                what, "surface", "max_chars", "raise max_chars or shorten the initial program"
            )


def _part_names(seed: Mapping[str, str]) -> str:
    return ", ".join(seed)


def read_cases(path: Path, label: str = "", label_where: str = "label") -> tuple[Case, ...]:
    """The cases in the order of the file: JSON lines, or a table (CSV, parquet).

    A case without `id` is named by its position among the cases (1, 2, ...). In a table, `label` is
    the column of the right answer; a column `input` is the input, else all others together are.
    Raises `TaskError`, with the line, for anything except an object of id, input, info, split.
    """
    is_table = bool(label) or path.suffix.lower() in tables.SUFFIXES
    seen: dict[str, int] = {}
    cases: list[Case] = []
    for number, case in _table_cases(path, label, label_where) if is_table else _json_cases(path):
        if case.id in seen:
            what = f"the id '{case.id}' is already that of line {seen[case.id]}"
            raise TaskError(
                what,
                where=f"{path}:{number}",
                fix="give every case its own id, or leave all ids out",
            )
        seen[case.id] = number
        cases.append(case)
    if not any(case.split == "train" for case in cases):
        what = "no case belongs to the split 'train'" if cases else "the data set is empty"
        raise TaskError(
            what,
            where=str(path),
            fix="a search needs training cases: leave 'split' out, or write \"train\"",
        )
    return tuple(cases)


def _json_cases(path: Path) -> Iterator[tuple[int, Case]]:
    """Line and case of every line that is not empty."""
    count = 0
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            count += 1
            yield number, _parse_case(line, f"{path}:{number}", str(count))


def _table_cases(path: Path, label: str, label_where: str) -> Iterator[tuple[int, Case]]:
    """Line and case of every row of a table."""
    table = tables.read_table(path)
    answer = table.require_column(label, label_where) if label else "info"
    others = [name for name in table.columns if name not in ("id", "split", answer)]
    for count, (line, values) in enumerate(table.rows, 1):
        given: object = {name: values.get(name) for name in others}
        if others == ["input"]:
            given = values.get("input")
        raw = {
            "id": values.get("id") or str(count),
            "input": given,
            "info": values.get(answer),
            "split": str(values.get("split") or "train").strip().lower(),
        }
        yield line, _case_of_object(raw, table.place_of(line), str(count))


@boundary()
def _parse_case(line: str, where: str, default_id: str) -> Case:
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise TaskError(
            f"not valid JSON: {error}", where=where, fix="one JSON object per line"
        ) from None
    if not isinstance(raw, dict):
        raise TaskError(
            "a case must be a JSON object", where=where, fix='write {"input": ..., "info": ...}'
        )
    unknown_keys(raw, Case.__struct_fields__, where)
    return _case_of_object(raw, where, default_id)


def _case_of_object(raw: JsonObject, where: str, default_id: str) -> Case:
    split, name = raw.get("split", "train"), raw.get("id", default_id)
    if split not in SPLITS:
        raise TaskError(f"unknown split {split!r}", where=where, fix=one_of(str(split), SPLITS))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise TaskError(
            f"an id must be a text or a whole number, not {name!r}",
            where=where,
            fix='write "id": "name"',
        )
    return Case(str(name), raw.get("input"), raw.get("info"), split)
