"""Images of Harbor tasks: those that a task names or builds, and those on this machine.

Nothing is pulled. A task's Dockerfile is built when a run starts, from base images that are here.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from culmen.core.inside import text_inside
from culmen.core.json import JsonObject
from culmen.extensions.agents.sandbox.confinement import HOME
from culmen.extensions.containers.engine import Image, build_image, find_image
from culmen.jail.fork_server import JailFailed

_BUILT = "localhost/culmen-harbor"
# first folders of paths that a working directory in a container cannot have
_TAKEN = ("", "dev", "logs", "proc", "skills", "solution", "sys", "tests")

# images that instructions other than FROM read
_SOURCES = re.compile(r"--(?:from=|mount=\S*\bfrom=)([^\s,]+)")


class TaskImage(msgspec.Struct, frozen=True):
    """The image of a task.

    context   the folder with the Dockerfile that makes it, "" for an image that exists
    bases     ids by name of the images that it is or is made from
    """

    name: str
    workdir: str
    context: str = ""
    bases: dict[str, str] = {}
    gaps: tuple[str, ...] = ()


def image_of_task(environment: Path, table: JsonObject, workdir: str) -> TaskImage | None:
    """The image of a task's folder environment/ and table; None if it names and builds none."""
    named, recipe = str(table.get("docker_image") or ""), environment / "Dockerfile"
    if named:
        return _with_bases(TaskImage(named, workdir), f"FROM {named}")
    if not recipe.is_file():
        return None
    recipe_text = text_inside(environment, recipe.name)
    image = _with_bases(TaskImage("", workdir, str(environment.resolve())), recipe_text)
    digest = _context_digest(environment, image.bases)
    return msgspec.structs.replace(image, name=f"{_BUILT}:{digest}")


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """Name and rest of each instruction of a Dockerfile, without bodies of here-documents."""
    ends = list[str]()
    for line in re.sub(r"\\[ \t]*\n", " ", text).split("\n"):
        if ends:
            ends = ends[1:] if line.strip("\t") == ends[0] else ends
            continue
        name, _, rest = line.strip().partition(" ")
        if not name or name.startswith("#"):
            continue
        if name.upper() in ("RUN", "COPY", "ADD"):
            ends = re.findall(r"<<-?[\"']?(\w+)", rest)
        yield name.upper(), rest.strip()


def _with_bases(image: TaskImage, text: str) -> TaskImage:
    """The image with the bases and working directory of a Dockerfile, and its gaps."""
    bases, gaps, workdir = dict[str, str](), dict[str, None](), ""
    stages, last = {"scratch": ""}, ""

    def find_base(name: str) -> str:
        try:
            found = find_image(name)
        except JailFailed as error:
            gaps[f"its container: {error}"] = None
            return ""
        bases[name] = found.id
        return found.workdir

    for name, rest in read_instructions(text):
        if name == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")] or ["scratch"]
            base = words[0]
            workdir = stages[base.lower()] if base.lower() in stages else find_base(base)
            last = words[2].lower() if len(words) > 2 else ""
        elif name == "WORKDIR":
            workdir = posixpath.join(workdir or "/", rest)
        for source in _SOURCES.findall(rest) if name in ("RUN", "COPY", "ADD") else ():
            if source.lower() not in stages and not source.isdigit():
                find_base(source)
        if last:
            stages[last] = workdir
    return _with_workdir(image, workdir, bases, tuple(gaps))


def _with_workdir(
    image: TaskImage, workdir: str, bases: dict[str, str], gaps: tuple[str, ...]
) -> TaskImage:
    workdir = posixpath.normpath(image.workdir or workdir or "/app")
    if workdir.strip("/").partition("/")[0] in _TAKEN or f"{HOME}/".startswith(f"{workdir}/"):
        gaps = (*gaps, f"the working directory {workdir}")
    if not bases and not gaps:
        gaps = ("its container: no image that is here is its base",)
    return msgspec.structs.replace(image, workdir=workdir, bases=bases, gaps=gaps)


def _context_digest(environment: Path, bases: Mapping[str, str]) -> str:
    """Digest of all that a build depends on: bases, and files with their modes and links."""
    sha = hashlib.sha256(repr(sorted(bases.items())).encode())
    for file in sorted(environment.rglob("*")):
        data = b""
        if file.is_symlink():
            data = os.fsencode(os.readlink(file))
        elif file.is_file():
            data = file.read_bytes()
        about = f"{file.relative_to(environment).as_posix()} {file.lstat().st_mode}"
        for piece in (os.fsencode(about), data):
            sha.update(len(piece).to_bytes(8, "big") + piece)
    return sha.hexdigest()[:16]


def prepare_image(image: TaskImage) -> Image:
    """The image, built if it is not there; raise `UserError` if that fails."""
    try:
        return find_image(image.name)
    except JailFailed:
        pass
    return build_image(find_image(next(iter(image.bases))).program, image.name, image.context)
