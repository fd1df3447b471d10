"""inspect_ai's tasks as evaluators.

Parameters are candidates, samples are cases, its scorer's score is the score.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

import culmen
from culmen.core.candidate import Candidate
from culmen.core.errors import UserError
from culmen.core.evaluation import Case, Observation, Status
from culmen.evaluate.local import LocalBackend
from culmen.tasks import load

pytest.importorskip("inspect_ai")
pytestmark = pytest.mark.timeout(600)  # the first evaluation of a process loads much
TASK = '''
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, includes, mean, scorer
from inspect_ai.solver import generate, system_message

SAMPLES = [Sample(input="1+1?", target="2", id="easy"), Sample(input="20+3?", target="23", id="hard"),
           Sample(input="5+5?", target="10", metadata={"split": "test"})]

class APIConnectionError(Exception):
    """As a provider's client has it."""

def answer(input, tools, tool_choice, config):
    """A model that adds if it is told to, and has no service where it is told that."""
    told, asked = input[0].text, input[-1].text.rstrip("?")
    if "away" in told:
        raise APIConnectionError("no route")
    if "bug" in told:
        raise ValueError("a bug of the solver")
    output = ModelOutput.from_content("mockllm/model", str(eval(asked)) if "add" in told else "no idea")
    output.usage = ModelUsage(input_tokens=3, output_tokens=1, total_tokens=4)
    return output

MODEL = get_model("mockllm/model", custom_outputs=answer)

@task
def arithmetic(system: str = "You are terse.", limit: int = 3):
    return Task(dataset=SAMPLES[:limit], solver=[system_message(system), generate()], scorer=includes())

@scorer(metrics={"*": [mean()]})
def graded():
    async def score(state, target):
        right = target.text in state.output.completion
        return Score(value={"right": float(right), "length": len(state.output.completion)}, explanation="graded so")
    return score

@task
def grades(system: str = "add"):
    return Task(dataset=SAMPLES[:1], solver=[system_message(system), generate()], scorer=graded())

LEFT = []

@scorer(metrics=[accuracy()])
def listed():
    async def score(state, target):
        value = LEFT.pop(0)
        return None if value is None else Score(value=value)
    return score

@task
def epochs(system: str = "add", reducer: object = None, samples: int = 1):
    return Task(dataset=SAMPLES[:samples], solver=[system_message(system), generate()], scorer=listed(), epochs=reducer)

@task
def fixed(limit: int = 3):
    return Task(dataset=SAMPLES, solver=[generate()], scorer=includes())
