"""An unmodified OpenEvolve example folder.

It has `initial_program.*`, `evaluator.py` and perhaps `config.yaml`. `evaluate(program_path)` and
the candidate run in two processes inside the jail if the evaluator allows it, else in one (form
legacy). Higher is better. Scores follow OpenEvolve's rules (`scoring`), keys of `config.yaml` have
their effect or are named in a note (`config`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from culmen.core.errors import TaskError
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject
from culmen.core.options import TaskDefaults
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, checked_seconds
from culmen.core.usage import Budget
from culmen.extensions.compat.openevolve.card import CARD, with_card
from culmen.extensions.compat.openevolve.config import (
    OpenEvolveConfig,
    named_models,
    read_config,
    search_settings,
    written_keys,
)
from culmen.extensions.compat.openevolve.scoring import (
    DEFAULT_FEATURES,
    DEFAULT_RETRIES,
    SKYDISCOVER,
    STAGES,
)
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


class Defaults(NamedTuple):
    """Values of keys that a file leaves out: seconds, characters, thresholds, dimensions."""

    timeout: float
    max_code_length: int
    thresholds: tuple[float, ...]
    features: tuple[str, ...]


DEFAULTS = {
    "": Defaults(300.0, 10_000, (0.5, 0.75, 0.9), DEFAULT_FEATURES),
    SKYDISCOVER: Defaults(360.0, 60_000, (0.3,), ()),
}
"""By contract. SkyDiscover (0.1.0) reads the first threshold alone and knows no dimensions."""
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
    contract = "" if evaluator.parent == folder else SKYDISCOVER
    task = task_from_files(programs[0], evaluator, config, goal, contract, (folder / CARD,))
    if contract:  # it reads files from its own folder
        note = (
            "scores follow SkyDiscover 0.1.0: flags count as 1 or 0, all numbers count in a mean, "
            "a cascade has two stages"
        )
        others = (each.replace("OpenEvolve", "SkyDiscover") for each in task.notes)
        task = replace(task, name=folder.name, root=str(folder), notes=(note, *others))
    others = sorted(
        p.name
        for p in folder.glob("*.y*ml")
        if p != config and p.suffix in (".yaml", ".yml") and p.name != CARD
    )
    task = with_card(task, folder)
    if not others:
        return task
    note = f"settings are read from config.yaml only; there is also {', '.join(others)}"
    return replace(task, notes=(*task.notes, note))


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

    `program` may be None. `contract` names another ecosystem's call of the evaluator, or
    SkyDiscover's rules for the same call; `others` are files that do not belong to it.
    """
    if not evaluator_path.is_file():
        raise missing_file_error(evaluator_path)
    evaluator_path = evaluator_path.resolve()
    is_sky = contract == SKYDISCOVER
    settings = read_config(config, is_sky) if config else OpenEvolveConfig()
    module = reading.read_module(evaluator_path)
    usual = DEFAULTS.get(contract, DEFAULTS[""])
    if contract in DEFAULTS:
        reading.require_function(
            module,
            "evaluate",
            evaluator_path,
            "define evaluate(program_path) returning a dict of metrics",
        )
    suffix = settings.get("", "file_suffix", ".py")
    if suffix == ".py" and program is not None:
        suffix = program.suffix
    apart = [path for path in (program, config, *others) if path]
    files, note = reading.evaluator_files(evaluator_path, apart)
    evaluator = Evaluator(
        form="legacy",
        path=str(evaluator_path),
        suffix=suffix,
        thresholds=_cascade_thresholds(module, settings, usual.thresholds),
        packages=_imported_packages(program, evaluator_path),
        digest=reading.evaluator_digest(files),
        files=files,
        shown=text_for_agents(evaluator_path, "public"),
        options={
            **({"contract": contract} if contract else {}),
            **(_evaluator_options(settings) if contract in DEFAULTS else {}),
        },
    )
    seeds, islands = _initial_programs(program, settings)
    longest = usual.max_code_length if contract in DEFAULTS else Surface().max_chars
    surface = _build_surface(suffix, settings, seeds, longest)
    seconds = settings.get("evaluator", "timeout", usual.timeout)
    limits = Limits(seconds=checked_seconds(seconds, f"{config} (evaluator.timeout)"))
    objective = Objective()
    task = Task(
        name=evaluator_path.parent.name,
        goal=goal,
        seeds=seeds,
        evaluator=evaluator,
        objective=objective,
        surface=surface,
        limits=limits,
        notes=(note,) if note else (),
        root=str(evaluator_path.parent),
        digest=reading.task_digest(evaluator, (), objective, limits, surface, seeds),
    )
    return _with_settings(task, settings, islands, usual) if contract in DEFAULTS else task


