"""An unmodified OpenEvolve example folder.

It has `initial_program.*`, `evaluator.py` and perhaps `config.yaml`. `evaluate(program_path)` and
the candidate run in two processes inside the jail if the evaluator allows it, else in one (form
legacy). Higher is better. Candidates are scored by `combined_score`, else by the mean of their
numeric metrics.

Of `config.yaml` only some keys matter (`KEYS`). Many published files put keys at the wrong level: a
key that can belong to one place only is accepted anywhere, with a note. Unused keys are listed in
one note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from culmen.core.errors import TaskError
from culmen.core.foreign import boundary, yaml_value
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject
from culmen.core.options import TaskDefaults
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, checked_seconds
from culmen.core.usage import Budget
from culmen.tasks import reading
from culmen.tasks.reading import (
    LANGUAGES,
    missing_file_error,
    read_text,
    text_for_agents,
)
from culmen.tasks.schema import check_text

EVALUATOR = ""
READS_TASK_TOML = False
TIMEOUT = 300.0  # seconds, OpenEvolve's default
THRESHOLDS = (0.5, 0.75, 0.9)  # OpenEvolve's default, used when `evaluate_stage1` exists
_BUILT_IN_FEATURES = ("complexity", "diversity", "score")


def can_read_folder(folder: Path) -> bool:
    """True if there is an `initial_program.*`, unless the evaluator has culmen's `score` alone."""
    if not reading.initial_programs(folder):
        return False
    evaluator = _find_evaluator(folder)
    if not evaluator.is_file():
        return True
    module = reading.read_module(evaluator)
    return "score" not in module.names or module.may_define("evaluate")


def read_folder(folder: Path, goal: str = "") -> Task:
    """The task of an example folder; raises `TaskError`."""
    programs = reading.initial_programs(folder)
    if len(programs) != 1:
        names = ", ".join(p.name for p in programs) or "none"
        fix = "keep one, or write a task.toml naming the initial programs"
        raise TaskError(
            f"expected one initial_program.*, found {names}", where=str(folder), fix=fix
        )
    evaluator = _find_evaluator(folder)
    script = evaluator.parent / "evaluate.sh"
    if not evaluator.is_file() and script.is_file():
        raise TaskError(
            f"the evaluator is a script for a container: {script.relative_to(folder)}",
            where=str(folder),
            fix="call it from an evaluator.py: culmen docs tasks, 'An evaluator that is a script'",
        )
    config = next((p for p in (folder / "config.yaml", folder / "config.yml") if p.is_file()), None)
    task = task_from_files(programs[0], evaluator, config, goal)
    if evaluator.parent != folder:  # it reads files from its own folder
        task = msgspec.structs.replace(task, name=folder.name, root=str(folder))
    others = sorted(
        p.name for p in folder.glob("*.y*ml") if p != config and p.suffix in (".yaml", ".yml")
    )
    if not others:
        return task
    note = f"settings are read from config.yaml only; there is also {', '.join(others)}"
    return msgspec.structs.replace(task, notes=(*task.notes, note))


def _find_evaluator(folder: Path) -> Path:
    """The evaluator: `evaluator.py`, or that of a folder `evaluator`, as in SkyDiscover."""
    inside = folder / "evaluator"
    is_inside = inside.is_dir() and not (folder / "evaluator.py").is_file()
    return (inside if is_inside else folder) / "evaluator.py"


def task_from_files(
    program: Path | None,
    evaluator_path: Path,
    config: Path | None = None,
    goal: str = "",
    contract: str = "",
    others: Iterable[Path] = (),
) -> Task:
    """The task of these files, as of `openevolve-run PROGRAM EVALUATOR --config CONFIG`.

    `program` may be None. `contract` names another ecosystem's call of the evaluator; `others` are
    files that do not belong to it.
    """
    if not evaluator_path.is_file():
        raise missing_file_error(evaluator_path)
    evaluator_path = evaluator_path.resolve()
    settings = read_config(config) if config else OpenEvolveConfig()
    module = reading.read_module(evaluator_path)
    if not contract:
        reading.require_function(
            module,
            "evaluate",
            evaluator_path,
            "define evaluate(program_path) returning a dict of metrics",
        )
    suffix = program.suffix if program else settings.get("", "file_suffix", ".py")
    apart = [path for path in (program, config, *others) if path]
    files, note = reading.evaluator_files(evaluator_path, apart)
    evaluator = Evaluator(
        form="legacy",
        path=str(evaluator_path),
        suffix=suffix,
        thresholds=_cascade_thresholds(module, settings),
        packages=_imported_packages(program, evaluator_path),
        digest=reading.evaluator_digest(files),
        files=files,
        shown=text_for_agents(evaluator_path, "public"),
        options={"contract": contract} if contract else {},
    )
    seeds = _read_initial_program(program)
    surface = _build_surface(suffix, settings)
    limits = _build_limits(settings, config)
    features, feature_note = _feature_dimensions(settings)
    objective = Objective()
    llm, llm_note = _model_settings(settings)
    notes = (note, *settings.notes, feature_note, llm_note, _fitness_note(evaluator_path))
    return Task(
        name=evaluator_path.parent.name,
        goal=goal,
        seeds=seeds,
        evaluator=evaluator,
        objective=objective,
        surface=surface,
        limits=limits,
        features=features,
        system=settings.get("prompt", "system_message", "").strip(),
        defaults=_run_defaults(settings, llm),
        notes=tuple(filter(None, notes)),
        root=str(evaluator_path.parent),
        digest=reading.task_digest(evaluator, (), objective, limits, surface, seeds),
    )


