"""An image made of this machine's own files: Python, NumPy, msgspec, a shell and a few tools. No registry is asked.

Where crun refuses the machine's mixed control groups (v1 with some controllers in v2), podman is called from a mount
namespace that lacks those of v2; everything else is podman's own.
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

import culmen

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
IMAGE = f"localhost/culmen-test:{VERSION}-{numpy.__version__}-3"
WITH_CULMEN = "localhost/culmen-test-worker:1"
_WORKER = (
    *("culmen-*.dist-info", "psycopg*", "sqlalchemy*", "SQLAlchemy*", "typer*", "rich", "shellingham", "alembic"),
    *("typing_extensions.py", "annotated_doc", "click", "markdown_it", "mdurl", "pygments", "greenlet", "mako"),
    *("pydantic*", "annotated_types", "typing_inspection"),
)
_TOOLS = ("sh", "rm", "chmod", "cat", "sleep", "awk", "env", "mkdir")
_LEFT_OUT = {"test", "tests", "__pycache__", "site-packages", "idlelib", "tkinter", "ensurepip", "lib2to3"}
_WRAPPER = """#!/bin/sh
exec unshare -m sh -c 'umount /sys/fs/cgroup/unified; exec "$0" "$@"' {program} "$@"
"""


def hybrid() -> bool:
    """Whether control groups are mixed."""
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
        environment = ["-c", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "-c", "ENV LD_LIBRARY_PATH=/usr/local/lib"]
        ran = subprocess.run(
            ["podman", "import", "-q", *environment, "-", IMAGE], input=_root(), capture_output=True, check=False
        )
        if ran.returncode:
            return ran.stderr.decode()
    line = ["podman", "run", "--rm", "--network", "none", "--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"]
    ran = subprocess.run([*line, IMAGE, "python3", "-c", "import numpy"], capture_output=True, check=False)
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
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith("config-")]
        yield from (Path(place, name) for name in names if not name.endswith((".a", ".pyc", ".pyi")))


def _libraries(program: str) -> dict[str, str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    found = {}
    for path in re.findall(r"(/\S+)", listed):
        own = path.startswith(sys.base_prefix)
        if "numpy.libs" not in path:
            found[f"usr/local/lib/{os.path.basename(path)}" if own else path.lstrip("/")] = path
    return found


def made_with_culmen(folder: Path) -> str:
    """The name of an image with culmen and what its worker needs; `folder` is empty."""
    packages, place = Path(numpy.__file__).parents[1], folder / "site-packages"
    place.mkdir()
    for path in (path for name in _WORKER for path in packages.glob(name)):
        _copy(path, place)
    _copy(Path(culmen.__file__).parent, place)
    shutil.copy(shutil.which("tail") or "", folder / "tail")
    (folder / "lib").mkdir()
    for each in (os.path.realpath(sys.executable), *place.glob("p*/**/*.so*")):  # pydantic's and psycopg's
        for name, source in _libraries(str(each)).items():
            if not Path(source).is_relative_to(packages):
                shutil.copy(source, folder / "lib" / os.path.basename(name))
    start = "import sys\nfrom culmen.cli.main import main\nsys.exit(main())\n"
    (folder / "culmen").write_text(f"#!/usr/local/bin/python3\n{start}")
    (folder / "culmen").chmod(0o755)
    inside = f"/usr/local/lib/{VERSION}/site-packages/"
    copied = {"site-packages": inside, "tail": "/bin/", "lib": "/usr/lib/", "culmen": "/usr/local/bin/"}
    lines = [f"FROM {IMAGE}", "RUN mkdir -p /tmp && chmod 1777 /tmp", *(f"COPY {a} {b}" for a, b in copied.items())]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    words = ["podman", "build", "--quiet", "--pull=never", "--network", "host", "--tag", WITH_CULMEN]
    limits = ["--ulimit", "nofile=256:256", "--ulimit", "nproc=256:256"]
    subprocess.run([*words, *limits, str(folder)], check=True, capture_output=True)
    return WITH_CULMEN


def _copy(path: Path, place: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, place / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(path, place)
