"""Limits of the system are named, with the next command; they are no bug of culmen."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from culmen.cli.main import _limit_met

from .conftest import Place

LONG = "n" * 300


@pytest.mark.parametrize("verb", ["status", "resume", "run", "check", "show", "story"])
def test_limits_a_name_of_300_letters(place: Place, verb: str) -> None:
    done = place.here(verb, LONG)
    assert done.code == 2 and "Traceback" not in done.err
    # from Python 3.14 on, a path with such a name is one where nothing is
    assert "too long" in done.err or f"no task '{LONG}" in done.err


def test_limits_open_files(place: Place) -> None:
    place.task("peak")

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (13, 13))

    command = [sys.executable, "-m", "culmen.cli.main", "run", "peak", "--run-dir", "x"]
    done = subprocess.run(
        [*command, "--budget", "evaluations=4"],
        cwd=place.root,
        preexec_fn=few,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 75 and "too many files are open" in done.stderr
    assert "Traceback" not in done.stderr and "bug" not in done.stderr


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (MemoryError(), "memory limit", 75),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory limit", 75),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "too many files", 75),
    ],
)
def test_limits_at_any_depth_of_causes(error: Exception, words: str, code: int) -> None:
    """The error of a part may have been raised from that of the system."""
    wrapped = RuntimeError("a part gave up")
    wrapped.__cause__ = error
    found = _limit_met(wrapped)
    assert found is not None and words in found[0] and found[2] == code
    assert _limit_met(RuntimeError("a bug")) is None
