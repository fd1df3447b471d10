"""Initial programs and evaluators by the names that other tools give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.tasks.loading import load

pytestmark = pytest.mark.extension("compat")
PROGRAM, EVALUATOR = (
    "def run():\n    return 1\n",
    "def evaluate(path):\n    return {'score': 1.0}\n",
)


def folder_of(root: Path, files: dict[str, str]) -> Path:
    folder = root / "mine"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "name",
    ["init_program.py", "initial_prompt.txt", "initial_program.md", "initial_program/start.py"],
)
@pytest.mark.parametrize("evaluator", ["evaluator.py", "evaluator/evaluator.py"])
def test_an_initial_program_of_another_name_is_found(
    name: str, evaluator: str, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, {name: PROGRAM, evaluator: EVALUATOR, "config.yaml": "seed: 3\n"})
    task = load(folder)
    assert task.name == "mine" and task.root == str(folder)
    assert task.seeds == ({Path(name).name: PROGRAM},)
    assert task.evaluator.path == str(folder / evaluator)


def test_a_file_of_the_usual_name_comes_first(tmp_path: Path) -> None:
    files = {"initial_program.py": PROGRAM, "initial_prompt.txt": "x\n", "evaluator.py": EVALUATOR}
    assert load(folder_of(tmp_path, files)).seeds == ({"initial_program.py": PROGRAM},)


def test_several_files_and_a_container_are_refused_with_the_change(tmp_path: Path) -> None:
    files = {"initial_program/a.py": PROGRAM, "initial_program/b.py": "", "evaluator.py": EVALUATOR}
    with pytest.raises(TaskError, match=r"found a\.py, b\.py") as caught:
        load(folder_of(tmp_path, files))
    assert "task.toml" in caught.value.fix
    files = {"initial_program.py": PROGRAM, "evaluator/evaluate.sh": "", "evaluator/Dockerfile": ""}
    with pytest.raises(
        TaskError, match=r"script for a container: evaluator/evaluate\.sh"
    ) as caught:
        load(folder_of(tmp_path / "other", files))
    assert "culmen docs tasks" in caught.value.fix