def _read_initial_program(program: Path | None) -> tuple[dict[str, str], ...]:
    if program is None:
        return ()
    text = read_text(program)
    check_text(text, str(program))
    return ({program.name: text},)


def _imported_packages(program: Path | None, evaluator: Path) -> tuple[str, ...]:
    """The usual numerical packages that evaluator and program import."""
    texts = [read_text(path) for path in (program, evaluator) if path and path.suffix == ".py"]
    return tuple(
        sorted({"numpy", *(name for text in texts for name in reading.preloadable_modules(text))})
    )


def _cascade_thresholds(
    module: reading.Module, settings: OpenEvolveConfig
) -> tuple[float, ...] | None:
    """Thresholds of a cascade; None if it is switched off or the evaluator has no first stage."""
    if "evaluate_stage1" not in module.names or not settings.get(
        "evaluator", "cascade_evaluation", True
    ):
        return None
    return tuple(settings.get("evaluator", "cascade_thresholds", THRESHOLDS))


def _build_surface(suffix: str, settings: OpenEvolveConfig) -> Surface:
    known = LANGUAGES.get(suffix) or settings.get("", "language", "text")
    length = settings.get("", "max_code_length", Surface().max_chars)
    return Surface(markers="optional", language=known, max_chars=max(1, length))


def _build_limits(settings: OpenEvolveConfig, config: Path | None) -> Limits:
    seconds = settings.get("evaluator", "timeout", TIMEOUT)
    return Limits(seconds=checked_seconds(seconds, f"{config} (evaluator.timeout)"))


def _feature_dimensions(settings: OpenEvolveConfig) -> tuple[tuple[str, ...], str]:
    dimensions = settings.get("database", "feature_dimensions", [])
    if isinstance(dimensions, int):
        return (
            (),
            f"database.feature_dimensions = {dimensions} is a number, not a list of names: no "
            "features are used",
        )
    own = [name for name in dimensions if name not in _BUILT_IN_FEATURES]
    note = (
        f"feature dimensions {', '.join(own)} must be metrics that the evaluator returns"
        if own
        else ""
    )
    return tuple(dimensions), note


def _fitness_note(evaluator: Path) -> str:
    if "combined_score" in read_text(evaluator):
        return ""
    return (
        f"{evaluator.name} never mentions combined_score: candidates are scored by the mean of "
        "their metrics, "
        "which is usually not intended; return a combined_score"
    )


def _model_settings(settings: OpenEvolveConfig) -> tuple[JsonObject, str]:
    """Model settings without any key, and a note if a key had to be dropped."""
    keys = ("api_base", "temperature", "top_p", "max_tokens", "timeout", "retries")
    llm: JsonObject = settings.section_settings("llm", keys)
    dropped = False
    if key := settings.get("llm", "api_key", ""):
        if name := env_variable_name(key):
            llm["api_key_env"] = name
        else:
            dropped = True
    models: list[ModelEntry] = settings.get("llm", "models", [])
    if not models:
        for role in ("primary", "secondary"):
            if name := settings.get("llm", f"{role}_model"):
                models = [
                    *models,
                    ModelEntry(name, settings.get("llm", f"{role}_model_weight", 1.0)),
                ]
    plain: list[JsonObject] = []
    for model in models:
        entry = msgspec.to_builtins(msgspec.structs.replace(model, api_key=""))
        if name := env_variable_name(model.api_key):
            entry["api_key_env"] = name
        dropped = dropped or bool(model.api_key and not env_variable_name(model.api_key))
        plain.append(entry)
    if plain:
        llm["models"] = plain
    note = (
        "config.yaml holds an API key in plain text: it is not used; export it and write api_key: "
        "${NAME}"
    )
    return llm, note if dropped else ""


def _run_defaults(settings: OpenEvolveConfig, llm: JsonObject) -> TaskDefaults:
    """Run settings by culmen's names, and OpenEvolve's own; only those in the file.

    The budget has one evaluation per iteration, and one for the initial program.
    """
    iterations = settings.get("", "max_iterations")
    foreign: JsonObject = {
        "format": {True: "diff", False: "rewrite", None: None}[
            settings.get("", "diff_based_evolution")
        ],
        "llm": llm,
        "prompt": settings.section_settings(
            "prompt", ("num_top_programs", "num_diverse_programs", "include_artifacts")
        ),
        "settings": _search_settings(settings),
    }
    return TaskDefaults(
        budget=Budget(evaluations=iterations + 1) if iterations else None,
        seed=settings.get("", "random_seed") or 0,
        workers=settings.get("evaluator", "parallel_evaluations") or 0,
        foreign={name: value for name, value in foreign.items() if value},
    )


