"""The task at a path or among the built-in ones, or an error with the next step."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from culmen.core.errors import TaskError, UserError
from culmen.core.extensions import all_parts, find_part, part_addresses
from culmen.core.foreign import parse_python
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, parse_direction
from culmen.jail.command import SCHEME, Command, metric_text
from culmen.jail.forms import require_form, takes_path
from culmen.tasks import reading, task_toml
from culmen.tasks.languages import LANGUAGES, language_files
from culmen.tasks.reading import (
    closest_name,
    missing_file_error,
    one_of,
    read_text,
    text_for_agents,
)
from culmen.tasks.schema import check_text

Seeds = Sequence[Mapping[str, str]]
_MARKS = ("task.toml", "evaluator.py")
_TEXTS = (".txt", ".md", ".jsonl", ".csv", ".prompt")
_MANY = 200  # entries of a folder that are looked at
_SHOWN = 6
DEFAULT = "function_minimization"  # three small files and a noisy score: the usual case


def load(path: str | Path, goal: str = "", seeds: Seeds = (), direction: str = "") -> Task:
    """The task at a path: a folder, its `task.toml`, or an evaluator file alone.

    Folders are culmen's own (`task.toml`) or those of an ecosystem in `folder_adapters`. `goal` and
    `seeds` (named texts) replace the task's; `direction` is the direction of scores for a task
    without a task.toml. Raises `TaskError` for a task that cannot work; none of its code is
    imported or run.
    """
    task = _find_task(Path(path).expanduser(), goal, bool(seeds))
    task = replace(task, goal=goal.strip()) if goal.strip() else task
    task = with_direction(task, direction) if direction else task
    task = _with_differences(_with_tolerance_flag(task))
    if not seeds:
        return task
    seeds = _named_as_usual(task, seeds)
    part, text = next(iter(seeds[0].items()))
    return with_seeds(with_entry(task, part, text), seeds)


def _with_tolerance_flag(task: Task) -> Task:
    """The task, with `Evaluator.tolerances` False if no check of a winner finds one."""
    flag = find_part("winner_checks", "flag")
    return task if flag is None else flag(task)


def _with_differences(task: Task) -> Task:
    """The task with notes on differences from the package of its evaluator."""
    path = Path(task.evaluator.path)
    text = read_text(path) if path.suffix == ".py" and path.is_file() else ""
    words = (word for word in part_addresses("differences") if word in text)
    notes = [note for word in words for note in find_part("differences", word)(path)]
    return replace(task, notes=(*task.notes, *notes)) if notes else task


def _named_as_usual(task: Task, seeds: Seeds) -> Seeds:
    """Initial programs of one part, by the name of the task's own.

    A file may have any name, unless its suffix is that of another language. Evaluators that
    import or run a candidate take its name from it; those that get a path need the suffix.
    """
    own = list(task.seeds[0]) if task.seeds else []
    given, form = list(seeds[0]), task.evaluator.form
    if form in ("call", "serve") or len(own) != 1 or len(given) != 1:
        return seeds
    language, usual = map(reading.language_of, (given[0], own[0]))
    if language not in ("text", usual) or (takes_path(form) and language == usual):
        return seeds
    return tuple({own[0]: next(iter(seed.values()))} if len(seed) == 1 else seed for seed in seeds)


def with_seeds(task: Task, seeds: Seeds) -> Task:
    """The task with other initial programs; raise `TaskError` if they lack a part it names."""
    parts = seeds[0]
    evaluator, frozen = task.evaluator, task.surface.frozen
    for name in (
        *frozen,
        *re.findall(r"\{([^{}]*)\}", " ".join((*evaluator.build, *evaluator.command))),
    ):
        if name not in parts:
            raise TaskError(
                f"the initial program has no part '{name}'",
                where=f"task {task.name}",
                fix=f"call it '{name}'",
            )
    for number, seed in enumerate(seeds, 1):
        for name, text in seed.items():
            check_text(text, f"initial program {number}, part {name}")
        if seed.keys() != parts.keys():
            fix = "give all initial programs the same part names"
            raise TaskError(
                "the initial programs differ in their parts",
                where=f"initial program {number}",
                fix=fix,
            )
    first = next(iter(parts))
    if evaluator.form in ("call", "serve") and evaluator.entry and evaluator.module not in parts:
        evaluator = replace(evaluator, module=first)
    if takes_path(evaluator.form):
        evaluator = replace(evaluator, suffix=Path(first).suffix or evaluator.suffix)
    copies = tuple(dict(seed) for seed in seeds)
    return reading.with_digest(replace(task, seeds=copies, evaluator=evaluator))


def with_proxy(task: Task, proxy: str) -> Task:
    """The task with a proxy setting for its evaluator's candidates: auto, always or never.

    Raises `TaskError`.
    """
    if proxy not in ("auto", "always", "never"):
        raise TaskError(
            f"unknown proxy setting '{proxy}'", where="proxy", fix="use auto, always or never"
        )
    if task.evaluator.form != "legacy":
        what = f"form = {task.evaluator.form} needs no proxy: it is scored in another process"
        raise TaskError(what, where="proxy", fix="leave it out")
    return reading.with_digest(replace(task, evaluator=replace(task.evaluator, proxy=proxy)))


def with_present_files(task: Task) -> Task:
    """The task with its evaluator's present files, for a fork; raise `TaskError` without them.

    A log that grew keeps its record, and so does the state of an evaluator that keeps some:
    results from before stay results of this evaluator.
    """
    if not task.evaluator.files:
        return task
    if not Path(task.evaluator.path).is_file():
        raise missing_file_error(Path(task.evaluator.path))
    records = {
        name: _present_record(task.evaluator, name, record)
        for name, record in task.evaluator.files.items()
    }
    files = {name: record for name, record in records.items() if record}
    if files == task.evaluator.files:
        return task
    evaluator = replace(task.evaluator, files=files, digest=reading.evaluator_digest(files))
    return _with_tolerance_flag(reading.with_digest(replace(task, evaluator=evaluator)))


def _present_record(evaluator: Evaluator, name: str, record: str) -> str:
    """The record of one file for a fork, "" if it is gone."""
    file, grows = Path(evaluator.path).parent / name, reading.may_grow(record)
    change = reading.compare_file(file, record)
    if change in ("", "grown") or (grows and evaluator.keeps_state):
        return record
    if change == "missing":
        return ""
    return reading.record_file(file) if grows else reading.file_sha256(file)


def _find_task(path: Path, goal: str, seeded: bool) -> Task:
    if path.is_dir():
        return _load_folder(path.resolve(), goal, seeded)
    if not path.exists():
        raise missing_path_error(path.absolute())
    folder = path.resolve().parent
    if path.suffix == ".toml":
        foreign = ecosystem_task(folder, goal) if _is_foreign_task_toml(folder) else None
        return foreign or task_toml.read_task_toml(path.resolve())
    for adapter in folder_adapters():
        if path.name == adapter.EVALUATOR and adapter.can_read_folder(folder):
            return adapter.read_folder(folder, goal)
    if path.suffix == ".py":
        return read_evaluator(path.resolve(), goal, seeded)
    raise no_evaluator_error(path)


def _load_folder(folder: Path, goal: str, seeded: bool) -> Task:
    settings, evaluator = folder / "task.toml", folder / "evaluator.py"
    if settings.is_file() and (evaluator.is_file() or not _is_foreign_task_toml(folder)):
        return task_toml.read_task_toml(settings)
    if (task := ecosystem_task(folder, goal)) is not None:
        return task
    if evaluator.is_file():
        return read_evaluator(evaluator, goal, seeded)
    raise no_task_error(folder)


def _is_foreign_task_toml(folder: Path) -> bool:
    """True if the folder's task.toml is of another ecosystem's format."""
    adapters = folder_adapters()
    return any(each.READS_TASK_TOML and each.can_read_folder(folder) for each in adapters)


def missing_path_error(path: Path) -> TaskError:
    """The error for a path that does not exist, with the names of tasks near by."""
    folder = path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    tasks = [name for name in names[:_MANY] if _is_task(folder / name)]
    near = closest_name(path.name, tasks) or closest_name(path.name, names)
    fix = f"write one to start from: culmen new {shlex.quote(path.name)}"
    if any(path.name == example.name for example in _example_folders()):
        fix = f"it is built in: culmen new {path.name} --example {path.name}"
        return TaskError(f"there is no folder '{path.name}' here", where=str(path), fix=fix)
    if tasks:
        more = f" and {len(tasks) - _SHOWN} more" if len(tasks) > _SHOWN else ""
        fix = f"tasks there: {', '.join(tasks[:_SHOWN])}{more}; or {fix}"
    fix = f"did you mean '{near}'?" if near else fix
    return TaskError(f"there is no task '{path.name}'", where=str(path), fix=fix)


def no_task_error(folder: Path) -> TaskError:
    """The error for a folder without `task.toml` and `evaluator.py`."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    names = [file.name for file in files[:_MANY]]
    what = "no task here: neither task.toml nor evaluator.py"
    for wanted in _MARKS:
        near = closest_name(
            wanted, [name for name in names if Path(name).suffix == Path(wanted).suffix]
        )
        if near:
            return TaskError(what, where=str(folder), fix=f"did you mean to call {near} {wanted}?")
    return TaskError(what, where=str(folder), fix=_suggest_first_file(folder, files))


