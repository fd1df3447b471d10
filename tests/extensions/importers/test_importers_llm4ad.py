"""`culmen import llm4ad`: task folders of a miniature checkout.

culmen runs and judges them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Observation, Status
from culmen.core.task import Task
from culmen.evaluate.local import LocalBackend
from culmen.extensions.importers import importing, llm4ad
from culmen.tasks.loading import load
from tests.evaluate.conftest import need

CHECKOUT = Path(__file__).parents[2] / "fixtures" / "llm4ad"
WORST_FIT = "def rate_shelves(size, rooms):\n    return rooms - size\n"
Imported = tuple[Path, dict[str, dict[str, object]]]


def culmen(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from culmen.cli.main import main; raise SystemExit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    out = tmp_path_factory.mktemp("llm4ad") / "tasks"
    ran = culmen("import", "llm4ad", str(CHECKOUT), "--out", str(out), "--json")
    assert ran.returncode == 1, ran.stderr  # two of the three cannot be imported
    return out, {each["name"]: each for each in json.loads(ran.stdout)}


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


def test_llm4ad_what_cannot_be_imported_is_said_with_the_change(imported: Imported) -> None:
    done = imported[1]
    assert "the module 'no_such_simulator'" in str(done["lacks_package"]["fix"])
    assert "runs the program's text itself" in str(done["runs_text"]["error"])
    fine = done["shelf_choice"]
    assert (fine["error"], fine["entry"], fine["calls"]) == ("", "rate_shelves", 120)
    assert fine["notes"] == ["use_numba_accelerate is not applied"]


def test_llm4ad_a_function_is_driven_by_the_task_s_evaluator(imported: Imported) -> None:
    need("namespaces")
    folder, done = imported
    task = load(folder / "shelf_choice")
    start = task.initial_candidates()[0].parts["program.py"]
    short = "def rate_shelves(size, rooms):\n    return [0]\n"
    found = evaluate(task, {"start": start, "worst fit": WORST_FIT, "short": short})
    assert found["start"].score == done["shelf_choice"]["score"]
    assert found["worst fit"].score < found["start"].score  # type: ignore[operator]
    assert found["short"].status is Status.INVALID


def test_llm4ad_fitness_is_a_finite_number() -> None:
    class Called(llm4ad.Evaluation):
        def evaluate_program(
            self, program_str: str, callable_func: Callable[..., object]
        ) -> object:
            return callable_func()

    evaluation = Called("def f(): pass")
    assert llm4ad.fitness_of(evaluation, lambda: {"score": 2}) == 2.0
    assert llm4ad.fitness_of(evaluation, lambda: (1, 2.5)) == {"objective_1": 1, "objective_2": 2.5}
    for value in (
        None,
        float("nan"),
        float("inf"),
        {"feedback": "no score"},
        (),
        (1.0, float("nan")),
    ):
        with pytest.raises(llm4ad.Invalid):
            llm4ad.fitness_of(evaluation, lambda value=value: value)


def test_llm4ad_the_evaluator_never_sees_the_program_s_text(tmp_path: Path) -> None:
    class Reading(llm4ad.Evaluation):
        def evaluate_program(
            self, program_str: str, callable_func: Callable[..., object]
        ) -> object:
            return len(program_str)

    assert llm4ad.fitness_of(Reading("def f(): pass"), print) == 0.0


def test_llm4ad_an_evaluator_may_copy_the_function() -> None:
    """As a copy of a plain function, the copy is the function: optimisers copy what they hold."""

    class Copying(llm4ad.Evaluation):
        def evaluate_program(
            self, program_str: str, callable_func: Callable[..., object]
        ) -> object:
            return copy.deepcopy(callable_func)()

    class Held:
        def __init__(self) -> None:
            self.lock = threading.Lock()  # cannot be copied, as a connection

        def __call__(self) -> float:
            return 1.5

    assert llm4ad.fitness_of(Copying("def f(): pass"), Held()) == 1.5


def test_llm4ad_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task of LLM4AD is here"):
        llm4ad.task_folders(tmp_path, [])
    with pytest.raises(UserError, match="there is no task 'shelf'"):
        llm4ad.task_folders(CHECKOUT, ["shelf"])


SIBLING = """
from llm4ad.base import Evaluation
from llm4ad.task.optimization.shelf_choice.evaluation import *
from llm4ad.task.optimization.shelf_choice import evaluation as one


