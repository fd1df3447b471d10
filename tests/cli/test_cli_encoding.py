"""A file gets the text itself, in UTF-8, in any locale."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import SEED, Place


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_best_writes_the_text_and_no_escapes(encoding: str, place: Place) -> None:
    program = "# θ → 日本, “Grüße”\n" + SEED
    place.task("peak", program)
    made = place.here("run", "peak", "--budget", "1", "--run-dir", "run", "--quiet")
    assert made.code == 0, made.err
    done = subprocess.run(
        [sys.executable, "-m", "culmen.cli.main", "best", "run"],
        cwd=place.root,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.decode("utf-8") == program
