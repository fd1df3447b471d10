"""The scorer in a box of its own.

Outputs that grow when they are judged end as rejected, and spoil nothing else.
"""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest

from culmen.core.evaluation import Status
from tests.evaluate.conftest import LIMITS, Grounds

SMALL = msgspec.structs.replace(
    LIMITS, scorer_memory_mb=256, scorer_seconds=2.0, seconds=6.0, memory_mb=512
)
JUDGE = """
import resource
import numpy as np

def score(output):
    if isinstance(output, dict):
        output = GROW[output["how"]](output["n"])
    array = np.asarray(output, dtype=float)
    gram = array @ array.T
    return {"score": float(gram.shape[0]), "metrics": {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}}

GROW = {
    "ones": lambda n: np.ones(n).sum() * np.eye(2),
    "list": lambda n: [[float(i)] for i in range(n)],
    "text": lambda n: [[float(len(("x" * n) + "y"))]],
    "square": lambda n: np.ones((n, 1)) @ np.ones((1, n)),
    "power": lambda n: [[float(len(bin(1 << n)))]],
    "bytes": lambda n: [[float(len(bytes(n)))]],
    "repeat": lambda n: [[1.0] * n],
    "dict": lambda n: [[float(len({i: [i] for i in range(n)}))]],
    "children": lambda n: [[float(sum(__import__("subprocess").run(
        ["python3", "-c", f"x = bytearray({n}); print(len(x))"], capture_output=True).returncode for _ in range(2)))]],
    "swallowed": lambda n: swallow(n),
}

def swallow(n):
    try:
        return [[float(np.ones(n).sum())]]
    except MemoryError:
        return [[0.0]]
"""
RUN = "import numpy as np\ndef run():\n    return {}\n"
EMPTY = [
    "np.zeros((0, 2**27))",
    "np.zeros((2**27, 0))",
    "np.zeros((0, 2**20, 2**10))",
    "np.zeros((2**30, 0, 2**20))",
]
HOWS = (
    "ones",
    "list",
    "text",
    "square",
    "power",
    "bytes",
    "repeat",
    "dict",
    "children",
    "swallowed",
)
SIZES = (10, 10**3, 10**5, 3 * 10**7, 10**8, 10**9, 10**10, 10**12, 2**62, 10**30)


@pytest.fixture
def judged(shared: Grounds):
    return shared(JUDGE, "restricted", limits=SMALL, workers=2)


def test_an_array_without_elements_is_held_to_the_output_limit(judged) -> None:
    for output in EMPTY:
        (observation,) = judged.evaluate(RUN.format(output))
        assert (observation.status, observation.reason) == (Status.REJECTED, "output_limit"), (
            observation
        )
    fine = judged.one(RUN.format("np.zeros((3, 0))"))
    assert fine.score == 3.0


def test_what_an_output_grows_into_is_held_to_the_scorers_memory(judged) -> None:
    (grown,) = judged.evaluate(RUN.format("np.zeros((2**14, 0))"))
    assert (grown.status, grown.reason) == (Status.REJECTED, "memory_limit"), grown
    assert "scorer_memory_mb" in grown.feedback
    honest = judged.one(RUN.format("np.ones((5, 2))"))
    assert honest.score == 5.0 and honest.metrics["peak"] < (256 + 300) * 1024


@pytest.mark.slow
def test_none_of_a_hundred_hostile_outputs_is_lost(judged) -> None:
    programs = [RUN.format({"how": how, "n": n}) for how, n in itertools.product(HOWS, SIZES)]
    assert len(programs) == 100
    ended = Counter((each.status, each.reason) for each in judged.evaluate(*programs))
    assert not [end for end in ended if end[0] is Status.LOST], ended
    assert ended[Status.REJECTED, "memory_limit"] > 20 and ended[Status.OK, ""] > 20, ended
    assert judged.one(RUN.format("np.ones((5, 2))")).score == 5.0


def test_a_scorer_that_loses_memory_is_replaced_and_no_candidate_pays_for_it(
    shared: Grounds,
) -> None:
    leaky = "KEPT = []\ndef score(output):\n    KEPT.append(bytearray(60 << 20))\n    return float(len(KEPT))\n"
    ground = shared(leaky, "restricted", limits=SMALL, workers=1)
    scores = [ground.one(f"def run():\n    return {i}\n").score for i in range(10)]
    assert None not in scores and scores[0] == 1.0 and scores.count(1.0) > 1


@pytest.mark.parametrize("form", ["serve", "command"])
def test_the_other_forms(form: str, shared: Grounds) -> None:
    source = {
        "serve": "def score(call):\n    return float(len(bytes(call(1))))\n",
        "command": "def score(output):\n    return float(len(bytes(int(output))))\n",
    }[form]
    program = "def run(x=0):\n    return {0}\n\nif __name__ == '__main__':\n    print(run())\n"
    command = ("python", "{program.py}")
    ground = shared(
        source, "restricted", limits=SMALL, workers=1, form=form, entry="run", command=command
    )
    assert ground.one(program.format(9)).score == 9.0
    hostile = ground.one(program.format(10**9))
    assert (hostile.status, hostile.reason) == (Status.REJECTED, "memory_limit")
    assert ground.one(program.format(9)).score == 9.0