class Two(Evaluation):
    def __init__(self):
        kinds = [k for k in vars(one).values() if isinstance(k, type) and k is not Evaluation]
        self.one = next(k for k in kinds if issubclass(k, Evaluation))()
        super().__init__(template_program=self.one.template_program)

    def evaluate_program(self, program_str, callable_func):
        return (self.one.evaluate_program(program_str, callable_func), -1.5)
"""
READER = """
import inspect

from llm4ad.base import Evaluation


class Reads(Evaluation):
    def __init__(self):
        super().__init__(template_program="def f(x):\\n    return x\\n")

    def evaluate_program(self, program_str, callable_func):
        try:
            return float(len(inspect.getsource(callable_func)))
        except (OSError, TypeError):
            return None
"""


def test_llm4ad_siblings_objectives_and_readers_of_texts(tmp_path: Path) -> None:
    """A task that imports another one, with two objectives; one that reads the program's text."""
    need("namespaces")
    checkout = tmp_path / "LLM4AD"
    shutil.copytree(CHECKOUT, checkout)
    for name, text in (("shelf_choice_2O", SIBLING), ("reads_text", READER)):
        place = checkout / "llm4ad" / "task" / "optimization" / name
        place.mkdir()
        (place / "evaluation.py").write_text(text)
    folders = llm4ad.task_folders(checkout, ["shelf_choice_2O", "reads_text"])
    reads = llm4ad.import_design(folders["reads_text"], tmp_path / "out" / "reads", checkout)
    assert "reads the program's text" in reads.error and not reads.folder
    found = llm4ad.import_design(folders["shelf_choice_2O"], tmp_path / "out" / "two", checkout)
    assert found.error == "" and isinstance(found.score, dict)
    assert found.score["objective_2"] == -1.5
    shutil.rmtree(checkout)  # the task folder has all that it needs
    task = load(tmp_path / "out" / "two")
    start = task.initial_candidates()[0].parts["program.py"]
    one = evaluate(task, {"start": start})["start"]
    assert one.status is Status.OK, one.feedback
    assert {name: one.metrics[name] for name in found.score} == found.score


PASSES = """
from llm4ad.base import Evaluation


class Passes(Evaluation):
    def __init__(self):
        super().__init__(template_program="def f(field):\\n    return len(field)\\n")

    def evaluate_program(self, program_str, callable_func):
        field = [[0, 1] * 250 for _ in range({rows})]
        return float(sum(callable_func(field) for _ in range(10)))
"""


def test_llm4ad_time_for_large_arguments_counts_in_the_limit(tmp_path: Path) -> None:
    checkout = tmp_path / "LLM4AD"
    shutil.copytree(CHECKOUT, checkout)
    seconds = {}
    for rows in (1, 1000):
        place = checkout / "llm4ad" / "task" / "optimization" / f"passes_{rows}"
        place.mkdir()
        (place / "evaluation.py").write_text(PASSES.format(rows=rows))
        package = f"llm4ad.task.optimization.passes_{rows}"
        facts = importing.probe(llm4ad.__name__, str(place), package, str(checkout))
        assert facts["calls"] == 10 and facts["score"] == 10 * rows
        seconds[rows] = facts["seconds"]
    assert seconds[1000] > 10 * seconds[1]


