"""The choice to proxy an evaluator of the form legacy.

Its own seed decides, and a later session keeps to it.
"""

from __future__ import annotations

from typing import Any

import pytest

from culmen.core.evaluation import Scoring, Status
from culmen.core.task import Objective
from tests.evaluate.conftest import Ground, Grounds
from tests.extensions.compat.openevolve.proxied import LOAD, ROOMY, Make

pytestmark = pytest.mark.jail


@pytest.fixture
def ground(shared: Grounds) -> Grounds:
    return shared


HONEST = "def f(x=3):\n    return float(x)\n"
READS = LOAD + "def evaluate(path):\n    return load(path).f() + 0.001 * len(open(path).read())\n"
GUARDS = (
    LOAD
    + "def evaluate(path):\n    assert 'import os' not in open(path).read()\n    return load(path).f()\n"
)
FIXES = (
    LOAD
    + "def evaluate(path):\n    items = [3, 1]\n    load(path).sort(items)\n    return float(items == [1, 3])\n"
)
NOISE = (
    LOAD
    + "import time\ndef evaluate(path):\n    return {'combined_score': load(path).f() + time.time_ns() % 7 / 1e5}\n"
)
OBJECT = LOAD + "def evaluate(path):\n    return load(path).make().value()\n"


def settled(ground: Make, source: str, program: str, **more: Any) -> tuple[Ground, Scoring]:
    arena = ground(source, seeds=({"program.py": program},), form="legacy", limits=ROOMY, **more)
    return arena, arena.backend.scoring


def test_an_evaluator_that_gives_its_seed_the_same_score_is_proxied(ground: Make) -> None:
    arena, scoring = settled(
        ground, LOAD + "def evaluate(path):\n    return load(path).f()\n", HONEST
    )
    assert scoring == Scoring("proxied") and arena.one(HONEST).trust == "proxied"


@pytest.mark.parametrize(
    ("source", "program", "why"),
    [
        (READS, HONEST, "reads the program's text"),
        (GUARDS, HONEST, "reads the program's text"),
        (FIXES, "def sort(items): items.sort()\n", "1 in the same process"),
        (LOAD + "def evaluate(path):\n    return len(path) * 1.0\n", HONEST, "does not import"),
        (
            LOAD + "class Env: pass\ndef evaluate(path):\n    return load(path).f(Env())\n",
            "def f(env): return 1.0\n",
            "an object of Env is passed",
        ),
        (
            LOAD + "def evaluate(path):\n    return float(load(path).f.__code__.co_argcount)\n",
            "def f(a, b, c): return 0\n",
            "in the same process",
        ),
    ],
)
def test_where_a_proxy_would_change_the_score_the_level_is_weaker_and_says_why(
    ground: Make, source: str, program: str, why: str
) -> None:
    arena, scoring = settled(ground, source, program)
    assert scoring.trust == "self-reported" and why in scoring.why, scoring
    observation = arena.one(program)
    assert observation.ok and observation.trust == "self-reported"


def test_scores_that_change_by_themselves_are_compared_as_such(ground: Make) -> None:
    assert settled(ground, NOISE, HONEST)[1].trust == "proxied"


def test_what_the_seed_needs_is_accepted_later_and_nothing_else(ground: Make) -> None:
    program = "class Thing:\n    def value(self): return 2.0\ndef make(): return Thing()\n"
    arena, scoring = settled(ground, OBJECT, program)
    assert scoring == Scoring("proxied", accept=("make() an object",))
    assert arena.one(program).score == 2.0
    liar = program.replace("return 2.0", "return Thing()")
    observation = arena.one(liar)
    assert (observation.status, observation.reason) == (Status.INVALID, "bad_output")


def test_an_infinite_result_of_the_seed_is_accepted_later(ground: Make) -> None:
    source = (
        LOAD
        + "import math\ndef evaluate(path):\n    return 1.0 if math.isinf(load(path).f()) else 2.0\n"
    )
    arena, scoring = settled(ground, source, "def f(): return float('inf')\n")
    assert (
        scoring.accept == ("f() numbers that are not finite",)
        and arena.one("def f(): return 1.0\n").score == 2.0
    )


def test_a_text_read_only_later_is_not_taken_for_a_score(ground: Make) -> None:
    source = LOAD + (
        "def evaluate(path):\n    value = load(path).f()\n    if value > 5: open(path).read()\n    return value\n"
    )
    arena, scoring = settled(ground, source, HONEST)
    assert scoring.trust == "proxied"
    observation = arena.one(HONEST.replace("float(x)", "9.0"))
    assert (observation.status, observation.reason) == (Status.INVALID, "text_read")


def test_a_way_can_be_demanded(ground: Make) -> None:
    from culmen.core.errors import TaskError

    plain = LOAD + "def evaluate(path):\n    return load(path).f()\n"
    never = settled(ground, plain, HONEST, proxy="never")[1]
    assert never.trust == "self-reported" and "never" in never.why
    assert settled(ground, plain, HONEST, proxy="always")[1].trust == "proxied"
    with pytest.raises(
        TaskError, match="does not work behind a proxy: the evaluator reads the program's text"
    ):
        settled(ground, READS, HONEST, proxy="always")


def test_other_languages_and_weak_jails_are_self_reported(ground: Make) -> None:
    source = "def evaluate(path):\n    return float(open(path).read())\n"
    arena = ground(source, form="legacy", suffix=".txt")
    assert arena.backend.scoring.trust == "self-reported" and ".txt" in arena.backend.scoring.why
    weak = ground(
        LOAD + "def evaluate(path):\n    return load(path).f()\n", "limits", form="legacy"
    )
    assert weak.backend.scoring.trust == "self-reported" and weak.one(HONEST).score == 3.0
    called = ground("def score(output): return output\n", "limits")
    assert called.one("def run(): return 1").trust == "self-reported"


def test_a_decision_of_an_earlier_session_is_kept(tmp_path, monkeypatch) -> None:
    import asyncio

    from culmen.core.task import Evaluator, Task
    from culmen.evaluate.local import LocalBackend
    from culmen.extensions.compat.openevolve import proxied

    (tmp_path / "evaluator.py").write_text(READS)
    task = Task(
        "t",
        seeds=({"program.py": HONEST},),
        evaluator=Evaluator("legacy", str(tmp_path / "evaluator.py")),
    )

    async def work(scoring: Scoring) -> Scoring:
        backend = LocalBackend(task, 1, scoring=scoring)
        try:
            await backend.start()
            return backend.scoring
        finally:
            await backend.close()

    first = asyncio.run(work(Scoring()))
    assert first.trust == "self-reported"
    monkeypatch.setattr(proxied, "scoring_from_trial", None)  # a second session does not try again
    assert asyncio.run(work(first)) == first
    assert Objective().bounds == (None, None)
