"""Compare culmen's adapters with the packages.

    python -m tests.differential                 # all, by hand
    python -m tests.differential gepa shinka     # some

Each folder beside this file that has a `requirements.txt`, with a pinned version, is a package. Its
environment is made once, in the folder CULMEN_DIFFERENTIAL or ~/.cache/culmen-differential, and
again if the requirements change. What an `alone.txt` names is installed without its dependencies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TOOLS = ("hypothesis", "pytest", "pytest-timeout")


def environment(name: str) -> Path:
    """The interpreter of a package's environment, made if it is missing or old."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("CULMEN_DIFFERENTIAL") or Path(cache, "culmen-differential"), name)
    wanted = f"{ROOT}\n{(HERE / name / 'requirements.txt').read_text()}"
    made, python = folder / "made-of.txt", folder / "bin" / "python"
    if not made.is_file() or made.read_text() != wanted:
        print(f"{name}: makes {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        packages = ["-e", str(ROOT), "-r", str(HERE / name / "requirements.txt"), *TOOLS]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        if (alone := HERE / name / "alone.txt").is_file():
            subprocess.run([*pip, "--no-deps", "-r", str(alone)], check=True)
        made.write_text(wanted)
    return python


def main(names: list[str]) -> int:
    """Exit status 0 if no package differs."""
    known = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no package {unknown[0]}: there are {', '.join(known)}")
        return 2
    failed = []
    for name in names or known:
        command = [
            str(environment(name)),
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--timeout=1800",
        ]
        print(name, flush=True)
        run = subprocess.run(
            [*command, str(HERE / name)], cwd=ROOT, env={**os.environ, "CULMEN_COMPARE": name}
        )
        if run.returncode:
            failed.append(name)
    print(f"differences: {', '.join(failed)}" if failed else "no differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