def no_evaluator_error(file: Path) -> TaskError:
    """The error for a file that is neither a `task.toml` nor Python."""
    fix = "give the folder, its task.toml, or an evaluator.py together with a goal"
    if file.suffix == ".ipynb":
        fix = (
            "put the code that scores a program into an evaluator.py with score(output) or "
            "evaluate(path), beside the program"
        )
    elif file.suffix in (".sh", ".bash", ""):
        fix = (
            f"it is a command: culmen check --edit PROGRAM -- sh {shlex.quote(file.name)} (culmen "
            "docs tasks, 'An evaluator that is a script')"
        )
    return TaskError(f"'{file.name}' is not a task", where=str(file), fix=fix)


def _is_task(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _MARKS)


def _suggest_first_file(folder: Path, files: list[Path]) -> str:
    """The first file to write, judged by the other files of the folder."""
    new = f"culmen new {shlex.quote(str(folder / 'task'))}"
    if any(file.suffix in (".sh", ".bash") for file in files):
        return (
            "a script is a command: culmen check --edit PROGRAM -- sh SCRIPT (culmen docs tasks, "
            "'An evaluator that is a script')"
        )
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


def examples() -> list[tuple[str, str]]:
    """The built-in tasks, sorted: (name, one-line description)."""
    return [(folder.name, _goal_sentence(folder)) for folder in _example_folders()]


