"""An evaluator alone: what can be read off it, the first programs made from that, its verifier, direction, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from culmen.core.errors import TaskError
from culmen.evaluate.taskfiles import interface, load

LOADS = """
import importlib.util
import numpy as np

def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program
"""
PACKING = (
    LOADS
    + """
N = 26

def valid(centers, radii):
    for i in range(len(centers)):
        x, y = centers[i]
        if x < radii[i]:
            return False
    return True

def evaluate(program_path):
    centers, radii, total = load(program_path).run_packing()
    if not isinstance(centers, np.ndarray):
        centers = np.array(centers)
    if centers.shape != (N, 2) or radii.shape != (N,):
        return {"combined_score": 0.0}
    return {"combined_score": float(total) if valid(centers, radii) else 0.0}
"""
)


def made(text: str, form: str = "call") -> list[Any]:
    """What the first programs return, in order."""
    found = []
    for program in interface.first_programs(text, form).programs:
        space: dict[str, Any] = {}
        exec(program, space)  # written by culmen itself
        found.append(next(value for name, value in space.items() if callable(value))())
    return found


def shape(value: Any) -> Any:
    """Nested lengths: (26, 2) for 26 pairs, a list for a tuple, () for a number."""
    if isinstance(value, tuple):
        return [shape(each) for each in value]
    if hasattr(value, "shape"):
        return value.shape
    return (len(value), *shape(value[0])) if isinstance(value, list) else ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    return -abs(float(output) - 3)", ()),
        ("    return output * 2", ()),
        ("    return max(output) if len(output) == 7 else 0", (7,)),
        ("    if len(output) != N:\n        return 0\n    return sum(x + y for x, y in output)", (5, 2)),
        ("    p = np.array(output)\n    if p.shape != (N, 3):\n        return 0\n    return p.max()", (5, 3)),
        ("    a, b = output\n    assert len(a) == N and b.shape == (N,)\n    return 1", [(5,), (5,)]),
        ("    a, b = output[0], output[1]\n    return len(a) == 3 and float(b)", [(3,), ()]),
        ("    for i, row in enumerate(output):\n        len(row) == 4\n    return len(output) == N", (5, 4)),
        ("    return helper(output)\n\ndef helper(p):\n    assert len(p) == N\n    return 1", (5,)),
        ("    found = points(output, 'points', N, 2)\n    return found", (5, 2)),
        ("    x = vector(output, 'x', 1, N)\n    return x", (5,)),
        ("    a, r = (part.tolist() for part in output)\n    return len(a) == N and len(r) == N", [(5,), (5,)]),
    ],
)
def test_shapes_are_read_off_the_evaluator(body: str, expected: Any) -> None:
    values = made(f"import numpy as np\nN = 5\n\ndef score(output):\n{body}\n")
    assert values and all(shape(value) == expected for value in values)


@pytest.mark.parametrize(
    "body",
    [
        "    return judge(output)",
        "    return sum(output)",
        "    return sum(x + y for x, y in output)",
        "    points = np.asarray(output)\n    return points[:, 0].sum()",
        "    return output.run(3)",
        '    return output["x"] * 2',
        "    p = np.array(output)\n    return p.shape == (2, 3, 4)",
        "    a, b = output\n    return a(b)",
    ],
)
def test_what_cannot_be_told_is_left_open(body: str) -> None:
    text = f"import numpy as np\n\ndef score(output):\n{body}\n"
    found = interface.first_programs(text, "call")
    values = made(text)
    assert not values or body.startswith("    a, b")  # numbers are a fair guess for parts of a tuple
    assert "def run():" in found.stub and "NotImplementedError" in found.stub


def test_a_usual_evaluator_of_a_program() -> None:
    values = made(PACKING, "legacy")
    assert all(shape(value) == [(26, 2), (26,), ()] for value in values)
    centers, radii, total = values[0]
    assert total == pytest.approx(sum(radii)) and all(0 < x < 1 and 0 < y < 1 for x, y in centers)
    assert len({tuple(map(tuple, value[0])) for value in values[:3]}) == 3


@pytest.mark.parametrize(
    ("body", "uses"),
    [
        ("    return load(path).guess(3)", ["guess(x1)"]),
        ("    program = load(path)\n    return program.first() + program.second(x=1)", ["first()", "second(x1)"]),
        ("    return open(path).read().count('x')", []),
    ],
)
def test_functions_that_are_called(body: str, uses: list[str]) -> None:
    found = interface.first_programs(f"{LOADS}\ndef evaluate(path):\n{body}\n", "legacy")
    assert list(found.uses) == [use.partition("(")[0] for use in uses]
    assert [line for line in found.stub.splitlines() if line.startswith("def")] == [f"def {use}:" for use in uses]


def test_recursion_and_deep_calls_end() -> None:
    text = "def score(output):\n    return score(output) + a(output)\n"
    text += "".join(f"def {x}(p):\n    return {y}(p) + {y}(p) + {y}(p)\n" for x, y in zip("abcdefgh", "bcdefgha"))
    assert interface.first_programs(text, "call").stub


def test_long_arrays_are_written_short() -> None:
    program = interface.first_programs("def score(output):\n    return len(output) == 50000\n", "call").programs[0]
    assert "] * 50000" in program and len(program) < 300


def folder(tmp_path: Path, text: str, **files: str) -> Path:
    (tmp_path / "evaluator.py").write_text(text)
    for name, content in files.items():
        (tmp_path / name.replace("__", ".")).write_text(content)
    return tmp_path / "evaluator.py"


SIMPLE = "def score(output):\n    return -abs(output - 3)\n"
CERTIFY = 'def certify(output):\n    return {"score": -abs(output - 3), "feasible": True}\n'


def test_a_bare_evaluator_is_a_task(tmp_path: Path) -> None:
    task = load(folder(tmp_path, SIMPLE), goal="be 3")
    assert (task.name, task.goal, task.evaluator.form, task.evaluator.entry) == (tmp_path.name, "be 3", "call", "run")
    assert len(task.seeds) == 2 and list(task.seeds[0]) == ["program.py"] == [task.evaluator.module]
    assert "2 were generated" in task.notes[-1] and task.evaluator.verifier == ""
    assert load(tmp_path).seeds == task.seeds  # it needs no goal


def test_a_program_beside_it_or_in_it_comes_first(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE + 'SEED = """\ndef run():\n    return 2\n"""\n')
    assert load(path).seeds == ({"program.py": "def run():\n    return 2\n"},)
    (tmp_path / "initial_program.py").write_text("def guess():\n    return 1\n")
    task = load(path)
    assert task.seeds == ({"initial_program.py": "def guess():\n    return 1\n"},)
    assert (task.evaluator.module, task.evaluator.entry) == ("initial_program.py", "guess")
    given = load(path, seeds=[{"mine.py": "def only():\n    return 0\n"}])
    assert (given.evaluator.module, given.evaluator.entry, list(given.seeds[0])) == ("mine.py", "only", ["mine.py"])
    with pytest.raises(TaskError, match="run"):
        load(path, seeds=[{"mine.py": "def a():\n    return 0\n\ndef b():\n    return 0\n"}])


def test_the_verifier_lies_beside_it_or_in_it(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE + CERTIFY)
    assert load(path).evaluator.verifier == str(path)
    (tmp_path / "verify.py").write_text(CERTIFY)
    assert load(path).evaluator.verifier == str(tmp_path / "verify.py")


def test_direction(tmp_path: Path) -> None:
    path = folder(tmp_path, SIMPLE)
    up, down = load(path, direction="max"), load(path, direction="min")
    assert down.objective.direction == "min" and up == load(path) and up.digest != down.digest
    with pytest.raises(TaskError, match="unknown direction"):
        load(path, direction="sideways")
    (tmp_path / "p.py").write_text("def run():\n    return 1.0\n")
    (tmp_path / "task.toml").write_text('[seed]\nfiles = ["p.py"]\n[objective]\ndirection = "max"\n')
    assert load(tmp_path, direction="max").objective.direction == "max"
    with pytest.raises(TaskError, match="direction = max"):
        load(tmp_path, direction="min")


def test_only_files_that_matter_are_part_of_it(tmp_path: Path) -> None:
    text = 'import helper\nDATA = open("./points.csv")\n' + SIMPLE
    path = folder(tmp_path, text, helper__py="X = 1\n", points__csv="1,2\n", output__txt="hello", out="x")
    task = load(path)
    assert sorted(task.evaluator.files) == ["evaluator.py", "helper.py", "points.csv"]
    (tmp_path / "output.txt").write_text("the output of the very run")
    assert load(path) == task
    (tmp_path / "points.csv").write_text("1,3\n")
    assert load(path).evaluator.digest != task.evaluator.digest
