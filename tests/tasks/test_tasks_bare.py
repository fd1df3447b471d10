"""An evaluator alone: the properties read off it.

Its first program, verifier, direction, files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from culmen.core.errors import TaskError
from culmen.tasks import load, loading

LOADS = """
import importlib.util
import numpy as np

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""


@pytest.mark.parametrize(
    ("body", "uses"),
    [
        ("    return load(path).guess(3)", ["guess(x1)"]),
        (
            "    program = load(path)\n    return program.first() + program.second(x=1)",
            ["first()", "second(x1)"],
        ),
        (
            "    return judge(3, load(path))\n\ndef judge(n, loaded):\n    return loaded.deep(n, n)",
            ["deep(x1, x2)"],
        ),
        ("    return open(path).read().count('x')", []),
    ],
)
def test_functions_that_are_called(body: str, uses: list[str]) -> None:
    found = loading.read_interface(f"{LOADS}\ndef evaluate(path):\n{body}\n", "legacy")
    assert list(found.uses) == [use.partition("(")[0] for use in uses]
    assert [line for line in found.stub.splitlines() if line.startswith("def")] == [
        f"def {use}:" for use in uses
    ]


def test_the_called_function_of_a_score_is_its_entry() -> None:
    found = loading.read_interface("def score(output):\n    return sum(output)\n", "call", "solve")
    assert found.uses == ("solve",) and "def solve():" in found.stub and found.program == ""


def folder(tmp_path: Path, text: str, **files: str) -> Path:
    (tmp_path / "evaluator.py").write_text(text)
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_text(content)
    return tmp_path / "evaluator.py"


SIMPLE = "def score(output):\n    return -abs(output - 3)\n"
CERTIFY = 'def certify(output):\n    return {"score": -abs(output - 3), "feasible": True}\n'


def test_a_bare_evaluator_is_a_task(tmp_path: Path) -> None:
    task = load(folder(tmp_path, SIMPLE), goal="be 3")
    assert (task.name, task.goal, task.evaluator.form, task.evaluator.entry) == (
        tmp_path.name,
        "be 3",
        "call",
        "run",
    )
    assert (
        task.seeds == ()
        and task.evaluator.verifier == ""
        and task.evaluator.options["uses"] == ["run"]
    )
    with pytest.raises(TaskError, match="needs a goal"):
        load(tmp_path)


@pytest.mark.extension("compat")
def test_a_folder_with_a_scorer_and_an_initial_program_is_culmens_own(tmp_path: Path) -> None:
    """An `initial_program.*` does not make every folder OpenEvolve's.

    It does so only where the evaluator may have `evaluate`.
    """
    (tmp_path / "initial_program.py").write_text("def run():\n    return 1\n")
    (tmp_path / "evaluator.py").write_text("def score(output):\n    return output\n")
    assert load(tmp_path).evaluator.form == "call"
    (tmp_path / "evaluator.py").write_text(
        "def score(output):\n    return output\n\ndef evaluate(path):\n    return 1.0\n"
    )
    assert load(tmp_path).evaluator.form == "legacy"


def test_a_program_beside_it_or_in_it_comes_first(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE + 'SEED = """\ndef run():\n    return 2\n"""\n')
    assert load(path).seeds == ({"program.py": "def run():\n    return 2\n"},)
    (tmp_path / "initial_program.py").write_text("def guess():\n    return 1\n")
    task = load(path)
    assert task.seeds == ({"initial_program.py": "def guess():\n    return 1\n"},)
    assert (task.evaluator.module, task.evaluator.entry) == ("initial_program.py", "guess")
    given = load(path, seeds=[{"mine.py": "def only():\n    return 0\n"}])
    assert (given.evaluator.module, given.evaluator.entry, list(given.seeds[0])) == (
        "mine.py",
        "only",
        ["mine.py"],
    )
    with pytest.raises(TaskError, match="run"):
        load(path, seeds=[{"mine.py": "def a():\n    return 0\n\ndef b():\n    return 0\n"}])


def test_the_verifier_lies_beside_it_or_in_it(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE + CERTIFY)
    assert load(path, goal="g").evaluator.verifier == str(path)
    (tmp_path / "verify.py").write_text(CERTIFY)
    assert load(path, goal="g").evaluator.verifier == str(tmp_path / "verify.py")


def test_direction(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE)
    up, down = load(path, "g", direction="max"), load(path, "g", direction="min")
    assert (
        down.objective.direction == "min"
        and up == load(path, goal="g")
        and up.digest != down.digest
    )
    with pytest.raises(TaskError, match="unknown direction"):
        load(path, "g", direction="sideways")
    (tmp_path / "p.py").write_text("def run():\n    return 1.0\n")
    (tmp_path / "task.toml").write_text(
        '[seed]\nfiles = ["p.py"]\n[objective]\ndirection = "max"\n'
    )
    assert load(tmp_path, "g", direction="max").objective.direction == "max"
    with pytest.raises(TaskError, match="direction = max"):
        load(tmp_path, "g", direction="min")


def test_only_files_that_matter_are_part_of_it(tmp_path: Path) -> None:
    text = 'import helper\nDATA = open("./points.csv")\n' + SIMPLE
    path = folder(
        tmp_path, text, helper__py="X = 1\n", points__csv="1,2\n", output__txt="hello", out="x"
    )
    task = load(path, goal="g")
    assert sorted(task.evaluator.files) == ["evaluator.py", "helper.py", "points.csv"]
    (tmp_path / "output.txt").write_text("the output of the very run")
    assert load(path, goal="g") == task
    (tmp_path / "points.csv").write_text("1,3\n")
    assert load(path, goal="g").evaluator.digest != task.evaluator.digest
