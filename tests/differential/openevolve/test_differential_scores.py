"""Fitness, cascades and calls of evaluators beside those of the package `openevolve`."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from culmen.core.candidate import Candidate
from culmen.extensions.compat.openevolve import evaluator_process, folder, scoring
from culmen.jail.evaluation import build_request
from culmen.jail.plain import load_file

theirs = pytest.importorskip("openevolve.evaluator", reason="python -m tests.differential")
metrics_utils = pytest.importorskip("openevolve.utils.metrics_utils")
evaluation_result = pytest.importorskip("openevolve.evaluation_result")
configs = pytest.importorskip("openevolve.config")
np = pytest.importorskip("numpy")

pytestmark = pytest.mark.timeout(1800)

logging.disable(logging.CRITICAL)  # the package logs every evaluation

NAMES = ("combined_score", "accuracy", "error", "complexity", "diversity", "score", "timeout")
NUMBERS = st.one_of(
    st.floats(0, 1),
    st.floats(),
    st.integers(-3, 3),
    st.sampled_from([1e308, True, False]),
)
HUGE = st.sampled_from([10**400, -(10**400)])  # of these the package's log fails an evaluation
ODD = st.one_of(
    st.none(),
    st.sampled_from(["0.9", " 1e3 ", "1_0", "inf", "nan", "bad", "", b"0.5", [1.0], {}]),
    st.floats(0, 1, width=32).map(np.float64),
    st.floats(0, 1, width=32).map(np.float32),
    st.integers(0, 3).map(np.int64),
)
METRICS = st.dictionaries(st.sampled_from(NAMES), st.one_of(NUMBERS, NUMBERS, ODD), max_size=5)
FEATURES = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)


def outcome(function: Any, *args: Any) -> Any:
    """The result, or the name of the error."""
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - both sides may raise anything
        return type(error).__name__


def same(one: Any, other: Any) -> bool:
    """True for equal values of one type, NaN among them."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


@settings(max_examples=1000, deadline=None)
@given(
    metrics=st.dictionaries(st.sampled_from(NAMES), NUMBERS | ODD | HUGE, max_size=5),
    features=FEATURES,
)
def test_fitness_is_theirs_and_nothing_where_they_have_no_number(
    metrics: dict[str, Any], features: list[str]
) -> None:
    package = outcome(metrics_utils.get_fitness_score, metrics, features)
    own = outcome(scoring.fitness, metrics, features)
    assert same(own, package) or (own is None and package == 0.0)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tasks."""
    return tmp_path_factory.mktemp("tasks")


def task_folder(places: Path, stages: set[int]) -> Path:
    """A folder whose evaluator has these stages, and answers with the case at hand.

    One for all cases with these stages: a file that changes within a second may be read as it was.
    """
    place = places / "".join(["stages", *map(str, sorted(stages))])
    if not place.exists():
        place.mkdir()
        lines = [
            "import case_at_hand",
            "def evaluate(path, **arguments): return case_at_hand.answer(0, arguments)",
            *(
                f"def evaluate_stage{n}(path): return case_at_hand.answer({n}, {{}})"
                for n in stages
            ),
        ]
        (place / "evaluator.py").write_text("\n".join(lines) + "\n")
        (place / "initial_program.py").write_text("x = 1\n")
    return place


FAILURES = st.sampled_from([ValueError("broken"), KeyError("k"), TimeoutError("slow")])
RESULTS = st.one_of(
    METRICS,
    METRICS,
    METRICS,
    FAILURES,
    st.builds(
        lambda metrics, artifacts: evaluation_result.EvaluationResult(metrics, artifacts),
        METRICS,
        st.dictionaries(st.sampled_from(["log", "failure_stage"]), st.text(max_size=5)),
    ),
)


class CaseAtHand(ModuleType):
    """The module that the evaluator file asks for its answers, which are those of one case."""

    results: dict[int, Any]
    calls: list[int]

    def answer(self, number: int, arguments: dict[str, Any]) -> Any:
        """The result of a function; 0 is `evaluate`."""
        self.calls.append(number)
        result = self.results[number]
        if isinstance(result, Exception):
            raise type(result)(*result.args)
        if isinstance(result, dict):
            return {**result, **{f"got_{key}": value for key, value in arguments.items()}}
        return evaluation_result.EvaluationResult(dict(result.metrics), dict(result.artifacts))


@settings(max_examples=400, deadline=None)
@given(
    results=st.lists(RESULTS, min_size=5, max_size=5),
    stages=st.sets(st.integers(1, 4)),
    thresholds=st.lists(st.floats(-1, 2), min_size=1, max_size=4),
    cascade=st.sampled_from([True, True, True, False]),
    arguments=st.dictionaries(st.sampled_from(["n", "m"]), st.integers(0, 3)),
    retries=st.sampled_from([0, 0, 1]),
)
def test_metrics_artifacts_and_calls_of_a_whole_evaluation_are_theirs(
    places: Path,
    results: list[Any],
    stages: set[int],
    thresholds: list[float],
    cascade: bool,
    arguments: dict[str, int],
    retries: int,
) -> None:
    case = CaseAtHand("case_at_hand")
    case.results = dict(enumerate(results))
    place = task_folder(places, stages)
    sys.modules["case_at_hand"] = case
    chosen: dict[str, Any] = {
        "cascade_evaluation": cascade,
        "cascade_thresholds": thresholds,
        "evaluator_args": arguments,
        "max_retries": retries,
    }
    case.calls = []
    package = asyncio.run(_package_answer(place, chosen))
    their_calls, case.calls = case.calls, []
    own = outcome(_own_answer, place, chosen)
    assert case.calls == their_calls
    if not isinstance(own, tuple):  # on purpose: an evaluation that fails has no score
        assert package[0].keys() <= {"stage1_passed", "error", "timeout"}
        assert metrics_utils.get_fitness_score(package[0]) == 0.0
        return
    metrics, artifacts, score = own
    assert same(metrics, package[0])
    if metrics.get("timeout") is not True:  # then the package adds words of its own
        volatile = {name for name in artifacts if name.endswith("_traceback")}
        assert artifacts.keys() == package[1].keys()
        assert all(artifacts[name] == package[1][name] for name in artifacts.keys() - volatile)
    theirs_score = outcome(metrics_utils.get_fitness_score, package[0], ["complexity", "diversity"])
    assert same(score, theirs_score) or theirs_score == 0.0


async def _package_answer(place: Path, chosen: dict[str, Any]) -> tuple[Any, Any]:
    """Metrics and artifacts as the package has them."""
    sys.modules.pop("evaluation_module", None)
    found = theirs.Evaluator(configs.EvaluatorConfig(**chosen), str(place / "evaluator.py"))
    metrics = await found.evaluate_program("x = 1\n", "one")
    found._executor.shutdown()
    return metrics, found.get_pending_artifacts("one") or {}


def _own_answer(place: Path, chosen: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Metrics, artifacts and score as the adapter has them, from the folder's config.yaml on."""
    import yaml

    (place / "config.yaml").write_text(yaml.safe_dump({"evaluator": chosen}))
    task = folder.read_folder(place)
    request = build_request(task, "legacy", Candidate.of({"initial_program.py": "x = 1\n"}), None)
    module = load_file(str(place / "evaluator.py"), "evaluator_of_a_folder")
    sys.modules.pop(module.__name__, None)
    answer, added = evaluator_process.evaluate_program(module, "program.py", request)
    metrics = {**answer[0], **added[0]}
    score = evaluator_process.combined_fitness(metrics, request["features"])
    return metrics, {**answer[1], **added[1]}, score
