"""Each idiom on a small program: what is written into it, and that it does what it says when run."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from culmen.proposers.edits import wrapping
from culmen.proposers.edits.expressions import bounds, cheaper
from culmen.proposers.edits.source import IDIOMS, Edit, Source, valid
from culmen.proposers.edits.wrapping import effort, method, refine, restart, template

ROUTE = """import numpy as np

def start():
    return np.array([3.0, -2.0, 4.0])

def height(point):
    return -((point - 1.0) ** 2)

def run():
    return float(np.sum(height(start())))
"""
INLINE = """def run():
    x = [3.0, -2.0]
    y = [-(x[0] - 1) ** 2, -(x[1] - 1) ** 2]
    return sum(y)
"""


def children(operator: object, text: str, seeds: range, **settings: float) -> list[str]:
    source = Source("main.py", text)
    made = [operator(source, Edit(Random(seed), **settings)) for seed in seeds]  # pyright: ignore
    return [child for child in made if child is not None and valid(source, child)]


def outcome(text: str) -> float:
    space: dict[str, object] = {}
    exec(compile(text, "main.py", "exec"), space)
    return space["run"]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues, reportReturnType]


@pytest.mark.parametrize(
    ("idiom", "settings"),
    [
        ("refine_by_gradient", {"step": 0.2}),
        ("refine_by_climbing", {"step": 0.2}),
        ("refine_by_solver", {"method": "L-BFGS-B"}),
        ("refine_by_solver", {"method": "Nelder-Mead"}),
    ],
)
def test_refining_climbs_by_the_criterion_and_keeps_the_kind(idiom: str, settings: dict[str, object]) -> None:
    import numpy as np

    for start in (np.array([[3.0, -2.0]]), [3.0, -2.0], (3.0, -2.0), 3.0):
        space: dict[str, object] = {}
        exec(template(idiom), space)  # afresh: calls from one place share their time
        best = space[idiom](lambda v: -((np.array(v) - 1.0) ** 2), start, seconds=0.05, **settings)  # pyright: ignore
        assert type(best) is type(start) and np.shape(best) == np.shape(start)
        assert np.sum((np.array(best) - 1) ** 2) < np.sum((np.array(start) - 1) ** 2)


def test_reordering_shortens_a_tour_and_keeps_its_items() -> None:
    space: dict[str, object] = {}
    exec(template("refine_order"), space)
    items = [5, 1, 4, 0, 3, 2, 7, 6]

    def steps(order: list[int]) -> list[int]:
        return [abs(a - b) for a, b in pairwise(order)]

    best = space["refine_order"](steps, items, sign=-1, seconds=0.2)  # pyright: ignore
    assert sorted(best) == sorted(items)
    assert sum(steps(best)) < sum(steps(items))


def test_restarts_keep_the_best_result() -> None:
    space: dict[str, object] = {}
    exec(template("best_of_restarts"), space)
    rng = Random(4)
    drawn: list[float] = []

    def draw() -> float:
        drawn.append(rng.random())
        return drawn[-1]

    best = space["best_of_restarts"](lambda v: v, seconds=5.0, most=50)(draw)()  # pyright: ignore
    assert len(drawn) == 51 and best == max(drawn)


def test_a_criterion_that_always_fails_leaves_the_value_alone() -> None:
    space: dict[str, object] = {}
    for idiom in ("refine_by_gradient", "refine_by_climbing", "refine_by_solver"):
        exec(template(idiom), space)
        assert space[idiom](lambda v: v["no"], [1.0, 2.0], seconds=0.02) == [1.0, 2.0]  # pyright: ignore


def test_a_returned_value_is_refined_by_the_function_that_takes_it() -> None:
    made = children(refine, ROUTE, range(60), seconds=0.05)
    assert {idiom for idiom in IDIOMS if any(f"return {idiom}(" in text for text in made)} >= {"refine_by_gradient"}
    assert (
        max(_outcome_or_worst(text) for text in made if "lambda value: height(value)" in text) > -0.5 > outcome(ROUTE)
    )


def test_an_assigned_value_is_refined_by_what_follows_it() -> None:
    made = [text for text in children(refine, INLINE, range(60), seconds=0.05) if "def outcome(x):" in text]
    assert made
    best = max(made, key=_outcome_or_worst)
    assert outcome(best) > -0.5 > outcome(INLINE)
    assert "        y = [-(x[0] - 1) ** 2, -(x[1] - 1) ** 2]\n        return " in best


def _outcome_or_worst(text: str) -> float:
    try:
        return outcome(text)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return -math.inf  # a criterion or idiom that does not suit the value


def test_no_criterion_leads_back_to_the_function_itself() -> None:
    text = "def a(x):\n    return b([1.0]) + x\n\ndef b(x):\n    return a(x)\n"
    assert children(refine, text, range(40)) == []


def test_effort_grows_to_the_allowance_and_no_further() -> None:
    (text,) = children(refine, ROUTE, range(1), seconds=0.5, most=10.0) or children(refine, ROUTE, range(1, 9))[:1]
    grown = text
    for seed in range(20):
        grown = effort(Source("main.py", grown), Edit(Random(seed), most=10.0)) or grown
    seconds = sum(value for _, value in wrapping.allowances(Source("main.py", grown)))
    assert 8.0 < seconds <= 10.0
    assert effort(Source("main.py", grown), Edit(Random(0), most=10.0)) is None


def test_another_method_keeps_value_criterion_and_time() -> None:
    refined = next(text for text in children(refine, ROUTE, range(60), seconds=0.07) if "value: height(value)" in text)
    kept = refined[refined.index("(lambda value: height") : refined.index(", seconds=0.07")]
    made = children(method, refined, range(40))
    assert len({text[text.index(kept) - 18 : text.index(kept)] for text in made}) > 2
    for text in made:
        assert f"{kept}, seconds=0.07, " in text
        assert all(text.count(f"def {idiom}(") == 1 for idiom in IDIOMS if f"return {idiom}(" in text)
    assert children(method, ROUTE, range(9)) == []


def test_restart_decorates_a_function_of_chance_once_with_its_helper_before_it() -> None:
    assert children(restart, ROUTE, range(9)) == []
    text = "import random\n\ndef run():\n    return random.Random(3).random()\n"
    for seed in range(2):
        text = children(restart, text, range(seed, seed + 1), seconds=0.05)[0]
    assert text.count("def best_of_restarts(") == 1 and text.count("\n@best_of_restarts(") == 2
    assert 0 <= outcome(text) <= 1


def test_a_bound_is_put_around_a_value() -> None:
    made = children(bounds, "def f(a, b):\n    c = a * b\n    return min(a, c)\n", range(30))
    assert any("    c = min(a * b, " in text for text in made)
    assert any("return min(a, c, " in text for text in made)


def test_cheaper_forms_give_the_same_numbers() -> None:
    text = (
        "import numpy as np\n\ndef run():\n    p = np.array([[0.0, 3.0], [4.0, 0.0]])\n    d = 0.0\n"
        "    for i in range(2):\n        d += np.linalg.norm(p[i] - p[1 - i]) + np.sqrt(16.0)\n    return float(d)\n"
    )
    made = set(children(cheaper, text, range(40)))
    whole = "math.dist(p[i], p[1 - i]) + math.sqrt(16.0)"
    assert any(
        whole in text and "    p = p.tolist() if hasattr(p, 'tolist') else p\n    for i" in text for text in made
    )
    assert all(_outcome_or_worst(text) in (18.0, -math.inf) for text in made)
    assert sum(_outcome_or_worst(text) == 18.0 for text in made) >= 2
