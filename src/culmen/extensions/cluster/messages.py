"""Messages to and from nodes, as plain bytes.

First the task with its folder, once; then jobs and their observations. The parcel is named by its
SHA-256, and a node checks that name and every file of the evaluator. Cases travel with the task, so
a job only names its case.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from culmen.core import VERSION
from culmen.core.candidate import Candidate
from culmen.core.errors import IsolationError, TaskError, UserError
from culmen.core.evaluation import Case, Observation, Scoring
from culmen.core.foreign import boundary
from culmen.core.json import JsonObject
from culmen.core.task import Task
from culmen.evaluate.integrity.guard import EvaluatorChanged, EvaluatorSeal
from culmen.tasks.reading import evaluator_digest

T = TypeVar("T")

# between the number of an evaluation and that of a question of its evaluator to a model
ASKED = "~"

MAX_FILES, MAX_BYTES = 5000, 256 * 2**20
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_SKIPPED = {"__pycache__", "node_modules", "venv", "runs", "openevolve_output"}
_ERRORS: dict[str, type[UserError]] = {
    error.__name__: error for error in (UserError, TaskError, IsolationError, EvaluatorChanged)
}


class TaskBundle(msgspec.Struct, frozen=True):
    """A task and its folder.

    `base` is the folder's path on the driver, `files` the sizes in bytes of its files by path below
    it; their contents follow in that order.
    """

    task: Task
    base: str
    files: dict[str, int]
    culmen: str
    python: str


class NodeTerms(msgspec.Struct, frozen=True, omit_defaults=True):
    """Conditions of evaluation on a node.

    At most `workers` at once, at an isolation level not weaker than `level` ("": any). `require` is
    the level required by the user; `scoring` was determined by the first node; `seconds` is the
    time limit of an evaluation.
    """

    workers: int = 1
    require: str | None = None
    level: str = ""
    scoring: Scoring = Scoring()
    seconds: float = 0.0


class EvaluationJob(msgspec.Struct, frozen=True):
    """One evaluation. `epoch` grows when scorers must be replaced (see `Backend.renew`)."""

    id: str
    parts: dict[str, str]
    case: str | None
    seed: int
    certify: bool
    epoch: int


class NodeReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node's reply: ready (level, scoring, niceness), an observation, or an error."""

    level: str = ""
    scoring: Scoring = Scoring()
    observation: Observation | None = None
    error: dict[str, str] | None = None
    niceness: int = 0
    lost: str = ""  # a short word: the evaluation was lost on the node


def pack_task(task: Task) -> bytes:
    """The parcel of a task; raise `TaskError` for a folder that is too large to send."""
    base = _folder_to_send(task)
    sizes, chunks, size = dict[str, int](), list[bytes](), 0
    for path in _walk_files(base):
        size += path.stat().st_size
        if len(sizes) >= MAX_FILES or size > MAX_BYTES:
            raise TaskError(
                f"the task folder is too large to send to nodes (over {MAX_FILES} files or "
                f"{MAX_BYTES >> 20} MB)",
                where=str(base),
                fix=(
                    "keep large data where every node can read it, and name it in [evaluator] "
                    "options.readable"
                ),
            )
        chunks.append(path.read_bytes())
        sizes[path.relative_to(base).as_posix()] = len(chunks[-1])
    head = dump_struct(TaskBundle(task, str(base), sizes, VERSION, _PYTHON))
    return b"".join([len(head).to_bytes(8, "big"), head, *chunks])


def parcel_digest(parcel: bytes) -> str:
    """The parcel's name, its SHA-256."""
    return hashlib.sha256(parcel).hexdigest()


