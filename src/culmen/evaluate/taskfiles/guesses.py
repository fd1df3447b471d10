"""A path that is no task: what it probably is, and what would make a task of it."""

from __future__ import annotations

import shlex
from pathlib import Path

from culmen.core.errors import TaskError
from culmen.evaluate.taskfiles.places import closest

_MARKS = ("task.toml", "evaluator.py")
_TEXTS = (".txt", ".md", ".jsonl", ".csv", ".prompt")
_MANY = 200  # entries of a folder that are looked at
_SHOWN = 6


def nowhere(path: Path) -> TaskError:
    """For a path at which there is nothing: names the tasks near by."""
    folder = path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    tasks = [name for name in names[:_MANY] if _is_task(folder / name)]
    near = closest(path.name, tasks) or closest(path.name, names)
    fix = f"write one to start from: culmen new {shlex.quote(path.name)}"
    if tasks:
        more = f" and {len(tasks) - _SHOWN} more" if len(tasks) > _SHOWN else ""
        fix = f"tasks there: {', '.join(tasks[:_SHOWN])}{more}; or {fix}"
    fix = f"did you mean '{near}'?" if near else fix
    return TaskError(f"there is no task '{path.name}'", where=str(path), fix=fix)


def no_task(folder: Path) -> TaskError:
    """For a folder without `task.toml` and `evaluator.py`."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    names = [file.name for file in files[:_MANY]]
    what = "no task here: neither task.toml nor evaluator.py"
    if "evaluate.py" in names and _is_shinka(folder / "evaluate.py", names):
        what = "a ShinkaEvolve folder, which cannot be loaded as it is"
        fix = "add a task.toml and a short evaluator.py: docs/tasks.md, 'ShinkaEvolve folders'"
        return TaskError(what, where=str(folder), fix=fix)
    for wanted in _MARKS:
        near = closest(wanted, [name for name in names if Path(name).suffix == Path(wanted).suffix])
        if near:
            return TaskError(what, where=str(folder), fix=f"did you mean to call {near} {wanted}?")
    return TaskError(what, where=str(folder), fix=_start(folder, files))


def no_evaluator(file: Path) -> TaskError:
    """For a file that is neither a `task.toml` nor Python."""
    fix = "give the folder, its task.toml, or an evaluator.py together with a goal"
    if file.suffix == ".ipynb":
        fix = "put what judges a program into an evaluator.py with score(output) or evaluate(path), beside the program"
    elif file.suffix in (".sh", ".bash", ""):
        fix = "call the script from an evaluator.py: docs/tasks.md, 'An evaluator that is a script'"
    return TaskError(f"'{file.name}' is not a task", where=str(file), fix=fix)


def _is_task(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _MARKS)


def _is_shinka(evaluate: Path, names: list[str]) -> bool:
    text = evaluate.read_text(encoding="utf-8", errors="replace")
    return any(name.startswith("initial.") for name in names) or "shinka" in text


def _start(folder: Path, files: list[Path]) -> str:
    """What to write first, by what else lies there."""
    new = f"culmen new {shlex.quote(str(folder / 'task'))}"
    if any(file.suffix in (".sh", ".bash") for file in files):
        return "call the script from an evaluator.py beside it: docs/tasks.md, 'An evaluator that is a script'"
    if (
        files
        and all(file.suffix in _TEXTS or file.suffix == ".py" for file in files)
        and (any(file.suffix in _TEXTS for file in files))
    ):
        return f"for a prompt that is judged on cases, start from: {new} --example routing_rules"
    below = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and _is_task(entry))
    if below:
        return f"tasks lie in: {', '.join(below[:_SHOWN])}"
    return f"write one to start from: {new}"
