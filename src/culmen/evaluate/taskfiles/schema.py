"""The shape of `task.toml`, one struct per table, and the errors of a file that does not have it."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from culmen.core.errors import TaskError
from culmen.core.task import Limits, Surface
from culmen.evaluate.taskfiles.places import line_of, read_text, unknown_keys


class SeedTable(msgspec.Struct, frozen=True):
    """Where a search starts. `files`, `glob` and `parts` together make one seed; `folders` and `each` make several."""

    files: list[str] = []
    glob: str = ""
    parts: dict[str, str] = {}  # texts written in task.toml itself
    folders: list[str] = []  # each folder is one seed, its files are the parts
    each: list[str] = []  # each file is one seed with one part, named `name`
    name: str = ""


class EvaluatorTable(msgspec.Struct, frozen=True):
    """How candidates are run and judged; `form` "" is read off the evaluator's functions."""

    file: str = "evaluator.py"
    verify: str = ""  # a file with certify(output), exact, for the final choice
    form: Literal["", "call", "serve", "command", "legacy"] = ""
    entry: str = "run"
    module: str = ""
    command: list[str] = []
    packages: list[str] = msgspec.field(default_factory=lambda: ["numpy"])
    thresholds: list[float] = []
    proxy: Literal["auto", "always", "never"] = "auto"  # form legacy: the candidate in a process of its own
    options: dict[str, Any] = {}


class ObjectiveTable(msgspec.Struct, frozen=True):
    """Direction and levels of the score; `inf` and `-inf` in `bounds` leave a side open."""

    direction: Literal["max", "min"] = "max"
    start: float | None = None
    target: float | None = None
    bounds: tuple[float, float] = (-math.inf, math.inf)
    known: float | None = None  # the best value known to be true; a score beyond it is looked at at once


class DefaultsTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run of this task uses unless told otherwise; `settings` are the strategy's own fields."""

    strategy: str = ""
    model: str = ""
    budget: str = ""
    seed: int = 0
    workers: int = 0
    settings: dict[str, Any] = {}


class ResourcesTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one evaluation takes of a node, where evaluations run on a cluster."""

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
    deterministic: bool = False
    features: list[str] = []
    seed: SeedTable | None = None
    evaluator: EvaluatorTable = EvaluatorTable()
    objective: ObjectiveTable = ObjectiveTable()
    limits: Limits = Limits()
    surface: Surface = Surface()
    defaults: DefaultsTable = DefaultsTable()
    resources: ResourcesTable = ResourcesTable()


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "seed": SeedTable,
    "evaluator": EvaluatorTable,
    "objective": ObjectiveTable,
    "limits": Limits,
    "surface": Surface,
    "defaults": DefaultsTable,
    "resources": ResourcesTable,
}


class Source(msgspec.Struct, frozen=True):
    """A task.toml with its text, so that later faults can name the line too."""

    path: Path
    text: str
    table: TaskTable

    def fault(self, what: str, section: str, key: str, fix: str) -> TaskError:
        """An error about one key."""
        line = line_of(self.text, section, key)
        return TaskError(what, where=f"{self.path}:{line} ({f'{section}.' if section else ''}{key})", fix=fix)


def read_toml(path: Path) -> Source:
    """Parse and check the shape of a task.toml; raises `TaskError` with file and line."""
    text = read_text(path)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        place = f"{path}:{found[1]}" if found else str(path)
        raise TaskError(f"not valid TOML: {error}", where=place, fix="correct that line; texts need quotes") from None
    unknown_keys(raw, TaskTable.__struct_fields__, str(path), text)
    for section, struct in SECTIONS.items():
        table = raw.get(section, {})
        if isinstance(table, dict):
            unknown_keys(table, struct.__struct_fields__, str(path), text, section)
    try:
        return Source(path, text, msgspec.convert(raw, TaskTable))
    except msgspec.ValidationError as error:
        raise _wrong_type(path, text, str(error)) from None


def _wrong_type(path: Path, text: str, message: str) -> TaskError:
    """msgspec's `Expected X, got Y - at `$.section.key[0]`` with the place in the file."""
    what, _, place = message.partition(" - at ")
    keys = re.findall(r"[\w-]+", re.sub(r"\[.*?\]", "", place.strip("`$")))
    section, key = (keys[0], keys[1]) if len(keys) > 1 else ("", keys[0] if keys else "")
    line = line_of(text, section, key)
    return TaskError(
        f"wrong value: {what[0].lower()}{what[1:]}",
        where=f"{path}:{line} ({'.'.join(keys)})",
        fix="correct the value; docs/tasks.md lists what each key takes",
    )
