"""`culmen import alphaevolve`: task folders of miniature notebooks, which culmen runs and judges."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from culmen.compat import cli
from culmen.compat.alphaevolve import importing, judging
from culmen.compat.alphaevolve.notebook import CellError
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.jail.scorer import Invalid
from culmen.evaluate.local import LocalBackend
from culmen.evaluate.taskfiles.loading import load
from tests.evaluate.conftest import need

CHECKOUT = Path(__file__).parents[1] / "fixtures" / "alphaevolve"
Imported = tuple[Path, list[dict[str, object]]]
BETTER_LAMPS = """
def construct():
    return [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]]
"""


def culmen(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


def notebook(name: str) -> Path:
    return CHECKOUT / "experiments" / name / f"{name}.ipynb"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    out = tmp_path_factory.mktemp("alphaevolve") / "tasks"
    ran = culmen("import", "alphaevolve", str(CHECKOUT), "--out", str(out), "--json")
    assert ran.returncode == 1, ran.stderr  # four notebooks cannot be imported
    return out, json.loads(ran.stdout)


def evaluate(task: Task, programs: dict[str, str]) -> dict[str, Observation]:
    async def run() -> dict[str, Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            return {
                name: await backend.evaluate(Candidate.of({"program.py": text}), None, 1)
                for name, text in programs.items()
            }
        finally:
            await backend.close()

    return asyncio.run(run())


def returning(text: str) -> str:
    return f"import numpy as np\n\n\ndef construct():\n    return {text}\n"


def test_alphaevolve_is_a_verb_of_the_group_import() -> None:
    assert cli.VERBS.groups["import"][1]["alphaevolve"] is cli.alphaevolve


def test_alphaevolve_each_verification_becomes_a_task(imported: Imported) -> None:
    folder, done = imported
    fine = {each["name"]: each for each in done if not each["error"]}
    found = {name: (each["construction"], each["expression"], each["direction"]) for name, each in fine.items()}
    assert found == {
        "easily_pleased": (["points"], "widest", "min"),
        "far_numbers_doubled": (["doubled"], "count_numbers(N, doubled)", "max"),
        "far_numbers_greedy": (["greedy"], "count_numbers(N, greedy)", "max"),
        "tuple_of_tables": (["centers", "radii"], "answer['sum_of_radii']", "max"),
        "lamps_in_a_square_room": (["construction_1"], "gap", "max"),
        "steps_with_a_low_peak": (["construction_1"], "peak", "min"),
    }
    values = {name: each["value"] for name, each in fine.items()}
    assert values["far_numbers_greedy"] == 7.0 and values["tuple_of_tables"] == 0.45
    assert (folder / "lamps_in_a_square_room" / "LICENSE").is_file()


def test_alphaevolve_what_cannot_be_imported_is_said_with_the_file_and_the_change(imported: Imported) -> None:
    failed = {each["name"]: each for each in imported[1] if each["error"]}
    assert set(failed) == {"lacks_package", "no_direction", "only_accepts", "only_functions"}
    assert all(str(notebook(name)) in str(each["error"]) for name, each in failed.items())
    fixes = {name: str(each["fix"]) for name, each in failed.items()}
    assert fixes["lacks_package"].endswith("pip install no_such_geometry")
    assert "--direction" in fixes["no_direction"] and "--score" in fixes["only_accepts"]
    assert "#@title Verification" in fixes["only_functions"]


def test_alphaevolve_answers_without_work_are_named(imported: Imported) -> None:
    weak = {str(each["name"]): each["weak"] for each in imported[1]}
    pleased = ["zeros in place of all numbers (0)", "the first item in place of all (0)"]
    assert weak.pop("easily_pleased") == pleased
    assert not any(weak.values())


def test_alphaevolve_the_notebook_s_statements_judge_what_a_program_returns(imported: Imported) -> None:
    need("namespaces")
    task = load(imported[0] / "lamps_in_a_square_room")
    start = task.initial_candidates()[0].parts["program.py"]
    assert "draw_lamps" not in start and "matplotlib" not in start
    programs = {
        "start": start,
        "lists": BETTER_LAMPS,
        "outside": returning("np.array([[0, 0], [2, 0], [0, 2], [2, 2], [1, 1.0]])"),
        "four": returning("np.eye(2)[[0, 1, 0, 1]]"),
        "nan": returning("np.full((5, 2), np.nan)"),
        "text": returning('"0.9"'),
        "nothing": returning("None"),
    }
    found = evaluate(task, programs)
    assert found["start"].score == pytest.approx(0.6403124237432849)
    assert found["lists"].score == pytest.approx(0.5**0.5)
    refused = [found[name].status for name in ("outside", "four", "nan", "text", "nothing")]
    assert refused == [Status.INVALID] * 5
    assert "a lamp hangs outside" in found["outside"].feedback


def test_alphaevolve_several_data_are_returned_as_a_tuple(imported: Imported) -> None:
    need("namespaces")
    task = load(imported[0] / "tuple_of_tables")
    larger = returning("np.array([[0.25, 0.25], [0.7, 0.7]]), np.array([0.25, 0.3])")
    overlapping = returning("np.full((2, 2), 0.5), np.full(2, 0.5)")
    found = evaluate(task, {"larger": larger, "overlapping": overlapping, "one": returning("np.eye(2)")})
    assert found["larger"].score == pytest.approx(0.55)
    assert found["overlapping"].status is Status.INVALID  # minus infinity in the notebook
    assert "not a tuple of centers, radii" in found["one"].feedback


def test_alphaevolve_an_imported_task_is_checked_and_holds_an_audit(imported: Imported) -> None:
    need("namespaces")
    folder = str(imported[0] / "lamps_in_a_square_room")
    checked = culmen("check", folder)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    audited = culmen("audit", folder, "--json")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    results = {each["result"] for each in json.loads(audited.stdout)["outcomes"]}
    assert results <= {"held", "skipped"}


def test_alphaevolve_the_user_names_the_score_the_data_and_the_direction() -> None:
    (fact,) = importing.probe_notebook(notebook("only_accepts"), "min", "sum(square[0])", ())
    assert (fact["value"], fact["direction"]) == (15.0, "min")
    names: dict[str, object] = {}
    exec(str(fact["evaluator"]), names)
    score = names["score"]
    assert callable(score) and score([[1, 1], [2, 0]]) == {"score": 2.0}
    with pytest.raises(Invalid, match="the sums differ"):
        score([[1, 1], [2, 1]])
    (fact,) = importing.probe_notebook(notebook("no_direction"), "max", "", ["numbers"])
    assert fact["names"] == ["numbers"] and 'require(is_short, "is_short")' in str(fact["code"])
    with pytest.raises(CellError, match=r"no verification has the names of len\(squares\)"):
        importing.probe_notebook(notebook("only_accepts"), "min", "len(squares)", ())


def test_alphaevolve_the_form_of_a_construction_is_kept() -> None:
    pairs = judging.kind_of([(1, 2), (3, 4)])
    assert judging.shaped_value([[5, 6]], pairs, "pairs") == [(5, 6)]
    for wrong in ([], [[1.5, 2]], [[1, 2, 3]], [[True, 1]], "12", [None]):
        with pytest.raises(Invalid):
            judging.shaped_value(wrong, pairs, "pairs")
    mixed = judging.kind_of([[1, 2.5], [3]])
    assert judging.shaped_value([[1]], mixed, "lists") == [[1.0]]
    assert judging.described(mixed) == "list of list of float"
    with pytest.raises(Invalid):
        judging.shaped_value([[float("inf")]], mixed, "lists")
    with pytest.raises(TypeError):
        judging.kind_of(lambda: 0)


def test_alphaevolve_arrays_keep_their_type() -> None:
    numpy = pytest.importorskip("numpy")
    kind = judging.kind_of(numpy.ones((2, 2), dtype=numpy.int8))
    assert judging.shaped_value([[3, 4]], kind, "table").dtype == numpy.int8  # type: ignore[attr-defined]
    for wrong in ([[300, 1]], [1, 2], [[0.5, 1]], [[1], [2, 3]]):
        with pytest.raises(Invalid):
            judging.shaped_value(wrong, kind, "table")


def test_alphaevolve_a_direction_is_read_from_bounds_and_aims() -> None:
    text = "Maximize the area of the smallest triangle."
    assert importing.direction_of("shows that C <= ", text) == "min"
    assert importing.direction_of("Minimum area: ", text) == "max"
    assert importing.direction_of("", "minimize one, maximize the other") == ""


def test_alphaevolve_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no notebook is here"):
        importing.notebook_files(tmp_path, [])
    with pytest.raises(UserError, match="there is no notebook 'lamps'"):
        importing.notebook_files(CHECKOUT, ["lamps"])
    with pytest.raises(UserError, match="no direction"):
        importing.options_of("up", "", "")
    with pytest.raises(UserError):
        importing.options_of("", "len(", "")
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{}")
    ((failed, _),) = importing.import_notebook("broken", broken, importing.NotebookOptions())
    assert "it is no notebook" in failed.error and str(broken) in failed.fix
