"""An unmodified ShinkaEvolve folder: `evaluate.py` and `initial.*`.

`evaluate.py` is called as by ShinkaEvolve's runner, with the program's path and a folder for
`metrics.json` and `correct.json`; the program itself is behind OpenEvolve's proxy. Higher
`combined_score` is better. If the program has EVOLVE-BLOCK markers, only text between them may
change, as in ShinkaEvolve.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from culmen.core import markers
from culmen.core.errors import TaskError
from culmen.core.inside import path_inside
from culmen.core.json import JsonObject
from culmen.core.task import Surface, Task, checked_seconds
from culmen.extensions.compat.openevolve import folder as openevolve
from culmen.extensions.compat.openevolve.config import load_mapping
from culmen.tasks import reading

EVALUATOR = "evaluate.py"
CONTRACT = "shinka"
READS_TASK_TOML = False
_MAIN = "main"
_DIFFERENT = {  # on purpose: words of an evaluator, and what they have no effect on here
    "plotting_fn": "plotting_fn is not called: run_shinka_eval plots nothing here",
    "extra_data": "extra_data is not kept: models may see everything that is",
    "private": "private metrics are not kept: models may see everything that is",
    "run_workers": "runs side by side end with the first failure in the order of runs, not of time",
    "early_stop_method": "named methods of early stopping are the package's: shinka-evolve has to "
    "be installed for them",
}
_ALWAYS = (
    "what is not correct, or has no finite combined_score, has no score; ShinkaEvolve keeps both",
    "an edit fits whole lines in one place, else the reply is a fault; ShinkaEvolve takes the "
    "first place, also inside of a line, and reads a deletion together with the edit behind it; it "
    "strips and splits other lines, and leaves an edit at the reply's indentation",
)


def initial_programs(folder: Path) -> list[Path]:
    """The `initial.*` files of a folder."""
    return sorted(
        path
        for path in folder.glob("initial.*")
        if path_inside(folder, path.name).is_file() and path.suffix != ".pyc"
    )


def can_read_folder(folder: Path) -> bool:
    """True if there is an `evaluate.py` that mentions shinka or has an `initial.*` beside it."""
    file = folder / EVALUATOR
    if (folder / "evaluator.py").is_file() or not file.is_file():
        return False
    return bool(initial_programs(folder)) or "shinka" in file.read_text(
        encoding="utf-8", errors="replace"
    )


def read_folder(folder: Path, goal: str = "") -> Task:
    """The task of such a folder; raise `TaskError` if it cannot be read."""
    programs, evaluator = initial_programs(folder), folder / EVALUATOR
    if len(programs) != 1:
        names = ", ".join(path.name for path in programs) or "none"
        fix = "keep one, or write a task.toml: culmen docs tasks"
        raise TaskError(
            f"expected one initial.* beside {EVALUATOR}, found {names}", where=str(folder), fix=fix
        )
    _check_evaluator(evaluator)
    others = _runner_files(folder, programs[0])
    found = {path: settings for path in others if (settings := _runner_settings(path))}
    task = openevolve.task_from_files(programs[0], evaluator, None, goal, CONTRACT, others)
    surface = replace(task.surface, markers=_marker_mode(programs[0]))
    if len(found) == 1:  # others are variants of one run, of which none is chosen
        ((path, settings),) = found.items()
        task = _with_settings(task, path, settings)
    notes = task.notes
    if unread := [path for path in others if len(found) != 1 or path not in found]:
        names = ", ".join(sorted(path.relative_to(folder).as_posix() for path in unread)[:6])
        notes = (*notes, f"settings of ShinkaEvolve's runner have no effect here: {names}")
    text = reading.read_text(evaluator)
    notes = (*notes, *(note for word, note in _DIFFERENT.items() if word in text), *_ALWAYS)
    return reading.with_digest(replace(task, surface=surface, notes=notes))


def detect_contract(module: reading.Module) -> str:
    """The contract of an evaluator: `CONTRACT` or "".

    `CONTRACT` for a module with ShinkaEvolve's main and without a function of another contract.
    """
    main = module.names.get(_MAIN)
    if main is None or main.params is None or "score" in module.names or "evaluate" in module.names:
        return ""
    return CONTRACT if {"program_path", "results_dir"} <= {*main.params, *main.optional} else ""


def _check_evaluator(evaluator: Path) -> None:
    """Raise `TaskError` unless the file can be called for a program.

    The call has the program's path and a folder for results.
    """
    module = reading.read_module(evaluator)
    if module.may_define(_MAIN) or "__main__" in reading.read_text(evaluator):
        return
    fix = (
        "define main(program_path, results_dir), which writes metrics.json and correct.json into "
        "results_dir"
    )
    raise TaskError(f"{EVALUATOR} has no main and is not a script", where=str(evaluator), fix=fix)


def _marker_mode(program: Path) -> str:
    text = reading.read_text(program)
    try:
        markers.split_blocks(text)
        return "enforced" if markers.has_blocks(text) else Surface().markers
    except markers.MarkerError as error:
        fix = "pair every EVOLVE-BLOCK-START with an EVOLVE-BLOCK-END"
        raise TaskError(str(error), where=f"{program}:{error.line}", fix=fix) from None


def _runner_files(folder: Path, program: Path) -> list[Path]:
    """Files that only ShinkaEvolve's own runner reads, which are not part of the evaluator.

    Its scripts and its YAML files.
    """
    mentioned = reading.possible_file_names(reading.read_text(folder / EVALUATOR))
    files = [*folder.glob("run_evo*.py"), *folder.glob("*.y*ml")]
    return [
        path for path in files if path.is_file() and path.name not in mentioned and path != program
    ]


def _runner_settings(path: Path) -> JsonObject:
    """Settings in a YAML file of `shinka_run`, by section and name; none in any other file."""
    try:
        found = load_mapping(path) if path.suffix != ".py" else {}
    except TaskError:
        return {}
    sections = {str(name).removesuffix("_config"): keys for name, keys in found.items()}
    return {
        f"{section}.{key}": value
        for section in ("evo", "db", "job")
        if isinstance(keys := sections.get(section), dict)
        for key, value in keys.items()
    }


def _with_settings(task: Task, path: Path, settings: JsonObject) -> Task:
    """The task with the system message and the time limit of a file; other keys are named."""
    if settings.pop("job.extra_cmd_args", None):
        fix = "make them the defaults of evaluate.py, and remove the key"
        where = f"{path} (job.extra_cmd_args)"
        raise TaskError("evaluate.py is called without other arguments", where=where, fix=fix)
    system, limit = settings.pop("evo.task_sys_msg", None), settings.pop("job.time", None)
    if limit is not None:
        seconds = _seconds_of(limit, f"{path} (job.time)")
        task = replace(task, limits=replace(task.limits, seconds=seconds))
    note = f"{path.name}: keys without effect here: {', '.join(settings)}"
    notes = (*task.notes, note) if settings else task.notes
    return replace(task, system=str(system or task.system), notes=notes)


def _seconds_of(time: object, where: str) -> float:
    """Seconds of a time as "00:10:00"; YAML reads one without quotes as that number."""
    found = re.fullmatch(r"(?:(\d+):(\d+):)?(\d+)", str(time))
    if found is None:
        raise TaskError(f"'{time}' is not a time", where=where, fix='write "00:10:00"')
    hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return checked_seconds((hours * 60 + minutes) * 60 + seconds, where)