'''
EVALUATOR = """
from culmen import InspectEvaluator
from arithmetic import MODEL, arithmetic

score = InspectEvaluator(arithmetic, MODEL).score
"""
TOML = """
goal = "The system prompt of a model that adds."
cases = "cases.jsonl"
[seed.parts]
system = "You are terse."
[evaluator]
entry = ""
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "arithmetic.py").write_text(TASK)
    return tmp_path


def evaluator(place: Path, name: str = "arithmetic", **more: object) -> culmen.InspectEvaluator:
    made = culmen.InspectEvaluator(f"{place / 'arithmetic.py'}@{name}", None, **more)  # type: ignore[arg-type]
    made._model = sys.modules[made._task.__module__].MODEL
    return made


def test_parameters_are_the_candidate_and_samples_the_cases(place: Path) -> None:
    made = evaluator(place)
    assert made.initial == {"system": "You are terse."}
    assert [(c.id, c.input, c.split) for c in made.cases] == [
        ("easy", "1+1?", "train"),
        ("hard", "20+3?", "train"),
        ("3", "5+5?", "test"),
    ]
    told = made({"system": "Please add."}, made.cases[1])
    assert told["score"] == 1.0 and told["metrics"] == {
        "includes": 1.0,
        "input_tokens": 3.0,
        "output_tokens": 1.0,
    }
    assert "20+3?" in told["feedback"] and "answer: 23" in told["feedback"]
    assert made("no idea of it", made.cases[0])["score"] == 0.0
    assert made("add")["score"] == 1.0  # without a case: all samples


def test_values_that_are_dicts_and_what_is_missing(place: Path) -> None:
    assert evaluator(place, "grades", key="length")("add")["score"] == 1.0
    told = evaluator(place, "grades", key="right")("add")
    assert told["metrics"]["graded.length"] == 1.0 and "graded so" in told["feedback"]
    with pytest.raises(
        Exception, match=r"no score 'graded'.*graded.right, graded.length.*key=NAME"
    ):
        evaluator(place, "grades")("add")
    with pytest.raises(UserError, match="no text parameter"):
        evaluator(place, "fixed")
    with pytest.raises(UserError, match=r"FILE\.py@NAME"):
        culmen.InspectEvaluator(str(place / "arithmetic.py"), None)
    with pytest.raises(UserError, match="defines no task 'other'"):
        evaluator(place, "other")


@pytest.mark.parametrize(
    ("values", "reducer", "score"),
    [
        (["I", "C", "I", "I"], ("max",), 1.0),
        (["C", "C", "I", "I"], ("pass_at_2",), 5 / 6),
        (["I", "C", "I", "I"], ("mode",), 0.0),
        ([float("nan"), 1], None, 1.0),
        ([None, 1], None, 1.0),
    ],
)
def test_epochs_and_unscored_samples_count_as_in_inspect(
    place: Path, values: list[object], reducer: tuple[str] | None, score: float
) -> None:
    from inspect_ai import Epochs

    how = Epochs(4, reducer[0]) if reducer else None
    arguments = {"reducer": how, "samples": 1 if how else 2}
    made = evaluator(place, "epochs", arguments=arguments, max_samples=1)
    left = sys.modules[made._task.__module__].LEFT
    left[:] = values
    assert made("add")["score"] == pytest.approx(score)


def test_a_sample_without_a_score_is_a_failure_in_words(place: Path) -> None:
    made = evaluator(place, "epochs", arguments={"samples": 1})
    sys.modules[made._task.__module__].LEFT[:] = [float("nan")]
    with pytest.raises(Exception, match="unscored"):
        made("add")


METRICS = """
from inspect_ai.scorer import grouped, metric, std, stderr

@metric
def lengths():
    return lambda scores: sum(len(each.value) for each in scores) / len(scores)

@metric(scores="unreduced")
def count():
    return lambda scores: float(len(scores))

def rated(name, metrics, values):
    @scorer(metrics=metrics, name=name)
    def rate():
        async def score(state, target):
            value = values[state.epoch - 1]
            return None if value is None else Score(value=value)
        return score
    return rate()

def asked(samples, **more):
    @task
    def rates(system: str = "add"):
        return Task(dataset=samples, solver=[system_message(system), generate()], **more)
    return rates

TWO = [Sample(input="1+1?", target="2", metadata={"group": name}) for name in ("std", "b")]
several_spreads = asked(TWO, scorer=rated("r", [stderr(), stderr(cluster="group"), mean()], ["C"]))
empty_second = asked(TWO, scorer=[rated("r", [mean()], ["C"]), rated("none", [mean()], [None])])
dotted = asked(TWO, scorer=rated("gpt-4.1", [mean()], ["C"]))
lists = asked(TWO, scorer=rated("r", [lengths()], [[1, 2, 3]]))
dicts = asked(TWO, scorer=rated("r", [lengths()], [{"a": 1, "b": "x"}]))
groups = asked(TWO, scorer=rated("r", [grouped(mean(), "group", all=False), std()], [1]))
no_majority = asked(TWO, scorer=rated("r", [count(), mean()], ["C", "I"]), epochs=Epochs(2, "majority"))
same_ids = asked([Sample(input="1+1?", target="2", id=2), Sample(input="1+1?", target="2")], scorer=includes())
fails_at_the_end = asked([*TWO, Sample(input="bug", target="")], scorer=includes(), continue_on_fail=True)
fails_with_scores = asked([Sample(input="bug", target="x")], scorer=includes(), score_on_error=True)
"""


def metrics_task(place: Path, name: str, **more: object) -> culmen.InspectEvaluator:
    text = TASK.replace("import Task, task", "import Epochs, Task, task")
    (place / "arithmetic.py").write_text(text + METRICS)
    return evaluator(place, name, **more)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("several_spreads", 1.0),
        ("empty_second", 1.0),
        ("dotted", 1.0),
        ("lists", 3.0),
        ("dicts", 2.0),
        ("groups", 1.0),
        ("fails_with_scores", 0.0),
    ],
)
def test_metrics_of_every_shape_give_the_package_figure(
    place: Path, name: str, score: float
) -> None:
    told = metrics_task(place, name)("add")
    assert told["score"] == score
    assert ("error: " in told["feedback"]) == (name == "fails_with_scores")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("no_majority", {}, "unscored"),
        ("same_ids", {}, "2 samples 2"),
        ("dotted", {"limit": 1}, "choose samples"),
        ("fails_at_the_end", {}, "invalid syntax|not defined|SyntaxError|NameError"),
    ],
)
def test_what_has_no_figure_for_a_case_is_a_failure_in_words(
    place: Path, name: str, options: dict[str, object], words: str
) -> None:
    made = metrics_task(place, name, **options)
    case = Case("2", "") if name in ("same_ids", "dotted") else None
    with pytest.raises(Exception, match=words):
        made("add", case)


def written(place: Path) -> Path:
    """The folder of a task around it, its cases as the module prints them."""
    command = [
        sys.executable,
        "-m",
        "culmen.extensions.compat.inspect_task",
        "arithmetic.py@arithmetic",
    ]
    printed = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed.splitlines()[2]) == {"id": "3", "input": "5+5?", "split": "test"}
    (place / "cases.jsonl").write_text(printed)
    (place / "evaluator.py").write_text(EVALUATOR)
    (place / "task.toml").write_text(TOML)
    return place


def test_a_folder_is_scored_in_the_scorers_process(place: Path) -> None:
    task = load(written(place))

    async def work() -> list[Observation]:
        backend = LocalBackend(task, 1)
        try:
            await backend.start()
            texts = [task.seeds[0]["system"], "Please add.", "away", "bug"]
            return [
                await backend.evaluate(Candidate.of({"system": text}), task.cases[0], 0)
                for text in texts
            ]
        finally:
            await backend.close()

    first, better, away, bug = asyncio.run(work())
    assert (first.score, better.score, better.trust) == (0.0, 1.0, "verified"), first
    assert (away.status, away.reason) == (Status.LOST, "provider_away"), away
    assert bug.status is Status.INVALID and "a bug of the solver" in bug.feedback
