"""Keys of the package's settings: each has its effect on a folder's task, or is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from culmen.tasks.loading import load

config = pytest.importorskip("shinka.core.config", reason="python -m tests.differential")
database = pytest.importorskip("shinka.database.dbase")
scheduler = pytest.importorskip("shinka.launch.scheduler")

SECTIONS = {
    "evo": config.EvolutionConfig,
    "db": database.DatabaseConfig,
    "job": scheduler.LocalJobConfig,
}
EFFECTIVE = {"evo.task_sys_msg": "Fit.", "job.time": "00:10:05"}


def test_each_key_has_its_effect_or_is_named(tmp_path: Path) -> None:
    (tmp_path / "initial.py").write_text("x = 1\n")
    (tmp_path / "evaluate.py").write_text("def main(program_path, results_dir):\n    pass\n")
    keys = {
        section: {each.name: 1 for each in dataclasses.fields(kind)}
        for section, kind in SECTIONS.items()
    }
    del keys["job"]["extra_cmd_args"]  # another score: refused, see tests/extensions/compat
    for dotted, value in EFFECTIVE.items():
        section, key = dotted.split(".")
        keys[section][key] = value
    (tmp_path / "shinka.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
    task = load(tmp_path)
    assert (task.system, task.limits.seconds) == ("Fit.", 605)
    (note,) = [note for note in task.notes if note.startswith("shinka.yaml: keys without")]
    named = note.partition("here: ")[2].split(", ")
    dotted = [f"{section}.{key}" for section, names in keys.items() for key in names]
    assert named == [each for each in dotted if each not in EFFECTIVE]
