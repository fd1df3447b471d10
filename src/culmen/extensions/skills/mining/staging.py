"""A better skill as a git branch and a patch, for a person to adopt.

The branch is written by plumbing: neither the work tree nor the index nor the current branch of the
repository changes, and none of its hooks runs.
"""

from __future__ import annotations

import codecs
import difflib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from culmen.core.errors import Unavailable, UserError
from culmen.extensions.agents.sandbox.repository import CommitStamp, SharedRepository, run_git


class Staged(msgspec.Struct, frozen=True):
    """A staged proposal: the branch ("" without a git repository) and the patch file."""

    branch: str
    patch: str


class SkillCheckout(msgspec.Struct, frozen=True):
    """A skill in a git repository: `folder` of git, commit `head`, and the skill's path prefix.

    `prefix` ends in "/" for a skill's folder and is the path of the parent otherwise.
    """

    folder: Path
    head: str
    prefix: str


def find_checkout(skill: Path, parts: Mapping[str, str]) -> SkillCheckout | None:
    """The repository that holds a skill; None if none does.

    Raises UserError if a file of the skill has changes that are not committed: a branch would
    contain them as if they were part of the proposal.
    """
    root = (skill if skill.is_dir() else skill.parent).resolve()
    try:
        top = run_git(root, "rev-parse", "--show-toplevel", bare=False).decode().strip()
        folder = run_git(root, "rev-parse", "--absolute-git-dir", bare=False).decode().strip()
        head = run_git(root, "rev-parse", "--verify", "HEAD^{commit}", bare=False).decode().strip()
    except Unavailable:  # no repository, or one without a commit
        return None
    place = shlex.quote(str(root))
    inside = root.relative_to(Path(top).resolve()).as_posix()
    checkout = SkillCheckout(Path(folder), head, "" if inside == "." else f"{inside}/")
    committed = committed_parts(checkout, parts)
    changed = [name for name, text in parts.items() if committed.get(name) != text]
    if not committed and _is_ignored(root):
        return None
    if changed:
        raise UserError(
            f"the skill has changes that are not committed: {', '.join(changed[:5])}",
            where=str(skill),
            fix=f"git -C {place} add --all . && git -C {place} commit -m 'The skill'",
        )
    return checkout


def _is_ignored(folder: Path) -> bool:
    """True if git ignores the folder, so that no commit will ever have its files."""
    try:
        run_git(folder, "check-ignore", "--quiet", str(folder), bare=False)
    except Unavailable:
        return False
    return True


def committed_parts(checkout: SkillCheckout, parts: Mapping[str, str]) -> dict[str, str]:
    """The texts of these parts in the commit; those that it does not have are left out."""
    return {
        part: data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        for part, data in _committed_files(checkout, parts).items()
    }


def _committed_files(checkout: SkillCheckout, parts: Iterable[str]) -> dict[str, bytes]:
    repository = SharedRepository(checkout.folder)
    names = repository.content_names(checkout.head)
    known = {part: names[p] for part in parts if (p := f"{checkout.prefix}{part}") in names}
    contents = repository.read_contents(known.values())
    return {part: contents[name] for part, name in known.items()}


def _in_form_of(committed: bytes, text: str) -> bytes:
    """The text with the line ends and the byte order mark of the committed file."""
    data = (text.replace("\n", "\r\n") if b"\r\n" in committed else text).encode()
    return codecs.BOM_UTF8 + data if committed.startswith(codecs.BOM_UTF8) else data


def stage_skill(
    checkout: SkillCheckout | None,
    before: Mapping[str, str],
    after: Mapping[str, str],
    message: str,
    name: str,
    time: int,
    folder: Path,
) -> Staged:
    """Write branch culmen/NAME with one commit, and FOLDER/NAME.patch."""
    folder.mkdir(parents=True, exist_ok=True)
    patch = folder / f"{name}.patch"
    if checkout is None:
        text = message + "\n" + "".join(_diff_lines(before, after))
        patch.write_text(text, encoding="utf-8")
        return Staged("", str(patch))
    repository = SharedRepository(checkout.folder)
    files = _committed_files(checkout, before)
    changes: dict[str, bytes | None] = {
        f"{checkout.prefix}{part}": (
            None if text is None else _in_form_of(files.get(part, b""), text)
        )
        for part in sorted({*before, *after})
        if (text := after.get(part)) != before.get(part)
    }
    scripts = {f"{checkout.prefix}{p}" for p, text in after.items() if text.startswith("#!")}
    stamp = CommitStamp("culmen", time)
    ref = f"refs/culmen/night-{os.getpid()}"
    commit = repository.write_commit(stamp, message, changes, (checkout.head,), scripts, ref)
    branch = f"culmen/{name}"
    orders = f"create refs/heads/{branch} {commit}\ndelete {ref}\n"
    run_git(checkout.folder, "update-ref", "--stdin", data=orders.encode())
    patch.write_bytes(run_git(checkout.folder, "format-patch", "--stdout", "-1", commit))
    return Staged(branch, str(patch))


def _diff_lines(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for part in sorted({*before, *after}):
        old, new = (texts.get(part, "").splitlines(keepends=True) for texts in (before, after))
        for line in difflib.unified_diff(old, new, f"a/{part}", f"b/{part}"):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
