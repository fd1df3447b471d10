"""The inserted loop on a small program: its text, and that it works as described when run."""

from __future__ import annotations

import math
import re
from random import Random

from culmen.models.offline import loops
from culmen.models.offline.changes import bound_value
from culmen.models.offline.loops import insert_loop, inserted_source, raise_loop_calls
from culmen.models.offline.source import INSERTED, EditableText, EditContext, is_well_formed
from tests.models.offline.worlds import ROUTE

INLINE = """def run():
    x = [3.0, -2.0]
    y = [-(x[0] - 1) ** 2, -(x[1] - 1) ** 2]
    return sum(y)
"""


def children(operator: object, text: str, seeds: range, **settings: int) -> list[str]:
    source = EditableText("main.py", text)
    made = [operator(source, EditContext(Random(seed), **settings)) for seed in seeds]  # pyright: ignore
    return [child for child in made if child is not None and is_well_formed(source, child)]


def outcome(text: str) -> float:
    space: dict[str, object] = {}
    exec(compile(text, "main.py", "exec"), space)
    return space["run"]()  # pyright: ignore[reportCallIssue, reportGeneralTypeIssues, reportReturnType]


def test_refining_climbs_by_the_criterion_and_keeps_the_kind() -> None:
    import numpy as np

    for start in (np.array([[3.0, -2.0]]), [3.0, -2.0], (3.0, -2.0), 3.0):
        space: dict[str, object] = {}
        exec(inserted_source(), space)  # afresh: calls from one place share their time
        best = space[INSERTED](
            lambda v: -((np.array(v) - 1.0) ** 2), start, calls=600, seconds=9.0, step=0.2
        )  # pyright: ignore
        assert type(best) is type(start) and np.shape(best) == np.shape(start)
        assert np.sum((np.array(best) - 1) ** 2) < np.sum((np.array(start) - 1) ** 2)


def test_a_criterion_that_always_fails_leaves_the_value_alone() -> None:
    space: dict[str, object] = {}
    exec(inserted_source(), space)
    assert space[INSERTED](lambda v: v["no"], [1.0, 2.0], calls=50) == [1.0, 2.0]  # pyright: ignore


def test_a_returned_value_is_refined_by_the_function_that_takes_it() -> None:
    made = children(insert_loop, ROUTE, range(60), calls=500)
    assert any(f"return {INSERTED}(" in text for text in made)
    assert (
        max(_outcome_or_worst(text) for text in made if "lambda value: height(value)" in text)
        > -0.5
        > outcome(ROUTE)
    )


def test_an_assigned_value_is_refined_by_what_follows_it() -> None:
    made = [
        text
        for text in children(insert_loop, INLINE, range(60), calls=500)
        if "def outcome(x):" in text
    ]
    assert made
    best = max(made, key=_outcome_or_worst)
    assert outcome(best) > -0.5 > outcome(INLINE)
    assert "        y = [-(x[0] - 1) ** 2, -(x[1] - 1) ** 2]\n        return " in best


def _outcome_or_worst(text: str) -> float:
    try:
        return outcome(text)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return -math.inf  # a criterion or loop that does not suit the value


def test_no_criterion_leads_back_to_the_function_itself() -> None:
    text = "def a(x):\n    return b([1.0]) + x\n\ndef b(x):\n    return a(x)\n"
    assert children(insert_loop, text, range(40)) == []


def test_effort_grows_to_what_is_allowed_and_no_further() -> None:
    (grown,) = (
        children(insert_loop, ROUTE, range(1), calls=500, most=10_000)
        or children(insert_loop, ROUTE, range(1, 9))[:1]
    )
    for seed in range(20):
        grown = (
            raise_loop_calls(EditableText("main.py", grown), EditContext(Random(seed), most=10_000))
            or grown
        )
    assert 8_000 < loops.total_loop_calls(EditableText("main.py", grown)) <= 10_010
    assert (
        raise_loop_calls(EditableText("main.py", grown), EditContext(Random(0), most=10_000))
        is None
    )
    (seconds,) = (float(text) for text in re.findall(r"seconds=([\d.]+), seed=", grown))
    assert math.isclose(
        seconds, 10_000 * EditContext(Random()).pace, rel_tol=0.25
    )  # the guard grows along


def test_a_program_is_given_so_many_calls_for_all_its_loops() -> None:
    twice = children(insert_loop, children(insert_loop, ROUTE, range(9))[0], range(9))
    source = EditableText(
        "main.py", next(text for text in twice if text.count("calls=1500, ") == 2)
    )
    short = loops.text_with_calls(source, 400)
    assert loops.total_loop_calls(EditableText("main.py", short)) == 400
    assert loops.text_with_calls(EditableText("main.py", ROUTE), 400) == ROUTE


def test_a_loop_asks_its_criterion_as_often_as_allowed_and_not_by_the_clock() -> None:
    found: list[object] = []
    for seconds in (50.0, 500.0):
        space: dict[str, object] = {}
        exec(inserted_source(), space)
        looks = 0

        def height(value: list[float]) -> float:
            nonlocal looks
            looks += 1
            return sum(n * x for n, x in enumerate(value)) - sum(x**4 for x in value)

        settings = {"calls": 300, "seconds": seconds, "seed": 5}
        found.append(space[INSERTED](height, [0.3, 2.0, -1.0, 0.5], **settings))  # pyright: ignore
        assert 300 <= looks <= 310
        found.append(space[INSERTED](height, [0.3, 2.0, -1.0, 0.5], **settings))  # pyright: ignore
        assert looks <= 620
        space[INSERTED](height, [0.3, 2.0, -1.0, 0.5], **settings)  # pyright: ignore
        assert (
            looks <= 622
        )  # one place in a program may ask twice as often, however often it is called
    assert found[:2] == found[2:]


def test_a_loop_over_a_dear_criterion_ends_by_the_guard() -> None:
    space: dict[str, object] = {}
    looks = 0

    def criterion(value: list[float]) -> float:
        nonlocal looks
        looks += 1
        return sum(value)

    exec(inserted_source(), space)
    space[INSERTED](criterion, [0.3, 2.0], calls=10**9, seconds=0.02)  # pyright: ignore
    assert 0 < looks < 10**9


def test_a_bound_is_put_around_a_value() -> None:
    made = children(bound_value, "def f(a, b):\n    c = a * b\n    return min(a, c)\n", range(30))
    assert any("    c = min(a * b, " in text for text in made)
    assert any("return min(a, c, " in text for text in made)


def test_an_array_is_bounded_by_a_level_of_its_own_and_a_list_stays_one() -> None:
    text = (
        "import numpy as np\n\ndef run():\n    p = np.array([1.0, 2.0, 9.0]).tolist()\n    for i in range(2):\n"
        "        q = p[i] * 2\n    return max(p)\n"
    )
    made = [
        child for child in children(bound_value, text, range(60)) if child.count("    p = np.") == 2
    ]
    assert any("np.quantile(p, " in child for child in made) and any(
        " * np.mean(p))" in child for child in made
    )
    assert all(re.search(r"    p = np\.m\w+\(p, .*\)\.tolist\(\)\n", child) for child in made)
    assert min(map(outcome, made)) < 9.0
