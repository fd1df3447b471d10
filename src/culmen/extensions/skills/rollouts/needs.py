"""Packages that plain tasks would install in a container and that this machine lacks.

Read from the RUN lines of a Dockerfile and from the scripts of the tests; nothing is installed. The
packages of pip may lie in an environment of the tasks' own, TASKS/.venv, which agents and tests of
plain tasks then use first.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from culmen.core.inside import text_inside
from culmen.extensions.skills.rollouts.harbor import HarborTask
from culmen.extensions.skills.rollouts.images import read_instructions

VENV = ".venv"
PIP, APT, NETWORK = "pip", "apt", "a network for"
_NAMED = 12  # packages of one kind in a note
_WITH_VALUE = ("-r", "-c", "-i", "-e", "--index-url", "--extra-index-url", "--target", "-t", "-p")
_DPKG = Path("/var/lib/dpkg/info")  # has a file NAME.list or NAME:ARCH.list for each package


class Need(NamedTuple):
    """A package that a task installs, by `kind`: `PIP`, `APT`; `wanted` is it with its version.

    Of the kind `NETWORK` it is a program that fetches packages each time it runs.
    """

    kind: str
    name: str
    wanted: str


def venv_of(tasks: Path) -> Path | None:
    """The environment of a folder of tasks, None if it has none."""
    return tasks / VENV if (tasks / VENV / "bin" / "python").exists() else None


def missing_note(tasks: Iterable[HarborTask], root: Path) -> str:
    """A sentence on missing packages of plain tasks, with the remedy; "" if none is missing.

    `root` is the folder of the tasks.
    """
    lacking: dict[Need, list[str]] = {}
    for task in tasks:
        if task.image is None:
            for need in dict.fromkeys(_needs_of(task)):
                if not _is_here(need, root):
                    lacking.setdefault(need, []).append(task.name)
    if not lacking:
        return ""
    names = sorted({name for each in lacking.values() for name in each})
    texts = [
        f"{kind} {', '.join(wanted[:_NAMED])}" + (" ..." if len(wanted) > _NAMED else "")
        for kind in (PIP, APT, NETWORK)
        if (wanted := sorted({need.wanted for need in lacking if need.kind == kind}))
    ]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    of_pip = sorted({need.wanted for need in lacking if need.kind == PIP})
    venv = shlex.quote(str(root / VENV))
    remedy = (
        f"; python3 -m venv {venv} && {venv}/bin/pip install {shlex.join(of_pip)} "
        "gives them to all tasks declared plain"
        if len(of_pip) == len(lacking)
        else "; install it, let tests/test.sh do without, or leave out these tasks"
    )
    return (
        f"plain tasks install nothing, and this machine lacks what {shown} would install: "
        f"{'; '.join(texts)}{remedy}"
    )


def _needs_of(task: HarborTask) -> Iterator[Need]:
    folder = Path(task.folder)
    if (folder / "environment" / "Dockerfile").is_file():
        for word, rest in read_instructions(text_inside(folder / "environment", "Dockerfile")):
            if word == "RUN":
                yield from _needs_of_script(rest)
    for script in sorted((folder / "tests").glob("*.sh")):
        yield from _needs_of_script(text_inside(folder / "tests", script.name))


def _needs_of_script(text: str) -> Iterator[Need]:
    """The packages that the commands of a shell script install."""
    for line in re.split(r"&&|\|\||[;|\n]", re.sub(r"\\[ \t]*\n", " ", text)):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on in the next line
            continue
        words = words[1:] if words[:1] == ["sudo"] else words
        program = os.path.basename(words[0]) if words else ""
        if program in ("pip", "pip3", "apt-get", "apt") or words[1:3] == ["-m", "pip"]:
            if "install" in words:
                kind = APT if program.startswith("apt") else PIP
                yield from _packages(kind, words[words.index("install") + 1 :])
        elif program == "uv" and words[1:3] in (["pip", "install"], ["tool", "install"]):
            yield from _packages(PIP, words[3:])
        elif program == "uvx" or words[:2] == ["uv", "run"]:
            yield Need(NETWORK, program, program)


def _packages(kind: str, words: Iterable[str]) -> Iterator[Need]:
    package = re.compile(r"[A-Za-z0-9][\w.+:-]*(?:\[[\w,-]+\])?(?:[=<>~!].*)?")
    is_value = False
    for word in words:
        if not is_value and package.fullmatch(word):
            name = re.match(r"[\w.+-]+", word)
            assert name is not None
            yield Need(kind, name[0], word)
        is_value = word in _WITH_VALUE


def _is_here(need: Need, root: Path) -> bool:
    if need.kind == NETWORK:
        return False
    if need.kind == PIP:
        venv = venv_of(root)
        if venv is None:
            return any(importlib.metadata.distributions(name=need.name))
        places = [str(path) for path in venv.glob("lib/*/site-packages")]
        return any(importlib.metadata.distributions(name=need.name, path=places))
    listed = any(_DPKG.glob(f"{need.name}.list")) or any(_DPKG.glob(f"{need.name}:*.list"))
    return listed or shutil.which(need.name) is not None