def unpack_task(parcel: bytes, name: str, folder: Path) -> Task:
    """Write the folder below `folder`; return the task with its paths on this machine.

    Raises `TaskError` if the parcel is damaged, or the node has another version of culmen or
    Python.
    """
    if parcel_digest(parcel) != name:
        raise TaskError("the task arrived damaged", where=_node_name(), fix="culmen resume")
    offset = 8 + int.from_bytes(parcel[:8], "big")
    bundle = load_struct(parcel[8:offset], TaskBundle)
    _require_same_versions(bundle)
    home = folder / "task"
    for relative, size in bundle.files.items():
        target = home / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(parcel[offset : offset + size])
        offset += size
    task = _relocate_task(bundle.task, bundle.base, str(home))
    _verify_evaluator_files(task)
    return task


def encode_job(
    candidate: Candidate, case: Case | None, seed: int, certify: bool, epoch: int
) -> bytes:
    """A job as bytes; of the candidate it has only the texts."""
    return dump_struct(
        EvaluationJob(
            candidate.id, candidate.parts, None if case is None else case.id, seed, certify, epoch
        )
    )


def dump_struct(value: object) -> bytes:
    """A struct as JSON in ASCII, including NaN, lone surrogates and integers of any size."""
    return json.dumps(msgspec.to_builtins(value)).encode("ascii")


@boundary()
def load_struct(raw: bytes, kind: type[T]) -> T:
    """The inverse of `dump`."""
    return msgspec.convert(json.loads(raw), kind)


def error_reply(error: UserError) -> NodeReply:
    """A user error as a reply."""
    kind = type(error).__name__
    return NodeReply(
        error={
            "kind": kind,
            "what": error.what,
            "where": f"{error.where} ({_node_name()})",
            "fix": error.fix,
        }
    )


def error_from_reply(error: dict[str, str]) -> UserError:
    """The user error in a node's reply."""
    kind = _ERRORS.get(error["kind"], UserError)
    return kind(error["what"], where=error["where"], fix=error["fix"])


def _folder_to_send(task: Task) -> Path:
    """The folder to send: the task's, if the evaluator is in it, else the evaluator's own."""
    evaluator = Path(task.evaluator.path)
    root = Path(task.root) if task.root else evaluator.parent
    return root if evaluator.is_relative_to(root) else evaluator.parent


def _walk_files(base: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(base):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED)
        for name in sorted(names):
            file = Path(root, name)
            if not name.startswith(".") and file.is_file():
                yield file


def _relocate_task(task: Task, base: str, home: str) -> Task:
    def relocated(path: str) -> str:
        inside = path == base or path.startswith(base.rstrip("/") + "/")
        return home + path[len(base.rstrip("/")) :] if inside else path

    evaluator, options = task.evaluator, JsonObject(task.evaluator.options)
    if "readable" in options:
        options["readable"] = [relocated(path) for path in options["readable"]]
    moved = msgspec.structs.replace(
        evaluator,
        path=relocated(evaluator.path),
        verifier=relocated(evaluator.verifier),
        options=options,
    )
    return msgspec.structs.replace(task, evaluator=moved, root=relocated(task.root))


def _verify_evaluator_files(task: Task) -> None:
    """Raise an error unless the evaluator on this node equals the run's, file by file."""
    evaluator = task.evaluator
    for path in evaluator.options.get("readable", ()):
        if not os.path.exists(path):
            raise TaskError(
                f"{path} does not exist",
                where=_node_name(),
                fix="put it on every node, or share it",
            )
    if evaluator.files and evaluator_digest(evaluator.files) != evaluator.digest:
        raise TaskError(
            "the evaluator's files are not those of its digest",
            where=_node_name(),
            fix="read the task again",
        )
    EvaluatorSeal(evaluator).require_unchanged()


def _require_same_versions(bundle: TaskBundle) -> None:
    for what, theirs, ours in (
        ("culmen", bundle.culmen, VERSION),
        ("Python", bundle.python, _PYTHON),
    ):
        if theirs != ours:
            raise UserError(
                f"this node has {what} {ours}, the run uses {theirs}",
                where=_node_name(),
                fix=f"install {what} {theirs} there",
            )


def _node_name() -> str:
    return f"node {os.uname().nodename}"