def _with_settings(
    task: Task, settings: OpenEvolveConfig, islands: tuple[int, ...], usual: Defaults
) -> Task:
    """The task with the settings of its runs, and sentences on them."""
    notes = (
        *task.notes,
        *settings.notes,
        *_setting_notes(settings, task.surface, usual),
        *_difference_notes(task, settings),
        *_fitness_notes(Path(task.evaluator.path)),
    )
    common = _system_text(settings, settings.get("prompt", "system_message", ""))
    own = settings.get("prompt", "island_system_messages", [])
    return replace(
        task,
        features=_feature_dimensions(settings, usual),
        system=common,
        island_systems=tuple(_system_text(settings, text or "") for text in own),
        defaults=_run_defaults(settings, islands),
        notes=notes,
    )


def _system_text(settings: OpenEvolveConfig, text: str) -> str:
    """A system message, "" for the name of OpenEvolve's own template."""
    return "" if text == "system_message" else text.strip()


def _program_text(path: Path) -> str:
    text = read_text(path)
    check_text(text, str(path))
    return text


def _imported_packages(program: Path | None, evaluator: Path) -> tuple[str, ...]:
    """The usual numerical packages that evaluator and program import."""
    texts = [read_text(path) for path in (program, evaluator) if path and path.suffix == ".py"]
    return tuple(
        sorted({"numpy", *(name for text in texts for name in reading.preloadable_modules(text))})
    )


def _cascade_thresholds(
    module: reading.Module, settings: OpenEvolveConfig, usual: tuple[float, ...]
) -> tuple[float, ...] | None:
    """Thresholds of the later stages; None if it is switched off or there is no first stage."""
    if not module.may_define("evaluate_stage1") or not settings.get(
        "evaluator", "cascade_evaluation", True
    ):
        return None
    thresholds = tuple(settings.get("evaluator", "cascade_thresholds", usual))
    if not thresholds:
        what = "is empty: OpenEvolve then fails every evaluation in stages"
        fix = "write [0.5, 0.75], or cascade_evaluation: false"
        raise settings.fault("evaluator", "cascade_thresholds", what, fix)
    return thresholds[: STAGES - 1]


def _evaluator_options(settings: OpenEvolveConfig) -> JsonObject:
    """Arguments of `evaluate`, and how often it is tried again.

    In OpenEvolve that is never in a cascade, and a cascade without stages is one, too.
    """
    arguments = settings.get("evaluator", "evaluator_args", {})
    if not _is_plain(arguments):
        what, fix = "has a value that is not plain", "write numbers, texts, lists and mappings"
        raise settings.fault("evaluator", "evaluator_args", what, fix)
    retries = settings.get("evaluator", "max_retries", DEFAULT_RETRIES)
    if retries < 0:
        what, fix = "is below 0: OpenEvolve then evaluates nothing", "write 0 or more"
        raise settings.fault("evaluator", "max_retries", what, fix)
    if settings.get("evaluator", "cascade_evaluation", True):
        retries = 0
    return {"retries": int(retries), **({"arguments": arguments} if arguments else {})}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _initial_programs(
    program: Path | None, settings: OpenEvolveConfig
) -> tuple[tuple[dict[str, str], ...], tuple[int, ...]]:
    """The initial programs, and the island of each if the file places them."""
    seeds = () if program is None else ({program.name: _program_text(program)},)
    islands = [0]
    for island, name in enumerate(settings.get("database", "island_initial_programs", [])):
        if name is None or program is None:
            continue
        path = path_inside(Path(settings.path).parent, os.path.normpath(name))
        if not path.is_file():
            what, fix = f"names '{name}', which does not exist", "correct the path"
            raise settings.fault("database", "island_initial_programs", what, fix)
        seeds = (*seeds, {program.name: _program_text(path)})
        islands.append(island)
    return seeds, tuple(islands) if len(islands) > 1 else ()


def _build_surface(
    suffix: str, settings: OpenEvolveConfig, seeds: tuple[dict[str, str], ...], usual: int
) -> Surface:
    """The editable text; no initial program is longer than it may be."""
    known = LANGUAGES.get(suffix) or settings.get("", "language", "text")
    longest = max((len(text) for seed in seeds for text in seed.values()), default=1)
    length = max(settings.get("", "max_code_length", usual), longest)
    enforced = settings.get("", "enforce_evolve_blocks", False)
    return Surface(markers="enforced" if enforced else "optional", language=known, max_chars=length)


