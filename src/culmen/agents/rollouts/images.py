"""Images of Harbor tasks: those that a task names or builds, and those on this machine.

Nothing is pulled. A task's Dockerfile is built when a run starts, from base images that are here.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from culmen.core.errors import UserError
from culmen.core.json import JsonObject
from culmen.evaluate.jail import container

_BUILT = "localhost/culmen-harbor"
_TAIL = 1_500  # characters of a failed build
# first folders of paths that a working directory in a container cannot have
_TAKEN = ("", "dev", "logs", "proc", "skills", "solution", "sys", "tests")


class Image(msgspec.Struct, frozen=True):
    """An image on this machine."""

    program: str
    id: str
    workdir: str
    path: str


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


@lru_cache(256)
def find_image(name: str) -> Image:
    """The image of this name; raise JailFailed if neither podman nor docker has it."""
    program = container.find_container_program(name)
    about: JsonObject = json.loads(container.run_command(program, "image", "inspect", name).stdout)[
        0
    ]
    config: JsonObject = about.get("Config") or {}
    variables = dict(each.partition("=")[::2] for each in config.get("Env") or ())
    return Image(
        program, str(about["Id"]), str(config.get("WorkingDir") or ""), variables.get("PATH", "")
    )


def image_of_task(environment: Path, table: JsonObject, workdir: str) -> TaskImage | None:
    """The image of a task's folder environment/ and table; None if it names and builds none."""
    named, recipe = str(table.get("docker_image") or ""), environment / "Dockerfile"
    if named:
        return _with_bases(TaskImage(named, workdir), (named,), ())
    if not recipe.is_file():
        return None
    text = re.sub(r"\\[ \t]*\n", " ", recipe.read_text(encoding="utf-8"))
    folders = re.findall(r"^\s*WORKDIR\s+(\S+)", text, re.MULTILINE | re.IGNORECASE)
    name = f"{_BUILT}:{_context_digest(environment)}"
    image = TaskImage(name, workdir, str(environment.resolve()))
    return _with_bases(image, tuple(_base_images(text)), folders)


def _base_images(text: str) -> Iterator[str]:
    """The images in FROM lines that are not stages of the same Dockerfile."""
    stages = {"scratch"}
    for rest in re.findall(r"^\s*FROM\s+(.+)$", text, re.MULTILINE | re.IGNORECASE):
        words = [word for word in rest.split() if not word.startswith("--")]
        if words and words[0].lower() not in stages:
            yield words[0]
        if len(words) > 2 and words[1].upper() == "AS":
            stages.add(words[2].lower())


def _with_bases(image: TaskImage, names: Iterable[str], folders: Iterable[str]) -> TaskImage:
    """The image with its bases, working directory, and what is missing."""
    bases, gaps, workdir = dict[str, str](), list[str](), ""
    for name in names:
        try:
            found = find_image(name)
        except container.JailFailed as error:
            gaps.append(f"its container: {error}")
            continue
        bases[name], workdir = found.id, found.workdir or workdir
    for folder in folders:
        workdir = posixpath.join(workdir or "/", folder)
    workdir = posixpath.normpath(image.workdir or workdir or "/app")
    if workdir.strip("/").partition("/")[0] in _TAKEN:
        gaps.append(f"the working directory {workdir}")
    return msgspec.structs.replace(image, workdir=workdir, bases=bases, gaps=tuple(gaps))


def _context_digest(environment: Path) -> str:
    sha = hashlib.sha256()
    for file in sorted(path for path in environment.rglob("*") if path.is_file()):
        for piece in (file.relative_to(environment).as_posix().encode(), file.read_bytes()):
            sha.update(len(piece).to_bytes(8, "big") + piece)
    return sha.hexdigest()[:16]


def prepare_image(image: TaskImage) -> Image:
    """The image, built if it is not there; raise `UserError` if that fails."""
    try:
        return find_image(image.name)
    except container.JailFailed:
        pass
    program = find_image(next(iter(image.bases))).program
    # the build's own network, as for people: it runs what the task's author wrote, no agent
    words = ("build", "--quiet", "--network", "host", "--tag", image.name, image.context)
    limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024")
    own = container.proxy_options(program)
    own += ["--pull=never"] if Path(program).name == "podman" else []
    ran = container.run_command(program, words[0], *limits, *own, *words[1:])
    if ran.returncode:
        raise UserError(
            f"the image of a task cannot be built: {ran.stderr.strip()[-_TAIL:]}",
            where=f"{image.context}/Dockerfile",
            fix=f"{Path(program).name} build {image.context}",
        )
    return find_image(image.name)
