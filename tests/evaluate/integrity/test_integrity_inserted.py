"""Texts that the offline proposer writes into programs.

The scan knows them by their content, and they hide nothing else.
"""

from __future__ import annotations

import inspect
import textwrap
from random import Random

import pytest

import culmen.extensions.builtin  # noqa: F401 - a built-in task is read
from culmen.core.candidate import Candidate
from culmen.evaluate.integrity import inserted, signs
from culmen.models.offline.tools import vary_candidate
from culmen.tasks import example_path, load

TASK = load(example_path("circle_packing"))
LOOP = inspect.getsource(inserted.refine_by_gradient)
PLAYS = "import sys\n\n\ndef run():\n    return sys._getframe(1).f_locals\n"


def found(text: str) -> set[str]:
    return {
        each.name
        for each in signs.of_parts({"pack.py": text}, TASK, signs.ScanContext.from_task(TASK))
    }


def test_loops_that_the_offline_proposer_inserts_are_no_signs() -> None:
    weights = {"refine": 3.0, "statements": 1.0, "bounds": 1.0}
    seed, rng = Candidate.of(TASK.seeds[0]), Random(1)
    made = [
        vary_candidate((seed,), {"weights": weights, "count": 1, "again": 0.6}, rng).parts
        for _ in range(60)
    ]
    texts = [parts[0]["pack.py"] for parts in made if parts]
    assert sum("def refine_by_" in text for text in texts) > 20
    assert [name for text in texts for name in found(text)] == []


@pytest.mark.parametrize("indent", ["", "    "])
def test_what_stands_beside_an_inserted_loop_is_seen(indent: str) -> None:
    own = f"if True:\n{textwrap.indent(LOOP, indent)}" if indent else LOOP
    assert found(own) == set()
    assert "frames" in found(f"{own}\n\n{PLAYS}") and "frames" in found(f"{PLAYS}\n\n{own}")


@pytest.mark.parametrize(
    "text",
    [
        LOOP.replace("    rng, shape", "    import sys\n    sys._getframe(1)\n    rng, shape"),
        LOOP + "    import sys; sys._getframe(1)\n",
        LOOP.rstrip() + "; import sys; sys._getframe(1)\n",
        "import sys\n\n\n@sys._getframe(1).f_locals.get\n" + LOOP,
        "import sys\n\n\n" + LOOP.replace("seed=0):", "seed=0, more=sys._getframe(1)):"),
        "# inserted by culmen: refine_by_gradient\n" + PLAYS.replace("run", "refine_by_gradient"),
        f"NOTE = '''\n{LOOP}'''\n{PLAYS}",
    ],
    ids=["inside", "after", "same line", "decorator", "default", "name", "in a text"],
)
def test_nothing_hides_behind_an_inserted_loop(text: str) -> None:
    assert "frames" in found(text)
