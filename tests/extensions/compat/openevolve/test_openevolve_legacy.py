"""Evaluators in the style of OpenEvolve, whole inside the jail.

Those that read the program's text are beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from culmen.core.evaluation import Status
from tests.evaluate.conftest import LIMITS, Ground, Grounds

pytestmark = pytest.mark.jail
Make = Callable[..., Ground]


@pytest.fixture
def ground(shared: Grounds) -> Grounds:
    return shared


@pytest.mark.parametrize(
    ("body", "score"),
    [
        ("return {'combined_score': 2.0, 'a': 9.0}", 2.0),
        ("return {'a': 1.0, 'b': 3.0, 'ok': True, 'bad': float('nan'), 'text': 'x'}", 2.0),
        ("return 4.5", 4.5),
        ("return EvaluationResult(metrics={'combined_score': 5}, artifacts={'x': b'y'})", 5.0),
        ("return __import__('numpy').float64(1.25)", 1.25),
        ("return {'combined_score': -3.0, 'error': 'late'}", -3.0),
        ("return {'combined_score': '0.9', 'speed': 0.1}", 0.9),
        ("return {'combined_score': None, 'speed': 0.1}", 0.1),
        ("return {'combined_score': True, 'speed': 0.1}", 1.0),
        ("return {'error': 0.0, 'timeout_hit': True}", 0.0),
    ],
)
def test_results(ground: Make, body: str, score: float) -> None:
    source = f"from openevolve.evaluation_result import EvaluationResult\ndef evaluate(path):\n    {body}\n"
    observation = ground(source, form="legacy").one("x = 1")
    assert observation.score == score and observation.trust != "verified"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("raise ValueError('broken')", Status.ERROR, "exception"),
        ("return {'error': 'nothing'}", Status.INVALID, "score_missing"),
        ("return {'combined_score': None}", Status.INVALID, "score_missing"),
        ("return {'combined_score': float('nan')}", Status.INVALID, "score_nan"),
        ("return {'combined_score': 'high'}", Status.INVALID, "score_not_a_number"),
        ("while True: pass", Status.TIMEOUT, "timeout"),
    ],
)
def test_failures_are_never_zero(ground: Make, body: str, status: Status, reason: str) -> None:
    observation = ground(f"def evaluate(path):\n    {body}\n", form="legacy").one("x = 1")
    assert (observation.status, observation.reason, observation.score) == (status, reason, None)


def test_coroutines_siblings_and_the_path_of_the_program(ground: Make) -> None:
    source = (
        "import os, sibling\n"
        "async def evaluate(path):\n"
        "    stem, suffix = os.path.splitext(os.path.basename(path))\n"
        "    assert stem.isidentifier() and suffix == '.rs' and os.access(os.path.dirname(path), os.W_OK)\n"
        "    return float(open(path).read()) + sibling.BONUS\n"
    )
    assert (
        ground(source, form="legacy", suffix=".rs", beside={"sibling.py": "BONUS = 2.0"})
        .one("40")
        .score
        == 42.0
    )


def test_pickles_and_processes_inside(ground: Make) -> None:
    source = (
        "import multiprocessing, os, pickle, subprocess, sys, tempfile\n"
        "class Answer:\n    def __init__(self, value): self.value = value\n"
        "def work(path, queue):\n    queue.put(Answer(float(open(path).read())))\n"
        "def evaluate(path):\n"
        "    queue = multiprocessing.Queue()\n"
        "    process = multiprocessing.Process(target=work, args=(path, queue))\n"
        "    process.start(); answer = queue.get(timeout=5); process.join()\n"
        "    with tempfile.NamedTemporaryFile(suffix='.pkl') as out:\n"
        "        code = f\"import pickle; pickle.dump({{'v': 1.0}}, open({out.name!r}, 'wb'))\"\n"
        "        subprocess.run([sys.executable, '-c', code], check=True, timeout=10)\n"
        "        return {'combined_score': answer.value + pickle.load(open(out.name, 'rb'))['v']}\n"
    )
    limits = msgspec.structs.replace(LIMITS, seconds=20.0, memory_mb=512)
    assert ground(source, form="legacy", proxy="never", limits=limits).one("2.0").score == 3.0


CASCADE = """
def evaluate(path): raise AssertionError("not in a cascade")
def evaluate_stage1(path): return {"combined_score": float(open(path).read()), "one": 1.0}
def evaluate_stage2(path): return {"combined_score": 0.7, "two": 2.0, "error": "x"}
def evaluate_stage3(path): raise RuntimeError("third stage")
"""


@pytest.mark.parametrize(
    ("program", "score", "metrics"),
    [("0.1", 0.1, {"one"}), ("0.6", 0.7, {"one", "two"}), ("nan", None, {"one"})],
)
def test_cascades_stop_below_their_threshold(
    ground: Make, program: str, score: float | None, metrics: set[str]
) -> None:
    arena = ground(CASCADE, form="legacy", proxy="never", thresholds=(0.5, 0.9))
    observation = arena.one(program)
    assert observation.score == score and set(observation.metrics) - {"combined_score"} == metrics


STAGES = {
    "the gate looks at all metrics so far": (
        ["{'combined_score': 0.6}", "{'accuracy': 0.95}", "{'combined_score': 1.0}"],
        0.6,
    ),
    "a stage that breaks counts": (["{'accuracy': 0.8}", "1 / 0"], 0.4),
    "an error is no metric at the gate": (
        ["{'accuracy': 0.8, 'error': 0.0}", "{'combined_score': 0.7}"],
        0.7,
    ),
    "merging drops texts": (
        ["{'accuracy': 0.8}", "{'combined_score': '0.7', 'note': 'x'}"],
        0.8,
    ),
    "a flag does not open a gate": (["{'accuracy': 0.2, 'ok': True}", "{'accuracy': 0.9}"], 0.2),
    "a stage of another kind breaks": (["{'accuracy': 0.8}", None], 0.4),
    "there is no fourth stage": (["{'combined_score': 1.0}"] * 3 + ["1 / 0"], 1.0),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_count_as_in_openevolve(ground: Make, name: str) -> None:
    stages, score = STAGES[name]
    lines = [
        f"def evaluate_stage{n}(path): return {each}" if each else f"evaluate_stage{n} = None"
        for n, each in enumerate(stages, 1)
    ]
    source = "\n".join(["def evaluate(path): return {}", *lines, ""])
    arena = ground(source, form="legacy", proxy="never", thresholds=(0.5, 0.75))
    assert arena.one("x = 1").score == pytest.approx(score)


def test_a_stage_that_is_too_slow_counts_as_failed(ground: Make) -> None:
    source = (
        "import time\n"
        "def evaluate(path): return {}\n"
        "def evaluate_stage1(path): return {'accuracy': 0.8}\n"
        "def evaluate_stage2(path): time.sleep(1.6); return {'accuracy': 1.0}\n"
    )
    observation = ground(source, form="legacy", proxy="never", thresholds=(0.5,)).one("x = 1")
    assert observation.score == pytest.approx(0.4)
    assert observation.artifacts["stage2_timeout"] == "True"


def test_an_evaluation_that_raises_is_tried_again(ground: Make) -> None:
    source = (
        "tries = []\n"
        "def evaluate(path, *, least):\n"
        "    tries.append(path)\n"
        "    if len(tries) < least: raise ValueError(f'try {len(tries)}')\n"
        "    return {'combined_score': len(tries)}\n"
    )
    for retries, score in ((2, 3.0), (1, None)):
        options = {"arguments": {"least": 3}, "retries": retries}
        found = ground(source, form="legacy", proxy="never", options=options).one("x = 1")
        assert found.score == score
        assert (found.status is Status.ERROR) == (score is None)


def test_a_failing_later_stage_leaves_its_trace(ground: Make) -> None:
    observation = ground(CASCADE, form="legacy", proxy="never", thresholds=(0.5, 0.6)).one("0.6")
    assert observation.score == 0.7 and "third stage" in observation.artifacts["stage3_traceback"]
