"""Installs agent programs in tried versions: `install.py FOLDER codex opencode`.

The folder is outside the repository. They come from the npm registry that this machine is set up
for. Prints the folder to put on PATH; fails loudly if they cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from culmen.extensions.agents.adapters import programs
from culmen.extensions.agents.adapters.catalog import TESTED

TRIES, SECONDS = 3, 600


def pinned(*names: str) -> list[str]:
    """Arguments for npm: the versions that were tried last."""
    return [f"{TESTED[name].package}@{TESTED[name].versions[-1]}" for name in names]


def present(folder: Path, names: list[str]) -> list[str]:
    """Those that are there in the right version."""
    return [
        name
        for name in names
        if (folder / name).exists()
        and programs.program_version(programs.find_program(str(folder / name)))
        == TESTED[name].versions[-1]
    ]


def main(place: str, *names: str) -> int:
    """Install the missing programs; returns the exit code."""
    os.umask(0o022)  # agents run as another user
    folder = Path(place).expanduser() / "node_modules" / ".bin"
    for attempt in range(TRIES):
        missing = [name for name in names if name not in present(folder, list(names))]
        if not missing:
            print(folder)
            return 0
        npm = shutil.which("npm")
        if npm is None:
            break
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        line = [
            npm,
            "install",
            "--prefix",
            place,
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ]
        print(
            f"installing {' '.join(pinned(*names))}, try {attempt + 1} of {TRIES}", file=sys.stderr
        )
        try:
            subprocess.run(
                [*line, *pinned(*names)], stdout=sys.stderr, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            print("npm did not finish in time", file=sys.stderr)
    print(
        f"REAL AGENTS CANNOT BE TESTED HERE: {', '.join(names)} could not be installed with npm",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