def example_path(name: str) -> Path:
    """The folder of a built-in task; raise `UserError` for an unknown name.

    Those with a `make_tasks.py` have their tasks in a copy alone, which `write_new` makes.
    """
    folders = {folder.name: folder for folder in _example_folders()}
    if name not in folders:
        raise UserError(
            f"there is no example '{name}'", where=f"--example {name}", fix=one_of(name, folders)
        )
    return folders[name]


def write_new(
    directory: str | Path, example: str | None = None, language: str | None = None
) -> tuple[Path, ...]:
    """Write a working task into a new or empty folder; return the files written, sorted.

    `example` names a built-in task; the default is a task of three short files, with a program in
    `language` if one is given. Never overwrites: raises `UserError` if the folder has any content,
    or cannot be written.
    """
    target = Path(directory).expanduser()
    files = None if language is None else _language_files(language, example)
    source = example_path(example or DEFAULT) if files is None else None
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = "the folder is not empty" if target.is_dir() else "there is a file of that name"
        raise UserError(what, where=str(target), fix="name a new folder; nothing was written")
    try:
        if source is not None:
            shutil.copytree(
                source,
                target,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
            )
            if (writer := target / "make_tasks.py").is_file():
                runpy.run_path(str(writer))["write_tasks"](target / "tasks")
        for name, text in (files or {}).items():
            target.mkdir(parents=True, exist_ok=True)
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        fix = "name a folder you may write to"
        raise UserError(
            f"the task could not be written: {error}", where=str(target), fix=fix
        ) from None
    return tuple(sorted(path for path in target.rglob("*") if path.is_file()))


def _language_files(language: str, example: str | None) -> dict[str, str] | None:
    """The files of a task in this language; None for Python, which the example is in."""
    if language == "python":
        return None
    if language not in LANGUAGES:
        raise UserError(
            f"there is no task to start from in '{language}'",
            where=f"--language {language}",
            fix=one_of(language, {"python": None, **LANGUAGES}),
        )
    if example is not None:
        raise UserError(
            "an example has a language of its own",
            where=f"--example {example} --language {language}",
            fix="name one of them",
        )
    return language_files(language)


