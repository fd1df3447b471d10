"""Folders of Harbor tasks as cases: task.toml, instruction.md, environment/, tests/test.sh.

`compat.harbor_task` reads task.toml. A task whose environment is declared plain uses the
programs of this machine; of its Dockerfile WORKDIR, COPY, ADD and ENV are followed. All other tasks
run in containers of their images (`images`). What a task asks for and cannot have here is named in
its `gaps`; such a task is left out.
"""

from __future__ import annotations

import hashlib
import posixpath
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from culmen.core.errors import TaskError
from culmen.core.foreign import boundary
from culmen.core.inside import files_inside, text_inside
from culmen.core.json import JsonObject
from culmen.extensions.compat import harbor_task
from culmen.extensions.compat.harbor_task import HarborSettings
from culmen.extensions.skills.rollouts.images import TaskImage, image_of_task, read_instructions

SPLITS = ("train", "val", "test")
PLAIN = "plain"
WORKDIR = "/app"  # if the environment names none
NO_NETWORK = "plain tasks have no network (their tests do if task.toml names one: network_mode)"
_PLAIN = "declare the environment plain if it needs none"
_SHARES = (0.6, 0.8)  # tasks without a split: train up to 60 %, val up to 80 %, test the rest
# first folders of paths that a working directory cannot have
_TAKEN = (
    "bin boot dev etc lib lib32 lib64 libx32 logs proc run sbin skills solution sys tests tmp usr"
)
_IGNORED = ("FROM", "LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "SHELL", "USER", "ARG", "MAINTAINER")


class HarborTask(msgspec.Struct, frozen=True):
    """One task, as far as rollouts use it.

    copies    (file or folder below environment/, its path inside `workdir`)
    cpus, memory_mb   None: no limit
    network   of the agent; `verifier_network`: of the tests
    image     its container's image; None for a plain task
    gaps      what the task asks for and cannot have here; not empty: it cannot run
    ignored   keys and instructions without effect
    stricter  limits that the task has here and not in Harbor
    """

    name: str
    folder: str
    instruction: str
    split: str = ""
    workdir: str = WORKDIR
    copies: tuple[tuple[str, str], ...] = ()
    variables: dict[str, str] = {}
    verifier_variables: dict[str, str] = {}
    agent_seconds: float = harbor_task.LONGEST_SECONDS
    verifier_seconds: float = harbor_task.VERIFIER_SECONDS
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int = harbor_task.STORAGE_MB
    network: bool = False
    verifier_network: bool = False
    names_reward_json: bool = False
    image: TaskImage | None = None
    gaps: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    stricter: tuple[str, ...] = ()


def is_task_folder(folder: Path) -> bool:
    """True if the folder has Harbor's files, or those of terminal-bench."""
    return any((folder / name).is_file() for name in ("instruction.md", "task.yaml"))


def read_tasks(root: Path, environment: str = "") -> tuple[HarborTask, ...]:
    """The tasks of a folder, by name, also those with gaps; each has a split.

    Tasks lie in the folder itself, or in its folders train, val and test. `environment` plain
    declares all of them plain. Raises `TaskError` if there are none.
    """
    found = [read_task(folder, environment, split) for folder, split in _task_folders(root)]
    names = [task.name for task in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise TaskError(f"two tasks are called '{twice}'", where=str(root), fix="rename one")
    if not found:
        raise TaskError(
            "no Harbor task here: a task is a folder with task.toml, instruction.md and "
            "tests/test.sh",
            where=str(root),
            fix="name the folder that holds the folders of tasks",
        )
    return _with_splits(sorted(found, key=lambda task: task.name))


def _task_folders(root: Path) -> Iterator[tuple[Path, str]]:
    if not root.is_dir():
        raise TaskError("there is no folder of tasks", where=str(root), fix="check the path")
    if is_task_folder(root):
        yield root, ""
        return
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if is_task_folder(folder):
            yield folder, ""
        elif folder.name in SPLITS:
            inner = sorted(path for path in folder.iterdir() if path.is_dir())
            yield from ((path, folder.name) for path in inner if is_task_folder(path))


def _with_splits(tasks: list[HarborTask]) -> tuple[HarborTask, ...]:
    """The tasks with a split each; those that name none are dealt by a hash of their names."""
    free = [task for task in tasks if not task.split]
    dealt: dict[str, str] = {}
    by_hash = sorted(free, key=lambda task: hashlib.sha256(task.name.encode()).digest())
    for place, task in enumerate(by_hash):
        share = (place + 0.5) / len(free)
        dealt[task.name] = (
            # fewer tasks without a split are all training cases
            "train" if len(free) < 5 else SPLITS[sum(share > edge for edge in _SHARES)]
        )
    return tuple(
        task if task.split else msgspec.structs.replace(task, split=dealt[task.name])
        for task in tasks
    )


@boundary()
def read_task(folder: Path, environment: str = "", split: str = "") -> HarborTask:
    """One task; raise `TaskError` if a file of it cannot be read."""
    if not (folder / "instruction.md").is_file():
        gap = "the layout of terminal-bench before Harbor (task.yaml); harbor converts it"
        return HarborTask(folder.name, str(folder), "", split, gaps=(gap,))
    file = folder / "task.toml"
    try:
        table: JsonObject = tomllib.loads(text_inside(folder, file.name))
        instruction = text_inside(folder, "instruction.md").strip()
        return _task_of_table(folder, table, instruction, environment, split)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise TaskError(
            f"not a task of Harbor: {error}", where=str(file), fix="correct it"
        ) from None


def _task_of_table(
    folder: Path, table: JsonObject, instruction: str, environment: str, split: str
) -> HarborTask:
    world: JsonObject = table.get("environment", {})
    own: JsonObject = table.get("metadata", {}).get("culmen", {})
    plain = PLAIN in (environment, own.get("environment", ""))
    settings = harbor_task.read_settings(folder, table)
    place, inside = settings.workdir, folder / "environment"
    files_inside(folder / "tests")
    if plain:  # an engine puts links into an image as links; here what they lead to is copied
        files_inside(inside)
    recipe = _read_dockerfile(inside, place) if plain else None
    image = None if plain else image_of_task(inside, world, place)
    is_listed = harbor_task.LISTED in (settings.agent_network, settings.verifier_network)
    gaps = [
        *settings.gaps,
        *([] if plain or image else [f"its container, for which there is no Dockerfile: {_PLAIN}"]),
        *([f"{gap}; {_PLAIN}" for gap in image.gaps] if image else []),
        *([] if recipe is None else recipe.gaps),
        *(["a network of listed hosts only"] if not plain and is_listed else []),
    ]
    return HarborTask(
        name=settings.name,
        folder=str(folder.resolve()),
        instruction=instruction,
        split=_checked_split(split or str(own.get("split", ""))),
        workdir=recipe.workdir if recipe else image.workdir if image else WORKDIR,
        copies=tuple(recipe.copies) if recipe else (),
        variables={**(recipe.variables if recipe else {}), **settings.variables},
        verifier_variables=settings.verifier_variables,
        agent_seconds=settings.agent_limit,
        verifier_seconds=settings.verifier_seconds,
        cpus=settings.cpus,
        memory_mb=settings.memory_mb,
        storage_mb=settings.storage_mb or harbor_task.STORAGE_MB,
        network=not plain and settings.agent_network == harbor_task.PUBLIC,
        verifier_network=settings.verifier_network == harbor_task.PUBLIC
        and (settings.says_network or not plain),
        names_reward_json=harbor_task.names_reward_json(folder / "tests"),
        image=image,
        gaps=tuple(gaps),
        ignored=(
            *settings.ignored,
            *(recipe.ignored if recipe else ()),
            *(["environment.cpus"] if plain and settings.cpus is not None else []),
        ),
        stricter=tuple(_own_limits(settings, plain)),
    )


def _own_limits(settings: HarborSettings, plain: bool) -> Iterator[str]:
    """Limits of culmen that Harbor does not have."""
    if plain and harbor_task.CLOSED not in (settings.agent_network, settings.verifier_network):
        yield NO_NETWORK
    if settings.agent_seconds is None:
        yield f"an agent without timeout_sec is ended after {harbor_task.LONGEST_SECONDS:g} s"
    if settings.storage_mb is None:
        yield f"without storage_mb {harbor_task.STORAGE_MB} MB of files are kept"


def _checked_split(split: str) -> str:
    if split and split not in SPLITS:
        raise ValueError(f"split = {split!r} is none of {', '.join(SPLITS)}")
    return split


class _Recipe(msgspec.Struct):
    """Files that a Dockerfile puts into the working directory."""

    workdir: str
    copies: list[tuple[str, str]] = []
    variables: dict[str, str] = {}
    gaps: list[str] = []
    ignored: list[str] = []


def _read_dockerfile(folder: Path, workdir: str) -> _Recipe:
    """The recipe of environment/; without a Dockerfile its files are the working directory's."""
    file = folder / "Dockerfile"
    if not file.is_file():
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return _Recipe(workdir or WORKDIR, [(name, name) for name in names])
    recipe, pending = _Recipe(""), list[tuple[list[str], str]]()
    for word, rest in read_instructions(text_inside(folder, file.name)):
        match word:
            case "WORKDIR":
                recipe.workdir = posixpath.join(recipe.workdir or "/", rest)
            case "ENV":
                recipe.variables |= _environment_pairs(rest)
            case "COPY" | "ADD":
                words = [each for each in shlex.split(rest) if not each.startswith("--")]
                pending.append((words, recipe.workdir or "/"))
                if "--from" in rest or any("://" in each for each in words):
                    recipe.gaps.append(f"{word} from elsewhere than environment/")
            case known if known in _IGNORED:
                pass
            case other:
                recipe.ignored.append(f"{other} in the Dockerfile")
    recipe.workdir = posixpath.normpath(workdir or recipe.workdir or WORKDIR)
    first = recipe.workdir.strip("/").partition("/")[0]
    if not first or first in _TAKEN.split():
        recipe.gaps.append(f"the working directory {recipe.workdir}")
    for words, base in pending:
        _add_copies(recipe, folder, words, base)
    return recipe


def _environment_pairs(rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:  # the old form: ENV NAME VALUE
        return {words[0]: " ".join(words[1:])}
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs}


def _add_copies(recipe: _Recipe, folder: Path, words: list[str], base: str) -> None:
    """Add the files of one COPY; its target must lie in the working directory."""
    if len(words) < 2:
        recipe.gaps.append("a COPY that cannot be read")
        return
    *sources, target = words
    whole = posixpath.normpath(posixpath.join(base, target))
    inside = posixpath.relpath(whole, recipe.workdir)
    if inside.startswith(".."):
        recipe.gaps.append(f"COPY to {whole}, outside of {recipe.workdir}")
        return
    for source in sources:
        found = sorted(folder.glob(source.lstrip("/"))) if source not in (".", "./") else [folder]
        if not found or any(not path.resolve().is_relative_to(folder.resolve()) for path in found):
            recipe.gaps.append(f"COPY {source}, which is not in environment/")
        for path in found:
            into = target.endswith("/") or target in (".", "..") or len([*sources, *found]) > 2
            name = path.relative_to(folder).as_posix()
            place = inside if path.is_dir() or not into else posixpath.join(inside, path.name)
            recipe.copies.append((name, posixpath.normpath(place)))


def has_file(task: HarborTask, path: str) -> bool:
    """True if a plain task's working directory has this file, by its path from there."""
    inside = posixpath.relpath(posixpath.join(task.workdir, path), task.workdir)
    for source, place in task.copies:
        below = posixpath.relpath(inside, place)
        if not below.startswith("..") and (
            Path(task.folder, "environment", source, "" if below == "." else below).is_file()
        ):
            return True
    return False


def task_files(task: HarborTask) -> Iterator[Path]:
    """The files of a task that shape its reward."""
    folder = Path(task.folder)
    yield from (folder / "task.toml", folder / "instruction.md")
    for name in ("environment", "tests"):
        yield from sorted(path for path in (folder / name).rglob("*") if path.is_file())
