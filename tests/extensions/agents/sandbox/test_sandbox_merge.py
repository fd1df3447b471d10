"""Merging by paths and lines, and the git directory that only culmen writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.errors import Unavailable
from culmen.extensions.agents.sandbox import worktree
from culmen.extensions.agents.sandbox.repository import (
    CommitStamp,
    SharedRepository,
    blob_name,
    can_change_path,
    commit_message,
    merge_changes,
    merge_lines,
    run_git,
)

TEXT = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n"]), max_size=8).map(
    lambda lines: "".join(lines).encode()
)
PATHS = st.sampled_from(
    ["candidates/a01/x", "candidates/a01/y", "notes/a01.md", "reflections.md", "TASK.md"]
)
FILES = st.dictionaries(PATHS, TEXT, max_size=5)
CHANGES = st.dictionaries(PATHS, st.none() | TEXT, max_size=5)


@given(TEXT, TEXT)
def test_union_with_one_side_unchanged_is_the_other(base: bytes, new: bytes) -> None:
    assert merge_lines(base, base, new) == new
    assert merge_lines(base, new, base) == new
    assert merge_lines(base, new, new) == new


@given(TEXT, TEXT, TEXT)
def test_union_keeps_what_either_added(base: bytes, ours: bytes, theirs: bytes) -> None:
    merged = merge_lines(base, ours, theirs).splitlines()
    for side in (ours, theirs):
        assert set(side.splitlines()) - set(base.splitlines()) <= set(merged)
    assert set(merged) <= {*base.splitlines(), *ours.splitlines(), *theirs.splitlines()}


def test_union_of_two_scratchpads() -> None:
    base = b"# Reflections\n"
    assert merge_lines(base, base + b"one", base + b"two\n") == b"# Reflections\none\ntwo\n"
    assert merge_lines(b"a\nb\nc\n", b"a\nc\n", b"a\nb\nc\nd\n") == b"a\nc\nd\n"


@given(FILES, FILES, CHANGES)
def test_merge_loses_nothing(
    base: dict[str, bytes], trunk: dict[str, bytes], changes: dict[str, bytes | None]
) -> None:
    """Every changed content is in the result, under its own path or beside it.

    So is every line for the shared file.
    """
    contents = {blob_name(data): data for files in (base, trunk) for data in files.values()}
    names = [{path: blob_name(data) for path, data in files.items()} for files in (base, trunk)]
    merged = merge_changes(*names, changes, "a01", contents.__getitem__)
    result = dict(trunk)
    for path, data in merged.changes.items():
        if data is None:
            del result[path]
        else:
            result[path] = data
    for path, new in changes.items():
        if new is None:
            assert (
                path not in result or path in merged.conflicts or trunk.get(path) != base.get(path)
            )
        elif path == "reflections.md":
            kept = result.get(path, b"") + result.get(f"conflicts/a01/{path}", b"")
            assert set(new.splitlines()) - set(base.get(path, b"").splitlines()) <= set(
                kept.splitlines()
            )
        else:
            assert result.get(path) == new or result[f"conflicts/a01/{path}"] == new
    for path, data in trunk.items():
        if path not in changes:
            assert result[path] == data


def test_merge_keeps_both_of_a_conflict() -> None:
    base, trunk = {"notes/a01.md": blob_name(b"1")}, {"notes/a01.md": blob_name(b"2")}
    merged = merge_changes(base, trunk, {"notes/a01.md": b"3"}, "a01", {}.__getitem__)
    assert merged.changes == {"conflicts/a01/notes/a01.md": b"3"} and merged.conflicts == [
        "notes/a01.md"
    ]


def test_merge_only_own_paths_are_allowed() -> None:
    assert all(
        can_change_path(path, "a01")
        for path in ("candidates/a01/x", "candidates/a01/y/z", "notes/a01.md", "reflections.md")
    )
    others = (
        "candidates/a02/x",
        "candidates/a01",
        "candidates/a011/x",
        "notes/a02.md",
        "TASK.md",
        "conflicts/a01/x",
    )
    assert not any(can_change_path(path, "a01") for path in others)


@pytest.fixture
def repo(tmp_path: Path) -> SharedRepository:
    made = SharedRepository(tmp_path / "repo.git")
    made.ensure_trunk({"TASK.md": b"do\n"}, CommitStamp("culmen", 1_700_000_000), "Task\n")
    return made


def test_repository_bytes_come_back_as_they_were(repo: SharedRepository) -> None:
    changes: dict[str, bytes | None] = {
        'candidates/a00/odd "name" \u00fc .py': b"\r\nx\0y\n",
        "candidates/a00/empty": b"",
        "reflections.md": b"no end",
        "candidates/a00/ident": b"$Id$ \xff\xfe",
    }
    first = repo.head()
    commit = repo.write_commit(
        CommitStamp("a00", 1_700_000_001),
        commit_message("Work", {"Best-Score": "1"}),
        changes,
        (first,),
    )
    assert commit == repo.write_commit(
        CommitStamp("a00", 1_700_000_001),
        commit_message("Work", {"Best-Score": "1"}),
        changes,
        (first,),
    )
    assert repo.head() == first  # no branch was moved
    listing = repo.content_names(commit)
    assert set(listing) == {*changes, "TASK.md"}
    assert all(
        listing[path] == blob_name(data) for path, data in changes.items() if data is not None
    )
    contents = repo.read_contents(listing.values())
    assert {path: contents[listing[path]] for path in changes} == changes
    gone = repo.write_commit(CommitStamp("a00", 1), "Gone\n", {"TASK.md": None}, (commit, first))
    assert "TASK.md" not in repo.content_names(gone)
    repo.move_refs({"refs/heads/trunk": gone, "refs/agents/a00": commit})
    assert (
        repo.is_in_history(commit)
        and repo.has_commit(commit)
        and not repo.has_commit("0" * 40)
        and not repo.has_commit("trunk")
    )
    assert (
        run_git(
            repo.folder, "log", "-1", "--format=%(trailers:key=Best-Score,valueonly)", commit
        ).strip()
        == b"1"
    )


def test_repository_damage_is_no_traceback(repo: SharedRepository) -> None:
    with pytest.raises(Unavailable):
        repo.content_names("0" * 40)
    with pytest.raises(Unavailable):
        repo.read_contents(["0" * 40])


def test_message_lines_cannot_be_forged() -> None:
    text = commit_message(
        "Agent\n\nBest-Score: 9", {"Stop Reason": "x\nBest-Score: 10", "Empty": "", "\n": "y"}
    )
    assert text == "Agent Best-Score: 9\n\nStop-Reason: x Best-Score: 10\n"
    assert len(commit_message("x" * 999, {}).strip()) == 100


def test_worktree_git_tricks_do_not_act(tmp_path: Path) -> None:
    """Hooks, filters, attributes, included settings and a replaced .git.

    None is read when a tree is looked at.
    """
    tree, base = (
        tmp_path / "tree",
        {"TASK.md": b"do\n", "reflections.md": b"# R\n", "candidates/a00/x.py": b"x = 0\n"},
    )
    worktree.create_work_tree(
        tree, 1, {**base, **worktree.tree_files({"TASK.md": "do\n"})}, None, None
    )
    alarm = tmp_path / "alarm"
    trick = f"#!/bin/sh\ntouch {alarm}\n"
    for hook in ("pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        path = tree / ".git/hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(trick)
        path.chmod(0o755)
    (tree / "trick.sh").write_text(trick)
    (tree / "trick.sh").chmod(0o755)
    script = f"{tree}/trick.sh"
    with (tree / ".git/config").open("a") as file:
        file.write(
            f'[core]\nfsmonitor = "{script}"\n[filter "f"]\nclean = "{script}"\nsmudge = "{script}"\n'
        )
    (tree / ".gitattributes").write_text("* filter=f\n")
    (tree / "candidates/a01/.gitattributes").write_text("* filter=f\n")
    (tree / "candidates/a01/.git").mkdir()
    (tree / "candidates/a01/.git/config").write_text("[core]\n")
    (tree / "candidates/a01/y.py").write_text("y = 1\n")
    (tree / "candidates/a00/x.py").write_text("x = 'mine now'\n")
    (tree / "candidates/a01/out").symlink_to("/etc/passwd")
    (tree / "candidates/a01/big").write_bytes(b"x" * (2 << 20))
    (tree / "TASK.md").write_text("do nothing\n")
    (tree / "reflections.md").write_text("")
    listing = {path: blob_name(data) for path, data in base.items()}
    texts = {
        path: blob_name(data) for path, data in worktree.tree_files({"TASK.md": "do\n"}).items()
    }
    left = worktree.tree_changes(tree, 1, listing, texts)
    assert left.changes == {"candidates/a01/y.py": b"y = 1\n"}
    own = "candidates/a01"
    expected = [f"{own}/{name} (not_a_file)" for name in (".git", ".gitattributes", "out")]
    expected += [
        ".gitattributes",
        "TASK.md",
        "candidates/a00/x.py",
        f"{own}/big (too_large)",
        "trick.sh",
    ]
    assert sorted(left.dropped) == sorted([*expected, "reflections.md (emptied)"])
    repo = SharedRepository(tmp_path / "repo.git")
    first = repo.ensure_trunk(base, CommitStamp("culmen", 1), "Task\n")
    repo.write_commit(CommitStamp("a01", 2), "Work\n", left.changes, (first,))
    assert not alarm.exists()


def test_worktree_own_files_may_go_others_may_not(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    base = {
        "candidates/a00/x": b"x",
        "candidates/a01/y": b"y",
        "notes/a01.md": b"n",
        "reflections.md": b"r",
    }
    worktree.create_work_tree(tree, 1, base | worktree.tree_files({}), None, None)
    for path in base:
        (tree / path).unlink()
    left = worktree.tree_changes(
        tree, 1, {path: blob_name(data) for path, data in base.items()}, {}
    )
    assert left.changes == {"candidates/a01/y": None, "notes/a01.md": None}
    assert left.dropped == [
        "run_experiments.py",
        "candidates/a00/x (removed)",
    ]  # the former is none of these texts
    assert (
        worktree.tree_changes(
            tmp_path / "nothing", 1, {"candidates/a01/y": blob_name(b"y")}, {}
        ).changes
        == {}
    )