def _example_folders() -> list[Path]:
    roots = [Path(package.__path__[0]) for package in all_parts("examples").values()]
    return sorted(path.parent for root in roots for path in root.glob("*/task.toml"))


def _goal_sentence(folder: Path) -> str:
    """The first sentence of the goal, without its full stop."""
    goal = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))["goal"]
    return " ".join(goal.split()).split(". ")[0].rstrip(".")


# An evaluator file alone: `score(output)` or `evaluate(path)`, with the files beside it and those
# that its text names.

ENTRY = "run"


def read_evaluator(path: Path, goal: str = "", seeded: bool = False) -> Task:
    """The task of an evaluator file.

    The first program is an `initial_program.*` beside it, else the evaluator's text SEED; without
    either a model writes it. `seeded`: the caller provides some. `verify.py` beside it, or a
    function `certify` in it, is its verifier. Raises `TaskError`.
    """
    text = read_text(path)
    module = reading.parse_module(text, str(path))
    form = task_toml.guess_form(module, path)
    asked = read_interface(text, form, ENTRY)
    program = _initial_program_beside(path)
    if form == "legacy":
        task = require_form(form, str(path)).task_from_files(
            program, path, _find_config(path), goal
        )
    else:
        task_toml.check_scorer(form, module, path)
        task = _task_of_scorer(path, form, goal, program)
    options = {"uses": list(asked.uses), **({"stub": asked.stub} if asked.stub else {})}
    files, _ = reading.evaluator_files(path, _unrelated_files(path, program))
    evaluator = replace(task.evaluator, files=files, digest=reading.evaluator_digest(files))
    task = reading.with_digest(
        replace(task, evaluator=replace(evaluator, options={**evaluator.options, **options}))
    )
    if not (task.seeds or seeded or asked.program or goal.strip()):
        raise TaskError(
            "an evaluator without a first program needs a goal",
            where=str(path),
            fix=_first_program_remedy(asked),
        )
    if task.seeds or seeded or not asked.program:
        return task
    return _with_embedded_program(task, asked.program)


def with_entry(task: Task, part: str, text: str) -> Task:
    """The task with its called function taken from a first program.

    Unchanged if a task.toml names the function.
    """
    if task.evaluator.form not in ("call", "serve") or Path(task.root, "task.toml").is_file():
        return task
    return replace(
        task, evaluator=replace(task.evaluator, module=part, entry=_entry_name(text, Path(part)))
    )


def _task_of_scorer(path: Path, form: str, goal: str, program: Path | None) -> Task:
    """The task of a `score` function."""
    _, note = reading.evaluator_files(path, _unrelated_files(path, program))
    packages = tuple(sorted({"numpy", *reading.preloadable_modules(read_text(path))}))
    evaluator = Evaluator(
        form=form,
        path=str(path),
        entry=ENTRY,
        packages=packages,
        verifier=_find_verifier(path, form),
        shown=text_for_agents(path, "public"),
    )
    task = Task(
        name=path.parent.name if path.stem == "evaluator" else path.stem,
        goal=goal,
        evaluator=evaluator,
        notes=(note,) if note else (),
        root=str(path.parent),
    )
    if program is not None:
        text = read_text(program)
        evaluator = replace(evaluator, module=program.name, entry=_entry_name(text, program))
        task = replace(task, evaluator=evaluator, seeds=({program.name: text},))
    return reading.with_digest(task)


def _with_embedded_program(task: Task, program: str) -> Task:
    """The task with the program that its evaluator contains."""
    module = PART if task.evaluator.form in ("call", "serve") else ""
    note = "there is no first program beside the evaluator: the one in the evaluator is used"
    return reading.with_digest(
        replace(
            task,
            seeds=({PART: program},),
            evaluator=replace(task.evaluator, module=module),
            notes=(*task.notes, note),
        )
    )


def with_direction(task: Task, direction: str) -> Task:
    """The task with this direction of scores (`core.task.parse_direction`)."""
    try:
        direction = parse_direction(direction)
    except UserError as error:
        raise TaskError(error.what, where="--direction", fix=error.fix) from None
    if task.objective.direction == direction:
        return task
    if Path(task.root, "task.toml").is_file():
        where = str(Path(task.root, "task.toml"))
        fix = f'write there: direction = "{direction}"'
        raise TaskError(
            f"the task has direction = {task.objective.direction}", where=where, fix=fix
        )
    return reading.with_digest(
        replace(task, objective=replace(task.objective, direction=direction))
    )


