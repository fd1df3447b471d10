"""The shared repository: a bare git directory that only culmen touches.

It has no work tree. Files are written by `git fast-import` as bytes and read by `git cat-file`, so
no hook, filter, attribute, setting or .git of an agent ever acts. RUN/control/repo.git has the
branch `trunk`, and refs/agents/aNN for each agent.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from culmen.core.errors import Unavailable, UserError

TRUNK, _NEW = "refs/heads/trunk", "refs/culmen/new"
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "gc.auto=0",
    "protocol.allow=never",
    "safe.directory=*",
)
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
}


@dataclass(frozen=True)
class CommitStamp:
    """Author and time of a commit, in Unix seconds; the committer is always culmen."""

    name: str
    time: int


def run_git(folder: Path, *words: str, data: bytes | None = None, bare: bool = True) -> bytes:
    """Run one git command on a git directory or, if not `bare`, in a work tree.

    Returns stdout. Raises UserError if git is missing, Unavailable if it fails (disk full, damaged
    repository).
    """
    program = shutil.which("git")
    if program is None:
        raise UserError(
            "git is not installed", fix="install it (Debian and Ubuntu: apt install git)"
        )
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    where = ["--git-dir", str(folder)] if bare else ["-C", str(folder)]
    done = subprocess.run(
        [program, *where, *settings, *words],
        input=data if data is not None else b"",
        capture_output=True,
        env=ENVIRONMENT,
        timeout=120.0,
        check=False,
    )
    if done.returncode:
        what = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise Unavailable(
            f"git {words[0]} failed: {what}",
            where=str(folder),
            fix="repair the repository, then: culmen resume RUN",
        )
    return done.stdout


class SharedRepository:
    """The shared repository in `folder`. Its methods block: call them on a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ensure_trunk(self, files: Mapping[str, bytes], stamp: CommitStamp, message: str) -> str:
        """Commit of the trunk; a missing repository is created with `files` as first commit."""
        if not (self.folder / "HEAD").exists():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            run_git(
                self.folder,
                "init",
                "--quiet",
                "--bare",
                "--template=",
                "--initial-branch=trunk",
                str(self.folder),
            )
        trunk = self.head()
        if trunk:
            return trunk
        first = self.write_commit(stamp, message, files)
        self.move_refs({TRUNK: first})
        return first

    def head(self, ref: str = TRUNK) -> str:
        """Commit of a ref; "" if there is none."""
        return run_git(self.folder, "for-each-ref", "--format=%(objectname)", ref).decode().strip()

    def has_commit(self, commit: str) -> bool:
        """True if the repository has this commit."""
        if not re.fullmatch("[0-9a-f]{40,64}", commit):
            return False
        output = run_git(
            self.folder, "cat-file", "--batch-check", data=commit.encode() + b"\n"
        ).decode()
        return output.split()[1:2] == ["commit"]

    def content_names(self, commit: str) -> dict[str, str]:
        """Content names of a commit's files, by path."""
        names: dict[str, str] = {}
        for entry in run_git(self.folder, "ls-tree", "-r", "-z", "--full-tree", commit).split(
            b"\0"
        ):
            description, _, path = entry.partition(b"\t")
            if path:
                names[path.decode("utf-8", "surrogateescape")] = description.split()[2].decode()
        return names

    def read_contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """Bytes of contents, by name."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        data, contents, at = (
            run_git(self.folder, "cat-file", "--batch", data="\n".join(wanted).encode() + b"\n"),
            {},
            0,
        )
        for name in wanted:
            end = data.index(b"\n", at)
            words = data[at:end].split()
            if len(words) != 3:
                raise Unavailable(
                    f"the repository lacks {name}", where=str(self.folder), fix="restore the folder"
                )
            size = int(words[2])
            contents[name] = data[end + 1 : end + 1 + size]
            at = end + 1 + size + 1
        return contents

    def write_commit(
        self,
        stamp: CommitStamp,
        message: str,
        changes: Mapping[str, bytes | None],
        parents: tuple[str, ...] = (),
    ) -> str:
        """Write a commit that changes its first parent by these files (None: removed).

        No branch is moved; `_NEW` stays at the commit. The same arguments make the same commit.
        """
        stream = [f"commit {_NEW}\n", f"author {_git_identity(stamp.name)} {stamp.time} +0000\n"]
        stream += [
            f"committer {_git_identity('culmen')} {stamp.time} +0000\n",
            _data_block(message.encode()),
        ]
        stream += [
            f"{word} {parent}\n"
            for word, parent in zip(("from", *("merge",) * len(parents)), parents)
        ]
        for path in sorted(changes):
            new = changes[path]
            stream += (
                [f"D {_quoted_path(path)}\n"]
                if new is None
                else [
                    f"M 100644 inline {_quoted_path(path)}\n",
                    _data_block(new),
                ]
            )
        stream += ["done\n"]
        encoded = b"".join(
            part if isinstance(part, bytes) else part.encode("utf-8") for part in stream
        )
        # else fast-import would continue from the ref's commit
        reset = f"reset {_NEW}\n\n".encode()
        run_git(
            self.folder,
            "fast-import",
            "--quiet",
            "--force",
            "--done",
            "--date-format=raw",
            data=reset + encoded,
        )
        return self.head(_NEW)

    def move_refs(self, refs: Mapping[str, str]) -> None:
        """Point refs to commits, all of them or none."""
        lines = "".join(f"update {ref} {commit}\n" for ref, commit in refs.items())
        run_git(self.folder, "update-ref", "--stdin", data=lines.encode())

    def is_in_history(self, commit: str) -> bool:
        """True if the commit is in the trunk's history."""
        return commit in run_git(self.folder, "rev-list", TRUNK).decode().split()


