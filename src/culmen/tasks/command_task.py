"""The task of a command: the edited files as initial program, the number it prints as score."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from culmen.core.errors import TaskError
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, parse_direction
from culmen.jail.command import SCHEME, Command, metric_text
from culmen.tasks import reading
from culmen.tasks.schema import check_text

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