CHOOSES = """
from llm4ad.base import Evaluation


class Chooses(Evaluation):
    def __init__(self):
        super().__init__(template_program="def f(left, room):\\n    return max(left)\\n")

    def evaluate_program(self, program_str, callable_func):
        left = [(1, 2), (3, 4)]
        left.remove(callable_func(left, room=3))
        return float(sum(left[0]))
"""


def test_llm4ad_a_function_gives_back_what_the_evaluator_finds_among_its_own(
    tmp_path: Path,
) -> None:
    """A tuple stays a tuple on both ways, and arguments may have names."""
    need("namespaces")
    place = tmp_path / "llm4ad" / "task" / "optimization" / "chooses"
    place.mkdir(parents=True)
    (place / "evaluation.py").write_text(CHOOSES)
    found = llm4ad.import_design(place, tmp_path / "out", tmp_path)
    assert (found.error, found.score) == ("", 3.0)
    task = load(tmp_path / "out")
    start = task.initial_candidates()[0].parts["program.py"]
    one = evaluate(task, {"start": start})["start"]
    assert (one.status, one.score) == (Status.OK, 3.0), one.feedback


WANTS = """
from llm4ad.base import Evaluation


class Wants(Evaluation):
    def __init__(self, **settings):
        super().__init__(template_program="def f(x):\\n    return x\\n")
        self.names = settings.get("instances").keys()
"""
BROKEN = """
from llm4ad.base import Evaluation


class Broken(Evaluation):
    def __init__(self):
        super().__init__(template_program="def f(xs):\\n    return x[0]\\n")

    def evaluate_program(self, program_str, callable_func):
        return callable_func([1.0])
"""
SLOW = """
import time

print("Network error: retrying")
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (WANTS, "Wants cannot be made without arguments: AttributeError: 'NoneType'"),
        (BROKEN, "the template's own function f raises NameError: name 'x' is not defined"),
        (SLOW, "no answer within 5 s; the last that it printed: Network error: retrying"),
    ],
)
def test_llm4ad_failures_have_their_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cause: str
) -> None:
    monkeypatch.setattr(importing, "PROBE_SECONDS", 5.0)
    place = tmp_path / "llm4ad" / "task" / "optimization" / "one"
    place.mkdir(parents=True)
    (place / "evaluation.py").write_text(text)
    found = llm4ad.import_design(place, tmp_path / "out", tmp_path)
    assert cause in found.error and not found.folder


CATCHING = """
import numpy as np

from llm4ad.base import Evaluation


class Catching(Evaluation):
    def __init__(self):
        super().__init__(template_program="def f(x):\\n    return 1 / x\\n")

    def evaluate_program(self, program_str, callable_func):
        try:
            return callable_func(0)
        except ZeroDivisionError:
            return 1.0
        except (KeyError, np.linalg.LinAlgError):
            return 2.0
        except ValueError as error:
            return 3.0 if str(error) == "two\\nlines: of it" else 0.0
"""


def test_llm4ad_an_evaluator_catches_what_the_function_raises(tmp_path: Path) -> None:
    need("namespaces")
    place = tmp_path / "llm4ad" / "task" / "optimization" / "one"
    place.mkdir(parents=True)
    (place / "evaluation.py").write_text(CATCHING)
    (tmp_path / "LICENSE").write_text("free")
    found = llm4ad.import_design(place, tmp_path / "out", tmp_path)
    assert found.score == 1.0
    bodies = {
        "zero": "1 / x",
        "key": "{}[x]",
        "inverse": "__import__('numpy').linalg.inv([[0.0]])",
        "text": "(_ for _ in ()).throw(ValueError('two\\nlines: of it'))",
        "other": "[][x]",
    }
    programs = {name: f"def f(x):\n    return {body}\n" for name, body in bodies.items()}
    seen = evaluate(load(tmp_path / "out"), programs)
    assert [seen[name].score for name in bodies] == [1.0, 2.0, 2.0, 3.0, None]
    assert seen["other"].status is Status.ERROR and "IndexError" in seen["other"].feedback
