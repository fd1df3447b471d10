"""Task folders written by importers: their settings are read back as they were given."""

from __future__ import annotations

import tomllib
from pathlib import Path

from culmen.extensions.importers.importing import write_task_folder


def test_settings_of_a_task_folder_are_read_back(tmp_path: Path) -> None:
    settings: dict[str, dict[str, object]] = {
        "": {
            "name": 'a "b" \U0001f600',
            "goal": "Two lines,\nwith ''' in \\ them.\n",
            "deterministic": False,
        },
        "evaluator": {"build": ["g++", "{a.cpp}"], "packages": []},
        "limits": {"seconds": 2.5, "memory_mb": 4096},
    }
    write_task_folder(tmp_path / "task", "One line,\nand another.", settings, {}, {})
    text = (tmp_path / "task" / "task.toml").read_text()
    assert text.startswith("# One line,\n# and another.\nname")
    read = tomllib.loads(text)
    assert read == settings.pop("") | settings


def test_a_task_folder_is_replaced_and_gets_the_copies_that_exist(tmp_path: Path) -> None:
    (tmp_path / "task" / "old").mkdir(parents=True)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copies = {"bank/one/program": program, "LICENSE": tmp_path / "none"}
    write_task_folder(tmp_path / "task", "", {}, {"goal.txt": "x"}, copies)
    files = {path.name for path in (tmp_path / "task").rglob("*") if path.is_file()}
    assert files == {"program", "goal.txt", "task.toml"}
    assert (tmp_path / "task" / "bank" / "one" / "program").stat().st_mode & 0o100
    assert not (tmp_path / "task" / "old").exists()
