"""One agent's work tree: made from the trunk, and read again at the end.

It has a git of its own that is thrown away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from culmen.extensions.agents.sandbox import repository, safe
from culmen.extensions.agents.sandbox.layout import QUEUE, VIEW, agent_tag
from culmen.extensions.agents.sandbox.repository import run_git
from culmen.extensions.agents.sandbox.safe import IntakeRefused
from culmen.extensions.agents.sandbox.settings import (
    COMMIT_BYTES,
    COMMIT_FILE_BYTES,
    COMMIT_FILES,
    SCAN,
)

COPIES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")  # names under which agents look for TASK.md
RUN = """#!/usr/bin/env python3
import os
import runpy

here = os.path.dirname(os.path.abspath(__file__))
runpy.run_path(os.path.join(here, ".culmen", "evaluate"), run_name="__main__")
"""
_PRIVATE = (".git", VIEW, QUEUE, ".agent")  # top-level names, neither committed nor reported
_CLUTTER = ("__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".DS_Store")
_EXCLUDED = "".join(f"/{name}\n" for name in (VIEW, QUEUE, ".agent")) + "__pycache__/\n"
# links into the view, unless a text of that name is given
VIEWED = (
    "past_experiments.jsonl",
    "leaderboard.md",
)


@dataclass
class TreeChanges:
    """Changes in an agent's work tree.

    `changes` may be committed (None: removed); `dropped` are paths that may not, with reasons.
    """

    changes: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    dropped: list[str] = field(default_factory=list[str])


def tree_files(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Files that culmen puts into every tree.

    The given texts, TASK.md under the names that agents look for, and the client.
    """
    files = {path: text.encode("utf-8", "replace") for path, text in texts.items()}
    if "TASK.md" in files:
        files.update((name, files["TASK.md"]) for name in COPIES if name not in files)
    return files | {"run_experiments.py": RUN.encode()}


def create_work_tree(
    tree: Path, agent: int, files: Mapping[str, bytes], owner: int | None, view: Path | None
) -> None:
    """Write a fresh work tree that belongs to user `owner` (None: the current user).

    `view` is the target of .culmen; None leaves an empty folder for a mount.
    """
    shutil.rmtree(tree, ignore_errors=True)
    for folder in (f"candidates/{agent_tag(agent)}", "notes", QUEUE):
        (tree / folder).mkdir(parents=True)
    for path, data in files.items():
        target = tree.joinpath(*safe.split_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (tree / ".agent").write_text(agent_tag(agent) + "\n")
    for name in VIEWED:
        if name not in files:
            (tree / name).symlink_to(f"{VIEW}/{name}")
    (tree / "run_experiments.py").chmod(0o755)
    _scratch_git(tree)
    if view is None:
        (tree / VIEW).mkdir()
    else:
        (tree / VIEW).symlink_to(view.resolve())
    set_tree_owner(tree, owner)


def set_tree_owner(folder: Path, owner: int | None) -> None:
    """Make a user the owner of a folder and its contents; links are not followed."""
    if owner is None:
        return
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(here, name), owner, owner, follow_symlinks=False)
    os.chown(folder, owner, owner)


def _scratch_git(tree: Path) -> None:
    """Create a repository for the agent's own use; culmen reads only the files of the tree."""
    run_git(tree, "init", "--quiet", "--template=", "--initial-branch=work", bare=False)
    (tree / ".git" / "info").mkdir(exist_ok=True)
    (tree / ".git" / "info" / "exclude").write_text(_EXCLUDED)
    with (tree / ".git" / "config").open("a") as file:
        file.write("[user]\n\tname = agent\n\temail = agent@culmen.invalid\n")
    run_git(tree, "add", "--all", bare=False)
    run_git(tree, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", "Start", bare=False)


def tree_changes(
    tree: Path, agent: int, base: Mapping[str, str], texts: Mapping[str, str]
) -> TreeChanges:
    """Changes in a tree since its `base` and the `texts` put into it.

    Both map a path to git's name of the content. Only permitted paths are read; sizes and numbers
    are bounded. Other changed paths are dropped.
    """
    result = TreeChanges()
    if not tree.is_dir():  # its session was never opened
        return result
    _collect_own_changes(tree, agent_tag(agent), base, result)
    _collect_foreign_changes(tree, agent_tag(agent), {**base, **texts}, result)
    if len(result.dropped) > 100:  # the paths that a note names
        result.dropped[100:] = [f"... and {len(result.dropped) - 100} more"]
    return result


def _collect_own_changes(
    tree: Path, name: str, base: Mapping[str, str], result: TreeChanges
) -> None:
    """Collect the changes that the agent may make: files to read and files to remove."""
    bytes_left, kept = COMMIT_BYTES, set[str]()
    for path, regular in _permitted_paths(tree, name):
        kept.add(path)
        try:
            if path == "...":
                raise IntakeRefused("too_many_files")
            if not regular:
                raise IntakeRefused("not_a_file")
            if len(result.changes) >= COMMIT_FILES:
                raise IntakeRefused("too_many_files")
            data = safe.read_regular_file(tree, path, min(COMMIT_FILE_BYTES, bytes_left))
            if path == repository.SHARED and not data.strip() and path in base:
                raise IntakeRefused("emptied")
        except IntakeRefused as refused:
            if str(refused) != "missing":
                result.dropped.append(f"{path} ({refused})")
            continue
        bytes_left -= len(data)
        if repository.blob_name(data) != base.get(path):
            result.changes[path] = data
    if "..." not in kept:
        gone = (
            path for path in base if repository.can_change_path(path, name) and path not in kept
        )
        result.changes.update((path, None) for path in sorted(gone))


def _permitted_paths(tree: Path, name: str) -> Iterable[tuple[str, bool]]:
    """Paths that may be committed, and True for each regular file; reflections come first."""
    yield repository.SHARED, True
    try:
        with safe.open_folder(tree, ("notes",)) as fd:
            if f"{name}.md" in os.listdir(fd):
                yield f"notes/{name}.md", True
        with safe.open_folder(tree, ("candidates", name)):
            pass
    except (IntakeRefused, OSError):
        return
    yield from safe.walk_folder(tree, ("candidates", name), 2 * COMMIT_FILES, _is_clutter)


def _collect_foreign_changes(
    tree: Path, name: str, expected: Mapping[str, str], result: TreeChanges
) -> None:
    """Collect paths that the agent may not change, unless they are unchanged."""

    def skip(way: tuple[str, ...]) -> bool:
        return way[0] in _PRIVATE or _is_clutter(way)

    seen: set[str] = set()
    try:
        for path, regular in safe.walk_folder(tree, (), SCAN, skip):
            seen.add(path)
            if repository.can_change_path(path, name) or (
                regular and path in expected and _is_unchanged(tree, path, expected[path])
            ):
                continue
            if path in VIEWED and (tree / path).is_symlink():
                continue
            result.dropped.append(path)
    except (IntakeRefused, OSError):
        return
    if "..." not in seen:
        gone = (
            path
            for path in expected
            if path not in seen and not repository.can_change_path(path, name)
        )
        result.dropped += [f"{path} (removed)" for path in sorted(gone)]


def _is_unchanged(tree: Path, path: str, content: str) -> bool:
    try:
        return (
            repository.blob_name(safe.read_regular_file(tree, path, COMMIT_FILE_BYTES)) == content
        )
    except IntakeRefused:
        return False


def _is_clutter(way: tuple[str, ...]) -> bool:
    return way[-1] in _CLUTTER or way[-1].endswith(".pyc")
