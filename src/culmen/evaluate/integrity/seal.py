"""The evaluator's files under seal: they must not change while a run lasts.

A check costs one `stat` per file; only changed files are read again.
"""

from __future__ import annotations

import os
from pathlib import Path

from culmen.core.errors import TaskError
from culmen.core.task import Evaluator
from culmen.evaluate.taskfiles.digests import sha256

Identity = tuple[int, int, int, int, int]


class EvaluatorChanged(TaskError):
    """A file of the evaluator changed since the run began."""


class EvaluatorSeal:
    """The files of one evaluator: those its task names, at least itself and its verifier."""

    def __init__(self, evaluator: Evaluator) -> None:
        folder = Path(evaluator.path).parent
        own = (evaluator.path, evaluator.verifier) if evaluator.path else ()
        self._expected = {str(folder / name): digest for name, digest in evaluator.files.items()}
        for path in filter(None, own):
            if path not in self._expected and os.path.isfile(path):  # a task made by hand is sealed as it is now
                self._expected[path] = sha256(Path(path))
        self._seen: dict[str, Identity] = {}

    def check(self) -> None:
        """Raises EvaluatorChanged, naming the first file that changed or is missing."""
        for path, expected in self._expected.items():
            identity = _identity(path)
            if identity is not None and identity == self._seen.get(path):
                continue
            if identity is None or sha256(Path(path)) != expected:
                raise _changed(path, expected, gone=identity is None)
            self._seen[path] = identity


def _identity(path: str) -> Identity | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _changed(path: str, expected: str, *, gone: bool) -> EvaluatorChanged:
    name = os.path.basename(path)
    what = f"{name} is gone" if gone else f"{name} was changed"
    return EvaluatorChanged(
        f"{what} since the run began: its scores could not be compared with the earlier ones",
        where=f"{path} (SHA-256 was {expected[:16]}...)",
        fix="restore it, then culmen resume RUN"
        + ("" if gone else "; or continue with the changed file: culmen fork RUN"),
    )
