"""An interpreter whose child processes import culmen from a given folder, too.

Scorers and jails start with an environment of their own, so PYTHONPATH does not reach them: they
import the culmen that is installed beside the interpreter.
"""

from __future__ import annotations

import compileall
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

IMPORTED = "import culmen; print(culmen.__file__)"


def installed_source(python: str) -> Path:
    """The folder that holds the package culmen of an interpreter, whatever PYTHONPATH is."""
    printed = subprocess.check_output([python, "-I", "-c", IMPORTED], text=True)
    return Path(printed.strip()).resolve().parents[1]


def compile_source(source: Path) -> None:
    """Compile culmen's modules once; processes of the jail never write what they compile."""
    compileall.compile_dir(source / "culmen", rx=re.compile(r"/tasks/|/attacks/"), quiet=2)


def make_interpreter(source: Path, folder: Path) -> str:
    """The path of a new interpreter in this folder, with culmen from `source`.

    It has the packages of the present one.
    """
    compile_source(source)
    if installed_source(sys.executable) == source.resolve():
        return sys.executable
    venv.create(folder, symlinks=True)
    python = str(folder / "bin" / "python")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", purelib], text=True).strip())
    paths = f"{source.resolve()}\n{sysconfig.get_path('purelib')}\n"
    (packages / "culmen_source.pth").write_text(paths)
    assert installed_source(python) == source.resolve()
    return python