def _feature_dimensions(settings: OpenEvolveConfig, usual: Defaults) -> tuple[str, ...]:
    """The dimensions that count in no mean; SkyDiscover has none in any file."""
    if not usual.features:
        return ()
    return tuple(settings.get("database", "feature_dimensions", usual.features))


def _setting_notes(settings: OpenEvolveConfig, surface: Surface, usual: Defaults) -> list[str]:
    """Sentences on keys that have their effect in some runs only, or another one."""
    notes: list[str] = []
    dimensions = _feature_dimensions(settings, usual)
    own = [name for name in dimensions if name not in _BUILT_IN_FEATURES]
    if own:
        notes.append(
            f"feature dimensions {', '.join(own)} must be metrics that the evaluator returns"
        )
    if not dimensions and usual.features:
        notes.append(
            "database.feature_dimensions is empty: grids have complexity and diversity then"
        )
    if isinstance(settings.get("database", "feature_bins"), dict):
        notes.append("database.feature_bins has no effect: all dimensions have the same bins here")
    if surface.max_chars > settings.get("", "max_code_length", usual.max_code_length):
        notes.append(
            f"programs may have {surface.max_chars} characters, as the initial one has; OpenEvolve "
            "refuses those above max_code_length"
        )
    if surface.markers == "enforced":
        notes.append(
            "enforce_evolve_blocks: a reply that changes other lines is refused; OpenEvolve puts "
            "them back"
        )
    if settings.path:
        chosen = ", ".join(f"{name}={value}" for name, value in search_settings(settings).items())
        notes.append(f"settings of the search, with --strategy openevolve: {chosen}")
    return notes + _model_notes(settings)


def _model_notes(settings: OpenEvolveConfig) -> list[str]:
    """Sentences on the models that the file names, and on a key written out in it."""
    notes: list[str] = []
    if names := [str(model["name"]) for model in named_models(settings)]:
        notes.append(
            f"models {', '.join(names)}: asked with --models {shlex.quote(settings.path)}; no "
            "run asks a model that its command does not name"
        )
    if written_keys(settings):
        notes.append(
            "config.yaml holds an API key in plain text: it is not used; export it and write "
            "api_key: ${NAME}"
        )
    return notes


def _difference_notes(task: Task, settings: OpenEvolveConfig) -> list[str]:
    """Sentences on differences on purpose that these files show (docs/coming_from)."""
    by_edits = settings.path and settings.get("", "diff_based_evolution", True)
    seen = {
        "a stage that hangs is a timeout without a score; OpenEvolve keeps earlier metrics": (
            task.evaluator.thresholds is not None
        ),
        "no try begins that might not end within timeout; OpenEvolve waits a second between tries, "
        "without an end": task.evaluator.options["retries"],
        "config.yaml is empty and counts as none; OpenEvolve refuses it": (
            settings.path and not settings.values and not settings.notes
        ),
        "a reply with an edit that fits nowhere or in several places is a fault, and a line ======="
        " outside of edits is text; OpenEvolve applies the other edits, or refuses the line": (
            by_edits
        ),
        "an empty text in island_system_messages is the common message; OpenEvolve sends none": (
            "" in settings.get("prompt", "island_system_messages", [])
        ),
    }
    return [sentence for sentence, is_seen in seen.items() if is_seen]


def _fitness_notes(evaluator: Path) -> list[str]:
    """Sentences on the numbers that count as a score."""
    failed = (
        "an evaluation that fails, or returns no number, NaN or infinity, has no score; OpenEvolve "
        "counts it, a failure as 0"
    )
    if "combined_score" in read_text(evaluator):
        return [failed]
    mean = (
        f"{evaluator.name} never mentions combined_score: candidates are scored by the mean of "
        "their metrics but for feature dimensions, which is usually not intended; return a "
        "combined_score"
    )
    return [mean, failed]


def _run_defaults(settings: OpenEvolveConfig, islands: tuple[int, ...]) -> TaskDefaults:
    """Run settings by culmen's names; `islands` are those of the initial programs.

    The budget has one evaluation per iteration, and one for each initial program.
    """
    iterations, programs = settings.get("", "max_iterations"), max(1, len(islands))
    chosen = search_settings(settings)
    if islands:
        chosen["starts"] = ",".join(map(str, islands))
    return TaskDefaults(
        budget=None if iterations is None else Budget(evaluations=max(0, iterations) + programs),
        seed=settings.get("", "random_seed") or 0,
        workers=settings.get("evaluator", "parallel_evaluations") or 0,
        settings_of={"openevolve": chosen},
    )
