"""Reading and writing in a folder that somebody else may change under our feet."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from culmen.extensions.agents.sandbox import safe
from culmen.extensions.agents.sandbox.safe import IntakeRefused


def test_safe_read_and_walk(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.txt").write_text("hello")
    (tmp_path / "a/link").symlink_to("/etc")
    (tmp_path / "a/.gitattributes").write_text("x")
    assert safe.read_regular_file(tmp_path, "a/b/c.txt", 5) == b"hello"
    with pytest.raises(IntakeRefused, match="too_large"):
        safe.read_regular_file(tmp_path, "a/b/c.txt", 4)
    assert sorted(safe.walk_folder(tmp_path)) == [
        ("a/.gitattributes", False),
        ("a/b/c.txt", True),
        ("a/link", False),
    ]
    assert list(safe.walk_folder(tmp_path, ("a", "b"))) == [("a/b/c.txt", True)]
    assert ("...", False) in safe.walk_folder(tmp_path, limit=2)
    assert list(safe.walk_folder(tmp_path, skip=lambda way: way[-1] == "a")) == []


def test_safe_write_goes_nowhere_else(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "victim").write_text("precious")
    safe.write_regular_file(home, ".config/tool/settings.json", b"{}", None)
    assert (home / ".config/tool/settings.json").read_bytes() == b"{}"
    (home / "file").symlink_to(outside / "victim")
    safe.write_regular_file(home, "file", b"mine", None)
    assert (home / "file").read_bytes() == b"mine" and not (home / "file").is_symlink()
    (home / "folder").symlink_to(outside)
    with pytest.raises(OSError):
        safe.write_regular_file(home, "folder/victim", b"mine", None)
    assert (outside / "victim").read_text() == "precious"
    with pytest.raises(IntakeRefused):
        safe.write_regular_file(home, "../outside/victim", b"mine", None)


def test_safe_reads_never_leave_while_links_are_swapped(tmp_path: Path) -> None:
    """A folder flips between a real one and a link to a secret.

    All reads see the real one, or are refused.
    """
    root, secret = tmp_path / "root", tmp_path / "secret"
    (root / "real").mkdir(parents=True)
    secret.mkdir()
    (root / "real/x").write_text("honest")
    (secret / "x").write_text("secret")
    stop = threading.Event()

    def flip() -> None:
        here = root / "here"
        while not stop.is_set():
            os.rename(root / "real", here)
            os.rename(here, root / "real")
            os.symlink(secret, here)
            os.unlink(here)

    flipping = threading.Thread(target=flip)
    flipping.start()
    seen: set[bytes] = set()
    try:
        for _ in range(3000):
            try:
                seen.add(safe.read_regular_file(root, "here/x", 100))
            except IntakeRefused as refused:
                seen.add(str(refused).encode())
    finally:
        stop.set()
        flipping.join()
    assert b"secret" not in seen
    assert seen <= {b"honest", b"missing", b"link", b"not_a_folder"}


def test_names_that_would_act_on_a_terminal_are_reported_harmlessly(tmp_path: Path) -> None:
    for name in (b"\xff.py", b"\x1b[2Jx.py", b"a\nb.py"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    found = dict(safe.walk_folder(tmp_path))
    assert sorted(found) == ["?.py", "?[2Jx.py", "a?b.py"] and not any(found.values())