def _initial_program_beside(path: Path) -> Path | None:
    programs = reading.initial_programs(path.parent)
    return programs[0] if len(programs) == 1 else None


def _unrelated_files(path: Path, program: Path | None) -> list[Path]:
    """Files beside the evaluator that are not part of it.

    The first program, and files that are neither Python nor named in a Python file. The folder may
    be any folder, even the one with the run's output.
    """
    near = [read_text(file) for file in path.parent.glob("*.py") if file.is_file()]
    mentioned = {piece.strip("*") for text in near for piece in reading.possible_file_names(text)}
    unrelated = [program] if program else []
    for file in reading.iter_relevant_files(path.parent):
        words = {file.name, file.relative_to(path.parent).parts[0], file.suffix or file.name}
        if file.suffix != ".py" and not words & mentioned:
            unrelated.append(file)
    return unrelated


def _find_config(path: Path) -> Path | None:
    return next(
        (p for p in (path.parent / "config.yaml", path.parent / "config.yml") if p.is_file()), None
    )


def _find_verifier(path: Path, form: str) -> str:
    """The verifier's file: verify.py beside the evaluator, or the evaluator; "" without one."""
    if form not in ("call", "command"):
        return ""
    beside = path.parent / "verify.py"
    for file in (beside, path):
        if file.is_file() and "certify" in reading.read_module(file).names:
            return str(file)
    return ""


def _entry_name(text: str, program: Path) -> str:
    """Name of the called function: `run`, or the only function of the program."""
    module = reading.parse_module(text, str(program))
    defined = [name for name, definition in module.names.items() if definition.params is not None]
    if module.may_define(ENTRY):
        return ENTRY
    if len(defined) == 1:
        return defined[0]
    return reading.require_function(
        module, ENTRY, program, "call the function that is evaluated 'run'"
    ).name


def _first_program_remedy(asked: ProgramInterface) -> str:
    uses = f" that defines {', '.join(asked.uses)}" if asked.uses else ""
    return (
        f"give one with --seed-program FILE{uses}, or --goal TEXT, from which a model or an agent "
        "writes it"
    )


# The ecosystems whose task folders run unmodified, and the protocol of one.


class FolderAdapter(Protocol):
    """A module for the task folders of one ecosystem.

    Its functions read a folder without importing or running its code.
    """

    EVALUATOR: str
    """The evaluator's file whose path stands for the folder; "" if it has a name of culmen's."""
    READS_TASK_TOML: bool
    """True if the ecosystem has a `task.toml` of its own format."""

    def can_read_folder(self, folder: Path) -> bool:
        """True if the folder is one of this ecosystem's, judged by its files."""
        ...

    def read_folder(self, folder: Path, goal: str = "") -> Task:
        """The folder's task.

        Raises `TaskError`, with the smallest remedy, if the folder cannot run unmodified.
        """
        ...


def folder_adapters() -> tuple[FolderAdapter, ...]:
    """The adapters of all extensions, in the order in which they are asked."""
    return tuple(all_parts("task_folders").values())


def ecosystem_task(folder: Path, goal: str = "") -> Task | None:
    """The task of a folder of a known ecosystem, None for any other folder."""
    adapter = next(
        (adapter for adapter in folder_adapters() if adapter.can_read_folder(folder)), None
    )
    return None if adapter is None else adapter.read_folder(folder, goal)


# The functions that an evaluator asks of a program, read from its syntax tree.

PART = "program.py"
_LOADERS = ("__import__", "module_from_spec", "import_module")
_EMBEDDED = {"SEED", "EXAMPLE", "INITIAL_PROGRAM"}


class ProgramInterface(msgspec.Struct, frozen=True):
    """The functions that an evaluator `uses`, as definitions without bodies in `stub`.

    `program` is the first program that the evaluator contains, "" if there is none.
    """

    program: str = ""
    stub: str = ""
    uses: tuple[str, ...] = ()


def read_interface(text: str, form: str, entry: str = "run") -> ProgramInterface:
    """The interface that an evaluator's text asks for.

    With the form "legacy", `evaluate(path)` loads the program, or passes it to another process that
    does: the functions are those called of a loaded module, in textual order. With others,
    `score(output)` gets the result of `entry`.
    """
    tree = parse_python(text)
    arguments = _called_functions(tree) if form == "legacy" else {entry: 0}
    return ProgramInterface(_embedded_program(tree), _write_stub(arguments), tuple(arguments))