def _search_settings(settings: OpenEvolveConfig) -> JsonObject:
    keys = (
        "num_islands",
        "feature_bins",
        "migration_interval",
        "migration_rate",
        "population_size",
        "archive_size",
        "exploration_ratio",
        "exploitation_ratio",
        "elite_selection_ratio",
    )
    return settings.section_settings("database", keys)


# -- config.yaml
# ------------------------------------------------------------------------------


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model and its share of the calls; an entry may carry its own endpoint."""

    name: str
    weight: float = 1.0
    api_base: str = ""
    api_key: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None


# Section -> key -> type. "" is the top level.
KEYS: dict[str, JsonObject] = {
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
        "models": list[ModelEntry],
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


class OpenEvolveConfig(msgspec.Struct, frozen=True):
    """The parsed settings of a file: values by (section, key), and notes for the user."""

    values: dict[tuple[str, str], object] = {}
    notes: tuple[str, ...] = ()

    def get(self, section: str, key: str, default: object = None) -> Any:
        """The value of a key, the default if it is absent or null."""
        value = self.values.get((section, key))
        return default if value is None else value

    def section_settings(self, name: str, keys: Iterable[str]) -> JsonObject:
        """The keys of a section that are set."""
        return {key: value for key in keys if (value := self.get(name, key)) is not None}


def read_config(path: Path) -> OpenEvolveConfig:
    """Read a `config.yaml`; raise `TaskError` for invalid YAML and values of a wrong type."""
    values: dict[tuple[str, str], object] = {}
    moved: list[str] = []
    ignored: list[str] = []
    for section, key, value in _config_entries(_load_yaml(path), path):
        home = section if key in KEYS.get(section, {}) else _home_section(key)
        dotted = f"{section}.{key}".lstrip(".")
        if home is None:
            ignored.append(dotted)
            continue
        if home != section:
            if (home, key) in values:
                ignored.append(dotted)
                continue
            moved.append(f"{dotted} as {f'{home}.{key}'.lstrip('.')}")
        values[home, key] = _convert_value(value, KEYS[home][key], path, dotted)
    notes = [f"{path.name}: misplaced keys were read: {', '.join(moved)}"] if moved else []
    if ignored:
        notes.append(f"{path.name}: keys without effect here were ignored: {', '.join(ignored)}")
    return OpenEvolveConfig(values, tuple(notes))


def env_variable_name(text: str) -> str:
    """The name in `${NAME}`, "" for any other text."""
    match = re.fullmatch(r"\s*\$\{(\w+)\}\s*", text)
    return match[1] if match else ""


@boundary()
def _load_yaml(path: Path) -> dict[object, object]:
    import yaml

    try:
        raw = yaml_value(read_text(path_inside(path.parent, path.name)))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = f"not valid YAML: {error.problem}"
        raise TaskError(what, where=f"{path}{line}", fix="correct that line") from None
    except yaml.YAMLError as error:
        raise TaskError(
            f"not valid YAML: {error}", where=str(path), fix="correct the file"
        ) from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise TaskError(
            "the file is not a mapping of keys", where=str(path), fix="write key: value lines"
        )
    return raw


def _config_entries(raw: dict[object, object], path: Path) -> Iterator[tuple[str, str, object]]:
    """(section, key, value) triples, misplaced ones last, so that they do not win."""
    flat: list[tuple[str, str, object]] = []
    for name, value in raw.items():
        if (
            isinstance(value, dict)
            and str(name) not in KEYS[""]
            and (str(name) in KEYS or _holds_known(value))
        ):
            flat += [(str(name), str(key), inner) for key, inner in value.items()]
        elif str(name) in KEYS and value is not None:
            fix = "write its keys indented below it"
            raise TaskError(
                f"'{name}' must hold keys, not {value!r}", where=f"{path} ({name})", fix=fix
            )
        elif value is not None or str(name) not in KEYS:
            flat.append(("", str(name), value))
    yield from sorted(flat, key=lambda entry: entry[1] not in KEYS.get(entry[0], {}))


def _holds_known(value: dict[object, object]) -> bool:
    return any(_home_section(str(key)) is not None for key in value)


def _home_section(key: str) -> str | None:
    """The only section that a key can belong to, None if there are several."""
    homes = [section for section, keys in KEYS.items() if key in keys]
    return homes[0] if len(homes) == 1 else None


def _convert_value(value: object, kind: Any, path: Path, dotted: str) -> object:
    if value is None:
        return None
    try:
        converted = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        what = f"wrong value: {str(error)[0].lower()}{str(error)[1:]}"
        raise TaskError(
            what, where=f"{path} ({dotted})", fix="correct the value or remove the key"
        ) from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise TaskError(
            "the value must be finite", where=f"{path} ({dotted})", fix="write a number"
        )
    return converted