def commit_message(subject: str, trailers: Mapping[str, str]) -> str:
    """A commit message: one line, then trailers; every text is made harmless."""
    lines = [
        f"{_trailer_name(name)}: {_one_line(value)}"
        for name, value in trailers.items()
        if _trailer_name(name) and value
    ]
    title = _one_line(subject) or "no subject"
    title = title if len(title) <= 100 else f"{title[:99]}…"  # characters of a first line
    return "\n".join([title, *(["", *lines] if lines else [])]) + "\n"


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:500]


def _trailer_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", text)[:60].strip("-")


def _git_identity(name: str) -> str:
    clean = re.sub(r"[^\w .-]", " ", name)[:60].strip() or "agent"
    return (
        f"{clean} <{re.sub('[^a-z0-9]+', '-', clean.lower()).strip('-') or 'agent'}@culmen.invalid>"
    )


def _quoted_path(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _data_block(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"


# Merge of an agent's changes into a trunk that moved on, by paths and texts alone.

SHARED = "reflections.md"


@dataclass
class Merged:
    """Changes for the trunk after a merge.

    `changes` maps a path to its new bytes, None to remove it; `conflicts` are paths kept twice.
    """

    changes: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    conflicts: list[str] = field(default_factory=list[str])


def blob_name(data: bytes) -> str:
    """Git's name for a file of these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def can_change_path(path: str, agent: str) -> bool:
    """True if an agent may change this path.

    Permitted are its own candidates and notes, and the shared reflections.
    """
    return path.startswith(f"candidates/{agent}/") or path in (f"notes/{agent}.md", SHARED)


def merge_changes(
    base: Mapping[str, str],
    trunk: Mapping[str, str],
    changes: Mapping[str, bytes | None],
    agent: str,
    read: Callable[[str], bytes],
) -> Merged:
    """Merge `changes` made from `base` into `trunk`.

    `base` and `trunk` map a path to git's name of the content, which `read` fetches. A path that
    the trunk has not touched since takes the change. reflections.md is united line by line. Any
    other path that both have changed keeps the trunk's version, with the agent's version beside it
    under conflicts/aNN/.
    """
    merged = Merged()
    for path, new in changes.items():
        mine, theirs = trunk.get(path), None if new is None else blob_name(new)
        if mine == theirs:
            continue
        if mine == base.get(path):
            merged.changes[path] = new
        elif path == SHARED and new is not None and mine is not None:
            old = read(base[path]) if path in base else b""
            merged.changes[path] = merge_lines(old, read(mine), new)
        else:
            merged.conflicts.append(path)
            if new is not None:
                merged.changes[f"conflicts/{agent}/{path}"] = new
    return merged


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Three-way merge by lines that keeps both sides' additions, ours first."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            text = text.replace(b"\0", b"")  # else git takes it for no text
            # every line has an end, so that appended lines stay separate
            Path(folder, name).write_bytes(text + b"\n" * (text[-1:] not in (b"", b"\n")))
        words = ("merge-file", "-p", "--union", "ours", "base", "theirs")
        return run_git(Path(folder), *words, bare=False)
