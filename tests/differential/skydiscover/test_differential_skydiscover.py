"""Fitness and cascades beside those of the package `skydiscover`."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.extensions.compat.openevolve import evaluator_process, folder, scoring
from culmen.jail.evaluation import build_request
from culmen.jail.plain import load_file
from tests.differential.comparing import answer_or_error, inputs, same

theirs = pytest.importorskip("skydiscover.evaluation.evaluator", reason="tests.differential")
metrics_utils = pytest.importorskip("skydiscover.utils.metrics_utils")
configs = pytest.importorskip("skydiscover.config")

logging.disable(logging.CRITICAL)  # the package logs every evaluation

NAMES = ("combined_score", "accuracy", "error", "complexity", "diversity", "timeout")
VALUES = st.one_of(
    st.floats(0, 1),
    st.floats(),
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([None, "0.9", " 1e3 ", "nan", "bad", "", [1.0], {}, 1e308]),
)
METRICS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5)
FAILURES = st.sampled_from([ValueError("broken"), KeyError("k"), TimeoutError("slow")])


def comparable(score: object) -> object:
    """A score that counts here; one without a number or an order is compared as 0."""
    return score if isinstance(score, float | int) and math.isfinite(score) else 0.0


@inputs(1500)
@given(METRICS)
def test_fitness(metrics: dict[str, Any]) -> None:
    package = answer_or_error(lambda: metrics_utils.get_fitness_score(metrics))
    own = answer_or_error(lambda: scoring.fitness(metrics, (), flags=True))
    same("fitness", comparable(package), comparable(own), metrics)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tasks."""
    return tmp_path_factory.mktemp("tasks")


def task_folder(places: Path, stages: set[int]) -> Path:
    """A folder whose evaluator has these stages, and answers with the case at hand."""
    place = places / "".join(["stages", *map(str, sorted(stages))])
    if not place.exists():
        (place / "evaluator").mkdir(parents=True)
        functions = [
            "import case_at_hand",
            "def evaluate(path): return case_at_hand.answer(0)",
            *(f"def evaluate_stage{n}(path): return case_at_hand.answer({n})" for n in stages),
        ]
        (place / "evaluator" / "evaluator.py").write_text("\n".join(functions) + "\n")
        (place / "initial_program.py").write_text("x = 1\n")
    return place


@inputs(800)
@given(
    results=st.lists(st.one_of(METRICS, METRICS, FAILURES), min_size=4, max_size=4),
    stages=st.sets(st.integers(1, 3)),
    thresholds=st.lists(st.floats(-1, 2), min_size=1, max_size=3),
    cascade=st.sampled_from([True, True, True, False]),
)
def test_calls_metrics_and_score_of_a_whole_evaluation(
    places: Path,
    results: list[Any],
    stages: set[int],
    thresholds: list[float],
    cascade: bool,
) -> None:
    calls: list[int] = []

    def answer(number: int) -> Any:
        calls.append(number)
        result = results[number]
        if isinstance(result, Exception):
            raise type(result)(*result.args)
        return dict(result)

    case = sys.modules["case_at_hand"] = types.ModuleType("case_at_hand")
    case.__dict__["answer"] = answer
    place = task_folder(places, stages)
    chosen: dict[str, Any] = {
        "cascade_evaluation": cascade,
        "cascade_thresholds": thresholds,
        "max_retries": 0,
    }
    found = theirs.Evaluator(
        configs.EvaluatorConfig(**chosen), str(place / "evaluator" / "evaluator.py")
    )
    package = asyncio.run(found.evaluate_program("x = 1\n", "one")).metrics
    their_calls, calls[:] = [*calls], []
    own = answer_or_error(lambda: own_answer(place, chosen))
    same("evaluations: calls", their_calls, calls, results)
    if not isinstance(own, tuple):  # on purpose: an evaluation that fails has no score
        assert package.keys() <= {"stage1_passed", "error", "timeout"}, (package, own)
        return
    metrics, score = own
    same("evaluations: metrics", package, metrics, results)
    theirs_score = answer_or_error(lambda: metrics_utils.get_fitness_score(package))
    same("evaluations: score", comparable(theirs_score), comparable(score), results)


def own_answer(place: Path, chosen: dict[str, Any]) -> tuple[Any, Any]:
    """Metrics and score as the adapter has them, from the folder's config.yaml on."""
    import yaml

    (place / "config.yaml").write_text(yaml.safe_dump({"evaluator": chosen}))
    task = folder.read_folder(place)
    request = build_request(task, "legacy", Candidate.of({"initial_program.py": "x = 1\n"}), None)
    module = load_file(task.evaluator.path, "evaluator_of_a_folder")
    sys.modules.pop(module.__name__, None)
    answer, added = evaluator_process.evaluate_program(module, "program.py", request)
    metrics = {**answer[0], **added[0]}
    return metrics, evaluator_process._score_of(metrics, request)
