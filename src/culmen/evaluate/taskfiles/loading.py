"""Finding out what kind of task a path is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from culmen.core.errors import TaskError
from culmen.core.task import Task
from culmen.evaluate.openevolve import folder as openevolve
from culmen.evaluate.taskfiles import bare, digests, guesses, own
from culmen.evaluate.taskfiles.places import missing
from culmen.evaluate.taskfiles.seeds import check_text

Seeds = Sequence[Mapping[str, str]]


def load(path: str | Path, goal: str = "", seeds: Seeds = (), direction: str = "") -> Task:
    """The task at a path: a folder, its `task.toml`, or an evaluator file alone (see `bare`).

    Folders are culmen's own (`task.toml`) or OpenEvolve's (`initial_program.*`, `evaluator.py`, perhaps
    `config.yaml`). `goal` and `seeds` (named texts) take the place of the task's, `direction` says which way scores go
    where no task.toml does. Raises `TaskError` for whatever cannot work; nothing of the task is imported or run.
    """
    task = _find(Path(path).expanduser(), goal, bool(seeds))
    task = replace(task, goal=goal.strip()) if goal.strip() else task
    task = bare.directed(task, direction) if direction else task
    if not seeds:
        return task
    part, text = next(iter(seeds[0].items()))
    return with_seeds(bare.entered(task, part, text), seeds)


def with_seeds(task: Task, seeds: Seeds) -> Task:
    """The task with other seeds; raises `TaskError` if it speaks of parts that they do not have."""
    parts = seeds[0]
    evaluator, frozen = task.evaluator, task.surface.frozen
    for name in (*frozen, *re.findall(r"\{([^{}]*)\}", " ".join(evaluator.command))):
        if name not in parts:
            raise TaskError(f"the seed has no part '{name}'", where=f"task {task.name}", fix=f"call it '{name}'")
    for number, seed in enumerate(seeds, 1):
        for name, text in seed.items():
            check_text(text, f"seed {number}, part {name}")
        if seed.keys() != parts.keys():
            fix = "give all seeds the same part names"
            raise TaskError("the seeds differ in their parts", where=f"seed {number}", fix=fix)
    first = next(iter(parts))
    if evaluator.form in ("call", "serve") and evaluator.entry and evaluator.module not in parts:
        evaluator = replace(evaluator, module=first)
    if evaluator.form == "legacy":
        evaluator = replace(evaluator, suffix=Path(first).suffix or evaluator.suffix)
    copies = tuple(dict(seed) for seed in seeds)
    digest = digests.task_digest(evaluator, task.cases, task.objective, task.limits, task.surface, copies)
    return replace(task, seeds=copies, evaluator=evaluator, digest=digest)


def with_proxy(task: Task, proxy: str) -> Task:
    """The task with its evaluator's candidates behind a proxy: auto, always or never. Raises `TaskError`."""
    if proxy not in ("auto", "always", "never"):
        raise TaskError(f"there is no way '{proxy}'", where="--proxy", fix="use auto, always or never")
    if task.evaluator.form != "legacy":
        what = f"form = {task.evaluator.form} needs no proxy: it is scored in another process"
        raise TaskError(what, where="--proxy", fix="leave it out")
    return digests.digested(replace(task, evaluator=replace(task.evaluator, proxy=proxy)))


def as_it_is(task: Task) -> Task:
    """The task with its evaluator's files as they are now: what a fork begins with. Raises `TaskError`."""
    folder = Path(task.evaluator.path).parent
    if not task.evaluator.files:
        return task
    if not Path(task.evaluator.path).is_file():
        raise missing(Path(task.evaluator.path))
    files = {name: digests.sha256(folder / name) for name in task.evaluator.files if (folder / name).is_file()}
    if files == task.evaluator.files:
        return task
    evaluator = replace(task.evaluator, files=files, digest=digests.evaluator_digest(files))
    return digests.digested(replace(task, evaluator=evaluator))


def _find(place: Path, goal: str, seeded: bool) -> Task:
    if place.is_dir():
        return _folder(place.resolve(), goal, seeded)
    if not place.exists():
        raise guesses.nowhere(place.absolute())
    if place.suffix == ".toml":
        return own.read(place.resolve())
    if place.suffix == ".py":
        return bare.read(place.resolve(), goal, seeded)
    raise guesses.no_evaluator(place)


def _folder(folder: Path, goal: str, seeded: bool) -> Task:
    if (folder / "task.toml").is_file():
        return own.read(folder / "task.toml")
    evaluator = folder / "evaluator.py"
    if openevolve.initial_programs(folder):
        return openevolve.read_folder(folder, goal)
    if evaluator.is_file():
        return bare.read(evaluator, goal, seeded)
    raise guesses.no_task(folder)
