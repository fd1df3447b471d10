"""An image made of this machine's own files. No registry is asked.

It has Python, NumPy, msgspec, a shell and a few tools.

Where crun refuses the machine's mixed control groups (v1 with some controllers in v2), podman is
called from a mount namespace that lacks those of v2; everything else is podman's own.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
IMAGE = f"localhost/culmen-test:{VERSION}-{numpy.__version__}-3"
_TOOLS = ("sh", "rm", "chmod", "cat", "sleep", "awk", "env", "mkdir")
_LEFT_OUT = {
    "test",
    "tests",
    "__pycache__",
    "site-packages",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
}
_WRAPPER = """#!/bin/sh
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified; exec "$0" "$@"' {program} "$@"
"""


def hybrid() -> bool:
    """True if control groups are mixed."""
    mixed = Path("/sys/fs/cgroup/unified/cgroup.controllers")
    return mixed.exists() and bool(mixed.read_text().strip())


def path_of_podman(folder: Path) -> str:
    """PATH with a podman that works here."""
    program = shutil.which("podman")
    if program is not None and hybrid() and os.geteuid() == 0:
        (folder / "podman").write_text(_WRAPPER.format(program=program))
        (folder / "podman").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@cache
def made() -> str:
    """ "" when the image is there and runs, else why not."""
    if shutil.which("podman") is None:
        return "podman is not installed"
    if subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode:
        environment = [
            "-c",
            "ENV PATH=/usr/local/bin:/usr/bin:/bin",
            "-c",
            "ENV LD_LIBRARY_PATH=/usr/local/lib",
        ]
        ran = subprocess.run(
            ["podman", "import", "-q", *environment, "-", IMAGE],
            input=_root(),
            capture_output=True,
            check=False,
        )
        if ran.returncode:
            return ran.stderr.decode()
    line = [
        "podman",
        "run",
        "--rm",
        "--network",
        "none",
        "--ulimit",
        "nofile=256:256",
        "--ulimit",
        "nproc=256:256",
    ]
    ran = subprocess.run(
        [*line, IMAGE, "python3", "-c", "import numpy"], capture_output=True, check=False
    )
    return ran.stderr.decode() if ran.returncode else ""


def _root() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, source in sorted(_files().items()):
            archive.add(os.path.realpath(source), name, recursive=False)
    return content.getvalue()


def _files() -> dict[str, str]:
    """Path inside -> file here."""
    files = {"usr/local/bin/python3": sys.executable}
    for tool in _TOOLS:
        found = shutil.which(tool, path="/usr/bin:/bin")
        files |= {f"bin/{tool}": found} if found else {}
    library, packages = f"usr/local/lib/{VERSION}", Path(numpy.__file__).parents[1]
    for path in _below(Path(sysconfig.get_path("stdlib"))):
        files[f"{library}/{path.relative_to(sysconfig.get_path('stdlib'))}"] = str(path)
    for folder in ("numpy", "numpy.libs", "msgspec"):
        for path in _below(packages / folder):
            files[f"{library}/site-packages/{path.relative_to(packages)}"] = str(path)
    for source in list(files.values()):
        if source.endswith(".so") or "/bin/" in source:
            files |= _libraries(os.path.realpath(source))
    return files


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if name not in _LEFT_OUT and not name.startswith("config-")
        ]
        yield from (
            Path(place, name) for name in names if not name.endswith((".a", ".pyc", ".pyi"))
        )


def _libraries(program: str) -> dict[str, str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    found = {}
    for path in re.findall(r"(/\S+)", listed):
        own = path.startswith(sys.base_prefix)
        if "numpy.libs" not in path:
            found[f"usr/local/lib/{os.path.basename(path)}" if own else path.lstrip("/")] = path
    return found
