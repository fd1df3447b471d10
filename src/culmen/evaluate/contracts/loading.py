"""Finding out what kind of task a path is."""

from __future__ import annotations

from pathlib import Path

from culmen.core.errors import TaskError
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task
from culmen.evaluate.contracts import digests, openevolve, own, syntax
from culmen.evaluate.contracts.places import closest, missing


def load(path: str | Path, goal: str = "") -> Task:
    """The task at a path: a folder, its `task.toml`, or an evaluator file alone (then `goal` says what to write).

    Folders are culmen's own (`task.toml`) or OpenEvolve's (`initial_program.*`, `evaluator.py`, perhaps
    `config.yaml`). `goal` fills in where the task has none. Raises `TaskError` for whatever cannot work; nothing of the
    task is imported or run.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return _folder(place.resolve(), goal)
    if not place.exists():
        raise missing(place.absolute())
    if place.suffix == ".toml":
        return _with_goal(own.read(place.resolve()), goal)
    if place.suffix == ".py":
        return _evaluator(place.resolve(), goal)
    fix = "give the folder, its task.toml, or an evaluator.py together with a goal"
    raise TaskError(f"'{place.name}' is not a task", where=str(place), fix=fix)


def _folder(folder: Path, goal: str) -> Task:
    if (folder / "task.toml").is_file():
        return _with_goal(own.read(folder / "task.toml"), goal)
    evaluator = folder / "evaluator.py"
    if openevolve.initial_programs(folder):
        return openevolve.read_folder(folder, goal)
    if evaluator.is_file():
        return _evaluator(evaluator, goal)
    names = [entry.name for entry in folder.iterdir()]
    if "evaluate.py" in names and any(name.startswith("initial.") for name in names):
        fix = "write a task.toml beside them, with the initial file as seed and an evaluator with a function score"
        raise TaskError("a ShinkaEvolve folder, which cannot be loaded as it is", where=str(folder), fix=fix)
    near = next(((name, wanted) for wanted in ("task.toml", "evaluator.py") if (name := closest(wanted, names))), None)
    fix = f"did you mean to call {near[0]} {near[1]}?" if near else f"write one with: culmen new {folder / 'task'}"
    raise TaskError("no task here: neither task.toml nor evaluator.py", where=str(folder), fix=fix)


def _with_goal(task: Task, goal: str) -> Task:
    from msgspec.structs import replace

    return task if task.goal or not goal else replace(task, goal=goal)


def _evaluator(path: Path, goal: str) -> Task:
    """An evaluator alone: a task without a seed."""
    if not goal.strip():
        fix = "give a goal, from which a model writes the first program, or put an initial_program.py beside it"
        raise TaskError("an evaluator without a seed needs a goal", where=str(path), fix=fix)
    module = syntax.read_module(path)
    form = own.guess_form(module, path)
    if form == "legacy":
        return openevolve.read(None, path, goal=goal)
    own.check_scorer(form, module, path)
    digest, note = digests.evaluator_digest(path, [])
    evaluator = Evaluator(form=form, path=str(path), digest=digest)
    objective, limits, surface = Objective(), Limits(), Surface()
    return Task(
        name=path.parent.name if path.stem == "evaluator" else path.stem,
        goal=goal,
        evaluator=evaluator,
        notes=(note,) if note else (),
        root=str(path.parent),
        digest=digests.task_digest(evaluator, (), objective, limits, surface, ()),
    )
