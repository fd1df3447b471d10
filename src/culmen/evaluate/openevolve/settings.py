"""The keys of an OpenEvolve `config.yaml`: which matter here, where they belong, and what is done with the others.

Many published files put keys at the wrong level; a key that can belong to one place only is taken from wherever it
stands, with a note. Keys without a meaning here are listed in one note, never an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import TaskError
from culmen.evaluate.taskfiles.places import read_text


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model and its share of the calls; an entry may carry its own endpoint."""

    name: str
    weight: float = 1.0
    api_base: str = ""
    api_key: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None


# Section -> key -> type. "" is the top level.
KEYS: dict[str, dict[str, Any]] = {
    "": {
        "max_iterations": int,
        "random_seed": int | None,
        "language": str | None,
        "file_suffix": str,
        "diff_based_evolution": bool,
        "max_code_length": int,
    },
    "llm": {
        "api_base": str | None,
        "api_key": str | None,
        "models": list[Model],
        "primary_model": str | None,
        "primary_model_weight": float,
        "secondary_model": str | None,
        "secondary_model_weight": float,
        "temperature": float | None,
        "top_p": float | None,
        "max_tokens": int | None,
        "timeout": float | None,
        "retries": int | None,
    },
    "prompt": {
        "system_message": str | None,
        "num_top_programs": int,
        "num_diverse_programs": int,
        "include_artifacts": bool,
    },
    "database": {
        "num_islands": int,
        "feature_dimensions": list[str] | int,
        "feature_bins": int | dict[str, int],
        "migration_interval": int,
        "migration_rate": float,
        "population_size": int,
        "archive_size": int,
        "exploration_ratio": float,
        "exploitation_ratio": float,
        "elite_selection_ratio": float,
    },
    "evaluator": {
        "timeout": float,
        "cascade_evaluation": bool,
        "cascade_thresholds": list[float],
        "parallel_evaluations": int,
    },
}


class Settings(msgspec.Struct, frozen=True):
    """What was understood of a file: values by (section, key), and notes for people."""

    values: dict[tuple[str, str], Any] = {}
    notes: tuple[str, ...] = ()

    def get(self, section: str, key: str, default: Any = None) -> Any:
        """The value of a key, the default if it is absent or null."""
        value = self.values.get((section, key))
        return default if value is None else value

    def section(self, name: str, keys: Iterable[str]) -> dict[str, Any]:
        """The keys of a section that are set."""
        return {key: value for key in keys if (value := self.get(name, key)) is not None}


def read_settings(path: Path) -> Settings:
    """Read a `config.yaml`; raises `TaskError` for YAML that does not parse and values of a wrong type."""
    values: dict[tuple[str, str], Any] = {}
    moved: list[str] = []
    ignored: list[str] = []
    for section, key, value in _entries(_load(path), path):
        home = section if key in KEYS.get(section, {}) else _home(key)
        dotted = f"{section}.{key}".lstrip(".")
        if home is None:
            ignored.append(dotted)
            continue
        if home != section:
            if (home, key) in values:
                ignored.append(dotted)
                continue
            moved.append(f"{dotted} as {f'{home}.{key}'.lstrip('.')}")
        values[home, key] = _convert(value, KEYS[home][key], path, dotted)
    notes = [f"{path.name}: misplaced keys were read: {', '.join(moved)}"] if moved else []
    if ignored:
        notes.append(f"{path.name}: keys without effect here were ignored: {', '.join(ignored)}")
    return Settings(values, tuple(notes))


def variable(text: str) -> str:
    """The name in `${NAME}`, "" if the text is anything else."""
    match = re.fullmatch(r"\s*\$\{(\w+)\}\s*", text)
    return match[1] if match else ""


def _load(path: Path) -> dict[str, Any]:
    import yaml

    try:
        raw = yaml.safe_load(read_text(path))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = f"not valid YAML: {error.problem}"
        raise TaskError(what, where=f"{path}{line}", fix="correct that line") from None
    except yaml.YAMLError as error:
        raise TaskError(f"not valid YAML: {error}", where=str(path), fix="correct the file") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise TaskError("the file is not a mapping of keys", where=str(path), fix="write key: value lines")
    return raw


def _entries(raw: dict[Any, Any], path: Path) -> Iterator[tuple[str, str, Any]]:
    """(section, key, value): first those at their own place, so that they win over misplaced ones."""
    flat: list[tuple[str, str, Any]] = []
    for name, value in raw.items():
        if isinstance(value, dict) and str(name) not in KEYS[""] and (str(name) in KEYS or _holds_known(value)):
            flat += [(str(name), str(key), inner) for key, inner in value.items()]
        elif str(name) in KEYS and value is not None:
            fix = "write its keys indented below it"
            raise TaskError(f"'{name}' must hold keys, not {value!r}", where=f"{path} ({name})", fix=fix)
        elif value is not None or str(name) not in KEYS:
            flat.append(("", str(name), value))
    yield from sorted(flat, key=lambda entry: entry[1] not in KEYS.get(entry[0], {}))


def _holds_known(value: dict[Any, Any]) -> bool:
    return any(_home(str(key)) is not None for key in value)


def _home(key: str) -> str | None:
    """The only section a key can belong to."""
    homes = [section for section, keys in KEYS.items() if key in keys]
    return homes[0] if len(homes) == 1 else None


def _convert(value: Any, kind: Any, path: Path, dotted: str) -> Any:
    if value is None:
        return None
    try:
        made = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        what = f"wrong value: {str(error)[0].lower()}{str(error)[1:]}"
        raise TaskError(what, where=f"{path} ({dotted})", fix="correct the value or remove the key") from None
    if isinstance(made, float) and not math.isfinite(made):
        raise TaskError("the value must be finite", where=f"{path} ({dotted})", fix="write a number")
    return made
