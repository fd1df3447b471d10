"""An evaluator file alone: `score(output)` or `evaluate(path)`, with the files beside it and what its text shows."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from culmen.core.errors import TaskError, UserError
from culmen.core.task import Evaluator, Task, way
from culmen.evaluate.openevolve import folder
from culmen.evaluate.taskfiles import digests, interface, reading, task_toml
from culmen.evaluate.taskfiles.reading import read_text
from culmen.evaluate.taskfiles.shown import shown

ENTRY = "run"


def read(path: Path, goal: str = "", seeded: bool = False) -> Task:
    """The task of an evaluator file.

    The first program is an `initial_program.*` beside it, else the evaluator's text SEED, else programs made from the
    shapes that it asks for; `seeded`: the caller provides some. `verify.py` beside it, or a function `certify` in it,
    is its verifier. Raises `TaskError`.
    """
    text = read_text(path)
    module = reading.parse_module(text, str(path))
    form = task_toml.guess_form(module, path)
    first = interface.first_programs(text, form, ENTRY)
    program = _beside(path)
    if form == "legacy":
        task = folder.read(program, path, _config(path), goal)
    else:
        task_toml.check_scorer(form, module, path)
        task = _scored(path, form, goal, program)
    options = {"uses": list(first.uses), **({"stub": first.stub} if first.stub else {})}
    files, _ = digests.evaluator_files(path, _apart(path, program))
    evaluator = replace(task.evaluator, files=files, digest=digests.evaluator_digest(files))
    task = digests.digested(replace(task, evaluator=replace(evaluator, options={**evaluator.options, **options})))
    if not (task.seeds or seeded or first.programs or goal.strip()):
        raise TaskError("an evaluator without a first program needs a goal", where=str(path), fix=_needed(first))
    return task if task.seeds or seeded else _begun(task, first)


def entered(task: Task, part: str, text: str) -> Task:
    """The task with the function that is called taken from a first program, where no task.toml names one."""
    if task.evaluator.form not in ("call", "serve") or Path(task.root, "task.toml").is_file():
        return task
    return replace(task, evaluator=replace(task.evaluator, module=part, entry=_entry(text, Path(part))))


def _scored(path: Path, form: task_toml.Form, goal: str, program: Path | None) -> Task:
    """The task of a `score` function."""
    _, note = digests.evaluator_files(path, _apart(path, program))
    packages = tuple(sorted({"numpy", *reading.preloadable(read_text(path))}))
    evaluator = Evaluator(
        form=form, path=str(path), entry=ENTRY, packages=packages, verifier=_verifier(path, form),
        shown=shown(path, "public"),
    )  # fmt: skip
    task = Task(
        name=path.parent.name if path.stem == "evaluator" else path.stem,
        goal=goal,
        evaluator=evaluator,
        notes=(note,) if note else (),
        root=str(path.parent),
    )
    if program is not None:
        text = read_text(program)
        evaluator = replace(evaluator, module=program.name, entry=_entry(text, program))
        task = replace(task, evaluator=evaluator, seeds=({program.name: text},))
    return digests.digested(task)


def _begun(task: Task, first: interface.FirstPrograms) -> Task:
    """The task with the programs that could be made for it, if any."""
    if not first.programs:
        return digests.digested(task)
    module = interface.PART if task.evaluator.form in ("call", "serve") else ""
    seeds = tuple({interface.PART: program} for program in first.programs)
    made = (
        "the one in the evaluator is used"
        if first.given
        else f"{len(seeds)} were made from what the evaluator asks for"
    )
    note = f"there is no first program beside the evaluator: {made}"
    options = {**task.evaluator.options, "made": not first.given}
    evaluator = replace(task.evaluator, module=module, options=options)
    return digests.digested(replace(task, seeds=seeds, evaluator=evaluator, notes=(*task.notes, note)))


def directed(task: Task, direction: str) -> Task:
    """The task with scores going this way (`core.task.way`)."""
    try:
        direction = way(direction)
    except UserError as error:
        raise TaskError(error.what, where="--direction", fix=error.fix) from None
    if task.objective.direction == direction:
        return task
    if Path(task.root, "task.toml").is_file():
        where = str(Path(task.root, "task.toml"))
        fix = f'write there: direction = "{direction}"'
        raise TaskError(f"the task says direction = {task.objective.direction}", where=where, fix=fix)
    return digests.digested(replace(task, objective=replace(task.objective, direction=direction)))


def _beside(path: Path) -> Path | None:
    programs = folder.initial_programs(path.parent)
    return programs[0] if len(programs) == 1 else None


def _apart(path: Path, program: Path | None) -> list[Path]:
    """Files beside the evaluator that are not part of it: the first program, and files that are neither Python nor
    named in a Python file. The folder may be any folder, even the one that holds the run's output."""
    near = [read_text(file) for file in path.parent.glob("*.py") if file.is_file()]
    spoken = {piece.strip("*") for text in near for piece in reading.spoken(text)}
    found = [program] if program else []
    for file in digests.walk(path.parent):
        words = {file.name, file.relative_to(path.parent).parts[0], file.suffix or file.name}
        if file.suffix != ".py" and not words & spoken:
            found.append(file)
    return found


def _config(path: Path) -> Path | None:
    return next((p for p in (path.parent / "config.yaml", path.parent / "config.yml") if p.is_file()), None)


def _verifier(path: Path, form: str) -> str:
    """The file that certifies: verify.py beside the evaluator, or the evaluator itself; "" for none."""
    if form not in ("call", "command"):
        return ""
    beside = path.parent / "verify.py"
    for file in (beside, path):
        if file.is_file() and "certify" in reading.read_module(file).names:
            return str(file)
    return ""


def _entry(text: str, program: Path) -> str:
    """The function that is called: `run`, or the only one there is."""
    module = reading.parse_module(text, str(program))
    defined = [name for name, found in module.names.items() if found.params is not None]
    if module.has(ENTRY):
        return ENTRY
    if len(defined) == 1:
        return defined[0]
    return reading.require(module, ENTRY, program, "call the function that is evaluated 'run'").name


def _needed(first: interface.FirstPrograms) -> str:
    uses = f" that defines {', '.join(first.uses)}" if first.uses else ""
    return f"give one with --seed-program FILE{uses}, or --goal TEXT, from which a model or an agent writes it"
