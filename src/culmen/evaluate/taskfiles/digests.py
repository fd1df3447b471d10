"""Digests of the files that an evaluation depends on, independent of the folder's location."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from culmen.core.evaluation import Case
from culmen.core.task import Evaluator, Limits, Objective, Surface, Task, fingerprint
from culmen.evaluate.taskfiles import surface as markers

MAX_FILES = 400
MAX_BYTES = 64 * 2**20
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv", "runs", "openevolve_output", "results", "logs"}
_SKIPPED_SUFFIXES = {".pyc", ".md", ".rst", ".log", ".png", ".jpg", ".svg", ".pdf"}


def evaluator_files(path: Path, apart: Iterable[Path]) -> tuple[dict[str, str], str]:
    """SHA-256 of an evaluator and the files beside it, by name, and a note ("" if all of them were covered).

    `apart` are files that are no part of the evaluator (initial programs, cases, settings). Hidden files, caches, logs,
    pictures and prose do not count. Of a folder with more than 400 files or 64 MB only the evaluator and Python files
    directly beside it are covered.
    """
    folder, skipped = path.parent, {p.resolve() for p in apart}
    files: list[Path] = []
    size = 0
    for file in walk(folder):
        if file.resolve() in skipped:
            continue
        files.append(file)
        size += file.stat().st_size
        if len(files) > MAX_FILES or size > MAX_BYTES:
            near = [f for f in sorted(folder.glob("*.py")) if f.is_file() and f.resolve() not in skipped]
            note = f"{folder} is large: only its own .py files count as the evaluator; move it to a small folder"
            return _hashed(folder, {path, *near}), note
    return _hashed(folder, {path, *files}), ""


def evaluator_digest(files: Mapping[str, str]) -> str:
    """Digest of an evaluator from those of its files."""
    return fingerprint(*(piece for pair in files.items() for piece in pair))


def task_digest(
    evaluator: Evaluator,
    cases: tuple[Case, ...],
    objective: Objective,
    limits: Limits,
    surface: Surface,
    seeds: tuple[dict[str, str], ...],
) -> str:
    """Digest of everything that affects a score; of initial programs only the immutable text."""
    contract = msgspec.structs.replace(
        evaluator, path="", verifier=Path(evaluator.verifier).name, files={}, shown="", tolerances=True
    )
    plain = [contract, cases, objective, limits, surface, [_immutable(surface, seed) for seed in seeds]]
    return fingerprint(*(msgspec.json.encode(piece, order="sorted") for piece in plain))


def digested(task: Task) -> Task:
    """The task with its digest updated."""
    parts = (task.evaluator, task.cases, task.objective, task.limits, task.surface, task.seeds)
    return msgspec.structs.replace(task, digest=task_digest(*parts))


def _immutable(surface: Surface, seed: dict[str, str]) -> dict[str, str | list[str]]:
    fixed: dict[str, str | list[str]] = {name: seed[name] for name in surface.frozen if name in seed}
    if surface.markers == "enforced":
        for name, text in seed.items():
            if name not in fixed and markers.has_blocks(text):
                fixed[name] = [region.text for region in markers.split_blocks(text) if not region.editable]
    return fixed


def walk(folder: Path) -> Iterator[Path]:
    """Files of a folder and below that can matter to an evaluation."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            file = Path(root, name)
            if not name.startswith(".") and file.suffix not in _SKIPPED_SUFFIXES and file.is_file():
                yield file


def _hashed(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): sha256(file) for file in sorted(files)}


def sha256(file: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