def _called_functions(tree: ast.Module) -> dict[str, int]:
    """Names and numbers of arguments of the functions that are called of a loaded module."""
    modules, found = _module_names(tree), dict[str, int]()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)):
        if isinstance(call.func, ast.Attribute) and _is_module(call.func.value, modules):
            found.setdefault(call.func.attr, len(call.args) + len(call.keywords))
    return found


def _module_names(tree: ast.Module) -> frozenset[str]:
    """Names of variables that hold a loaded module, and of functions that return one.

    A name counts wherever it stands.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names, found = frozenset[str](), frozenset(_LOADERS)
    while names != found:
        names = found
        for function in functions.values():
            returned = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
            if any(value is not None and _is_module(value, names) for value in returned):
                found |= {function.name}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _is_module(node.value, names):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Call) and (called := functions.get(_callee_name(node))):
                given = zip(called.args.args, node.args)
                found |= {parameter.arg for parameter, value in given if _is_module(value, names)}
    return found


def _is_module(node: ast.expr, names: frozenset[str]) -> bool:
    """True for one of these variables, and for a call of one of these functions."""
    if isinstance(node, ast.Call):
        return _callee_name(node) in names
    return isinstance(node, ast.Name) and node.id in names


def _callee_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _embedded_program(tree: ast.Module) -> str:
    """A program that the evaluator contains as a text, "" if there is none.

    The constant is named SEED, EXAMPLE or INITIAL_PROGRAM.
    """
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            text = node.value.value
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & _EMBEDDED and isinstance(text, str) and text.strip():
                return text.strip("\n") + "\n"
    return ""


def _write_stub(arguments: dict[str, int]) -> str:
    """Functions of these names and numbers of arguments, without bodies."""
    if not arguments:
        return ""
    text = f'"""What the evaluator asks for: {", ".join(arguments)}."""\n'
    for name, count in arguments.items():
        parameters = ", ".join(f"x{n}" for n in range(1, count + 1))
        text += f'\n\ndef {name}({parameters}):\n    raise NotImplementedError("write {name}")\n'
    return text


# The task of a command: the edited files as initial program, the number it prints as score.

_LANGUAGES = {".py": "python", ".sh": "shell", ".js": "javascript", ".rs": "rust", ".go": "go"}


def command_task(command: Command, direction: str = "", goal: str = "") -> Task:
    """A task whose candidates are the files `command.edit`; raise `TaskError` without them."""
    folder = Path(command.folder).resolve()
    if not command.edit:
        raise TaskError(
            "a command needs the files that may change", where="--", fix="add --edit FILE"
        )
    parts: dict[str, str] = {}
    for name in command.edit:
        parts[name] = reading.read_text(folder / name)
        check_text(parts[name], name)
    file = _evaluator_file(command, folder)
    files = {} if file is None else {file.name: reading.file_sha256(file)}
    words = (SCHEME, msgspec.json.encode(msgspec.structs.replace(command, folder=str(folder))))
    way = parse_direction(direction or "max", "--direction")
    line = shlex.join(command.words)
    number = "wall time" if command.metric == "seconds" else metric_text(command.metric)
    task = Task(
        name=folder.name or "command",
        goal=goal.strip()
        or f"Edit {', '.join(parts)}: `{line}` gives the {number}, {way}imise it.",
        seeds=(parts,),
        evaluator=Evaluator(
            form="call",
            path=str(file or folder / command.edit[0]),
            entry="",
            program=(words[0], words[1].decode()),
            packages=(),
            files=files,
            digest=reading.evaluator_digest(files),
        ),
        objective=Objective(direction=way),
        surface=Surface(language=_LANGUAGES.get(Path(command.edit[0]).suffix, "text")),
        # a minute for the copy of the folder
        limits=Limits(seconds=command.seconds, scorer_seconds=command.seconds + 60.0),
        root=str(folder),
    )
    return reading.with_digest(task)


def _evaluator_file(command: Command, folder: Path) -> Path | None:
    """The file of the folder that the command names, which must not change; None without one."""
    named = [(folder / word).resolve() for word in command.words if word not in command.edit]
    return next((f for f in named if f.is_relative_to(folder) and f.is_file()), None)
