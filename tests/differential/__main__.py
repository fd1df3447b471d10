"""Runs comparisons with other packages, each in an environment of its own.

    python -m tests.differential openevolve     # all: without a name

An environment is made in the cache, from `requirements.txt` beside the tests, and used again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def main(names: list[str]) -> int:
    """Run the comparisons with these packages; returns pytest's exit status."""
    known = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no comparison with {', '.join(unknown)}; there are {', '.join(known)}")
    return max([compare_package(name) for name in names or known], default=0)


def compare_package(name: str) -> int:
    """Make the environment of one package, and run its comparison."""
    place = CACHE / f"culmen-differential-{name}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    wanted = ["-e", str(ROOT), "-r", str(HERE / name / "requirements.txt")]
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True)
    tests = [python, "-m", "pytest", "--hypothesis-show-statistics", str(HERE / name)]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
