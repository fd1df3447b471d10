"""Texts that agents read, word by word. CULMEN_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from culmen.core.task import Evaluator, Limits, Objective, Surface, Task
from culmen.extensions.agents.messages import ExperimentRow
from culmen.extensions.agents.team import texts
from culmen.extensions.agents.team.history import History

GOLDEN = Path(__file__).parent / "golden"
CIRCLES = Task(
    "circles",
    "Pack 26 circles into the unit square so that the sum of their radii is as large as possible.",
    seeds=({"pack.py": "def run():\n    return [], []\n"},),
    evaluator=Evaluator(
        form="call", entry="run", module="pack.py", verifier="/somewhere/verify.py"
    ),
    objective=Objective("max", target=2.6358, bounds=(0.0, None)),
    limits=Limits(seconds=30),
)
PARTS = Task(
    "prompts",
    "Answer questions.",
    seeds=({"system.txt": "You answer.", "user.txt": "$question", "tools.py": "X = 1\n"},),
    evaluator=Evaluator(form="command", command=("answer", "{system.txt}", "{user.txt}")),
    objective=Objective("min"),
    surface=Surface(frozen=("tools.py",), language="text"),
)
STUB = 'def run_packing():\n    raise NotImplementedError("write run_packing")\n'
OPTIONS = {"uses": ["run_packing"], "stub": STUB}
BARE = Task("bare", "Costs $5 at most.", evaluator=Evaluator(form="legacy", options=OPTIONS))


def check(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.md"
    if os.environ.get("CULMEN_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_certified_task_in_a_sequence():
    limits = {"experiments": 20, "calls": 300, "seconds": 3600.0, "idle": 600.0}
    check("task_sequence", texts.task_text(CIRCLES, 3, 10, 1, limits, 2.6358))


def test_the_pressing_words_of_the_paper_differ_in_the_threshold_and_the_end_alone():
    given = (CIRCLES, 3, 10, 1, {"experiments": 20}, 2.6358, "")
    ours, pressing = (
        texts.task_text(*given, name).splitlines()
        for name in ("stop_when_reached", "go_on_until_reached")
    )
    changed = [(a, b) for a, b in zip(ours, pressing, strict=True) if a != b]
    assert [b.partition(" Before you end")[0] for _, b in changed] == [
        "Your task is a candidate with a certified score of at least 2.6358.",
        "Keep going until the score above is reached. Do not end your work before, whatever you "
        "have tried: you must find a better candidate.",
    ]
    free = texts.task_text(CIRCLES, 3, 10, 1, {}, None, "", "go_on_until_reached")
    assert "\nKeep going. Do not end" in free and "Your task is a candidate" not in free


def test_a_task_of_several_parts_for_agents_side_by_side():
    check("task_parallel", texts.task_text(PARTS, 0, 4, 2, {"dollars": 1.5, "tokens": 40000}, 0.5))


def test_a_task_without_a_program_for_a_lone_agent():
    check("task_bare", texts.task_text(BARE, 0, 1, 1, {}, None, "Use the tool `evaluate`."))


def test_what_an_agent_may_read_of_the_evaluator():
    shown = 'N = 26\nTOLERANCE = 1e-6\ndef score(output):\n    """The sum of the radii; None where circles overlap."""'
    task = msgspec.structs.replace(
        CIRCLES, evaluator=msgspec.structs.replace(CIRCLES.evaluator, shown=shown)
    )
    text = texts.task_text(task, 0, 1, 1, {}, None)
    assert "# The evaluator" in text and shown in text
    assert "# The evaluator" not in texts.task_text(CIRCLES, 0, 1, 1, {}, None)


def test_leaderboard():
    history = History(CIRCLES.objective, exact=True)
    assert texts.leaderboard_text(history).count("\n") == 6
    rows = [
        ExperimentRow(1, -1, "seed-0", "aa", score=1.0, certified=1.0, origin="seed"),
        ExperimentRow(
            2,
            0,
            "a00-1",
            "bb",
            path="candidates/a00/x.py",
            score=2.5,
            certified=2.4999999,
            note="a | b\nc",
        ),
        ExperimentRow(3, 0, "a00-2", "cc", path="candidates/a00/y.py", score=2.2),
        ExperimentRow(4, 1, "a01-1", "dd", score=2.7, status="ok", reason="not_certified"),
        ExperimentRow(5, 1, "a01-2", "", status="refused", reason="experiments"),
    ]
    for row in rows:
        history.record_row(row)
    check("leaderboard", texts.leaderboard_text(history))


@pytest.mark.parametrize("name", ["builtin", "prompt", "idle", "recall"])
def test_fixed_texts_have_no_slots(name):
    assert "$" not in texts.fill_template(name)


def test_every_template_can_be_filled():
    slots = {
        "task": None,
        "closed": {"why": "x"},
        "closing": {"why": "x"},
        "malformed": {"complaint": "x"},
    }
    for file in resources.files("culmen.extensions.agents.team").joinpath("templates").iterdir():
        name = file.name.removesuffix(".md")
        if slots.get(name, {}) is not None:
            assert texts.fill_template(name, **slots.get(name, {})).strip()
